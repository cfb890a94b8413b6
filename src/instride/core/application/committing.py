"""What a commit may speak of, and what becomes of it.

Laws
1. A snapshot's entry of an older epoch or seek number is dropped, settled as stale, and nothing else happens.
2. Offsets given by hand speak of the present assignment; a partition that is not held is `CommitFailedError`.
3. Within an epoch and seek number an offset never goes back: ValueError, since only `seek` says that it is meant.
4. A partition that completes its revoke takes commits only while its listener runs.
5. Every entry is settled once: by the broker's answer, or as dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from instride.commits import CommitEntry, CommitSnapshot
from instride.core.application.calls import Call, Wait
from instride.core.application.drain import drain
from instride.core.application.partition import OwnedPartition
from instride.core.application.state import ApplicationState
from instride.core.events import Answered, Commit
from instride.core.group.ownership import Ownership
from instride.errors import CommitFailedError, IllegalStateError, KafkaTimeoutError, WakeupError
from instride.records import OffsetAndMetadata, TopicPartition

__all__ = ["Offsets", "auto_commit", "auto_commit_due", "await_answer", "commit", "next_auto_commit", "start_commit"]

Offsets = CommitSnapshot | Mapping[TopicPartition, OffsetAndMetadata | int]

# The network side answers at the deadline itself; this is how much later the caller gives up on it.
GRACE = 0.5


def commit(
    state: ApplicationState, now: float, offsets: Offsets | None, timeout: float, *, carry_over: bool
) -> Call[None]:
    """A blocking commit. Raises what the broker or the group answered."""
    deadline = now + timeout
    call = start_commit(state, offsets, deadline, carry_over=carry_over)
    answer = yield from await_answer(state, call, now, deadline, "commit")
    for error in answer.committed.values():
        if error is not None:
            raise error


def start_commit(
    state: ApplicationState,
    offsets: Offsets | None,
    deadline: float,
    *,
    carry_over: bool = True,
    on_call: Callable[[int], None] | None = None,
) -> int:
    """Hand a commit over; the number of its answer is returned, and told to `on_call` before anything is sent.

    An empty commit is answered at once, and `on_call` is not called.
    """
    if state.config.group_id is None:
        raise IllegalStateError("commit needs a group_id")
    drain(state)
    snapshot = offsets if isinstance(offsets, CommitSnapshot) else None
    entries = _current(state, snapshot) if snapshot is not None else _by_hand(state, offsets)
    call = state.next_call()
    if not entries:
        state.queue.append(Answered(call=call))  # nothing to send: answered here
        return call
    _hear(state, call, entries, snapshot)
    if on_call is not None:
        on_call(call)
    state.holdings.commit_sent(call, entries)
    state.post(Commit(call=call, deadline=deadline, entries=entries, carry_over=carry_over))
    return call


def await_answer(state: ApplicationState, call: int, now: float, deadline: float, what: str) -> Call[Answered]:
    """Wait for the answer of a call. Raises its error, `KafkaTimeoutError`, or `WakeupError`."""
    state.awaited.add(call)
    try:
        while True:
            drain(state)
            answer = state.answers.pop(call, None)
            if answer is not None:
                if answer.error is not None:
                    raise answer.error
                return answer
            if state.inbox.woken:
                state.inbox.woken = False
                raise WakeupError(f"wakeup() was called during {what}")
            if now >= deadline + GRACE:
                raise KafkaTimeoutError(f"{what} had no answer within its timeout")
            now = state.holdings.now = yield Wait(until=deadline + GRACE)
    finally:
        state.awaited.discard(call)  # a later answer is kept by nobody


def auto_commit_due(state: ApplicationState, now: float) -> None:
    """Commit what earlier polls returned, each auto_commit_interval."""
    if state.config.enable_auto_commit and now >= state.next_auto_commit:
        state.next_auto_commit = now + state.config.auto_commit_interval
        auto_commit(state, now, [tp for tp, held in state.lists.held.items() if _takes_commits(state, held)])


def next_auto_commit(state: ApplicationState) -> float:
    """When a poll that waits has something new to commit; infinity where it has nothing."""
    if not state.config.enable_auto_commit:
        return float("inf")
    held = [each for each in state.lists.held.values() if each.position is not None and _takes_commits(state, each)]
    new = any(state.auto_committed.get(each.partition) != _entry_at_position(each) for each in held)
    return state.next_auto_commit if new else float("inf")


def auto_commit(state: ApplicationState, now: float, partitions: Iterable[TopicPartition]) -> None:
    if not state.config.enable_auto_commit:
        return
    held = (state.lists.held[tp] for tp in partitions)
    entries = {each.partition: _entry_at_position(each) for each in held if each.position is not None}
    if entries:
        state.auto_committed.update(entries)
        call, deadline = state.next_call(), now + state.config.default_api_timeout
        _hear(state, call, entries)
        state.holdings.commit_sent(call, entries)
        state.post(Commit(call=call, deadline=deadline, entries=entries))


def _current(state: ApplicationState, snapshot: CommitSnapshot) -> dict[TopicPartition, CommitEntry]:
    """Law 1."""
    current = {}
    for tp, entry in snapshot.entries.items():
        held = state.lists.held.get(tp)
        if held is None or not _speaks_of(entry, held):
            snapshot.settle(tp, entry, committed=False, stale=True)
        elif _takes_commits(state, held):
            current[tp] = entry
        else:
            snapshot.settle(tp, entry, committed=False)
    return current


def _by_hand(
    state: ApplicationState, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None
) -> dict[TopicPartition, CommitEntry]:
    """Laws 2 and 3. None means what the last poll returned, as in Java."""
    if offsets is None:
        held = state.lists.held.values()
        return {
            each.partition: _entry_at_position(each)
            for each in held
            if each.position is not None and _takes_commits(state, each)
        }
    entries = {TopicPartition(*tp): _entry(state, TopicPartition(*tp), value) for tp, value in offsets.items()}
    for tp, entry in entries.items():
        state.handed_over[tp] = (entry.epoch, entry.seek_number, entry.offset)
    return entries


def _entry(state: ApplicationState, tp: TopicPartition, value: OffsetAndMetadata | int) -> CommitEntry:
    held = state.lists.held.get(tp)
    if held is None or not _takes_commits(state, held):
        raise CommitFailedError(
            f"{tp} is not this consumer's any more (revoked, lost, or never assigned); its offset was not committed"
        )
    offset = OffsetAndMetadata(offset=value) if isinstance(value, int) else value
    if offset.offset < 0:
        raise ValueError(f"offset {offset.offset} of {tp} is negative")
    epoch, seek_number, newest = state.handed_over.get(tp, (-1, -1, -1))
    if (epoch, seek_number) == (held.epoch, held.seek_number) and offset.offset < newest:
        raise ValueError(
            f"commit of {tp} at {offset.offset} would go back behind {newest}; seek first if that is meant"
        )
    return CommitEntry(
        offset=offset.offset,
        epoch=held.epoch,
        seek_number=held.seek_number,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )


def _entry_at_position(held: OwnedPartition) -> CommitEntry:
    assert held.position is not None
    return CommitEntry(
        offset=held.position,
        epoch=held.epoch,
        seek_number=held.seek_number,
        leader_epoch=held.leader_epoch,
    )


def _speaks_of(entry: CommitEntry, held: OwnedPartition) -> bool:
    return (entry.epoch, entry.seek_number) == (held.epoch, held.seek_number)


def _takes_commits(state: ApplicationState, held: OwnedPartition) -> bool:
    return held.state is not Ownership.COMPLETING or held.partition in state.in_revoke_listener


def _hear(
    state: ApplicationState,
    call: int,
    entries: Mapping[TopicPartition, CommitEntry],
    snapshot: CommitSnapshot | None = None,
) -> None:
    """Law 5, and interceptors hear of what was committed."""

    def answered(answer: Answered) -> None:
        if snapshot is not None:
            _settle(snapshot, entries, answer)
        done = {tp: entry for tp, entry in entries.items() if tp in answer.committed and answer.committed[tp] is None}
        if state.on_commit is not None and done:
            state.on_commit({tp: entry.to_offset_and_metadata() for tp, entry in done.items()})

    if snapshot is not None or state.on_commit is not None:
        state.on_answer[call] = answered


def _settle(snapshot: CommitSnapshot, entries: Mapping[TopicPartition, CommitEntry], answer: Answered) -> None:
    for tp, entry in entries.items():
        error = answer.committed.get(tp, answer.error)
        snapshot.settle(tp, entry, committed=error is None and tp in answer.committed)
