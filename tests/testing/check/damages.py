"""Ways to damage a right history, each as one invariant forbids. A damage gives the new history, or None where there is
nothing in this one that could be damaged so.

Laws
1. A damage is small: one event is added, taken away, moved or changed, or all later ones come later.
2. It names the invariant that must speak, and those that may as well since the same damage breaks them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from instride.testing.check import BROKER, Event, Judge

__all__ = ["DAMAGES", "Damage"]

History = list[Event]
_LATER: Final = 30.0
"""Seconds: longer than any bound of a history, and than the session of a member that hears nothing meanwhile (S10)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """number: the invariant that is broken. also: those that may speak besides. candidates: damaged histories."""

    name: str
    number: str
    also: frozenset[str]
    candidates: Callable[[History], Iterator[History]]


DAMAGES: Final[list[Damage]] = []


def _damage(number: str, also: str = "") -> Callable[[Callable[[History], Iterator[History]]], Any]:
    def register(candidates: Callable[[History], Iterator[History]]) -> Any:
        name = candidates.__name__.strip("_").replace("_", " ")
        DAMAGES.append(Damage(name=name, number=number, also=frozenset(also.split()), candidates=candidates))
        return candidates

    return register


def _said(history: History, *kinds: str) -> Iterator[tuple[int, Event]]:
    return ((at, event) for at, event in enumerate(history) if event.what in kinds)


def _with(history: History, at: int, *events: Event, instead: bool = False) -> History:
    """events: come before the one at that place, or in its place."""
    return [*history[:at], *events, *history[at + instead :]]


def _at(event: Event, what: str, *detail: Any, who: str | None = None) -> Event:
    return Event(event.time, event.who if who is None else who, what, detail)


def _returns(history: History) -> Iterator[tuple[int, Event, Any]]:
    """Polls with each stretch that they returned."""
    return ((at, event, each) for at, event in _said(history, "poll") for each in event.detail[0])


def _poll_with(event: Event, old: Any, *new: Any) -> Event:
    records = tuple(each for one in event.detail[0] for each in (new if one is old else (one,)))
    return event._replace(detail=(records, *event.detail[1:]))


def _later(history: History, at: int) -> History:
    """From this event on all is later; what a member said of the times to come as well."""
    moved = [event._replace(time=event.time + _LATER, detail=_detail_later(event)) for event in history[at:]]
    return [*history[:at], *moved]


def _detail_later(event: Event) -> tuple[Any, ...]:
    if event.what in ("alive", "deadline") and event.detail[-1] is not None:
        return (*event.detail[:-1], event.detail[-1] + _LATER)
    return event.detail


# -- safety


@_damage("S1", "S3")
def _returned_twice(history: History) -> Iterator[History]:
    for at, event, each in _returns(history):
        yield _with(history, at + 1, _at(event, "poll", (each,), (), ()))


@_damage("S2", "S4 S5 S6 L3")
def _never_finished(history: History) -> Iterator[History]:
    """Nobody finishes the last record of a log."""
    ends = {event.detail[0]: event.detail[1] for event in history if event.what == "produced"}
    for partition, end in ends.items():
        last = [at for at, event in _said(history, "done") if event.detail[:2] == (partition, end - 1)]
        if last:
            yield [event for at, event in enumerate(history) if at not in last]


@_damage("S2", "S3 S4 S5 S6 S8")
def _comes_again_though_committed(history: History) -> Iterator[History]:
    """What came again had been committed by who had it before."""
    book = _book_of(history)
    for again in book.again:
        before = again.before
        end = next((at for at, event in _said(history, "crashed", "lost") if _ends(event, before)), None)
        if end is not None and again.offset + 1 <= before.start + before.done:
            event = history[end]
            offsets = ((before.partition, again.offset + 1, 0),)
            new = [_at(event, "commit", 1, offsets), _at(event, "commit answered", -7, offsets)]
            yield _with(history, end, *new)


