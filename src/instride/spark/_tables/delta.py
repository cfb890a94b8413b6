"""A Delta Lake table as the pipeline's sink.

Offsets are Delta's application transactions: three numbers of each partition (the offset reached, and the marks of
job and topic), set by the commit that adds the files. Delta refuses a commit where one of its applications' numbers
was set since the snapshot, and lets commits to other partitions pass beside it.

A later snapshot takes any version, also a lower one. So what decides is read from the snapshot that is committed from.

Which of two drivers wins, and what becomes of the other's range: `table_sink`, law 1.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import pyarrow as pa

from instride.errors import NotASinkError, SinkWriteError
from instride.records import TopicPartition
from instride.spark._nested import fields_in
from instride.spark._tables.columns import check_columns, converted
from instride.spark._tables.delta_log import TransactionLog, commit_file
from instride.spark._tables.table_sink import Reached, TableSink
from instride.spark._tables.writer import TableWriter
from instride.spark.parquet._files import make_folders
from instride.spark.parquet._location import local_folder
from instride.spark.sink import FileInfo

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction

__all__ = ["DeltaSink"]

_SAFE_FEATURES: Final = frozenset(
    {"appendOnly", "invariants", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors"}
    | {"changeDataFeed", "domainMetadata"}
)
"""Those that ask nothing of a writer who only adds files. Tables with invariants are told apart by their columns."""

_UNFIT_SETTING: Final = re.compile(r"delta\.(constraints\..*|columnMapping\.mode|setTransactionRetentionDuration)")
_UNFIT_COLUMN: Final = re.compile(r"delta\.(invariants|generationExpression|identity\..*)")


class DeltaSink(TableSink):
    """A Delta table to which any number of drivers commit, each offset exactly once.

    folder: the table's, a local path or file: URI, shared by all drivers and executors. schema: the columns; the
    table is made with them where there is none, and needed only then. A table that is there must have them, or wider
    ones (int64 for int32), and may have others, if these are nullable. compression: of the data files.

    Needs `pip install "instride[delta]"` in the driver. Implements `instride.spark.sink.Sink`; thread-safe. Methods
    raise NotASinkError where the folder holds something else, or a table that plain added files could break
    (partition columns, constraints, column mapping), and for a schema that does not fit. The constructor raises it
    for a folder that deltalake cannot use.
    """

    def __init__(self, folder: str | Path, *, schema: pa.Schema | None = None, compression: str = "zstd") -> None:
        import deltalake  # noqa: F401, PLC0415 - an extra; its absence is to be told here, and not by a thread

        self.folder = _usable(local_folder(folder))
        super().__init__(_Delta(self.folder, schema, compression))


class _Delta:
    """Implements `Table`."""

    def __init__(self, folder: Path, schema: pa.Schema | None, compression: str) -> None:
        self.folder = folder
        self.name = str(folder)
        self._schema = schema
        self._compression = compression
        self._opened: DeltaTable | None = None
        self._log = TransactionLog(folder / "_delta_log")
        self._synced = 0

    def writer(self) -> TableWriter:
        return TableWriter(str(self.folder), self.schema, self._compression)

    @property
    def table(self) -> DeltaTable:
        if self._opened is None:
            self._opened = _open(self.folder, self._schema)
            # Another table may have been made in the folder.
            self._log = TransactionLog(self.folder / "_delta_log")
            self._synced = self._opened.version() - 1
        return self._opened

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self.table.schema().to_arrow())

    def snapshot(self) -> _Snapshot:
        from deltalake.exceptions import DeltaError  # noqa: PLC0415 - an extra

        if not self._log.is_the_same:
            # Another table's commits would be read on top of this one's columns.
            self._opened = None
        try:
            self.table.update_incremental()
            # At each, since others may change the table's protocol and settings at any time.
            _check_fit(self.table)
        except (DeltaError, OSError) as error:
            self._opened = None
            raise SinkWriteError(f"cannot read the Delta table {self.folder}: {error}") from error
        try:
            self.sync()
        except OSError as error:
            # Not opened anew, or only the newest commit would be synced then.
            raise SinkWriteError(f"cannot sync the log of the Delta table {self.folder}: {error}") from error
        return _Snapshot(self, self._log.at(self.table.version()))

    def sync(self) -> None:
        """What was seen in the table's log is on the disk: delta-rs leaves that to the system."""
        log = self.folder / "_delta_log"
        commits = [commit_file(log, each) for each in range(self._synced + 1, self.table.version() + 1)]
        # A commit that is gone was cleaned up, behind a checkpoint.
        for path in [each for each in commits if each.exists()] + ([log] if commits else []):
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        self._synced = self.table.version()


class _Snapshot:
    """Implements `Snapshot`, with the table's present state, which nobody moves while a round is under way.

    transactions: the number of each application; None: deltalake reads each.
    """

    def __init__(self, delta: _Delta, transactions: Mapping[str, int] | None) -> None:
        self._delta = delta
        self._transactions = transactions
        self.folder = delta.folder

    def reached(self, partition: TopicPartition) -> Reached | None:
        end = self._number(_application(partition, "offset"))
        if end is None:
            return None
        job, topic = (self._number(_application(partition, name)) for name in ("job", "topic"))
        return Reached(end=end, job=job or 0, topic=topic or 0)

    def _number(self, application: str) -> int | None:
        from deltalake.exceptions import DeltaError  # noqa: PLC0415 - an extra

        if self._transactions is not None:
            return self._transactions.get(application)
        try:
            return self._delta.table.transaction_version(application)
        except (DeltaError, OSError) as error:
            raise SinkWriteError(f"cannot read the Delta table {self.folder}: {error}") from error

    def commit(self, reached: Mapping[TopicPartition, Reached], files: Sequence[FileInfo]) -> bool:
        from deltalake import CommitProperties, Transaction  # noqa: PLC0415 - an extra
        from deltalake.exceptions import CommitFailedError, DeltaError  # noqa: PLC0415

        transactions = [
            Transaction(_application(partition, name), number)
            for partition, each in reached.items()
            for name, number in (("offset", each.end), ("job", each.job), ("topic", each.topic))
        ]
        try:
            self._delta.table.create_write_transaction(
                [_added(file) for file in files],
                mode="append",
                schema=self._delta.table.schema(),
                commit_properties=CommitProperties(app_transactions=transactions),
            )
            self._delta.table.update_incremental()
            self._delta.sync()
        except CommitFailedError:
            # Should it be there after all, the next snapshot shows this job's mark.
            return False
        except (DeltaError, OSError) as error:
            raise SinkWriteError(f"the commit to the Delta table {self._delta.folder} failed: {error}") from error
        return True


