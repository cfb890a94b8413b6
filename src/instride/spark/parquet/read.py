"""Reading a sink: always by its manifests, never by listing its data.

A folder of data files also holds those of losers, retries and tasks still at work; a glob over it would show
them. Each function here takes one snapshot per partition: a whole beginning of its chain. Reading needs no
lock and disturbs no writer.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from instride.errors import MissingDataError
from instride.records import TopicPartition
from instride.spark.parquet.chain import Chain
from instride.spark.parquet.layout import local_folder, open_sink
from instride.spark.parquet.manifest import Manifest, partition_of, topic_of
from instride.spark.parquet.store import ManifestStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["chains_in", "read_dataframe", "read_files", "read_manifests", "read_table"]


def read_manifests(path: str | Path, *, store: ManifestStore | None = None) -> dict[TopicPartition, list[Manifest]]:
    """Every partition's chain, in order. Raises NotASinkError, CorruptManifestError."""
    chains = chains_in(open_sink(local_folder(path), store))
    return {TopicPartition(chain.topic, chain.partition): chain.all() for chain in chains}


def read_files(path: str | Path, *, store: ManifestStore | None = None) -> list[Path]:
    """The data files that are in the sink, by topic, partition and offset. Raises as `read_manifests`."""
    root = local_folder(path)
    chains = read_manifests(path, store=store).values()
    return [root / file.path for chain in chains for manifest in chain for file in manifest.files]


def read_table(path: str | Path, *, store: ManifestStore | None = None) -> pa.Table:
    """All rows. Columns are those of all files together, null where a file lacks one.

    A sink without rows gives a table without columns. Raises as `read_manifests`, and MissingDataError where
    a listed file is gone.
    """
    found = _existing(read_files(path, store=store))
    if not found:
        return pa.table({})
    schemas = [pq.read_schema(file) for file in found]
    schema = pa.unify_schemas(schemas, promote_options="permissive")
    return ds.dataset([str(file) for file in found], schema=schema, format="parquet").to_table()


def read_dataframe(spark: SparkSession, path: str | Path, *, store: ManifestStore | None = None) -> DataFrame:
    """All rows as Spark's DataFrame; the snapshot is taken now, the data is read when the DataFrame is used.

    A sink without rows gives a DataFrame without columns. Raises as `read_table`.
    """
    found = _existing(read_files(path, store=store))
    if not found:
        from pyspark.sql.types import StructType  # noqa: PLC0415 - only here is Spark needed

        return spark.createDataFrame([], StructType([]))
    return spark.read.option("mergeSchema", "true").parquet(*[_for_spark(file) for file in found])


def chains_in(store: ManifestStore) -> list[Chain]:
    """The chain of every partition in the store, by topic and partition."""
    found: list[TopicPartition] = []
    for folder in store.names(""):
        topic = topic_of(folder)
        if topic is not None:
            numbers = (partition_of(name) for name in store.names(folder))
            found += [TopicPartition(topic, number) for number in numbers if number is not None]
    return [Chain(store, partition.topic, partition.partition) for partition in sorted(found)]


def _for_spark(file: Path) -> str:
    """A path as Spark takes it: on the local file system, not the cluster's default one, and never a pattern."""
    return "file://" + re.sub(r"([\[\]{}*?\\])", r"\\\1", str(file))


def _existing(found: list[Path]) -> list[Path]:
    for file in found:
        if not file.exists():
            raise MissingDataError(f"a manifest lists {file}, but it is not there: it was deleted or moved")
    return found
