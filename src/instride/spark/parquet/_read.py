"""Reading a sink: always by its manifests, never by listing its data.

A folder of data files also holds those of losers, retries and tasks still at work; a glob over it would show
them. Each function here takes one snapshot per partition: a whole beginning of its chain. Reading needs no
lock and disturbs no writer. The files of a snapshot stay for as long as `vacuum` is told to keep them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from instride.records import TopicPartition
from instride.spark.parquet._layout import META, open_sink
from instride.spark.parquet._location import is_local, storage_at
from instride.spark.parquet._manifest import Manifest, partition_of, topic_of
from instride.spark.parquet._manifest_chain import Chain
from instride.spark.parquet._spark_options import spark_option
from instride.spark.parquet._storage import Storage
from instride.spark.sink import FileInfo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = [
    "chains_in",
    "listed_files",
    "read_dataframe",
    "read_files",
    "read_manifests",
    "read_table",
    "schema_of",
    "spark_schema",
]


def read_manifests(
    path: str | Path, *, storage_options: Mapping[str, str] | None = None
) -> dict[TopicPartition, list[Manifest]]:
    """Every partition's manifests since its newest checkpoint, in order.

    path, storage_options: as for `ParquetSink`, here and below. Raises NotASinkError, CorruptManifestError, SinkError,
    ConfigError.
    """
    chains = chains_in(open_sink(storage_at(path, storage_options)))
    return {TopicPartition(chain.topic, chain.partition): list(chain.state().manifests) for chain in chains}


def read_files(path: str | Path, *, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """The data files that are in the sink, by topic, partition and offset: paths, or URIs as that of the sink.

    Raises as `read_manifests`.
    """
    storage = storage_at(path, storage_options)
    return [storage.at(file.path) for file in listed_files(storage)]


def listed_files(storage: Storage) -> list[FileInfo]:
    """As `read_files`, with their sizes."""
    return [file for chain in chains_in(open_sink(storage)) for file in chain.state().files]


def read_table(path: str | Path, *, storage_options: Mapping[str, str] | None = None) -> pa.Table:
    """All rows. Columns are those of all files together, null where a file lacks one.

    A sink without rows gives a table without columns. Raises as `read_manifests`, and MissingDataError where
    a listed file is gone.
    """
    storage = storage_at(path, storage_options)
    found = listed_files(storage)
    if not found:
        return pa.table({})
    import pyarrow.dataset as ds  # noqa: PLC0415 - it imports pandas, for which no worker of Spark's is to wait

    schema = _together(storage, found)
    if is_local(path):
        return ds.dataset([storage.opened(file) for file in found], schema=schema, format="parquet").to_table()
    kind = ds.ParquetFileFormat()
    return pa.concat_tables([kind.make_fragment(storage.opened(file)).to_table(schema=schema) for file in found])


def schema_of(storage: Storage) -> pa.Schema:
    """Of all files together. Raises as `read_table`."""
    return _together(storage, listed_files(storage))


def spark_schema(schema: pa.Schema) -> StructType:
    """What Spark is told of the columns: of pandas' categories it knows the values."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

    kinds = [each.type.value_type if pa.types.is_dictionary(each.type) else each.type for each in schema]
    return from_arrow_schema(pa.schema(list(zip(schema.names, kinds, strict=True))))


def read_dataframe(
    spark: SparkSession, path: str | Path, *, storage_options: Mapping[str, str] | None = None
) -> DataFrame:
    """All rows as Spark's DataFrame. The data is read when the DataFrame is used: of a snapshot that is taken now, or,
    in an object store, each time when Spark plans the query.

    A sink without rows gives a DataFrame without columns. Raises as `read_table`.
    """
    from pyspark.sql.types import StructType  # noqa: PLC0415 - only here and below is Spark needed

    storage = storage_at(path, storage_options)
    found = listed_files(storage)
    if not found:
        return spark.createDataFrame([], StructType([]))
    if not is_local(path):
        # Spark's own reader would need Hadoop's client of the store, and its credentials in another form.
        options = {spark_option(name): value for name, value in (storage_options or {}).items()}
        schema = spark_schema(_together(storage, found))
        return spark.read.format("instride-parquet").schema(schema).options(**options).load(str(path))
    places = [_for_spark(str(storage.opened(file))) for file in found]
    return spark.read.option("mergeSchema", "true").parquet(*places)


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


def _together(storage: Storage, found: Sequence[FileInfo]) -> pa.Schema:
    schemas = [pq.read_schema(storage.opened(file)) for file in found]
    return pa.unify_schemas(schemas or [pa.schema([])], promote_options="permissive")


def _for_spark(file: str) -> str:
    """A path as Spark takes it: on the local file system, not the cluster's default one, and never a pattern."""
    return "file://" + re.sub(r"([\[\]{}*?\\])", r"\\\1", file)
