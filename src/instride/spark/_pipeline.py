"""`Pipeline`: from Kafka through your function into a sink, each offset exactly once, on Spark.

Laws
1. Building one checks every setting and does nothing else. `run` does the rest, once.
2. No record passes through the driver: it is a group member that is handed ranges of offsets, and its Spark jobs read
   them on the executors, straight from the brokers.
3. The sink has the truth: see `instride.spark.sink`. The group's offsets follow it.
"""

from __future__ import annotations

import logging
import queue
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, get_args

from instride._arguments import FOREVER
from instride._coroutines import is_asynchronous
from instride.config import AutoOffsetReset, IsolationLevel
from instride.consumer import RangeConsumer
from instride.errors import ConfigError, IllegalStateError
from instride.observers import Observer
from instride.records import TopicPartition
from instride.spark._connect_jobs import ConnectJobRunner, over_connect
from instride.spark._data_source.cluster import not_there
from instride.spark._dead_letters import DeadLetters
from instride.spark._events import PipelineEvent
from instride.spark._frames import Frames, no_function
from instride.spark._functions import pickle_function
from instride.spark._handle import PipelineQuery
from instride.spark._pipeline_loop import LoopSettings, Message, PipelineLoop, inbox_dispatcher
from instride.spark._planning import Limits
from instride.spark._progress_line import ProgressLine
from instride.spark._range_reader import ReaderSettings, carried, end_offsets
from instride.spark._starting import TopicLookup
from instride.spark._task import BatchFormat, CalledPer, RangeTask
from instride.spark.sink import Sink
from instride.telemetry import TelemetryListener

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from instride._processing.dead_letters import DeadLetter
    from instride.spark._jobs import JobRunner

__all__ = ["Pipeline"]

_log = logging.getLogger(__name__)

_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")


