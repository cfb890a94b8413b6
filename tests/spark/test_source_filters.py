"""Filters on topic, partition, offset and timestamp: what is read is enough, and as little as may be."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from instride.records import TopicPartition
from instride.spark._data_source.filters import narrowed
from instride.spark._data_source.offsets import Span

TIME = datetime(2024, 1, 1, tzinfo=UTC)
MILLISECONDS = 1_704_067_200_000
STARTS = {TopicPartition(topic, partition): 10 for topic in "ab" for partition in range(3)}
ENDS = dict.fromkeys(STARTS, 20)
TIMES = dict.fromkeys(STARTS, 17)


def _read(*filters: Filter) -> tuple[dict[tuple[str, int], tuple[int, int]], list[Filter]]:
    """What is read of each partition, where it is something, and what Spark is left with."""
    found, left = narrowed(filters)
    spans = found.spans(STARTS, ENDS, TIMES if found.since else {})
    return {tuple(tp): (span.start, span.end) for tp, span in spans.items() if span.start < span.end}, left  # type: ignore[misc]


def _all(span: tuple[int, int] = (10, 20), topics: str = "ab", partitions: tuple[int, ...] = (0, 1, 2)) -> Any:
    return {(topic, partition): span for topic in topics for partition in partitions}


@pytest.mark.parametrize(
    ("filters", "read", "left"),
    [
        ([EqualTo(("topic",), "a")], _all(topics="a"), 0),
        ([In(("topic",), ("b", "c", None))], _all(topics="b"), 0),
        ([EqualTo(("partition",), 2)], _all(partitions=(2,)), 0),
        ([EqualNullSafe(("partition",), 2), IsNotNull(("partition",))], _all(partitions=(2,)), 0),
        ([In(("partition",), (0, 2)), LessThan(("partition",), 2)], _all(partitions=(0,)), 0),
        ([GreaterThan(("partition",), 0), LessThanOrEqual(("partition",), 1)], _all(partitions=(1,)), 0),
        ([GreaterThanOrEqual(("offset",), 12), LessThan(("offset",), 15)], _all((12, 15)), 0),
        ([EqualTo(("offset",), 12)], _all((12, 13)), 0),
        ([GreaterThan(("offset",), 19)], {}, 0),
        ([LessThan(("offset",), 5)], {}, 0),
        ([In(("offset",), (12, 15))], _all((12, 16)), 1),
        ([GreaterThanOrEqual(("timestamp",), TIME)], _all((17, 20)), 1),
        ([EqualTo(("timestamp",), TIME), LessThan(("offset",), 18)], _all((17, 18)), 1),
        # Nothing less can be read for these.
        ([LessThan(("timestamp",), TIME)], _all(), 1),
        ([GreaterThan(("timestamp",), TIME.replace(tzinfo=None))], _all(), 1),
        ([Not(EqualTo(("partition",), 2))], _all(), 1),
        ([IsNull(("key",)), IsNotNull(("value",)), EqualTo(("key",), b"k")], _all(), 3),
        ([StringStartsWith(("topic",), "a"), EqualTo(("headers", "key"), "partition")], _all(), 2),
        ([EqualTo(("partition",), 2.0), EqualTo(("offset",), None)], _all(), 2),
    ],
)
def test_filters(filters: list[Filter], read: Any, left: int) -> None:
    found, remaining = _read(*filters)
    assert found == read
    assert len(remaining) == left
    assert all(any(each is given for given in filters) for each in remaining)


def test_a_time_is_requested_in_whole_milliseconds_not_after_it() -> None:
    assert narrowed([GreaterThan(("timestamp",), TIME.replace(microsecond=1_999))])[0].since == MILLISECONDS + 1
    assert narrowed([GreaterThan(("timestamp",), datetime(1960, 1, 1, tzinfo=UTC))])[0].since == 0


_COMPARED: dict[Any, Callable[[int, int], bool]] = {
    EqualTo: lambda one, other: one == other,
    GreaterThan: lambda one, other: one > other,
    GreaterThanOrEqual: lambda one, other: one >= other,
    LessThan: lambda one, other: one < other,
    LessThanOrEqual: lambda one, other: one <= other,
}


@given(
    st.lists(st.tuples(st.sampled_from(list(_COMPARED)), st.sampled_from(["partition", "offset"]), st.integers(-1, 21)))
)
def test_what_is_read_is_what_the_filters_let_through(chosen: list[tuple[Any, str, int]]) -> None:
    spans = narrowed([kind((column,), value) for kind, column, value in chosen])[0].spans(STARTS, ENDS, {})
    for partition in STARTS:
        for offset in range(10, 20):
            row = {"partition": partition.partition, "offset": offset}
            passes = all(_COMPARED[kind](row[column], value) for kind, column, value in chosen)
            span = spans.get(partition, Span(0, 0))
            assert (span.start <= offset < span.end) == passes
