"""What a commit may speak of, and what becomes of it.

Laws
1. A snapshot's entry of an older epoch or seek number is dropped, settled as stale, and nothing else happens.
2. Offsets given by hand speak of the present assignment; a partition that is not owned is `CommitFailedError`. One
   whose revoke is completing is owned still, and keeps no other from being committed: it is dropped, and told.
3. Whether an offset goes back is for the network side to say: it knows what the broker accepted (rule 15).
4. A partition that completes its revoke takes commits only while its listener runs.
5. Every entry is settled once: by the broker's response, or as dropped. What is dropped is told with the response. An
   entry waits for no other of its commit.
6. A member that commits at all commits where a partition began, before it lets go of it (rule 18): where that was at a
   reset, and no seek came since. The network side sends it only where nothing else of it was committed. By "earliest"
   none is sent: where the group has none, the next owner begins where the log does, and passes over nothing. An
   offset without a leader epoch behind a truncation stays the group's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from instride._core.application.background_events import drain
from instride._core.application.calls import Call, Wait
from instride._core.application.partition import Delivery, OwnedPartition
from instride._core.application.state import ApplicationState
from instride._core.events import CALLER_WAITS, CallCompleted, Commit, MissingOffsets
from instride._core.ownership import Ownership
from instride.commits import CommitEntry, CommitResult, CommitSnapshot
from instride.errors import (
    CommitFailedError,
    CommitOvertakenError,
    GroupAuthorizationFailedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    StaleCommitError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    WakeupError,
)
from instride.records import OffsetAndMetadata, TopicPartition

__all__ = [
    "Offsets",
    "auto_commit",
    "auto_commit_due",
    "auto_commit_is_due",
    "await_completion",
    "commit",
    "commit_before_release",
    "next_auto_commit",
    "speaks_of",
    "start_commit",
]

Offsets = CommitSnapshot | Mapping[TopicPartition, OffsetAndMetadata | int]


def commit(
    state: ApplicationState,
    now: float,
    offsets: Offsets | None,
    timeout: float,
    *,
    carry_over: bool,
    allow_rewind: bool = False,
) -> Call[CommitResult]:
    """A blocking commit. Raises what the broker or the group responded."""
    deadline = now + timeout

    def start(call: int) -> None:
        start_commit(state, call, offsets, deadline, carry_over=carry_over, allow_rewind=allow_rewind)

    completion = yield from await_completion(state, start, now, deadline, "commit")
    result: CommitResult = completion.result
    return result


def start_commit(
    state: ApplicationState,
    call: int,
    offsets: Offsets | None,
    deadline: float,
    *,
    carry_over: bool = True,
    allow_rewind: bool = False,
    on_call: Callable[[int], None] | None = None,
) -> None:
    """Hand a commit over. call: the number of its response, which `on_call` is told before anything is sent.

    An empty commit is complete at once, and `on_call` is not called.
    """
    if state.config.group_id is None:
        raise IllegalStateError("commit needs a group_id")
    # A loss or a newer epoch that is still in the queue counts already: else a stale offset would pass for a present
    # one.
    drain(state)
    # Law 6: from now on this is a member that commits.
    state.commits = True
    snapshot = offsets if isinstance(offsets, CommitSnapshot) else None
    dropped: dict[TopicPartition, KafkaError] = {}
    entries = _current(state, snapshot, dropped) if snapshot is not None else _by_hand(state, offsets, dropped)
    if not entries and not dropped:
        state.queue.append(CallCompleted(call=call, result=CommitResult()))  # nothing to send: it is complete
        return
    _hear(state, call, entries, snapshot)
    if on_call is not None:
        on_call(call)
    state.ownership_view.commit_sent(call, entries)
    state.post(
        Commit(
            call=call,
            deadline=deadline,
            entries=entries,
            carry_over=carry_over,
            by_hand=offsets is not None and snapshot is None,
            allow_rewind=allow_rewind,
            dropped=dropped,
        )
    )


def await_completion(
    state: ApplicationState, start: Callable[[int], None], now: float, deadline: float, what: str
) -> Call[CallCompleted]:
    """Start a call and wait for its response. Raises its error, `KafkaTimeoutError`, `WakeupError`, and what `start`
    does, which is told the number of the response.
    """
    call = state.next_call()
    try:
        # Before it is started: a handler of a signal may drain the response at once.
        state.awaited.add(call)
        start(call)
        while True:
            drain(state)
            completion = state.completions.pop(call, None)
            if completion is not None:
                if completion.error is not None:
                    raise completion.error
                return completion
            if state.inbox.woken:
                state.inbox.woken = False
                raise WakeupError(f"wakeup() was called during {what}")
            # The network side ends the call at its deadline, and says more; this is for one that does not run any more.
            if now >= deadline + CALLER_WAITS:
                raise KafkaTimeoutError(f"{what} had no response within its timeout")
            now = state.ownership_view.now = yield Wait(until=deadline + CALLER_WAITS)
    finally:
        state.awaited.discard(call)  # a later response is kept by nobody
        state.completions.pop(call, None)  # of what was interrupted


def auto_commit_is_due(state: ApplicationState, now: float) -> bool:
    return state.config.enable_auto_commit and now >= state.next_auto_commit


def auto_commit_due(state: ApplicationState, now: float) -> None:
    """Commit what earlier polls returned, each auto_commit_interval."""
    if auto_commit_is_due(state, now):
        # From now, not from when it was due: after a long pause one commit is enough.
        state.next_auto_commit = now + state.config.auto_commit_interval
        auto_commit(state, now, [tp for tp, owned in list(state.lists.owned.items()) if _takes_commits(state, owned)])


def next_auto_commit(state: ApplicationState) -> float:
    """When a poll that waits has something new to commit; infinity where it has nothing."""
    if not state.config.enable_auto_commit:
        return float("inf")
    new = state.lists.uncommitted.any(lambda each: _takes_commits(state, each) and state.is_uncommitted(each))
    return state.next_auto_commit if new else float("inf")


def auto_commit(state: ApplicationState, now: float, partitions: Iterable[TopicPartition]) -> None:
    if not state.config.enable_auto_commit:
        return
    # But for what a handler of a signal, by assign, has just let go of.
    entries = _at_positions(owned for tp in partitions if (owned := state.lists.owned.get(tp)) is not None)
    # What was handed over counts, accepted or not: else a waiting poll would wake for what is in flight already.
    state.auto_committed.update(entries)
    _commit_unasked(state, now, entries)


def commit_before_release(state: ApplicationState, now: float, partitions: Iterable[TopicPartition]) -> None:
    """These are about to be let go of: auto-commit's last, and law 6."""
    wanted = list(partitions)
    # First: where something was returned, its position is committed, and no start is.
    auto_commit(state, now, wanted)
    setting = state.config.commit_start_offsets
    if state.config.group_id is None or not (state.commits if setting is None else setting):
        return
    if state.config.auto_offset_reset == "earliest":
        return
    starts, missing = {}, {}
    for tp in wanted:
        owned = state.lists.owned.get(tp)
        # Read once: a handler of a signal may seek meanwhile.
        if owned is not None and (began := owned.began) is not None:
            offset, leader_epoch, lacked = began
            starts[tp] = CommitEntry(
                offset=offset, epoch=owned.epoch, seek_number=owned.seek_number, leader_epoch=leader_epoch
            )
            if lacked is not None:
                missing[tp] = lacked
    _commit_unasked(state, now, starts, starts=True, missing=missing)


