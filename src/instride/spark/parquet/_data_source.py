"""A sink's folder as a DataFrame: `spark.read.format("instride-parquet").load(folder)`.

Laws
1. What is read is one snapshot of what is committed, of each partition's chain, taken when Spark plans the query. It
   asks once for each `load`.
2. The schema is that of all files together, looked up by `load`, or the one that the user gave: columns by name, null
   where a file lacks one, cast where its type is another.
3. Executors read the files, several small ones in a task. They must see the same folder or bucket as the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from instride.errors import ConfigError
from instride.spark.parquet._location import kept_storage_at, storage_at
from instride.spark.parquet._read import listed_files, schema_of
from instride.spark.parquet._spark_options import ParquetOptions, parse_parquet_options
from instride.spark.parquet._spark_types import spark_schema
from instride.spark.parquet._storage import Storage, reading
from instride.spark.sink import FileInfo

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["FilesPartition", "ParquetReader", "parquet_schema"]

_TASK_BYTES: Final = 128 << 20
# To open a file costs about as much as to read so many bytes: Spark's own number.
_OPEN_BYTES: Final = 4 << 20


def parquet_schema(options: Mapping[str, str]) -> StructType:
    """Of the chosen columns. Raises ConfigError, and as `read_table`."""
    parsed = parse_parquet_options(options)
    storage, columns = _storage(parsed), parsed.columns
    found = schema_of(storage)
    missing = [name for name in columns or () if name not in found.names]
    if missing:
        raise ConfigError(
            f"columns: {storage.name} has no column {', '.join(missing)}; it has {', '.join(found.names)}"
        )
    return spark_schema(pa.schema([found.field(name) for name in columns or found.names]))


class FilesPartition(InputPartition):
    """The files of one task."""

    def __init__(self, files: tuple[FileInfo, ...]) -> None:
        super().__init__(files)
        self.files = files


class ParquetReader(DataSourceReader):
    """Picklable: Spark sends it to the executors after `partitions`."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = parse_parquet_options(options)
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> Sequence[InputPartition]:
        """Law 1. Raises NotASinkError, CorruptManifestError."""
        return [FilesPartition(tuple(task)) for task in _tasks(_storage(self._options))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises MissingDataError where a file of the snapshot is gone, SinkError where one cannot be read or cast."""
        # Where there is nothing to read, Spark makes a task with a partition of its own.
        if isinstance(partition, FilesPartition):
            storage = kept_storage_at(self._options.folder, self._options.storage)
            for file in partition.files:
                yield from self._rows(storage, file)

    def _rows(self, storage: Storage, file: FileInfo) -> Iterator[pa.RecordBatch]:
        with reading(storage, file), pq.ParquetFile(storage.opened(file)) as opened:
            there = [name for name in self._schema.names if name in opened.schema_arrow.names]
            for batch in opened.iter_batches(columns=there):
                yield _in_schema(batch, self._schema)


def _storage(options: ParquetOptions) -> Storage:
    return storage_at(options.folder, options.storage)


def _tasks(storage: Storage) -> Iterator[list[FileInfo]]:
    """Neighbours, up to the size of a task."""
    task: list[FileInfo] = []
    size = 0
    for file in listed_files(storage):
        if task and size + file.bytes + _OPEN_BYTES > _TASK_BYTES:
            yield task
            task, size = [], 0
        task.append(file)
        size += file.bytes + _OPEN_BYTES
    if task:
        yield task


def _in_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Columns by name, in exactly these types: null where the batch lacks one."""
    columns = [
        _cast(batch.column(field.name), field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Spark has no nanoseconds; else nothing is lost without an error."""
    return column.cast(options=pc.CastOptions(kind, allow_time_truncate=True))
