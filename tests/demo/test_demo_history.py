"""Runs as short stories, and what is made of them: states, hand-overs with causes, gaps; the files they are in."""

import io
from pathlib import Path

import pytest
from demo_stories import MOVED, began, change, delay, done, mark, note, plan_in

from demo.history import History, HistoryTail, Note, State, history_files
from instride import TopicPartition
from instride.testing.check import Event, check, read_histories, without_owner

P = TopicPartition("flights", 0)


def states(run: History, partition: int) -> list[tuple[str, State, float, float]]:
    return [(s.app, s.state, s.start, s.end) for s in run.spans if s.partition == partition]


FOREVER = float("inf")


def test_a_delayed_partition_passes_through_its_states() -> None:
    assert states(History(MOVED), 1) == [
        ("A", State.OWNED, 0, 2),
        ("A", State.TO_BE_REVOKED, 2, 3),
        ("A", State.DELAYED, 3, 9),
        ("B", State.OWNED, 10, FOREVER),
    ]


def test_another_client_notes_what_its_callback_waits_for() -> None:
    run = History(
        [
            change(0, "A", "assigned", 0, 1),
            note(2, "A", Note.REVOKE_WAITS, (1,)),
            change(3, "A", "revoked", 0, 1),
        ]
    )
    assert states(run, 0) == [("A", State.OWNED, 0, 3)]
    assert states(run, 1)[-1] == ("A", State.DELAYED, 2, 3)


def test_a_delay_that_was_refused_changes_nothing() -> None:
    run = History(
        [
            change(0, "A", "assigned", 1),
            delay(1, "A", 1),
            change(2, "A", "requested", 1),
            delay(3, "A", 1, accepted=False),
        ]
    )
    assert states(run, 1)[-1] == ("A", State.TO_BE_REVOKED, 2, FOREVER)


def test_what_a_killed_process_owned_and_worked_on_is_over_and_goes_to_the_next() -> None:
    run = History(
        [
            change(0, "A", "assigned", 0, 1),
            change(0, "B", "assigned", 2),
            began(1, "A", 1),
            began(1, "B", 2),
            Event(3, "A", "crashed", ()),
            done(4, "B", 2),
            change(13, "B", "assigned", 0, 1),
            done(14, "B", 1),
        ]
    )
    assert states(run, 1) == [("A", State.OWNED, 0, 3), ("B", State.OWNED, 13, FOREVER)]
    assert [(each.partition, each.released, each.resumed) for each in run.handovers] == [(0, 3, 13), (1, 3, 13)]
    assert run.running == {}


@pytest.mark.requirement("surface/timeline")
def test_a_hand_over_says_how_long_it_was_delayed_and_by_which_of_its_own_work() -> None:
    run = History(MOVED)
    (handover,) = run.handovers
    assert (handover.before, handover.after, handover.delay, handover.resumed) == ("A", "B", 7, 10)
    assert str(run.cause(handover)) == "A's work on partition 1 offsets 0-49"


def test_partitions_that_go_only_together_have_their_last_work_as_their_cause() -> None:
    run = History(
        [
            change(0, "A", "assigned", 0, 1, 2),
            *(began(1, "A", p) for p in (0, 1, 2)),
            change(2, "A", "requested", 0, 1),
            done(3, "A", 0),
            done(8, "A", 1),
            done(8.5, "A", 2),
            change(9, "A", "revoked", 0, 1),
            change(10, "B", "assigned", 0, 1),
        ]
    )
    assert [str(run.cause(each)) for each in run.handovers] == ["A's work on partition 1 offsets 0-9"] * 2


def test_a_partition_that_goes_by_itself_is_not_blamed_on_one_that_is_still_delayed() -> None:
    run = History(
        [
            change(0, "A", "assigned", 0, 1),
            *(began(1, "A", p) for p in (0, 1)),
            change(2, "A", "requested", 0, 1),
            done(3, "A", 0),
            change(4, "A", "revoked", 0),
            done(8, "A", 1),
            change(9, "A", "revoked", 1),
            change(10, "B", "assigned", 0, 1),
        ]
    )
    assert [(str(run.cause(each)), each.delay) for each in run.handovers] == [
        ("A's work on partition 0 offsets 0-9", 2),
        ("A's work on partition 1 offsets 0-9", 7),
    ]


