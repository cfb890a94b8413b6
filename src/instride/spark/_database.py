"""A table of a database as the pipeline's sink, by Python's DB-API: PostgreSQL, and SQLite.

Laws
1. Executors put rows into a staging table beside the table: no reader looks there. A commit is one transaction for each
   range, which sets the offset reached and moves the range's rows from the staging table into the table.
2. The first statement of a commit compares and sets, and locks the partition's row until the transaction ends: of two
   drivers one waits, and then finds the offset moved. So a driver that was stopped cannot write when it goes on.
3. A driver that stops within a transaction holds its lock no longer than `transaction_timeout`: then the server ends
   that transaction (PostgreSQL; SQLite cannot).
4. A commit deletes the staged rows that it has moved, and must find as many as the tasks reported. So the staging table
   may be one that does not outlive a crash of the server: the range is then worked on again. No row joins those of a
   write that has ended, so what is there to be deleted was there when it was moved.
5. Staged rows that no commit can take any more (the partition's offset has passed their start) are deleted by a commit
   of their partition: all by a driver's first and each thousandth after it, and by the others those from the start of
   the driver's last range on. So those pass the index's entries of two ranges, and not those of all rows that any
   transaction may still see. A commit in conflict deletes its own job's. Staged rows belong to a sink, that is a table
   by its name and a table of offsets: no sink moves or deletes those of another, whose offsets it does not know.
6. PostgreSQL stages values as text, and reads them at the commit, by the types that the table's columns have then. So
   nothing is left of the types that they had when the staging table was made. Values that it would read as something
   else are sent in another way, or refused, where they are staged (`_database_values`). A stage's name tells by which
   types that was decided, and a commit by others that matter asks for the range again. PostgreSQL's transactions are
   READ COMMITTED, whatever `connect` or the server has as default: a snapshot that was taken before a migration ended
   would show the types from before it.
"""

# ruff: noqa: S608 - names are checked and quoted, and values go apart from their statements

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import pickletools
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from instride.errors import ConfigError, MissingDataError, NotASinkError, SinkError, SinkWriteError, WrongTopicError
from instride.errors._quoting import counted, one_line
from instride.records import TopicPartition
from instride.spark._database_values import forms_of, values_for, with_structs
from instride.spark._functions import pickle_function, unpickled
from instride.spark.sink import CommitOutcome, CommitStatus, FileInfo, JobResult, OutputRange, WrittenRange

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DatabaseSink", "DatabaseWriter"]

_log = logging.getLogger(__name__)

_OFFSETS: Final = "instride_sink_offsets"
_OLD_OFFSETS: Final = "instride_offsets"
_KEPT: Final = 4
"""Idle connections of a process."""
_SWEPT_EACH: Final = 1000
"""Commits of a partition by a driver: law 5."""
_LONGEST_TIMEOUT: Final = 2_147_483
"""Seconds: PostgreSQL has milliseconds, in 32 bits."""
_LONGEST_NAME: Final = 63
"""Of PostgreSQL, which cuts longer ones off."""
_KEYS: Final = {
    "instride_sink": "text",
    "instride_topic": "text",
    "instride_partition": "integer",
    "instride_start": "bigint",
    "instride_stage": "text",
}
"""Columns of the staging table, before the table's own: whose a row is."""
_POSTGRESQL_WORDS: Final = {"text": "text", "unlogged": "UNLOGGED ", "if_not_exists": "IF NOT EXISTS "}
_SQLITE_WORDS: Final = {"text": "", "unlogged": "", "if_not_exists": ""}
"""A column without a type keeps values as they are."""
_COLUMNS_OF: Final = (
    # CAST cuts what is too long for a type with a length, or for a domain over one, but an INSERT refuses it. "-1"
    # gives names without a length; NULL would give "character", which has the length 1.
    "WITH RECURSIVE found AS ("
    "SELECT attname, atttypid AS type FROM pg_attribute "
    "WHERE attrelid = CAST(? AS regclass) AND attnum > 0 AND NOT attisdropped "
    "UNION ALL SELECT attname, typbasetype FROM found JOIN pg_type ON oid = type WHERE typtype = 'd') "
    "SELECT CAST(attname AS text), format_type(type, -1) FROM found JOIN pg_type ON oid = type WHERE typtype <> 'd'"
)
_READ_AS: Final = (
    # As above, but with lengths, and of an array of a domain the type below the domain: values are read as that.
    "WITH RECURSIVE found AS ("
    "SELECT attname, atttypid AS type, atttypmod AS length, '' AS listed FROM pg_attribute "
    "WHERE attrelid = CAST(? AS regclass) AND attnum > 0 AND NOT attisdropped "
    "UNION ALL SELECT attname, CASE typtype WHEN 'd' THEN typbasetype ELSE typelem END, "
    "CASE typtype WHEN 'd' THEN typtypmod ELSE length END, CASE typtype WHEN 'd' THEN listed ELSE '[]' END "
    "FROM found JOIN pg_type ON oid = type WHERE typtype = 'd' OR typcategory = 'A') "
    "SELECT CAST(attname AS text), format_type(type, length) || listed FROM found JOIN pg_type ON oid = type "
    "WHERE typtype <> 'd' AND typcategory <> 'A'"
)
_REFUSED: Final = frozenset({"ProgrammingError", "IntegrityError", "DataError", "NotSupportedError"})
"""DB-API's classes of errors that come again when the same is tried again."""
_UNENCODED: Final = re.compile(r"postgres(ql)?://[^@]*[@/?#].*@", re.DOTALL)
"""A URI with an @, / or the like in its user and password."""
_GONE: Final = ("42P01", "42703", "3F000", "no such table", "no such column", "has no column named")
"""What tells that a table, a column or a schema is not there: PostgreSQL's SQLSTATE, and SQLite's words."""


