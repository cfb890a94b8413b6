"""What a blocking consumer of records and one of ranges have in common: every verb but poll. No decision is made here.

Laws: those of `consumer`.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Never, Self, Unpack

from instride import arguments
from instride._core.application.committing import Offsets
from instride._core.application.deserializing import Read
from instride._core.application.partition import PollResult
from instride._core.events import EARLIEST, LATEST
from instride._net.clock import now
from instride._net.driver import Driver
from instride._verbs import Verbs
from instride.commits import CommitResult
from instride.config import (
    ConsumerConfig,
    ConsumerSettings,
    config_from_settings,
)
from instride.errors import IllegalStateError, NetworkThreadDiedError
from instride.interceptors import Interceptors
from instride.listeners import RebalanceListener
from instride.records import OffsetAndMetadata, OffsetAndTimestamp, PartitionInfo, TopicPartition

__all__ = ["Member"]

_logger = logging.getLogger("instride.consumer")


class Member(Verbs):
    """Not for users: `Consumer` and `RangeConsumer` are made of it."""

    _ranges = False

    def __init__(self, *misplaced: Never, **settings: Unpack[ConsumerSettings]) -> None:
        arguments.misplaced_settings(type(self).__name__, misplaced)
        self._config: ConsumerConfig = config_from_settings(settings)
        self._interceptors = Interceptors(self._config.interceptors)
        on_commit = self._interceptors.on_commit if self._interceptors else None
        self._driver: Driver = Driver(self._config, ranges=self._ranges, on_commit=on_commit)
        self._application = self._driver.application

    # -- what is read

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Join the group for these topics, or for all that match; replaces an earlier subscription. Does not block.

        pattern: a regular expression that matches the whole name of a topic (as in Java). It is matched at each
        refresh of the metadata, so that topics that are made or deleted later are found within metadata_max_age.
        Internal topics are left out unless exclude_internal_topics is False. `subscription` tells what matches now.
        listener: hears of rebalances (KIP-429), on this thread, inside poll, unsubscribe or close.
        Raises ConfigError without a group_id, IllegalStateError after `assign`, TypeError unless either topics or a
        pattern is given, ValueError for a pattern that is no regular expression.
        """
        with self._driver.use():
            self._subscribe(topics, arguments.listener(listener), pattern)

    def unsubscribe(self, *, timeout: float | None = None) -> None:
        """Give everything back: commits handed over are sent, listeners called, the group is left (rule 12)."""
        with self._driver.use():
            self._refuse_in_listener("unsubscribe")
            limit = self._timeout("unsubscribe", timeout)
            try:
                self._observers.each(lambda observer: observer.on_unsubscribe(done=False))
                in_time = self._driver.run(self._application.unsubscribe(now(), limit))
                if not in_time:
                    self._observers.each(lambda observer: observer.on_timed_out("unsubscribe"))
                self._observers.each(lambda observer: observer.on_unsubscribe(done=True))
            except BaseException:
                self._application.give_up(now(), limit)
                self._observers.each(lambda observer: observer.on_interrupted("unsubscribe"))
                raise

    # -- commits

    def commit(
        self,
        offsets: Offsets | None = None,
        *,
        timeout: float | None = None,
        wait_for_rebalance: bool = True,
        allow_rewind: bool = False,
    ) -> CommitResult:
        """Commit and wait for the response. None: what the last poll returned, of every partition held, as in Java.

        Returns what the group has now because of it, and of the rest why not: what a snapshot says of an assignment or
        a seek that is over (StaleCommitError), and what lies behind a later offset that the group has
        (CommitOvertakenError). Where nothing at all was committed since all of a snapshot is stale, that is raised.

        allow_rewind: send offsets behind those that the group has (else: after a seek only).
        A rebalance is no reason to fail: the commit is sent while the broker takes it, else held and sent with the new
        generation. Raises RebalanceInProgressError when the timeout ends first, or at once where it is refused and
        wait_for_rebalance is False (KIP-429); KafkaTimeoutError: it is not known what became of it; what a broker
        refuses; and for offsets given as a dict CommitFailedError where a partition is not ours (any more), and
        CommitRewindError where one lies behind what the broker accepted before. Other partitions of a commit that
        raises may have been committed.
        """
        with self._driver.use():
            return self._driver.run(
                self._commit_call(offsets, timeout, wait_for_rebalance=wait_for_rebalance, allow_rewind=allow_rewind)
            )

    def commit_async(self, offsets: Offsets | None = None, *, allow_rewind: bool = False) -> Future[CommitResult]:
        """Hand a commit over and go on. Sent as soon as possible, with others; carried over a rebalance.

        The future ends as `commit` would: with a `CommitResult`, or an error. One that a later commit of the partition
        overtakes before it is sent ends with that one, and says so. Its callbacks run on the network thread: keep them
        short.
        """
        with self._driver.use():
            return self._commit_async(offsets, allow_rewind=allow_rewind)

    def committed(
        self, *partitions: TopicPartition | Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets of any partitions, from the broker; None where there is none.

        Raises IllegalStateError without a group_id, KafkaTimeoutError, GroupAuthorizationFailedError.
        """
        with self._driver.use():
            return self._driver.run(self._committed_call(partitions, timeout))

    # -- positions

    def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """The offset of the next record that poll will return. Waits until it is known.

        Raises ValueError for a partition that is not assigned, WakeupError, KafkaTimeoutError, and what keeps it from
        being found: NoOffsetForPartitionError with auto_offset_reset "none", errors of the partition or the group.
        """
        with self._driver.use():
            return self._driver.run(self._position_call(partition, timeout))

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset that the log still has."""
        with self._driver.use():
            return self._driver.run(self._ends_call("beginning_offsets", partitions, EARLIEST, timeout))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """High watermarks; with isolation_level "read_committed" the last stable offsets."""
        with self._driver.use():
            return self._driver.run(self._ends_call("end_offsets", partitions, LATEST, timeout))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Of each partition the first record whose timestamp is that or later; None where there is none.

        timestamps: milliseconds since 1970, as records bear them. A negative one is a ValueError.
        Raises KafkaTimeoutError (no leader, say), TopicAuthorizationFailedError.
        """
        with self._driver.use():
            return self._driver.run(self._times_call(timestamps, timeout))

    # -- what there is

    def partitions_for(self, topic: str, *, timeout: float | None = None) -> list[PartitionInfo]:
        """The topic's partitions, by number; none where it does not exist. It is not created.

        Asks a broker each time. Raises TopicAuthorizationFailedError, InvalidTopicError, KafkaTimeoutError.
        """
        with self._driver.use():
            return self._driver.run(self._partitions_call(topic, timeout))

    def list_topics(
        self, *, include_internal: bool = False, timeout: float | None = None
    ) -> dict[str, list[PartitionInfo]]:
        """Every topic that we may describe, with its partitions. Asks a broker each time.

        include_internal: also __consumer_offsets and its like. Raises KafkaTimeoutError.
        """
        with self._driver.use():
            return self._driver.run(self._topics_call(timeout, internal=include_internal))

    # -- the end

    def close(self, *, timeout: float = 30.0, leave_group: bool | None = None) -> None:
        """Send what was handed over, call listeners, leave the group, end the thread. Idempotent.

        In a listener, or in a signal's handler that interrupts another call of the consumer, this returns at once: that
        call is woken up, so a blocking one raises `WakeupError`, and the consumer closes when it ends.
        One that is interrupted (Ctrl-C in a listener, say) still ends the membership, within the timeout, and the
        interpreter waits for that when it exits; a second close waits for it too.
        timeout: seconds for all of it. leave_group: True leaves the group, False leaves the membership to its session
        time-out; None does what is usual: a static member (group_instance_id) stays, any other leaves (KIP-1092).
        """
        self._close(timeout, leave_group=leave_group)

    def _close(self, timeout: float, *, leave_group: bool | None) -> None:
        timeout = arguments.seconds("close", timeout)
        self._driver.refuse_on_network_thread()
        if self._driver.closed:
            self._driver.join(timeout)  # of a close that was interrupted
            return
        if self._driver.inside:
            self._driver.close_later(functools.partial(self._close, timeout, leave_group=leave_group))
            return
        with self._driver.use():
            try:
                if self._driver.alive:
                    self._run_close(timeout, leave_group=leave_group)
            except BaseException:
                if self._driver.alive:  # it was interrupted: the network thread does the rest
                    self._application.end(now(), timeout, leave=leave_group)
                    self._driver.join_at_exit(timeout)
                self._observers.each(lambda observer: observer.on_interrupted("close"))
                raise
            finally:
                self._driver.closed = True
                self._interceptors.close()

    def _run_close(self, timeout: float, *, leave_group: bool | None) -> None:
        try:
            clean = self._driver.run(self._application.close(now(), timeout, leave=leave_group))
            self._observers.each(lambda observer: observer.on_close(clean=clean))
            if not clean:
                _logger.warning(
                    "%s: not everything was sent, or had a response, when it closed", self._config.client_id
                )
        except NetworkThreadDiedError as error:
            _logger.warning("%s: closing without the network thread: %s", self._config.client_id, error)
        self._driver.join(1.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside

    def _refuse_in_listener(self, verb: str) -> None:
        if self._driver.nested:
            raise IllegalStateError(f"{verb} cannot be called from a rebalance listener")

    def _poll(
        self, timeout: float | None, *, immediate: bool, limit: int | None, read: Read | None = None
    ) -> PollResult:
        self._refuse_in_listener("poll")
        try:
            return self._driver.run(self._poll_call(timeout, immediate=immediate, limit=limit, read=read))
        except NetworkThreadDiedError as error:
            died = error
            self._observers.each(lambda observer: observer.on_died(died))
            raise
