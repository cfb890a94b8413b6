"""``python -m mutants.histories SEED...``: simulate these histories with the `instride` on the path, up to a bad one.

Prints one line of JSON: {"histories": how many, "seed": of the bad one or null, "law": what it breaks}. It runs in a
process of its own, for each mutant.
"""

from __future__ import annotations

import argparse
import json
import sys

from instride.testing.simulation import check, plan_for, run

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m mutants.histories")
    parser.add_argument("seeds", type=int, nargs="*")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=0)
    chosen = parser.parse_args(arguments)
    seeds = [*chosen.seeds, *range(chosen.first, chosen.first + chosen.count)]
    for done, seed in enumerate(seeds, start=1):
        law = _broken(seed)
        if law:
            _say(histories=done, seed=seed, law=law)
            return 1
    _say(histories=len(seeds), seed=None, law="")
    return 0


def _broken(seed: int) -> str:
    """The first law that the history breaks, or ""."""
    try:
        found = check(run(plan_for(seed)))
    except Exception as error:  # noqa: BLE001 - a mutant may break the simulation itself, and that is noticed too
        return f"{type(error).__name__} in the simulation"
    return f"{found[0].number}, {found[0].law}" if found else ""


def _say(**result: object) -> None:
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    sys.exit(main())
