"""A member of the demo's group with confluent-kafka's consumer: the best that it allows.

Laws
1. Each partition has a lane: at most one job at a time, on all that has arrived for it meanwhile. Lanes run
   beside each other.
2. A job writes one Parquet file; only then are its offsets committed. What was fetched and not begun is let
   go on a revoke.
3. The revoke callback is all that this client offers: a partition is given up when the callback returns. So
   it waits there for the jobs of the partitions that move, while the other lanes work on what was fetched
   before. Nothing new is fetched for any partition meanwhile, because nobody polls. That wait is what the
   demo shows.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from pyarrow import parquet

from demo.events import Change, EventLog, Phase, Range
from demo.member import MemberSettings, Stop, wait_to_join, work
from demo.recorded import recorder
from instride.errors import BrokerResponseError
from instride.records import TopicPartition as KafkaPartition
from instride.testing.recording import RecordedPeer

__all__ = ["ConfluentMember", "main"]

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.5
MOST_MESSAGES: Final = 20_000
LOOK_SECONDS: Final = 0.1
THREADS: Final = 12


@dataclass(slots=True)
class Job:
    name: str
    where: Range
    future: Future[int]


@dataclass(slots=True)
class Lane:
    """A partition: what arrived and is not begun, and the job under way."""

    partition: int
    arrived: list[Message] = field(default_factory=list)
    job: Job | None = None


class ConfluentMember:
    """One consumer, its lanes, and its callbacks, which run on this thread inside `consume` and `close`."""

    def __init__(
        self, settings: MemberSettings, log: EventLog, pool: ThreadPoolExecutor, recorded: RecordedPeer
    ) -> None:
        self._settings = settings
        self._recorded = recorded
        self._log = log
        self._pool = pool
        self._lanes: dict[int, Lane] = {}
        self._jobs = 0
        self._consumer = Consumer(_consumer_settings(settings))

    def run(self, stop: Stop) -> None:
        """Consume until asked to stop; then finish what is under way and leave the group."""
        self._consumer.subscribe(
            [self._settings.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        try:
            while not stop:
                self._take(self._consumer.consume(MOST_MESSAGES, POLL_SECONDS))
                self._advance()
            self._log.life(Phase.LEAVING)
        finally:
            self._consumer.close()
        self._recorded.closed()

    def _take(self, messages: Iterable[Message]) -> None:
        offsets: dict[KafkaPartition, list[int]] = {}
        for message in messages:
            if (error := message.error()) is not None:
                raise BrokerResponseError(f"consuming {self._settings.topic!r}: {error}", code=error.code())
            partition = message.partition()
            if partition is not None and partition in self._lanes:
                self._lanes[partition].arrived.append(message)
                offsets.setdefault(self._named(partition), []).append(_offset(message))
        self._record(offsets)

    def _named(self, partition: int) -> KafkaPartition:
        return KafkaPartition(self._settings.topic, partition)

    def _record(
        self, offsets: Mapping[KafkaPartition, Iterable[int]] = MappingProxyType({}), lost: Iterable[int] = ()
    ) -> None:
        """What was consumed, and who owns what now, into the history."""
        self._recorded.turn(offsets, map(self._named, self._lanes), [self._named(each) for each in lost])

    def _advance(self) -> None:
        """Commit what is finished, and begin jobs on what has arrived for the idle lanes."""
        self._commit_finished(self._lanes.values())
        for lane in self._lanes.values():
            if lane.job is None and lane.arrived:
                self._begin(lane)

    def _begin(self, lane: Lane) -> None:
        messages, lane.arrived = lane.arrived, []
        self._jobs += 1
        where = Range(lane.partition, _offset(messages[0]), _offset(messages[-1]) + 1)
        name = f"job {self._jobs}"
        self._log.job_started(name, [where])
        lane.job = Job(name, where, self._pool.submit(_write, self._settings, where, messages))

    def _commit_finished(self, lanes: Iterable[Lane]) -> None:
        """One commit for every job that is done. What could not be committed stays, for the next time."""
        done = [(lane, lane.job) for lane in lanes if lane.job is not None and lane.job.future.done()]
        rows = [job.future.result() for _, job in done]
        for _, job in done:
            self._recorded.done(self._named(job.where.partition), job.where.start, job.where.end - 1)
        if not done or not self._commit([job.where for _, job in done]):
            return
        for (lane, job), count in zip(done, rows, strict=True):
            lane.job = None
            self._log.job_finished(job.name)
            self._log.progress(job.where, count)

    def _commit(self, ranges: list[Range]) -> bool:
        topic = self._settings.topic
        try:
            answers = self._consumer.commit(
                offsets=[TopicPartition(topic, each.partition, each.end) for each in ranges], asynchronous=False
            )
        except KafkaException as error:
            logger.warning("commit of %s: %s", ranges, error)
            return False
        if any(response.error for response in answers or ()):
            return False
        self._recorded.committed({self._named(each.partition): each.end for each in ranges})
        return True

    # --- callbacks

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._lanes[each.partition] = Lane(each.partition)
        self._record()
        self._log.change(Change.ASSIGNED, _numbers(partitions))

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        moving = [lane for number in _numbers(partitions) if (lane := self._lanes.get(number)) is not None]
        self._log.change(Change.REVOKE_REQUESTED, _numbers(partitions))
        for lane in moving:
            if lane.arrived:
                self._recorded.not_begun(self._named(lane.partition), _offset(lane.arrived[0]))
            lane.arrived = []
        self._log.change(Change.DELAYED, (lane.partition for lane in moving if lane.job is not None))
        while jobs := [lane.job for lane in moving if lane.job is not None]:
            wait([job.future for job in jobs], timeout=LOOK_SECONDS)
            self._advance()
        consumer.incremental_unassign(partitions)
        for number in _numbers(partitions):
            self._lanes.pop(number, None)
        self._record()
        self._log.change(Change.REVOKED, _numbers(partitions))

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for number in _numbers(partitions):
            self._lanes.pop(number, None)
        self._record(lost=_numbers(partitions))
        self._log.change(Change.LOST, _numbers(partitions))


def _write(settings: MemberSettings, where: Range, messages: list[Message]) -> int:
    """Do the work and write its result: first under a name that nobody reads."""
    table = work(
        (message.value() or b"" for message in messages),
        slow_row=settings.slow_row,
        slow_seconds=settings.slow_seconds,
    )
    name = f"{where.partition:02d}-{where.start:09d}-{uuid.uuid4().hex[:8]}.parquet"
    unfinished = settings.output / f".{name}"
    parquet.write_table(table, unfinished)
    unfinished.rename(settings.output / name)
    return int(table.num_rows)


def _numbers(partitions: Iterable[TopicPartition]) -> list[int]:
    return [each.partition for each in partitions]


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None  # a message without an error has one
    return offset


def _consumer_settings(settings: MemberSettings) -> dict[str, str | int | bool]:
    return {
        "bootstrap.servers": settings.bootstrap_servers,
        "group.id": settings.group_id,
        "client.id": settings.app,
        "log_level": 4,
        "partition.assignment.strategy": "cooperative-sticky",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 10_000,
    }


def main() -> None:
    """Run one member until SIGTERM."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    settings = MemberSettings.from_arguments()
    stop = Stop()
    Path(settings.output).mkdir(parents=True, exist_ok=True)
    with (
        EventLog(settings.events, settings.app) as log,
        recorder(settings.events, settings.topic, settings.app) as history,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        recorded = history.peer(settings.app, finishes="told", commits=True)
        if wait_to_join(settings, log, stop):
            ConfluentMember(settings, log, pool, recorded).run(stop)
        log.life(Phase.LEFT)


if __name__ == "__main__":
    main()
