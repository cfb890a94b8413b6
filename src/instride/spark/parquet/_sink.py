"""The driver's half: compare and set on the partitions' chains.

Laws (those of `instride.spark.sink`, as this sink keeps them)
1. The offset reached is the end of the chain's last manifest; the first may be empty, and only says where the chain
   begins. A commit reads it, requires it to be the
   range's start, and creates the next manifest only if it is absent. A manifest comes into being with its
   content, so there is no half commit.
2. A manifest lists exactly the files that the job's successful attempts reported, and each was seen to be
   there, at its size, just before: a folder that driver and executors do not share is found out before
   anything is promised.
3. The job of a range is in its manifest, so a repeated commit is told from another's.
4. A chain whose manifests know the topic's id takes no range of another id.
5. A dropped job's files are deleted only where another's manifest holds their start: from then on no commit can
   ever list them. Where that manifest has expired, nobody can tell whether the job was here before: the result is
   CONFLICT, and the files are left for `vacuum`.
6. The ranges of a job are committed one by one. An error in one does not keep the others from being tried;
   the first error is then raised, and `commit` with the same job again finishes what is left.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from instride.errors import ConfigError, MissingDataError, SinkError, WrongTopicError
from instride.errors._quoting import counted
from instride.records import TopicPartition
from instride.spark.parquet._data import ParquetWriter, check_compression
from instride.spark.parquet._layout import (
    META,
    check_job_id,
    check_topic,
    create_sink,
    data_folder,
    name_prefix,
)
from instride.spark.parquet._location import local_folder, storage_at
from instride.spark.parquet._manifest import Manifest
from instride.spark.parquet._manifest_chain import Chain
from instride.spark.parquet._storage import NoRemovalError, Storage
from instride.spark.sink import CommitOutcome, CommitStatus, JobResult, OutputRange, WrittenRange

__all__ = ["ParquetSink"]

_log = logging.getLogger(__name__)


class ParquetSink:
    """Parquet files in a folder or bucket, to which any number of drivers commit, each offset exactly once.

    folder: a path, a file: URI, or a prefix in an object store such as s3://bucket/flights (also gs:, az: and abfss:);
    absent, empty, or a sink already; shared by all drivers and executors (a local disk for one machine). Any other URI
    is NotASinkError, at once, and so is one with a user, a query or a fragment. A local folder needs a POSIX file
    system with hard links. An object store needs the extra "s3". Nothing is read or made before the first call.
    compression: of the data files: "zstd", "snappy", "gzip", "brotli", "lz4", "lz4_raw" or "none", which None is too;
    or a mapping with one of these for each column, by its path in the file; the others are not compressed. Anything
    else is ConfigError.

    storage_options: of the object store's client, as obstore names them ("aws_endpoint", "aws_region"); they precede
    the environment (AWS_ACCESS_KEY_ID and so on). They travel to executors within `writer`, and are in no repr. What
    they cannot be is ConfigError, at once. A process that was forked after its parent had used an object store cannot
    use one: SinkError.

    Implements `instride.spark.sink.Sink`. Thread-safe. Every method raises NotASinkError for a folder that
    holds something else, a bucket that is not there or a store that cannot create conditionally, CorruptManifestError
    for a damaged chain, WrongTopicError for a topic made anew under its old name, SinkError where the storage fails.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        compression: str | Mapping[str, str | None] | None = "zstd",
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._storage = storage_at(folder, storage_options)
        self._options = dict(storage_options) if storage_options else None
        self._compression = check_compression(compression)
        self._lock = threading.Lock()
        self._opened: Storage | None = None
        self._seen: dict[TopicPartition, Manifest] = {}

    @property
    def uri(self) -> str:
        """The local path, or the URI of the bucket with the prefix."""
        return self._storage.name

    @property
    def folder(self) -> Path:
        """The local folder. Raises NotASinkError for a sink in an object store."""
        return local_folder(self.uri)

    def positions(
        self, partitions: Iterable[TopicPartition], *, topic_ids: Mapping[str, str] | None = None
    ) -> dict[TopicPartition, int | None]:
        """The offset reached in each partition, or None where the sink holds nothing of it."""
        found: dict[TopicPartition, int | None] = {}
        for partition in partitions:
            last = self._last(partition)
            _check_topic_id(last, partition, (topic_ids or {}).get(partition.topic, ""))
            found[partition] = None if last is None else last.end
        return found

    def begin(self, partition: TopicPartition, offset: int, *, topic_id: str = "") -> int:
        """Where the sink holds nothing of the partition, its chain begins with an empty manifest at this offset.

        Raises ConfigError for what is no offset.
        """
        if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < 1 << 63:
            raise ConfigError(f"{partition} begins at an offset, from 0 to 2**63 - 1, not at {offset!r}")
        first = Manifest(
            topic=partition.topic,
            topic_id=topic_id,
            partition=partition.partition,
            sequence=1,
            start=offset,
            end=offset,
            job="",
            files=(),
        )
        last = self._last(partition)
        if last is not None:
            last = self._settled(partition, last)
        elif self._chain(partition).append(first, after=None):
            last = first
            self._remember(partition, first)
        # Another was first: its start counts.
        last = last or self._shown(partition, None)
        _check_topic_id(last, partition, topic_id)
        return last.end

    def writer(self) -> ParquetWriter:
        """The executors' half, picklable. The folder is a sink from here on."""
        self._sink_storage()
        return ParquetWriter(self.uri, self._compression, self._options)

    def commit(self, job: JobResult) -> dict[TopicPartition, CommitOutcome]:
        """Compare and set, for each range of the job.

        Raises MissingDataError where a reported file is not there, SinkWriteError where a manifest could not
        be written (then call again), ValueError for files that are not this job's.
        """
        check_job_id(job.job)
        for written in job.written:
            _check_files(written, job.job)
        return _each_tried([_Commit(sink=self, job=job.job, written=written) for written in job.written])

    def __repr__(self) -> str:
        return f"ParquetSink({self.uri!r})"

    def _sink_storage(self) -> Storage:
        with self._lock:
            if self._opened is None:
                self._opened = create_sink(self._storage)
            return self._opened

    def _chain(self, partition: TopicPartition) -> Chain:
        return Chain(self._sink_storage().inside(META), check_topic(partition.topic), partition.partition)

    def _settled(self, partition: TopicPartition, last: Manifest) -> Manifest:
        """The last manifest, made durable: this one, or, where it has expired meanwhile, a later one."""
        while not self._chain(partition).settle(last):
            last = self._shown(partition, last)
        return last

    def _last(self, partition: TopicPartition) -> Manifest | None:
        last = self._chain(partition).last(self._seen.get(partition))
        if last is not None:
            self._remember(partition, last)
        return last

    def _shown(self, partition: TopicPartition, last: Manifest | None) -> Manifest:
        """The last manifest after another won the race. A storage that says so and shows nothing is broken."""
        now = self._chain(partition).last()
        if now is None or (last is not None and now.sequence <= last.sequence):
            raise SinkError(
                f"{self.uri} says that another manifest of {partition} came meanwhile, but shows none: look who "
                "deletes or hides files there"
            )
        self._remember(partition, now)
        return now

    def _remember(self, partition: TopicPartition, last: Manifest) -> None:
        # Two threads may bring theirs in any order; an older one is not wrong, only slower to start from.
        with self._lock:
            known = self._seen.get(partition)
            if known is None or known.sequence < last.sequence:
                self._seen[partition] = last


