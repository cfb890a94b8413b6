"""`python -m instride.testing.explore`: what it finds, what it says, and that equal worlds are equal."""

from __future__ import annotations

import subprocess
import sys

import pytest

from instride._core.application.calls import Write
from instride._core.application.partition import OwnedPartition
from instride._core.network.commits import Commits
from instride.testing._explore import SCENES, explore
from instride.testing._explore.command import main
from instride.testing._explore.scenes import begin
from instride.testing._explore.search import replay
from instride.testing._explore.snapshot import fingerprint


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", ["joining", "assigned and not taken", "assigned just now", "owned"])
def test_every_sequence_of_two_moves_is_right(name: str) -> None:
    report = explore(SCENES[name], depth=2)
    assert [str(each) for each in report.found] == []
    assert report.whole
    assert report.depth == 2


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_goes_on_to_its_end(name: str) -> None:
    assert not begin(SCENES[name]).violations()


def test_a_scene_begins_in_the_state_of_its_name() -> None:
    states = {
        name: {tp.partition: owned.state.name for tp, owned in begin(SCENES[name]).members["A"].owned().items()}
        for name in ("owned", "revoke next", "revoke thereafter", "completing")
    }
    assert states == {
        "owned": {0: "OWNED", 1: "OWNED"},
        "revoke next": {0: "OWNED", 1: "REVOKE_NEXT"},
        "revoke thereafter": {0: "OWNED", 1: "REVOKE_THEREAFTER"},
        "completing": {0: "OWNED", 1: "COMPLETING"},
    }


def test_the_same_moves_make_the_same_world() -> None:
    moves = ("A.poll", "produce", "A.take", "time")
    assert fingerprint(replay(SCENES["reading"], moves)) == fingerprint(replay(SCENES["reading"], moves))


def test_moves_of_both_sides_that_do_not_touch_each_other_may_change_places() -> None:
    """So a diamond is one state, and is explored once."""
    one = replay(SCENES["reading"], ("A.take", "A.poll"))
    other = replay(SCENES["reading"], ("A.poll", "A.take"))
    assert fingerprint(one) == fingerprint(other)


def test_a_look_up_that_ends_after_a_seek_is_no_position() -> None:
    """The consumer drops it. The history told it after the seek, and the records of the seek were judged as a gap."""
    moves = ("A.respond coordinator", "A.poll", "A.seek", "A.respond data")
    world = replay(SCENES["a listener is interrupted"], moves)
    assert [str(each) for each in world.finish()] == []


def test_what_a_verb_changes_makes_another_world() -> None:
    marks = {fingerprint(replay(SCENES["reading"], (move,))) for move in ("A.pause", "A.seek", "A.close", "A.commit")}
    assert len({fingerprint(begin(SCENES["reading"])), *marks}) == 5


def test_a_wait_of_a_call_is_part_of_the_world() -> None:
    at_once, waits = replay(SCENES["owned"], ("A.commit",)), replay(SCENES["owned"], ("A.commit and wait",))
    assert fingerprint(at_once) != fingerprint(waits)


def test_what_a_seek_has_made_void_and_is_returned_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def seeking(owned: OwnedPartition, *where: int) -> list[Write]:
        buffers = ("_place", "_taken", "_told")
        return [each for each in real(owned, *where) if each[0] is setattr and each[2] not in buffers]

    real = OwnedPartition.seeking
    monkeypatch.setattr(OwnedPartition, "seeking", seeking)
    found = explore(SCENES["assigned and not taken"], depth=4, most=1).found
    assert found
    assert found[0].violation.number in ("S1", "S3", "L3")


@pytest.mark.slow
def test_a_revoke_that_does_not_wait_for_its_commits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Commits, "outstanding", lambda commits, partition: False)
    found = explore(SCENES["completing"], depth=2, most=9).found
    assert "S7" in {each.violation.number for each in found}


@pytest.mark.slow
def test_the_shortest_sequence_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Commits, "outstanding", lambda commits, partition: False)
    assert main(["--scene", "completing", "--depth", "2", "--seconds", "300"]) == 1
    output = capsys.readouterr().out
    assert "completing, then A." in output
    assert "1 scenes wrong" in output


def test_it_says_how_far_it_came(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scene", "joining", "--scene", "owned", "--depth", "1"]) == 0
    output = capsys.readouterr().out
    assert "everywhere to depth 1; 0 scenes wrong" in output


def test_a_depth_that_was_asked_for_and_is_not_whole_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scene", "owned", "--depth", "9", "--seconds", "0.001"]) == 2
    assert "depth 9 was not whole" in capsys.readouterr().out
    assert main(["--scene", "owned", "--seconds", "0.001"]) == 0


def test_it_ends_when_its_time_is_up() -> None:
    times = iter([0.0, 1.0, 2.0, 3.0, 4.0])
    report = explore(SCENES["joining"], depth=9, until=3.5, clock=lambda: next(times))
    assert not report.whole
    assert report.states > 1


def test_what_is_no_number_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (["--depth", "0"], ["--jobs", "0"], *(["--seconds", each] for each in ("0", "-1", "nan", "inf"))):
        with pytest.raises(SystemExit):
            main(["--scene", "joining", "--depth", "1", *wrong])
    assert "numbers from 1 on" in capsys.readouterr().err


def test_several_processes_explore_what_one_does() -> None:
    """As `make explore` starts it: a spawned process does not import a package's `__main__`."""
    command = [
        sys.executable,
        "-m",
        "instride.testing.explore",
        "--depth",
        "1",
        "--scene",
        "owned",
        "--scene",
        "joining",
    ]
    totals = [
        subprocess.run([*command, "--jobs", jobs], capture_output=True, text=True, check=True, timeout=200).stdout
        for jobs in ("1", "2")
    ]
    assert totals[0].splitlines()[-1] == totals[1].splitlines()[-1]