def _book_of(history: History) -> Any:
    judge = Judge()
    for event in history:
        judge.take(event)
    judge.end()
    return judge.book


def _ends(event: Event, assignment: Any) -> bool:
    if event.who != assignment.who:
        return False
    return event.what == "crashed" or (assignment.partition, assignment.epoch) in event.detail[0]


@_damage("S3", "S4 L3")
def _one_record_is_left_out(history: History) -> Iterator[History]:
    for at, event, each in _returns(history):
        partition, epoch, seek, first, last, leader = each
        if last - first >= 2:
            parts = (partition, epoch, seek, first, first, leader), (partition, epoch, seek, first + 2, last, leader)
            yield _with(history, at, _poll_with(event, each, *parts), instead=True)


@_damage("S4")
def _finished_only_after_its_commit(history: History) -> Iterator[History]:
    for at, event in _said(history, "done"):
        partition, offset, _ = event.detail
        commit = _first_commit(history, partition, offset + 1, after=at)
        if commit is not None:
            moved = event._replace(time=history[commit].time)
            yield [*history[:at], *history[at + 1 : commit + 1], moved, *history[commit + 1 :]]


def _first_commit(history: History, partition: Any, offset: int, *, after: int) -> int | None:
    """The place of the first commit at that offset or beyond it, if it is at that offset."""
    kind = "commit" if any(True for _ in _said(history, "commit")) else "commit answered"
    for at in range(after + 1, len(history)):
        if history[at].what == kind:
            for tp, committed, code in history[at].detail[1]:
                if tp == partition and not code and committed >= offset:
                    return at if committed == offset else None
    return None


@_damage("S5")
def _a_commit_goes_back(history: History) -> Iterator[History]:
    """An answer that was given before is given again, with a lower offset by now."""
    kind = "commit" if any(True for _ in _said(history, "commit")) else "commit answered"
    last: dict[Any, tuple[int, int]] = {}
    for at, event in _said(history, kind):
        for partition, offset, code in event.detail[1]:
            if not code and (event.who, partition) in last and offset > last[event.who, partition][1]:
                older = history[last[event.who, partition][0]]
                only = tuple(each for each in older.detail[1] if each[0] == partition)
                yield _with(history, at + 1, _at(event, kind, older.detail[0], only))
            last[event.who, partition] = (at, offset)


@_damage("S5")
def _a_commit_without_its_leader_epoch(history: History) -> Iterator[History]:
    for at, event in _said(history, "sends commit"):
        number, offsets = event.detail
        bare = tuple((tp, offset, -1) for tp, offset, _ in offsets)
        if bare != offsets:
            yield _with(history, at, event._replace(detail=(number, bare)), instead=True)


@_damage("S6", "S2 S3 S4 S5")
def _a_commit_of_an_older_assignment(history: History) -> Iterator[History]:
    """Once a new assignment has begun, what was finished in the older one is committed."""
    for again in _book_of(history).again:
        after, before = again.after, again.before
        for at, event in _said(history, "positioned"):
            if event.who == after.who and event.detail[:2] == (after.partition, after.epoch):
                offsets = ((after.partition, again.offset + 1, 0),)
                if before.start is not None and again.offset < before.start + before.done:
                    kind, number = (
                        ("commit", 1) if any(True for _ in _said(history, "commit")) else ("commit answered", -7)
                    )
                    yield _with(history, at + 1, _at(event, kind, number, offsets))


@_damage("S7", "S11")
def _returned_with_its_revoke(history: History) -> Iterator[History]:
    for at, event, each in _returns(history):
        if not event.detail[1]:
            yield _with(
                history, at, event._replace(detail=(event.detail[0], (each[0],), event.detail[2])), instead=True
            )


