"""What became of each test in one run: read from the JUnit report that pytest writes (`--junitxml`).

Laws
1. A test with parameters passed when at least one of its cases passed and none failed. A skipped case is named.
2. A test that is not in the report, or whose cases were all skipped, did not run. It proves nothing in this run.
3. A row of which every test was skipped, for what this machine lacks, is named. It is no failure, and does not count
   as shown. A row of which a test is not in the report at all, and none passed, is a failure.
4. A test that plays a part of what it proves says which rows that was (properties "requirement" of its case): for its
   other rows it did not run.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from conformance.markers import Proof
from conformance.requirements import Document, Requirement

__all__ = ["Result", "Verdict", "judge", "read_played", "read_results", "skipped_cases"]

Results = Mapping[tuple[str, str], "Result"]
"""Results by the path of the test's file (from the folder of tests on) and the name of its function."""

_PARAMETERS: Final = re.compile(r"\[.*", re.DOTALL)


class Result(Enum):
    """The result of all cases of one test together."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run here"


def read_results(report: Path) -> dict[tuple[str, str], Result]:
    """Raises OSError or ElementTree.ParseError where there is no such report."""
    cases: defaultdict[tuple[str, str], set[Result]] = defaultdict(set)
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - our own pytest wrote it
        name = _PARAMETERS.sub("", case.get("name", ""))
        cases[_path(case.get("classname", "")), name].add(_result(case))
    return {test: _of_all(results) for test, results in cases.items()}


def read_played(report: Path) -> dict[tuple[str, str], set[str]]:
    """Law 4: of the tests that say so, the rows that they have shown. Raises as `read_results`."""
    played: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - our own pytest wrote it
        test = _path(case.get("classname", "")), _PARAMETERS.sub("", case.get("name", ""))
        for each in case.iterfind("properties/property[@name='requirement']"):
            played[test].add(each.get("value", ""))
    return dict(played)


def skipped_cases(report: Path) -> list[str]:
    """Of tests of which other cases ran (law 1), those that did not, by name. Raises as `read_results`."""
    ran = {test for test, result in read_results(report).items() if result is not Result.NOT_RUN}
    found = []
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - our own pytest wrote it
        path, name = _path(case.get("classname", "")), case.get("name", "")
        if _result(case) is Result.NOT_RUN and (path, _PARAMETERS.sub("", name)) in ran:
            found.append(f"{path}::{name}")
    return sorted(found)


def _path(classname: str) -> str:
    """`tests.core.test_telemetry_lines.TestClass` is in `core/test_telemetry_lines.py`."""
    parts = classname.split(".")
    while parts and not parts[-1].startswith("test_"):
        parts.pop()
    return "/".join(parts[1:]) + ".py"


def _result(case: ElementTree.Element) -> Result:
    if case.find("failure") is not None or case.find("error") is not None:
        return Result.FAILED
    return Result.NOT_RUN if case.find("skipped") is not None else Result.PASSED


def _of_all(results: set[Result]) -> Result:
    for worst in (Result.FAILED, Result.PASSED):
        if worst in results:
            return worst
    return Result.NOT_RUN


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """shown: rows of which a test passed and none failed. not_shown: those that fail the run, each with the reason.

    not_run: tests that did not run, each with its rows.
    """

    shown: int
    not_shown: Sequence[str]
    not_run: Sequence[str]


def judge(
    documents: Sequence[Document],
    proofs: Sequence[Proof],
    results: Results,
    played: Mapping[tuple[str, str], Collection[str]],
) -> Verdict:
    """played: see `read_played`."""
    shown, not_shown, not_run = 0, [], defaultdict(list)
    for row in (row for document in documents for row in document.requirements if row.needs_proof):
        tests = [(proof.path, proof.test) for proof in proofs if proof.requirement == row.id]
        found = {test: _of_row(row, results.get(test, Result.NOT_RUN), played.get(test)) for test in tests}
        for path, test in (test for test, result in found.items() if result is Result.NOT_RUN):
            not_run[f"{path}::{test}"].append(row.id)
        if problem := _problem(row, found, results):
            not_shown.append(problem)
        elif Result.PASSED in found.values():
            shown += 1
    tests_not_run = [f"{test} (of {', '.join(rows)})" for test, rows in sorted(not_run.items())]
    return Verdict(shown=shown, not_shown=not_shown, not_run=tests_not_run)


def _of_row(row: Requirement, result: Result, played: Collection[str] | None) -> Result:
    """played: law 4; None: the test does not say."""
    left_out = result is Result.PASSED and played is not None and row.id not in played
    return Result.NOT_RUN if left_out else result


def _problem(row: Requirement, found: Mapping[tuple[str, str], Result], results: Results) -> str:
    failed = [f"{path}::{test}" for (path, test), result in found.items() if result is Result.FAILED]
    if failed:
        return f"{row.id}: failed: {', '.join(failed)}"
    skipped = bool(found) and all(test in results for test in found)
    if Result.PASSED not in found.values() and not skipped:
        return f"{row.id}: no test of it passed in this run"
    return ""
