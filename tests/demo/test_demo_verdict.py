"""The verdict finds every kind of fault, whatever the order and the files of what was written."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from demo.verdict import judge, read_written

SOURCE = pa.table(
    {
        "row": pa.array(range(20), pa.int64()),
        "tailnum": pa.array([None if n % 5 == 0 else f"N{n}" for n in range(20)], pa.string()),
        "delay": pa.array([None if n % 7 == 0 else n for n in range(20)], pa.int64()),
    }
)


def with_value(row: int, column: str, value: object) -> pa.Table:
    rows = SOURCE.to_pylist()
    rows[row][column] = value
    return pa.Table.from_pylist(rows, schema=SOURCE.schema)


def test_the_source_itself_is_exactly_once_in_any_order() -> None:
    verdict = judge(SOURCE.take(list(range(19, -1, -1))), SOURCE)
    assert verdict.exactly_once
    assert (verdict.source, verdict.written, verdict.missing) == (20, 20, ())


def test_missing_flights_are_named() -> None:
    verdict = judge(SOURCE.slice(3), SOURCE)
    assert not verdict.exactly_once
    assert verdict.missing == (0, 1, 2)


def test_a_flight_that_is_there_twice_is_found_even_where_another_is_missing() -> None:
    verdict = judge(SOURCE.take([*range(19), 4]), SOURCE)
    assert verdict.source == verdict.written
    assert (verdict.duplicated, verdict.missing) == ((4,), (19,))
    assert not verdict.exactly_once


@pytest.mark.parametrize(
    ("row", "column", "value"), [(3, "tailnum", "N4"), (3, "tailnum", None), (5, "tailnum", "N5"), (7, "delay", 0)]
)
def test_an_altered_content_is_found_where_a_value_is_missing_too(row: int, column: str, value: object) -> None:
    verdict = judge(with_value(row, column, value), SOURCE)
    assert verdict.altered == (row,)
    assert not verdict.exactly_once


def test_a_second_altered_copy_is_both_duplicated_and_altered() -> None:
    verdict = judge(pa.concat_tables([with_value(3, "delay", 99).slice(3, 1), SOURCE]), SOURCE)
    assert (verdict.duplicated, verdict.altered) == ((3,), (3,))


@pytest.mark.parametrize(("number", "shown"), [(20, 20), (-5, -5), (None, -1)])
def test_a_row_that_the_source_has_not_is_foreign(number: int | None, shown: int) -> None:
    verdict = judge(with_value(3, "row", number), SOURCE)
    assert (verdict.foreign, verdict.missing) == ((shown,), (3,))


def test_other_columns_are_refused(tmp_path: Path) -> None:
    parquet.write_table(SOURCE.drop_columns(["delay"]), tmp_path / "1.parquet")
    with pytest.raises(pa.ArrowInvalid, match="delay"):
        read_written([tmp_path / "1.parquet"], SOURCE.schema)


@given(st.lists(st.integers(0, 19), max_size=40))
def test_it_agrees_with_counting_by_hand(rows: list[int]) -> None:
    counts = Counter(rows)
    verdict = judge(SOURCE.take(pa.array(rows, pa.int64())), SOURCE)
    assert len(verdict.missing) == sum(1 for row in range(20) if counts[row] == 0)
    assert len(verdict.duplicated) == sum(1 for row in range(20) if counts[row] > 1)
    assert verdict.exactly_once == all(counts[row] == 1 for row in range(20))


def test_files_are_read_as_one_table(tmp_path: Path) -> None:
    files = [tmp_path / f"{n}.parquet" for n in range(4)]
    for n, file in enumerate(files):
        parquet.write_table(SOURCE.slice(n * 5, 5), file)
    assert judge(read_written(files, SOURCE.schema), SOURCE).exactly_once
    assert read_written([], SOURCE.schema).num_rows == 0
