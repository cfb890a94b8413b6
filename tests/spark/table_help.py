"""Places for the sinks' tests: each sink as a driver that starts anew makes it, and what a reader finds there.

What is slow to import is imported where it is used: some tests start processes that import this.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from s3_server import options_for

from instride.spark import DatabaseSink, DeltaSink, IcebergSink, ParquetSink
from instride.spark.contract import SCHEMA, SinkUnderTest
from instride.spark.parquet import read_table
from instride.spark.sink import Sink

if TYPE_CHECKING:
    import pytest
    from pyiceberg.catalog.sql import SqlCatalog

__all__ = ["MAKERS", "READERS", "catalog", "database_of", "delta", "iceberg", "parquet", "place", "ready", "table_in"]

URI = "postgres.uri"
ENDPOINT = "s3.endpoint"


def catalog(folder: Path) -> SqlCatalog:
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir(exist_ok=True)
    return SqlCatalog("test", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")


def _parquet_sink(folder: Path, schema: pa.Schema) -> Sink:
    return ParquetSink(folder)


def _in_s3(folder: Path) -> dict[str, Any]:
    """A prefix of a name of its own: one bucket serves many places."""
    options = options_for((folder.parent / ENDPOINT).read_text(encoding="utf-8"))
    return {"uri": f"s3://bucket/{table_in(folder)}", "storage_options": options}


def _s3_sink(folder: Path, schema: pa.Schema) -> Sink:
    place = _in_s3(folder)
    return ParquetSink(place["uri"], storage_options=place["storage_options"])


def _s3_table(folder: Path) -> pa.Table:
    place = _in_s3(folder)
    return read_table(place["uri"], storage_options=place["storage_options"])


def _delta_sink(folder: Path, schema: pa.Schema) -> Sink:
    return DeltaSink(folder, schema=schema)


def _iceberg_sink(folder: Path, schema: pa.Schema) -> Sink:
    return IcebergSink(catalog(folder), "made.flights", schema=schema)


def _iceberg_table(folder: Path) -> pa.Table:
    return catalog(folder).load_table("made.flights").scan().to_arrow()


def catalog_in_postgresql(folder: Path) -> SqlCatalog:
    """A catalogue of a name of its own: one database serves many places."""
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy import NullPool, create_engine

    folder.mkdir(exist_ok=True)
    uri = (folder.parent / URI).read_text(encoding="utf-8").replace("postgresql://", "postgresql+psycopg://", 1)
    made = SqlCatalog(table_in(folder), uri=uri, warehouse=f"file://{folder}")
    # Nobody closes a catalogue, so none is to keep a connection.
    made.engine.dispose()
    made.engine = create_engine(uri, poolclass=NullPool)
    return made


def _iceberg_sink_in_postgresql(folder: Path, schema: pa.Schema) -> Sink:
    return IcebergSink(catalog_in_postgresql(folder), "made.flights", schema=schema)


def _iceberg_table_in_postgresql(folder: Path) -> pa.Table:
    return catalog_in_postgresql(folder).load_table("made.flights").scan().to_arrow()


def _delta_table(folder: Path) -> pa.Table:
    from deltalake import DeltaTable

    return DeltaTable(str(folder)).to_pyarrow_table()


def ready(kind: str, request: pytest.FixtureRequest, folder: Path) -> None:
    """What the place below the folder needs: the server whose address it finds there."""
    if kind == "s3":
        (folder / ENDPOINT).write_text(request.getfixturevalue("s3").endpoint, encoding="utf-8")
    if kind in ("postgresql", "iceberg-postgresql"):
        (folder / URI).write_text(request.getfixturevalue("postgres_database"), encoding="utf-8")


def database_of(kind: str, folder: Path) -> Callable[[], Any]:
    """Opens connections, in any process."""
    if kind == "postgresql":
        import psycopg

        return partial(psycopg.connect, (folder.parent / URI).read_text(encoding="utf-8"))
    folder.mkdir(exist_ok=True)
    return partial(sqlite, str(folder / "flights.db"))


def sqlite(path: str, kind: type[sqlite3.Connection] = sqlite3.Connection) -> sqlite3.Connection:
    """Without a sync to the disk: nothing here crashes the machine."""
    connection = sqlite3.connect(path, check_same_thread=False, timeout=30, factory=kind)
    sqlite3.Connection.execute(connection, "PRAGMA synchronous = OFF")
    return connection


def table_in(folder: Path) -> str:
    """Its name: one database serves many places."""
    return f"flights_{sha256(str(folder).encode()).hexdigest()[:12]}"


def _database_sink(kind: str, folder: Path, schema: pa.Schema) -> Sink:
    connect, table = database_of(kind, folder), table_in(folder)
    names = {pa.int64(): "bigint", pa.int32(): "integer", pa.string(): "text"}
    names[pa.binary()] = "bytea" if kind == "postgresql" else "blob"
    columns = ", ".join(f'"{field.name}" {names[field.type]}' for field in schema)
    with closing(connect()) as connection:
        try:
            connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
            connection.commit()
        except Exception:
            # Another driver made it meanwhile: then it is there.
            connection.rollback()
            connection.execute(f"SELECT 1 FROM {table}")
    return DatabaseSink(connect, table, columns=schema.names, transaction_timeout=5.0)


def _database_table(kind: str, folder: Path) -> pa.Table:
    with closing(database_of(kind, folder)()) as connection:
        found = connection.execute(f"SELECT * FROM {table_in(folder)}")
        names = [each[0] for each in found.description]
        return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in found.fetchall()])


MAKERS: dict[str, Callable[[Path, pa.Schema], Sink]] = {
    "parquet": _parquet_sink,
    "s3": _s3_sink,
    "delta": _delta_sink,
    "iceberg": _iceberg_sink,
    "iceberg-postgresql": _iceberg_sink_in_postgresql,
    "sqlite": partial(_database_sink, "sqlite"),
    "postgresql": partial(_database_sink, "postgresql"),
}
READERS: dict[str, Callable[[Path], pa.Table]] = {
    "parquet": read_table,
    "s3": _s3_table,
    "delta": _delta_table,
    "iceberg": _iceberg_table,
    "iceberg-postgresql": _iceberg_table_in_postgresql,
    "sqlite": partial(_database_table, "sqlite"),
    "postgresql": partial(_database_table, "postgresql"),
}


def _rows(kind: str, folder: Path) -> list[tuple[int, int, str]]:
    return [(row["partition"], row["offset"], row["job"]) for row in READERS[kind](folder).to_pylist()]


def place(kind: str, folder: Path) -> SinkUnderTest:
    return SinkUnderTest(make=partial(MAKERS[kind], folder, SCHEMA), rows=partial(_rows, kind, folder))


parquet = partial(place, "parquet")
delta = partial(place, "delta")
iceberg = partial(place, "iceberg")
