"""What a poll returns.

Laws
1. A record object is made when somebody asks for it, not before; `to_arrow` makes none. A poll that deserializes asks
   for all of them.
2. Order: partition by partition as the poll took them, offsets rising within each.
3. Within a stretch no offset is missing that the log has and a poll may return.

The Arrow form, also of a poll without records: `_wire/arrow.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Generic, NamedTuple, Never, Self

from instride import _arguments as arguments
from instride._core.application.partition import Delivery
from instride._core.session_lease import Standing
from instride._types import K_co, V_co
from instride.records import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from instride.records import ConsumerRecord

__all__ = ["Changes", "ConsumerRecords", "Stretch"]


class Stretch(NamedTuple):
    """Consecutive records of one partition, epoch and seek number, in the offsets [start, end). records: how many.

    start: the position before them, or -1 where it is not known. What lies between it and the first record is not to
    be returned (control and aborted batches, compaction).
    """

    start: int
    end: int
    records: int


class ConsumerRecords(Generic[K_co, V_co]):
    """The records of one poll. Immutable; any thread may read it. Falsy when there are none."""

    __slots__ = ("_deliveries", "_standing")

    def __init__(self, deliveries: Sequence[Delivery] = (), standing: Standing | None = None) -> None:
        self._deliveries = tuple(deliveries)
        self._standing = standing

    def __len__(self) -> int:
        return sum(len(delivery.chunk) for delivery in self._deliveries)

    def __bool__(self) -> bool:
        return bool(self._deliveries)

    def __iter__(self) -> Iterator[ConsumerRecord[K_co, V_co]]:
        # A loop in C: a generator's turn for each record took a quarter of the time of making and reading them.
        return chain.from_iterable(chain.from_iterable(map(_runs, self._deliveries)))

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Of which there are records, in order."""
        return tuple(dict.fromkeys(delivery.partition for delivery in self._deliveries))

    def records(self, partition: TopicPartition) -> list[ConsumerRecord[K_co, V_co]]:
        """Those of one partition."""
        wanted = arguments.partition("records", partition)
        found: list[ConsumerRecord] = []
        for each in self._deliveries:
            if each.partition == wanted:
                found += _records(each)
        return found

    def by_partition(self) -> dict[TopicPartition, list[ConsumerRecord[K_co, V_co]]]:
        """All of them, as objects, by partition."""
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        for each in self._deliveries:
            found.setdefault(each.partition, []).extend(_records(each))
        return found

    def to_arrow(
        self, columns: Sequence[str] | None = None, *, binary_view: bool = False, dictionary: bool = False
    ) -> list[pa.RecordBatch]:
        """One batch for each run of records, with the columns topic (string), partition (int32), offset (int64),
        timestamp (timestamp[ms, tz=UTC]), timestamp_type (int32), key and value (binary), and headers
        (list<struct<key: string, value: binary>>, null where a record has none). Always of bytes, also where the
        consumer has deserializers.

        columns: some of these, in this order; None: all. Each costs what it takes to copy it, and no object a record.
        binary_view: keys and values are of Arrow's type binary_view, and no payload is copied. The batch then keeps the
        memory that they were received in, six times theirs at most; to send or store it may copy that memory.
        dictionary: topic and partition are dictionaries of one value (indices of int32).
        Raises KeyError for another column. Needs the extra `instride[arrow]`.
        """
        return [
            delivery.chunk.to_arrow(columns, binary_view=binary_view, dictionary=dictionary)
            for delivery in self._deliveries
        ]

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The batches of `to_arrow` as an Arrow C stream. So other libraries take the records as they are:
        `pyarrow.table(records)`, `polars.DataFrame(records)`, `duckdb.sql("FROM records")`, and from pandas 3 on
        `pandas.DataFrame.from_arrow(records)`. Needs the extra `instride[arrow]`.
        """
        from instride._wire.arrow import reader  # noqa: PLC0415 - pyarrow is an extra, and slow to import

        return reader(self.to_arrow()).__arrow_c_stream__(requested_schema)

    def next_offsets(self) -> dict[TopicPartition, int]:
        """The position of each partition after these records."""
        return {delivery.partition: delivery.chunk.next_offset for delivery in self._deliveries}

    def stretches(self) -> list[Stretch]:
        """Where the records lie in their logs, in the order of the records. Makes no record."""
        found: list[Stretch] = []
        before: Delivery | None = None
        for each in self._deliveries:
            start = each.start
            if before is not None and _continues(each, before):
                start, _, count = found.pop()
            else:
                count = 0
            found.append(Stretch(start, each.chunk.next_offset, count + len(each.chunk)))
            before = each
        return found

    @property
    def standing(self) -> Standing | None:
        """Not for users: by this an executor knows, before it starts a record, whether the member that polled it is one
        still. None for records of no consumer.
        """
        return self._standing

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> Never:
        """Records share the memory of the responses that they came in. Raises TypeError, which says what to send."""
        raise TypeError(
            "ConsumerRecords cannot be pickled: to send them to another process, send list(records), or what "
            "records.to_arrow() returns"
        )

    def __repr__(self) -> str:
        parts = ", ".join(str(partition) for partition in self.partitions())
        return f"ConsumerRecords({len(self)} of {parts or 'no partition'})"


def _continues(delivery: Delivery, before: Delivery) -> bool:
    return (
        delivery.partition == before.partition
        and (delivery.epoch, delivery.seek_number) == (before.epoch, before.seek_number)
        and delivery.start == before.chunk.next_offset
    )


def _runs(delivery: Delivery) -> Iterable[Sequence[ConsumerRecord]]:
    if delivery.records is not None:
        return (delivery.records,)
    return delivery.chunk.record_runs(epoch=delivery.epoch, seek_number=delivery.seek_number)


def _records(delivery: Delivery) -> Sequence[ConsumerRecord]:
    if delivery.records is not None:
        return delivery.records
    return delivery.chunk.records(epoch=delivery.epoch, seek_number=delivery.seek_number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes(Generic[K_co, V_co]):
    """What `poll_changes` returns (KIP-983, variant 1).

    records: new ones. to_be_revoked: will be revoked in the next poll, unless delayed. lost: lost in this poll.
    """

    records: ConsumerRecords[K_co, V_co] = field(default_factory=ConsumerRecords)
    to_be_revoked: frozenset[TopicPartition] = frozenset()
    lost: frozenset[TopicPartition] = frozenset()
