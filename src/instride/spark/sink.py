"""What the pipeline needs of the place it writes to. Implement `Sink` for your own database or table format.

The contract, by numbered laws
1. A sink holds, for every partition, *the offset reached*: the end of the last range that was committed.
2. `Sink.commit` compares and sets, per partition, in one atomic step. If the offset reached is the range's
   ``start``, the sink makes the range's output visible and sets the offset reached to the range's ``end``. If the
   sink has no offset for the partition, it accepts any ``start``. But the pipeline calls `Sink.begin` before its
   first job, and that sets the offset where there is none. So after a first job that failed, the next start of the
   pipeline does not skip that job's records.
3. Where another has moved the offset, nothing of the range becomes visible: CONFLICT. Where this very job
   has already committed this very range, nothing changes: ALREADY. So a commit may be repeated at will, by a
   caller that saw no response, and a cancelled or forgotten job that commits late does no harm. (A sink that
   remembers only the last job of a partition returns CONFLICT for a repeat after others have gone on.)
4. Partitions of one job are independent: one may be COMMITTED and another in CONFLICT.
5. Executors write (`RangeWriter`), the driver commits only metadata. What a writer wrote is invisible until
   a commit names it; output that no commit names (retries, speculative tasks, zombies) stays invisible for
   ever.
6. When `commit` returns, what it returned survives a crash of the machine. When it raises, any of the ranges
   may or may not have been committed; calling it again with the same job tells.
7. The sink's offset has precedence over the group's. At its start, and whenever it takes over a partition, the
   pipeline asks `positions`. Only if that returns None, it begins at the group's committed offset. After a CONFLICT
   it goes on from the position that the outcome names.

A job's id is unique among all applications and all runs (`new_job_id`). A job that is tried again may keep
its id or take a new one; both are safe.

How a database does it: see `DatabaseSink`, or the page on tables as sinks.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from instride.records import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "CommitOutcome",
    "CommitStatus",
    "FileInfo",
    "JobResult",
    "OutputRange",
    "RangeWriter",
    "Sink",
    "WrittenRange",
    "new_job_id",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRange:
    """The offsets [start, end) of one partition, as one piece of output. Never empty: start < end.

    topic_id: Kafka's id of the topic as text, or "" where it is not known. It tells a topic from a later one
        of the same name.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""

    def __post_init__(self) -> None:
        if self.partition < 0 or not 0 <= self.start < self.end:
            raise ValueError(f"not a range of offsets: {self.topic}-{self.partition} [{self.start}, {self.end})")

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """One piece of output that a task wrote.

    path: its name inside the sink; for a sink of files the path relative to the sink's folder.
    rows, bytes: its size. attempt: the id of the task's attempt that wrote it, unique within the job.
    """

    path: str
    rows: int
    bytes: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRange:
    """What the successful attempts of a job wrote for a range: nothing, where the range had no rows."""

    range: OutputRange
    files: tuple[FileInfo, ...] = ()

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def to_json(self) -> str:
        """As text, for the way from an executor to the driver."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WrittenRange:
        """The value whose `to_json` gave this text."""
        data = json.loads(text)
        files = tuple(FileInfo(**file) for file in data["files"])
        return cls(range=OutputRange(**data["range"]), files=files)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """All that one job wrote. Each partition appears once."""

    job: str
    written: tuple[WrittenRange, ...] = field(default=())

    def __post_init__(self) -> None:
        partitions = [written.range.topic_partition for written in self.written]
        if len(set(partitions)) != len(partitions):
            raise ValueError(f"job {self.job} names a partition twice; build the result with JobResult.merge")

    @classmethod
    def merge(cls, job: str, parts: Iterable[WrittenRange]) -> JobResult:
        """The result of a job from what its tasks reported, where several tasks wrote for one range.

        Raises ValueError where two tasks report different ranges of one partition.
        """
        merged: dict[OutputRange, WrittenRange] = {}
        for part in parts:
            known = merged.get(part.range)
            merged[part.range] = replace(known, files=known.files + part.files) if known else part
        return cls(job=job, written=tuple(merged.values()))


class CommitStatus(Enum):
    """What became of one range in a commit."""

    COMMITTED = "committed"
    ALREADY = "already"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOutcome:
    """The sink's response for one partition.

    position: the offset that the sink has reached now. For COMMITTED it is the range's end. For ALREADY it
        is that or, where others have gone on since, more. For CONFLICT it is where the next range must start.
    """

    status: CommitStatus
    position: int

    @property
    def is_in(self) -> bool:
        """Whether the range's output is in the sink, by this call or an earlier one."""
        return self.status is not CommitStatus.CONFLICT


@runtime_checkable
class RangeWriter(Protocol):
    """The executors' half of a sink. Spark pickles it for them: it must have no open file, connection or lock."""

    def write(self, output: OutputRange, *, job: str, attempt: int, batches: Iterator[pa.RecordBatch]) -> WrittenRange:
        """Write one range's rows where no reader sees them, durably, and say what was written.

        attempt: unique among all attempts of the job's tasks (Spark's ``TaskContext.taskAttemptId()``).
        Errors of `batches` pass through; then, as after any error, nothing of the attempt is ever visible.
        """
        ...


@runtime_checkable
class Sink(Protocol):
    """The driver's half of a sink. Every method may be called from several threads at once."""

    def positions(
        self, partitions: Iterable[TopicPartition], *, topic_ids: Mapping[str, str] | None = None
    ) -> dict[TopicPartition, int | None]:
        """The offset reached in each partition, or None where the sink holds nothing of it.

        topic_ids: Kafka's ids by topic name, where known. Raises WrongTopicError where the sink holds a topic
        of that name with another id.
        """
        ...

    def begin(self, partition: TopicPartition, offset: int, *, topic_id: str = "") -> int:
        """Set the offset reached, where the sink holds nothing of the partition; the offset reached now.

        Atomic and durable, as `commit`: of two callers both get the offset of the first. Raises as `positions`.
        """
        ...

    def writer(self) -> RangeWriter:
        """The executors' half."""
        ...

    def commit(self, job: JobResult) -> dict[TopicPartition, CommitOutcome]:
        """Compare and set, for each range of the job (the laws above). Raises a SinkError."""
        ...


def new_job_id() -> str:
    """An id that no other job has."""
    return uuid.uuid4().hex
