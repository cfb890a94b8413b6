"""What a function returned is cast to a schema: no number becomes a time, a boolean or infinite, at any depth."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from instride.spark._functions import cast_to
from instride.spark._tables.writer import TableWriter
from instride.spark.sink import OutputRange

Shape = tuple[Callable[[pa.DataType], pa.DataType], Callable[[Any], Any]]
SHAPES: dict[str, Shape] = {
    "a column": (lambda kind: kind, lambda value: value),
    "a struct": (lambda kind: pa.struct([("a", pa.string()), ("x", kind)]), lambda value: {"a": "b", "x": value}),
    "a list": (pa.list_, lambda value: [None, value]),
    "a large list": (pa.large_list, lambda value: [value]),
    "a list of a size": (lambda kind: pa.list_(kind, 2), lambda value: [value, value]),
    "a map": (lambda kind: pa.map_(pa.string(), kind), lambda value: [("k", value)]),
    "a list's structs": (lambda kind: pa.list_(pa.struct([("x", kind)])), lambda value: [{"x": value}, None]),
    "a map's lists": (lambda kind: pa.map_(pa.string(), pa.list_(kind)), lambda value: [("k", [value])]),
}
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def given(shape: Shape, kind: pa.DataType, *values: Any) -> pa.RecordBatch:
    return pa.record_batch({"what": pa.array([None, *map(shape[1], values)], shape[0](kind))})


def cast(batch: pa.RecordBatch, kind: pa.DataType) -> list[Any]:
    (made,) = cast_to(batch, pa.schema([("what", kind)]))
    assert made.schema.field("what").type == kind
    return list(made["what"].to_pylist())


@each_shape
@pytest.mark.parametrize("narrow", [pa.float32(), pa.float16()], ids=str)
def test_a_float_that_the_type_does_not_hold_is_refused(shape: Shape, narrow: pa.DataType) -> None:
    """It became infinite, and nobody was told."""
    fine = given(shape, pa.float64(), 0.5, -math.inf, None)
    assert cast(fine, shape[0](narrow)) == fine["what"].to_pylist()
    with pytest.raises(ValueError, match=f"what.* is {narrow}, which has no number as great"):
        cast(given(shape, pa.float64(), 0.5, -1e300), shape[0](narrow))


GREAT = {
    "a dictionary": (pa.array([0.5, None, 1e300]).dictionary_encode(), pa.float32()),
    "half a float": (pa.array([0.5, None, 1e30], pa.float32()), pa.float16()),
    "a whole number": (pa.array([5, None, 100_000]), pa.float16()),
    "a decimal": (pa.array([Decimal(5), None, Decimal(10) ** 60], pa.decimal256(76, 0)), pa.float32()),
    "a text": (pa.array(["0.5", None, "1e300"]), pa.float32()),
    "a text that no double holds": (pa.array(["0.5", None, "-1e400"]), pa.float32()),
    "a text for a double": (pa.array(["0.5", None, "1e400"]), pa.float64()),
    "a text beside infinity": (pa.array(["-inf", None, "1e400"]), pa.float32()),
    "a view of a text": (pa.array(["0.5", None, "1e400"], pa.string_view()), pa.float32()),
    "a text's dictionary": (pa.array(["0.5", None, "1e400"]).dictionary_encode(), pa.float32()),
}


@pytest.mark.parametrize(("values", "narrow"), GREAT.values(), ids=GREAT)
def test_whatever_is_returned_does_not_become_infinite(values: pa.Array, narrow: pa.DataType) -> None:
    batch = pa.record_batch({"what": values})
    fine = [None if each is None else float(each) for each in values[:2].to_pylist()]
    assert cast(batch.slice(0, 2), narrow) == fine
    with pytest.raises(ValueError, match="no number as great"):
        cast(batch, narrow)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array(["inf", "-Infinity", "-INF", None]), pa.float32()),
        (pa.array(["inf", "-Infinity", "nan!"]).slice(0, 2), pa.float64()),
        (pa.array([math.inf, 1.0]).cast(pa.float16()), pa.float32()),
        (pa.array([None, None]), pa.float32()),
        (pa.array([1e300]), pa.float64()),
    ],
    ids=["texts", "texts for a double", "wider", "nothing", "as it is"],
)
def test_what_the_type_holds_is_held(values: pa.Array, kind: pa.DataType) -> None:
    given = [None if each is None else float(each) for each in values.to_pylist()]
    assert cast(pa.record_batch({"what": values}), kind) == given


@each_shape
@pytest.mark.parametrize(
    ("returned", "kind"), [(pa.int64(), pa.timestamp("us")), (pa.float64(), pa.bool_())], ids=["a time", "a boolean"]
)
def test_what_holds_no_value_is_not_judged(shape: Shape, returned: pa.DataType, kind: pa.DataType) -> None:
    """pandas makes float64 of nulls alone, and int64 of what `apply` gives for no rows: such a batch failed."""
    nulls, kind = given(shape, returned, None), shape[0](kind)
    assert cast(nulls, kind) == nulls["what"].to_pylist()
    assert list(cast_to(nulls.slice(2), pa.schema([("what", kind)]))) == []


def test_a_table_takes_what_holds_no_value(tmp_path: Path) -> None:
    schema = pa.schema([("at", pa.timestamp("us")), ("late", pa.bool_())])
    nulls = pa.record_batch({"at": pa.nulls(2, pa.int64()), "late": pa.nulls(2, pa.float64())})
    output = OutputRange(topic="t", partition=0, start=0, end=2)
    writer = TableWriter(str(tmp_path), schema)
    (file,) = writer.write(output, job="j", attempt=0, batches=iter([nulls.slice(2), nulls])).files
    assert file.rows == 2


@each_shape
def test_what_is_not_in_the_batch_is_not_judged(shape: Shape) -> None:
    batch = given(shape, pa.float64(), 1e300, 0.5)
    assert cast(batch.slice(2), shape[0](pa.float32())) == batch["what"].to_pylist()[2:]


def test_what_is_below_a_null_is_not_judged() -> None:
    hidden = pa.StructArray.from_arrays([pa.array([1e300, 0.5])], ["x"], mask=pa.array([True, False]))
    assert cast(pa.record_batch({"what": hidden}), pa.struct([("x", pa.float32())])) == [None, {"x": 0.5}]


NUMBERS = [
    *((pa.int64(), kind, 1, "does not tell its unit") for kind in (pa.timestamp("us"), pa.timestamp("ms", "UTC"))),
    *((pa.int64(), kind, 1, "does not tell its unit") for kind in (pa.date64(), pa.time64("us"), pa.duration("s"))),
    (pa.int32(), pa.date32(), 1, "does not tell its unit"),
    *((pa.float64(), pa.bool_(), number, "return booleans") for number in (0.5, 2.0, math.nan)),
    (pa.float32(), pa.bool_(), -1.0, "return booleans"),
    (pa.float16(), pa.bool_(), 1.0, "return booleans"),
]


@each_shape
@pytest.mark.parametrize(("returned", "kind", "number", "told"), NUMBERS, ids=str)
def test_a_number_is_taken_for_no_time_and_no_boolean(
    shape: Shape, returned: pa.DataType, kind: pa.DataType, number: float, told: str
) -> None:
    """`ParquetSink` and the fused form took milliseconds for microseconds, and 0.5 for true."""
    with pytest.raises(ValueError, match=told):
        cast(given(shape, returned, number), shape[0](kind))


@each_shape
@pytest.mark.parametrize("returned", [pa.float32(), pa.float64(), pa.dictionary(pa.int32(), pa.float64())], ids=str)
def test_floats_that_are_0_and_1_are_booleans(shape: Shape, returned: pa.DataType) -> None:
    """pandas makes float64 of a flag that some records lack: its batch failed the range."""
    flags = given(shape, returned, 0.0, 1.0, None, -0.0)
    assert cast(flags, shape[0](pa.bool_())) == given(shape, pa.bool_(), False, True, None, False)["what"].to_pylist()


@each_shape
def test_a_float_is_rounded_to_a_decimals_digits(shape: Shape) -> None:
    """As a page says. 0.07 is no decimal of two digits: were it refused, no function of pandas could return prices."""
    rounded = given(shape, pa.decimal128(5, 2), Decimal("0.07"), Decimal("-1.50"))
    assert cast(given(shape, pa.float64(), 0.07, -1.499), shape[0](pa.decimal128(5, 2))) == rounded["what"].to_pylist()
    assert cast(pa.record_batch({"what": [1.5]}), pa.decimal128(5, 0)) == [Decimal(2)]


@pytest.mark.parametrize("given", [Decimal("1.5"), "1.5", "15e-1"], ids=repr)
def test_whatever_else_has_more_digits_than_a_decimal_is_refused(given: Decimal | str) -> None:
    with pytest.raises(ValueError, match="data loss"):
        cast(pa.record_batch({"what": [given]}), pa.decimal128(5, 0))


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.dictionary(pa.int32(), pa.timestamp("us"))], ids=str)
def test_a_dictionary_hides_no_number(kind: pa.DataType) -> None:
    with pytest.raises(ValueError, match="does not tell its unit"):
        cast(pa.record_batch({"what": pa.array([1]).dictionary_encode()}), kind)
