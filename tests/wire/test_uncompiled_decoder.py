"""The same modules uncompiled: refused, or with INSTRIDE_PURE=1 slow, but with the same results."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from record_batches import decode, records_of
from test_record_fuzz import GOOD, mutated, originals, sealed

import instride
from instride._wire.compiled import PURE_VARIABLE

LIMIT = 1 << 16

DECODE = """
import json, sys
from instride._wire.decoder import COMPILED
from instride._wire.record_set import RecordSet, decode_record_set

def views(columns, field, stop):
    kept, first = columns.kept_bytes(0, stop)
    made, buffers, validity = columns.binary_view(field, 0, stop, kept, first)
    return [first, None if made is None else bytes(made).hex(), [len(each) for each in buffers]]

def outcome(data, committed):
    found = [RecordSet(memoryview(data), topic="t", partition=3, fetch_offset=0).next_offset]
    for piece in decode_record_set(
        memoryview(data), topic="t", partition=3, fetch_offset=0, read_committed=committed, aborted=[(1, 0)],
        end=1000, max_decompressed_bytes=1 << 16, capacity=4000):
        chunk = piece.chunk
        rows = [] if chunk is None else [repr((r, r.key, r.value, r.headers, r.leader_epoch, r.timestamp_type))
                                         for r in chunk.records(epoch=1, seek_number=2)]
        columns = None if chunk is None else [
            [bytes(part).hex() for part in chunk.columns.binary(field, 0, chunk.stop) if part is not None]
            + [bytes(chunk.columns.longs(field, 0, chunk.stop)).hex(), chunk.nbytes]
            + [views(chunk.columns, field, chunk.stop)]
            for field in (0, 1)]
        found.append([rows, columns, piece.next_offset, piece.nbytes, str(piece.corrupt)])
    return found
"""
MAIN = """
assert not COMPILED
print(json.dumps([outcome(bytes.fromhex(data), committed) for data, committed in json.load(sys.stdin)]))
"""


@pytest.fixture(scope="module")
def uncompiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package without its compiled modules (and without its front door, which opens all)."""
    source, target = Path(instride.__file__).parent, tmp_path_factory.mktemp("pure") / "instride"
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
    (target / "__init__.py").write_text("")
    return target.parent


def _run(uncompiled: Path, script: str, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k not in (PURE_VARIABLE, "PYTHONPATH", "PYTHONWARNINGS")}
    return subprocess.run(
        [sys.executable, "-c", script],
        input=given,
        env=clean | {"PYTHONPATH": str(uncompiled)} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def _cases() -> list[tuple[str, bool]]:
    rng, out = random.Random(3), []
    for codec in ("none", "zstd"):
        for original in originals(codec):
            out.append((GOOD + original).hex())
            for _ in range(60):
                bad = mutated(rng, original)
                out.append((GOOD + (sealed(bad) if rng.random() < 0.8 else bad)).hex())
    return [(data, rng.random() < 0.5) for data in out]


def test_both_forms_agree(uncompiled: Path) -> None:
    cases = _cases()
    done = _run(uncompiled, DECODE + MAIN, json.dumps(cases), INSTRIDE_PURE="1")
    assert done.returncode == 0, done.stderr
    assert "runs uncompiled (INSTRIDE_PURE=1): slow" in done.stderr
    here: dict[str, Any] = {}
    exec(DECODE, here)
    expected = [here["outcome"](bytes.fromhex(data), committed) for data, committed in cases]
    found = json.loads(done.stdout)
    assert found == expected
    assert sum(case[-1][-1] == "None" for case in found if case) > 50
    assert sum(case[-1][-1] != "None" for case in found if case) > 50


@pytest.mark.parametrize("module", ["decoder", "record_index", "batch_headers"])
def test_without_compiled_modules_the_import_says_what_to_do(uncompiled: Path, module: str) -> None:
    done = _run(uncompiled, f"import instride._wire.{module}")
    assert done.returncode == 1
    assert "ImportError: instride._wire." in done.stderr
    assert "is not compiled here. Install instride from a wheel" in done.stderr
    assert "INSTRIDE_PURE=1" in done.stderr


def test_uncompiled_records_cannot_be_told_from_compiled_ones(uncompiled: Path) -> None:
    chunk, _, _ = decode(GOOD)
    script = DECODE + "print([repr(r) for r in decode_record_set(memoryview(bytes.fromhex(sys.stdin.read())),"
    script += " topic='t', partition=3, fetch_offset=0).__next__().chunk.records(epoch=1, seek_number=2)])"
    done = _run(uncompiled, script, GOOD.hex(), INSTRIDE_PURE="1")
    assert done.stdout.strip() == str([repr(r) for r in records_of(chunk)])