class Pipeline:
    """Read topics as a member of a group, work on the records in Spark, write the results to a sink exactly once.

        pipeline = Pipeline(
            spark,
            topics=["flights"], group_id="delays", bootstrap_servers="localhost:9092",
            function=late_ones, sink=ParquetSink("/data/delays"),
        )
        signal.signal(signal.SIGTERM, lambda *_: pipeline.stop())
        pipeline.run()

    Any number of applications with one group share the topics, and come and go. A partition whose job takes long is
    handed over when that job is committed; all others go on meanwhile.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        topics: Iterable[str],
        group_id: str,
        bootstrap_servers: str | Sequence[str],
        function: Callable[[Any], Any],
        sink: Sink,
        batch_format: BatchFormat = "arrow",
        called_per: CalledPer = "batch",
        columns: Sequence[str] | None = None,
        schema: pa.Schema | None = None,
        on_event: Callable[[PipelineEvent], None] | None = None,
        telemetry: TelemetryListener | None = None,
        progress_line: bool = True,
        max_range_records: int | None = None,
        max_range_bytes: int = 64 << 20,
        max_concurrent_jobs: int = 8,
        ranges_per_task: int = 32,
        split_ranges: bool = False,
        linger: float = 0.1,
        available_now: bool = False,
        retries: int = 3,
        retry_backoff: float = 0.5,
        retry_backoff_max: float = 30.0,
        dead_letters: str | None = None,
        max_dead_letters: int = 100,
        produce: Callable[[DeadLetter], Any] | None = None,
        stop_timeout: float = 60.0,
        read_timeout: float = 60.0,
        fail_on_data_loss: bool = True,
        client_id: str = "instride-pipeline",
        auto_offset_reset: AutoOffsetReset = "earliest",
        isolation_level: IsolationLevel = "read_uncommitted",
        assignors: Sequence[str] = ("cooperative-sticky",),
        session_timeout: float = 45.0,
        heartbeat_interval: float = 3.0,
        max_revoke_delay: float = 300.0,
        range_poll_interval: float = 0.1,
        security: Mapping[str, Any] | None = None,
    ) -> None:
        """Times are in seconds, counts are ints. Raises ConfigError, or what pickling the function raises.

        function: given one batch of records of one partition, with the columns topic, partition, offset, timestamp,
            timestamp_type, key, value, headers, returns what is to be written: a pyarrow RecordBatch or Table, a
            pandas DataFrame, an iterable of these, or None. It runs on the executors and may be run again for the
            same records; only one run's results become visible.
        batch_format: "arrow" gives the function a pyarrow.RecordBatch, "pandas" a pandas.DataFrame. "spark" gives it a
            DataFrame of Spark, of one range of one partition, and it returns one; it runs in the driver, in threads.
        called_per: "range" calls the function once for a range, with an iterator of its batches: what it does before
            the first and after the last is its set-up and tear-down. Batches that it leaves are read and dropped. An
            error of reading fails the range, also where the function catches it.
        columns: which of those the function is given, in this order; None: all. What is not chosen is not made;
            headers cost most.
        schema: the results are cast to it; needed where batches could differ (pandas columns that are all null).
        on_event: hears of what happens; see `PipelineEvent`. Runs on run's thread: keep it short.
        telemetry: hears of rebalances and hand-overs; see `instride.telemetry`. A delay's blocker names its job.
        progress_line: one line on standard error, where that is a terminal, says how far it is.
        max_range_records, max_range_bytes: of one partition in one job. Records None: 100,000, and more of them where
            the partition's last range shows that they take no more than half a second.
        max_concurrent_jobs: Spark jobs at a time; partitions that take long hold one each.
        ranges_per_task: how many ranges share a task, at most, where over 32 partitions have offsets: that saves some
            20 ms of Spark's time for each. Partitions that took long never share; with 1 none do.
        split_ranges: order within a range does not matter: a large one is read by several tasks, each a part, where
            cores are free. Then the function, called_per and max_dead_letters are for a part, not for the range. With
            batch_format "spark" several tasks read a large range in any case.
        linger: how long a partition's offsets may gather before they are worth a job. Jobs begin at least so far apart,
            but for what fills a range.
        available_now: `run` returns when what was in the topics at its start is in the sink, as far as the group gives
            it to this member. One that is given no partition waits for the others. A topic that is not there is an
            error, and so is one that goes away before all of it is in the sink. A log that becomes shorter is one, too,
            but with fail_on_data_loss=False it is read to its end.
        retries, retry_backoff(_max): how often failed work on a range is tried again, and after how long. Then the
            pipeline stops, with nothing skipped.
        dead_letters: a topic. In a range's last try, records at which the function raises go there, as they were, with
            headers that tell where from and why; the rest of the range is committed when they are acknowledged. The
            function must be right for any part of a batch. With the extra instride[produce] on the executors.
        max_dead_letters: of one range; where more would go, the range fails: that is an outage, not bad records.
        produce: writes a `DeadLetter` instead of confluent-kafka: it returns None when the letter is acknowledged, or a
            concurrent.futures.Future; anything else fails the range (ConfigError). It runs on the executors.
        stop_timeout: how long a stop waits for the work in progress.
        read_timeout: how long a task waits for records that do not come.
        fail_on_data_loss: stop where offsets to be read are not in the log any more; False goes on without them. Where
            the log ends before the sink's position it stops in any case, since no sink can go back.
        max_revoke_delay: how long a partition that is to be revoked is kept for its job's sake, at most; it is
            Kafka's max.poll.interval.ms, which has no other use here.
        auto_offset_reset: where a partition starts of which neither the sink nor the group knows an offset.
        isolation_level, assignors, session_timeout, heartbeat_interval, range_poll_interval: as the consumer's.
        security: the consumer's settings that begin with security_, ssl_ and sasl_, for driver and executors. Files
            must be there under the same names; an ssl_context cannot travel. The executors are sent the secrets.
        """
        self._spark = spark
        self._topics = _checked_topics(topics)
        self._group_id = group_id
        self._sink = _checked_sink(sink)
        self._function = function
        self._on_event = _listener(on_event)
        self._progress_line = progress_line
        _check_work(function, batch_format, called_per, group_id, dead_letters)
        _durations(stop_timeout=stop_timeout, read_timeout=read_timeout, max_revoke_delay=max_revoke_delay)
        _switches(progress_line=progress_line, split_ranges=split_ranges, fail_on_data_loss=fail_on_data_loss)
        _switches(available_now=available_now)
        self._batch_format, self._called_per, self._schema = batch_format, called_per, _checked_schema(schema)
        self._settings = LoopSettings(
            topics=self._topics,
            stop_timeout=stop_timeout,
            fail_on_data_loss=fail_on_data_loss,
            limits=Limits(
                range_records=max_range_records,
                range_bytes=max_range_bytes,
                jobs=max_concurrent_jobs,
                task_ranges=ranges_per_task,
                alone=batch_format == "spark",
                split=split_ranges and batch_format != "spark",
                linger=linger,
                retries=retries,
                backoff=retry_backoff,
                backoff_max=retry_backoff_max,
            ),
        )
        _check_limits(self._settings.limits)
        self._reader = ReaderSettings(
            bootstrap_servers=bootstrap_servers if isinstance(bootstrap_servers, str) else tuple(bootstrap_servers),
            client_id=f"{client_id}-reader",
            isolation_level=isolation_level,
            timeout=_checked_timeout(read_timeout),
            fail_on_data_loss=fail_on_data_loss,
            columns=_checked_columns(columns),
            security=carried(checked := _checked_security({} if security is None else security)),
        )
        self._dead_letters = _checked_letters(
            dead_letters, produce, group=group_id, most=max_dead_letters, run=self._settings, reader=self._reader
        )
        self._consumer = RangeConsumer(
            bootstrap_servers=bootstrap_servers,
            group_id=group_id,
            client_id=client_id,
            auto_offset_reset=auto_offset_reset,
            isolation_level=isolation_level,
            assignors=assignors,
            session_timeout=session_timeout,
            heartbeat_interval=heartbeat_interval,
            max_poll_interval=max_revoke_delay,
            range_poll_interval=range_poll_interval,
            telemetry=telemetry,
            **dict(checked),  # the consumer checks them
        )
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._ready: tuple[JobRunner | ConnectJobRunner, RangeTask] | None = None
        self._available_now = available_now
        self._started = self._stopping = False

    def prepare(self) -> None:
        """Start Spark's workers and check that they can do the work, so that `run` begins at once. Else `run` does so.

        Raises PipelineError where the workers lack a package or cannot load the function; errors of the sink.
        """
        self._prepared()

    def run(self) -> None:
        """Work until `stop`, or with available_now until all is done. Then work in progress is finished and committed,
        and the group is left.

        Raises what `prepare` does, before the group is joined; RangeFailedError when work on a range failed for good,
        OffsetsGoneError when a log does not have what comes next, WrongTopicError when a topic was made again, and
        errors of the group and the sink, UnknownTopicOrPartitionError when a topic is not there among them, each after
        what else was in progress has ended and is committed. What `on_event` raises, and an interrupt, cancels what is
        in progress; so does PipelineError, when the session is stopped meanwhile. In no case is anything skipped. A
        second call is IllegalStateError.
        """
        if self._started:
            raise IllegalStateError("this pipeline has run; build a new one to run again")
        self._started = True
        self._work(self._on_event)

    def start(self) -> PipelineQuery:
        """As `run`, on a thread of its own. Raises what `prepare` does; what comes later the handle tells.

        Jobs are given this thread's local properties of Spark, as `spark.scheduler.pool`.
        """
        from pyspark import inheritable_thread_target  # noqa: PLC0415 - pyspark is slow to import, and not for readers

        if self._started:
            raise IllegalStateError("this pipeline has run; build a new one to run again")
        self._started = True
        self._prepared()

        def run(hear: Callable[[PipelineEvent], None]) -> None:
            def both(event: PipelineEvent) -> None:
                hear(event)
                self._on_event(event)

            self._work(both)

        return PipelineQuery(self._group_id, inheritable_thread_target(self._spark)(run), self.stop).begin()

    def _work(self, on_event: Callable[[PipelineEvent], None]) -> None:
        runner, task = self._prepared()
        # Two, since a start may not wait for a look at the ends.
        lookup, looks = (TopicLookup(self._reader.consumer_settings) for _ in range(2))
        line = ProgressLine(self._group_id, sys.stderr if self._progress_line else None, time.monotonic)

        def hear(event: PipelineEvent) -> None:
            line.hear(event)
            on_event(event)

        with _closed_by_errors(runner):
            # After `_prepared`: what came while the workers started is read, too.
            targets = self._targets() if self._available_now else None
        run = PipelineLoop(
            self._settings,
            consumer=self._consumer,
            sink=self._sink,
            runner=runner,
            inbox=self._inbox,
            task=task,
            topic_id=lookup.topic_id,
            ends=looks.ends,
            on_event=hear,
            targets=targets,
        )
        with closing(lookup), closing(looks):
            try:
                run.run(lambda: self._stopping)
            finally:
                line.end()

    def _targets(self) -> dict[TopicPartition, int]:
        """Raises UnknownTopicOrPartitionError: the run may be over before the consumer tells of a mistyped topic."""
        found = end_offsets(self._reader, self._topics)
        missing = sorted(set(self._topics).difference(each.topic for each in found))
        if missing:
            raise not_there(missing)
        return found

    def observe(self, observer: Observer) -> None:
        """Let it hear what this member does (`instride.observers`). Before `run`, else IllegalStateError."""
        self._consumer.observe(observer)

    def stop(self) -> None:
        """Ask `run` to end. From any thread or a signal handler; returns at once."""
        self._stopping = True

    def _prepared(self) -> tuple[JobRunner | ConnectJobRunner, RangeTask]:
        if self._ready is None:
            runner = self._runner(inbox_dispatcher(self._inbox, self._consumer))
            with _closed_by_errors(runner):
                task = self._task(runner)
                runner.prepare(task)
            self._ready = runner, task
        return self._ready

    def _runner(self, tell: Callable[[Message], None]) -> JobRunner | ConnectJobRunner:
        if over_connect(self._spark):
            return ConnectJobRunner(self._spark, tell, self._frames())
        from instride.spark._jobs import JobRunner  # noqa: PLC0415 - pyspark is slow to import, and not for readers

        return JobRunner(self._spark.sparkContext, tell, self._frames())

    def _frames(self) -> Frames | None:
        if self._batch_format != "spark":
            return None
        return Frames(self._spark, self._function, self._reader.columns or _COLUMNS)

    def _task(self, runner: JobRunner | ConnectJobRunner) -> RangeTask:
        return RangeTask(
            job="",
            writer=self._sink.writer(),
            function=pickle_function(no_function if self._batch_format == "spark" else self._function),
            batch_format=self._batch_format,
            called_per=self._called_per,
            schema=self._schema,
            reader=self._reader,
            reports=runner.reports,
            dead_letters=self._dead_letters,
        )

    def __repr__(self) -> str:
        return f"Pipeline(topics={list(self._topics)}, consumer={self._consumer!r}, sink={self._sink!r})"


@contextmanager
def _closed_by_errors(runner: JobRunner | ConnectJobRunner) -> Iterator[None]:
    """Until the loop has the runner, which closes it. Spark keeps an accumulator that nobody takes back."""
    try:
        yield
    except BaseException:
        runner.close()
        raise


def _checked_topics(topics: Iterable[str]) -> tuple[str, ...]:
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    if isinstance(topics, str) or not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError('topics must be a list of names, such as ["flights"]')
    return names


def _checked_columns(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    if columns is None:
        return None
    is_list = isinstance(columns, Sequence) and not isinstance(columns, str)
    wrong = [name for name in columns if name not in _COLUMNS] if is_list else [columns]
    if wrong or not columns or len(set(columns)) < len(columns):
        told = f"; it has {wrong}" if wrong or not columns else f", each once; it is {list(columns)}"
        raise ConfigError(f"columns must be a list of some of {', '.join(_COLUMNS)}{told}")
    return tuple(columns)


def _checked_letters(
    topic: str | None,
    produce: Callable[[Any], Any] | None,
    *,
    group: str,
    most: int,
    run: LoopSettings,
    reader: ReaderSettings,
) -> DeadLetters | None:
    _counts(1, max_dead_letters=most)
    _checked_function("produce", produce)
    if topic is None:
        if produce is not None:
            raise ConfigError("produce writes dead letters: name their topic with dead_letters")
        return None
    # A pipeline that reads its own letters would write them again, for ever.
    if not isinstance(topic, str) or not topic or topic in run.topics:
        raise ConfigError(f"dead_letters must be the name of a topic that the pipeline does not read; it is {topic!r}")
    return DeadLetters(
        topic=topic,
        group=group,
        attempts=run.limits.retries + 1,
        most=most,
        timeout=reader.timeout,
        produce=None if produce is None else pickle_function(produce),
        settings=tuple(reader.consumer_settings.items()),
    )


def _checked_sink(sink: Sink) -> Sink:
    if not isinstance(sink, Sink):
        raise ConfigError(f"sink must be a Sink, with positions, writer and commit; it is {type(sink).__name__}")
    return sink


def _checked_security(security: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    if not isinstance(security, Mapping):
        raise ConfigError(f"security must be a dict of settings; it is {type(security).__name__}")
    for name in security:
        if not str(name).startswith(("security_", "ssl_", "sasl_")):
            raise ConfigError(f"security holds settings that begin with security_, ssl_ or sasl_; it has {name!r}")
    if security.get("ssl_context") is not None:
        raise ConfigError("an ssl_context cannot travel to the executors; name its files with ssl_ca_file and others")
    return tuple(sorted(security.items()))


def _check_work(function: object, batch_format: str, called_per: str, group_id: str, dead_letters: object) -> None:
    if batch_format not in get_args(BatchFormat):
        raise ConfigError(f'batch_format must be "arrow", "pandas" or "spark"; it is {batch_format!r}')
    if called_per not in get_args(CalledPer):
        raise ConfigError(f'called_per must be "batch" or "range"; it is {called_per!r}')
    if batch_format == "spark" and called_per == "range":
        raise ConfigError("a function of DataFrames is called for each range anyhow: leave called_per out")
    if dead_letters is not None and (called_per == "range" or batch_format == "spark"):
        raise ConfigError("dead_letters needs a function of batches: of a whole range no record can be told to be bad")
    if not callable(function) or is_asynchronous(function):
        raise ConfigError("function must be callable, and not asynchronous: nobody would await it")
    if not group_id:
        raise ConfigError("group_id is missing: the pipeline is a member of a group")


def _checked_function(name: str, given: Callable[..., Any] | None) -> Callable[..., Any] | None:
    if given is not None and (not callable(given) or is_asynchronous(given)):
        raise ConfigError(f"{name} must be callable, and not asynchronous: nobody would await it; it is {given!r}")
    return given


def _listener(on_event: Callable[..., Any] | None) -> Callable[..., Any]:
    listener = _checked_function("on_event", on_event)
    # A list that can be called is false as long as it is empty.
    return _ignore if listener is None else listener


def _checked_schema(schema: pa.Schema | None) -> pa.Schema | None:
    if schema is None:
        return None
    import pyarrow as pa  # noqa: PLC0415 - an extra

    if not isinstance(schema, pa.Schema):
        raise ConfigError(f"schema must be a pyarrow.Schema, or None; it is {schema!r}")
    return schema


def _check_limits(limits: Limits) -> None:
    if limits.range_records is not None:
        _counts(1, max_range_records=limits.range_records)
    _counts(1, max_range_bytes=limits.range_bytes, max_concurrent_jobs=limits.jobs, ranges_per_task=limits.task_ranges)
    _counts(0, retries=limits.retries)
    _durations(linger=limits.linger, retry_backoff=limits.backoff, retry_backoff_max=limits.backoff_max)


def _counts(least: int, **settings: int) -> None:
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(f"{name} must be a whole number of at least {least}; it is {value!r}")


def _durations(**settings: float) -> None:
    for name, value in settings.items():
        # Nor NaN, of which no comparison is true.
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= FOREVER:
            raise ConfigError(f"{name} must be a number of seconds, from 0 to {FOREVER:g}; it is {value!r}")


def _checked_timeout(read_timeout: float) -> float:
    if read_timeout == 0:
        raise ConfigError("read_timeout must be more than 0: no record comes in no time")
    return read_timeout


def _switches(**settings: bool) -> None:
    for name, value in settings.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{name} must be True or False; it is {value!r}")


def _ignore(event: PipelineEvent) -> None:
    _log.debug("%s", event)
