"""What `instride run` decides, in a time that is a number."""

from __future__ import annotations

import signal

import pytest

from instride._cli.supervisor import CANNOT_BEGIN, FAILED, Action, Start, Supervisor, Tell, Word

STOP, CANCEL, KILL = Word


def begun(workers: int = 2, grace: float = 10.0) -> Supervisor:
    supervisor = Supervisor(workers=workers, grace=grace)
    assert supervisor.begin(0.0) == [Start(number) for number in range(workers)]
    return supervisor


def told(word: Word, *slots: int) -> list[Action]:
    return [Tell(slot, word) for slot in slots]


def test_a_worker_that_died_is_replaced_with_back_off_and_the_others_know_nothing() -> None:
    supervisor, now, pauses = begun(), 0.0, []
    for _ in range(9):
        assert supervisor.ended(1, -9, now) == []
        due = supervisor.next_due()
        assert due is not None
        pauses.append(due - now)
        assert supervisor.passed(due - 0.01) == []
        assert supervisor.passed(due) == [Start(1)]
        now = due
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert supervisor.next_due() is None
    supervisor.ended(1, -9, now + 60)
    assert supervisor.pause_of(1, now + 60) == 0.5, "it lived long"
    assert supervisor.pause_of(0, now + 60) is None
    assert supervisor.exit_code is None


@pytest.mark.parametrize("code", [0, -11, 127, 137])
def test_what_did_not_fail_by_its_own_word_is_replaced(code: int) -> None:
    supervisor = begun(1)
    supervisor.ended(0, code, 1.0)
    assert supervisor.passed(2.0) == [Start(0)]


@pytest.mark.parametrize("code", [FAILED, CANNOT_BEGIN])
def test_a_worker_that_failed_stops_the_others_and_gives_the_exit_status(code: int) -> None:
    supervisor = begun(3)
    assert supervisor.ended(1, code, 1.0) == told(STOP, 0, 2)
    assert supervisor.exit_code is None
    assert supervisor.ended(0, 0, 1.5) == []
    assert supervisor.ended(2, 0, 2.0) == []
    assert supervisor.exit_code == code


def test_signals_stop_then_cancel_then_kill() -> None:
    supervisor = begun()
    assert supervisor.signalled(1.0) == told(STOP, 0, 1)
    assert supervisor.signalled(2.0) == told(CANCEL, 0, 1)
    supervisor.ended(0, 0, 3.0)
    assert supervisor.signalled(3.0) == told(KILL, 1)
    assert supervisor.signalled(4.0) == told(KILL, 1)
    assert supervisor.ended(1, -9, 4.0) == []
    assert supervisor.exit_code == FAILED


def test_a_signal_that_a_program_in_between_passes_on_is_the_same_signal() -> None:
    """An init signals the program that started us, which signals us, and us besides."""
    supervisor = begun()
    assert supervisor.signalled(1.0) == told(STOP, 0, 1)
    assert supervisor.signalled(1.0) == []
    assert supervisor.signalled(1.4) == []
    assert supervisor.signalled(1.5) == told(CANCEL, 0, 1)
    assert supervisor.signalled(1.9) == []
    assert supervisor.signalled(2.0) == told(KILL, 0, 1)


def test_a_stop_after_a_failure_cancels_nothing_yet() -> None:
    supervisor = begun()
    assert supervisor.ended(0, FAILED, 1.0) == told(STOP, 1)
    assert supervisor.signalled(2.0) == told(STOP, 1)
    assert supervisor.signalled(3.0) == told(CANCEL, 1)
    assert supervisor.passed(11.0) == told(KILL, 1), "the grace began at the failure"


def test_the_end_of_the_grace_kills_once() -> None:
    supervisor = begun(grace=5.0)
    supervisor.signalled(1.0)
    assert supervisor.passed(5.9) == []
    assert supervisor.next_due() == 6.0
    assert supervisor.passed(6.0) == told(KILL, 0, 1)
    assert supervisor.passed(7.0) == []
    supervisor.ended(0, -9, 7.0)
    supervisor.ended(1, 0, 7.0)
    assert supervisor.exit_code == FAILED


@pytest.mark.parametrize("code", [0, -signal.SIGTERM, -signal.SIGINT])
def test_a_stop_ends_well_when_all_have_and_replaces_nobody(code: int) -> None:
    supervisor = begun()
    supervisor.ended(0, -9, 1.0)
    assert supervisor.signalled(1.1) == told(STOP, 1), "the one that waits for its successor gets none"
    assert supervisor.passed(2.0) == []
    supervisor.ended(1, code, 2.0)
    assert supervisor.exit_code == 0


def test_a_stop_while_nobody_lives_is_the_end() -> None:
    supervisor = begun(1)
    supervisor.ended(0, -9, 1.0)
    assert supervisor.signalled(1.1) == []
    assert supervisor.exit_code == 0


def test_a_signal_that_came_before_the_begin_is_the_end() -> None:
    supervisor = Supervisor(workers=2, grace=10.0)
    assert supervisor.signalled(0.0) == []
    assert supervisor.exit_code == 0
