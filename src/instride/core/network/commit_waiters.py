"""Who waits for the answer of a commit, and what each is told (rule 15).

Laws
1. Each is answered once: when all of its partitions are settled, at its deadline at the latest.
2. What is told is true of the group: a partition is committed only where the broker accepted this very offset. A later
   one of the same assignment and seek overtook it; an earlier-handed one that is further refuses it; what speaks of
   another assignment or seek is stale. Who waited for several partitions is told what the group has at the end.
3. An error of the whole is what its user must see: a refusal, the time-out, and a commit of which nothing is committed
   since it is stale. What a ledger, auto-commit or the positions name may be stale or overtaken in part: the result
   tells.
4. Nothing here walks over all who wait but their end: an outage gathers tens of thousands of them (rule 20).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from instride.commits import CommitEntry, CommitResult
from instride.core.events import CallCompleted, Commit
from instride.core.network.context import Context
from instride.errors import CommitOvertakenError, CommitRewindError, KafkaError, StaleCommitError
from instride.records import TopicPartition

__all__ = ["Waiter", "Waiters", "told"]

_FEW = 64


@dataclass(slots=True, kw_only=True, eq=False)
class Waiter:
    """A commit that was handed over and is not answered yet.

    behind: of partitions where a commit before this one names a later offset, that offset.
    """

    event: Commit
    waiting: set[TopicPartition]
    results: dict[TopicPartition, KafkaError | None]
    behind: dict[TopicPartition, int] = field(default_factory=dict)


class Waiters:
    """Not thread-safe: the network machine owns it. accepted: what the broker accepted last, as it is at any time."""

    def __init__(self, context: Context, accepted: Mapping[TopicPartition, CommitEntry]) -> None:
        self._context = context
        self._accepted = accepted
        self._by_call: dict[int, Waiter] = {}
        # Those that do not wait for a rebalance.
        self._impatient: dict[int, Waiter] = {}
        # Deadline and call; of calls that are answered as well, until they come to the top or are too many.
        self._deadlines: list[tuple[float, int]] = []

    def add(self, event: Commit) -> Waiter:
        waiter = Waiter(event=event, waiting=set(event.entries), results=dict(event.dropped))
        self._by_call[event.call] = waiter
        if not event.carry_over:
            self._impatient[event.call] = waiter
        if len(self._deadlines) > 2 * len(self._by_call) + _FEW:
            self._deadlines = [each for each in self._deadlines if each[1] in self._by_call]
            heapify(self._deadlines)
        heappush(self._deadlines, (event.deadline, event.call))
        return waiter

    def settle(self, waiter: Waiter, partition: TopicPartition, error: KafkaError | None) -> None:
        """error: None where the broker accepted this very offset."""
        waiter.waiting.discard(partition)
        waiter.results[partition] = error
        self.answer_done(waiter)

    def answer_done(self, waiter: Waiter) -> None:
        call = waiter.event.call
        if not waiter.waiting and self._by_call.pop(call, None) is not None:
            self._impatient.pop(call, None)
            for tp, error in waiter.results.items() if len(waiter.results) > 1 else ():
                waiter.results[tp] = _by_now(tp, waiter, error, self._accepted.get(tp))
            self._context.deliver(_answer(waiter))

    def impatient(self) -> list[Waiter]:
        return list(self._impatient.values())

    def everybody(self) -> list[Waiter]:
        return list(self._by_call.values())

    def due(self, now: float) -> Iterator[Waiter]:
        """Those whose deadline has come, each once."""
        while self._deadlines and now >= self._deadlines[0][0]:
            _, call = heappop(self._deadlines)
            if call in self._by_call:
                yield self._by_call[call]

    def next_deadline(self) -> float:
        while self._deadlines and self._deadlines[0][1] not in self._by_call:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else float("inf")


def told(partition: TopicPartition, waiter: Waiter, accepted: CommitEntry) -> KafkaError | None:
    """Law 2: what a waiter is told of a partition of which the broker accepted `accepted`."""
    own = waiter.event.entries[partition]
    if own == accepted:
        return None
    if (own.epoch, own.seek_number) != (accepted.epoch, accepted.seek_number):
        return StaleCommitError(
            f"offset {own.offset} of {partition} was not committed: the partition was assigned anew, or sought "
            f"elsewhere, since; the group has {accepted.offset}"
        )
    behind = waiter.behind.get(partition)
    return _overtaken(partition, own, accepted, refused=behind is not None and accepted.offset >= behind)


def _by_now(
    partition: TopicPartition, waiter: Waiter, error: KafkaError | None, accepted: CommitEntry | None
) -> KafkaError | None:
    """What was true when the partition was settled, as it is now that the last one is."""
    if accepted is None or not (error is None or isinstance(error, CommitOvertakenError)):
        return error
    own = waiter.event.entries[partition]
    if own == accepted:
        return None
    refused = isinstance(error, CommitRewindError) and own.offset < accepted.offset
    return _overtaken(partition, own, accepted, refused=refused)


def _overtaken(partition: TopicPartition, own: CommitEntry, accepted: CommitEntry, *, refused: bool) -> KafkaError:
    if refused:
        why = "was not committed; seek first, or commit with allow_rewind=True, if it is to go back"
    else:
        why = "was overtaken by a later commit"
    kind = CommitRewindError if refused else CommitOvertakenError
    return kind(
        f"offset {own.offset} of {partition} {why}: the group has {accepted.offset}",
        offset=own.offset,
        committed=accepted.offset,
    )


def _answer(waiter: Waiter) -> CallCompleted:
    event, results = waiter.event, waiter.results
    result = CommitResult(
        committed={tp: event.entries[tp].to_offset_and_metadata() for tp, error in results.items() if error is None},
        not_committed={tp: error for tp, error in results.items() if error is not None},
    )
    return CallCompleted(call=event.call, result=result, error=_raised(event, result), committed=results)


def _raised(event: Commit, result: CommitResult) -> KafkaError | None:
    """Law 3."""
    for tp, error in result.not_committed.items():
        if tp not in event.dropped and not _is_only_told(error, event):
            return error
    overtaken = [error for error in result.not_committed.values() if isinstance(error, CommitOvertakenError)]
    nothing = result.not_committed and not result.committed and not overtaken
    return next(iter(result.not_committed.values())) if nothing else None


def _is_only_told(error: KafkaError, event: Commit) -> bool:
    if event.by_hand:
        return isinstance(error, CommitOvertakenError) and not isinstance(error, CommitRewindError)
    return isinstance(error, CommitOvertakenError | StaleCommitError)
