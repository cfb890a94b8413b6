"""The batch reader. Spark asks it for its partitions once for each `load`: then the offsets are looked up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from instride.errors import ConfigError
from instride.records import TopicPartition
from instride.spark._data_source.cluster import Cluster
from instride.spark._data_source.filters import Narrowed, narrowed
from instride.spark._data_source.fused import Transform
from instride.spark._data_source.offsets import BatchPlan
from instride.spark._data_source.options import Bound, Options
from instride.spark._data_source.reading import RangesPartition, TaskReader, input_partitions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchReader", "FilteringBatchReader"]


class BatchReader(DataSourceReader):
    """Picklable: Spark sends it to the executors after `partitions`."""

    def __init__(self, options: Options, transform: Transform | None = None) -> None:
        self._options = options
        self._task = TaskReader.of(options, transform)
        self._narrowed = Narrowed()

    def partitions(self) -> Sequence[InputPartition]:
        """Raises ConfigError, UnknownTopicOrPartitionError, KafkaTimeoutError."""
        return input_partitions(self._planned().ranges(), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Where there is nothing to read, Spark makes a task with a partition of its own.
        return self._task.read(partition) if isinstance(partition, RangesPartition) else iter(())

    def _planned(self) -> BatchPlan:
        options, cluster = self._options, Cluster(self._options)
        try:
            found = cluster.require(options.topics)
            starts = cluster.resolve(options.starting, found, name="startingOffsets")
            ends = cluster.resolve(options.ending, found, name="endingOffsets")
            _check(starts, ends)
            since = Bound(timestamp=self._narrowed.since, unmatched="latest")
            at = cluster.resolve(since, found, name="timestamp") if self._narrowed.since else {}
        finally:
            cluster.close()
        topic_ids = {partition.topic: topic_id for partition, topic_id in found.items()}
        return BatchPlan(self._narrowed.spans(starts, ends, at), topic_ids)


class FilteringBatchReader(BatchReader):
    """One that Spark gives its filters. A class of its own: Spark refuses it where its setting for that is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - PySpark's name
        """Those that are still to be evaluated."""
        self._narrowed, left = narrowed(filters)
        return left


def _check(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
    for partition, start in starts.items():
        if start > ends[partition]:
            raise ConfigError(
                f"{partition} is to be read from offset {start} to {ends[partition]}: the start is beyond the end"
            )