def test_a_partition_is_not_blamed_on_one_that_was_released_before_it() -> None:
    run = History(
        [
            change(0, "A", "assigned", 0, 1),
            *(began(1, "A", p) for p in (0, 1)),
            change(2, "A", "requested", 0, 1),
            done(3, "A", 0),
            done(3.5, "A", 1),
            change(3.6, "A", "revoked", 1),
            change(4, "A", "revoked", 0),
            change(5, "B", "assigned", 0, 1),
        ]
    )
    assert [str(run.cause(each)) for each in run.handovers] == [
        "A's work on partition 0 offsets 0-9",
        "A's work on partition 1 offsets 0-9",
    ]


def test_a_hand_over_with_nothing_under_way_has_no_cause() -> None:
    run = History([change(0, "A", "assigned", 1), change(2, "A", "requested", 1)])
    assert run.handovers == []
    run.apply([change(3, "A", "revoked", 1), change(4, "B", "assigned", 1)])
    (handover,) = run.handovers
    assert (run.cause(handover), handover.released, handover.after) == (None, 3, "B")


def test_a_partition_moves_until_work_on_it_is_finished_with_the_next_owner() -> None:
    run = History(MOVED)
    assert [(each.requested, each.settled) for each in run.moves(1)] == [(2, 12)]
    assert run.moves(0) == []


def test_a_partition_that_was_released_without_a_request_moves_too() -> None:
    run = History([change(0, "A", "assigned", 1), change(2, "A", "revoked", 1), change(3, "B", "assigned", 1)])
    (handover,) = run.handovers
    assert (handover.delay, handover.after, handover.released, handover.resumed) == (0, "B", 2, 3)


def test_reassigned_ends_the_hand_over_where_it_began() -> None:
    run = History(
        [change(0, "A", "assigned", 1), change(2, "A", "requested", 1), change(5, "A", "reassigned", 1)],
    )
    (handover,) = run.handovers
    assert (handover.before, handover.after, handover.resumed) == ("A", "A", 5)
    assert states(run, 1)[-1] == ("A", State.OWNED, 5, FOREVER)


def test_lost_is_a_hand_over() -> None:
    run = History([change(0, "A", "assigned", 1), change(2, "A", "lost", 1), change(5, "B", "assigned", 1)])
    (handover,) = run.handovers
    assert (handover.released, handover.delay, handover.after, handover.resumed) == (2, 0, "B", 5)


def test_a_killed_owner_ends_with_the_next_assignment_and_changes_nothing_later() -> None:
    run = History([change(0, "A", "assigned", 1), change(5, "B", "assigned", 1), change(6, "A", "revoked", 1)])
    assert states(run, 1) == [("A", State.OWNED, 0, 5), ("B", State.OWNED, 5, FOREVER)]


def test_failed_work_is_not_done_and_that_of_a_dead_process_goes_on() -> None:
    run = History([began(1, "A", 0), began(1, "A", 1), note(2, "A", Note.WORK_FAILED, 0, 0, "no disk")])
    assert ([each.partition for each in run.running.values()], run.done) == ([1], [])


def test_the_longest_gap_is_of_a_partition_that_was_not_moving() -> None:
    gap = History(MOVED).longest_gap()
    assert gap is not None
    assert (gap.partition, gap.start, gap.length) == (0, 4, 5)  # that of partition 1 until 12 is the hand-over's
    gap = History([*MOVED, *(done(t, "A", 0) for t in (11, 21))]).longest_gap()
    assert gap is not None
    assert (gap.partition, gap.start, gap.length) == (0, 11, 10)


def test_a_gap_begins_with_records_not_with_the_end_of_the_last_ones() -> None:
    """Of ten seconds nothing was sent for nine: one second was missed."""
    story = [note(0, "source", Note.SENT, 0, 5), done(1, "A", 0, 0, 5), note(10, "source", Note.SENT, 0, 10)]
    gap = History([*story, note(10.5, "source", Note.SENT, 0, 15), done(11, "A", 0, 5, 10)]).longest_gap()
    assert gap is not None
    assert (gap.partition, gap.start, gap.length) == (0, 10, 1)
    rest = [done(12, "A", 0, 5, 10), note(13, "source", Note.SENT, 0, 15), done(14, "A", 0, 10, 15)]
    gap = History([*story, *rest]).longest_gap()
    assert gap is not None
    assert (gap.start, gap.length) == (10, 2)


def test_a_source_that_is_told_of_late_hides_no_gap() -> None:
    """The records were finished before the source's note came: what follows counts from the end of that work."""
    told = [done(1, "A", 0, 0, 5), note(2, "source", Note.SENT, 0, 5), note(2.5, "source", Note.SENT, 0, 9)]
    gap = History([*told, done(7, "A", 0, 5, 9)]).longest_gap()
    assert gap is not None
    assert (gap.start, gap.length) == (2.5, 4.5)


