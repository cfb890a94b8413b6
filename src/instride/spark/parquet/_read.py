"""Reading a sink: always by its manifests, never by listing its data.

A folder of data files also holds those of losers, retries and tasks still at work; a glob over it would show
them. Each function here takes one snapshot per partition: a whole beginning of its chain. Reading needs no
lock and disturbs no writer. The files of a snapshot stay for as long as `vacuum` is told to keep them.
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
from instride.spark.parquet._layout import local_folder, open_sink
from instride.spark.parquet._manifest import Manifest, partition_of, topic_of
from instride.spark.parquet._manifest_chain import Chain
from instride.spark.parquet._manifest_store import ManifestStore
from instride.spark.sink import FileInfo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["chains_in", "listed_files", "read_dataframe", "read_files", "read_manifests", "read_table", "schema_of"]


def read_manifests(path: str | Path, *, store: ManifestStore | None = None) -> dict[TopicPartition, list[Manifest]]:
    """Every partition's manifests since its newest checkpoint, in order. Raises NotASinkError, CorruptManifestError."""
    chains = chains_in(open_sink(local_folder(path), store))
    return {TopicPartition(chain.topic, chain.partition): list(chain.state().manifests) for chain in chains}


def read_files(path: str | Path, *, store: ManifestStore | None = None) -> list[Path]:
    """The data files that are in the sink, by topic, partition and offset. Raises as `read_manifests`."""
    root = local_folder(path)
    return [root / file.path for file in listed_files(path, store=store)]


def listed_files(path: str | Path, *, store: ManifestStore | None = None) -> list[FileInfo]:
    """As `read_files`, with their sizes."""
    return [file for chain in chains_in(open_sink(local_folder(path), store)) for file in chain.state().files]


def read_table(path: str | Path, *, store: ManifestStore | None = None) -> pa.Table:
    """All rows. Columns are those of all files together, null where a file lacks one.

    A sink without rows gives a table without columns. Raises as `read_manifests`, and MissingDataError where
    a listed file is gone.
    """
    found = _existing(read_files(path, store=store))
    if not found:
        return pa.table({})
    return ds.dataset([str(file) for file in found], schema=_together(found), format="parquet").to_table()


def schema_of(path: str | Path, *, store: ManifestStore | None = None) -> pa.Schema:
    """Of all files together. Raises as `read_table`."""
    return _together(_existing(read_files(path, store=store)))


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


def _together(found: list[Path]) -> pa.Schema:
    return pa.unify_schemas([pq.read_schema(file) for file in found] or [pa.schema([])], promote_options="permissive")


def _for_spark(file: Path) -> str:
    """A path as Spark takes it: on the local file system, not the cluster's default one, and never a pattern."""
    return "file://" + re.sub(r"([\[\]{}*?\\])", r"\\\1", str(file))


def _existing(found: list[Path]) -> list[Path]:
    for file in found:
        if not file.exists():
            raise MissingDataError(
                f"a manifest lists {file}, but it is not there: it was deleted or moved, or this reader took "
                "longer than vacuum(keep_for=...)"
            )
    return found
