"""The network side's partitions: each one that is assigned, in its epoch, and the table of them all.

Laws of one partition (`AssignedPartition`)
1. `offset` is up to where it is decoded, and `fetch_offset` where to fetch next; known in the phase FETCHING only.
2. What was requested under an older fetch_number (a seek, a reassignment, a refusal came between), or of a topic that
   was recreated since, is dropped. A pause drops nothing: it only keeps the next fetch from being sent.
3. `records` and `nbytes` count what was delivered and has not been consumed yet. `memory_bytes` is the memory that
   this takes: a piece that was decoded keeps all of its memory until its last record is consumed.
4. `undecoded` is what came from `offset` on and waits for capacity to be decoded, part after part without a gap; what
   ends a fetch number drops it, and so does another leader, whose log may be another one.
5. Each attribute that is set puts the partition into `changed`: so the parts of the machine look at what has changed,
   and at nothing else. Where several are set together one note is enough; `asking` of one whose next offset is not
   known (law 1) changes nothing for anybody, so nobody is told.
6. A failed partition (FAILED, `trouble`) is tried again from the phase in which it failed, after a back-off that grows
   until it succeeds; one whose error no time mends (`trouble` is None) waits for a seek.

Laws of the table (`AssignedPartitions`)
T1. A turn costs by what has changed: no part of the machine walks over all partitions in each turn. The next question
    to the table counts what is in `changed`, each once, however often it changed.
T2. A partition without demand has no share of the buffer: it is at its end, and nothing of it is buffered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import repeat
from typing import TypeVar
from uuid import UUID

from instride._core.events import COMMITTED, EARLIEST, EndFound, PartitionFailed, SetPosition
from instride._core.network.connections import NO_FAILURE, Backoff, NoFailure
from instride._core.ownership import Ownership
from instride._wire.api import NO_TOPIC_ID
from instride._wire.record_chunk import UndecodedRecords
from instride.records import TopicPartition
from instride.telemetry import ResetCause

__all__ = ["Arrival", "AssignedPartition", "AssignedPartitions", "BufferedPiece", "Phase", "Undecoded", "keep"]

# Sets an attribute without a note in `changed` (law 5).
_set = object.__setattr__


class Phase(Enum):
    """How far it is on the way to its records."""

    FIND_COMMITTED = "its committed offset is requested"
    FIND_OFFSET = "an end of its log is requested"
    VERIFY_RANGE = "its leader calls the next offset out of range: do the ends of its log say so, too"
    VALIDATE = "its leader has changed: is the next offset still one of the log"
    FETCHING = "its next offset is known"
    FAILED = "it has failed: it waits for its next try, or for a seek"

    __hash__ = object.__hash__  # each is one object; Enum's own is a function in Python


@dataclass(slots=True, kw_only=True)
class BufferedPiece:
    """A piece that was delivered: how many of its records are not consumed, and the memory that it keeps till then."""

    records: int
    nbytes: int


@dataclass(slots=True, kw_only=True)
class Arrival:
    """One response, for the meters: what was decoded of it, and of how many partitions something is left.

    came: bytes of its batches.
    """

    came: int = 0
    records: int = 0
    nbytes: int = 0
    partitions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecoded:
    """One response's part of a partition. end: the offset after it, by its headers. leads_on: the fetcher's law A4.

    topic_id: by which it was fetched; None: by the topic's name.
    """

    records: UndecodedRecords
    arrival: Arrival
    topic_id: UUID | None
    start: int
    end: int
    leads_on: bool


class AssignedPartition:
    """Not thread-safe: the network machine owns it."""

    changed: dict[AssignedPartition, None]
    unchecked: dict[AssignedPartition, None]
    partition: TopicPartition
    epoch: int
    # Made when it first fails: most partitions never do.
    backoff: Backoff | NoFailure
    # Between two looks whether its offset is out of range. Only records behind `doubted` end its growth.
    doubt: Backoff | NoFailure
    new_backoff: Callable[[], Backoff]
    # Ownership
    state: Ownership
    deadline: float
    # How long after its deadline commits of it are waited for.
    grace: float
    settled_told: bool
    listener_done: bool
    # Position
    phase: Phase
    failed_in: Phase
    trouble: Backoff | None
    alone: bool
    asking: bool
    timestamp: int
    offset: int
    leader_epoch: int
    seek_number: int
    fetch_number: int
    # What a response must still agree with: (epoch, fetch_number, topic_number).
    fence: tuple[int, int, int]
    reset_number: int
    corrupt_at: int
    # The furthest offset that was called out of range; -1 after a seek.
    doubted: int
    known_end: int
    # The end that the application knows of; -1: none.
    told_end: int
    # What its last fetch met; empty where that succeeded. For telemetry.
    fetch_error: str
    # Why it is to be reset, and from where: until the new position is known. Where its log began, if that was why.
    log_begin: int
    reset_cause: ResetCause
    reset_from: int | None
    # Where to fetch instead of the leader (KIP-392): a node, and until when.
    replica: tuple[int, float] | None
    # The leader epoch under which its position is valid.
    validated: int
    # How often its log was truncated, or its topic recreated, below its position; what was told of the last time, until
    # a seek or a validation. Up to which seek number positions are of the log before that, and lead nowhere; -1: none.
    divergences: int
    divergence: PartitionFailed | None
    refused_seek_number: int
    # Which topic it is, and how often that has changed. Of which seek number the last known position is, and up to
    # which one positions are of an older topic; -1: of none. That is not `refused_seek_number`, which is as far or
    # further: what was read before a log was truncated is of this topic, and is committed.
    topic_id: UUID
    topic_number: int
    known_seek_number: int
    stale_seek_number: int
    # Buffer
    paused: bool
    # A record cannot be deserialized: no poll takes what is buffered.
    unreadable: bool
    records: int
    nbytes: int
    pieces: list[BufferedPiece] | None
    memory_bytes: int
    # Under which fetch number the application was asked to drop what is buffered; -1: it was not asked.
    drop_asked: int
    undecoded: tuple[Undecoded, ...]

    __slots__ = (
        "alone",
        "asking",
        "backoff",
        "changed",
        "corrupt_at",
        "deadline",
        "divergence",
        "divergences",
        "doubt",
        "doubted",
        "drop_asked",
        "epoch",
        "failed_in",
        "fence",
        "fetch_error",
        "fetch_number",
        "grace",
        "known_end",
        "known_seek_number",
        "leader_epoch",
        "listener_done",
        "log_begin",
        "memory_bytes",
        "nbytes",
        "new_backoff",
        "offset",
        "partition",
        "paused",
        "phase",
        "pieces",
        "records",
        "refused_seek_number",
        "replica",
        "reset_cause",
        "reset_from",
        "reset_number",
        "seek_number",
        "settled_told",
        "stale_seek_number",
        "state",
        "timestamp",
        "told_end",
        "topic_id",
        "topic_number",
        "trouble",
        "unchecked",
        "undecoded",
        "unreadable",
        "validated",
    )

    def __init__(
        self,
        partition: TopicPartition,
        epoch: int,
        new_backoff: Callable[[], Backoff],
        changed: dict[AssignedPartition, None] | None = None,
        unchecked: dict[AssignedPartition, None] | None = None,
    ) -> None:
        """changed, unchecked: of the table that it will be in."""
        _set(self, "partition", partition)
        _set(self, "epoch", epoch)
        _set(self, "fence", (epoch, 0, 0))
        _set(self, "new_backoff", new_backoff)
        _set(self, "changed", {} if changed is None else changed)
        _set(self, "unchecked", {} if unchecked is None else unchecked)
        deque(map(_set, repeat(self), _NAMES_AT_FIRST, _VALUES_AT_FIRST), maxlen=0)  # a loop in C
        self.changed[self] = None

    def __setattr__(self, name: str, value: object) -> None:
        """Law 5."""
        _set(self, name, value)
        self.changed[self] = None

    @property
    def fetchable(self) -> bool:
        """Whether a fetch of it may be sent."""
        # `awaits_records`, written out: each partition that has changed is asked this several times.
        if self.phase is not Phase.FETCHING or self.state is not Ownership.OWNED or self.asking:
            return False
        return not (self.paused or self.unreadable)

    @property
    def awaits_records(self) -> bool:
        """Whether what a fetch brings is to be taken."""
        return self.phase is Phase.FETCHING and self.state is Ownership.OWNED and not self.asking

    @property
    def is_refused(self) -> bool:
        """Whether its position is one of an older topic, or one of a truncated log, to which the user sought before he
        was told: nothing goes on before a seek.
        """
        return self.seek_number <= self.refused_seek_number

    @property
    def lagging(self) -> bool:
        """Whether there are records to fetch, as far as is known: a broker responds at once."""
        return (self.undecoded[-1].end if self.undecoded else self.offset) < self.known_end

    @property
    def fetch_offset(self) -> int:
        """Where to fetch next: after all that came."""
        return self.undecoded[-1].end if self.undecoded else self.offset

    @property
    def leads_on(self) -> bool:
        """Whether it can be fetched before what came is decoded."""
        return not self.undecoded or self.undecoded[-1].leads_on

    @property
    def undecoded_bytes(self) -> int:
        """As they came: none is taken off before all of a part is decoded."""
        return sum(each.records.length for each in self.undecoded)

    def set_position(self, event: SetPosition) -> None:
        self.seek_number, self.fetch_number = event.seek_number, event.fetch_number
        self.fence = (self.epoch, self.fetch_number, self.topic_number)
        self.asking = False
        self.undecoded = ()
        self.leader_epoch = event.leader_epoch
        self.reset_from = event.reset_from
        if not event.keeps_buffer:
            self.reset_number = event.fetch_number
            self.records = self.nbytes = self.memory_bytes = 0
            self.pieces = None
        if event.reset_from is None:
            self.doubted = -1
        self.corrupt_at = -1
        self.backoff.succeeded()
        self.trouble = None
        if event.offset >= 0:
            self._at(event.offset, event.leader_epoch)
        elif event.offset == COMMITTED:
            self.phase = Phase.FIND_COMMITTED
        else:
            self.find_offset(event.offset)

    def fail(self, now: float, trouble: Backoff | None) -> None:
        """trouble: how long to wait for the next try, and the one after it; None: there is none."""
        self.failed_in, self.phase = self.phase, Phase.FAILED
        self.trouble = trouble
        if trouble is not None:
            trouble.failed(now)

    def diverges(self, cause: ResetCause) -> None:
        """Its log was truncated, or its topic recreated, below its position. One truncation may be found twice."""
        self.reset_cause, self.log_begin = cause, 0
        if cause is ResetCause.RECREATED or self.divergence is None:
            self.divergences += 1

    def refuse_seek(self, *, is_of_another_topic: bool) -> None:
        """That which led here, and whatever restarts from there."""
        self.refused_seek_number = self.seek_number
        if is_of_another_topic:
            self.stale_seek_number = self.seek_number

    def hold_back(self, now: float) -> None:
        """What was tried of it failed: nothing is tried again before its back-off is over."""
        if isinstance(self.backoff, NoFailure):
            _set(self, "backoff", self.new_backoff())
        assert isinstance(self.backoff, Backoff)
        self.backoff.failed(now)

    def doubt_range(self, now: float) -> None:
        """Its offset was looked up, since it was called out of range: the next look waits longer."""
        if isinstance(self.doubt, NoFailure):
            _set(self, "doubt", self.new_backoff())
        assert isinstance(self.doubt, Backoff)
        self.doubt.failed(now)

    def request_sent(self) -> None:
        """A request about its position leaves: no other one before its response is there. Law 5."""
        _set(self, "asking", True)

    def request_ended(self) -> None:
        _set(self, "asking", False)

    def valid_under(self, leader_epoch: int) -> None:
        """Nothing is to be asked about it under this epoch. Law 5: a fetch has the leader's from the metadata."""
        _set(self, "validated", leader_epoch)

    def try_again(self) -> None:
        """Law 6. The trouble is over when that succeeds, and not before. The leader may have changed meanwhile."""
        self.phase, self.asking = self.failed_in, False
        self.unchecked[self] = None

    def find_offset(self, timestamp: int) -> None:
        """timestamp: EARLIEST, LATEST or BY_DURATION."""
        _set(self, "timestamp", timestamp)
        self.phase = Phase.FIND_OFFSET

    def in_range(self, end: int) -> None:
        """The log reaches to `end` (-1: unknown), and has the next offset. The leader may have changed meanwhile."""
        self.phase, self.known_end = Phase.FETCHING, end
        self.unchecked[self] = None

    def other_topic(self, topic_id: UUID) -> None:
        """The topic of this name is another one now: what is known of the log no longer counts.

        A position that is still searched is of neither: it will be one of the new topic.
        """
        self.topic_id = topic_id
        self.topic_number += 1
        self.fence = (self.epoch, self.fetch_number, self.topic_number)
        self.stale_seek_number = self.refused_seek_number = max(self.known_seek_number, self.refused_seek_number)
        self.leader_epoch = self.validated = self.known_end = self.corrupt_at = self.doubted = -1
        self.asking = False
        self.undecoded = ()

    def _at(self, offset: int, leader_epoch: int) -> None:
        """To be checked against the leader before it is fetched."""
        _set(self, "offset", offset)
        _set(self, "known_seek_number", self.seek_number)
        _set(self, "leader_epoch", leader_epoch)
        _set(self, "validated", -1)
        _set(self, "known_end", -1)
        self.phase = Phase.FETCHING
        self.unchecked[self] = None

    def found(self, offset: int, leader_epoch: int) -> None:
        self._at(offset, leader_epoch)
        self.backoff.succeeded()

    def reached(self, offset: int) -> None:
        """Records arrived up to here."""
        if offset > self.doubted:
            self.doubt.succeeded()

    def consumed(self, fetch_number: int, records: int, nbytes: int) -> None:
        if fetch_number >= self.reset_number:
            self.records = max(0, self.records - records)
            self.nbytes = max(0, self.nbytes - nbytes)
            self._release(records)

    def delivered(self, records: int, nbytes: int, memory: int) -> None:
        self.records += records
        self.nbytes += nbytes
        self.memory_bytes += memory
        if self.pieces is None:
            _set(self, "pieces", [])
        assert self.pieces is not None
        self.pieces.append(BufferedPiece(records=records, nbytes=memory))

    def arrived(self, records: UndecodedRecords, arrival: Arrival, topic_id: UUID | None) -> Undecoded:
        """What a fetch from `fetch_offset` on brought."""
        start, end = self.fetch_offset, records.next_offset
        part = Undecoded(
            records=records,
            arrival=arrival,
            topic_id=topic_id,
            start=start,
            end=max(start, end),
            leads_on=end > start,
        )
        self.undecoded = (*self.undecoded, part)
        return part

    def end_told(self, end: int) -> None:
        """It goes up with records. Law 5: no part of the machine looks at it."""
        # Of what comes with records the application takes the greater one.
        if end > self.told_end:
            _set(self, "told_end", end)

    def end_found(self, end: int) -> EndFound:
        """It goes up alone."""
        _set(self, "told_end", end)
        return EndFound(self.partition, self.epoch, end)

    def lead_no_further(self) -> None:
        """Nothing is fetched before all that came is decoded (the fetcher's law A5)."""
        *before, last = self.undecoded
        self.undecoded = (*before, replace(last, leads_on=False))

    def decoded(self) -> None:
        """The first part is: what does not go on where it ended is dropped (the fetcher's law A3)."""
        rest = self.undecoded[1:]
        self.undecoded = rest if rest and rest[0].start == self.offset else ()

    def _release(self, records: int) -> None:
        done = nbytes = 0
        for piece in self.pieces or ():
            if piece.records > records:
                piece.records -= records
                break
            records, nbytes, done = records - piece.records, nbytes + piece.nbytes, done + 1
        if self.pieces is not None:
            del self.pieces[:done]
        self.memory_bytes -= nbytes


