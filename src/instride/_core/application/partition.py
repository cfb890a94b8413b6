"""What the application side knows of one partition in one assignment epoch.

Laws
1. `position` is the offset after the last record that a completed poll returned, or where a seek or the network side
   put it. What a poll takes it takes aside: one store, `PollResult.aside`, makes all of it count at once. Of a
   poll that was not completed nothing was taken: the next take begins at the position again.
2. The buffer holds what was fetched and not yet returned, in order. A chunk of which a poll takes the last record
   moves from it to what that poll has aside, and comes back where something is done before the poll is completed.
   So the store that completes a poll also lets go of what it returns: that is the caller's alone.
3. seek_number rises with each seek; fetch_number with each seek, giving back and refusal (law 4). An arrival with
   an older fetch_number is dropped. A pause drops nothing: what arrives meanwhile is kept.
4. An arrival that does not begin where the buffer ends is refused, and fetched again from there.
5. A failed partition gives its error, or its reset, once everything before it was returned, once for each time that it
   failed; nothing any more when it has recovered.
6. A handler of a signal may call the consumer between any two steps here. Who computes where the partition goes on
   writes that only if place and buffer are those that it began with: a seek in the handler stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from instride._core.application.calls import Write, at_once
from instride._core.events import COMMITTED, MissingOffsets, PartitionFailed, PartitionRecovered
from instride._core.ownership import Ownership
from instride._wire.record_chunk import RecordChunk
from instride.commits import CommitEntry
from instride.errors import DeserializationError
from instride.records import ConsumerRecord, TopicPartition

__all__ = ["Aside", "Delivery", "OwnedPartition", "PollResult", "Polls", "Unreadable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A chunk that a poll returns, with what fences its records.

    start: where the delivery before it ended, or where a seek led: what lies between that and the first record is not
    to be returned (control and aborted batches, compaction). -1 where it is not known.
    records: the chunk's, deserialized; None where they are made when they are used.
    """

    partition: TopicPartition
    chunk: RecordChunk
    epoch: int
    seek_number: int
    start: int = -1
    records: tuple[ConsumerRecord, ...] | None = None


@dataclass(slots=True, kw_only=True)
class Aside:
    """arrivals: those of which a poll took the last record; none of them is in its partition's buffer."""

    deliveries: list[Delivery]
    arrivals: dict[OwnedPartition, list[_Arrival]]


class PollResult:
    """What one poll returns.

    aside: what it took, until the poll is completed. Whoever runs the poll sets it to None, as the last thing before
    the caller has what it returns.
    """

    __slots__ = ("aside",)

    def __init__(self) -> None:
        self.aside: Aside | None = Aside(deliveries=[], arrivals={})

    @property
    def deliveries(self) -> Sequence[Delivery]:
        """Empty once it is completed."""
        return self.aside.deliveries if self.aside is not None else ()


class Polls:
    """What all partitions share. current: the result of the poll that is under way, or of the last one.

    A poll, or another call, computes where partitions go on, or whether they are let go of, and writes it. A handler of
    a signal may seek or delay in between: then the call computes it anew, or the seek would be undone, and both sides
    would count seeks differently. So whoever does one of these writes `changing` with it, and `unchanged` before it.
    """

    __slots__ = ("_version", "current")

    def __init__(self) -> None:
        self.current = PollResult()
        self._version: list[object] = [object()]

    def unchanged(self) -> Write:
        """ValueError where, since this was called, somebody sought, delayed or fetched anew, or records came."""
        return (self._version.index, self._version[0])

    def changing(self) -> Write:
        return (self._version.__setitem__, 0, object())


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """Why a record cannot be deserialized. raised: by a poll. delay: between the last try and the next.

    awaited: it is to be tried again, and is not there: it was dropped for want of memory. after: the poll that took
    what comes before it, if anything does.
    """

    error: DeserializationError
    retry_at: float
    delay: float
    raised: bool = False
    awaited: bool = False
    after: PollResult | None = None


class _Place(NamedTuple):
    """Up to where a buffer was taken. position: as law 1 says. leader_epoch: of the last batch before it.

    end: where the last delivery ended; the position may be behind it. rest: what is left of the first chunk behind it,
    where a poll split that; with the next use it is the first of the buffer. records, nbytes: how much of all that ever
    arrived is before this place.
    """

    position: int | None = None
    end: int = -1
    leader_epoch: int = -1
    rest: RecordChunk | None = None
    records: int = 0
    nbytes: int = 0


