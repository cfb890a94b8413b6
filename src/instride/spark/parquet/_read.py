"""Reading a sink: always by its manifests, never by listing its data.

A folder of data files also holds those of losers, retries and tasks still at work; a glob over it would show
them. Each function here takes one snapshot per partition: a whole beginning of its chain. Reading needs no
lock and disturbs no writer. The files of a snapshot stay for as long as `vacuum` is told to keep them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from instride.errors import SinkError
from instride.records import TopicPartition
from instride.spark.parquet._layout import META, open_sink
from instride.spark.parquet._location import is_local, storage_at
from instride.spark.parquet._manifest import Manifest, partition_of, topic_of
from instride.spark.parquet._manifest_chain import READERS, Chain, ChainState
from instride.spark.parquet._schemas import together
from instride.spark.parquet._spark_options import spark_option
from instride.spark.parquet._spark_types import spark_reads, spark_schema
from instride.spark.parquet._storage import Storage, reading
from instride.spark.sink import FileInfo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "chains_in",
    "listed_files",
    "read_dataframe",
    "read_files",
    "read_manifests",
    "read_table",
    "schema_of",
]

# Files' columns are at their ends: to read them is waiting, above all on a file system that machines share.
_THREADS: Final = 8
# By one thread in turn.
_FOOTERS: Final = 32


def read_manifests(
    path: str | Path, *, storage_options: Mapping[str, str] | None = None
) -> dict[TopicPartition, list[Manifest]]:
    """Every partition's manifests since its newest checkpoint, in order.

    path, storage_options: as for `ParquetSink`, here and below. Raises NotASinkError, CorruptManifestError, SinkError,
    ConfigError.
    """
    found = _states(storage_at(path, storage_options))
    return {TopicPartition(chain.topic, chain.partition): list(state.manifests) for chain, state in found}


def read_files(path: str | Path, *, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """The data files that are in the sink, by topic, partition and offset: paths, or URIs as that of the sink.

    Raises as `read_manifests`.
    """
    storage = storage_at(path, storage_options)
    return [storage.at(file.path) for file in listed_files(storage)]


def listed_files(storage: Storage) -> list[FileInfo]:
    """As `read_files`, with their sizes."""
    return [file for _, state in _states(storage) for file in state.files]


def read_table(path: str | Path, *, storage_options: Mapping[str, str] | None = None) -> pa.Table:
    """All rows. Columns are those of all files together, null where a file lacks one. Where files differ in a column's
    form, it is plain: values for a dictionary, UTC for two zones.

    A sink without rows gives a table without columns. Raises as `read_manifests`, and MissingDataError where a listed
    file is gone, also where a vacuum deletes it meanwhile; SinkError also where a file is damaged, or the files'
    columns do not go together.
    """
    storage = storage_at(path, storage_options)
    found = listed_files(storage)
    if not found:
        return pa.table({})
    schema = _together(storage, _schemas(storage, found))
    if not is_local(path):
        return pa.concat_tables([_one_table(storage, file, schema) for file in found])
    import pyarrow.dataset as ds  # noqa: PLC0415 - it imports pandas, for which no worker of Spark's is to wait

    try:
        return ds.dataset([storage.opened(file) for file in found], schema=schema, format="parquet").to_table()
    except MemoryError:
        raise
    except (OSError, pa.ArrowException) as error:
        # All at once, so nobody says of which. Each by itself tells.
        for file in found:
            _one_table(storage, file, schema)
        raise SinkError(f"cannot read {storage.name}: {error}") from error


def schema_of(storage: Storage) -> pa.Schema:
    """Of all files together. Raises as `read_table`."""
    return _together(storage, _schemas(storage, listed_files(storage)))


def read_dataframe(
    spark: SparkSession, path: str | Path, *, storage_options: Mapping[str, str] | None = None
) -> DataFrame:
    """All rows as Spark's DataFrame. The data is read when the DataFrame is used: of a snapshot that is taken now, by
    Spark's own reader. That cannot read an object store, timestamps of nanoseconds, half floats, times of day,
    durations in another unit than microseconds, structs with names that differ in case only, and files whose columns
    differ in type by more than numbers that are widened: then it is `format("instride-parquet")`, whose snapshot is
    taken each time when Spark plans the query. Raises SinkError for decimals of more than 38 digits: Spark has none.

    A sink without rows gives a DataFrame without columns. Else it raises as `read_table`.
    """
    from pyspark.sql.types import StructType  # noqa: PLC0415 - only here is Spark needed

    storage = storage_at(path, storage_options)
    found = listed_files(storage)
    if not found:
        return spark.createDataFrame([], StructType([]))
    schemas = _schemas(storage, found)
    wanted = spark_schema(_together(storage, schemas))
    # Of an object store it would need Hadoop's client, and its credentials in another form.
    if not is_local(path) or not all(spark_reads(schema, wanted) for schema in schemas):
        options = {spark_option(name): value for name, value in (storage_options or {}).items()}
        return spark.read.format("instride-parquet").schema(wanted).options(**options).load(storage.name)
    reader = spark.read.option("ignoreMissingFiles", "false").option("ignoreCorruptFiles", "false")
    # Spark takes names that differ in case for one column, unless it is told otherwise: then it merges them.
    is_clear = len({name.lower() for name in wanted.names}) == len(wanted.names)
    reader = reader.schema(wanted) if is_clear else reader.option("mergeSchema", "true")
    return reader.parquet(*(_for_spark(str(storage.opened(file))) for file in found))


def _states(storage: Storage) -> list[tuple[Chain, ChainState]]:
    """Of every partition, by topic and partition."""
    chains = chains_in(open_sink(storage))
    with ThreadPoolExecutor(READERS, thread_name_prefix="instride-manifests") as pool:
        # In their order. Where one fails, `map` cancels those that have not begun.
        return list(zip(chains, pool.map(lambda chain: chain.state(pool), chains), strict=True))


def chains_in(storage: Storage) -> list[Chain]:
    """The chain of every partition in the sink, by topic and partition."""
    store = storage.inside(META)
    found: list[TopicPartition] = []
    for folder in store.names(""):
        topic = topic_of(folder)
        if topic is not None:
            numbers = (partition_of(name) for name in store.names(folder))
            found += [TopicPartition(topic, number) for number in numbers if number is not None]
    return [Chain(store, partition.topic, partition.partition) for partition in sorted(found)]


def _schemas(storage: Storage, found: Sequence[FileInfo]) -> list[pa.Schema]:
    """Those that differ, in the order of the files: 100,000 files have a few."""
    parts = [found[start : start + _FOOTERS] for start in range(0, len(found), _FOOTERS)]
    if len(parts) <= 1:
        return list(_distinct(storage, found).values())
    distinct: dict[pa.Schema, pa.Schema] = {}
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="instride-footers") as pool:
        # In their order. Where one fails, `map` cancels those that have not begun.
        for part in pool.map(partial(_distinct, storage), parts):
            # The first one of each stays, at its place.
            distinct |= part | distinct
    return list(distinct.values())


def _distinct(storage: Storage, found: Sequence[FileInfo]) -> dict[pa.Schema, pa.Schema]:
    """By the schema without its metadata, which does not count: the first one of each."""
    distinct: dict[pa.Schema, pa.Schema] = {}
    for file in found:
        schema = _schema(storage, file)
        distinct.setdefault(schema.remove_metadata(), schema)
    return distinct


def _schema(storage: Storage, file: FileInfo) -> pa.Schema:
    with reading(storage, file):
        return pq.read_schema(storage.opened(file))


def _one_table(storage: Storage, file: FileInfo, schema: pa.Schema) -> pa.Table:
    import pyarrow.dataset as ds  # noqa: PLC0415 - as above

    place = storage.opened(file)
    with reading(storage, file):
        if isinstance(place, str):
            return ds.dataset(place, schema=schema, format="parquet").to_table()
        return ds.ParquetFileFormat().make_fragment(place).to_table(schema=schema)


def _together(storage: Storage, schemas: Sequence[pa.Schema]) -> pa.Schema:
    try:
        return together(schemas)
    except pa.ArrowException as error:
        raise SinkError(f"the columns of the files of {storage.name} do not go together: {error}") from error


def _for_spark(file: str) -> str:
    """A path as Spark takes it: on the local file system, not the cluster's default one, and never a pattern."""
    return "file://" + re.sub(r"([\[\]{}*?\\])", r"\\\1", file)
