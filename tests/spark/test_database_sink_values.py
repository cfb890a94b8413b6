"""Values of each of Arrow's types in columns of each of PostgreSQL's: the table holds them as they were, or refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from test_database_sink import commit, span

from instride.errors import SinkError
from instride.spark import DatabaseSink
from instride.spark.sink import WrittenRange

NOON = datetime(2026, 7, 1, 12, 0, 0, 5)  # noqa: DTZ001 - as a type without a zone
STRINGS, BYTES = pa.list_(pa.string()), pa.list_(pa.binary())
GIVEN: dict[str, pa.Array] = {
    "null": pa.nulls(1),
    "bool": pa.array([True]),
    "uint8": pa.array([255], pa.uint8()),
    "int64": pa.array([-(2**40)]),
    "uint64": pa.array([2**64 - 1], pa.uint64()),
    "float32": pa.array([0.5], pa.float32()),
    "float64": pa.array([-0.25]),
    "whole float": pa.array([5.0]),
    "decimal": pa.array([Decimal("12.25")]),
    "string": pa.array(["a\\101b"]),
    "string with NUL": pa.array(["a\0b"]),
    "string view with NUL": pa.array(["a\0b"], pa.string_view()),
    "strings with NUL of a dictionary": pa.array(["a\0b"]).dictionary_encode(),
    "runs of strings": pc.run_end_encode(pa.array(["DL1"])),
    "runs of strings with NUL": pc.run_end_encode(pa.array(["a\0b"])),
    "number's string": pa.array(["7"]),
    "json's string": pa.array(['{"a": [1, "\\u00e9"]}']),
    "large string": pa.array(["DL1"], pa.large_string()),
    "string view": pa.array(["DL1"], pa.string_view()),
    "strings of a dictionary": pa.array(["DL1"]).dictionary_encode(),
    "binary": pa.array([b"DL1"]),
    "large binary": pa.array([b"DL1"], pa.large_binary()),
    "binary view": pa.array([b"DL1"], pa.binary_view()),
    "fixed binary": pa.array([b"DL1"], pa.binary(3)),
    "binaries of a dictionary": pa.array([b"DL1"]).dictionary_encode(),
    "json's binary": pa.array([b'{"a": 1}']),
    "number's binary": pa.array([b"7"]),
    "binary with NUL": pa.array([b"a\0b"]),
    "binary, no UTF-8": pa.array([b"\\x\xff"]),
    "date": pa.array([date(2026, 7, 1)]),
    "time": pa.array([time(1, 2, 3, 5)]),
    "timestamp": pa.array([NOON]),
    "timestamp of UTC": pa.array([NOON.replace(tzinfo=UTC)], pa.timestamp("us", tz="UTC")),
    "timestamp of a zone": pa.array([NOON.replace(tzinfo=UTC)], pa.timestamp("us", tz="Europe/Berlin")),
    "timestamp of Zulu": pa.array([NOON.replace(tzinfo=UTC)], pa.timestamp("us", tz="Zulu")),
    "timestamp of London": pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", tz="Europe/London")),
    "duration": pa.array([timedelta(hours=1, microseconds=5)]),
    "interval": pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    "list": pa.array([["a\\b", None, "NULL", ""]]),
    "list with NUL": pa.array([["a", "a\0b"]]),
    "list of escapes": pa.array([[b"a\\101b"]]),
    "list of binary": pa.array([[b"DL1", None]]),
    "list of binary, no UTF-8": pa.array([[b"\xff"]]),
    "list of bool": pa.array([[True, False, None]]),
    "list of int": pa.array([[1, None]]),
    "list of none": pa.array([[]], STRINGS),
    "list of none of binary": pa.array([[]], BYTES),
    "lists": pa.array([[["a", "b"], ["c", "d"]]]),
    "lists of none": pa.array([[[], []]], pa.list_(STRINGS)),
    "map": pa.array([[("k", "v")]], pa.map_(pa.string(), pa.string())),
    "map of none": pa.array([[]], pa.map_(pa.string(), pa.string())),
    "struct": pa.array([{"a": 1}]),
}
COLUMNS = (
    *("text", "varchar(40)", "bytea", "octets", "boolean", "bigint", "numeric", "double precision", "jsonb"),
    *("date", "time", "timestamp", "timestamptz", "interval", "text[]", "bytea[]", "octets[]", "boolean[]"),
    *("bigint[]", "varchar(1)", "varchar(1)[]"),
)
AS_ANY_INSERT = {
    ("uint64", "double precision"),
    *((each, column) for each in GIVEN if each.startswith("timestamp") for column in ("date", "time")),
    *((each, "timestamptz") for each in ("timestamp", "date")),
    ("date", "timestamp"),
    ("duration", "time"),
    *((each, "interval") for each in ("time", "number's string", "number's binary")),
    *((f"timestamp of {zone}", "timestamp") for zone in ("UTC", "Zulu")),
}
"""PostgreSQL rounds, takes a part, adds the session's zone, or leaves UTC out, whoever inserts."""


