"""A mutant's trial: histories first, then the unit tests.

Laws
1. A trial runs in a folder of its own with a copy of the product, the tests and the pages that these read; nothing else
   is on its path.
2. The histories are those of the first seeds, in order, so that every run finds the same.
3. A trial that does not end in time has found the bug too: something hangs.
4. A mutant that names its test is tried by that test alone. It must run and fail: a test that cannot be collected has
   found nothing.
5. What Hypothesis draws is the same in every run (tests/conftest.py).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from instride._wire.compiled import PURE_VARIABLE
from mutants.mutant import Mutant, apply

__all__ = ["Found", "Outcome", "Snapshot", "judge", "judge_by", "snapshot", "verify"]

UNIT_TESTS = ("tests/core", "tests/test_ledger.py", "tests/test_ledger_loop.py", "tests/test_ledger_model.py")
# It compares a page with the code, and finds a mutant of a table without having asked what the table does.
_NOT_ASKED = "--ignore=tests/core/test_drawn_tables.py"
# Of a module that is meant to be compiled, and is the mutant's.
_SLOW_IS_WELL = ("-W", "ignore::RuntimeWarning")
_TOOLS = Path(__file__).resolve().parent.parent
_PATIENCE = 900.0
"""Seconds for the histories, or the tests, of one mutant; they take a small part of that, also on a busy machine."""
_PATIENCE_WITH_ONE = 120.0
"""The same for one test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """by: a law of the checker, or a unit test. histories: how many were simulated. seed: of the last, where bad."""

    by: str
    histories: int = 0
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """histories: what they found. test: what the unit tests found, asked only where the histories found nothing."""

    mutant: Mutant
    histories: Found | None
    test: Found | None
    seconds: float

    @property
    def killed(self) -> bool:
        return self.histories is not None or self.test is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The product and its tests as they were when this run began: others may go on editing."""

    root: Path

    @property
    def package(self) -> Path:
        return self.root / "src" / "instride"


@contextmanager
def snapshot(project: Path) -> Iterator[Snapshot]:
    with tempfile.TemporaryDirectory(prefix="instride-mutants-") as folder:
        root = Path(folder)
        for name in ("src", "tests", "docs"):
            shutil.copytree(project / name, root / name)
        shutil.copy2(project / "pyproject.toml", root)
        yield Snapshot(root=root)


@contextmanager
def _copy(original: Snapshot) -> Iterator[Snapshot]:
    with tempfile.TemporaryDirectory(prefix="instride-mutant-") as folder:
        root = Path(folder) / "project"
        shutil.copytree(original.root, root)
        yield Snapshot(root=root)


def judge(original: Snapshot, mutant: Mutant, *, histories: int) -> Outcome:
    """histories: how many at most. Raises `StaleMutantError`."""
    if mutant.test:
        return judge_by(original, mutant, mutant.test)
    began = time.monotonic()
    with _copy(original) as copy:
        apply(mutant, copy.package)
        by_histories = _by_histories(copy, ["--first=0", f"--count={histories}"])
        by_test = None if by_histories is not None else _by_tests(copy, _NOT_ASKED, *UNIT_TESTS)
    return Outcome(mutant=mutant, histories=by_histories, test=by_test, seconds=time.monotonic() - began)


def judge_by(original: Snapshot, mutant: Mutant, test: str) -> Outcome:
    """test: the one that must fail (law 4). Raises `StaleMutantError`."""
    began = time.monotonic()
    with _copy(original) as copy:
        apply(mutant, copy.package)
        found = _by_tests(copy, test, collected=True)
    return Outcome(mutant=mutant, histories=None, test=found, seconds=time.monotonic() - began)


def verify(original: Snapshot, outcomes: Sequence[Outcome]) -> str:
    """Whether what found the mutants finds nothing in the product itself; else what it finds there."""
    seeds = sorted({each.histories.seed for each in outcomes if each.histories and each.histories.seed is not None})
    found = _by_histories(original, [str(seed) for seed in seeds]) if seeds else None
    if found is None and any(each.test is not None and not each.mutant.test for each in outcomes):
        found = _by_tests(original, _NOT_ASKED, *UNIT_TESTS)
    named = sorted({each.mutant.test for each in outcomes if each.mutant.test})
    if found is None and named:
        found = _by_tests(original, *named)
    return "" if found is None else f"{found.by} (seed {found.seed})"


def _by_histories(copy: Snapshot, seeds: Sequence[str]) -> Found | None:
    try:
        ended = _python(copy, "-m", "mutants.histories", *seeds)
    except subprocess.TimeoutExpired:
        return Found(by="it hangs")
    if ended.returncode not in (0, 1) or not ended.stdout.startswith("{"):
        return Found(by=f"the simulation does not start: {_last_line(ended.stderr)}")
    result = json.loads(ended.stdout)
    if result["seed"] is None:
        return None
    return Found(by=result["law"], histories=result["histories"], seed=result["seed"])


def _by_tests(copy: Snapshot, *requested: str, collected: bool = False) -> Found | None:
    """collected: only a test that ran and failed counts (law 4)."""
    patience = _PATIENCE_WITH_ONE if collected else _PATIENCE
    try:
        ended = _python(
            copy,
            "-m",
            "pytest",
            "-x",
            "-q",
            "--tb=no",
            "-p",
            "no:cacheprovider",
            *_SLOW_IS_WELL,
            *requested,
            patience=patience,
        )
    except subprocess.TimeoutExpired:
        return Found(by="a test hangs")
    named = re.search(r"^FAILED \S*?([\w.]+(?:::\w+)+)", ended.stdout, re.MULTILINE)
    if ended.returncode == 0 or (collected and named is None):
        return None
    return Found(by=named[1] if named else f"pytest ended with {ended.returncode}: {_last_line(ended.stdout)}")


def _python(copy: Snapshot, *arguments: str, patience: float = _PATIENCE) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(copy.root / "src"), str(_TOOLS)])
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0", "INSTRIDE_DERANDOMIZED": "1", PURE_VARIABLE: "1"},
        cwd=copy.root,
        capture_output=True,
        text=True,
        timeout=patience,
        check=False,
    )


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]
