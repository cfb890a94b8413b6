"""A pipeline's loop with everything around it played by the test: the group, Spark, and the sink.

Laws
1. A script is a generator: what stands between two yields happens between two turns of the loop, on its thread.
2. The consumer keeps the rules of the lists (docs/rebalance.md, rules 1, 2 and 6) and fails where they are broken.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, cast
from uuid import UUID

from instride import RebalanceListener
from instride.commits import CommitSnapshot
from instride.errors import KafkaTimeoutError, SinkWriteError
from instride.observers import Observer
from instride.records import OffsetRange, TopicPartition
from instride.spark._events import PipelineEvent
from instride.spark._pipeline_loop import LoopSettings, Message, PipelineLoop, inbox_dispatcher
from instride.spark._planning import Limits
from instride.spark._range_reader import ReaderSettings
from instride.spark._report import JobEnded, RangePart, RangeProblem, RangeReport, Reported
from instride.spark._task import RangeTask
from instride.spark.sink import (
    CommitOutcome,
    CommitStatus,
    FileInfo,
    JobResult,
    OutputRange,
    RangeWriter,
    WrittenRange,
)
from instride.telemetry import OwnershipChange, OwnershipChanged, PositionReset, ResetCause, TelemetryEvent

__all__ = [
    "PATIENCE",
    "TOPIC",
    "FakeConsumer",
    "FakeRunner",
    "MemorySink",
    "PanicError",
    "Script",
    "Stage",
    "position_reset",
    "tp",
    "turns",
    "until",
]

PATIENCE: Final = 10.0
TOPIC: Final = "t"
Script = Generator[None, None, None]


def tp(partition: int) -> TopicPartition:
    return TopicPartition(TOPIC, partition)


def position_reset(partition: int, since: int, to: int, cause: ResetCause = ResetCause.OUT_OF_RANGE) -> PositionReset:
    return PositionReset(
        at=time.monotonic(), partition=tp(partition), epoch=1, cause=cause, from_offset=since, to_offset=to
    )


def until(condition: Callable[[], object]) -> Script:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be"
        yield


def turns(count: int) -> Script:
    for _ in range(count):
        yield


class PanicError(BaseException):
    """As pyo3's PanicException, of a library in Rust: no `Exception`."""


class MemorySink:
    """Compare and set, in memory. errors: raised by the next commits, one each. position_errors, start_errors: by the
    next calls of `positions` and `begin`. slow: it tells nothing of these before the event is set. without_start: it
    fails, for these, to say where they begin, for as long as they are in it. reached_gate: a commit has begun, which
    waits at `gate`, if that is not set.
    """

    def __init__(self, positions: Mapping[TopicPartition, int] | None = None) -> None:
        self.without_start: set[TopicPartition] = set()
        self.reached = dict(positions or {})
        self.topic_ids: Mapping[str, str] | None = None
        self.slow: dict[TopicPartition, threading.Event] = {}
        self.start_errors: list[BaseException] = []
        self.begun: list[tuple[TopicPartition, int, str]] = []
        self.jobs: list[str] = []
        self.position_errors: list[BaseException] = []
        self.errors: list[BaseException] = []
        self.gate = threading.Event()
        self.gate.set()
        self.reached_gate = threading.Event()

    def positions(
        self, partitions: Iterable[TopicPartition], *, topic_ids: Mapping[str, str] | None = None
    ) -> dict[TopicPartition, int | None]:
        if self.position_errors:
            raise self.position_errors.pop(0)
        partitions = list(partitions)
        for each in partitions:
            assert each not in self.slow or self.slow[each].wait(PATIENCE)
            if each in self.without_start:
                raise SinkWriteError(f"{each}: the disk is full")
        self.topic_ids = topic_ids
        return {each: self.reached.get(each) for each in partitions}

    def begin(self, partition: TopicPartition, offset: int, *, topic_id: str = "") -> int:
        if self.start_errors:
            raise self.start_errors.pop(0)
        self.begun.append((partition, offset, topic_id))
        return self.reached.setdefault(partition, offset)

    def writer(self) -> RangeWriter:
        raise NotImplementedError

    def commit(self, job: JobResult) -> dict[TopicPartition, CommitOutcome]:
        self.reached_gate.set()
        assert self.gate.wait(PATIENCE)
        if self.errors:
            raise self.errors.pop(0)
        return {each.range.topic_partition: self._commit(job.job, each.range) for each in job.written}

    def _commit(self, job: str, wanted: OutputRange) -> CommitOutcome:
        self.jobs.append(job)
        reached = self.reached.get(wanted.topic_partition, wanted.start)
        if reached != wanted.start:
            return CommitOutcome(status=CommitStatus.CONFLICT, position=reached)
        self.reached[wanted.topic_partition] = wanted.end
        return CommitOutcome(status=CommitStatus.COMMITTED, position=wanted.end)