@pytest.fixture
def reader(postgres_database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        yield connection


def sink_of(reader: psycopg.Connection[Any], uri: str, column: str) -> DatabaseSink:
    reader.execute(f"CREATE TABLE held (value {column})")
    # psycopg reads no array of a domain.
    reader.execute(f"CREATE VIEW seen AS SELECT CAST(value AS {column.replace('octets', 'bytea')}) AS value FROM held")
    return DatabaseSink(partial(psycopg.connect, uri), "held", columns=["value"])


def put(sink: DatabaseSink, at: int, array: pa.Array) -> WrittenRange:
    batch = pa.record_batch({"value": array})
    return sink.writer().write(span(at, at + len(array)), job="j", attempt=0, batches=iter([batch]))


def held(reader: psycopg.Connection[Any], sink: DatabaseSink, at: int, array: pa.Array) -> list[Any] | None:
    """What a reader finds; None: it was refused."""
    try:
        assert commit(sink, "j", put(sink, at, array)).is_in
    except SinkError as error:
        if error.retriable:
            raise  # it would be tried again for ever
        return None
    found = [value for (value,) in reader.execute("SELECT value FROM seen").fetchall()]
    reader.execute("TRUNCATE held")
    return found


def said(value: Any, column: str = "") -> Any:
    """As a text."""
    if isinstance(value, bool):
        return str(value).lower()[: 1 if "(1)" in column else 5]
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def encoded(value: Any) -> Any:
    """As bytes."""
    if isinstance(value, list):
        return list(map(encoded, value))
    return value.encode() if isinstance(value, str) else value


def meant(value: Any, column: str) -> list[Any]:
    """What the column may hold for it."""
    if column.startswith(("bytea", "octets")):
        return [encoded(value)]
    if isinstance(value, list):
        return [value, [None if each is None else said(each, column) for each in value]]
    if value is None:
        return [None]
    if column.startswith("json"):
        return [json.loads(said(value))]
    if column == "boolean" and isinstance(value, str):
        return []
    return [value, said(value, column), *([int(said(value))] if said(value) == "7" else [])]


@pytest.mark.parametrize("column", COLUMNS)
def test_the_table_holds_a_value_as_it_was_or_refuses_it(
    column: str, reader: psycopg.Connection[Any], postgres_database: str
) -> None:
    reader.execute("CREATE DOMAIN octets AS bytea")
    sink, at, wrong = sink_of(reader, postgres_database, column), 0, list[str]()
    for name, array in GIVEN.items():
        found = held(reader, sink, at, array)
        at += found is not None
        if found is None or (name, column) in AS_ANY_INSERT:
            continue
        (value,) = array.to_pylist()
        if found[0] not in meant(value, column):
            wrong.append(f"{name} {value!r} is {found[0]!r}")
    assert not wrong
    assert at > 1, "all but null are refused"


TAKEN = [
    ("text", "binary", "DL1"),
    ("varchar(40)", "binaries of a dictionary", "DL1"),
    ("jsonb", "json's binary", {"a": 1}),
    ("bigint", "number's binary", 7),
    ("text[]", "list of binary", ["DL1", None]),
    ("text", "bool", "true"),
    ("text[]", "list of bool", ["true", "false", None]),
    ("octets", "binary, no UTF-8", b"\\x\xff"),
    ("bytea[]", "list of binary, no UTF-8", [b"\xff"]),
    ("octets[]", "list of escapes", [b"a\\101b"]),
    ("octets[]", "list of binary, no UTF-8", [b"\xff"]),
    ("char(1)", "bool", "t"),
    ("varchar(4)", "bool", "t"),
    ("varchar(5)", "bool", "true"),
    ("varchar(1)[]", "list of bool", ["t", "f", None]),
    ("timestamp(6)", "timestamp of Zulu", NOON),
    ("bytea", "strings of a dictionary", b"DL1"),
    ("text", "runs of strings", "DL1"),
]


@pytest.mark.parametrize(("column", "given", "value"), TAKEN, ids=[f"{each[1]} in {each[0]}" for each in TAKEN])
def test_a_value_is_what_was_meant(
    column: str, given: str, value: Any, reader: psycopg.Connection[Any], postgres_database: str
) -> None:
    """Bytes were written in hexadecimal digits, true as t, and into an array of a domain with escapes."""
    reader.execute("CREATE DOMAIN octets AS bytea")
    sink = sink_of(reader, postgres_database, column)
    assert held(reader, sink, 0, GIVEN[given]) == [value]


REFUSED = [
    ("text", "binary, no UTF-8", r"text does not take binary: .*not UTF-8 .*type bytea"),
    ("text[]", "list of binary, no UTF-8", r"text\[\] does not take list<.*binary>: .*not UTF-8"),
    ("bytea", "string", r"bytea does not take string: .*str\.encode"),
    ("octets", "bool", "bytea does not take bool: .*binary values"),
    ("octets[]", "list", r"bytea\[\] does not take list<.*binary values"),
    ("text", "binary with NUL", "text does not take binary: .*no NUL"),
    ("text", "string with NUL", "text does not take string: .*no NUL"),
    ("varchar(40)", "string view with NUL", r"character varying\(40\) does not take string_view: .*no NUL"),
    ("text", "strings with NUL of a dictionary", "text does not take dictionary<.*no NUL"),
    ("text", "runs of strings with NUL", "text does not take run_end_encoded<.*no NUL"),
    ("bytea", "string with NUL", r"bytea does not take string: .*str\.encode"),
    ("jsonb", "string with NUL", "jsonb does not take string: .*no NUL"),
    ("text[]", "list with NUL", r"text\[\] does not take list<.*no NUL"),
    ("time", "int64", "time without time zone does not take int64: .*does not tell its unit"),
    ("timestamp(3)", "uint8", r"timestamp\(3\) without time zone does not take uint8: .*does not tell its unit"),
    ("timestamptz", "float64", "timestamp with time zone does not take double: .*does not tell its unit"),
    ("timestamptz", "decimal", "timestamp with time zone does not take decimal.*does not tell its unit"),
    ("timestamp", "timestamp of London", "timestamp without time zone .*lose the zone"),
    ("bytea[]", "list", r"bytea\[\] does not take list<.*binary values"),
    ("jsonb", "list of none", "jsonb does not take list<.*json.dumps"),
    ("text", "list", "text does not take list<.*make it an array"),
    ("jsonb", "map of none", "jsonb does not take map<.*json.dumps"),
    ("text", "interval", "text does not take month_day_nano_interval: .*json.dumps"),
    ("text[]", "lists of none", r"text\[\] does not take list<.*no empty list"),
    ("timestamp", "timestamp of a zone", "timestamp without time zone .*lose the zone"),
    ("interval", "uint8", "interval does not take uint8: .*durations"),
]


@pytest.mark.parametrize(("column", "given", "told"), REFUSED, ids=[f"{each[1]} in {each[0]}" for each in REFUSED])
def test_what_would_be_read_as_something_else_is_refused_where_it_is_written(
    column: str, given: str, told: str, reader: psycopg.Connection[Any], postgres_database: str
) -> None:
    reader.execute("CREATE DOMAIN octets AS bytea")
    sink = sink_of(reader, postgres_database, column)
    with pytest.raises(SinkError, match=f"the table's column value of type {told}") as caught:
        put(sink, 0, GIVEN[given])
    assert not caught.value.retriable


@pytest.mark.parametrize(
    ("text", "value"), [("\\x", b""), ("\\x0aFF", b"\n\xff"), ("caf\u00e9", b"caf\xc3\xa9"), ("", b"")]
)
def test_a_text_is_taken_as_bytes_where_it_means_only_one(
    text: str, value: bytes, reader: psycopg.Connection[Any], postgres_database: str
) -> None:
    sink = sink_of(reader, postgres_database, "bytea")
    assert held(reader, sink, 0, pa.array([text])) == [value]
    assert held(reader, sink, 1, pa.array([None], pa.string())) == [None]
    with pytest.raises(SinkError, match=r"bytea does not take string: .*str\.encode"):
        put(sink, 2, pa.array(["\\x0"]))


def test_a_struct_that_the_driver_does_not_take_is_told_with_its_column(
    reader: psycopg.Connection[Any], postgres_database: str
) -> None:
    sink = sink_of(reader, postgres_database, "jsonb")
    with pytest.raises(SinkError, match=r"dict.*structs in the columns value: .*json\.dumps") as caught:
        put(sink, 0, GIVEN["struct"])
    assert not caught.value.retriable
