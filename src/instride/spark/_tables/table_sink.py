"""The driver's half of a sink whose place has transactions of its own: compare and set, many ranges by one commit.

Laws
1. What is decided is decided on one snapshot, and committed on that very snapshot: where another has committed to
   one of the same partitions since, the format refuses, and all is decided anew on the next snapshot.
2. The offsets reached are in the table itself, set by the commit that brings the rows. With each goes a mark of the
   job that set it, so that a repeat of a commit without a response is known, and a mark of the topic's id.
3. Ranges of one commit are independent: one that is in conflict, or whose files are missing or may not be looked at,
   keeps back no other.
4. Files that no commit names are left to the format's own vacuum. They are never deleted here: that a job seems to
   be in conflict is no proof that its files are not in the table.
5. Whether rows fit the table's columns is decided where they are written (`writer`).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final, Protocol

from instride.errors import MissingDataError, SinkError, SinkWriteError, WrongTopicError
from instride.errors._quoting import counted
from instride.records import TopicPartition
from instride.spark._tables.combining import Combiner
from instride.spark._tables.writer import DATA, TableWriter
from instride.spark.parquet._layout import check_job_id, check_topic, name_prefix
from instride.spark.parquet._manifest import chain_folder
from instride.spark.sink import CommitOutcome, CommitStatus, FileInfo, JobResult, OutputRange, WrittenRange

__all__ = ["Reached", "Round", "Snapshot", "Table", "TableSink", "mark"]

_log = logging.getLogger(__name__)
_TRIES: Final = 100


def mark(text: str) -> int:
    """A text as a number that a table's log can hold; 0 for "". Two texts differ in it, but for one in 2**63."""
    # 63 bits, since Delta's versions are signed; never 0, which stands for none.
    return (int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1) or 1 if text else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """How far a partition is. job, topic: the marks of the job that came so far, and of the topic's id; 0: of none."""

    end: int
    job: int = 0
    topic: int = 0


class Snapshot(Protocol):
    """The table as it was at one moment. folder: where its files are."""

    @property
    def folder(self) -> Path: ...

    def reached(self, partition: TopicPartition) -> Reached | None:
        """How far it was."""
        ...

    def commit(self, reached: Mapping[TopicPartition, Reached], files: Sequence[FileInfo]) -> bool:
        """Set these and add the files, in one durable step; False, with nothing done, where another was quicker.

        Must be False where any of these partitions was set since the snapshot. Raises a SinkError where the outcome is
        not known.
        """
        ...


class Table(Protocol):
    """A table of some format. Used by one thread at a time. name: for people."""

    @property
    def name(self) -> str: ...

    def writer(self) -> TableWriter:
        """Of its data files. The table is there from now on."""
        ...

    def snapshot(self) -> Snapshot:
        """As it is now. Raises SinkError."""
        ...


@dataclass(slots=True, kw_only=True)
class Round:
    """What is to be done on a snapshot."""

    snapshot: Snapshot
    reached: dict[TopicPartition, Reached] = field(default_factory=dict)
    files: list[FileInfo] = field(default_factory=list)

    def look(self, partition: TopicPartition, topic_id: str) -> Reached | None:
        """How far the partition is by now. Raises WrongTopicError."""
        found = self.reached.get(partition) or self.snapshot.reached(partition)
        if found is not None and found.topic and topic_id and found.topic != mark(topic_id):
            raise WrongTopicError(
                f"the sink's {partition} is of a topic with another id than {topic_id}: the topic was deleted and made "
                "again, so its offsets mean other records. Write to another table."
            )
        return found

    def begin(self, partition: TopicPartition, offset: int, topic_id: str) -> int:
        """As `Sink.begin`."""
        found = self.look(partition, topic_id)
        if found is None:
            found = self.reached[partition] = Reached(end=offset, topic=mark(topic_id))
        return found.end

    def commit(self, job: str, written: WrittenRange) -> CommitOutcome:
        """As `Sink.commit`, for one range."""
        wanted = written.range
        found = self.look(wanted.topic_partition, wanted.topic_id)
        if found is None or found.end == wanted.start:
            for file in written.files:
                self._check_data(file)
            self.files += written.files
            topic = mark(wanted.topic_id) or (found.topic if found is not None else 0)
            self.reached[wanted.topic_partition] = Reached(end=wanted.end, job=mark(job), topic=topic)
            return CommitOutcome(status=CommitStatus.COMMITTED, position=wanted.end)
        if (found.job, found.end) == (mark(job), wanted.end):
            return CommitOutcome(status=CommitStatus.ALREADY, position=found.end)
        _log.warning("the sink is at offset %d, so job %s drops %s", found.end, job, wanted)
        return CommitOutcome(status=CommitStatus.CONFLICT, position=found.end)

    def _check_data(self, file: FileInfo) -> None:
        path = self.snapshot.folder / file.path
        size = _size(path)
        if size != file.bytes:
            found = "is not there" if size is None else f"has {counted(size, 'byte')}"
            raise MissingDataError(
                f"a task wrote {path} with {counted(file.bytes, 'byte')}, but here it {found}. "
                "Do driver and executors share that folder? Was the table vacuumed meanwhile?"
            )


