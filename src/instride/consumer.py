"""`Consumer`: the blocking facade over the two machines. No decision is made here.

Laws
1. Building one has no side effect and does no I/O; the first call that needs the network starts its thread.
2. Not thread-safe, but not bound to a thread: two calls at once are `ConcurrentUseError`. `wakeup` may come from any.
   That, and what a forked child may do, `_net/driver.py` sees to.
3. Times are seconds. Every blocking call ends at its timeout, at the latest half a second after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, Never, Self, Unpack

from instride import _arguments as arguments
from instride._consumer_base import BlockingConsumer
from instride._core.application.partition import Delivery, PollResult
from instride._partition_ledger import PolledRanges
from instride._record_deserializer import RecordDeserializer
from instride._types import K, V
from instride.config import ConsumerSettings, UntypedSettings
from instride.consumer_records import Changes, ConsumerRecords
from instride.errors import ConfigError
from instride.records import ConsumerRecord, OffsetRange, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Consumer", "RangeConsumer"]


class Consumer(BlockingConsumer, Generic[K, V]):
    """A member of a consumer group, or a reader of assigned partitions.

        with Consumer(bootstrap_servers="localhost:9092", group_id="flights") as consumer:
            consumer.subscribe(["flights"])
            while running:
                for record in consumer.poll(timeout=0.1):
                    ...

    Settings: see `ConsumerConfig`; a wrong, unknown or contradictory one is `ConfigError`.
    """

    def __init__(
        self,
        *misplaced: Never,
        key_deserializer: Callable[..., K] | None = None,
        value_deserializer: Callable[..., V] | None = None,
        **settings: Unpack[UntypedSettings],
    ) -> None:
        super().__init__(
            *misplaced, key_deserializer=key_deserializer, value_deserializer=value_deserializer, **settings
        )
        self._reader = RecordDeserializer(self._config.key_deserializer, self._config.value_deserializer)

    def poll(
        self,
        *misplaced: Never,
        timeout: float | None = None,
        max_records: int | None = None,
        deserialize: bool = True,
    ) -> ConsumerRecords[K, V]:
        """New records, as soon as there are any; or none at the time-out, at a newly requested revocation or a loss.

        timeout: seconds; None waits for as long as it takes. max_records: else max_poll_records; -1 is no bound.
        deserialize: False returns bytes, also where there are deserializers.
        Raises WakeupError, CorruptRecordError, DeserializationError and other errors of a partition (each once, and
        again after each retry that fails; other partitions go on: `failed_partitions`), NoOffsetForPartitionError,
        errors of the group, NetworkThreadDiedError, and what a listener raises. A poll that raises, or that a signal's
        exception interrupts, took no record: the next one returns them, and no commit covers them before.
        """
        arguments.misplaced_timeout("poll", misplaced)
        with self._driver.use():
            immediate = self._config.revoke_mode == "immediate"
            result, records = self._records(timeout, immediate=immediate, limit=max_records, deserialize=deserialize)
        result.aside = None  # the last thing that a signal's exception may come before (rule 13)
        return records

    def poll_arrow(
        self,
        *,
        timeout: float | None = None,
        max_records: int | None = None,
        binary_view: bool = False,
        dictionary: bool = False,
    ) -> pa.Table:
        """`poll`, as one Arrow table, empty where there is no record; columns as `ConsumerRecords.to_arrow` has
        them, always of bytes. max_records: else max_poll_records, if that was set; else all that is fetched. -1 is no
        bound. binary_view, dictionary: as in `to_arrow`. Raises ImportError without the extra `instride[arrow]`; then
        nothing was taken.
        """
        from instride._wire.arrow import table  # noqa: PLC0415 - pyarrow is an extra, and slow to import

        with self._driver.use():
            immediate = self._config.revoke_mode == "immediate"
            limit = self._rows(max_records)
            result, records = self._records(timeout, immediate=immediate, limit=limit, deserialize=False)
            batches = records.to_arrow(binary_view=binary_view, dictionary=dictionary)
            found = table(batches, binary_view=binary_view, dictionary=dictionary)
        result.aside = None  # as in poll
        return found

    def poll_changes(
        self, *, timeout: float | None = None, max_records: int | None = None, deserialize: bool = True
    ) -> Changes[K, V]:
        """`poll`: records, partitions to be revoked and those just lost, in one value (KIP-983, variant 1)."""
        with self._driver.use():
            result, records = self._records(timeout, immediate=False, limit=max_records, deserialize=deserialize)
            to_be_revoked, lost = self._application.to_be_revoked(), self._application.lost()
            changes = Changes(records=records, to_be_revoked=to_be_revoked, lost=lost)
        result.aside = None  # as in poll
        return changes

    def _records(
        self, timeout: float | None, *, immediate: bool, limit: int | None, deserialize: bool
    ) -> tuple[PollResult, ConsumerRecords[K, V]]:
        read = self._reader.read if self._reader and deserialize else None
        result = self._poll(timeout, immediate=immediate, limit=limit, read=read)
        records: ConsumerRecords[K, V] = ConsumerRecords(result.deliveries, self._application.standing())
        self._interceptors.on_consume(records)
        return result, records

    def __iter__(self) -> Self:
        """Records one by one, for ever. Each step is a poll of one record: whatever ends the loop, the next poll goes
        on after the last record that the loop got, and a commit without offsets, or auto-commit, covers these and no
        more. A step costs some thirty times as much as a record of a large poll: where many records come, loop over
        what `poll` returns. A step polls until there is a record, so a loop that calls `delay_revoke` uses `poll`.
        """
        return self

    def __next__(self) -> ConsumerRecord[K, V]:
        """The next record, however long that takes. Raises what `poll` raises; the step after that goes on."""
        while True:
            for record in self.poll(max_records=1):
                return record


class RangeConsumer(BlockingConsumer):
    """A member that is handed ranges of offsets instead of records: for work that reads the records elsewhere.

    `poll` and everything about rebalances and commits is as with `Consumer`. No record is fetched.
    """

    _ranges = True
    _limit_name = "max_offsets"

    def __init__(self, *misplaced: Never, **settings: Unpack[ConsumerSettings]) -> None:
        super().__init__(*misplaced, **settings)
        for name in ("key_deserializer", "value_deserializer", "interceptors"):
            if getattr(self._config, name):
                raise ConfigError(f"{name}: a RangeConsumer reads no records")

    def poll(self, *misplaced: Never, timeout: float | None = None, max_offsets: int | None = -1) -> list[OffsetRange]:
        """At most one range of each partition, of offsets that exist and were not returned before.

        timeout: seconds; None waits for as long as it takes. max_offsets: of all ranges together; -1 or None is no
        bound.
        """
        arguments.misplaced_timeout("poll", misplaced)
        with self._driver.use():
            immediate = self._config.revoke_mode == "immediate"
            result = self._poll(timeout, immediate=immediate, limit=-1 if max_offsets is None else max_offsets)
            ranges = PolledRanges(self._application.standing())
            ranges += _joined(result.deliveries)
        result.aside = None  # as in `Consumer.poll`
        return ranges


def _joined(deliveries: Iterable[Delivery]) -> list[OffsetRange]:
    """A range that goes on where the one before of its partition ends is a part of that."""
    ranges: list[OffsetRange] = []
    places: dict[TopicPartition, int] = {}
    for delivery in deliveries:
        each: OffsetRange
        # A range chunk's only record is a range.
        (each,) = delivery.chunk.records(epoch=delivery.epoch, seek_number=delivery.seek_number)  # type: ignore[assignment]
        before = ranges[places[delivery.partition]] if delivery.partition in places else None
        if before is not None and _continues(before, each):
            leader_epoch = max(before.leader_epoch, each.leader_epoch)
            ranges[places[delivery.partition]] = replace(before, end=each.end, leader_epoch=leader_epoch)
        else:
            places[delivery.partition] = len(ranges)
            ranges.append(each)
    return ranges


def _continues(before: OffsetRange, each: OffsetRange) -> bool:
    there = (before.epoch, before.seek_number, before.end)
    return (each.epoch, each.seek_number, each.start) == there