def test_an_empty_run_has_an_empty_history() -> None:
    run = History()
    assert (run.partitions, run.handovers, run.longest_gap()) == ([], [], None)


def test_a_run_begins_with_what_the_scenario_does_first_not_with_its_processes() -> None:
    run = History([note(5, "A", Note.READY), mark(90, "A joins"), change(91, "A", "assigned", 0)])
    assert (run.start, run.end, run.marks, run.ready) == (90, 91, [(90, "A joins")], {"A"})


def test_while_it_runs_it_knows_owner_lag_and_what_is_under_way() -> None:
    run = History([change(1, "A", "assigned", 0, 1), note(1, "source", Note.SENT, 0, 500), began(2, "A", 0, 0, 400)])
    assert (run.owned_by("A"), run.lag(0)) == ([0, 1], 500)
    assert [each.first for each in run.running.values()] == [0]
    run.apply([done(3, "A", 0, 0, 400)])
    assert (run.lag(0), run.running) == (100, {})


def test_changes_are_told_in_sentences_and_what_changes_nothing_is_not() -> None:
    run = History()
    assert run.apply(
        [
            note(0, "A", Note.READY),
            mark(1, "A joins"),
            change(1, "A", "assigned", 0, 1),
            change(3, "A", "requested", 1),
            delay(3, "A", 1),
        ]
    ) == ["A is ready", "A joins", "A: assigned: 0, 1", "A: to be revoked: 1", "A: delayed: 1"]
    assert run.apply([delay(4, "A", 1), change(4, "B", "revoked", 1)]) == []
    assert run.apply([change(5, "B", "assigned", 1), change(6, "A", "revoked", 1)]) == ["B: assigned: 1"]
    assert run.apply([began(6, "B", 1), note(7, "B", Note.WORK_FAILED, 1, 0, "no disk")]) == [
        "B: work on partition 1 failed: no disk"
    ]


# -- its files


def test_what_all_processes_wrote_is_one_history_with_the_times_without_an_owner(tmp_path: Path) -> None:
    plan = plan_in(tmp_path)
    for name, first in (("A", 0), ("B", 5)):
        with plan.recorder(name) as history:
            member = history.peer(name, finishes="told", commits=True)
            member.turn({P: range(first, first + 5)}, [P])
            history.add(name, Note.WORK_BEGAN, 0, first, first + 5)
            member.done(P, first, first + 4)
            member.committed({P: first + 5})
            member.turn({}, [])
            member.closed()
    with plan.recorder("scenario") as last:
        last.produced(P, 10)
        last.end(drained=True)
    events = [each.event for each in read_histories(history_files(plan.histories))]
    assert check(events) == []
    (found,) = without_owner(events)
    assert (found.partition, found.released_by, found.taken_by) == (P, "A", "B")
    assert [(each.app, each.first, each.last) for each in History(events).done] == [("A", 0, 5), ("B", 5, 10)]


def test_a_tail_gives_each_event_once_and_waits_for_whole_lines(tmp_path: Path) -> None:
    tail = HistoryTail(tmp_path)
    assert tail.new_events() == []
    lines = "".join(f"{mark(t, f'{t} é').line()}\n" for t in (1.0, 2.0)).encode()
    cut = len(lines) // 2 + 9
    for half, part in enumerate((lines[:cut], lines[cut:])):
        with (tmp_path / "A.history.jsonl").open("ab") as file:
            file.write(part)
        assert [event.time for event in tail.new_events()] == [half + 1.0]
    assert tail.new_events() == []


class Growing(io.RawIOBase):
    """A file of which the parts are written one after the other, each as the reader has come to the end so far."""

    def __init__(self, *parts: bytes) -> None:
        self._parts, self._at = [each for part in parts for each in (part, b"")], 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, at: int, _whence: int = 0) -> int:
        self._at = at
        return at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        part = self._parts.pop(0) if self._parts else b""
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


def test_a_tail_takes_no_rest_of_a_line_that_is_written_as_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's files read on after their end: the beginning was dropped, and the demo failed at the rest."""
    lines = "".join(f"{mark(t, 'a note').line()}\n" for t in (1.0, 2.0)).encode()
    (tmp_path / "A.history.jsonl").write_bytes(lines)
    tail = HistoryTail(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda *_: io.BufferedReader(Growing(lines[:-9], lines[-9:])))
        assert [event.time for event in tail.new_events()] == [1.0]
    assert [event.time for event in tail.new_events()] == [2.0]
