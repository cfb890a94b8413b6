"""What every consumer has. `ConsumerBase`: the methods that never wait, and the calls of those that do.
`BlockingConsumer`: the same for a consumer of records or of ranges whose driver runs these calls, all but poll.

Laws: those of `consumer`. No decision is made here.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Never, Self, TypeVar, Unpack
from uuid import UUID

from instride import _arguments as arguments
from instride._core.application.calls import Call
from instride._core.application.committing import Offsets
from instride._core.application.deserializing import Read
from instride._core.application.machine import ApplicationMachine
from instride._core.application.ownership_view import Reason
from instride._core.application.partition import PollResult
from instride._core.events import EARLIEST, LATEST
from instride._interceptors import Interceptors
from instride._net.async_driver import AsyncDriver
from instride._net.clock import now
from instride._net.driver import Driver
from instride._unknown_settings import config_from_settings
from instride.commits import CommitResult
from instride.config import ConsumerConfig, ConsumerSettings, RunningSettings, changed_while_running
from instride.errors import (
    ConsumerClosedError,
    IllegalStateError,
    KafkaError,
    NetworkThreadDiedError,
    WakeupError,
)
from instride.errors._quoting import counted
from instride.listeners import AsyncRebalanceListener, RebalanceListener
from instride.metrics import MetricName
from instride.observers import ObservedListener, Observer, Observers, Polled
from instride.records import GroupMetadata, OffsetAndMetadata, OffsetAndTimestamp, PartitionInfo, TopicPartition
from instride.telemetry import Hold

__all__ = ["BlockingConsumer", "ConsumerBase"]

_logger = logging.getLogger("instride.consumer")

K = TypeVar("K")
T = TypeVar("T")


class ConsumerBase:
    """Not for users: `Consumer`, `RangeConsumer` and `AsyncConsumer` are made of it."""

    _limit_name = "max_records"
    _driver: Driver | AsyncDriver
    _application: ApplicationMachine
    _config: ConsumerConfig
    _interceptors: Interceptors

    def observe(self, observer: Observer) -> None:
        """Let it hear what this consumer does (`instride.observers`). Before the first use of the consumer only:
        IllegalStateError later, since an observer that misses the beginning is told a wrong story.
        """
        with self._driver.use():
            if self._driver.started:
                raise IllegalStateError("observe a consumer before its first use: what came before is not known")
            observer.on_observed(self, self._config)
            self._observers.append(observer)  # last: one that refuses hears nothing

    @property
    def _observers(self) -> Observers:
        return self._driver.observers

    def change_settings(self, **settings: Unpack[RunningSettings]) -> None:
        """Change what may be changed while the consumer runs: `max_poll_records`, `fetch_fairness`, `prefetch`,
        `fetch_buffer_bytes`, `fetch_min_bytes`, `fetch_max_wait`, `fetch_max_bytes`, `max_partition_fetch_bytes`.

        From the next poll and the next fetch on; what is buffered stays. Does not block.
        Raises ConfigError for another setting or a wrong value; then nothing was changed.
        """
        with self._driver.use():
            self._config = changed_while_running(self._config, settings)
            self._driver.change_settings(self._config)

    # -- what is read

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a group's membership. Does not block.

        They start at the group's committed offset where a group_id is set and there is one, else where
        auto_offset_reset says, unless `seek` says otherwise. Raises IllegalStateError after `subscribe`, and while an
        unsubscribe gives up what is owned.
        """
        with self._driver.use():
            self._application.assign(arguments.partitions("assign", partitions), now=now())

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed, or that the pattern matches now; none after `assign`. Local."""
        with self._driver.use():
            return self._application.subscription()

    def assignment(self) -> frozenset[TopicPartition]:
        """Every partition that is owned, those to be revoked included until their revocation is complete."""
        with self._driver.use():
            return self._application.assignment()

    def enforce_rebalance(self, reason: str = "enforce_rebalance was called") -> None:
        """Join the group again, so that the group assigns its partitions anew (KIP-568). Does not block.

        reason: for the broker's log (KIP-800); what is longer than 255 characters is cut. Raises IllegalStateError
        without a subscription.
        """
        with self._driver.use():
            self._application.enforce_rebalance(arguments.text("enforce_rebalance", "reason", reason, most=255))

    def group_metadata(self) -> GroupMetadata:
        """Who this member is, for a transactional producer that commits its offsets (KIP-447). Local.

        It is of the newest assignment that a poll has taken, so that the broker refuses the offsets of a member that
        does not know yet of its loss. Raises IllegalStateError without a group_id.
        """
        with self._driver.use():
            return self._application.group_metadata()

    # -- KIP-983

    def to_be_revoked_partitions(self) -> frozenset[TopicPartition]:
        """Partitions that will be revoked in the next poll, unless `delay_revoke` delays them (KIP-983)."""
        with self._driver.use():
            return self._application.to_be_revoked()

    def lost_partitions(self) -> frozenset[TopicPartition]:
        """Partitions that were lost during the last poll: stop their work, commit nothing of it (KIP-983)."""
        with self._driver.use():
            return self._application.lost()

    def delay_revoke(self, partitions: Iterable[TopicPartition], *, reason: Reason = None) -> bool:
        """Delay the revocation of these partitions: the next poll does not release them. The poll after it does,
        unless they are delayed again (KIP-983).

        True on success; False when some were lost, or their revocation is completing or complete (the others are
        delayed). Delaying nothing is True. Raises ValueError for a partition whose revocation was never requested, and
        ConfigError with enable_auto_commit. reason: what they wait for, for telemetry: a text, or a function of the
        partition that returns a record, a range or a text, such as `OffsetLedger.oldest`.
        """
        with self._driver.use():
            wanted = arguments.partitions("delay_revoke", partitions)
            accepted = self._application.delay_revoke(wanted, reason=reason, now=now())
            if self._observers and wanted:
                told = tuple(sorted(wanted))
                self._observers.each(lambda observer: observer.on_delay_revoke(told, accepted=accepted))
            return accepted

    def failed_partitions(self) -> dict[TopicPartition, Exception]:
        """What keeps partitions of ours from going on, until that has passed: a record that cannot be deserialized, a
        corrupt batch, a refusal by a broker. A poll has raised it, or will; the others go on. Local.

        `seek` goes past it. What may pass is tried again with a back-off, and raised again when it fails again.
        """
        with self._driver.use():
            return self._application.failed()

    def holdings(self) -> dict[TopicPartition, Hold]:
        """Each partition of ours, its state, since when, what its delay waits for. Local; any thread may ask."""
        # No `use`: a thread that watches asks while another is inside a poll.
        return self._application.holdings()

    def metrics(self) -> dict[MetricName, float]:
        """All metrics now, by Java's names where it has them (`instride.metrics`). Any thread may ask, any time."""
        return self._driver.metrics()

    def revoke_deadline(self, partition: TopicPartition) -> float | None:
        """Seconds until a partition that is to be revoked would be lost; None where no revocation is pending."""
        with self._driver.use():
            return self._application.revoke_deadline(now(), arguments.partition("revoke_deadline", partition))

    # -- positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Go on from this offset. Records that were fetched or finished before the seek are dropped.

        offset: of the next record. An OffsetAndMetadata has its leader epoch, by which a log that was cut since is
        noticed.
        """
        with self._driver.use():
            to = arguments.seek_offset(offset)
            self._seek(arguments.partition("seek", partition), to.offset, to.leader_epoch)

    def fetched_topic_id(self, partition: TopicPartition) -> UUID | None:
        """Kafka's id of the topic of which all of this partition was fetched since it was assigned, sought or reset.

        A topic that is deleted and made again has another id, and its offsets mean other records: who keeps offsets
        elsewhere compares the ids (KIP-516). None where nothing was fetched yet, or where some of it was fetched by the
        topic's name, as from brokers before Kafka 3.1; `partitions_for` asks for the id then. Local.
        Raises ValueError for a partition that is not ours.
        """
        with self._driver.use():
            return self._application.fetched_topic_id(arguments.partition("fetched_topic_id", partition))

    def seek_to_beginning(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Go on from the first offset of these, or of all that are owned. It is looked up when it is needed."""
        self._seek_all("seek_to_beginning", partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Go on from the end of these, or of all that are owned. It is looked up when it is needed."""
        self._seek_all("seek_to_end", partitions, LATEST)

    def _seek_all(
        self, verb: str, partitions: tuple[TopicPartition | Iterable[TopicPartition], ...], where: int
    ) -> None:
        with self._driver.use():
            named = arguments.named_partitions(verb, partitions) or tuple(self._application.assignment())
            self._application.refuse_unassigned(named)
            for partition in named:
                self._seek(partition, where)

    def _seek(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        self._application.seek(partition, offset, leader_epoch)
        self._observers.each(lambda observer: observer.on_seek(partition))

    def lag(self, partition: TopicPartition) -> int | None:
        """Records between the position and the partition's end as the last fetch saw it; None while unknown. Local.

        The end is the high watermark, or with isolation_level "read_committed" the last stable offset. Offsets are
        counted: those of markers and of records that compaction removed too. Raises ValueError where the partition
        is not assigned.
        """
        with self._driver.use():
            return self._application.lag(arguments.partition("lag", partition))

    def pause(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Return nothing of these until `resume`. What is buffered stays; they stay assigned."""
        with self._driver.use():
            self._application.pause(arguments.named_partitions("pause", partitions))

    def resume(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """End a pause. What is not paused stays as it is."""
        with self._driver.use():
            self._application.resume(arguments.named_partitions("resume", partitions))

    def paused(self) -> frozenset[TopicPartition]:
        """Those that `pause` holds back. A pause ends with its assignment (KIP-983's epoch)."""
        with self._driver.use():
            return self._application.paused()

    # -- the end

    def wakeup(self) -> None:
        """Make the present or next blocking call raise `WakeupError`. From any thread."""
        self._driver.wakeup()

    def __repr__(self) -> str:
        state = "closed" if self._driver.closed else counted(len(self.holdings()), "partition")
        config = self._config
        return f"{type(self).__name__}(client_id={config.client_id!r}, group_id={config.group_id!r}, {state})"

    # -- calls: what waits, for a driver to run inside `use`

    def _commit_call(
        self, offsets: Offsets | None, timeout: float | None, *, wait_for_rebalance: bool, allow_rewind: bool
    ) -> Call[CommitResult]:
        limit, what = self._timeout("commit", timeout), arguments.commit_offsets(offsets)
        call = self._application.commit(now(), what, limit, carry_over=wait_for_rebalance, allow_rewind=allow_rewind)
        self._tell_rewind(what, allowed=allow_rewind)
        return self._observed_commit(what, call) if self._observers else call

    def _commit_async(self, offsets: Offsets | None, *, allow_rewind: bool) -> Future[CommitResult]:
        futures: list[Future[CommitResult]] = []
        what = arguments.commit_offsets(offsets)
        self._tell_rewind(what, allowed=allow_rewind)
        self._observers.each(lambda observer: observer.on_commit(what, self._application.positions))
        # The future is taken by `on_call`, before the commit is posted: its response may come before this returns.
        self._application.commit_async(
            now(), what, allow_rewind=allow_rewind, on_call=lambda call: futures.append(self._driver.future(call))
        )
        # An empty commit is never posted, so no call has a future.
        return futures[0] if futures else _nothing_to_commit()

    def _committed_call(
        self, partitions: tuple[TopicPartition | Iterable[TopicPartition], ...], timeout: float | None
    ) -> Call[dict[TopicPartition, OffsetAndMetadata | None]]:
        wanted, limit = arguments.named_partitions("committed", partitions), self._timeout("committed", timeout)
        return _as_dict(self._application.committed(now(), wanted, limit))

    def _position_call(self, partition: TopicPartition, timeout: float | None) -> Call[int]:
        tp, limit = arguments.partition("position", partition), self._timeout("position", timeout)
        return self._application.position(now(), tp, limit)

    def _ends_call(
        self, verb: str, partitions: Iterable[TopicPartition], where: int, timeout: float | None
    ) -> Call[dict[TopicPartition, int]]:
        wanted, limit = dict.fromkeys(arguments.partitions(verb, partitions), where), self._timeout(verb, timeout)
        return _as_dict(self._application.offsets_for(now(), wanted, limit))

    def _times_call(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None
    ) -> Call[dict[TopicPartition, OffsetAndTimestamp | None]]:
        wanted, limit = arguments.times(timestamps), self._timeout("offsets_for_times", timeout)
        return _as_dict(self._application.offsets_for_times(now(), wanted, limit))

    def _partitions_call(self, topic: str, timeout: float | None) -> Call[list[PartitionInfo]]:
        names = (arguments.text("partitions_for", "topic", topic),)
        limit = self._timeout("partitions_for", timeout)
        found = yield from self._application.topics(now(), names, limit, internal=True)
        return list(found.get(topic, ()))

    def _topics_call(
        self, topics: Iterable[str] | None, timeout: float | None, *, internal: bool
    ) -> Call[dict[str, list[PartitionInfo]]]:
        names, limit = None if topics is None else _names(topics), self._timeout("list_topics", timeout)
        # An internal one that is named is meant.
        internal = internal or names is not None
        found = yield from self._application.topics(now(), names, limit, internal=internal)
        return {topic: list(found[topic]) for topic in sorted(found)}

    def _poll_call(
        self, timeout: float | None, *, immediate: bool, limit: int | None, read: Read | None = None
    ) -> Call[PollResult]:
        wait = arguments.seconds("poll", timeout, default=arguments.FOREVER)
        most = self._config.poll_records if limit is None else arguments.count("poll", self._limit_name, limit)
        call = self._application.poll_aside(now(), wait, immediate=immediate, limit=most, read=read)
        return self._observed_poll(call) if self._observers else call

    def _rows(self, max_records: int | None) -> int | None:
        """The bound of a poll of Arrow: none where nobody sets one, since each table has a cost of its own."""
        return -1 if max_records is None and self._config.max_poll_records is None else max_records

    # -- what observers hear

    def _subscribe(
        self,
        topics: Iterable[str] | None,
        listener: AsyncRebalanceListener | None,
        pattern: str | re.Pattern[str] | None,
    ) -> None:
        if self._observers:
            topics = topics if topics is None or isinstance(topics, str) else tuple(topics)  # which are read once
            named = topics if isinstance(topics, tuple) else ()
            self._observers.each(lambda observer: observer.on_subscribe(named))
            listener = listener and ObservedListener(listener, self._observers)
        self._application.subscribe(topics, listener, pattern)

    def _tell_rewind(self, offsets: Offsets | None, *, allowed: bool) -> None:
        if allowed:
            self._observers.each(lambda observer: observer.on_allow_rewind(offsets, self._application.positions))

    def _observed_commit(self, offsets: Offsets | None, call: Call[CommitResult]) -> Call[CommitResult]:
        self._observers.each(lambda observer: observer.on_commit(offsets, self._application.positions))
        try:
            return (yield from call)
        except WakeupError:
            raise  # it is not known yet what became of it, and the caller asks again
        except KafkaError as error:
            failure = error
            self._observers.each(lambda observer: observer.on_commit_failed(failure))
            raise

    def _observed_poll(self, call: Call[PollResult]) -> Call[PollResult]:
        result, application = (yield from call), self._application
        polled = Polled(
            to_be_revoked=application.to_be_revoked(),
            lost=application.lost(),
            paused=application.paused(),
            positions=application.positions,
            deliveries=result.deliveries,
            completed=lambda: result.aside is None,
        )
        self._observers.each(lambda observer: observer.on_poll(polled))
        return result

    # -- inside

    def _timeout(self, verb: str, timeout: float | None) -> float:
        return arguments.seconds(verb, timeout, default=self._config.default_api_timeout)


class BlockingConsumer(ConsumerBase):
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
        Raises ConfigError without a group_id, IllegalStateError after `assign` and while an unsubscribe gives up what
        is owned, TypeError unless either topics or a pattern is given, ValueError for a pattern that is no regular
        expression.
        """
        with self._driver.use():
            self._subscribe(topics, arguments.listener(listener), pattern)

    def unsubscribe(self, *, timeout: float | None = None) -> None:
        """Revoke everything: send the queued commits, call the listeners, leave the group
        (docs/rebalance.md, rule 12).

        timeout: seconds, else default_api_timeout; when it ends the consumer leaves without what is missing, and the
        listener hears of that as lost. Raises what a listener raises. One that is interrupted still leaves the group;
        if nobody closes the consumer after it, the interpreter waits for that when it exits.
        """
        with self._driver.use():
            self._refuse_in_listener("unsubscribe")
            self._driver.refuse_on_network_thread()
            limit, since = self._timeout("unsubscribe", timeout), self._application.unsubscribed
            try:
                self._observers.each(lambda observer: observer.on_unsubscribe(done=False))
                in_time = self._driver.run(self._application.unsubscribe(now(), limit))
                if not in_time:
                    self._observers.each(lambda observer: observer.on_timed_out("unsubscribe"))
                self._observers.each(lambda observer: observer.on_unsubscribe(done=True))
            except BaseException:
                self._application.give_up(now(), limit, since=since)
                self._driver.end_at_exit(limit)
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
        """Commit offsets and wait for the response. Without offsets: the position of each owned partition.

        The position is the offset of the next record that poll will return: after a seek it is where the seek led.
        Paused partitions are included, as in Java. A partition is left out while its position is not known, and while
        its revocation is completing (its listener may still commit it).

        The result says what the group has now because of this call. Of each other partition it has an error: its entry
        in a snapshot is of an assignment or a seek that is over (StaleCommitError), the group has a later
        offset (CommitOvertakenError), or its revocation is completing (CommitFailedError). If the group has nothing
        because of this call, it raises StaleCommitError or CommitFailedError.

        allow_rewind: also send offsets below those that the group has; else only a seek allows that.
        wait_for_rebalance: a commit that the broker refuses during a rebalance waits for the new generation. False:
        it raises RebalanceInProgressError at once (KIP-429).
        Raises RebalanceInProgressError when the timeout ends during a rebalance; KafkaTimeoutError when it ends before
        the response, so that the outcome is unknown; and the errors with which a broker refuses. For offsets given as a
        dict it raises CommitFailedError if this member does not own a partition (any more), and CommitRewindError if an
        offset lies below one that the broker accepted. A commit that raises may have committed some partitions.
        """
        with self._driver.use():
            return self._driver.run(
                self._commit_call(offsets, timeout, wait_for_rebalance=wait_for_rebalance, allow_rewind=allow_rewind)
            )

    def commit_async(self, offsets: Offsets | None = None, *, allow_rewind: bool = False) -> Future[CommitResult]:
        """Hand a commit over and go on. It is sent as soon as possible, with others, and outlives a rebalance.

        The future ends as `commit` would: with a `CommitResult`, or an error. If a later commit of the partition goes
        in its place, both end together, and the result says so (CommitOvertakenError). The future's callbacks run on
        the network thread: keep them short.
        Raises at once, and commits nothing, CommitFailedError where a dict names a partition that this member does not
        own (any more), ValueError for a negative offset, and IllegalStateError without a group_id.
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
        """The first offset that each log still has, from its leader.

        timeout: seconds, else default_api_timeout. Raises KafkaTimeoutError (no leader, say),
        TopicAuthorizationFailedError.
        """
        with self._driver.use():
            return self._driver.run(self._ends_call("beginning_offsets", partitions, EARLIEST, timeout))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """High watermarks, from the leaders; with isolation_level "read_committed" the last stable offsets.

        timeout: seconds, else default_api_timeout. Raises KafkaTimeoutError (no leader, say),
        TopicAuthorizationFailedError.
        """
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
        self, topics: Iterable[str] | None = None, *, include_internal: bool = False, timeout: float | None = None
    ) -> dict[str, list[PartitionInfo]]:
        """Every topic that we may describe, or those of `topics` that there are, with their partitions. Asks a broker
        each time, in one request. Creates no topic.

        include_internal: also __consumer_offsets and its like, which `topics` may name in any case.
        Raises KafkaTimeoutError; with `topics` TopicAuthorizationFailedError and InvalidTopicError, too, if one of them
        has it.
        """
        with self._driver.use():
            return self._driver.run(self._topics_call(topics, timeout, internal=include_internal))

    # -- the end

    def close(self, *, timeout: float = 30.0, leave_group: bool | None = None) -> None:
        """Send the queued commits, call the listeners, leave the group, end the network thread. Idempotent.

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
        entered = False
        try:
            with self._driver.use():
                entered = True
                self._close_open(timeout, leave_group=leave_group)
        except ConsumerClosedError:
            if entered:
                raise  # a listener's own
            self._driver.join(timeout)  # a signal's handler has closed it since we looked

    def _close_open(self, timeout: float, *, leave_group: bool | None) -> None:
        try:
            if self._driver.alive:
                self._run_close(timeout, leave_group=leave_group)
            self._driver.tell_death()
        except BaseException:
            if self._driver.alive:  # it was interrupted: the network thread does the rest
                self._application.end(now(), timeout, leave=leave_group)
                self._driver.join_at_exit(timeout)
            self._observers.each(lambda observer: observer.on_interrupted("close"))
            raise
        finally:
            self._driver.mark_closed()
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
            # To close is what this error asks for: so it must not make a close fail.
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
            raise IllegalStateError(
                f"{verb} cannot be called inside another call of this consumer: not by a listener, a deserializer, an "
                "interceptor or a signal handler"
            )

    def _poll(
        self, timeout: float | None, *, immediate: bool, limit: int | None, read: Read | None = None
    ) -> PollResult:
        self._refuse_in_listener("poll")
        try:
            return self._driver.run(self._poll_call(timeout, immediate=immediate, limit=limit, read=read))
        except NetworkThreadDiedError as error:
            self._driver.tell_death(error)
            raise


def _names(topics: Iterable[str]) -> tuple[str, ...]:
    """Raises TypeError, ValueError."""
    if isinstance(topics, str | bytes) or not isinstance(topics, Iterable):
        raise TypeError(f'list_topics takes a list of topics, such as ["flights"], not {topics!r}')
    return tuple(dict.fromkeys(arguments.text("list_topics", "topic", each) for each in topics))


def _as_dict(call: Call[Mapping[K, T]]) -> Call[dict[K, T]]:
    return dict((yield from call))


def _nothing_to_commit() -> Future[CommitResult]:
    done: Future[CommitResult] = Future()
    done.set_result(CommitResult())
    return done
