"""`python -m instride.testing.simulate`: its output, and its exit status."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from instride._core.network import group
from instride._core.network.commits import Commits
from instride._core.network.group import GroupInput, GroupState
from instride.testing import simulate
from instride.testing._check.command import main as check_main
from instride.testing._simulation import campaign
from instride.testing._simulation.campaign import Batch
from instride.testing.simulate import main
from instride.testing.simulation import Plan, plan_for


def test_it_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--histories", "3", "--seed", "40"]) == 0
    output = capsys.readouterr().out
    assert "3 histories, none wrong" in output
    assert "in each" in output
    assert re.search(r"\d+  STABLE \+ JOIN", output)


@pytest.mark.drawn(1, "wrong histories")
def test_several_processes_find_what_one_finds(capsys: pytest.CaptureFixture[str]) -> None:
    output = []
    for jobs in ("1", "2"):
        assert main(["--histories", "24", "--jobs", jobs]) == 0
        said_so_far = re.compile(r"\d+ of 24 histories")  # which of these lines come depends on the time it takes
        first, *rows = [line for line in capsys.readouterr().out.splitlines() if not said_so_far.match(line)]
        output.append([re.sub(r"in [0-9.]+ s of processor time, \d+", "", first), *rows])
    assert output[0] == output[1]


def test_a_row_that_is_never_taken_is_a_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = (GroupState.STABLE, GroupInput.SYNCED)
    monkeypatch.setattr(group, "TRANSITIONS", {**group.TRANSITIONS, row: GroupState.STABLE})
    monkeypatch.setattr(simulate, "_MANY", 20)
    assert main(["--histories", "20"]) == 1
    assert "group: STABLE + SYNCED" in capsys.readouterr().out.splitlines()[-1]


def test_what_is_no_number_of_histories_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (["--histories", "0"], ["--jobs", "0"]):
        with pytest.raises(SystemExit):
            main(wrong)
    assert "numbers from 1 on" in capsys.readouterr().err


@pytest.mark.drawn(1, "wrong histories")
def test_a_wrong_history_ends_it_with_its_transcript_and_seed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Commits, "outstanding", lambda commits, partition: False)
    assert main(["--histories", "200"]) == 1
    output = capsys.readouterr().out
    assert re.search(r"\*\*\*     [SLP]\d+, ", output), "the violation stands in the transcript"
    assert "again: python -m instride.testing.simulate --seed " in output


@pytest.mark.drawn(1, "wrong histories")
def test_a_long_run_goes_on_and_names_every_wrong_history(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Commits, "outstanding", lambda commits, partition: False)
    assert main(["--histories", "40", "--go-on"]) == 1
    output = capsys.readouterr().out
    named = re.findall(r"^seed \d+: .*", output, re.MULTILINE)
    assert len(named) > 1
    assert f"40 histories, {len(named)} wrong" in output


def test_a_history_that_cannot_be_played_does_not_end_a_long_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def planned(seed: int, means: frozenset[str]) -> Plan:
        plan = plan_for(seed)
        return replace(plan, members=plan.members * 2) if seed == 1 else plan

    monkeypatch.setattr(campaign, "planned", planned)
    assert main(["--histories", "3", "--go-on"]) == 1
    output = capsys.readouterr().out
    assert "seed 1: cannot be played: ValueError: a plan has two members called 'A'" in output
    assert "3 histories, 1 wrong" in output


def test_of_what_cannot_be_played_the_seed_and_the_error_are_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There was a traceback, which does not name the seed."""

    def planned(seed: int, means: frozenset[str]) -> Plan:
        raise ArithmeticError("no plan")

    for module in (campaign, simulate):
        monkeypatch.setattr(module, "planned", planned)
    assert main(["--histories", "1", "--seed", "7"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "seed 7: ArithmeticError: no plan",
        "again: python -m instride.testing.simulate --seed 7 --histories 1",
    ]


@pytest.mark.parametrize("wrong", [False, True])
def test_ctrl_c_ends_a_run_with_a_summary_and_says_that_it_is_not_whole(
    wrong: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exit status was 0, as if all had been played and were right."""

    def some(seeds: range, **_: object) -> Iterator[Batch]:
        yield Batch(histories=2, virtual=1.0, processor=1.0, rows={}, wrong={1: "S1"} if wrong else {})
        raise KeyboardInterrupt

    monkeypatch.setattr(simulate, "batches", some)
    assert main(["--histories", "50", "--go-on"]) == (1 if wrong else 130)
    output = capsys.readouterr().out
    assert "interrupted: 48 of 50 histories were not judged" in output
    assert f"2 histories, {'1' if wrong else 'none'} wrong" in output


def killed(seeds: range, means: frozenset[str]) -> Batch:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def test_a_process_that_is_killed_ends_the_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a kernel that is out of memory. The run waited for ever."""
    monkeypatch.setattr(campaign, "simulate_batch", killed)
    assert main(["--histories", "50", "--jobs", "2"]) == 1
    assert "a process was killed after 0 histories" in capsys.readouterr().out


def test_a_transcript_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--transcript", "--seed", "1"]) == 0
    assert "group is Stable, generation 1" in capsys.readouterr().out


def test_a_history_is_written_the_same_each_time_and_judged(tmp_path: Path) -> None:
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    for path in (one, other):
        assert main(["--seed", "3", "--write", str(path)]) == 0
    assert one.read_bytes() == other.read_bytes()
    assert check_main([str(one)]) == 0