class _Positions(dict[TopicPartition, int]):
    """The consumer's, for scripts and as its method. It is known at once."""

    def __call__(self, partition: TopicPartition, *, timeout: float) -> int:
        assert timeout == 0
        return self[partition]


class FakeConsumer:
    """The group's side, moved by the script: `assign`, `ask`, `reassign`, `lose`, `offer`, `reset`.

    notices: the next poll tells these. ends: where the logs end that are there, by brokers; ends_errors: raised by the
    next looks at them, one each; looks: of which partitions each asked the ends.
    """

    def __init__(self) -> None:
        self.reasons: dict[TopicPartition, str] = {}
        self.owned: set[TopicPartition] = set()
        self.requested: set[TopicPartition] = set()
        self._known_requests: set[TopicPartition] = set()
        self.delayed: set[TopicPartition] = set()
        self.position = _Positions()
        self.paused: set[TopicPartition] = set()
        self.seek_number: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.delays: list[set[TopicPartition]] = []
        self.errors: list[Exception] = []
        self.closed = False
        self.topic_id: UUID | None = UUID(int=1)
        self.lookups = 0
        self.ends: dict[TopicPartition, int] = {}
        self.ends_errors: list[BaseException] = []
        self.looks: list[list[TopicPartition]] = []
        self._offered: list[tuple[TopicPartition, int]] = []
        self._listener: RebalanceListener | None = None
        self.notices: list[TelemetryEvent] = []
        self._observers: list[Observer] = []
        self._told_delayed: set[TopicPartition] = set()
        self._due: list[tuple[OwnershipChange, list[TopicPartition]]] = []
        self._woken = threading.Event()

    # -- what the script does

    def assign(self, *partitions: int) -> None:
        chosen = [tp(each) for each in partitions]
        self.owned |= set(chosen)
        self.paused |= set(chosen)  # so that a script can wait for what resumes them
        for each in chosen:
            self.position.setdefault(each, self.committed.get(each, 0))
            self.seek_number[each] = self.seek_number.get(each, 0)
        self._due.append((OwnershipChange.ASSIGNED, chosen))

    def offer(self, partition: int, count: int) -> None:
        """The next poll in which the partition is not paused returns so many offsets."""
        self._offered.append((tp(partition), count))

    def reset(self, partition: int, to: int, cause: ResetCause = ResetCause.OUT_OF_RANGE) -> None:
        """Its log does not have what the next poll would return: it is led elsewhere."""
        where = tp(partition)
        self.notices.append(position_reset(partition, self.position[where], to, cause))
        self.position[where] = to
        self.seek_number[where] += 1

    def ask(self, *partitions: int) -> None:
        self.requested |= {tp(each) for each in partitions}

    def reassign(self, *partitions: int) -> None:
        self.requested -= {tp(each) for each in partitions}
        self.delayed -= {tp(each) for each in partitions}

    def lose(self, *partitions: int) -> None:
        lost = [tp(each) for each in partitions]
        for known in (self.owned, self.requested, self.delayed):
            known.difference_update(lost)
        self._due.append((OwnershipChange.LOST, lost))

    # -- what the loop calls

    def find_topic_id(self, topic: str) -> str:
        """As `TopicLookup` does, of which one is beside the member."""
        assert topic == TOPIC
        self.lookups += 1
        if self.topic_id is None:
            raise KafkaTimeoutError("no broker responds")
        return str(self.topic_id)

    def find_ends(
        self, partitions: Collection[TopicPartition], ours: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """As `TopicLookup` does."""
        self.looks.append(sorted(ours))
        if self.ends_errors:
            raise self.ends_errors.pop(0)
        return {each: self.ends[each] if each in ours else None for each in partitions if each in self.ends}

    def observe(self, observer: Observer) -> None:
        self._observers.append(observer)

    def _tell(self, change: OwnershipChange, partitions: Iterable[TopicPartition]) -> None:
        if chosen := tuple(sorted(partitions)):
            self._notice(OwnershipChanged(at=time.monotonic(), change=change, partitions=chosen))

    def _notice(self, event: TelemetryEvent) -> None:
        assert self._observers
        for observer in self._observers:
            observer.on_telemetry(event)

    def subscribe(self, topics: Iterable[str], *, listener: RebalanceListener) -> None:
        assert list(topics) == [TOPIC]
        self._listener = listener

    def poll(self, *, timeout: float) -> list[OffsetRange]:
        assert self._listener is not None
        if self.errors:
            raise self.errors.pop(0)
        gone = self.requested - self.delayed - self._new_requests()
        for each in gone:
            self.owned.discard(each)
            self.requested.discard(each)
        if gone:
            self._listener.on_partitions_revoked(sorted(gone))
        self._tell(OwnershipChange.COMPLETING, gone)
        self._tell(OwnershipChange.REVOKED, gone)
        self.delayed = set()
        self._tell(OwnershipChange.REASSIGNED, self._known_requests & self.owned - self.requested)
        self._tell(OwnershipChange.REVOKE_REQUESTED, self.requested - self._known_requests)
        self._known_requests = set(self.requested)
        self._told_delayed &= self.requested
        due, self._due = self._due, []
        for change, partitions in due:
            if change is OwnershipChange.ASSIGNED:
                self._listener.on_partitions_assigned(partitions)
            else:
                self._listener.on_partitions_lost(partitions)
            self._tell(change, partitions)
        while self.notices:
            self._notice(self.notices.pop(0))
        ranges = self._ranges()
        if not ranges:
            self._woken.wait(0.005)
            self._woken.clear()
        return ranges

    def _ranges(self) -> list[OffsetRange]:
        waiting = [each for each in self._offered if each[0] in self.paused]
        given = [self._range(*each) for each in self._offered if each[0] not in self.paused]
        self._offered = waiting
        return given

    def _range(self, where: TopicPartition, count: int) -> OffsetRange:
        start = self.position[where]
        self.position[where] = start + count
        return OffsetRange(
            topic=TOPIC,
            partition=where.partition,
            start=start,
            end=start + count,
            epoch=1,
            seek_number=self.seek_number[where],
        )

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        assert set(partitions) <= self.owned
        self.paused |= set(partitions)

    def resume(self, partition: TopicPartition) -> None:
        assert partition in self.owned
        self.paused.discard(partition)

    def _new_requests(self) -> set[TopicPartition]:
        """Since the last poll: the application has not seen them yet."""
        return self.requested - self._known_requests

    def wakeup(self) -> None:
        self._woken.set()

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.owned)

    def to_be_revoked_partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._known_requests & self.requested)

    def revoke_deadline(self, partition: TopicPartition) -> float | None:
        assert partition in self.owned
        return 60.0 if partition in self.requested else None

    def delay_revoke(self, partitions: Iterable[TopicPartition], *, reason: Callable[[TopicPartition], str]) -> bool:
        chosen = set(partitions)
        self.reasons.update({each: reason(each) for each in chosen})
        assert chosen <= self.requested
        self.delayed |= chosen
        self._tell(OwnershipChange.DELAYED, chosen - self._told_delayed)
        self._told_delayed |= chosen
        if chosen:
            self.delays.append(chosen)
        return True

    def seek(self, partition: TopicPartition, offset: int) -> None:
        assert partition in self.owned
        self.position[partition] = offset
        self.seek_number[partition] += 1
        self._offered = [each for each in self._offered if each[0] != partition or partition in self.paused]

    def commit_async(self, snapshot: CommitSnapshot) -> Future[None]:
        self.commit(snapshot)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def commit(self, snapshot: CommitSnapshot, *, timeout: float | None = None) -> None:
        for partition, entry in snapshot.entries.items():
            current = partition in self.owned and entry.seek_number == self.seek_number[partition]
            if current:
                assert entry.offset >= self.committed.get(partition, 0)
                self.committed[partition] = entry.offset
            snapshot.settle(partition, entry, committed=current)

    def close(self, *, timeout: float) -> None:
        self.closed = True
        gone, self.owned = sorted(self.owned), set()
        if gone and self._listener is not None:
            self._listener.on_partitions_revoked(gone)