def _commit_unasked(
    state: ApplicationState,
    now: float,
    entries: Mapping[TopicPartition, CommitEntry],
    *,
    starts: bool = False,
    missing: Mapping[TopicPartition, MissingOffsets] = MappingProxyType({}),
) -> None:
    if entries:
        call, deadline = state.next_call(), now + state.config.default_api_timeout
        _hear(state, call, entries)
        state.ownership_view.commit_sent(call, entries)
        state.post(Commit(call=call, deadline=deadline, entries=entries, starts=starts, missing=missing))


def _current(
    state: ApplicationState, snapshot: CommitSnapshot, dropped: dict[TopicPartition, KafkaError]
) -> dict[TopicPartition, CommitEntry]:
    """Law 1."""
    current = {}
    for tp, entry in snapshot.entries.items():
        owned = state.lists.owned.get(tp)
        if owned is None or not speaks_of(entry, owned):
            snapshot.settle(tp, entry, committed=False, stale=True)
            dropped[tp] = _stale(tp, entry, owned)
        elif _takes_commits(state, owned):
            current[tp] = entry
        else:
            snapshot.settle(tp, entry, committed=False)
            dropped[tp] = _completing(tp, entry)
    return current


def _completing(tp: TopicPartition, entry: CommitEntry) -> CommitFailedError:
    return CommitFailedError(
        f"offset {entry.offset} of {tp} was not committed: the revoke of the partition is completing"
    )


