"""Spark's filters on topic, partition, offset and timestamp, as less to read. Pure.

Laws
1. A filter that is kept wholly by what is read is not evaluated again; each other one is left to Spark, too.
2. What is read holds every record that the filters let through.
3. Of timestamps only a least one narrows: the broker knows the first record that is as late, and all before it are
   earlier. After it earlier ones may come again, where producers set the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from instride.records import TopicPartition
from instride.spark._data_source.offsets import Span

__all__ = ["Narrowed", "narrowed"]

_NEVER_NULL: Final = ("topic", "partition", "offset", "timestamp", "timestampType")
# Beyond all offsets of Kafka, which are signed longs.
_ANY: Final = Span(0, 1 << 63)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """What the filters let through. topics, partitions: of these, or any. least, beyond: offsets, [least, beyond).
    since: in milliseconds; 0: any time.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    numbers: Span = _ANY
    least: int = 0
    beyond: int = 1 << 63
    since: int = 0

    def holds(self, partition: TopicPartition) -> bool:
        """Whether anything of the partition may pass."""
        return (
            (self.topics is None or partition.topic in self.topics)
            and (self.partitions is None or partition.partition in self.partitions)
            and self.numbers.start <= partition.partition < self.numbers.end
        )

    def spans(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], at: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Span]:
        """What is left to read. at: the first offset that is not before `since`, where that was looked up."""
        found = {}
        for partition, start in starts.items():
            if self.holds(partition):
                first = max(start, self.least, at.get(partition, 0))
                found[partition] = Span(first, max(first, min(ends[partition], self.beyond)))
        return found


def narrowed(filters: Iterable[Filter]) -> tuple[Narrowed, list[Filter]]:
    """What they let through, all together, and those that Spark is still to evaluate."""
    sum_, left = Narrowed(), []
    for each in filters:
        column = _column(each)
        if isinstance(each, IsNotNull) and column in _NEVER_NULL:
            continue
        parts = _parts(each, column)
        if parts is None:
            left.append(each)
            continue
        changes, whole = parts
        sum_ = _both(sum_, Narrowed(**changes))
        if not whole:
            left.append(each)
    return sum_, left


def _column(of: Filter) -> str | None:
    path: tuple[str, ...] = getattr(of, "attribute", ())
    return path[0] if len(path) == 1 else None


def _parts(of: Filter, column: str | None) -> tuple[dict[str, Any], bool] | None:
    """What a filter says, and whether that is all that it says. None: nothing that could be read less for."""
    value = getattr(of, "value", None)
    if column == "topic" and isinstance(of, EqualTo | EqualNullSafe | In):
        texts = _all(of, value, str)
        return None if texts is None else ({"topics": frozenset(texts)}, True)
    if column == "timestamp":
        return _since(of, value)
    if column not in ("partition", "offset"):
        return None
    if isinstance(of, In) or (column == "partition" and isinstance(of, EqualTo | EqualNullSafe)):
        numbers = _all(of, value, int)
        if not numbers:
            return None
        if column == "partition":
            return {"partitions": frozenset(numbers)}, True
        # All partitions in between are read too; Spark then drops the rows of those that the list lacks.
        return {"least": min(numbers), "beyond": max(numbers) + 1}, False
    bounds = _bounds(of, value)
    if bounds is None:
        return None
    return ({"numbers": bounds} if column == "partition" else {"least": bounds.start, "beyond": bounds.end}), True


def _all(of: Filter, value: Any, kind: type) -> list[Any] | None:
    """A null in a list lets nothing more through."""
    given = [each for each in value if each is not None] if isinstance(of, In) else [value]
    return given if all(type(each) is kind for each in given) else None


def _bounds(of: Filter, value: Any) -> Span | None:
    # Not isinstance: True is an int, too.
    if type(value) is not int:
        return None
    match of:
        case EqualTo() | EqualNullSafe():
            return Span(value, value + 1)
        case GreaterThan():
            return Span(value + 1, 1 << 63)
        case GreaterThanOrEqual():
            return Span(value, 1 << 63)
        case LessThan():
            return Span(0, value)
        case LessThanOrEqual():
            return Span(0, value + 1)
        case _:
            return None


def _since(of: Filter, value: Any) -> tuple[dict[str, Any], bool] | None:
    if not isinstance(of, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual):
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    # Left to Spark as well: behind the first record that is as late, earlier ones may come (law 3).
    return {"since": max(0, (value - _EPOCH) // timedelta(milliseconds=1))}, False


def _both(one: Narrowed, other: Narrowed) -> Narrowed:
    return Narrowed(
        topics=_common(one.topics, other.topics),
        partitions=_common(one.partitions, other.partitions),
        numbers=Span(max(one.numbers.start, other.numbers.start), min(one.numbers.end, other.numbers.end)),
        least=max(one.least, other.least),
        beyond=min(one.beyond, other.beyond),
        since=max(one.since, other.since),
    )


def _common(one: frozenset[Any] | None, other: frozenset[Any] | None) -> frozenset[Any] | None:
    return other if one is None else one if other is None else one & other