class FakeRunner:
    """Spark. The script ends the work: `succeed`, `fail`, `end`. obeys: a job that is cancelled ends at once."""

    def __init__(self, consumer: FakeConsumer, inbox: queue.SimpleQueue[Message]) -> None:
        self.cores = 2
        self.started: list[tuple[str, list[OutputRange]]] = []
        self.last_tries: list[bool] = []
        self.tasks: list[list[list[RangePart]]] = []
        self.cancelled: list[str] = []
        self.closed = False
        self.obeys = False
        self._tell = inbox_dispatcher(inbox, cast(Any, consumer))

    def start(self, task: RangeTask, tasks: list[list[RangePart]]) -> None:
        self.last_tries.append(task.last_try)
        self.tasks.append(tasks)
        self.started.append((task.job, list(dict.fromkeys(part.range for parts in tasks for part in parts))))

    def cancel(self, job: str) -> None:
        self.cancelled.append(job)
        if self.obeys:
            self._tell(JobEnded(job=job, reason="cancelled"))

    def close(self) -> None:
        self.closed = True

    def succeed(self, number: int, *partitions: int, letters: int = 0) -> None:
        """Tasks of the job with this number have written their ranges (all, where none is named)."""
        job, ranges = self.started[number]
        for each in ranges:
            if not partitions or each.partition in partitions:
                file = FileInfo(path=f"{job}-{each}", rows=each.end - each.start, bytes=1, attempt=0)
                written = WrittenRange(range=each, files=(file,))
                report = RangeReport(job=job, range=each, written=written, records=1, nbytes=1, dead_letters=letters)
                self._tell(Reported(report=report))

    def part_succeeds(self, number: int, task: int, *, seconds: float = 0.0) -> None:
        """One task of the job has written its part of the range. A record is one byte."""
        (part,) = self.tasks[number][task]
        job, rows = self.started[number][0], part.offsets.end - part.offsets.start
        file = FileInfo(path=f"{job}-{part.offsets}", rows=rows, bytes=1, attempt=task)
        written = WrittenRange(range=part.range, files=(file,))
        report = RangeReport(
            job=job,
            range=part.range,
            written=written,
            records=rows,
            nbytes=rows,
            seconds=seconds,
            part=part.number,
        )
        self._tell(Reported(report=report))

    def part_fails(self, number: int, task: int) -> None:
        (part,) = self.tasks[number][task]
        problem = RangeProblem(kind="ValueError", message="no flight")
        job = self.started[number][0]
        self._tell(Reported(report=RangeReport(job=job, range=part.range, problem=problem, part=part.number)))

    def fail(
        self, number: int, partition: int, *, fatal: bool = False, kind: str = "ValueError", private: bool = False
    ) -> None:
        job, ranges = self.started[number]
        (wanted,) = [each for each in ranges if each.partition == partition]
        problem = RangeProblem(kind=kind, message="no flight", traceback="line 7", fatal=fatal, private=private)
        self._tell(Reported(report=RangeReport(job=job, range=wanted, problem=problem)))

    def end(self, number: int, reason: str | None = None) -> None:
        self._tell(JobEnded(job=self.started[number][0], reason=reason))

    def finish(self, number: int) -> None:
        self.succeed(number)
        self.end(number)