_AT_FIRST: tuple[tuple[str, object], ...] = (
    ("state", Ownership.OWNED),
    ("deadline", float("inf")),
    ("grace", 0.0),
    ("settled_told", False),
    ("listener_done", False),
    ("phase", Phase.FIND_COMMITTED),
    ("failed_in", Phase.FIND_COMMITTED),
    ("trouble", None),
    ("alone", False),
    ("asking", False),
    ("timestamp", EARLIEST),
    ("offset", -1),
    ("leader_epoch", -1),
    ("seek_number", 0),
    ("fetch_number", 0),
    ("reset_number", 0),
    ("corrupt_at", -1),
    ("doubted", -1),
    ("known_end", -1),
    ("told_end", -1),
    ("fetch_error", "no fetch of it has had a response yet"),
    ("log_begin", 0),
    ("reset_cause", ResetCause.OUT_OF_RANGE),
    ("reset_from", None),
    ("replica", None),
    ("backoff", NO_FAILURE),
    ("doubt", NO_FAILURE),
    ("validated", -1),
    ("divergences", 0),
    ("divergence", None),
    ("refused_seek_number", -1),
    ("topic_id", NO_TOPIC_ID),
    ("topic_number", 0),
    ("known_seek_number", -1),
    ("stale_seek_number", -1),
    ("paused", False),
    ("unreadable", False),
    ("records", 0),
    ("nbytes", 0),
    ("pieces", None),
    ("memory_bytes", 0),
    ("drop_asked", -1),
    ("undecoded", ()),
)
"""What a partition is like when it is assigned. Set without `__setattr__`, which would note each of them."""
_NAMES_AT_FIRST = tuple(name for name, _ in _AT_FIRST)
_VALUES_AT_FIRST = tuple(value for _, value in _AT_FIRST)


