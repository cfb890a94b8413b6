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
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from instride.errors import KafkaError, NotASinkError, SinkError, SinkWriteError
from instride.records import TopicPartition
from instride.spark._tables.columns import check_columns, converted, differences
from instride.spark._tables.table_sink import Reached, TableSink
from instride.spark._tables.writer import TableWriter
from instride.spark.parquet._location import is_local
from instride.spark.sink import FileInfo

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction

__all__ = ["IcebergSink"]

_RETRIES: Final = "commit.retry.num-retries"
_MADE_WITH: Final = {
    _RETRIES: "0",
    # Each commit writes a file of metadata, which tells of all snapshots: without these it stays for ever.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


class IcebergSink(TableSink):
    """An Iceberg table to which any number of drivers commit, each offset exactly once.

    catalog: pyiceberg's, which must compare and set (that of SQL does). table: its name, with the namespace. schema:
    the columns; the table, and its namespace, are made with them where there is none, and needed only then. A table
    that is there must have them, or wider ones (int64 for int32), and may have others, if these are optional.
    compression: of the data files.

    The table's location must be a folder that all drivers and executors share. Needs `pip install
    "instride[iceberg]"` in the driver. Implements `instride.spark.sink.Sink`; thread-safe. Methods raise
    NotASinkError for a table that is partitioned, or whose property `commit.retry.num-retries` is not 0, for a schema
    that does not fit, and where there is neither table nor schema. So does the constructor for a name without a
    namespace.
    """

    def __init__(
        self, catalog: Catalog, table: str, *, schema: pa.Schema | None = None, compression: str = "zstd"
    ) -> None:
        if not table.rpartition(".")[0]:
            raise NotASinkError(
                f"{table!r} does not name an Iceberg table: give its namespace too, as in 'made.{table}'"
            )
        super().__init__(_Iceberg(catalog, table, schema, compression))


class _Iceberg:
    """Implements `instride.spark._tables.table_sink.Table`."""

    def __init__(self, catalog: Catalog, name: str, schema: pa.Schema | None, compression: str) -> None:
        self.name = name
        self._catalog = catalog
        self._schema = schema
        self._compression = compression
        self._fits = schema is None

    def writer(self) -> TableWriter:
        table = self._load()
        # Without the numbers of fields: a file that bears them is not taken by `add_files`.
        plain = pa.schema([pa.field(each.name, each.type, nullable=each.nullable) for each in _columns(table.schema())])
        return TableWriter(str(_folder(table)), plain, self._compression)

    def snapshot(self) -> _Snapshot:
        return _Snapshot(self._load())

    def _load(self) -> Table:
        if self._schema is None or self._fits:
            table = self._found(None)
        else:
            is_new = not self._is_there()
            wanted = converted(f"the Iceberg table {self.name}", self._schema, self._in_iceberg, is_new=is_new)
            table = self._found(self._schema)
            check_columns(f"the Iceberg table {self.name}", _columns(table.schema()), wanted)
            self._fits = True
        self._check(table)
        return table

    def _is_there(self) -> bool:
        try:
            return self._catalog.table_exists(self.name)
        except Exception as error:
            raise self._unloadable(error) from error

    def _unloadable(self, error: Exception) -> SinkWriteError:
        # A catalogue raises what its database does.
        return SinkWriteError(f"cannot load the Iceberg table {self.name}: {error}")

    def _found(self, schema: pa.Schema | None) -> Table:
        """The table. schema: it is made with this, where there is none."""
        from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415 - an extra

        try:
            if schema is not None:
                self._catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
                self._catalog.create_table_if_not_exists(self.name, schema, properties=_MADE_WITH)
            return self._catalog.load_table(self.name)
        except NoSuchTableError as error:
            raise NotASinkError(
                f"there is no Iceberg table {self.name} in the catalogue; give IcebergSink a schema, and a new "
                "pipeline makes it"
            ) from error
        except Exception as error:
            raise self._unloadable(error) from error

    def _in_iceberg(self, schema: pa.Schema) -> pa.Schema:
        # By what `create_table` does first, whose errors are else not told from those of the catalogue.
        return _columns(self._catalog._convert_schema_if_needed(schema))

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
        self.folder = _folder(table)

    def reached(self, partition: TopicPartition) -> Reached | None:
        text = self._table.properties.get(_property(partition))
        return None if text is None else Reached(**json.loads(text))

    def commit(self, reached: Mapping[TopicPartition, Reached], files: Sequence[FileInfo]) -> bool:
        from pyiceberg.exceptions import CommitFailedException  # noqa: PLC0415 - an extra

        try:
            with self._table.transaction() as transaction:
                transaction.set_properties({_property(each): _text(at) for each, at in reached.items()})
                self._add(transaction, files)
        except CommitFailedException:
            return False
        except KafkaError:
            raise
        except Exception as error:
            # What becomes known of it later is known by the job's mark; a catalogue raises what its database does.
            raise SinkWriteError(f"the commit to the Iceberg table {_name(self._table)} failed: {error}") from error
        return True

    def _add(self, transaction: Transaction, files: Sequence[FileInfo]) -> None:
        folder = self._table.location()
        try:
            # That check would look through all files of the table; no name of ours is ever given twice.
            transaction.add_files([f"{folder}/{file.path}" for file in files], check_duplicate_files=False)
        except (ValueError, TypeError) as error:
            there = _columns(self._table.schema())
            found = {
                each: None for file in files for each in differences(there, pq.read_schema(self.folder / file.path))
            }
            raise SinkError(
                f"the Iceberg table {_name(self._table)} does not take what was written: {'; '.join(found) or error}. "
                "Were its columns changed since the pipeline began? Start the pipeline again"
            ) from error


def _columns(schema: Schema) -> pa.Schema:
    from pyiceberg.io.pyarrow import schema_to_pyarrow  # noqa: PLC0415 - an extra

    return schema_to_pyarrow(schema, include_field_ids=False)


def _name(table: Table) -> str:
    return ".".join(table.name())


def _folder(table: Table) -> Path:
    """Where its files are, as pyiceberg takes the location: a %20 in it stays. Raises NotASinkError."""
    from pyiceberg.io.pyarrow import PyArrowFileIO  # noqa: PLC0415 - an extra

    location = table.location()
    if not is_local(location):
        raise NotASinkError(f"the Iceberg table {_name(table)} is at {location}, which is not on a local file system")
    return Path(PyArrowFileIO.parse_location(location)[2])


def _property(partition: TopicPartition) -> str:
    return f"instride.{partition.topic}.{partition.partition}"


def _text(reached: Reached) -> str:
    return json.dumps({"end": reached.end, "job": reached.job, "topic": reached.topic})
