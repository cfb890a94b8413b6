"""What the two threads say to each other: every kind of event in either queue (seed 002).

Laws
1. Application events go down to the network machine, background events come up to the application machine.
2. Each queue is first in, first out. No event is lost; those of one kind keep their order.
3. A partition is never named without its assignment epoch. What bears an older one is dropped by its reader.
4. An event with a `call` number is completed exactly once by `CallCompleted`, at its deadline at the latest; those that
   come one directly after the other come as one event, `CallsCompleted`. Of some partitions of a commit
   `PartlyCommitted` may tell before that: its `calls` end nothing.
5. Events are immutable; what they carry is not touched by the sender afterwards.
6. `at` says when the network side knew of it, by the machine's clock. It is for telemetry only: nothing else reads it,
   and two events that differ in it are equal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from instride._wire.record_chunk import RecordChunk
from instride.commits import CommitEntry
from instride.config import ConsumerConfig
from instride.errors import KafkaError
from instride.records import TopicPartition
from instride.telemetry import Blocker, FetchBegan, TelemetryEvent

__all__ = [
    "CALLER_WAITS",
    "EARLIEST",
    "LATEST",
    "CallCompleted",
    "CallsCompleted",
    "ApplicationEvent",
    "Assign",
    "Assigned",
    "BackgroundEvent",
    "ChangeSettings",
    "Close",
    "Commit",
    "BY_DURATION",
    "COMMITTED",
    "CommitsSettled",
    "CompleteRevoke",
    "Consumed",
    "DeadlineMoved",
    "DelayExplained",
    "EnforceRebalance",
    "DropBuffered",
    "EndsFound",
    "Epochs",
    "ErrorRaised",
    "FetchCommitted",
    "Fetched",
    "FetchesBegan",
    "FetchMetadata",
    "FetchOffsets",
    "Reassigned",
    "LeaseRenewed",
    "Lost",
    "Noticed",
    "PartitionFailed",
    "PartitionRecovered",
    "PartitionsAssigned",
    "PartitionsRevoked",
    "PartlyCommitted",
    "Pause",
    "Polled",
    "Positioned",
    "PositionsFound",
    "Resume",
    "RevocationRequested",
    "Revoked",
    "SetPosition",
    "Subscribe",
    "SubscriptionMatched",
    "UnreadablePartitions",
    "Unsubscribe",
    "Wakeup",
]

EARLIEST: Final = -2
LATEST: Final = -1
COMMITTED: Final = -3
BY_DURATION: Final = -100
"""Positions that only the network side can find: the ends of the log, the group's committed offset, or what was written
since the duration that auto_offset_reset names."""

CALLER_WAITS: Final = 0.5
"""Seconds. The network side responds to a call at its deadline at the latest; whoever called waits so much longer for
the response, and then goes on without it."""

Epochs = Mapping[TopicPartition, int]
"""Partitions, each with its assignment epoch."""


# --- Application events: down, to the network machine --------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """Be a member of the group for these topics; replaces an earlier subscription. Needs the coordinator.

    pattern: instead of topics, for those whose whole name matches; `SubscriptionMatched` tells which.
    listener: whether a rebalance listener waits for on_partitions_revoked before a revoke completes.
    """

    topics: frozenset[str]
    listener: bool = False
    pattern: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscribe:
    """Leave the group. The revokes of everything were completed before (rule 12). CallCompleted once it has left."""

    call: int
    deadline: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """Read these partitions without a group's membership; replaces an earlier assignment."""

    partitions: Epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """The application called poll: max_poll_interval runs anew.

    at: by the clock of both machines. The event may wait for a thread that was suspended.
    """

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """Fetch capacity is free again: what left the buffer, per partition: (epoch, fetch_number, records, bytes)."""

    partitions: Mapping[TopicPartition, tuple[int, int, int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadablePartitions:
    """Those whose next record cannot be deserialized, all of them: no poll takes what is buffered of these."""

    partitions: Epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPosition:
    """Fetch from here; what was fetched before is gone. offset: a number, EARLIEST, LATEST, BY_DURATION or COMMITTED.

    seek_number rises with each seek; fetch_number with each of these events. What was fetched under an older
    fetch_number is dropped.
    reset_from: where the application stood, if this is a reset and not a seek of the user's.
    keeps_buffer: what arrived did not continue the buffer, and `offset` is the buffer's end: what is buffered stays.
    divergences: (`PartitionFailed`) those that the user was told of, or that a reset answers: the offset is one of the
        log after those.
    """

    partition: TopicPartition
    epoch: int
    seek_number: int
    fetch_number: int
    offset: int
    leader_epoch: int = -1
    keeps_buffer: bool = False
    reset_from: int | None = None
    divergences: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Send no fetch of it. A fetch or a look-up that is in flight is not dropped: what it brings is kept."""

    partition: TopicPartition
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    partition: TopicPartition
    epoch: int


class MissingOffsets(NamedTuple):
    """What a log did not have when a position in it was reset: that very position, and all before `begin`.

    position: -1 where it is none. cut: where the log was truncated since, and read on; -1: it was not. Retention may
    have taken any offset. since: the seek number that the reset began, where the log was truncated after it: what was
    committed under that one or a later one is of after the reset.
    """

    position: int = -1
    begin: int = 0
    cut: int = -1
    since: int = 0

    def include(self, offset: int) -> bool:
        return offset == self.position or offset < self.begin


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Commit these offsets. Needs the coordinator.

    carry_over: keep it while the group's rebalance refuses it, and send it with the new generation; else the
        result is `RebalanceInProgressError` at once.
    by_hand: a user named these offsets: what would take the group back is an error of the whole commit.
    allow_rewind: they may lie behind what the group has.
    dropped: what the application side did not hand over, and why: for the response.
    starts: where partitions began: sent only where nothing else of the assignment was or is to be committed. But where
        a reset led to the start, only what was committed since counts. missing: what the logs did not have then. A
        start may take the place of such an offset of the group's.
    The response's result is a `CommitResult`.
    """

    call: int
    deadline: float
    entries: Mapping[TopicPartition, CommitEntry]
    carry_over: bool = True
    by_hand: bool = False
    allow_rewind: bool = False
    dropped: Mapping[TopicPartition, KafkaError] = field(default_factory=dict)
    starts: bool = False
    missing: Mapping[TopicPartition, MissingOffsets] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchCommitted:
    """Ask for committed offsets. Result: dict of partition to OffsetAndMetadata or None."""

    call: int
    deadline: float
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOffsets:
    """Ask for offsets by timestamp (ms, EARLIEST or LATEST). Result: dict of partition to OffsetAndTimestamp; its
    offset is -1 where no record is as late as that."""

    call: int
    deadline: float
    timestamps: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchMetadata:
    """Ask for topics and their partitions. Result: dict of topic to tuple of PartitionInfo; a topic that does not
    exist is not in it.

    topics: None for all of the cluster, internal ones where `internal` is True.
    """

    call: int
    deadline: float
    topics: tuple[str, ...] | None
    internal: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteRevoke:
    """The step of the lists: let go of these once their commits have their responses (and the listener has run).

    leaving_by: unsubscribe or close follows, so the group is told by that alone. When that has not come by this time, a
    listener is still at work; what is left is lost (consumer's clock, seconds).
    """

    partitions: Epochs
    leaving_by: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayExplained:
    """What these delays wait for, so that the network side can name it when one takes long. Changes nothing."""

    partitions: Epochs
    blockers: Mapping[TopicPartition, Blocker]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsRevoked:
    """The listener has run for these: the assignment may shrink."""

    partitions: Epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsAssigned:
    """The application has taken the assignment of this generation."""

    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSettings:
    """The settings from now on. They differ only in what may be changed while running."""

    config: ConsumerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforceRebalance:
    """Join again, though nothing asks for it. reason: told to the group (KIP-800)."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """Send what was handed over, leave the group, stop. CallCompleted last.

    leave: None: as is usual, so a dynamic member leaves and a static one does not (KIP-345, KIP-1092).
    """

    call: int
    deadline: float
    leave: bool | None = None


ApplicationEvent = (
    Subscribe
    | Unsubscribe
    | Assign
    | Polled
    | Consumed
    | UnreadablePartitions
    | SetPosition
    | Pause
    | Resume
    | Commit
    | FetchCommitted
    | FetchOffsets
    | FetchMetadata
    | CompleteRevoke
    | DelayExplained
    | PartitionsRevoked
    | PartitionsAssigned
    | ChangeSettings
    | EnforceRebalance
    | Close
)


# --- Background events: up, to the application machine --------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRaised:
    """An error that the next poll raises."""

    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class Wakeup:
    """Consumer.wakeup() was called by some thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionMatched:
    """The topics that the subscription's pattern means now."""

    pattern: re.Pattern[str]
    topics: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationRequested:
    """The group requests the revocation of these. deadline: by the machine's clock; after it they are lost."""

    partitions: Epochs
    deadline: float
    at: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineMoved:
    partitions: Epochs
    deadline: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassigned:
    """The group assigns these again while their revoke is pending; same epoch (rule 8)."""

    partitions: Epochs
    at: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    partitions: Epochs
    at: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRenewed:
    """It only wakes who waits. The lease had ended and holds again: a poll may return what is buffered. Or a call
    within the one that waits has changed something (law 7 of `_net/driver.py`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """New partitions of this generation, each in a new epoch. May be empty (C: the listener hears of it).

    unsubscribed: the call of the newest `Unsubscribe` that the network side had heard of; 0 where there was none. After
    a newer one this is of a subscription that is over.
    """

    generation: int
    partitions: Epochs
    member_id: str = ""
    unsubscribed: int = 0
    at: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitsSettled:
    """Every commit of these completing partitions has its response: the listener may run."""

    partitions: Epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked:
    """The assignment has shrunk by these."""

    partitions: Epochs
    at: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """Something for telemetry that the network side saw."""

    event: TelemetryEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchesBegan:
    """For telemetry, too: the first fetches that were put on their connections in one turn."""

    began: tuple[FetchBegan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Positioned:
    """Where a partition begins: its committed offset, or where the reset policy says.

    reset: auto_offset_reset found this one, the latest or by duration: the group has no committed offset, or the log
        did not have the position. missing: in the second case, what the log did not have.
    """

    partition: TopicPartition
    epoch: int
    seek_number: int
    offset: int
    leader_epoch: int = -1
    reset: bool = False
    missing: MissingOffsets | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionsFound:
    """Where several partitions begin: what one response tells of thousands is one event."""

    positions: tuple[Positioned, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Records, or none where only the position moves (control and aborted batches). next_offset: after them.

    leader_epoch: where there are none, of the last batch before next_offset, or -1 where that is unknown.
    start: the offset at which the fetch was made: the log has nothing to return between it and the first record.
    high_watermark: the end that the isolation level lets us read, -1 where unknown.
    topic_id: by which it was fetched (KIP-516), so it is of no other topic of that name; None: by the topic's name.
    """

    partition: TopicPartition
    epoch: int
    fetch_number: int
    start: int
    chunk: RecordChunk | None
    next_offset: int
    leader_epoch: int = -1
    high_watermark: int = -1
    topic_id: UUID | None = None


class EndFound(NamedTuple):
    """Where the log ends, as far as the isolation level lets us read. Of the log and no position: no seek overtakes it.

    It speaks of what the network side knew when it said so: a later one, or a later `Fetched`, says otherwise.
    """

    partition: TopicPartition
    epoch: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndsFound:
    """Ends that came without records, and that were not told of before: what one response tells is one event."""

    ends: tuple[EndFound, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFailed:
    """A partition has failed; the error is raised once the records before it were returned.

    tried_again: the network side tries it again by itself, with a growing back-off. It says `PartitionFailed` once more
        each time that fails, and `PartitionRecovered` when it succeeds. Else only a seek or a new assignment helps.

    reset: where to go on if auto_offset_reset says so: EARLIEST, LATEST, BY_DURATION, or the offset (with its
        leader_epoch) to which a log was truncated. Then nothing is raised, and the application side seeks: only it
        raises the seek number, without which no later commit could go back.
    void_from: what is buffered from this offset on is not in the log any more, and is not returned.
    divergences: how often, in this epoch, a position was of no use any more, since the log was truncated or the topic
        recreated.
    """

    partition: TopicPartition
    epoch: int
    fetch_number: int
    error: Exception
    reset: int | None = None
    leader_epoch: int = -1
    void_from: int | None = None
    tried_again: bool = False
    divergences: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecovered:
    """A partition that had failed goes on: what failed has succeeded. After a seek nothing is said."""

    partition: TopicPartition
    epoch: int
    fetch_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DropBuffered:
    """Large batches wait for memory: let go of what is buffered of this partition, of which no poll takes anything.

    The next poll does, and says where to fetch again (`SetPosition`); but not where the fetch number is another one
    by then, since what was buffered under the older one is gone.
    """

    partition: TopicPartition
    epoch: int
    fetch_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCompleted:
    """The response to the application event with this call number: a result, or an error.

    committed: of a commit: what became of each partition; None where it was committed as it stands.
    """

    call: int
    result: Any = None
    error: Exception | None = None
    committed: Mapping[TopicPartition, KafkaError | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsCompleted:
    """The responses to several calls, in their order: after a commit outage one for each commit that waited."""

    calls: tuple[CallCompleted, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartlyCommitted:
    """What became of some partitions of commits that wait for others still: `calls` end nothing. When the commits end,
    they say it again."""

    calls: tuple[CallCompleted, ...]


BackgroundEvent = (
    ErrorRaised
    | Wakeup
    | SubscriptionMatched
    | RevocationRequested
    | DeadlineMoved
    | Reassigned
    | Lost
    | LeaseRenewed
    | Assigned
    | CommitsSettled
    | Revoked
    | Noticed
    | FetchesBegan
    | Positioned
    | PositionsFound
    | Fetched
    | EndsFound
    | PartitionFailed
    | PartitionRecovered
    | DropBuffered
    | CallCompleted
    | CallsCompleted
    | PartlyCommitted
)
