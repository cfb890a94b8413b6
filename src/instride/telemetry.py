"""What a consumer tells of its rebalances: who owns which partition, since when, and what a hand-over waited for.

Pass `telemetry=` a callable to `Consumer`, `AsyncConsumer`, `RangeConsumer` or `Pipeline`, or to `run` and `running` of
a `Processor`. It is called with each of these events.

Laws
1. It is called on the application's thread, inside a call of the consumer, in the order in which things happened there.
   With `AsyncConsumer` that is the event loop's thread, with a `Processor` the thread that polls.
2. What it raises is logged, and nothing else happens: consuming goes on. It may call the consumer's local verbs.
3. Every time (`at` and whatever ends in `_at`) is in seconds of one clock, which the processes of a machine
   share: `CLOCK_BOOTTIME` on Linux, `time.monotonic` elsewhere. It counts a suspended machine, and is never set back.
4. An event is about the consumer's own view. That a partition was taken over elsewhere only its next owner tells.
5. No event holds a record, a key or a value: a blocker is named by its offsets, or as the user's reason says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum

from instride.records import TopicPartition

__all__ = [
    "Blocker",
    "DelayAtRisk",
    "FetchBegan",
    "HandedOver",
    "Hold",
    "OwnershipChange",
    "OwnershipChanged",
    "PartitionFlows",
    "PartitionStalled",
    "PositionReset",
    "RebalanceEnded",
    "RebalanceOutcome",
    "RebalanceStarted",
    "ResetCause",
    "StallCause",
    "TelemetryEvent",
    "TelemetryListener",
]


class OwnershipChange(StrEnum):
    """What became of this consumer's ownership of partitions.

    ASSIGNED: this consumer owns them from now on. REVOKE_REQUESTED: the group requested their revocation; polls return
    nothing more of them. DELAYED: `delay_revoke` keeps them, told once for each request. COMPLETING: the application
    released them, and their last commits are awaited. REVOKED: handed over. LOST: no longer owned, without a hand-over.
    REASSIGNED: their revocation was requested, then the group assigned them to this consumer again.
    """

    ASSIGNED = "assigned"
    REVOKE_REQUESTED = "revoke_requested"
    DELAYED = "delayed"
    COMPLETING = "completing"
    REVOKED = "revoked"
    LOST = "lost"
    REASSIGNED = "reassigned"


class RebalanceOutcome(Enum):
    """How a rebalance ended for this member."""

    TAKEN = "the application took the assignment"
    SUPERSEDED = "the next rebalance began before the application took the assignment"
    FAILED = "the membership ended"


class StallCause(Enum):
    """Why an owned partition makes no progress, as far as the consumer can tell."""

    NO_POSITION = "where to begin is not known yet"
    FAILED = "it met an error, which poll raised; it is retried, or waits for a seek"
    NO_LEADER = "no broker is known to lead it"
    NOT_FETCHED = "there are records, and no fetch brings them"
    FETCH_FAILS = "no fetch of it succeeds"
    NOT_TAKEN = "records are fetched, and no poll takes them"


class ResetCause(Enum):
    """Why a position was reset, as auto_offset_reset says."""

    OUT_OF_RANGE = "its log, by both of its ends, does not have the offset"
    TRUNCATED = "its log was truncated below the offset"
    RECREATED = "its topic was deleted and recreated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """What a delay waits for. offset: of the record, or the first of a range; None where the reason was a text."""

    text: str
    offset: int | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The state of an owned partition at this moment; see `Consumer.holdings`.

    state: the latest change. since: when the application took it. epoch: the assignment epoch, which rises with
    every assignment. generation: of the group when it was assigned; -1 by `assign`.
    requested_at: when the group requested its revocation, or None. deadline: when it would be lost, or None.
    blocker: why it is delayed. uncommitted: records (of a `RangeConsumer`: offsets) that polls returned and of which no
    commit is known; at most so many are repeated if this member ends now.
    """

    partition: TopicPartition
    epoch: int
    generation: int
    state: OwnershipChange
    since: float
    requested_at: float | None = None
    deadline: float | None = None
    blocker: Blocker | None = None
    uncommitted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipChanged:
    """Partitions, sorted, changed together."""

    at: float
    change: OwnershipChange
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """This consumer no longer owns a partition, which was revoked or lost: how long each step took.

    how: REVOKED or LOST. since: when the application took it. Then, each None where it did not happen:
    requested_at: the group requested the revocation (the response to Sync came). noticed_at: a poll took the request,
    or close began. delayed_at: `delay_revoke` kept it first; polls_delayed: through so many polls. completing_at: the
    application released it. at: the network side released it, or knew that it is lost.
    blocker: what the latest delay waited for. abandoned: records (of a `RangeConsumer`: offsets) that polls had
    returned and of which no commit is known: the next owner repeats at most so many.
    """

    at: float
    partition: TopicPartition
    epoch: int
    how: OwnershipChange
    since: float
    requested_at: float | None = None
    noticed_at: float | None = None
    delayed_at: float | None = None
    polls_delayed: int = 0
    completing_at: float | None = None
    blocker: Blocker | None = None
    abandoned: int = 0

    @property
    def seconds(self) -> float:
        """From the request to the end; 0 for a loss without a request."""
        return 0.0 if self.requested_at is None else max(0.0, self.at - self.requested_at)

    @property
    def phases(self) -> dict[str, float]:
        """Seconds of each step that was reached, which sum up to `seconds`.

        "waiting for a poll": until a poll took the request. "kept": until the poll that released it, which is the time
        of its delays. "completing": until the response to its last commit came, and the listener had run.
        """
        if self.requested_at is None:
            return {}
        steps = {"waiting for a poll": self.requested_at, "kept": self.noticed_at, "completing": self.completing_at}
        begun = {name: at for name, at in steps.items() if at is not None}
        ends = [*list(begun.values())[1:], self.at]
        return {name: max(0.0, end - start) for (name, start), end in zip(begun.items(), ends, strict=True)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchBegan:
    """The first fetch of a partition in this assignment was sent: somebody reads it again.

    `HandedOver.at` of the previous owner is the other half of the time in which it had no owner. assigned_at: when the
    group assigned it to this consumer (the response to Sync came).
    """

    at: float
    partition: TopicPartition
    epoch: int
    assigned_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceStarted:
    """This member joins. generation: the present one, -1 without a membership. reason: as the join tells the broker."""

    at: float
    generation: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceEnded:
    """A rebalance is over for this member. generation: the new one, or -1 where it failed before.

    joining, syncing, taking: seconds until the response to Join, until that to Sync, and until a poll took the
    assignment; None for a step that did not end. joins: how many joins it took. assigned, revocation_requested,
    reassigned: what it brought the application. delayed: what is delayed at its end.
    """

    at: float
    started_at: float
    generation: int
    reason: str
    outcome: RebalanceOutcome
    joins: int
    joining: float | None = None
    syncing: float | None = None
    taking: float | None = None
    assigned: tuple[TopicPartition, ...] = ()
    revocation_requested: tuple[TopicPartition, ...] = ()
    reassigned: tuple[TopicPartition, ...] = ()
    delayed: tuple[TopicPartition, ...] = ()

    @property
    def seconds(self) -> float:
        return self.at - self.started_at


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayAtRisk:
    """Half of the time has passed after which the partition is lost, and its revocation is not complete.

    Told once for each request.

    seconds_left: at `at`. blocker: what the delay waits for; None where it was not delayed, or no reason was given.
    """

    at: float
    partition: TopicPartition
    epoch: int
    seconds_left: float
    blocker: Blocker | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStalled:
    """An owned partition that is not paused made no progress for `seconds` (the setting `stalled_after`).

    offset: where the next fetch would begin, -1 where it is not known. end: where the log ends, as far as is known, or
    -1. waiting: records that are fetched and that no poll took. error: what its last fetch met, where it failed.
    """

    at: float
    partition: TopicPartition
    epoch: int
    seconds: float
    cause: StallCause
    offset: int = -1
    end: int = -1
    waiting: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFlows:
    """A stalled partition made progress again, or was paused or released. seconds: how long it stood still."""

    at: float
    partition: TopicPartition
    epoch: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionReset:
    """Reading goes on at another offset, and no seek of the user's led there.

    from_offset: where the next record was awaited. to_offset: where reading goes on.
    """

    at: float
    partition: TopicPartition
    epoch: int
    cause: ResetCause
    from_offset: int
    to_offset: int

    @property
    def count(self) -> int:
        """How many offsets are skipped; below zero: how many may come again."""
        return self.to_offset - self.from_offset


TelemetryEvent = (
    OwnershipChanged
    | HandedOver
    | FetchBegan
    | RebalanceStarted
    | RebalanceEnded
    | DelayAtRisk
    | PartitionStalled
    | PartitionFlows
    | PositionReset
)
"""What a listener hears."""

TelemetryListener = Callable[[TelemetryEvent], object]
"""See the laws above. Keep it short: the poll waits for it."""