_NOWHERE = _Place()
_NO_DEADLINE = float("inf")


class _Arrival(NamedTuple):
    """leader_epoch: of the last batch before next_offset. records, nbytes: of all that arrived up to its end."""

    chunk: RecordChunk | None
    next_offset: int
    leader_epoch: int
    records: int
    nbytes: int


class OwnedPartition:
    """Position and buffer of a partition. Not thread-safe: the application machine owns it."""

    __slots__ = (
        "_buffer",
        "_fetched_of",
        "_metered",
        "_place",
        "_polls",
        "_taken",
        "_told",
        "_version",
        "began",
        "committed",
        "deadline",
        "divergences",
        "divergences_known",
        "epoch",
        "error",
        "fetch_number",
        "high_watermark",
        "origin",
        "partition",
        "paused",
        "raised",
        "reset",
        "reset_epoch",
        "reset_from",
        "seek_number",
        "state",
        "unreadable",
    )

    def __init__(self, partition: TopicPartition, epoch: int, polls: Polls | None = None) -> None:
        self.partition = partition
        self.epoch = epoch
        self.state = Ownership.OWNED
        self.seek_number = 0
        self.fetch_number = 0
        # Where the network side is to look for a position that is not known.
        self.origin = COMMITTED
        # If it is looked for since a reset: where it stood.
        self.reset_from: int | None = None
        # Where a reset led (rule 18): offset, leader epoch, and what the log did not have, if that was the reason. Once
        # the log was truncated, the group's offset as well. None otherwise, and after a seek.
        self.began: tuple[int, int, MissingOffsets | None] | None = None
        # The group's offset, where the assignment began at that.
        self.committed: tuple[int, int, MissingOffsets | None] | None = None
        self.high_watermark = -1
        self.paused = False
        self.deadline = _NO_DEADLINE
        # What the network side failed at, and whether a poll has raised it.
        self.error: Exception | None = None
        self.raised = False
        self.reset: int | None = None
        self.reset_epoch = -1
        # How many truncations and recreations the newest PartitionFailed counts, and of how many the user was told.
        self.divergences = self.divergences_known = 0
        # Why the first record of the buffer could not be deserialized.
        self.unreadable: Unreadable | None = None
        self._polls = polls or Polls()
        self._buffer: list[_Arrival] = []
        # By which topic id, or (None,) where by its name, or by several; () where nothing was fetched since a seek.
        self._fetched_of: tuple[UUID | None, ...] = ()
        self._place = _NOWHERE
        self._taken: tuple[PollResult, _Place] | None = None
        # Another object whenever place or buffer changed but for an arrival (law 6).
        self._version: list[object] = [object()]
        # How much of all that ever arrived has left the buffer, (records, bytes): as the network side was told, and as
        # the metrics know.
        self._told = (0, 0)
        self._metered = (0, 0)

    # -- where it stands

    @property
    def position(self) -> int | None:
        return self._returned().position

    @property
    def leader_epoch(self) -> int:
        return self._returned().leader_epoch

    def _returned(self) -> _Place:
        """Law 1."""
        return self._completed() or self._place

    def _completed(self) -> _Place | None:
        """Where a completed poll ended, while `_place` and the buffer are still those of before it."""
        taken = self._taken
        return taken[1] if taken is not None and taken[0].aside is None else None

    def _settled(self) -> _Place:
        """The same, and the buffer begins there. Each step may be interrupted, and be done again."""
        version, taken = self._version[0], self._taken
        if taken is not None:
            result, after = taken
            if result.aside is None:
                self._go_on(version, after, None)
            else:
                self._put_back(result.aside)
        version, taken, place = self._version[0], self._taken, self._place
        if place.rest is not None:  # of a poll before the one that was put back, which may still be completed
            self._go_on(version, place, taken)
        return self._place

    def _go_on(self, version: object, place: _Place, taken: tuple[PollResult, _Place] | None) -> None:
        """A poll was completed."""
        buffer, rest, count = self._buffer, place.rest, self._behind(place)
        first: list[_Arrival] = []
        with suppress(ValueError):  # law 6
            if rest is not None:
                ((_, *of_first),) = buffer[count : count + 1]
                first, place, count = [_Arrival(rest, *of_first)], _Place(*place[:3], None, *place[4:]), count + 1
            at_once(
                [
                    *self._changing(version),
                    (buffer.__setitem__, slice(count), first),
                    (setattr, self, "_place", place),
                    (setattr, self, "_taken", taken),
                ]
            )

    def _changing(self, version: object) -> list[Write]:
        """Law 6. ValueError, and nothing is written, where it has changed since that version."""
        return [(self._version.index, version), (self._version.__setitem__, 0, object())]

    def _behind(self, place: _Place) -> int:
        """How many of the buffer are behind it."""
        count = 0
        for chunk, next_offset, _, records, _ in self._buffer:
            reached = place.position is not None and next_offset <= place.position
            if not (reached if chunk is None else records <= place.records):
                break
            count += 1
        return count

    def _put_back(self, aside: Aside) -> None:
        """Law 2."""
        moved = aside.arrivals.get(self)
        if moved is not None:
            changed = (self._version.__setitem__, 0, object())
            with suppress(KeyError):  # law 6
                at_once([(aside.arrivals.__delitem__, self), (self._buffer.__setitem__, slice(0), moved), changed])

    def _next(self) -> _Place:
        """Where the poll that is under way takes on."""
        taken = self._taken
        return taken[1] if taken is not None and taken[0] is self._polls.current else self._settled()

    def at_position(self) -> CommitEntry | None:
        """What a commit of the position says; None while that is not known."""
        place = self._returned()
        if place.position is None:
            return None
        return CommitEntry(
            offset=place.position, epoch=self.epoch, seek_number=self.seek_number, leader_epoch=place.leader_epoch
        )

    def positioned(
        self,
        seek_number: int,
        offset: int,
        leader_epoch: int,
        *,
        reset: bool = False,
        missing: MissingOffsets | None = None,
    ) -> None:
        """The network side found where the partition begins."""
        found_at = (offset, leader_epoch, missing)
        began, committed = (found_at, None) if reset else (None, found_at)
        while True:
            self._settled()
            version, place = self._version[0], self._place
            if seek_number != self.seek_number or place.position is not None:
                return
            found = _Place(offset, offset, leader_epoch, *place[3:])
            with suppress(ValueError):  # law 6
                places = ((setattr, self, "_place", found), (setattr, self, "began", began))
                at_once([*self._changing(version), *places, (setattr, self, "committed", committed)])
                return

    # -- what arrives

    def awaits(self, fetch_number: int) -> bool:
        """Whether what was fetched under this number is wanted (law 3)."""
        return fetch_number == self.fetch_number and self.state is Ownership.OWNED

    def unchanged(self) -> Write:
        """Law 6: ValueError where what follows was computed for a place and a buffer that are no more."""
        self._settled()
        return (self._version.index, self._version[0])

    def arriving(self, chunk: RecordChunk | None, next_offset: int, leader_epoch: int) -> Write:
        """It continues the buffer (law 4). leader_epoch: see `Fetched`."""
        place = self._settled()
        if chunk is None and not self._buffer:
            # Control and aborted batches move the position though no record of them is returned.
            moved = place._replace(position=next_offset, leader_epoch=max(leader_epoch, place.leader_epoch))
            return (setattr, self, "_place", moved)
        (before,) = self._buffer[-1:] or (place,)
        return (self._buffer.append, _after(before, chunk, next_offset, leader_epoch))

    def fetched_of(self, topic_id: UUID | None) -> Write:
        """For `topic_id`."""
        of_one = not self._fetched_of or self._fetched_of == (topic_id,)
        return (setattr, self, "_fetched_of", (topic_id if of_one else None,))

    @property
    def topic_id(self) -> UUID | None:
        """By which all was fetched since the last seek; None where some was fetched by the topic's name, or nothing."""
        return self._fetched_of[0] if self._fetched_of else None

    def failed(self, event: PartitionFailed) -> list[Write]:
        if event.fetch_number != self.fetch_number:
            return []
        told = {"error": event.error, "reset": event.reset, "reset_epoch": event.leader_epoch, "raised": False}
        writes: list[Write] = [(setattr, self, *each) for each in told.items()]
        writes.append((setattr, self, "divergences", event.divergences))
        if event.void_from is None:
            return writes
        if self.unreadable is not None and self.unreadable.error.offset >= event.void_from:
            # The record is gone. To seek past it would pass over what replaced it.
            writes.append((setattr, self, "unreadable", None))
        if event.reset == event.void_from and (self.position or 0) <= event.void_from:
            # No seek follows: only what is buffered is gone. Yet retention may have taken what the group has (rule 18).
            began = self._began_in_what_is_left(event.void_from, event.leader_epoch)
            writes.append((setattr, self, "began", began))
        return [*writes, *self._cutting(event.void_from)]

    def _cutting(self, offset: int) -> list[Write]:
        """The log ends here now: what was fetched from behind it is not returned."""
        before: _Place | _Arrival = self._settled()
        kept = list[_Arrival]()
        for chunk, next_offset, epoch, _, _ in self._buffer:
            reaches_over = chunk is not None and chunk.first_offset < offset < next_offset
            part, end = (_before(chunk, offset), offset) if chunk and reaches_over else (chunk, next_offset)
            if end <= offset:
                before = _after(before, part, end, epoch)
                kept.append(before)
        taken = self._taken  # after _settled: of a poll that is under way, or was given up
        if taken is not None and taken[1].rest is not None:
            rest = taken[1].rest
            left = None if rest.first_offset >= offset else _before(rest, offset)
            taken = taken[0], taken[1]._replace(rest=left)
        return [
            (self._buffer.__setitem__, slice(None), kept),
            (setattr, self, "_taken", taken),
            (self._version.__setitem__, 0, object()),
        ]

    # -- what failed

    def recovered(self, event: PartitionRecovered) -> list[Write]:
        """What failed has succeeded: an error that was not raised yet is dropped."""
        return [(setattr, self, "error", None)] if event.fetch_number == self.fetch_number else []

    @property
    def lag(self) -> int | None:
        """Offsets between the position and the last known end; None while either is unknown. Any thread may ask.

        The end is the high watermark; for a reader of committed records it is the last stable offset. What was fetched
        and is not returned yet counts.
        """
        position, end = self.position, self.high_watermark
        return None if position is None or end < 0 else max(0, end - position)

    def failure(self) -> Exception | None:
        """Why nothing of it is returned, until that has passed."""
        if self.unreadable is not None:
            return self.unreadable.error
        return self.error if self.reset is None else None

    def forget_unreached(self, given_up: PollResult) -> None:
        """What came before it was not returned: the error would name a record to seek past, and those would be lost."""
        if self.unreadable is not None and self.unreadable.after is given_up:
            self.unreadable = None

    def due_error(self) -> Exception | None:
        """What failed, when nothing is left before it, once for each time that it failed."""
        unreadable = self.unreadable
        if unreadable is not None and not unreadable.raised and not self.paused and self.state is Ownership.OWNED:
            self.unreadable = replace(unreadable, raised=True)
            return unreadable.error
        if self.raised or self.reset is not None or not self._stands():
            return None
        self.raised = True
        return self.hopeless()

    def hopeless(self) -> Exception | None:
        """Why no position will be found without a seek, for the user: he seeks with that in mind from now on.
        `due_error` gives it as well."""
        error = self.error
        if error is None or self.reset is not None:
            return None
        self.divergences_known = self.divergences
        return error

    def due_reset(self) -> int | None:
        """Where to seek, once, when nothing is left before an offset that is out of range."""
        return self.reset if self.reset is not None and self._stands() else None

    def _stands(self) -> bool:
        return self.error is not None and self.state is Ownership.OWNED and self._is_empty()

    def _is_empty(self) -> bool:
        self._settled()
        return not self._buffer

    # -- what is returned

    def fails(self) -> bool:
        """Whether something keeps it from going on, be it only until its reset."""
        return self.error is not None or self.unreadable is not None

    @property
    def buffered(self) -> int:
        # Each poll asks this of all; of most nothing is taken.
        place = self._place if self._taken is None else self._completed() or self._next()
        last = self._buffer[-1:]
        return last[0].records - place.records if last else 0

    def available(self) -> int:
        """How many records a poll may take now."""
        returns = self.state is Ownership.OWNED and not self.paused and self.unreadable is None
        return self.buffered if returns else 0

    def take(self, count: int) -> list[Delivery]:
        """Up to `count` buffered records, for the poll that is under way (law 1)."""
        result = self._polls.current
        assert result.aside is not None, "a poll is under way"
        part = self._take_part(count)
        if part:
            return part
        aside = result.aside.arrivals
        while True:
            # What is settled by this changes the version: then it begins anew.
            version, before, taken = self._version[0], self._next(), self._taken
            deliveries: list[Delivery] = []
            place = self._take(before, count, deliveries)
            behind = self._buffer[: self._behind(place)]
            writes: list[Write] = [*self._changing(version), (setattr, self, "_taken", (result, place))]
            if taken is not None and taken[0] is not result:
                writes.append((setattr, self, "_place", before))
            if behind:
                left = (self._buffer.__delitem__, slice(len(behind)))
                writes += (left, (aside.__setitem__, self, [*aside.get(self, ()), *behind]))
            try:
                at_once(writes)
            except ValueError:  # law 6
                continue
            return deliveries

    def _take_part(self, count: int) -> list[Delivery]:
        """The same where a completed poll left more than that of a chunk, which stays aside: to put it into the buffer
        for each small poll costs as much as to take of it."""
        version, taken, deliveries = self._version[0], self._taken, list[Delivery]()
        if taken is None or taken[0].aside is not None:
            return deliveries
        before = taken[1]
        if before.rest is None or not 0 < count < len(before.rest):
            return deliveries
        chunk, rest = before.rest.split(count)
        end = chunk.next_offset
        place = _Place(end, end, chunk.leader_epoch, rest, before.records + count, before.nbytes + chunk.nbytes)
        goes_on = (setattr, self, "_taken", (self._polls.current, place))
        delivery = self._delivery(chunk, before.end)  # of the seek number before a handler's seek
        with suppress(ValueError):  # law 6: then it is taken in the other way
            at_once([*self._changing(version), (setattr, self, "_place", before), goes_on])
            deliveries.append(delivery)
        return deliveries

    def take_only(self, count: int) -> list[Delivery]:
        """What the poll under way took of it begins anew."""
        self._settled()
        self._taken = None
        return self.take(count)

    def _take(self, place: _Place, count: int, deliveries: list[Delivery]) -> _Place:
        position, end, leader_epoch, rest, records, nbytes = place
        for arrival in islice(self._buffer, self._behind(place), None):
            chunk, next_offset = arrival.chunk, arrival.next_offset
            if chunk is None:
                position, leader_epoch = next_offset, arrival.leader_epoch
                continue
            if not count:
                break
            chunk, rest = rest or chunk, None
            if len(chunk) > count:
                chunk, rest = chunk.split(count)
                next_offset = chunk.next_offset
            deliveries.append(self._delivery(chunk, end))
            count -= len(chunk)
            records, nbytes = records + len(chunk), nbytes + chunk.nbytes
            position, end, leader_epoch = next_offset, chunk.next_offset, chunk.leader_epoch
            if rest is not None:
                break
        return _Place(position, end, leader_epoch, rest, records, nbytes)

    def _delivery(self, chunk: RecordChunk, start: int) -> Delivery:
        return Delivery(
            partition=self.partition, chunk=chunk, epoch=self.epoch, seek_number=self.seek_number, start=start
        )

    def all_told(self) -> tuple[int, int, int, int]:
        """As `Consumed` says it, where all that is buffered is dropped."""
        place = self._settled()
        (last,) = self._buffer[-1:] or (place,)
        records, nbytes = self._told
        return self.epoch, self.fetch_number, last.records - records, last.nbytes - nbytes

    def untold(self) -> tuple[tuple[int, int, int, int], Write]:
        """What has left the buffer and the network side does not know of, as `Consumed` says it; and how to note that
        it is told. What an interrupted poll told is not told again."""
        told, records, nbytes = self._since(self._told)
        return (self.epoch, self.fetch_number, records, nbytes), (setattr, self, "_told", told)

    def unmetered(self) -> tuple[tuple[int, int], Write]:
        """The same for the metrics: (records, bytes)."""
        metered, records, nbytes = self._since(self._metered)
        return (records, nbytes), (setattr, self, "_metered", metered)

    def _since(self, known: tuple[int, int]) -> tuple[tuple[int, int], int, int]:
        """What the poll under way, or one before it, took since this was known."""
        place, (records, nbytes) = self._next(), known
        now = (
            place.records if place.records > records else records,
            place.nbytes if place.nbytes > nbytes else nbytes,
        )
        return now, now[0] - records, now[1] - nbytes

    # -- where it goes on

    def dropping(self) -> list[Write]:
        """Forget what is buffered."""
        place = self._settled()
        (last,) = self._buffer[-1:] or (place,)
        after = place._replace(records=last.records, nbytes=last.nbytes)
        return [
            (setattr, self, "_place", after),
            (setattr, self, "_taken", None),
            (setattr, self, "_told", (after.records, after.nbytes)),
            (setattr, self, "_metered", (after.records, after.nbytes)),
            (self._buffer.clear,),
            (self._version.__setitem__, 0, object()),
        ]

    def restarting(self) -> list[Write]:
        """Forget what was fetched; whatever is under way is dropped when it arrives."""
        return [
            *self.dropping(),
            (setattr, self, "fetch_number", self.fetch_number + 1),
            (setattr, self, "error", None),
            (setattr, self, "reset", None),
            (setattr, self, "unreadable", None),
        ]

    def seeking(self, offset: int, leader_epoch: int, reset_from: int | None = None) -> list[Write]:
        """offset: a number, or below zero where only the network side can find it (earliest, latest)."""
        writes = self.restarting()
        _, _, _, place = writes[0]
        after = place._replace(position=offset if offset >= 0 else None, end=offset, leader_epoch=leader_epoch)
        # A user's; or the network side is to find the offset, and tells that it reset.
        began = None if reset_from is None or offset < 0 else self._began_in_what_is_left(offset, leader_epoch)
        return [
            *writes,
            (setattr, self, "_place", after),
            (setattr, self, "seek_number", self.seek_number + 1),
            (setattr, self, "_fetched_of", ()),
            (setattr, self, "began", began),
            (setattr, self, "origin", offset),
            (setattr, self, "reset_from", reset_from),
        ]

    def _began_in_what_is_left(self, end: int, leader_epoch: int) -> tuple[int, int, MissingOffsets | None] | None:
        """Rule 18: the log was truncated at `end`, and is read on there. None where a user's seek came before."""
        began = self.began or (self.committed if self.origin == COMMITTED else None)
        if began is None:
            return None
        start, epoch, lacked = began if began[0] <= end else (end, leader_epoch, began[2])
        if lacked is None or lacked.cut < 0:
            # Without an epoch nobody would notice what has taken the place of the records before the group's offset.
            unnoticed = began is self.committed and began[1] < 0 and began[0] > end
            lacked = lacked or MissingOffsets(position=began[0] if unnoticed else -1)
            lacked = lacked._replace(since=self.seek_number, cut=end)
        # The lowest counts: what was committed without an epoch behind any of them may be of a log that is gone.
        return start, epoch, lacked._replace(cut=min(lacked.cut, end))

    def fetch_end(self) -> int | None:
        """Where fetching goes on after what is buffered."""
        position = self._settled().position
        last = self._buffer[-1:]
        return last[0].next_offset if last else position

    def end_epoch(self) -> int:
        """The leader epoch of the last batch before `fetch_end`, or -1."""
        return self._buffer[-1].leader_epoch if self._buffer else self.leader_epoch


def _after(before: _Place | _Arrival, chunk: RecordChunk | None, next_offset: int, leader_epoch: int) -> _Arrival:
    records, nbytes = (len(chunk), chunk.nbytes) if chunk is not None else (0, 0)
    epoch = chunk.leader_epoch if chunk is not None else max(leader_epoch, before.leader_epoch)
    return _Arrival(chunk, next_offset, epoch, before.records + records, before.nbytes + nbytes)


def _before(chunk: RecordChunk, offset: int) -> RecordChunk:
    """The part of a chunk before an offset behind its first."""
    low, high = 1, len(chunk)
    while low < high:
        middle = (low + high + 1) // 2
        if chunk.split(middle)[0].last_offset < offset if middle < len(chunk) else chunk.last_offset < offset:
            low = middle
        else:
            high = middle - 1
    return chunk.split(low)[0] if low < len(chunk) else chunk
