"""Damages of S1 to S11."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from damaging import History, at_time_of, damage, poll_with, returns, said, with_events

from instride.testing.check import Event, Judge


@damage("S1", "S3")
def _returned_twice(history: History) -> Iterator[History]:
    for at, event, each in returns(history):
        yield with_events(history, at + 1, at_time_of(event, "poll", (each,), (), ()))


@damage("S2", "S4 S5 S6 L3")
def _never_finished(history: History) -> Iterator[History]:
    """Nobody finishes the last record of a log."""
    ends = {event.detail[0]: event.detail[1] for event in history if event.what == "produced"}
    for partition, end in ends.items():
        last = [at for at, event in said(history, "done") if event.detail[:2] == (partition, end - 1)]
        if last:
            yield [event for at, event in enumerate(history) if at not in last]


@damage("S2", "S3 S4 S5 S6 S8 L3")
def _comes_again_though_committed(history: History) -> Iterator[History]:
    """What came again had been committed by who had it before."""
    state = _book_of(history)
    for again in state.again:
        before = again.before
        end = next((at for at, event in said(history, "crashed", "lost") if _ends(event, before)), None)
        if end is not None and again.offset + 1 <= before.start + before.done:
            event = history[end]
            offsets = ((before.partition, again.offset + 1, 0),)
            new = [at_time_of(event, "commit", 1, offsets), at_time_of(event, "commit response", -7, offsets)]
            yield with_events(history, end, *new)


def _book_of(history: History) -> Any:
    judge = Judge()
    for event in history:
        judge.take(event)
    judge.end()
    return judge.state


def _ends(event: Event, assignment: Any) -> bool:
    if event.who != assignment.who:
        return False
    return event.what == "crashed" or (assignment.partition, assignment.epoch) in event.detail[0]


@damage("S3", "S4 L3")
def _one_record_is_left_out(history: History) -> Iterator[History]:
    for at, event, each in returns(history):
        partition, epoch, seek, first, last, leader = each
        if last - first >= 2:
            parts = (partition, epoch, seek, first, first, leader), (partition, epoch, seek, first + 2, last, leader)
            yield with_events(history, at, poll_with(event, each, *parts), instead=True)


@damage("S4")
def _finished_only_after_its_commit(history: History) -> Iterator[History]:
    for at, event in said(history, "done"):
        partition, offset, *_ = event.detail
        commit = _first_commit(history, partition, offset + 1, after=at)
        if commit is not None:
            moved = event._replace(time=history[commit].time)
            yield [*history[:at], *history[at + 1 : commit + 1], moved, *history[commit + 1 :]]


def _first_commit(history: History, partition: Any, offset: int, *, after: int) -> int | None:
    """The place of the first commit at that offset or beyond it, if it is at that offset."""
    kind = "commit" if any(True for _ in said(history, "commit")) else "commit response"
    for at in range(after + 1, len(history)):
        if history[at].what == kind:
            for tp, committed, code in history[at].detail[1]:
                if tp == partition and not code and committed >= offset:
                    return at if committed == offset else None
    return None


@damage("S5")
def _a_commit_goes_back(history: History) -> Iterator[History]:
    """A response that was sent before is given again, with a lower offset by now."""
    kind = "commit" if any(True for _ in said(history, "commit")) else "commit response"
    last: dict[Any, tuple[int, int]] = {}
    for at, event in said(history, kind):
        for partition, offset, code in event.detail[1]:
            if not code and (event.who, partition) in last and offset > last[event.who, partition][1]:
                older = history[last[event.who, partition][0]]
                only = tuple(each for each in older.detail[1] if each[0] == partition)
                yield with_events(history, at + 1, at_time_of(event, kind, older.detail[0], only))
            last[event.who, partition] = (at, offset)


@damage("S5")
def _a_commit_without_its_leader_epoch(history: History) -> Iterator[History]:
    for at, event in said(history, "sends commit"):
        number, offsets = event.detail
        bare = tuple((tp, offset, -1) for tp, offset, _ in offsets)
        if bare != offsets:
            yield with_events(history, at, event._replace(detail=(number, bare)), instead=True)


@damage("S5", "S7")
def _a_second_commit_before_the_response(history: History) -> Iterator[History]:
    for at, event in said(history, "sends commit"):
        yield with_events(history, at + 1, event._replace(detail=(-7, event.detail[1])))


@damage("S6", "S2 S3 S4 S5")
def _a_commit_of_an_older_assignment(history: History) -> Iterator[History]:
    """Once a new assignment has begun, what was finished in the older one is committed."""
    for again in _book_of(history).again:
        after, before = again.after, again.before
        for at, event in said(history, "positioned"):
            if event.who == after.who and event.detail[:2] == (after.partition, after.epoch):
                offsets = ((after.partition, again.offset + 1, 0),)
                if before.start is not None and again.offset < before.start + before.done:
                    kind, number = (
                        ("commit", 1) if any(True for _ in said(history, "commit")) else ("commit response", -7)
                    )
                    yield with_events(history, at + 1, at_time_of(event, kind, number, offsets))


@damage("S7", "S11")
def _returned_with_its_revoke(history: History) -> Iterator[History]:
    for at, event, each in returns(history):
        if not event.detail[1]:
            yield with_events(
                history, at, event._replace(detail=(event.detail[0], (each[0],), event.detail[2])), instead=True
            )


@damage("S7", "S5")
def _let_go_of_before_the_response(history: History) -> Iterator[History]:
    for _, event in said(history, "sends commit"):
        number, offsets = event.detail
        response = next(
            (a for a, e in said(history, "commit response") if e.who == event.who and e.detail[0] == number), 0
        )
        partitions = {each[0] for each in offsets}
        for end in range(response + 1, min(response + 40, len(history))):
            gone = history[end]
            of_it = gone.what == "revoked" and gone.who == event.who
            if response and of_it and partitions & {each[0] for each in gone.detail[0]}:
                moved = history[response]._replace(time=gone.time)
                yield [*history[:response], *history[response + 1 : end + 1], moved, *history[end + 1 :]]


@damage("S7", "S5")
def _a_commit_after_the_revoke(history: History) -> Iterator[History]:
    for at, event in said(history, "revoked"):
        yield with_events(history, at + 1, at_time_of(event, "sends commit", -7, ((event.detail[0][0][0], 0, 0),)))


@damage("S8", "S5 S7 S10")
def _a_commit_after_the_loss(history: History) -> Iterator[History]:
    for at, event in said(history, "lost"):
        if event.detail[0]:
            yield with_events(history, at + 1, at_time_of(event, "sends commit", -7, ((event.detail[0][0][0], 0, 0),)))


@damage("S8")
def _a_loss_that_is_not_told(history: History) -> Iterator[History]:
    for at, event in said(history, "poll"):
        if event.detail[2]:
            yield with_events(history, at, event._replace(detail=(*event.detail[:2], ())), instead=True)


@damage("S8", "S7")
def _a_loss_that_was_none(history: History) -> Iterator[History]:
    for at, event, each in returns(history):
        if not event.detail[2]:
            yield with_events(history, at, event._replace(detail=(*event.detail[:2], (each[0],))), instead=True)


@damage("S9")
def _read_in_spite_of_an_error(history: History) -> Iterator[History]:
    for at, event in said(history, "looked up"):
        if not event.detail[2]:
            yield with_events(history, at, event._replace(detail=(event.detail[0], None, 14)), instead=True)


@damage("S9", "S3")
def _read_on_elsewhere_unasked(history: History) -> Iterator[History]:
    """Once a poll has returned something of where an assignment began, or of where its last seek led."""
    seen = set()
    for at, event, each in returns(history):
        partition, epoch, seek_number, _, last, _ = each
        if (event.who, partition, epoch, seek_number) in seen:
            yield with_events(history, at, at_time_of(event, "positioned", partition, epoch, last + 5))
        seen.add((event.who, partition, epoch, seek_number))


@damage("S10")
def _returned_by_one_that_does_not_know(history: History) -> Iterator[History]:
    for at, event, _ in returns(history):
        yield with_events(history, at, at_time_of(event, "alive", event.time - 1.0))


@damage("S11", "S1 S3 S6 S7 S9 L2 P5")
def _assigned_to_who_has_it(history: History) -> Iterator[History]:
    for at, event in said(history, "assigned"):
        if event.detail[1]:
            partition, epoch = event.detail[1][0]
            yield with_events(
                history, at + 1, at_time_of(event, "assigned", event.detail[0], ((partition, epoch + 1000),))
            )