@_damage("S7", "S5")
def _let_go_of_before_the_answer(history: History) -> Iterator[History]:
    for _, event in _said(history, "sends commit"):
        number, offsets = event.detail
        answer = next(
            (a for a, e in _said(history, "commit answered") if e.who == event.who and e.detail[0] == number), 0
        )
        partitions = {each[0] for each in offsets}
        for end in range(answer + 1, min(answer + 40, len(history))):
            gone = history[end]
            of_it = gone.what == "revoked" and gone.who == event.who
            if answer and of_it and partitions & {each[0] for each in gone.detail[0]}:
                moved = history[answer]._replace(time=gone.time)
                yield [*history[:answer], *history[answer + 1 : end + 1], moved, *history[end + 1 :]]


@_damage("S7", "S5")
def _a_commit_after_the_revoke(history: History) -> Iterator[History]:
    for at, event in _said(history, "revoked"):
        yield _with(history, at + 1, _at(event, "sends commit", -7, ((event.detail[0][0][0], 0, 0),)))


@_damage("S8", "S5 S7")
def _a_commit_after_the_loss(history: History) -> Iterator[History]:
    for at, event in _said(history, "lost"):
        if event.detail[0]:
            yield _with(history, at + 1, _at(event, "sends commit", -7, ((event.detail[0][0][0], 0, 0),)))


@_damage("S8")
def _a_loss_that_is_not_told(history: History) -> Iterator[History]:
    for at, event in _said(history, "poll"):
        if event.detail[2]:
            yield _with(history, at, event._replace(detail=(*event.detail[:2], ())), instead=True)


@_damage("S8", "S7")
def _a_loss_that_was_none(history: History) -> Iterator[History]:
    for at, event, each in _returns(history):
        if not event.detail[2]:
            yield _with(history, at, event._replace(detail=(*event.detail[:2], (each[0],))), instead=True)


@_damage("S9")
def _read_in_spite_of_an_error(history: History) -> Iterator[History]:
    for at, event in _said(history, "looked up"):
        if not event.detail[2]:
            yield _with(history, at, event._replace(detail=(event.detail[0], None, 14)), instead=True)


@_damage("S10")
def _returned_by_one_that_does_not_know(history: History) -> Iterator[History]:
    for at, event, _ in _returns(history):
        yield _with(history, at, _at(event, "alive", event.time - 1.0))


@_damage("S11", "S1 S3 S6 S7 S9 L2 P5")
def _assigned_to_who_has_it(history: History) -> Iterator[History]:
    for at, event in _said(history, "assigned"):
        if event.detail[1]:
            partition, epoch = event.detail[1][0]
            yield _with(history, at + 1, _at(event, "assigned", event.detail[0], ((partition, epoch + 1000),)))


# -- liveness and resources


@_damage("L1", "L2 L3 S10")
def _all_stands_still(history: History) -> Iterator[History]:
    yield from _stands_still(history)


@_damage("L1")
def _turns_without_its_records(history: History) -> Iterator[History]:
    yield from _turns_pass(history)


@_damage("L2", "L1 L3 L5 S10")
def _a_revoke_takes_long(history: History) -> Iterator[History]:
    for at, _ in _said(history, "revoked"):
        yield _later(history, at)


@_damage("L3")
def _more_is_written_than_returned(history: History) -> Iterator[History]:
    *_, (_, event) = _said(history, "produced")
    partition, end = event.detail
    yield _with(history, len(history) - 1, _at(history[-1], "produced", partition, end + 1, who=BROKER))


@_damage("L3", "L1 L2 L5 S10")
def _the_members_take_long_to_join(history: History) -> Iterator[History]:
    for at, event in _said(history, "group"):
        if event.detail[0] == "CompletingRebalance":
            yield _later(history, at)


@_damage("L4")
def _evicted(history: History) -> Iterator[History]:
    for at, event in _said(history, "alive"):
        yield _with(history, at, _at(event, "evicted", "its session ended"))


