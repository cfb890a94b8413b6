"""What Spark is told of the columns of data files, and which files its own reader is given. No Spark runs here."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType

from instride.errors import SinkError
from instride.spark.parquet._schemas import together
from instride.spark.parquet._spark_types import spark_reads, spark_schema

STRUCT = pa.struct([("x", pa.uint8()), ("y", pa.list_(pa.float16()))])


def _schema(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("a", kind)])


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (pa.int32(), "int"),
        (pa.uint8(), "smallint"),
        (pa.uint16(), "int"),
        (pa.uint32(), "bigint"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.float16(), "float"),
        (pa.string_view(), "string"),
        (pa.binary_view(), "binary"),
        (pa.uuid(), "binary"),
        (pa.json_(), "string"),
        (pa.time32("ms"), "time(6)"),
        (pa.timestamp("ns", "UTC"), "timestamp"),
        (pa.null(), "void"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.list_(pa.uuid()), "array<binary>"),
        (pa.large_list(pa.uint8()), "array<smallint>"),
        (pa.list_(pa.uint16(), 2), "array<int>"),
        (pa.map_(pa.string_view(), STRUCT), "map<string,struct<x:smallint,y:array<float>>>"),
    ],
    ids=str,
)
def test_a_type_that_spark_lacks_becomes_the_next(kind: pa.DataType, told: str) -> None:
    assert spark_schema(_schema(kind)).simpleString() == f"struct<a:{told}>"


@pytest.mark.parametrize(
    ("kind", "wanted", "reads"),
    [
        (pa.int32(), pa.int32(), True),
        (pa.int8(), pa.int64(), True),
        (pa.int64(), pa.int32(), False),
        (pa.int64(), pa.float64(), False),
        (pa.float32(), pa.float64(), True),
        (pa.uint32(), pa.int64(), True),
        (pa.string_view(), pa.string(), True),
        (pa.uuid(), pa.uuid(), True),
        (pa.null(), pa.null(), True),
        (pa.null(), pa.string(), False),
        (pa.decimal128(5, 2), pa.decimal128(6, 2), False),
        (pa.timestamp("us"), pa.timestamp("us"), True),
        (pa.timestamp("ns"), pa.timestamp("us"), False),
        (pa.dictionary(pa.int8(), pa.timestamp("ns")), pa.timestamp("us"), False),
        (pa.duration("us"), pa.duration("us"), True),
        (pa.duration("ms"), pa.duration("us"), False),
        (pa.float16(), pa.float32(), False),
        (pa.time64("us"), pa.time64("us"), False),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), True),
        (pa.list_(pa.float16()), pa.list_(pa.float32()), False),
        (pa.map_(pa.string(), pa.null()), pa.map_(pa.string(), pa.int32()), False),
        (pa.struct([("x", pa.int32())]), pa.struct([("x", pa.int64()), ("y", pa.string())]), True),
        (pa.struct([("x", pa.int32())]), pa.struct([("x", pa.string())]), False),
        (pa.struct([("x", pa.int32())]), pa.struct([("y", pa.int32())]), False),
    ],
    ids=str,
)
def test_sparks_reader_is_given_what_it_reads(kind: pa.DataType, wanted: pa.DataType, reads: bool) -> None:
    """Each was tried with Spark 4.3: those with False gave an error or other values, or are not tried with any."""
    told = spark_schema(_schema(wanted))
    assert isinstance(told["a"].dataType, DataType)
    assert spark_reads(_schema(kind), told) is reads


@pytest.mark.parametrize("around", [lambda kind: kind, lambda kind: pa.list_(pa.struct([("x", kind)]))])
def test_decimals_that_are_too_wide_for_spark_are_told_by_their_column(
    around: Callable[[pa.DataType], pa.DataType],
) -> None:
    """Also those that PyArrow makes of two columns that Spark has. It was an ArithmeticException of the JVM."""
    both = together([_schema(around(pa.decimal128(38, 0))), _schema(around(pa.decimal128(10, 5)))])
    with pytest.raises(SinkError, match=r"the column a has decimals of more than 38 digits .*read_table"):
        spark_schema(both)
    assert spark_schema(_schema(around(pa.decimal128(38, 0))))


def test_names_within_a_struct_that_differ_in_case_are_not_for_sparks_reader() -> None:
    """It raised COLUMN_ALREADY_EXISTS."""
    odd = _schema(pa.list_(pa.struct([("b", pa.int32()), ("B", pa.int32())])))
    assert not spark_reads(odd, spark_schema(odd))


def test_a_file_may_lack_columns_and_have_no_others() -> None:
    wanted = spark_schema(pa.schema([("a", pa.int64()), ("b", pa.string())]))
    assert spark_reads(pa.schema([("b", pa.string())]), wanted)
    assert not spark_reads(pa.schema([("c", pa.string())]), wanted)