class DatabaseSink:
    """A table to which any number of drivers commit, each offset exactly once: rows and offsets in one transaction.

    connect: gives a new connection of a DB-API driver, for PostgreSQL (psycopg) or SQLite (with
        `check_same_thread=False`): `functools.partial(psycopg.connect, "dbname=made")`. It is called in the driver and
        on the executors, which are sent it, with what secrets it holds.
    table: its name, as it is in the database's catalogue, with or without the schema: "made.sizes". It must be there,
        and drivers that share it must name it alike: offsets are kept by that name.
    columns: those that the function's results are written to; what a result lacks is null.
    on_conflict: for rows that are there already: "(flight) DO UPDATE SET delay = excluded.delay", or "DO NOTHING".
    offsets_table: where the offsets reached are; it and the staging table (`staging_table`) are made where they are not
        there, in the table's schema. It cannot be a `DatabaseStore`'s. Sinks with offsets of their own write to one
        table independently of each other, each offset once for each of them.
    transaction_timeout: seconds after which PostgreSQL ends the transaction of a driver that stopped within it.

    Implements `instride.spark.sink.Sink`; thread-safe. Raises ConfigError, and what pickling `connect` raises. Methods
    raise NotASinkError where the tables do not fit, SinkWriteError where the database cannot be reached.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        table: str,
        *,
        columns: Sequence[str],
        on_conflict: str = "",
        offsets_table: str = _OFFSETS,
        transaction_timeout: float = 30.0,
    ) -> None:
        if not callable(connect):
            raise ConfigError("connect must be a function that gives a new connection of a DB-API driver")
        if isinstance(columns, str) or not columns:
            raise ConfigError('columns must be a list of the table\'s columns, such as ["offset", "size"]')
        if "?" in on_conflict:
            raise ConfigError("on_conflict must hold no question mark")
        # Nor NaN, of which no comparison is true.
        is_number = isinstance(transaction_timeout, int | float) and not isinstance(transaction_timeout, bool)
        if not is_number or not 0 < transaction_timeout <= _LONGEST_TIMEOUT:
            raise ConfigError(
                f"transaction_timeout must be above 0 seconds, and {_LONGEST_TIMEOUT:,} at most; it is "
                f"{transaction_timeout!r}"
            )
        _quoted(table)
        self.table = table
        self.staging_table = _beside(table, _staging(table))
        self._columns = tuple(map(_checked, columns))
        self._on_conflict = on_conflict
        self._offsets = _quoted(_beside(table, offsets_table))
        self._identity = f"{_quoted(table)} {self._offsets}"
        # 0 would mean: for ever.
        self._database = _Database(pickle_function(connect), max(1, round(transaction_timeout * 1000)))
        self._ready = False
        self._swept: dict[TopicPartition, _Swept] = {}

    def positions(
        self, partitions: Iterable[TopicPartition], *, topic_ids: Mapping[str, str] | None = None
    ) -> dict[TopicPartition, int | None]:
        """The offset reached in each partition, or None where the database holds nothing of it."""
        found: dict[TopicPartition, int | None] = {}
        with self._transaction() as transaction:
            for partition in partitions:
                row = self._reached(transaction, partition, (topic_ids or {}).get(partition.topic, ""))
                found[partition] = None if row is None else row.end
        return found

    def begin(self, partition: TopicPartition, offset: int, *, topic_id: str = "") -> int:
        """Where the database holds nothing of the partition, its output begins at this offset."""
        with self._transaction() as transaction:
            self._insert(transaction, partition, offset, "", topic_id)
            row = self._reached(transaction, partition, topic_id)
        return row.end if row is not None else offset

    def writer(self) -> DatabaseWriter:
        """The executors' half, picklable. The tables are there from here on."""
        self._prepare()
        return DatabaseWriter(self._database, self.table, self.staging_table, self._identity, self._columns)

    def commit(self, job: JobResult) -> dict[TopicPartition, CommitOutcome]:
        """Compare and set, for each range of the job, each in a transaction of its own.

        Raises MissingDataError where staged rows are not there, SinkWriteError where it is not known what became of a
        transaction (then call again), SinkError where the table refuses a row.
        """
        outcomes: dict[TopicPartition, CommitOutcome] = {}
        errors: list[SinkError] = []
        for written in job.written:
            try:
                outcomes[written.range.topic_partition] = self._commit(job.job, written)
            except SinkError as error:
                problem = self._with_columns(error, written)
                problem.add_note(f"while job {job.job} committed {written.range}")
                errors.append(problem)
        if errors:
            raise errors[0]
        return outcomes

    def __repr__(self) -> str:
        return f"DatabaseSink({self.table!r})"

    # -- one range

    def _commit(self, job: str, written: WrittenRange) -> CommitOutcome:
        wanted = written.range
        with self._transaction() as transaction:
            moved = self._moved(transaction, job, wanted)
            if moved:
                self._take(transaction, written)
            else:
                row = self._reached(transaction, wanted.topic_partition, wanted.topic_id)
                if row is not None and row.end > wanted.start:
                    self._drop(transaction, written)
        if moved:
            since = self._swept_from(written)
            commits = self._swept[wanted.topic_partition].commits + 1 if since else 1
            self._swept[wanted.topic_partition] = _Swept(wanted.start, commits)
            return CommitOutcome(status=CommitStatus.COMMITTED, position=wanted.end)
        if row is None:
            raise SinkWriteError(f"{self!r}: the offset of {wanted.topic_partition} was deleted meanwhile")
        if (row.job, row.end) == (job, wanted.end):
            return CommitOutcome(status=CommitStatus.ALREADY, position=row.end)
        _log.warning("the sink is at offset %d, so job %s drops %s", row.end, job, wanted)
        return CommitOutcome(status=CommitStatus.CONFLICT, position=row.end)

    def _moved(self, transaction: _Transaction, job: str, wanted: OutputRange) -> bool:
        """Compare and set (law 2). Where there is nothing yet, any start is right."""
        # An id that is known goes into a row that has none, and must be that of a row that has one.
        known = (wanted.topic_id,) if wanted.topic_id else ()
        moved = transaction.run(
            f"UPDATE {self._offsets} SET reached = ?, job = ?{', topic_id = ?' if known else ''} "
            'WHERE sink = ? AND topic = ? AND "partition" = ? AND reached = ?'
            + (" AND topic_id IN ('', ?)" if known else ""),
            (wanted.end, job, *known, self.table, wanted.topic, wanted.partition, wanted.start, *known),
        )
        return bool(moved) or self._insert(transaction, wanted.topic_partition, wanted.end, job, wanted.topic_id)

    def _take(self, transaction: _Transaction, written: WrittenRange) -> None:
        """Laws 4 and 5."""
        wanted, staged = written.range, _quoted(self.staging_table)
        mine = (self._identity, wanted.topic, wanted.partition)
        of_partition = "WHERE instride_sink = ? AND instride_topic = ? AND instride_partition = ?"
        of_file = f"{of_partition} AND instride_start = ? AND instride_stage = ?"
        put, conflict = self._put(transaction, written) if written.files else ("", "")
        for file in written.files:
            place = (*mine, wanted.start, file.path)
            transaction.run(f"{put} FROM {staged} {of_file}{conflict}", place)
            count = transaction.run(f"DELETE FROM {staged} {of_file}", place)
            if count != file.rows:
                raise MissingDataError(
                    f"a task staged {counted(file.rows, 'row')} of {wanted} in {self.staging_table}, but "
                    f"the server has {count}. Did it crash meanwhile? Do driver and executors connect to the same one?"
                )
        within = "AND instride_start >= ? AND instride_start < ?"
        transaction.run(f"DELETE FROM {staged} {of_partition} {within}", (*mine, self._swept_from(written), wanted.end))

    def _swept_from(self, written: WrittenRange) -> int:
        """Law 5."""
        swept = self._swept.get(written.range.topic_partition)
        if swept is None or swept.commits >= _SWEPT_EACH:
            return 0
        # The least of the two: somebody may have set the offset back.
        return min(swept.start, written.range.start)

    def _drop(self, transaction: _Transaction, written: WrittenRange) -> None:
        """No commit can take these any more."""
        wanted = written.range
        for file in written.files:
            transaction.run(
                f"DELETE FROM {_quoted(self.staging_table)} WHERE instride_sink = ? AND instride_topic = ? "
                "AND instride_partition = ? AND instride_start = ? AND instride_stage = ?",
                (self._identity, wanted.topic, wanted.partition, wanted.start, file.path),
            )

    def _put(self, transaction: _Transaction, written: WrittenRange) -> tuple[str, str]:
        """What stands before and after the FROM of the statement that moves staged rows: law 6."""
        table, names = _quoted(self.table), list(map(_quoted_part, self._columns))
        values = names
        if not transaction.is_sqlite:
            # Takes the lock of the INSERT, and does no more: the types stay as they are until the transaction ends. A
            # weaker lock first would let a migration come between, and each wait for the other. LOCK TABLE takes no
            # foreign table, and asks for more than the privilege to INSERT into these columns.
            transaction.run(
                f"EXPLAIN INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(['NULL'] * len(names))}"
            )
            types = transaction.columns(table)
            gone = [name for name in self._columns if name not in types]
            if gone:
                self._ready = False
                raise SinkError(f"{self!r}: the table has no columns {', '.join(gone)} any more")
            forms = forms_of(transaction.read_as(table), self._columns)
            if not all(file.path.endswith(f"-{forms}") for file in written.files):
                raise MissingDataError(
                    f"the rows of {written.range} were staged for columns of other types than {self.table} has now"
                )
            values = [f"CAST({_quoted_part(name)} AS {types[name]})" for name in self._columns]
        conflict = f" ON CONFLICT {self._on_conflict}" if self._on_conflict else ""
        put = f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)}"
        return transaction.literal(put), transaction.literal(conflict)

    def _with_columns(self, error: SinkError, written: WrittenRange) -> SinkError:
        """The error of a value that a column's type refuses, with the column: PostgreSQL tells the value only."""
        # By the class of the SQLSTATE: data exceptions.
        if not str(getattr(error.__cause__, "sqlstate", "")).startswith("22"):
            return error
        refuses = (
            "bool_or(NOT pg_input_is_valid({}, (SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = CAST(? AS regclass) AND attname = ?)))"
        )
        asked = ", ".join(refuses.format(_quoted_part(name)) for name in self._columns)
        types_of = [value for name in self._columns for value in (_quoted(self.table), name)]
        place = "instride_sink = ? AND instride_topic = ? AND instride_partition = ? AND instride_start = ?"
        of_range = (self._identity, written.range.topic, written.range.partition, written.range.start)
        # That function is PostgreSQL 16's. Without it, or without a connection, the error stays as it is.
        with contextlib.suppress(SinkError), self._database.transaction() as transaction:
            transaction.run(f"SELECT {asked} FROM {_quoted(self.staging_table)} WHERE {place}", (*types_of, *of_range))
            names = [name for name, is_it in zip(self._columns, transaction.fetch(), strict=True) if is_it]
            if names:
                named = SinkError(f"{error} (column {', '.join(names)})")
                named.__cause__ = error.__cause__
                return named
        return error

    def _insert(
        self, transaction: _Transaction, partition: TopicPartition, reached: int, job: str, topic_id: str
    ) -> bool:
        """The first offset of a partition; False where there is one."""
        return bool(
            transaction.run(
                f'INSERT INTO {self._offsets} (sink, topic, "partition", reached, job, topic_id) '
                "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (self.table, partition.topic, partition.partition, reached, job, topic_id),
            )
        )

    def _reached(self, transaction: _Transaction, partition: TopicPartition, topic_id: str) -> _Reached | None:
        transaction.run(
            f'SELECT reached, job, topic_id FROM {self._offsets} WHERE sink = ? AND topic = ? AND "partition" = ?',
            (self.table, partition.topic, partition.partition),
        )
        row = transaction.fetch()
        if row is None:
            return None
        if row[2] and topic_id and row[2] != topic_id:
            raise WrongTopicError(
                f"the sink's {partition} is of a topic with id {row[2]}, but the id is now {topic_id}: the topic was "
                "deleted and made again, so its offsets mean other records. Write to another table."
            )
        return _Reached(row[0], row[1])

    # -- the tables

    @contextmanager
    def _transaction(self) -> Iterator[_Transaction]:
        self._prepare()
        try:
            with self._database.transaction() as transaction:
                yield transaction
        except SinkError as error:
            # The next call looks again. Not after every error: what it looks at, all partitions' calls would.
            if _tells_of_what_is_gone(error):
                self._ready = False
            raise

    def _prepare(self) -> None:
        """Several threads may do it at once, as several drivers may: a connection that hangs holds up its own only."""
        if self._ready:
            return
        self._ensure(_quoted(self.table), self._columns)
        self._check_renamed()
        self._ensure(
            self._offsets,
            ("sink", "topic", "partition", "reached", "job", "topic_id"),
            lambda _: (
                f"CREATE TABLE IF NOT EXISTS {self._offsets} (sink text, topic text, "
                '"partition" integer, reached bigint NOT NULL, job text NOT NULL, topic_id text NOT NULL, '
                'PRIMARY KEY (sink, topic, "partition"))',
            ),
            "Is it of something else, such as a DatabaseStore's? offsets_table= gives it another name",
        )
        self._ensure(_quoted(self.staging_table), (*_KEYS, *self._columns), self._staging_statements)
        self._ready = True

    def _check_renamed(self) -> None:
        """Versions before kept offsets in another table by default: without them all rows would be written again."""
        old = _quoted(_beside(self.table, _OLD_OFFSETS))
        is_default = self._offsets == _quoted(_beside(self.table, _OFFSETS))
        if is_default and not self._has_offsets(self._offsets) and self._has_offsets(old):
            raise NotASinkError(
                f"{self!r}: its offsets are in {old}, where versions before kept them, and not in {self._offsets}. "
                f'Rename the table (ALTER TABLE {old} RENAME TO {_OFFSETS}), or give offsets_table="{_OLD_OFFSETS}"'
            )

    def _has_offsets(self, table: str) -> bool:
        """False where it is no sink's, too."""
        try:
            with self._database.transaction() as transaction:
                transaction.run(f"SELECT reached, job, topic_id FROM {table} WHERE sink = ?", (self.table,))
                return transaction.fetch() is not None
        except SinkError as error:
            if error.retriable and not _tells_of_what_is_gone(error):
                raise
            return False

    def _staging_statements(self, lacking: Sequence[str]) -> Sequence[str]:
        """Those that make it; where it was made by a sink with fewer columns, those that add what it lacks."""
        staged, of_text = _quoted(self.staging_table), [f"{_quoted_part(each)} {{text}}" for each in self._columns]
        if not set(_KEYS) & set(lacking):
            added = [column for name, column in zip(self._columns, of_text, strict=True) if name in lacking]
            return [f"ALTER TABLE {staged} ADD COLUMN {{if_not_exists}}{column}" for column in added]
        keys = [f"{name} {kind}" for name, kind in _KEYS.items()]
        indexed = ", ".join(each for each in _KEYS if each != "instride_stage")
        return [
            # UNLOGGED: law 4.
            f"CREATE {{unlogged}}TABLE IF NOT EXISTS {staged} ({', '.join([*keys, *of_text])})",
            f"CREATE INDEX IF NOT EXISTS {{of_index}}{_quoted_part(_index(self.table))} "
            f"ON {{of_table}}{_quoted_part(_staging(self.table))} ({indexed})",
        ]

    def _words(self, *, is_sqlite: bool) -> dict[str, str]:
        schema = self.table.rpartition(".")[0]
        schema = f"{_quoted(schema)}." if schema else ""
        # Of an index SQLite wants the schema before its own name, and PostgreSQL before that of the table.
        if is_sqlite:
            return {**_SQLITE_WORDS, "of_index": schema, "of_table": ""}
        return {**_POSTGRESQL_WORDS, "of_index": "", "of_table": schema}

    def _ensure(
        self,
        table: str,
        columns: Sequence[str],
        statements: Callable[[Sequence[str]], Sequence[str]] = lambda _: (),
        advice: str = "",
    ) -> None:
        """Whoever may not make tables is content with those that are there. Another may make them meanwhile.

        statements: for the columns that it lacks, which are all where it is not there.
        """
        unfit = self._unfit(table, columns)
        if unfit is None:
            return
        made, problem = self._make(statements(unfit.lacking))
        unfit = self._unfit(table, columns)
        if unfit is None:
            return
        cause = problem or unfit.cause
        if cause.retriable:
            raise cause
        # Who may make tables can do it for this program.
        tried = f"Tried: {'; '.join(made)}" if problem and made else ""
        told = ". ".join(filter(None, (f"{table} does not fit, or is not there: {cause}", advice, tried)))
        raise NotASinkError(f"{self!r}: {told}") from cause

    def _unfit(self, table: str, columns: Sequence[str]) -> _Unfit | None:
        """By what the database tells of it: SQLite takes the name of a column that is not there for a text."""
        try:
            with self._database.transaction() as transaction:
                there = transaction.columns(table)
        except SinkError as error:
            return _Unfit(columns, error)
        lacking = [name for name in columns if name not in there]
        if lacking:
            return _Unfit(lacking, SinkError(f"it has no columns {', '.join(lacking)}"))
        is_staging = table == _quoted(self.staging_table)
        typed = [name for name in self._columns if is_staging and there[name] not in ("", "text")]
        if typed:
            told = f"its columns {', '.join(typed)} are not of type text: drop it while no pipeline runs"
            return _Unfit((), SinkError(told))
        return None

    def _make(self, statements: Sequence[str]) -> tuple[list[str], SinkError | None]:
        """Gives what it has tried, too."""
        tried: list[str] = []
        try:
            with self._database.transaction() as transaction:
                words = self._words(is_sqlite=transaction.is_sqlite)
                tried = [each.format_map(words) for each in statements]
                if not transaction.is_sqlite:
                    # To add a column waits for those who write to the table, and others wait behind it.
                    transaction.run(f"SET LOCAL lock_timeout = {self._database.timeout}")
                for each in tried:
                    transaction.run(each)
        except SinkError as error:
            return tried, error
        return tried, None


