"""The laws of `drawn_by_commit`, by runs of pytest that only collect, in a folder of their own."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from drawn_by_commit import commit, drawn, without_undrawn

HERE = Path(__file__).parent
TESTS = """
import pytest

@pytest.mark.drawn(3)
@pytest.mark.parametrize("number", range(10))
def test_one(number): ...

@pytest.mark.drawn(1, "pair")
def test_left(): ...

@pytest.mark.drawn(1, "pair")
def test_right(): ...

def test_always(): ...

@pytest.mark.slow
@pytest.mark.parametrize("number", range(5))
def test_slow(number): ...

@pytest.mark.slow
@pytest.mark.rule("1")
def test_slow_proof(): ...
"""
ALWAYS = {"test_always": 1, "test_slow_proof": 1}
PROOF = '\n@pytest.mark.requirement("KIP-983/1")\n@pytest.mark.drawn(1, "pair")\ndef test_proof(): ...\n'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """With the conftest of our tests, since that is what draws."""
    (tmp_path / "conftest.py").write_bytes((HERE / "conftest.py").read_bytes())
    markers = "drawn(count, name):", "requirement(id):", "rule(id):", "slow:", "kafka:", "spark:"
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n" + "".join(f"    {each} m\n" for each in markers))
    (tmp_path / "test_it.py").write_text(TESTS)
    return tmp_path


def collected(place: Path, *arguments: str, whole: bool = False) -> list[str]:
    """The names of the tests that a run would play."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *arguments]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{HERE}:{HERE.parent / 'src'}")
        patch.setenv("INSTRIDE_WHOLE", "1" if whole else "")
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        return [done.stdout + done.stderr]
    return [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]


def kinds(names: list[str]) -> Counter[str]:
    return Counter("pair" if name in ("test_left", "test_right") else name.partition("[")[0] for name in names)


def test_a_run_plays_a_part_and_another_process_the_same(place: Path) -> None:
    names = collected(place)
    assert kinds(names) == {"test_one": 3, "pair": 1, "test_slow": 2, **ALWAYS}, names
    assert collected(place) == names


def test_the_whole_and_what_is_named_or_searched_for_are_played(place: Path) -> None:
    assert kinds(collected(place, whole=True)) == {"test_one": 10, "pair": 2, "test_slow": 5, **ALWAYS}
    assert kinds(collected(place, "test_it.py::test_one")) == {"test_one": 10}
    assert collected(place, "-k", "one and 7") == ["test_one[7]"]


def test_a_proof_shares_its_draw_with_no_other_test(place: Path) -> None:
    (place / "test_it.py").write_text(TESTS + PROOF)
    (told,) = collected(place)
    assert "test_proof proves a requirement" in told
    assert "test_proof" in collected(place, whole=True)


def test_each_case_is_in_the_part_of_some_commit() -> None:
    cases = [f"case {number}" for number in range(12)]
    parts = [drawn(str(seed), "name", cases, 3) for seed in range(200)]
    assert {case for part in parts for case in part} == set(cases)
    assert all(part == sorted(part, key=cases.index) and len(set(part)) == 3 for part in parts)
    assert drawn("seed", "name", cases, 20) == cases, "where there are fewer, all of them"
    assert drawn("7", "one", cases, 3) != drawn("7", "other", cases, 3), "each name has a draw of its own"


def test_what_is_not_marked_stays(request: pytest.FixtureRequest) -> None:
    marks = ("drawn", "slow")
    items = [item for item in request.session.items if not any(item.get_closest_marker(mark) for mark in marks)]
    assert without_undrawn(items, commit()) == items
