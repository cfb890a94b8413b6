"""Places for the sinks' tests: each sink as a driver that starts anew makes it, and what a reader finds there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from instride.spark import DeltaSink, IcebergSink, ParquetSink
from instride.spark.contract import SCHEMA, SinkUnderTest
from instride.spark.parquet import read_table
from instride.spark.sink import Sink

__all__ = ["MAKERS", "READERS", "catalog", "delta", "iceberg", "parquet", "place"]


def catalog(folder: Path) -> SqlCatalog:
    folder.mkdir(exist_ok=True)
    return SqlCatalog("test", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")


def _parquet_sink(folder: Path, schema: pa.Schema) -> Sink:
    return ParquetSink(folder)


def _delta_sink(folder: Path, schema: pa.Schema) -> Sink:
    return DeltaSink(folder, schema=schema)


def _iceberg_sink(folder: Path, schema: pa.Schema) -> Sink:
    return IcebergSink(catalog(folder), "made.flights", schema=schema)


def _iceberg_table(folder: Path) -> pa.Table:
    return catalog(folder).load_table("made.flights").scan().to_arrow()


def _delta_table(folder: Path) -> pa.Table:
    return DeltaTable(str(folder)).to_pyarrow_table()


MAKERS: dict[str, Callable[[Path, pa.Schema], Sink]] = {
    "parquet": _parquet_sink,
    "delta": _delta_sink,
    "iceberg": _iceberg_sink,
}
READERS: dict[str, Callable[[Path], pa.Table]] = {
    "parquet": read_table,
    "delta": _delta_table,
    "iceberg": _iceberg_table,
}


def _rows(kind: str, folder: Path) -> list[tuple[int, int, str]]:
    return [(row["partition"], row["offset"], row["job"]) for row in READERS[kind](folder).to_pylist()]


def place(kind: str, folder: Path) -> SinkUnderTest:
    return SinkUnderTest(make=partial(MAKERS[kind], folder, SCHEMA), rows=partial(_rows, kind, folder))


parquet = partial(place, "parquet")
delta = partial(place, "delta")
iceberg = partial(place, "iceberg")
