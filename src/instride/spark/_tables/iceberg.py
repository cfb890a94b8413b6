"""An Apache Iceberg table as the pipeline's sink.

The offsets reached are properties of the table, one for each partition, set by the transaction that adds the files:
Iceberg's catalogue swaps the table's metadata as a whole. They are not properties of snapshots, which expire.

Every commit makes a snapshot, an empty one too, and requires that the table's last snapshot is the one that was read:
so any commit that came between, by whomever, is found out. pyiceberg would then try again by itself, upon what it
has not looked at, and set offsets back: so the table's `commit.retry.num-retries` must be 0, and commits are tried
again here.

Which of two drivers wins, and what becomes of the other's range: `table_sink`, law 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from instride.errors import KafkaError, NotASinkError, SinkWriteError
from instride.records import TopicPartition
from instride.spark._tables.table_sink import Reached, TableSink
from instride.spark._tables.writer import TableWriter
from instride.spark.parquet._location import local_folder
from instride.spark.sink import FileInfo

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

__all__ = ["IcebergSink"]

_RETRIES: Final = "commit.retry.num-retries"
_CHECKED: Final = {_RETRIES: "0"}


class IcebergSink(TableSink):
    """An Iceberg table to which any number of drivers commit, each offset exactly once.

    catalog: pyiceberg's, which must compare and set (that of SQL does). table: its name, with the namespace. schema:
    the columns; the table, and its namespace, are made with them where there is none, and needed only then.
    compression: of the data files.

    The table's location must be a folder that all drivers and executors share. Needs `pip install
    "instride[iceberg]"` in the driver. Implements `instride.spark.sink.Sink`; thread-safe. Methods raise
    NotASinkError for a table that is partitioned, or whose property `commit.retry.num-retries` is not 0.
    """

    def __init__(
        self, catalog: Catalog, table: str, *, schema: pa.Schema | None = None, compression: str = "zstd"
    ) -> None:
        super().__init__(_Iceberg(catalog, table, schema, compression))


class _Iceberg:
    """Implements `instride.spark._tables.table_sink.Table`."""

    def __init__(self, catalog: Catalog, name: str, schema: pa.Schema | None, compression: str) -> None:
        self.name = name
        self._catalog = catalog
        self._schema = schema
        self._compression = compression
        self._made = schema is None

    def writer(self) -> TableWriter:
        table = self._load()
        # Without the numbers of fields: a file that bears them is not taken by `add_files`.
        plain = pa.schema([pa.field(field.name, field.type) for field in table.schema().as_arrow()])
        return TableWriter(str(local_folder(table.location())), plain, self._compression)

    def snapshot(self) -> _Snapshot:
        return _Snapshot(self._load())

    def _load(self) -> Table:
        try:
            if not self._made:
                self._make()
            table = self._catalog.load_table(self.name)
        except KafkaError:
            raise
        except Exception as error:
            # A catalogue raises what its database does.
            raise SinkWriteError(f"cannot load the Iceberg table {self.name}: {error}") from error
        self._check(table)
        return table

    def _make(self) -> None:
        self._catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
        self._catalog.create_table_if_not_exists(self.name, self._schema, properties=_CHECKED)
        self._made = True

    def _check(self, table: Table) -> None:
        if table.properties.get(_RETRIES) != "0":
            raise NotASinkError(
                f"the Iceberg table {self.name} must have the property {_RETRIES} = 0, or pyiceberg commits again by "
                "itself what another was quicker with, and offsets go back"
            )
        if not table.spec().is_unpartitioned():
            raise NotASinkError(f"the Iceberg table {self.name} is partitioned, which this sink does not write")


class _Snapshot:
    """Implements `instride.spark._tables.table_sink.Snapshot`."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.folder = local_folder(table.location())

    def reached(self, partition: TopicPartition) -> Reached | None:
        text = self._table.properties.get(_property(partition))
        return None if text is None else Reached(**json.loads(text))

    def commit(self, reached: Mapping[TopicPartition, Reached], files: Sequence[FileInfo]) -> bool:
        from pyiceberg.exceptions import CommitFailedException  # noqa: PLC0415 - an extra

        try:
            with self._table.transaction() as transaction:
                transaction.set_properties({_property(each): _text(at) for each, at in reached.items()})
                folder = self._table.location()
                paths = [f"{folder}/{file.path}" for file in files]
                # That check would look through all files of the table; no name of ours is ever given twice.
                transaction.add_files(paths, check_duplicate_files=False)
        except CommitFailedException:
            return False
        except Exception as error:
            # What becomes known of it later is known by the job's mark; a catalogue raises what its database does.
            raise SinkWriteError(f"the commit to the Iceberg table {self._table.name()} failed: {error}") from error
        return True


def _property(partition: TopicPartition) -> str:
    return f"instride.{partition.topic}.{partition.partition}"


def _text(reached: Reached) -> str:
    return json.dumps({"end": reached.end, "job": reached.job, "topic": reached.topic})