Work = Callable[[Round], None]


class TableSink:
    """Implements `instride.spark.sink.Sink` on a `Table`. Thread-safe: what threads ask meanwhile shares one
    commit."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._do: Combiner[Work, None] = Combiner(self._do_together)

    def positions(
        self, partitions: Iterable[TopicPartition], *, topic_ids: Mapping[str, str] | None = None
    ) -> dict[TopicPartition, int | None]:
        """The offset reached in each partition, or None where the table holds nothing of it."""
        wanted, ids = [_checked(partition) for partition in partitions], topic_ids or {}
        found: dict[TopicPartition, Reached | None] = {}
        self._do(lambda now: found.update({each: now.look(each, ids.get(each.topic, "")) for each in wanted}))
        return {partition: None if at is None else at.end for partition, at in found.items()}

    def begin(self, partition: TopicPartition, offset: int, *, topic_id: str = "") -> int:
        """Where the table holds nothing of the partition, its output begins at this offset."""
        _checked(partition)
        found: list[int] = []
        # A list: where another was quicker, this is done anew on the next snapshot, and the last one counts.
        self._do(lambda now: found.append(now.begin(partition, offset, topic_id)))
        return found[-1]

    def writer(self) -> TableWriter:
        """The executors' half, picklable. The table is there from here on."""
        found: list[TableWriter] = []
        self._do(lambda _: found.append(self._table.writer()))
        return found[-1]

    def commit(self, job: JobResult) -> dict[TopicPartition, CommitOutcome]:
        """Compare and set, for each range of the job, all by one commit.

        Raises MissingDataError where a reported file is not there, SinkWriteError where it is not known what became of
        the commit (then call again), ValueError for files that are not this job's.
        """
        check_job_id(job.job)
        for written in job.written:
            _check_files(written.range, written.files, job.job)
        outcomes: dict[TopicPartition, CommitOutcome] = {}
        errors: dict[OutputRange, SinkError] = {}
        self._do(lambda now: _each_tried(now, job, outcomes, errors))
        # One of them: whoever calls again with the same job meets the others then.
        for error in errors.values():
            raise error
        return outcomes

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._table.name!r})"

    def _do_together(self, works: Sequence[Work]) -> Sequence[BaseException | None]:
        for _ in range(_TRIES):
            now = Round(snapshot=self._table.snapshot())
            results = [_tried(work, now) for work in works]
            if not now.reached or now.snapshot.commit(now.reached, now.files):
                return results
        raise SinkWriteError(f"{self!r}: others were quicker at each of {_TRIES} tries to commit")


def _tried(work: Work, now: Round) -> BaseException | None:
    try:
        work(now)
    except (SinkError, ValueError) as error:
        return error
    return None


def _each_tried(
    now: Round, job: JobResult, outcomes: dict[TopicPartition, CommitOutcome], errors: dict[OutputRange, SinkError]
) -> None:
    """Law 3. What an earlier snapshot told is forgotten."""
    outcomes.clear()
    errors.clear()
    for written in job.written:
        try:
            outcomes[written.range.topic_partition] = now.commit(job.job, written)
        except SinkError as error:
            error.add_note(f"while job {job.job} committed {written.range}")
            errors[written.range] = error


def _size(path: Path) -> int | None:
    """In bytes; None where it is not there. Raises SinkError where the system does not tell."""
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SinkError(
            f"a task wrote {path}, but here the system refuses to look at it: {error}. "
            "Let the driver's user enter that folder: do executors run as another user?"
        ) from error


def _checked(partition: TopicPartition) -> TopicPartition:
    check_topic(partition.topic)
    return partition


def _check_files(output: OutputRange, files: Iterable[FileInfo], job: str) -> None:
    """They must be named as this job's for this range: no path leads elsewhere, and no job commits another's."""
    folder = f"{DATA}/{chain_folder(check_topic(output.topic), output.partition)}"
    for file in files:
        path = PurePosixPath(file.path)
        if str(path.parent) != folder or not path.name.startswith(name_prefix(output, job)):
            raise ValueError(f"{file.path} is not a file of job {job} for {output}")
