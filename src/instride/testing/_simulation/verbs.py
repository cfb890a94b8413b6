"""`Consumer`'s verbs for a loop that is written as a generator: `records = yield from consumer.poll(timeout=0.1)`.

Laws
1. A verb has the name, the arguments and the meaning that it has on `Consumer`; those that block there are generators.
2. What a poll returned is written into the history.
3. A verb that is interrupted has happened for a partition, or has not, or a signal's handler has done the opposite
   since: the history tells which, by what the consumer itself says afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from typing import TypeVar

from instride._core.application.calls import Call, Wait
from instride._core.application.deserializing import Read
from instride._core.application.ownership_view import Reason
from instride._core.ownership import Ownership
from instride._wire.record_chunk import RecordChunk
from instride.commits import CommitResult, CommitSnapshot
from instride.config import ConsumerConfig
from instride.consumer_records import Changes, ConsumerRecords
from instride.listeners import RebalanceListener
from instride.records import OffsetAndMetadata, TopicPartition
from instride.testing._simulation import verb_pairs
from instride.testing._simulation.chunk import SimulatedChunk
from instride.testing._simulation.interrupts import spared
from instride.testing._simulation.process import Process

__all__ = ["SimulatedConsumer"]

T = TypeVar("T")
Offsets = CommitSnapshot | Mapping[TopicPartition, OffsetAndMetadata | int]


class SimulatedConsumer:
    """A `Consumer` in virtual time."""

    def __init__(self, process: Process, config: ConsumerConfig) -> None:
        self._process = process
        self._config = config
        self._application = process.application
        self._before: tuple[str, frozenset[str]] | None = None
        self._written = 0  # verbs: whether a signal's handler has called some while another was under way

    def _called(self, verb: str, partitions: Collection[TopicPartition] | None = None) -> None:
        """For `verb_pairs`. partitions: those that it names; None: it is of all that are owned."""
        if self._before is not None:
            verb_pairs.count(self._before[0], verb, self._before[1])
        states = self.states()
        named = states if partitions is None else states.keys() & set(partitions)
        self._before = verb, frozenset(states[tp] for tp in named)

    @property
    def _now(self) -> float:
        return self._process.scheduler.now

    def subscribe(self, topics: Iterable[str], *, listener: RebalanceListener | None = None) -> None:
        wanted = tuple(topics)
        self._called("subscribe")
        self._process.history.add(self._process.name, "subscribes", wanted)
        self._application.subscribe(wanted, listener)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """What it changes `Process` writes into the history."""
        self._before = None
        self._application.assign(partitions, now=self._now)

    def poll(
        self,
        *,
        timeout: float,
        limit: int | None = None,
        read: Read | None = None,
        listen: Callable[[], None] | None = None,
    ) -> Generator[Wait, float, ConsumerRecords]:
        """listen: of telemetry; it is called before the poll is over, as `Consumer` calls its own."""
        immediate = self._config.revoke_mode == "immediate"
        changes = yield from self._poll(timeout, immediate=immediate, limit=limit, read=read, listen=listen)
        return changes.records

    def poll_changes(self, *, timeout: float) -> Generator[Wait, float, Changes]:
        return (yield from self._poll(timeout, immediate=False))

    def _poll(
        self,
        timeout: float,
        *,
        immediate: bool,
        limit: int | None = None,
        read: Read | None = None,
        listen: Callable[[], None] | None = None,
    ) -> Call[Changes]:
        self._before = None
        limit = self._config.poll_records if limit is None else limit
        poll = self._application.poll_aside(self._now, timeout, immediate=immediate, limit=limit, read=read)
        result = yield from poll
        deliveries = list(result.deliveries)
        requested, lost = self._application.to_be_revoked(), self._application.lost()
        records = ConsumerRecords(deliveries, self._application.standing())
        changes = Changes(records=records, to_be_revoked=requested, lost=lost)
        paused, decided = self._application.paused(), self._process.history.mark()
        if listen is not None:
            listen()
        if self._process.history.has_since(decided, self._process.name, "signal"):
            decided = self._process.history.mark()  # what a signal's handler does is before the poll's end
        requested -= self._delayed()  # by a signal's handler, since this poll has read the list
        if deliveries or requested or lost:
            returned = tuple(
                (each.partition, each.epoch, each.seek_number, *stretch)
                for each in deliveries
                for stretch in _stretches(each.chunk)
            )
            # What comes while a listener of telemetry runs comes behind the poll, as if its user took that time.
            poll_ended = (self._process.name, "poll", returned, tuple(sorted(requested)), tuple(sorted(lost)))
            self._process.history.add_at(decided, *poll_ended)
            if paused:
                self._process.history.add_at(decided, self._process.name, "still paused", tuple(sorted(paused)))
        result.aside = None  # nothing that may be interrupted comes after it, as in `Consumer.poll`
        return changes

    def to_be_revoked_partitions(self) -> frozenset[TopicPartition]:
        return self._application.to_be_revoked()

    def lost_partitions(self) -> frozenset[TopicPartition]:
        return self._application.lost()

    def delay_revoke(self, partitions: Iterable[TopicPartition], *, reason: Reason = None) -> bool:
        wanted = sorted(partitions)
        self._called("delay", wanted)
        try:
            accepted = self._application.delay_revoke(wanted, reason=reason, now=self._now)
        except KeyboardInterrupt:
            delayed = tuple(tp for tp in wanted if self.states().get(tp) == "REVOKE_THEREAFTER")
            self._process.history.add(self._process.name, "delay", delayed, True)
            raise
        if wanted:
            self._process.history.add(self._process.name, "delay", tuple(wanted), accepted)
            if self._process.nervous:
                scheduler = self._process.scheduler
                scheduler.after(scheduler.jitter(0.1), self._process.wakeup)
        return accepted

    def revoke_deadline(self, partition: TopicPartition) -> float | None:
        return self._application.revoke_deadline(self._now, partition)

    def assignment(self) -> frozenset[TopicPartition]:
        return self._application.assignment()

    def look(self) -> None:
        """At all that a deserializer or a listener of telemetry may look at."""
        for partition in self._application.positions():
            self._application.lag(partition)
        self._application.subscription()
        self._application.assignment()
        self._application.failed()

    def owned(self) -> dict[TopicPartition, int | None]:
        """Where each partition is that a verb may name, revoked in a moment or not."""
        return {tp: each.position for tp, each in self._application._state.lists.owned.items()}

    def seek_numbers(self) -> tuple[tuple[TopicPartition, int, int], ...]:
        """Of each partition that a verb may name: its epoch, and the number that a poll gives what it takes now."""
        owned = self._application._state.lists.owned
        return tuple((tp, each.epoch, each.seek_number) for tp, each in sorted(owned.items()))

    def _delayed(self) -> frozenset[TopicPartition]:
        owned = self._application._state.lists.owned
        return frozenset(tp for tp, each in owned.items() if each.state is Ownership.REVOKE_THEREAFTER)

    @property
    def max_poll_interval(self) -> float:
        return self._config.max_poll_interval

    def states(self) -> dict[TopicPartition, str]:
        """Of `verb_pairs.STATES`, by partition that a verb may name."""
        owned = self._application._state.lists.owned
        return {tp: "LOST" if self._process.untaken.lost(tp) else each.state.name for tp, each in owned.items()}

    def revoking(self) -> frozenset[TopicPartition]:
        """Those that a delay may name."""
        lists = self._application._state.lists
        return frozenset(tp for tp, each in lists.owned.items() if each.state is not Ownership.OWNED)

    def pause(self, *partitions: TopicPartition) -> None:
        self._called("pause", partitions)
        written = self._written
        try:
            self._application.pause(partitions)
        except KeyboardInterrupt:
            self._wrote("pauses", sorted(self.paused().intersection(partitions)))
            raise
        if self._written != written:
            partitions = tuple(tp for tp in partitions if tp in self._paused())
        self._wrote("pauses", partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._called("resume", partitions)
        written = self._written
        try:
            self._application.resume(partitions)
        except KeyboardInterrupt:
            self._wrote("resumes", sorted(set(partitions) - self.paused()))
            raise
        if self._written != written:
            partitions = tuple(tp for tp in partitions if tp not in self._paused())
        self._wrote("resumes", partitions)

    def _wrote(self, what: str, partitions: Collection[TopicPartition]) -> None:
        """Of what is lost or revoked already nothing is written, as in a seek: it may be assigned again already."""
        self._written += 1
        still = tuple(tp for tp in partitions if not self._is_over(tp))
        self._process.history.add(self._process.name, what, still)

    def _paused(self) -> frozenset[TopicPartition]:
        return frozenset(tp for tp, each in self._application._state.lists.owned.items() if each.paused)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Of what is lost or revoked already nothing is written: only the application does not know yet."""
        self._called("seek", (partition,))
        before, written = self._seek_number(partition), self._written
        try:
            self._application.seek(partition, offset)
        except KeyboardInterrupt:
            if self._seek_number(partition) != before:
                self._sought(partition, offset)
            raise
        with spared():  # the looks are the simulation's own
            if self._written == written or self.owned()[partition] == offset:
                self._sought(partition, offset)

    def _seek_number(self, partition: TopicPartition) -> int | None:
        owned = self._application._state.lists.owned.get(partition)
        return None if owned is None else owned.seek_number

    def _sought(self, partition: TopicPartition, offset: int) -> None:
        self._written += 1
        if not self._is_over(partition):
            epoch = self._application._state.owned(partition).epoch
            self._process.history.add(self._process.name, "seek", partition)
            self._process.history.add(self._process.name, "positioned", partition, epoch, offset)

    def _is_over(self, partition: TopicPartition) -> bool:
        """Though only the network side knows yet."""
        return self._process.untaken.lost(partition) or self._process.untaken.revoked(partition)

    def committed(
        self, *partitions: TopicPartition, timeout: float | None = None
    ) -> Call[Mapping[TopicPartition, OffsetAndMetadata | None]]:
        limit = self._config.default_api_timeout if timeout is None else timeout
        return self._application.committed(self._now, partitions, limit)

    @property
    def subscribed(self) -> bool:
        """Or assigned by hand."""
        return self._application._state.subscribed or self._application._state.assigned_by_hand

    def paused(self) -> frozenset[TopicPartition]:
        return self._application.paused()

    def commit(
        self, offsets: Offsets | None = None, *, allow_rewind: bool = False, timeout: float | None = None
    ) -> Call[CommitResult]:
        self._called("commit")
        limit = self._config.default_api_timeout if timeout is None else timeout
        return self._application.commit(self._now, offsets, limit, carry_over=True, allow_rewind=allow_rewind)

    def commit_async(self, offsets: Offsets | None = None, *, allow_rewind: bool = False) -> None:
        self._called("commit")
        self._application.commit_async(self._now, offsets, allow_rewind=allow_rewind)

    def unsubscribe(self, *, timeout: float) -> Call[None]:
        self._called("unsubscribe")
        since = self._application.unsubscribed
        try:
            in_time = yield from self._application.unsubscribe(self._now, timeout)
        except (Exception, KeyboardInterrupt):
            self._application.give_up(self._now, timeout, since=since)  # as the consumer's own verb
            raise
        if not in_time:
            self._process.history.add(self._process.name, "timed out", "unsubscribe")

    def close(self, *, timeout: float = 30.0) -> Generator[Wait, float, None]:
        self._called("close")
        try:
            clean = yield from self._application.close(self._now, timeout, leave=None)
        except (Exception, KeyboardInterrupt):
            self._application.end(self._now, timeout, leave=None)
            raise
        self._process.history.add(self._process.name, "closed", clean)


def _stretches(chunk: RecordChunk) -> Iterable[tuple[int, int, int]]:
    assert isinstance(chunk, SimulatedChunk)
    return chunk.stretches()