def _stale(tp: TopicPartition, entry: CommitEntry, owned: OwnedPartition | None) -> StaleCommitError:
    if owned is None:
        why = "the partition is not this consumer's any more (revoked, lost, or never assigned)"
    elif owned.epoch != entry.epoch:
        why = "the partition was lost or revoked since, and assigned anew"
    else:
        why = "the partition was sought elsewhere since"
    return StaleCommitError(f"offset {entry.offset} of {tp} was not committed: {why}")


def _by_hand(
    state: ApplicationState,
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None,
    dropped: dict[TopicPartition, KafkaError],
) -> dict[TopicPartition, CommitEntry]:
    """Law 2. None means the position of each owned partition, where it is known, as in Java."""
    if offsets is None:
        return _at_positions(each for each in list(state.lists.owned.values()) if _takes_commits(state, each))
    entries = {TopicPartition(*tp): _entry(state, TopicPartition(*tp), value) for tp, value in offsets.items()}
    for tp, entry in list(entries.items()):
        owned = state.lists.owned.get(tp)
        if owned is not None and not _takes_commits(state, owned):
            dropped[tp] = _completing(tp, entry)
            del entries[tp]
    return entries


def _entry(state: ApplicationState, tp: TopicPartition, value: OffsetAndMetadata | int) -> CommitEntry:
    owned = state.lists.owned.get(tp)
    if owned is None:
        raise CommitFailedError(
            f"{tp} is not this consumer's any more (revoked, lost, or never assigned); its offset was not committed"
        )
    offset = OffsetAndMetadata(offset=value) if isinstance(value, int) else value
    if offset.offset < 0:
        raise ValueError(f"offset {offset.offset} of {tp} is negative")
    return CommitEntry(
        offset=offset.offset,
        epoch=owned.epoch,
        seek_number=owned.seek_number,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )


def _at_positions(partitions: Iterable[OwnedPartition]) -> dict[TopicPartition, CommitEntry]:
    """Of those whose position is known."""
    entries = ((each.partition, each.at_position()) for each in partitions)
    return {tp: entry for tp, entry in entries if entry is not None}


def speaks_of(entry: CommitEntry | Delivery, owned: OwnedPartition) -> bool:
    """Whether it is of the present assignment and place of the partition."""
    return (entry.epoch, entry.seek_number) == (owned.epoch, owned.seek_number)


def _takes_commits(state: ApplicationState, owned: OwnedPartition) -> bool:
    # Law 4. COMPLETING ends when the last commits have their responses: one more would have to be awaited, too.
    return owned.state is not Ownership.COMPLETING or owned.partition in state.in_revoke_listener


def _hear(
    state: ApplicationState,
    call: int,
    entries: Mapping[TopicPartition, CommitEntry],
    snapshot: CommitSnapshot | None = None,
) -> None:
    """Law 5, and interceptors hear of what was committed."""
    left = dict(entries)

    def completed(completion: CallCompleted, /, *, ended: bool) -> None:
        if snapshot is not None:
            _settle(snapshot, left, completion, ended=ended)
        if not ended:
            return
        # In place of a start another offset may have been committed (rule 18): the result says it.
        result = completion.result.committed if isinstance(completion.result, CommitResult) else {}
        done = {
            tp: result.get(tp) or entry.to_offset_and_metadata()
            for tp, entry in entries.items()
            if tp in completion.committed and completion.committed[tp] is None
        }
        if state.on_commit is not None and done:
            state.on_commit(done)

    if snapshot is not None or state.on_commit is not None:
        state.on_completion[call] = completed


def _settle(
    snapshot: CommitSnapshot, left: dict[TopicPartition, CommitEntry], completion: CallCompleted, *, ended: bool
) -> None:
    """left: entries that are still to be settled. Each is removed before it is settled, since a handler of a signal may
    settle the others meanwhile."""
    for tp in list(left if ended else completion.committed):
        entry = left.pop(tp, None)
        if entry is None:
            continue
        error = completion.committed.get(tp, completion.error)
        # Overtaken: the group has a later offset of the same epoch and seek, so this one needs no commit any more.
        reached = error is None and tp in completion.committed
        reached |= isinstance(error, CommitOvertakenError)
        stale = isinstance(error, StaleCommitError)
        snapshot.settle(tp, entry, committed=reached, stale=stale, refused=_is_refused(error))


def _is_refused(error: Exception | None) -> bool:
    """For good, for want of the topic or of a right: no other commit of the partition would fare better."""
    return isinstance(
        error, UnknownTopicOrPartitionError | TopicAuthorizationFailedError | GroupAuthorizationFailedError
    )
