"""What `make mutants` runs: its definitions fit the code, it tells when they do not, and it fails when it must."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.markers import proofs_in
from conformance.requirements import Requirement, read_documents
from mutants.__main__ import named, of_rows, sampled, status
from mutants.catalogue import load
from mutants.mutant import Edit, Mutant, StaleMutantError, apply, check_fresh
from mutants.table import page
from mutants.trial import Found, Outcome

PROJECT = Path(__file__).resolve().parents[2]
PACKAGE = PROJECT / "src" / "instride"


def mutant(*edits: Edit, missed: str = "") -> Mutant:
    return Mutant(name="a bug", suffers="a loss", edits=edits, missed=missed)


def outcome(*, histories: int = 0, test: str = "", missed: str = "") -> Outcome:
    return Outcome(
        mutant=mutant(missed=missed),
        histories=Found(by="one owner", histories=histories, seed=histories) if histories else None,
        test=Found(by=test) if test else None,
        seconds=1.0,
    )


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "one.py").write_text("a = 1\nb = 2\nb = 2\n")
    return tmp_path


@pytest.mark.parametrize("each", load(), ids=lambda each: each.name)
def test_no_mutant_is_stale(each: Mutant) -> None:
    check_fresh(each, PACKAGE)


def test_there_are_as_many_as_issue_5_asks_for() -> None:
    assert len(load()) >= 25


def test_each_is_in_the_table() -> None:
    table = (PROJECT / "docs" / "mutants.md").read_text(encoding="utf-8")
    missing = [each.name for each in load() if f"| {each.name} | {each.suffers} |" not in table]
    assert missing == []


def rows_of_kip983() -> list[Requirement]:
    documents = read_documents(PROJECT / "tests" / "conformance" / "requirements")
    return [row for each in documents for row in each.requirements if row.id.startswith("KIP-983/")]


def test_each_row_of_kip_983_names_a_mutant_and_a_fast_test_that_is_marked_with_it() -> None:
    marked = {
        (f"tests/{each.path}::{each.test}", each.requirement) for each in proofs_in(PROJECT / "tests") if not each.ring
    }
    rows = rows_of_kip983()
    assert len(rows) == 31
    assert [row.id for row in rows if not row.mutant or (row.killed_by, row.id) not in marked] == []
    assert {(row.mutant, row.killed_by) for row in rows} == {
        (each.name, each.test) for each in of_rows(PROJECT, load())
    }


def test_each_of_rules_13_to_21_has_a_mutant_that_a_test_marked_with_it_finds() -> None:
    tests = {each.test.partition("[")[0] for each in named(load())}
    proven = {each.requirement for each in proofs_in(PROJECT / "tests") if f"tests/{each.path}::{each.test}" in tests}
    assert {f"rule/{number}" for number in range(13, 22)} <= proven


def test_each_named_test_exists() -> None:
    tests = {each.test for each in named(load())}
    assert [
        each
        for each in tests
        if f"def {each.split('::')[1].partition('[')[0]}(" not in (PROJECT / each.split("::")[0]).read_text()
    ] == []


@pytest.mark.slow
def test_each_named_case_exists() -> None:
    """Of a test with parameters: pytest would find no test, and the mutant would count as one that nothing finds."""
    cases = {each.test for each in named(load()) if "[" in each.test}
    files = sorted({each.partition("::")[0] for each in cases})
    collecting = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *files]
    everything = {**os.environ, "INSTRIDE_WHOLE": "1"}
    found = subprocess.run(collecting, cwd=PROJECT, env=everything, capture_output=True, text=True, check=True).stdout
    assert sorted(cases - set(found.splitlines())) == []


def test_a_sample_has_an_order_that_is_the_same_of_the_same_seed() -> None:
    everything = load()
    assert sampled(everything, "a") == sampled(everything, "a") != sampled(everything, "b")
    assert {each.name for each in sampled(everything, "a")} == {each.name for each in everything}


def test_most_name_a_test_and_are_tried_by_it_alone() -> None:
    everything = load()
    assert len(named(everything)) > len(everything) / 2
    one = mutant(missed="it costs time only")
    assert named([one]) == []
    shown = replace(one, shown_by="tests/test_it.py::test_it")
    assert named([shown]) == [replace(one, test="tests/test_it.py::test_it", missed="")]


def test_ten_at_least_are_bugs_beyond_the_core() -> None:
    beyond = [each for each in named(load()) if not any(edit.path.startswith("_core/") for edit in each.edits)]
    assert len({each.name for each in beyond}) >= 10


def test_a_mutant_is_its_replacements(package: Path) -> None:
    apply(mutant(Edit("one.py", "a = 1", "a = 3"), Edit("one.py", "a = 3\n", "a = 4\n")), package)
    assert (package / "one.py").read_text() == "a = 4\nb = 2\nb = 2\n"


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (Edit("one.py", "c = 1", ""), "in one.py 0 times"),
        (Edit("one.py", "b = 2", ""), "in one.py 2 times"),
        (Edit("two.py", "a = 1", ""), "there is no two.py"),
    ],
)
def test_a_stale_mutant_is_told_and_changes_nothing(package: Path, edit: Edit, why: str) -> None:
    with pytest.raises(StaleMutantError, match=why):
        apply(mutant(Edit("one.py", "a = 1", "a = 3"), edit), package)
    assert (package / "one.py").read_text() == "a = 1\nb = 2\nb = 2\n"


@pytest.mark.parametrize(
    ("each", "product", "expected"),
    [
        (outcome(histories=3), "", 0),
        (outcome(test="test_it", missed="since"), "", 0),
        (outcome(), "", 1),
        (outcome(missed="since"), "", 1),
        (outcome(test="test_it"), "", 1),
        (outcome(histories=3, missed="since"), "", 1),
        (outcome(histories=3), "one owner (seed 3)", 1),
    ],
)
def test_the_exit_status(each: Outcome, product: str, expected: int) -> None:
    assert status([each], product) == expected


def test_the_table_says_what_found_it() -> None:
    text = page([outcome(histories=7), outcome(test="test_rules.py::test_it", missed="it costs time only")], 1500)
    assert "| a bug | a loss | 7 | one owner * |" in text
    assert "| a bug | a loss | none | `test_rules.py::test_it` * |" in text
    assert "- **a bug**: it costs time only" in text
    assert "2 mutants: 1 found by histories, 1 by unit tests alone." in text