# However few have demand, so many share the buffer, if so many are assigned: one that fills up leaves some to others.
_SHARERS = 16

_Group = dict[AssignedPartition, None]
K = TypeVar("K")


# What was counted of one partition: phase, pending, undecoded, held back (that may not be decoded), demand, owned,
# flows (a poll may take what is buffered of it), bytes in memory, records, undecoded bytes. A plain tuple: one is made
# for each partition that changed, in every turn.
_Standing = tuple[Phase | None, bool, bool, bool, bool, bool, bool, int, int, int]


class _Shared(dict[_Standing, _Standing]):
    """One object for all that are alike."""

    def __missing__(self, standing: _Standing) -> _Standing:
        self[standing] = standing
        return standing


class AssignedPartitions(dict[TopicPartition, AssignedPartition]):
    """Not thread-safe: the assignment owns it. Changed by `add`, `remove` and `clear` alone; whoever asks may not
    change it, nor a partition, while it goes over what it got as an iterator.

    changed: to be taken note of. unchecked: those that no metadata was compared with since they were assigned, or since
    their position is known. Every partition of this table shares both.
    """

    def __init__(self) -> None:
        super().__init__()
        self.changed: _Group = {}
        self.unchecked: _Group = {}
        self._changed_for_fetches: _Group = {}
        self._counted: dict[AssignedPartition, _Standing] = {}
        # Of those that hold nothing: they are of few kinds, and thousands share one of each.
        self._idle = _Shared()
        self._of_phase: dict[Phase, _Group] = {each: {} for each in Phase}
        self._pending: _Group = {}
        self._pending_changed = False
        self._undecoded: _Group = {}
        self._undecoded_changed: _Group = {}
        self._held_back: _Group = {}
        self._undecoded_bytes = 0
        self._demand = self._owned = 0
        self._memory = self._flowing_memory = self._flowing_records = 0
        self._standing_still: _Group = {}
        self._of_topic: dict[str, int] = {}
        # None: some topic has come or gone since it was last computed.
        self._topics: frozenset[str] | None = None

    def add(self, assigned: AssignedPartition) -> None:
        self[assigned.partition] = assigned
        self.changed[assigned] = self.unchecked[assigned] = None
        topic = assigned.partition.topic
        if topic not in self._of_topic:
            self._topics = None
        self._of_topic[topic] = self._of_topic.get(topic, 0) + 1

    def remove(self, partition: TopicPartition) -> AssignedPartition:
        assigned = self.pop(partition)
        self.changed[assigned] = None
        topic = partition.topic
        self._of_topic[topic] -= 1
        if not self._of_topic[topic]:
            del self._of_topic[topic]
            self._topics = None
        return assigned

    def clear(self) -> None:
        for partition in list(self):
            self.remove(partition)

    # -- what is asked

    @property
    def topics(self) -> frozenset[str]:
        if self._topics is None:
            self._topics = frozenset(self._of_topic)
        return self._topics

    def in_phase(self, phase: Phase) -> list[AssignedPartition]:
        self._take_note()
        return list(self._of_phase[phase])

    def pending(self) -> list[AssignedPartition]:
        """Those that are not simply owned: their revocation was requested, or completes."""
        self._take_note()
        return list(self._pending)

    def take_pending_changed(self) -> bool:
        """Whether a pending partition has changed since the last call, or one has become so, or is so no longer."""
        self._take_note()
        changed, self._pending_changed = self._pending_changed, False
        return changed

    def take_unchecked(self) -> list[AssignedPartition]:
        """They are to be compared with the metadata now."""
        taken = [each for each in self.unchecked if self.get(each.partition) is each]
        self.unchecked.clear()
        return taken

    @property
    def all_fetching(self) -> bool:
        """Whether every next offset is known, and was compared with metadata."""
        self._take_note()
        return not self.unchecked and len(self._of_phase[Phase.FETCHING]) == len(self)

    def undecoded(self) -> list[AssignedPartition]:
        """Of which something came that is not decoded."""
        self._take_note()
        return list(self._undecoded)

    @property
    def any_undecoded(self) -> bool:
        self._take_note()
        return bool(self._undecoded)

    @property
    def undecoded_bytes(self) -> int:
        """Of all of them."""
        self._take_note()
        return self._undecoded_bytes

    def held_back(self) -> list[AssignedPartition]:
        """Of which something came that may not be decoded, as of one that is paused."""
        self._take_note()
        return list(self._held_back)

    def take_undecoded_changed(self) -> list[AssignedPartition]:
        """Of which something waits, or waited, and that have changed since the last call, however they did."""
        self._take_note()
        changed, self._undecoded_changed = self._undecoded_changed, {}
        return list(changed)

    def changed_for_fetches(self) -> Iterator[AssignedPartition]:
        """What has changed since this was asked last, those that are owned no more included."""
        self._take_note()
        changed, self._changed_for_fetches = self._changed_for_fetches, {}
        return iter(changed)

    @property
    def sharers(self) -> int:
        """How many partitions share the buffer (T2); one at least."""
        self._take_note()
        return max(1, self._demand, min(self._owned, _SHARERS))

    @property
    def memory_bytes(self) -> int:
        """Memory that decoded records keep."""
        self._take_note()
        return self._memory

    @property
    def flowing_memory_bytes(self) -> int:
        """The same, of records that a poll may take."""
        self._take_note()
        return self._flowing_memory

    def standing_still(self) -> list[AssignedPartition]:
        """Of which decoded records keep memory, and no poll may take them."""
        self._take_note()
        return list(self._standing_still)

    @property
    def flowing_records(self) -> int:
        """How many records are buffered that a poll may take."""
        self._take_note()
        return self._flowing_records

    # -- inside

    def _take_note(self) -> None:
        """T1."""
        if not self.changed:
            return
        changed, counted = list(self.changed), self._counted
        self._changed_for_fetches.update(self.changed)
        self.changed.clear()
        for assigned in changed:
            before = counted.get(assigned, _NOTHING)
            if before[2]:
                self._undecoded_changed[assigned] = None
            if self.get(assigned.partition) is not assigned:
                counted.pop(assigned, None)
                self._pending_changed = self._pending_changed or before[1]
                self._count(assigned, before, _NOTHING)
                continue
            after = _standing(assigned)
            self._pending_changed = self._pending_changed or before[1] or after[1]
            if after[2]:
                self._undecoded_changed[assigned] = None
            if before != after:
                if not (assigned.records or assigned.memory_bytes or after[2]):
                    after = self._idle[after]
                counted[assigned] = after
                self._count(assigned, before, after)

    def _count(self, assigned: AssignedPartition, before: _Standing, after: _Standing) -> None:
        phase, pending, undecoded, held, demand, owned, flows, memory, records, waiting = before
        (
            new_phase,
            new_pending,
            new_undecoded,
            new_held,
            new_demand,
            new_owned,
            new_flows,
            new_memory,
            new_records,
            new_waiting,
        ) = after
        if phase is not new_phase:
            if phase is not None:
                del self._of_phase[phase][assigned]
            if new_phase is not None:
                self._of_phase[new_phase][assigned] = None
        if pending is not new_pending:
            keep(self._pending, assigned, wanted=new_pending)
        if undecoded is not new_undecoded:
            keep(self._undecoded, assigned, wanted=new_undecoded)
        if held is not new_held:
            keep(self._held_back, assigned, wanted=new_held)
        if memory or new_memory:
            keep(self._standing_still, assigned, wanted=new_memory > 0 and not new_flows)
        self._demand += new_demand - demand
        self._owned += new_owned - owned
        self._undecoded_bytes += new_waiting - waiting
        self._memory += new_memory - memory
        self._flowing_memory += new_memory * new_flows - memory * flows
        self._flowing_records += new_records * new_flows - records * flows


_NOTHING: _Standing = (None, False, False, False, False, False, False, 0, 0, 0)


def _standing(assigned: AssignedPartition) -> _Standing:
    owned, undecoded, records = assigned.state is Ownership.OWNED, assigned.undecoded != (), assigned.records
    flows = owned and not (assigned.paused or assigned.unreadable)
    phase = assigned.phase
    # `fetchable` and `lagging`, written out: this is what a partition that has changed costs in every turn.
    fetchable = flows and phase is Phase.FETCHING and not assigned.asking
    wants = fetchable and (assigned.known_end < 0 or assigned.offset < assigned.known_end)
    demand = owned and (wants or undecoded or records > 0)
    return (
        phase,
        not owned,
        undecoded,
        undecoded and not fetchable,
        demand,
        owned,
        flows,
        assigned.memory_bytes,
        records,
        assigned.undecoded_bytes if undecoded else 0,
    )


def keep(group: dict[K, None], key: K, *, wanted: bool) -> None:
    """Have it in the group, or have it not. A dict is a set that keeps its order."""
    if wanted:
        group[key] = None
    else:
        group.pop(key, None)
