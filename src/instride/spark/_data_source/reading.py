"""What a task of the source does on an executor: its ranges, one after another, as Arrow batches in Spark's schema.

Laws
1. A task is stateless: it needs its input partition and the settings, and reads exactly the planned offsets.
2. A worker process keeps its reader, and so its connections, from task to task. A reader that failed is closed.
3. A topic that is deleted, or made again, while a task reads it is data loss: an error; with failOnDataLoss=false the
   task passes over what is gone. So are offsets that retention has deleted, and those behind the end of a log that
   became shorter (`spark/_range_reader.py`, law 6).
4. No secret is in an input partition: Spark may show that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from instride.errors import UnknownTopicOrPartitionError, WrongTopicError
from instride.spark._data_source.columns import in_spark_schema, made_of
from instride.spark._data_source.fused import Transform
from instride.spark._data_source.options import Options
from instride.spark._data_source.splitting import tasks_of
from instride.spark._range_reader import ReaderSettings, followed, forget, reader_for
from instride.spark._worker import spare_collections
from instride.spark.sink import OutputRange

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RangesPartition", "TaskReader"]

_log = logging.getLogger(__name__)


class RangesPartition(InputPartition):
    """The ranges of one task."""

    def __init__(self, ranges: tuple[OutputRange, ...]) -> None:
        super().__init__(", ".join(map(str, ranges)))
        self.ranges = ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReader:
    """Picklable. settings: of the readers. transform: of the fused form."""

    settings: ReaderSettings = field(repr=False)
    columns: tuple[str, ...]
    transform: Transform | None = None

    @classmethod
    def of(cls, options: Options, transform: Transform | None = None) -> TaskReader:
        consumer = dict(options.consumer)
        settings = ReaderSettings(
            bootstrap_servers=consumer.pop("bootstrap_servers"),
            client_id=consumer.pop("client_id", "instride"),
            isolation_level=consumer.pop("isolation_level", "read_uncommitted"),
            timeout=options.read_timeout,
            fail_on_data_loss=options.fail_on_data_loss,
            ends_early=True,  # where a batch ends is in the checkpoint, also where its log has become shorter
            columns=made_of(options.columns),
            # Sorted: a worker process finds its reader by equal settings.
            security=tuple(sorted(consumer.items())),
        )
        return cls(settings=settings, columns=options.columns, transform=transform)

    def read(self, partition: RangesPartition) -> Iterator[pa.RecordBatch]:
        try:
            for wanted, following in followed(partition.ranges):
                for batch in self._read(wanted, following):
                    made = in_spark_schema(batch, self.columns)
                    yield from (made,) if self.transform is None else self.transform.results(made)
        except Exception:
            forget(self.settings)
            raise

    def _read(self, wanted: OutputRange, following: OutputRange | None) -> Iterator[pa.RecordBatch]:
        """Without the function of the fused form: what that raises is no data loss, whatever it is."""
        with self._passing_over():
            reader = reader_for(self.settings, wanted)
            spare_collections()
            yield from reader.read(wanted, following)

    @contextmanager
    def _passing_over(self) -> Iterator[None]:
        """A topic that is another one, where data loss is to be passed over."""
        try:
            yield
        except (UnknownTopicOrPartitionError, WrongTopicError) as error:
            forget(self.settings)
            if self.settings.fail_on_data_loss:
                raise
            _log.warning("passed over: %s", error)


def input_partitions(ranges: list[OutputRange], options: Options) -> list[RangesPartition]:
    """One for each task."""
    tasks = tasks_of(
        ranges,
        max_records=options.max_records,
        min_partitions=options.min_partitions,
        max_partitions=options.max_partitions,
    )
    return [RangesPartition(task) for task in tasks]
