"""``make fuzz``: mutated bytes for every decoder, from a kept corpus.

    python -m fuzz [--seconds N] [--seed N] [--corpus FOLDER] [--guided]

First every file of the corpus is read by every target. Then, for so many seconds, what is there is mutated. With
--guided atheris does that, which follows what the code does (pip install atheris). A finding is written into
the folder of the corpus, and the exit status is 1: keep the file, mend the cause.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
from pathlib import Path
from types import FunctionType
from typing import Any, Final

from fuzz.seeds import seeds
from fuzz.targets import TARGETS

__all__: list[str] = []

NAMES: Final = sorted(TARGETS)
CORPUS: Final = Path(__file__).parent.parent.parent / "tests" / "fuzz" / "corpus"
_INTERESTING: Final = (0, 1, 0x7F, 0x80, 0xFF)
_LONGEST: Final = 1 << 14


def load(folder: Path) -> list[tuple[str, bytes]]:
    """The seeds and the kept files: the name of a target, a newline, bytes."""
    kept = [each.read_bytes().split(b"\n", 1) for each in sorted(folder.glob("*.bin"))]
    return [*seeds(), *((name.decode(), data) for name, data in kept)]


def mutated(dice: random.Random, data: bytes) -> bytes:
    out = bytearray(data or b"\0")
    for _ in range(dice.choice((1, 1, 2, 4, 8))):
        at = dice.randrange(len(out)) if out else 0
        match dice.randrange(6) if out else 3:
            case 0:
                out[at] ^= 1 << dice.randrange(8)
            case 1:
                out[at] = dice.choice(_INTERESTING)
            case 2:
                del out[at : at + dice.randrange(1, 9)]
            case 3:
                out[at:at] = dice.randbytes(dice.randrange(1, 9))
            case 4:
                out[at:at] = out[at : at + dice.randrange(1, 65)]
            case _:
                out[at : at + 4] = dice.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0"))
    return bytes(out[:_LONGEST])


def try_out(name: str, data: bytes, folder: Path) -> bool:
    """Whether all is well."""
    try:
        TARGETS[name](data)
    except Exception as error:  # noqa: BLE001 - that is a finding
        found = folder / f"finding-{hashlib.sha256(data).hexdigest()[:12]}.bin"
        found.write_bytes(name.encode() + b"\n" + data)
        print(f"{name}: {type(error).__name__}: {error}; see {found}")
        return False
    return True


def mutate(corpus: list[tuple[str, bytes]], seconds: float, seed: int, folder: Path) -> tuple[int, int]:
    """How many were tried, and how many were findings."""
    dice, until, tried, bad = random.Random(seed), time.monotonic() + seconds, 0, 0  # noqa: S311
    while time.monotonic() < until and bad < 10:
        name, data = dice.choice(corpus)
        bad += not try_out(name, mutated(dice, data), folder)
        tried += 1
    return tried, bad


def guided(corpus: list[tuple[str, bytes]], seconds: float, folder: Path) -> None:
    """By coverage. Two bytes say which target; it does not return."""
    import atheris  # noqa: PLC0415 - an extra of its own

    kept = folder.parent / "guided"  # what reached something new, for the next run; no part of the project
    kept.mkdir(exist_ok=True)
    for number, (name, data) in enumerate(corpus):
        (kept / f"seed-{number}").write_bytes(NAMES.index(name).to_bytes(2, "big") + data)

    def once(data: bytes) -> None:
        number = int.from_bytes(data[:2], "big")
        if number < len(NAMES):
            TARGETS[NAMES[number]](data[2:])

    _instrument(atheris, "instride._wire")
    options = [f"-max_total_time={round(seconds)}", f"-max_len={_LONGEST}", f"-artifact_prefix={folder}/"]
    atheris.Setup([sys.argv[0], *options, str(kept)], once)
    atheris.Fuzz()


def _instrument(atheris: Any, package: str) -> None:
    """What is Python in it, and was imported; compiled modules are seen by their results alone."""
    for name, module in list(sys.modules.items()):
        if not name.startswith(package):
            continue
        own = [each for each in vars(module).values() if getattr(each, "__module__", None) == name]
        methods = [each for kind in own if isinstance(kind, type) for each in vars(kind).values()]
        for each in (*own, *methods):
            if isinstance(each, FunctionType) and each.__code__.co_code:
                atheris.instrument_func(each)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--guided", action="store_true")
    given = parser.parse_args()
    corpus = load(given.corpus)
    known = sum(not try_out(name, data, given.corpus) for name, data in corpus)
    if given.guided:
        guided(corpus, given.seconds, given.corpus)
    tried, bad = mutate(corpus, given.seconds, given.seed, given.corpus)
    print(f"{len(TARGETS)} targets, {len(corpus)} of the corpus, {tried} mutated: {known + bad} findings")
    return int(known + bad > 0)


if __name__ == "__main__":
    sys.exit(main())