@dataclass(frozen=True, slots=True)
class _Unfit:
    """Why a table does not fit. lacking: columns that may be added."""

    lacking: Sequence[str]
    cause: SinkError


@dataclass(frozen=True, slots=True)
class DatabaseWriter:
    """The executors' half: puts rows into the staging table. Picklable; a process keeps its connections."""

    database: _Database = field(repr=False)
    table: str
    staging_table: str
    identity: str
    columns: tuple[str, ...]

    def write(self, output: OutputRange, *, job: str, attempt: int, batches: Iterator[pa.RecordBatch]) -> WrittenRange:
        """Stage one range's rows, each batch in a transaction of its own. Raises SinkError for other columns than the
        table's, for values that cannot be sent, and for those that the table would hold otherwise; SinkWriteError.
        """
        # The token: two writes share no rows, not even two of one attempt.
        stage, rows, nbytes = f"{job}-{attempt}-{uuid.uuid4().hex[:12]}", 0, 0
        types: dict[str, str] = {}
        for batch in batches:
            unknown = sorted(set(batch.schema.names) - set(self.columns))
            if unknown:
                raise SinkError(f"the sink has no columns {', '.join(unknown)}: it has {', '.join(self.columns)}")
            if not types:
                types = self._types()
                stage = f"{stage}-{forms_of(types, self.columns)}"
            place = (self.identity, output.topic, output.partition, output.start, stage)
            values = [
                values_for(name, batch.column(name), types.get(name, ""))
                if name in batch.schema.names
                else [None] * batch.num_rows
                for name in self.columns
            ]
            rows_at = [(*place, *row) for row in zip(*values, strict=True)]
            try:
                with self.database.transaction() as transaction:
                    transaction.put(_quoted(self.staging_table), (*_KEYS, *self.columns), rows_at)
            except SinkError as error:
                raise with_structs(error, batch.schema) from error.__cause__
            rows, nbytes = rows + batch.num_rows, nbytes + batch.nbytes
        file = FileInfo(path=stage, rows=rows, bytes=nbytes, attempt=attempt)
        return WrittenRange(range=output, files=(file,) if rows else ())

    def _types(self) -> dict[str, str]:
        """Of the table's columns. In a transaction of its own, which waits for no values to be made ready."""
        with self.database.transaction() as transaction:
            return transaction.read_as(_quoted(self.table))