def _application(partition: TopicPartition, name: str) -> str:
    return f"instride/{partition.topic}/{partition.partition}/{name}"


def _added(file: FileInfo) -> AddAction:
    from deltalake.transaction import AddAction  # noqa: PLC0415 - an extra

    return AddAction(
        path=file.path,
        size=file.bytes,
        partition_values={},
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=json.dumps({"numRecords": file.rows}),
    )


def _usable(folder: Path) -> Path:
    # deltalake writes to the folder of this name, and reads from the one that the decoded name would be.
    if unquote(str(folder)) != str(folder) or "\\" in str(folder):
        raise NotASinkError(f"deltalake cannot use the folder {folder}: choose a path without %XX and backslashes")
    return folder


def _open(folder: Path, schema: pa.Schema | None) -> DeltaTable:
    from deltalake import DeltaTable  # noqa: PLC0415 - an extra

    name = f"the Delta table {folder}"
    is_there = DeltaTable.is_deltatable(str(folder))
    wanted = None if schema is None else _converted(name, schema, is_new=not is_there)
    if not is_there:
        _create(folder, schema)
    table = DeltaTable(str(folder))
    _check_fit(table)
    if wanted is not None:
        check_columns(name, pa.schema(table.schema().to_arrow()), wanted)
    return table


def _converted(name: str, schema: pa.Schema, *, is_new: bool) -> pa.Schema:
    return converted(name, schema, _in_new_delta if is_new else _in_delta, is_new=is_new)


def _in_delta(schema: pa.Schema) -> pa.Schema:
    from deltalake import Schema  # noqa: PLC0415 - an extra

    there = pa.schema(Schema.from_arrow(schema).to_arrow())
    # deltalake would make the table with a feature that `_check_fit` refuses.
    if any("timestamp[ns" in str(field.type) for field in there):
        raise ValueError("Delta's timestamps are in microseconds")
    return there


def _in_new_delta(schema: pa.Schema) -> pa.Schema:
    there = _in_delta(schema)
    # deltalake would make the table without the feature that it needs, and then could not read it.
    if _has_local_time_in_map(there):
        raise ValueError("deltalake makes no table with timestamps without a zone in a map")
    return there


def _has_local_time_in_map(schema: pa.Schema) -> bool:
    """Whether there is a timestamp without a zone in a map, at any depth."""
    maps = [field for _, field in fields_in(schema) if pa.types.is_map(field.type)]
    return any(pa.types.is_timestamp(each.type) and each.type.tz is None for _, each in fields_in(maps))


def _create(folder: Path, schema: pa.Schema | None) -> None:
    from deltalake import DeltaTable  # noqa: PLC0415 - an extra
    from deltalake.exceptions import DeltaError  # noqa: PLC0415

    if schema is None:
        raise NotASinkError(f"{folder} holds no Delta table; give DeltaSink a schema, and one is made")
    strange = sorted(path.name for path in folder.iterdir() if path.name != "_delta_log") if folder.is_dir() else []
    # Another process may have made the table, and written to it, between the two looks.
    if (strange or folder.is_file()) and not DeltaTable.is_deltatable(str(folder)):
        raise NotASinkError(f"{folder} is no Delta table and not empty (it holds {', '.join(strange[:3]) or 'a file'})")
    try:
        make_folders(folder, folder.parent)
        DeltaTable.create(str(folder), schema)
    except (DeltaError, OSError) as error:
        if not DeltaTable.is_deltatable(str(folder)):
            raise SinkWriteError(f"cannot make the Delta table {folder}: {error}") from error


def _has_rule(field: pa.Field) -> bool:
    return any(_UNFIT_COLUMN.match(name.decode()) for name in field.metadata or ())


def _check_fit(table: DeltaTable) -> None:
    """Files are added past Delta's own writer, which would see to what is refused here."""
    protocol, metadata = table.protocol(), table.metadata()
    features = set(protocol.writer_features or ()) - _SAFE_FEATURES
    columns = [".".join(path) for path, field in fields_in(pa.schema(table.schema().to_arrow())) if _has_rule(field)]
    problems = [
        *(f"the feature {name}" for name in sorted(features)),
        *(f"the setting {name}" for name in metadata.configuration if _UNFIT_SETTING.fullmatch(name)),
        *(f"the partition column {name}" for name in metadata.partition_columns),
        *(f"a rule for the column {name}" for name in columns),
    ]
    # From 7 on a table names its features; 3 to 6 stand for constraints, generated columns, column mapping and so on.
    if 2 < protocol.min_writer_version < 7:
        problems.append(f"writer version {protocol.min_writer_version}")
    if problems:
        raise NotASinkError(f"the Delta table {table.table_uri} cannot be a sink: it has {', '.join(problems)}")