@_damage("L4", "S7 P2 L2")
def _a_thread_dies(history: History) -> Iterator[History]:
    for at, event in _said(history, "closed"):
        yield _with(history, at, _at(event, "died", "network thread", "KeyError: 7"))


@_damage("L5", "L1 L2 L3 S10")
def _stands_still_after_a_failed_commit(history: History) -> Iterator[History]:
    yield from _stands_still(_refused(history))


@_damage("L5", "L1")
def _turns_without_its_records_after_a_failed_commit(history: History) -> Iterator[History]:
    yield from _turns_pass(history, refused=True)


def _refused(history: History) -> History:
    """Every answer to a commit says no."""
    return [
        event._replace(detail=(event.detail[0], tuple((tp, at, 27) for tp, at, _ in event.detail[1])))
        if event.what == "commit answered"
        else event
        for event in history
    ]


def _stands_still(history: History) -> Iterator[History]:
    if history[0].detail[2] == "faults":
        return  # where something fails, something may stand still
    for at, _, _ in _returns(history):
        if at > len(history) // 2:
            yield _later(history, at)


def _turns_pass(history: History, *, refused: bool = False) -> Iterator[History]:
    """Before a poll that returned records that were there already, forty others have returned nothing."""
    for at, event, each in _returns(history):
        alive = [each.detail[0] for each in history[:at] if each.what == "alive" and each.who == event.who]
        if not alive or alive[-1] is None:
            continue
        turns = [
            turn
            for number in range(45)
            for turn in (_at(event, "alive", alive[-1] + 0.001 * number), _at(event, "poll", (), (), ()))
        ]
        code = ((each[0], each[3], 27),)
        yield _with(history, at, *([_at(event, "commit answered", -7, code)] if refused else []), *turns)


@_damage("R1")
def _more_is_buffered_than_may_be(history: History) -> Iterator[History]:
    for at, event in _said(history, "load"):
        _, cap, *rest = event.detail
        yield _with(history, at, event._replace(detail=(cap + 1, cap, *rest)), instead=True)


@_damage("R1")
def _more_and_more_requests(history: History) -> Iterator[History]:
    grown, number = list(history), 0
    for at, event in _said(history, "load"):
        number += 1
        grown[at] = event._replace(detail=(*event.detail[:3], number, event.detail[4]))
    if number > 60:
        yield grown


# -- what docs/rebalance.md promises besides


@_damage("P1")
def _returned_while_paused(history: History) -> Iterator[History]:
    for at, event, each in _returns(history):
        yield _with(history, at, _at(event, "still paused", (each[0],)))


@_damage("P2")
def _a_listener_hears_twice(history: History) -> Iterator[History]:
    for at, event in _said(history, "on assigned"):
        if event.detail[0]:
            yield _with(history, at + 1, event)


@_damage("P3", "S8 S6 S3 S1")
def _lost_without_a_reason(history: History) -> Iterator[History]:
    for at, event in _said(history, "revoked"):
        yield _with(history, at, _at(event, "lost", *event.detail), instead=True)


@_damage("P4")
def _a_commit_fails(history: History) -> Iterator[History]:
    for at, event in _said(history, "sends commit"):
        yield _with(history, at, _at(event, "commit failed", "CommitFailedError"))


@_damage("P5", "S3 S1 S7 S11 S8 S9 S10 L1 L2 L3 L4 P3 S2 S4 S5 S6")
def _an_epoch_that_was_there(history: History) -> Iterator[History]:
    """A partition that comes back has the epoch that it had."""
    had: dict[Any, int] = {}
    for at, event in _said(history, "assigned"):
        for partition, epoch in event.detail[1]:
            if (event.who, partition) in had:
                older = had[event.who, partition]
                again = tuple((tp, older if tp == partition else e) for tp, e in event.detail[1])
                yield [*history[:at], event._replace(detail=(event.detail[0], again)), history[-1]]
            had[event.who, partition] = epoch