class Stage:
    """A run and all that plays around it."""

    def __init__(
        self,
        *,
        positions: Mapping[int, int] | None = None,
        retries: int = 2,
        stop_timeout: float = 5.0,
        targets: Mapping[int, int] | None = None,
        limits: Limits | None = None,
        fail_on_data_loss: bool = True,
    ) -> None:
        self.consumer = FakeConsumer()
        self.sink = MemorySink({tp(each): offset for each, offset in (positions or {}).items()})
        self.events: list[PipelineEvent] = []
        self.on_event: Callable[[PipelineEvent], None] = self.events.append
        inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.runner = FakeRunner(self.consumer, inbox)
        goals = None if targets is None else {tp(each): offset for each, offset in targets.items()}
        self.consumer.ends.update(goals or {})
        limits = limits or Limits(range_records=1_000, jobs=8, linger=0.0, retries=retries, backoff=0.0)
        self.loop = PipelineLoop(
            LoopSettings(topics=[TOPIC], limits=limits, stop_timeout=stop_timeout, fail_on_data_loss=fail_on_data_loss),
            consumer=cast(Any, self.consumer),
            sink=self.sink,
            runner=cast(Any, self.runner),
            inbox=inbox,
            task=_task(),
            topic_id=self.consumer.find_topic_id,
            ends=self.consumer.find_ends,
            on_event=self._tell,
            targets=goals,
        )

    def _tell(self, event: PipelineEvent) -> None:
        self.on_event(event)

    def play(self, script: Script) -> None:
        """Run the loop until the script ends; then it stops. A job with no range under way is told as finished."""

        def stopping() -> bool:
            try:
                next(script)
            except StopIteration:
                return True
            return False

        try:
            self.loop.run(stopping)
        finally:
            assert all(job.unsettled for job in self.loop._jobs.values())

    def assigned(self, *partitions: int) -> Script:
        """Assign, and wait until they have begun."""
        self.consumer.assign(*partitions)
        yield from until(lambda: not self.consumer.paused & {tp(each) for each in partitions})

    def working(self, partition: int) -> Script:
        """It is assigned, has five records, and a job works on them."""
        yield from self.assigned(partition)
        self.consumer.offer(partition, 5)
        yield from until(lambda: self.runner.started)

    def until_started(self, jobs: int) -> Script:
        yield from until(lambda: len(self.runner.started) == jobs)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def _task() -> RangeTask:
    return RangeTask(
        job="",
        writer=cast(Any, None),
        function=b"",
        batch_format="arrow",
        called_per="batch",
        schema=None,
        reader=ReaderSettings(bootstrap_servers="nowhere:1"),
        reports=cast(Any, None),
    )