@dataclass(frozen=True, slots=True, kw_only=True)
class _Commit:
    """The commit of one range."""

    sink: ParquetSink
    job: str
    written: WrittenRange

    @property
    def range(self) -> OutputRange:
        return self.written.range

    def run(self) -> CommitOutcome:
        partition = self.range.topic_partition
        last = self.sink._last(partition)
        while last is None or last.end == self.range.start:
            _check_topic_id(last, partition, self.range.topic_id)
            try:
                self._check_data()
            except MissingDataError:
                # Where another has committed the range since, a vacuum may have deleted what it does without.
                now = self.sink._last(partition)
                if now == last:
                    raise
                last = now
                continue
            if self.sink._chain(partition).append(self._next(last), after=last):
                self.sink._remember(partition, self._next(last))
                return CommitOutcome(status=CommitStatus.COMMITTED, position=self.range.end)
            last = self.sink._shown(partition, last)
        _check_topic_id(last, partition, self.range.topic_id)
        return self._refused(last)

    def _next(self, last: Manifest | None) -> Manifest:
        return Manifest(
            topic=self.range.topic,
            topic_id=self.range.topic_id or (last.topic_id if last else ""),
            partition=self.range.partition,
            sequence=last.sequence + 1 if last else 1,
            start=self.range.start,
            end=self.range.end,
            job=self.job,
            files=self.written.files,
        )

    def _refused(self, last: Manifest) -> CommitOutcome:
        """The chain is elsewhere: because this job was here before, or because another was."""
        there = self.sink._chain(self.range.topic_partition).reaching(self.range.start, last)
        ours = (self.job, self.range.start, self.range.end)
        if there is not None and (there.job, there.start, there.end) == ours:
            # The call that made it may have failed after that, at the sync: it is told as committed here alone.
            last = self.sink._settled(self.range.topic_partition, last)
            return CommitOutcome(status=CommitStatus.ALREADY, position=last.end)
        _log.warning("the sink is at offset %d, so job %s drops %s", last.end, self.job, self.range)
        if there is not None and there.start <= self.range.start:
            with suppress(NoRemovalError):  # `vacuum` deletes what is left
                for file in self.written.files:
                    self.sink._storage.remove(file.path)
        return CommitOutcome(status=CommitStatus.CONFLICT, position=last.end)

    def _check_data(self) -> None:
        for file in self.written.files:
            size = self.sink._storage.size(file.path)
            if size != file.bytes:
                found = "is not there" if size is None else f"has {counted(size, 'byte')}"
                raise MissingDataError(
                    f"a task wrote {self.sink._storage.at(file.path)} with {counted(file.bytes, 'byte')}, but here it "
                    f"{found}. Do driver and executors share that folder?"
                )


