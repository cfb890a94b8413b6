"""`AsyncConsumer`: the facade for asyncio over the two machines. No decision is made here.

Laws
1. Those of `consumer`, but for threads: one event loop uses a consumer, and any task of it may.
2. What may wait is a coroutine; what never waits is a plain method, as with `Consumer`.
3. A poll that is cancelled took no record (docs/rebalance.md, rule 13). Nothing is awaited between the moment when its
   records count and its return.
4. Each poll lets the other tasks of the loop run at least once, before it takes anything.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Never, Self, Unpack

from instride import _arguments as arguments
from instride._consumer_base import ConsumerBase
from instride._core.application.committing import Offsets
from instride._core.application.partition import PollResult
from instride._core.events import EARLIEST, LATEST
from instride._interceptors import Interceptors
from instride._net.async_driver import AsyncDriver, in_loop
from instride._net.clock import now
from instride._record_deserializer import RecordDeserializer
from instride._types import K, V
from instride._unknown_settings import config_from_settings
from instride._wire.decoder import ConsumerRecord
from instride.commits import CommitResult
from instride.config import ConsumerConfig, UntypedSettings
from instride.consumer_records import Changes, ConsumerRecords
from instride.errors import NetworkThreadDiedError
from instride.listeners import AsyncRebalanceListener
from instride.records import OffsetAndMetadata, OffsetAndTimestamp, PartitionInfo, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AsyncConsumer"]

_logger = logging.getLogger("instride.consumer")

# A call of the application machine ends by itself half a second after its deadline; only a listener takes longer.
_GRACE = 1.0


class AsyncConsumer(ConsumerBase, Generic[K, V]):
    """`Consumer` for asyncio: the same verbs and settings. Those that may wait are awaited, the others are plain.

        async with AsyncConsumer(bootstrap_servers="localhost:9092", group_id="flights") as consumer:
            consumer.subscribe(["flights"])
            while running:
                for record in await consumer.poll(timeout=0.1):
                    ...

    To cancel what is awaited loses nothing: a poll that is cancelled took no record, the next one returns them, and no
    commit covers them before. A commit that is cancelled may have been sent. A close that is cancelled still ends the
    membership. Your code needs no thread but the one network thread; the consumer may use short-lived ones for DNS,
    tokens, Kerberos tickets and assignors.

    All tasks of one event loop may use it; one at a time may be in poll, poll_arrow, poll_changes or unsubscribe. Two
    of these at once, another loop and another thread are `ConcurrentUseError`. `wakeup`, `metrics` and `holdings` may
    come from any thread.
    """

    def __init__(
        self,
        *misplaced: Never,
        key_deserializer: Callable[..., K] | None = None,
        value_deserializer: Callable[..., V] | None = None,
        **settings: Unpack[UntypedSettings],
    ) -> None:
        """Settings: see `ConsumerConfig`; a wrong, unknown or contradictory one is `ConfigError`. No side effect."""
        arguments.misplaced_settings(type(self).__name__, misplaced)
        self._config: ConsumerConfig = config_from_settings(
            {**settings, "key_deserializer": key_deserializer, "value_deserializer": value_deserializer}
        )
        self._interceptors = Interceptors(self._config.interceptors)
        self._reader = RecordDeserializer(self._config.key_deserializer, self._config.value_deserializer)
        on_commit = self._interceptors.on_commit if self._interceptors else None
        self._driver: AsyncDriver = AsyncDriver(self._config, on_commit=on_commit)
        self._application = self._driver.application

    # -- records

    async def poll(
        self,
        *misplaced: Never,
        timeout: float | None = None,
        max_records: int | None = None,
        deserialize: bool = True,
    ) -> ConsumerRecords[K, V]:
        """New records, as soon as there are any; or none at the time-out, at a newly requested revocation or a loss.

        timeout: seconds; None waits for as long as it takes. max_records: at most so many, else max_poll_records; -1 is
        no bound. deserialize: False returns bytes, also where there are deserializers.
        Deserializers, interceptors and plain listeners run in the loop's thread: while they run, no other task does.
        Raises what `Consumer.poll` raises: WakeupError, DeserializationError and other errors of a partition,
        NoOffsetForPartitionError, errors of the group, NetworkThreadDiedError, what a listener raises; besides
        ConcurrentUseError while another task polls. A poll that raises, or is cancelled, took no record.
        """
        arguments.misplaced_timeout("poll", misplaced)
        async with self._driver.alone("poll"):
            immediate = self._config.revoke_mode == "immediate"
            result, records = await self._records(timeout, max_records, immediate=immediate, deserialize=deserialize)
        result.aside = None  # no await follows: what a cancellation could come before is over (rule 13)
        return records

    async def poll_arrow(
        self,
        *,
        timeout: float | None = None,
        max_records: int | None = None,
        binary_view: bool = False,
        dictionary: bool = False,
    ) -> pa.Table:
        """`poll`, as one Arrow table, empty where there is no record. Its columns are always of bytes.

        timeout: as in `poll`. max_records: else max_poll_records, if that was set; else all that is fetched.
        binary_view, dictionary: as in `ConsumerRecords.to_arrow`. Raises ImportError without the extra
        `instride[arrow]` (then nothing was taken), and what `poll` raises, but DeserializationError.
        """
        from instride._wire.arrow import table  # noqa: PLC0415 - pyarrow is an extra, and slow to import

        async with self._driver.alone("poll_arrow"):
            immediate = self._config.revoke_mode == "immediate"
            limit = self._rows(max_records)
            result, records = await self._records(timeout, limit, immediate=immediate, deserialize=False)
            batches = records.to_arrow(binary_view=binary_view, dictionary=dictionary)
            found = table(batches, binary_view=binary_view, dictionary=dictionary)
        result.aside = None  # as in poll
        return found

    async def poll_changes(
        self, *, timeout: float | None = None, max_records: int | None = None, deserialize: bool = True
    ) -> Changes[K, V]:
        """`poll`: records, partitions to be revoked and those just lost, in one value (KIP-983, variant 1).

        The arguments and the errors are those of `poll`.
        """
        async with self._driver.alone("poll_changes"):
            result, records = await self._records(timeout, max_records, immediate=False, deserialize=deserialize)
            to_be_revoked, lost = self._application.to_be_revoked(), self._application.lost()
            changes = Changes(records=records, to_be_revoked=to_be_revoked, lost=lost)
        result.aside = None  # as in poll
        return changes

    async def _records(
        self, timeout: float | None, limit: int | None, *, immediate: bool, deserialize: bool
    ) -> tuple[PollResult, ConsumerRecords[K, V]]:
        await asyncio.sleep(0)  # law 4
        read = self._reader.read if self._reader and deserialize else None
        call = self._poll_call(timeout, immediate=immediate, limit=limit, read=read)
        try:
            result = await self._driver.run(call, alone=True)
        except NetworkThreadDiedError as error:
            self._driver.tell_death(error)
            raise
        records: ConsumerRecords[K, V] = ConsumerRecords(result.deliveries, self._application.standing())
        self._interceptors.on_consume(records)
        return result, records

    def __aiter__(self) -> Self:
        """Records one by one, for ever. Each step is a poll of one record: whatever ends the loop, the next poll goes
        on after the last record that the loop got, and a commit without offsets covers these and no more. Where many
        records come, `poll` costs less. A step polls until there is a record, so a loop that calls `delay_revoke` uses
        `poll`.
        """
        return self

    async def __anext__(self) -> ConsumerRecord[K, V]:
        while True:
            for record in await self.poll(max_records=1):
                return record

    # -- what is read

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: AsyncRebalanceListener | None = None,
    ) -> None:
        """Join the group for these topics, or for all that match; replaces an earlier subscription. Does not wait.

        pattern: a regular expression that matches the whole name of a topic; looked up anew within metadata_max_age.
        listener: hears of rebalances in the task that is inside poll, unsubscribe or close. Its methods may be
        asynchronous or plain; a `RebalanceListener` may be given too.
        Raises ConfigError without a group_id, IllegalStateError after `assign` and while an unsubscribe gives up what
        is owned, TypeError unless either topics or a pattern is given, ValueError for a pattern that is no regular
        expression.
        """
        with self._driver.use():
            self._subscribe(topics, arguments.async_listener(listener), pattern)

    async def unsubscribe(self, *, timeout: float | None = None) -> None:
        """Revoke everything: send the queued commits, call the listener, leave the group
        (docs/rebalance.md, rule 12).

        timeout: seconds, else default_api_timeout; when it ends the consumer leaves without what is missing. One that
        is cancelled still leaves the group; if nobody closes the consumer after it, the interpreter waits for that when
        it exits. Raises what the listener raises, and ConcurrentUseError while another task polls.
        """
        async with self._driver.alone("unsubscribe"):
            limit, since = self._timeout("unsubscribe", timeout), self._application.unsubscribed
            try:
                self._observers.each(lambda observer: observer.on_unsubscribe(done=False))
                in_time = await self._driver.run(self._application.unsubscribe(now(), limit), alone=True)
                if not in_time:
                    self._observers.each(lambda observer: observer.on_timed_out("unsubscribe"))
                self._observers.each(lambda observer: observer.on_unsubscribe(done=True))
            except BaseException:
                self._application.give_up(now(), limit, since=since)
                self._driver.end_at_exit(limit)
                self._observers.each(lambda observer: observer.on_interrupted("unsubscribe"))
                raise

    # -- commits

    async def commit(
        self,
        offsets: Offsets | None = None,
        *,
        timeout: float | None = None,
        wait_for_rebalance: bool = True,
        allow_rewind: bool = False,
    ) -> CommitResult:
        """Commit offsets and wait for the response. Without offsets: the position of each owned partition.

        The position is the offset of the next record that poll will return: after a seek it is where the seek led.
        Paused partitions are included, as in Java. A partition is left out while its position is not known, and while
        its revocation is completing (its listener may still commit it).

        The result says what the group has now because of this call, and of each other partition why not
        (StaleCommitError, CommitOvertakenError, and CommitFailedError while its revocation is completing).
        timeout: seconds, else default_api_timeout. wait_for_rebalance: False raises RebalanceInProgressError where the
        commit would wait for the new generation (KIP-429). allow_rewind: also send offsets below those that the group
        has. Raises StaleCommitError for a snapshot of which every entry is stale, CommitFailedError and
        CommitRewindError for a dict, KafkaTimeoutError when the time ends before the response,
        RebalanceInProgressError, and the errors with which a broker refuses. Several tasks may commit at once. Whether
        a commit that was cancelled or that timed out was accepted, is not known.
        """
        with self._driver.use():
            return await self._driver.run(
                self._commit_call(offsets, timeout, wait_for_rebalance=wait_for_rebalance, allow_rewind=allow_rewind)
            )

    def commit_async(
        self, offsets: Offsets | None = None, *, allow_rewind: bool = False
    ) -> asyncio.Future[CommitResult]:
        """Hand a commit over and go on. It is sent as soon as possible, with others, and outlives a rebalance.

        The future ends as `commit` would: with a `CommitResult`, or an error. It may be awaited, or left alone; its
        callbacks run in the loop. To cancel it does not take the commit back. Raises IllegalStateError outside of a
        running loop or without a group_id; and at once, so that nothing is committed, CommitFailedError where a dict
        names a partition that this member does not own (any more), and ValueError for a negative offset.
        """
        with self._driver.use():
            loop = self._driver.running_loop("commit_async")
            return in_loop(self._commit_async(offsets, allow_rewind=allow_rewind), loop)

    async def committed(
        self, *partitions: TopicPartition | Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets of any partitions, from the broker; None where there is none.

        timeout: seconds, else default_api_timeout. Raises IllegalStateError without a group_id, KafkaTimeoutError,
        GroupAuthorizationFailedError.
        """
        with self._driver.use():
            return await self._driver.run(self._committed_call(partitions, timeout))

    # -- positions

    async def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """The offset of the next record that poll will return. Waits until it is known.

        timeout: seconds, else default_api_timeout. Raises ValueError for a partition that is not assigned, WakeupError,
        KafkaTimeoutError, and what keeps it from being found: NoOffsetForPartitionError with auto_offset_reset "none",
        errors of the partition or the group.
        """
        with self._driver.use():
            return await self._driver.run(self._position_call(partition, timeout))

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset that each log still has, from its leader.

        timeout: seconds, else default_api_timeout. Raises KafkaTimeoutError (no leader, say),
        TopicAuthorizationFailedError.
        """
        with self._driver.use():
            return await self._driver.run(self._ends_call("beginning_offsets", partitions, EARLIEST, timeout))

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """High watermarks, from the leaders; with isolation_level "read_committed" the last stable offsets.

        timeout: seconds, else default_api_timeout. Raises KafkaTimeoutError (no leader, say),
        TopicAuthorizationFailedError.
        """
        with self._driver.use():
            return await self._driver.run(self._ends_call("end_offsets", partitions, LATEST, timeout))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Of each partition the first record whose timestamp is that or later; None where there is none.

        timestamps: milliseconds since 1970, as records bear them; a negative one is a ValueError. timeout: seconds,
        else default_api_timeout. Raises KafkaTimeoutError (no leader, say), TopicAuthorizationFailedError.
        """
        with self._driver.use():
            return await self._driver.run(self._times_call(timestamps, timeout))

    # -- what there is

    async def partitions_for(self, topic: str, *, timeout: float | None = None) -> list[PartitionInfo]:
        """The topic's partitions, by number; none where it does not exist. It is not created.

        Asks a broker each time. timeout: seconds, else default_api_timeout. Raises TopicAuthorizationFailedError,
        InvalidTopicError, KafkaTimeoutError.
        """
        with self._driver.use():
            return await self._driver.run(self._partitions_call(topic, timeout))

    async def list_topics(
        self, topics: Iterable[str] | None = None, *, include_internal: bool = False, timeout: float | None = None
    ) -> dict[str, list[PartitionInfo]]:
        """Every topic that we may describe, or those of `topics` that there are, with their partitions. Asks a broker
        each time, in one request. Creates no topic.

        include_internal: also __consumer_offsets and its like, which `topics` may name in any case. timeout: seconds,
        else default_api_timeout.
        Raises KafkaTimeoutError; with `topics` TopicAuthorizationFailedError and InvalidTopicError, too, if one of them
        has it.
        """
        with self._driver.use():
            return await self._driver.run(self._topics_call(topics, timeout, internal=include_internal))

    # -- the end

    async def close(self, *, timeout: float = 30.0, leave_group: bool | None = None) -> None:
        """Send the queued commits, call the listener, leave the group, end the network thread. Idempotent.

        timeout: seconds for all of it. leave_group: True leaves the group, False leaves the membership to its session
        time-out; None does what is usual: a static member (group_instance_id) stays, any other leaves (KIP-1092). Other
        tasks that wait in the consumer raise ConsumerClosedError. In a listener it returns at once, and the consumer
        closes when the call ends that the listener runs in. One that is cancelled still ends the membership, within the
        timeout: the network thread does the rest, and the interpreter waits for that when it exits; a second close
        waits for it too. An asynchronous listener that outlasts the timeout is cancelled. May be called in another loop
        once the consumer's own is closed.
        """
        limit = arguments.seconds("close", timeout)
        driver = self._driver
        driver.enter_close()
        if driver.nested:
            driver.close_later(functools.partial(self.close, timeout=limit, leave_group=leave_group))
        elif driver.closed or driver.closing:
            await driver.until_ended(now() + limit)
        else:
            await self._close(now() + limit, leave_group=leave_group)

    async def _close(self, deadline: float, *, leave_group: bool | None) -> None:
        driver = self._driver
        try:
            driver.close_others()
            if driver.alive:
                await self._run_close(deadline, leave_group=leave_group)
            driver.tell_death()
        except BaseException:
            if driver.alive:  # it was cancelled: the network thread does the rest
                self._application.end(now(), max(0.0, deadline - now()), leave=leave_group)
                driver.join_at_exit(max(0.0, deadline - now()))
            self._observers.each(lambda observer: observer.on_interrupted("close"))
            raise
        finally:
            try:
                driver.end()
            finally:
                self._interceptors.close()

    async def _run_close(self, deadline: float, *, leave_group: bool | None) -> None:
        driver = self._driver
        clean = False
        try:
            async with asyncio.timeout(deadline - now() + _GRACE) as bound:
                await driver.until_left(deadline)
                left = max(0.0, deadline - now())
                clean = await driver.run(self._application.close(now(), left, leave=leave_group))
        except TimeoutError:
            if not bound.expired():
                raise  # it is a listener's own
            self._application.end(now(), 0.0, leave=leave_group)
        except NetworkThreadDiedError as error:
            _logger.warning("%s: closing without the network thread: %s", self._config.client_id, error)
            return
        self._observers.each(lambda observer: observer.on_close(clean=clean))
        if not clean:
            _logger.warning("%s: not everything was sent, or had a response, when it closed", self._config.client_id)
        await driver.joined(1.0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