@dataclass(frozen=True, slots=True)
class _Swept:
    """start: of the last range. commits: since all was deleted, with that one."""

    start: int
    commits: int


@dataclass(frozen=True, slots=True)
class _Reached:
    end: int
    job: str


class _Transaction:
    """Statements with "?" for what is to be put in."""

    def __init__(self, cursor: Any, *, is_sqlite: bool) -> None:
        self.is_sqlite = is_sqlite
        self._cursor = cursor
        if self.is_sqlite:
            # Else two that began by reading would each wait for the other.
            self._cursor.execute("BEGIN IMMEDIATE")
        else:
            # Law 6.
            self._cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")

    def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        """How many rows it changed."""
        self._cursor.execute(self._marked(statement), tuple(values))
        return int(self._cursor.rowcount)

    def columns(self, table: str) -> dict[str, str]:
        """With the names of their types: a domain's is that below it, and none has a length. SQLite: ""."""
        if self.is_sqlite:
            self._cursor.execute(f"SELECT * FROM {table} WHERE 1 = 0")
            return {each[0]: "" for each in self._cursor.description}
        self.run(_COLUMNS_OF, (table,))
        return dict(self._cursor.fetchall())

    def read_as(self, table: str) -> dict[str, str]:
        """As `columns`, with the types that values are read as: with their lengths, and without domains in arrays."""
        if self.is_sqlite:
            return self.columns(table)
        self.run(_READ_AS, (table,))
        return dict(self._cursor.fetchall())

    def fetch(self) -> Any:
        return self._cursor.fetchone()

    def put(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        names = ", ".join(map(_quoted_part, columns))
        if hasattr(self._cursor, "copy"):  # psycopg's
            with self._cursor.copy(f"COPY {table} ({names}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
        elif rows:
            marks = ", ".join("?" * len(columns))
            self._cursor.executemany(self._marked(f"INSERT INTO {table} ({names}) VALUES ({marks})"), rows)

    def literal(self, text: str) -> str:
        """A user's piece of a statement."""
        # psycopg takes a single % for the begin of a placeholder.
        return text if self.is_sqlite else text.replace("%", "%%")

    def _marked(self, statement: str) -> str:
        return statement if self.is_sqlite else statement.replace("?", "%s")


@dataclass(frozen=True, slots=True)
class _Database:
    """Picklable. connect: the user's, pickled. timeout: milliseconds, law 3."""

    connect: bytes = field(repr=False)
    timeout: int

    @contextmanager
    def transaction(self) -> Iterator[_Transaction]:
        """Committed at its end; nothing of it is, where an error leaves it. Raises SinkError for the database's own."""
        try:
            connection = _take_connection(self)
            try:
                with closing(connection.cursor()) as cursor:  # SQLite's holds a lock while it is open
                    yield _Transaction(cursor, is_sqlite=_is_sqlite(connection))
                connection.commit()
            except BaseException:
                _end(connection)
                raise
        except Exception as error:
            problem = _translated(error)
            if problem is None:
                raise
            raise problem from error
        # Only here: after an error nobody knows what state it is in.
        _keep_connection(self, connection)

    def open(self) -> Any:
        connection = self._connected()
        if _is_sqlite(connection):
            # Python 3.12 and later: with True nothing is ever committed, with False BEGIN is refused for ever.
            if isinstance(getattr(connection, "autocommit", None), bool):
                _end(connection)
                raise ConfigError("connect must open SQLite without autocommit=: the sink begins its own transactions")
            return connection
        try:
            if getattr(connection, "autocommit", False) is True:
                connection.autocommit = False
            with closing(connection.cursor()) as cursor:
                cursor.execute(f"SET idle_in_transaction_session_timeout = {self.timeout}")
            # Or the next rollback would undo the SET.
            connection.commit()
        except BaseException:
            _end(connection)
            raise
        return connection

    def _connected(self) -> Any:
        connect = unpickled(self.connect)
        try:
            return connect()
        except Exception as error:
            problem = _translated(error)
            # Of a connection string that cannot be parsed a driver may quote all, with its password.
            is_unparsed = "ProgrammingError" in {kind.__name__ for kind in type(error).__mro__}
            if problem is None or not (is_unparsed or self._is_misread):
                raise
            raise type(problem)(
                f"connect raised {type(error).__name__}: is what it gives its driver a connection string, or a URI "
                "whose user and password are percent-encoded (@ is %40, / is %2F)? What the driver says is left out "
                "here, since a password may be in it"
            ) from None

    @property
    def _is_misread(self) -> bool:
        """Whether a URI is in `connect` of whose password a driver takes a part for the host, which it quotes."""
        texts = [text for _, text, _ in pickletools.genops(self.connect) if isinstance(text, str)]
        return any(_UNENCODED.search(text) for text in texts)


_idle: dict[tuple[int, _Database], list[Any]] = {}
"""By process: a child of a fork has none of its parent's."""
_idle_lock = threading.Lock()


def _take_connection(database: _Database) -> Any:
    """An idle one that still responds, or a new one."""
    while True:
        with _idle_lock:
            known = _idle.get((os.getpid(), database))
            connection = known.pop() if known else None
        if connection is None:
            return database.open()
        try:
            with closing(connection.cursor()) as cursor:
                cursor.execute("SELECT 1")
            # The SELECT has begun a transaction.
            connection.rollback()
        except Exception:  # noqa: BLE001 - whatever its driver raises: the next one is tried
            _end(connection)
        else:
            return connection


def _keep_connection(database: _Database, connection: Any) -> None:
    with _idle_lock:
        known = _idle.setdefault((os.getpid(), database), [])
        if len(known) < _KEPT:
            known.append(connection)
            return
    _end(connection)


def _end(connection: Any) -> None:
    with contextlib.suppress(Exception):
        connection.rollback()
    with contextlib.suppress(Exception):
        connection.close()


@atexit.register
def _end_all() -> None:
    for (pid, _), known in _idle.items():
        while pid == os.getpid() and known:
            _end(known.pop())


def _is_sqlite(connection: Any) -> bool:
    return any(kind.__module__.partition(".")[0] == "sqlite3" for kind in type(connection).__mro__)


def _translated(error: Exception) -> SinkError | None:
    """What a driver raised, by the names of DB-API's classes; None for other errors, which pass."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    # DB-API: the errors of every driver have a class `Error` above them.
    if isinstance(error, SinkError) or not (isinstance(error, OSError) or "Error" in kinds):
        return None
    told = one_line(f"{type(error).__name__}: {error}")
    return (
        SinkError(f"the database refuses it: {told}") if kinds & _REFUSED else SinkWriteError(f"the database: {told}")
    )


def _tells_of_what_is_gone(error: SinkError) -> bool:
    cause = error.__cause__
    # psycopg's name of the SQLSTATE, psycopg2's, and the text: pg8000 has it there.
    told = f"{getattr(cause, 'sqlstate', '')} {getattr(cause, 'pgcode', '')} {cause}"
    return any(each in told for each in _GONE)


def _checked(name: str) -> str:
    """Part of a name that can be quoted in any statement."""
    if not isinstance(name, str) or not name or set(name) & set('"%?{}') or len(name.encode()) > _LONGEST_NAME:
        raise ConfigError(f'{name!r} is no name of a table or column: 1 to {_LONGEST_NAME} bytes, without "%?{{}}')
    return name


def _quoted_part(name: str) -> str:
    return f'"{_checked(name)}"'


def _quoted(name: str) -> str:
    """With its schema."""
    return ".".join(map(_quoted_part, name.split(".")))


def _beside(table: str, name: str) -> str:
    """The name in the schema of the table."""
    schema, dot, _ = table.rpartition(".")
    return f"{schema}{dot}{name}"


def _staging(table: str) -> str:
    return _shortened(f"instride_rows_{table.rpartition('.')[2]}")


def _index(table: str) -> str:
    # Not instride_ranges_, which is that of a staging table that versions before have left.
    return _shortened(f"instride_keys_{table.rpartition('.')[2]}")


def _shortened(name: str) -> str:
    return name if len(name.encode()) <= _LONGEST_NAME else f"{name[:16]}{sha256(name.encode()).hexdigest()[:32]}"