def _each_tried(commits: list[_Commit]) -> dict[TopicPartition, CommitOutcome]:
    outcomes: dict[TopicPartition, CommitOutcome] = {}
    errors: list[SinkError] = []
    for commit in commits:
        try:
            outcomes[commit.range.topic_partition] = commit.run()
        except SinkError as error:
            error.add_note(f"while job {commit.job} committed {commit.range}")
            errors.append(error)
            _log.warning("job %s could not commit %s: %s", commit.job, commit.range, error)
    if errors:
        raise errors[0]
    return outcomes


def _check_topic_id(last: Manifest | None, partition: TopicPartition, topic_id: str) -> None:
    if last is not None and last.topic_id and topic_id and last.topic_id != topic_id:
        raise WrongTopicError(
            f"the sink's {partition} is of the topic with id {last.topic_id}, but the id is now {topic_id}: the "
            "topic was deleted and made again, so its offsets mean other records. Write to another folder."
        )


def _check_files(written: WrittenRange, job: str) -> None:
    """The files must be named as this job's for this range: law 5 rests on it, and no path leads
    elsewhere.
    """
    output = written.range
    folder = data_folder(check_topic(output.topic), output.partition)
    for file in written.files:
        path = PurePosixPath(file.path)
        if str(path.parent) != folder or not path.name.startswith(name_prefix(output, job)):
            raise ValueError(f"{file.path} is not a file of job {job} for {output}")
