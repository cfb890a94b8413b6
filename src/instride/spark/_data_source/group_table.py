"""What a query in group mode owns, what its batch in flight reads, what it has to commit and what it may release. Pure.

    assigned -> placed (where the group says) -> offered offsets -> planned -> confirmed -> committed -> released

Laws
1. The group's committed offset alone says where a partition goes on, but for laws 10 and 14. The checkpoint says only
   which batch is in flight, or was the last one.
2. One batch at most is in flight: from its plan, or its replay, until Spark asks with its end what comes next. By that
   Spark says that the batch is committed.
3. What was confirmed is committed to the group before anything more is planned. So all before the start of a range was
   confirmed by some member, and nothing behind the group's offset was committed to it unread. Of a topic that is not
   there any more nothing can be committed: its partitions are as newly assigned (law 8 of `group_member`).
4. Where the group has no offset of a partition, the start (startingOffsets) is committed before the first plan.
5. A partition whose revocation is requested is in no new plan. It is kept while the batch in flight reads it, while
   what it owes the group is not committed, and until it is placed anew (law 14), and by nothing else.
6. A batch that is replayed reads of it the partitions that this query owns and that are untouched (law 9). What is left
   out is read from the group's offset on: by the partition's owner, or by this query's next batch.
7. What was left out of a replay is never committed.
8. Asked twice for what follows one batch, it gives the same plan.
9. Each commit names the run of the query that makes it. A partition that is newly assigned is committed where it
   stands, in this run's name, before anything of it is planned. So a partition is untouched since a batch was planned
   while the group has it where that batch begins, in the name of the run that planned it: no other run has owned it
   since, and nobody has set its offset. No partition is untouched again that was touched once (law 12).
10. If Spark has committed a batch, and a partition of it is untouched, then the sink has the batch's records of that
    partition: it goes on at the batch's end. The run that planned the batch ended before it told the group, or lost the
    partition. Of one that was touched nothing is known: it goes on where the group says, also where its batch is still
    in flight. Another attempt, which the sink has kept, may be without it; or somebody wants it to be read again.
11. A replay leaves a partition out only once it is touched. So each attempt at a batch, and the one that the sink has
    kept, has every partition that is untouched after it. Until then the replay waits: for the partition, or for its
    owner to take it over by law 9. Only a run of the same checkpoint does not take it over, but waits as well: its
    driver is gone, and so it ends (law 4 of `group_stream`).
12. A partition that comes back to where this run's last batch began is committed in nobody's name, but an untouched one
    is left as it is. This run may be one whose driver is gone, while another run replays the batch without it.
13. Where the group has forgotten an offset, and the checkpoint's last batch has the partition, it begins where that
    batch does, if the topic is the same. Any other begins at the start, though the group had an offset of it, too: of
    each topic that the checkpoint knows it had some. (`group_member`, law 9, tells of that.)
14. Where the consumer goes on elsewhere by itself, the log does not have what followed. The member has told of that
    loss. Then the partition is placed anew, once no batch in flight reads it. In a log that was cut it goes on at the
    cut, or where it stood, if that is before the cut; in a topic that was made again, where the consumer does. It is as
    if somebody had set the group's offset there: that is committed before anything of it is planned, and all batches
    of before are touched.
15. The consumer never stands before the position of a placed partition, once the member has sent it there. A replay may
    have read beyond where the consumer stands: from there it would not find that the log ends before the position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from instride.errors import IllegalStateError
from instride.records import TopicPartition
from instride.spark._data_source.offsets import BatchPlan, Span

__all__ = ["Committed", "GroupTable", "untouched"]

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Committed:
    """What the group has of a partition. run: the run that has committed it; "": somebody else."""

    offset: int
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reset:
    """Law 14. to: where the consumer goes on. cut: the same, where its log was cut; None: only the topic is another.

    stood: where the partition stood as it was taken off its place.
    """

    to: int
    cut: int | None
    stood: int = 0

    def followed(self, to: int, *, made_again: bool) -> _Reset:
        """The consumer has gone elsewhere once more, before the partition was placed."""
        if made_again:
            return replace(self, to=to)
        return replace(self, to=min(self.to, to), cut=to if self.cut is None else min(self.cut, to))


@dataclass(slots=True)
class _Owned:
    """position: where the next plan begins; None: not known yet. available: where the log ends.

    found: what the group had as it was placed. run: whom its commits name. topic_id: "" where nothing is known of it.
    reset: until it is placed anew (law 14). passed: the consumer is to be sent to the position (law 15).
    """

    position: int | None = None
    available: int = 0
    requested: bool = False
    found: Committed | None = None
    run: str = ""
    topic_id: str = ""
    reset: _Reset | None = None
    passed: bool = False


@dataclass(frozen=True, slots=True)
class _InFlight:
    """follows: the batch before it. end: as Spark logs it. reads: what is read of it. owned: of that, as it began."""

    follows: BatchPlan
    end: BatchPlan
    reads: Mapping[TopicPartition, Span]
    owned: Mapping[TopicPartition, _Owned]


class GroupTable:
    """Not thread-safe.

    short: by its newest reset, where the consumer went on in a log that was cut, or in a topic that was made again. It
    may never have more than that.
    """

    def __init__(self) -> None:
        self.short: Offsets = {}
        self._owned: dict[TopicPartition, _Owned] = {}
        self._in_flight: _InFlight | None = None
        self._owed: Offsets = {}
        self._run = ""
        self._pending = self._last = BatchPlan()
        # By partition the batch that Spark has committed (law 10). One that is placed elsewhere is forgotten.
        self._finished: dict[TopicPartition, BatchPlan] = {}
        self._known: Mapping[str, str] = {}  # the ids of the topics that the checkpoint knows (law 13)
        self._asked = False

    def begins(self, run: str) -> None:
        """Before the group is joined: the run's name (law 9)."""
        self._run = run

    # -- what the group says

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Newly assigned: nothing is known of them yet."""
        for partition in partitions:
            self._owned[partition] = _Owned()
            self._owed.pop(partition, None)

    def gone(self, partitions: Iterable[TopicPartition]) -> None:
        """Revoked or lost: nothing of them is committed any more."""
        for partition in partitions:
            self._owned.pop(partition, None)
            self._owed.pop(partition, None)

    def requested(self, partitions: Iterable[TopicPartition]) -> None:
        """Those whose revocation is requested now; of all others it is not, or not any more."""
        chosen = set(partitions)
        for partition, owned in self._owned.items():
            owned.requested = partition in chosen

    @property
    def unplaced(self) -> list[TopicPartition]:
        """Those of which it is not known where they begin."""
        return sorted(partition for partition, owned in self._owned.items() if owned.position is None)

    @property
    def placed(self) -> list[TopicPartition]:
        return sorted(partition for partition, owned in self._owned.items() if owned.position is not None)

    def place(self, partition: TopicPartition, *, committed: Committed | None, start: int, topic_id: str = "") -> int:
        """Where it begins. start: where to begin if the group has no offset (law 4)."""
        owned = self._owned[partition]
        if owned.reset is not None:
            committed = Committed(self._after(partition, owned.reset, topic_id), "")
        remembered = self._remembered(partition, topic_id)
        position = committed.offset if committed is not None else start if remembered is None else remembered
        owned.found, owned.topic_id = committed, topic_id
        owned.run = self._name_for(partition, position, committed)
        if committed is None or committed.run != owned.run:
            self._owed[partition] = position
        if owned.reset is not None:
            self._owed[partition], owned.reset = position, None
        owned.position = owned.available = position
        self._go_on_behind_what_is_finished(partition)
        owned.passed = False
        return owned.position

    def forgotten(self, partitions: Iterable[TopicPartition], topic_id: str) -> list[TopicPartition]:
        """Of these, of which the group has no offset: what begins at the start, of a topic that the checkpoint knows
        (law 13)."""
        return [
            each
            for each in partitions
            if each.topic in self._known
            and not _are_others(self._known[each.topic], topic_id)
            and self._remembered(each, topic_id) is None
        ]

    def offered(self, partition: TopicPartition, end: int) -> None:
        """The log of a placed partition ends there now."""
        self._owned[partition].available = max(end, self._owned[partition].available)

    def reset(self, partition: TopicPartition, to: int, *, made_again: bool) -> bool:
        """Law 14: the consumer goes on there by itself. made_again: it says that the topic is another one.

        False: it is not ours, or where it begins is looked up in any case.
        """
        owned = self._owned.get(partition)
        if owned is None or (owned.position is None and owned.reset is None):
            return False
        if owned.reset is None:
            owned.reset = _Reset(to=to, cut=None if made_again else to)
        else:
            owned.reset = owned.reset.followed(to, made_again=made_again)
        if self._in_flight is None or self._in_flight.owned.get(partition) is not owned:
            _take_off(owned)
        return True

    # -- what Spark says

    def pending(self, end: BatchPlan) -> None:
        """Before the group is joined: a batch that was in flight when the last run ended is to be replayed."""
        self._pending = self._last = end
        self._known, self._asked = end.topic_ids, True

    def elsewhere(self, end: BatchPlan) -> list[TopicPartition]:
        """What a replay of this batch would leave out, for want of an owner here: law 11."""
        if self._in_flight is not None:
            return []
        ours = {partition for partition, owned in self._owned.items() if owned.position is not None}
        return sorted(
            partition for partition, span in end.spans.items() if span.start < span.end and partition not in ours
        )

    def replay(
        self, follows: BatchPlan, end: BatchPlan, others: Mapping[TopicPartition, Committed | None]
    ) -> BatchPlan | None:
        """What of it is to be read (law 6). It is in flight from now on. Raises IllegalStateError as `confirm`.

        others: what the group has of those `elsewhere`. None: one of them is not taken over yet (law 11).
        """
        if untouched(end, others) or any(each not in others for each in self.elsewhere(end)):
            return None
        batch = self._in_flight
        if batch is None:
            self._in_flight = batch = self._flight(follows, end, self._left_to_us(end))
        if batch.end != end:
            raise IllegalStateError("Spark replays a batch while another is in flight: start the query anew")
        return BatchPlan(batch.reads, end.topic_ids)

    def confirm(self, start: BatchPlan) -> None:
        """Spark asks what follows this batch. Raises IllegalStateError where another is in flight.

        Where that is the first that Spark asks, it comes before the group is joined: the batch is an earlier run's
        (law 10).
        """
        batch, self._known = self._in_flight, start.topic_ids
        if not self._asked:
            self._asked, self._finished = True, dict.fromkeys(start.spans, start)
        if batch is None or start == batch.follows != batch.end:
            return
        if start != batch.end:
            raise IllegalStateError("Spark asks what follows a batch that it was not given: start the query anew")
        self._in_flight, self._pending = None, BatchPlan()
        self._finished |= dict.fromkeys(batch.reads, batch.end)
        for partition, span in batch.reads.items():
            owned = self._owned.get(partition)
            if owned is not None and owned is batch.owned.get(partition):
                self._end_of_batch(partition, span.end)
            elif owned is not None and owned.position is not None:
                self._go_on_behind_what_is_finished(partition)

    def free(self) -> dict[TopicPartition, Span]:
        """What may be planned now, empty spans of idle partitions among it. Nothing while something is owed (law 3)."""
        if self._owed:
            return {}
        return {
            partition: Span(owned.position, owned.available)
            for partition, owned in sorted(self._owned.items())
            if owned.position is not None and not owned.requested
        }

    def plan(
        self, follows: BatchPlan, make: Callable[[Mapping[TopicPartition, Span]], BatchPlan | None]
    ) -> BatchPlan | None:
        """The batch that follows. make: chooses from what is free; None: no batch. None while something is owed."""
        if self._in_flight is not None:
            return self._in_flight.end if self._in_flight.follows == follows else None
        if self._owed:
            return None
        made = make(self.free())
        if made is not None:
            self._in_flight, self._last = self._flight(follows, made, dict(made.spans)), made
        return made

    # -- what is to be done

    @property
    def owed(self) -> Offsets:
        """What is to be committed to the group. What is reset is not yet: it may be of another topic (law 14)."""
        return {each: offset for each, offset in self._owed.items() if self._owned[each].reset is None}

    def passed(self) -> Offsets:
        """Where the consumer is to go on, since a replay has read beyond where it stands (law 15). Told once."""
        passed = {}
        for partition, owned in self._owned.items():
            if owned.passed and owned.position is not None:
                passed[partition], owned.passed = owned.position, False
        return passed

    def run_of(self, partition: TopicPartition) -> str:
        """Whom a commit of it names (laws 9 and 12); "": nobody."""
        return self._owned[partition].run

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The group has these."""
        for partition, offset in offsets.items():
            if self._owed.get(partition) == offset:
                del self._owed[partition]

    def kept(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those of them that must not be released yet (law 5)."""
        read = self._in_flight.reads if self._in_flight is not None else {}
        wait = {each for each, owned in self._owned.items() if each in read or each in self._owed or owned.reset}
        return wait & set(partitions)

    @property
    def settled(self) -> bool:
        """Nothing is in flight, and nothing is to be committed."""
        is_reset = any(owned.reset for owned in self._owned.values())
        return not self._owed and not is_reset and (self._in_flight is None or not self._in_flight.reads)

    # -- inside

    def _name_for(self, partition: TopicPartition, position: int, committed: Committed | None) -> str:
        """Laws 9 and 12."""
        if committed is not None and _untouched(self._last, partition, committed):
            # Of a batch that is to be replayed it stays so: it may be replayed once more.
            return committed.run if partition in self._pending.spans else self._run
        span, mark = self._last.spans.get(partition), self._last.mark
        comes_back = span is not None and span.start == position and mark is not None and mark.run == self._run
        return "" if comes_back else self._run

    def _remembered(self, partition: TopicPartition, topic_id: str) -> int | None:
        """Law 13."""
        for batch in (self._pending, self._finished.get(partition, BatchPlan())):
            if partition in batch.spans and not _differ(batch, partition, topic_id):
                return batch.spans[partition].start
        return None

    def _go_on_behind_what_is_finished(self, partition: TopicPartition) -> None:
        """Law 10, of a placed partition."""
        owned, batch = self._owned[partition], self._finished.get(partition)
        if batch is None:
            return
        if not _untouched(batch, partition, owned.found) or _differ(batch, partition, owned.topic_id):
            del self._finished[partition]  # in this run's name it may come to stand there again, and be read anew
            return
        self._go_on(partition, batch.spans[partition].end)

    def _end_of_batch(self, partition: TopicPartition, end: int) -> None:
        owned = self._owned[partition]
        if owned.reset is None:
            self._go_on(partition, end)
        else:
            # It may lie behind the end of the log, or be of another topic: so the group hears only where it is placed.
            owned.position = end
            _take_off(owned)

    def _go_on(self, partition: TopicPartition, end: int) -> None:
        """Behind what Spark has committed, and tell the group so in this run's name."""
        owned = self._owned[partition]
        if owned.position is not None and owned.position < end:
            owned.position = self._owed[partition] = end
            owned.passed = owned.available < end
            owned.available, owned.run = max(owned.available, end), self._run

    def _after(self, partition: TopicPartition, reset: _Reset, topic_id: str) -> int:
        """Law 14."""
        if _are_others(self._owned[partition].topic_id, topic_id):
            self.short[partition] = reset.to
            return reset.to
        if reset.cut is None:
            return reset.stood
        self.short[partition] = reset.cut
        return min(reset.stood, reset.cut)

    def _flight(self, follows: BatchPlan, end: BatchPlan, reads: Mapping[TopicPartition, Span]) -> _InFlight:
        return _InFlight(follows, end, reads, {each: self._owned[each] for each in reads if each in self._owned})

    def _left_to_us(self, end: BatchPlan) -> dict[TopicPartition, Span]:
        """Law 6."""
        found = {partition: self._owned[partition].found for partition in end.spans if partition in self._owned}
        return {partition: end.spans[partition] for partition in untouched(end, found)}


def _take_off(owned: _Owned) -> None:
    """Law 14: it is to be placed anew, if it was reset."""
    if owned.reset is not None and owned.position is not None:
        owned.reset, owned.position = replace(owned.reset, stood=owned.position), None


def _are_others(known: str, topic_id: str) -> bool:
    """Two topics' ids, if both are known."""
    return "" not in (known, topic_id) and known != topic_id


def untouched(batch: BatchPlan, found: Mapping[TopicPartition, Committed | None]) -> list[TopicPartition]:
    """Of these partitions, law 9. found: what the group has of them."""
    return sorted(each for each, committed in found.items() if _untouched(batch, each, committed))


def _untouched(batch: BatchPlan, partition: TopicPartition, committed: Committed | None) -> bool:
    """Law 9."""
    span, mark = batch.spans.get(partition), batch.mark
    return span is not None and mark is not None and mark.run != "" and committed == Committed(span.start, mark.run)


def _differ(batch: BatchPlan, partition: TopicPartition, topic_id: str) -> bool:
    """The batch is of a topic that was deleted and made again since."""
    return _are_others(batch.topic_ids.get(partition.topic, ""), topic_id)
