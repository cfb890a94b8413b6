"""The streaming reader. Spark keeps one in a process of its own beside the driver, and calls it from one thread:

    new query      initialOffset -> latestOffset -> partitions -> read (executors) -> latestOffset -> ...
    restart        partitions of the batch that was logged and not committed -> read -> latestOffset ...

Laws
1. `initialOffset` is constant and means "nothing yet": Spark asks for it again after a crash. Where the query really
   began is in the end offset of the first batch, which Spark logs before it reads; so that batch is made even where it
   reads nothing, or finds no partition. From then on every partition that was not in it is a new one.
2. `partitions` goes by the end offset alone, and asks nobody.
3. Nothing new is told as the start offset itself, unchanged.
4. That `latestOffset` is called with a batch's end says that the batch is committed. Then, with
   commitOffsetsToGroup, the group hears of it. A group that cannot be told stops no query, and holds up few batches:
   it is tried for two seconds at most, and after two failures in a row not again for half a minute. (The first try of
   a process opens the connection, too, which may take longer.)
5. With maxBytesPerTrigger, brokers are asked what a backlog's first records weigh before its part of a batch is
   chosen. What was chosen is in the end offset, so a batch that is planned again asks nobody (law 2).
6. Whether a topic is gone or was made anew, and whether a log ends before the position, is found by `planning.py`.
   That retention has deleted what follows a position is found by the task that reads there (`_range_reader.py`).
7. A broker may be behind the others. So where a partition of the last batch, or of the target, is not there as it was,
   `latestOffset` looks again for MISSING_GRACE before it believes that. It does so once for each change: a query that
   finds nothing else to read keeps its last batch, and so the change. A target ("available now") that lacks what is
   named is not made before it was looked for as long.
8. A topic may be deleted after that look. Then no leader says where its logs end. So the brokers are asked for the ends
   for MISSING_GRACE at first, or for a quarter of `default_api_timeout`, if that is less. Then the topics are looked at
   again, and the brokers are asked for the rest of that time. More and shorter looks would be too short for a broker
   that is slow: it responds in order, also to what nobody waits for any more. What law 7 takes is not of that time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from instride._core.network.cluster import MISSING_GRACE
from instride.errors import ConfigError, KafkaError, KafkaTimeoutError
from instride.records import TopicPartition
from instride.spark._data_source.admission import Pace, Scale, admitted
from instride.spark._data_source.cluster import Cluster, absent, not_there, some
from instride.spark._data_source.fused import Transform
from instride.spark._data_source.offsets import BatchPlan, Found, Span
from instride.spark._data_source.options import Options
from instride.spark._data_source.planning import LossReport, changes, forgotten, goes_on, next_plan, now_gone
from instride.spark._data_source.reading import RangesPartition, TaskReader, input_partitions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StreamReader"]

T = TypeVar("T")

_log = logging.getLogger(__name__)

_TELL_AGAIN: Final = 30.0
"""Seconds in which a group that could not be told of the offsets is left alone (law 4)."""
_IDLE_SECONDS: Final = 0.02
"""Spark asks every 10 ms whether there is something new; each time brokers would be asked."""
_API_SECONDS: Final = 60.0
"""`default_api_timeout`, where it is not given."""
_LOOK_AGAIN: Final = 0.1
"""Seconds between two looks for a partition that is missing, or of another topic (law 7)."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Picklable until the first request to a broker; Spark pickles one that is never asked."""

    def __init__(self, options: Options, transform: Transform | None = None) -> None:
        self._options = options
        self._task = TaskReader.of(options, transform)
        self._cluster = Cluster(options)
        self._loss = LossReport(fail=options.fail_on_data_loss)
        self._pace = Pace(options.min_offsets, options.max_delay)
        self._scale = Scale()
        self._target: dict[TopicPartition, int] | None = None
        self._told: dict[TopicPartition, int] = {}
        self._tell_from = float("-inf")
        self._tell_failures = 0
        self._absent: set[str] = set()
        self._changed: set[tuple[TopicPartition, str]] = set()  # what was believed at the last look (law 7)
        self._newest: BatchPlan | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's names, here and below
        return BatchPlan().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        if options.min_offsets is not None:
            return ReadMinRows(options.min_offsets)
        return ReadAllAvailable() if options.max_bytes is None else ReadMaxBytes(options.max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there now is the target. `latestOffset`, which hears of the last batch, knows whether that suffices:
        a topic that is gone since is data loss, and one that never was there an error (with failOnDataLoss)."""
        self._target = self._patiently(self._available, self._ends_of)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Raises OffsetsGoneError for data loss, ConfigError, and errors of the brokers."""
        last = _plain(start)
        self._confirm(last)
        plan = self._patiently(partial(self._found, last), partial(self._everything, last))
        self._newest = plan
        self._weigh(plan.spans, limit)
        taken = self._admitted(plan, limit)
        # Law 1: the first batch is made even where it reads nothing.
        if last.begun and (taken is None or taken.records == 0):
            time.sleep(_IDLE_SECONDS)
            return start
        made = taken or plan
        if gone := forgotten(last, made):
            _log.warning("forgotten, and read from the first record if they come back, are %s", some(gone))
        return replace(made, empty=not made.spans).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """For the query's progress: where the logs end."""
        return self._newest.to_json() if self._newest is not None else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []
        return input_partitions(_plain(end).ranges(), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangesPartition)
        return self._task.read(partition)

    def stop(self) -> None:
        self._cluster.close()

    def _available(self) -> Found:
        """Law 7. What never comes is told by `latestOffset`."""
        topics, until = self._options.topics, time.monotonic() + MISSING_GRACE
        while absent(topics, found := self._cluster.partitions(topics)) and time.monotonic() < until:
            time.sleep(_LOOK_AGAIN)
        return found

    def _ends_of(self, found: Found, seconds: float) -> dict[TopicPartition, int]:
        return self._cluster.latest(found, timeout=seconds)

    # -- parts of latestOffset

    def _patiently(self, find: Callable[[], Found], look: Callable[[Found, float], T]) -> T:
        """Law 8. find: law 7. look: each of its requests gets so many seconds at most."""
        total = dict(self._options.consumer).get("default_api_timeout", _API_SECONDS)
        first = min(MISSING_GRACE, total / 4)
        found = find()
        with suppress(KafkaTimeoutError):
            return look(found, first)
        return look(find(), total - first)

    def _everything(self, last: BatchPlan, found: Found, seconds: float) -> BatchPlan:
        """What there is to read now, or up to the target of "available now"."""
        if last.begun:
            self._look_for_absent({*found, *last.ends})
            positions = goes_on(last, found, self._loss)
            positions |= self._new_ones(last, found, positions, seconds)
        else:
            positions = self._cluster.resolve(self._options.starting, found, name="startingOffsets", timeout=seconds)
        ends = self._ends(last, positions, found, seconds)
        topic_ids = {partition.topic: found[partition] for partition in positions}
        return replace(next_plan(positions, ends, topic_ids, self._loss), gone=now_gone(last, found))

    def _found(self, last: BatchPlan) -> Found:
        """Law 7. A new query requires what is named: at once, or, where the target has it, within that time."""
        until = time.monotonic() + MISSING_GRACE
        while True:
            found = self._cluster.partitions(self._options.topics)
            missing = [] if last.begun else absent(self._options.topics, found)
            changed = {*changes(last, found).items()}
            changed |= {(partition, "") for partition in self._target or () if partition not in found}
            changed |= {
                (each, found[each])
                for each, gone in last.gone.items()
                if each not in last.spans and found.get(each, gone.topic_id) != gone.topic_id
            }
            if changed <= self._changed or time.monotonic() >= until:
                if missing:
                    raise not_there(missing)
                self._changed = changed
                return found
            time.sleep(_LOOK_AGAIN)

    def _look_for_absent(self, known: set[TopicPartition]) -> None:
        """For what is named and was never there. For a new query that is an error; this one waits for it, unless it
        reads what is available now. Without failOnDataLoss it may be what was deleted long ago."""
        missing = absent(self._options.topics, known)
        if missing and self._target is not None and self._options.fail_on_data_loss:
            raise not_there(missing)
        for name in sorted(set(missing) - self._absent):
            self._absent.add(name)
            _log.warning("there is no %s in the cluster: the query reads it once it is there", name)

    def _new_ones(
        self, last: BatchPlan, found: Found, positions: dict[TopicPartition, int], seconds: float
    ) -> dict[TopicPartition, int]:
        new = [partition for partition in found if partition not in positions]
        first = self._cluster.earliest(new, timeout=seconds)
        for partition, offset in first.items():
            # A log that begins at 0 has lost nothing. Of those in the last batch `goes_on` has told.
            if offset > 0 and partition not in last.spans:
                self._loss.tell(f"partition {partition} is new, and its log begins at {offset} already")
        return first

    def _ends(
        self, last: BatchPlan, positions: dict[TopicPartition, int], found: Found, seconds: float
    ) -> dict[TopicPartition, int]:
        ends = self._cluster.latest(positions, timeout=seconds)
        if self._target is None:
            return ends
        if not last.begun:
            # Records that came since the target was looked up may have "latest" lie behind it: there the run ends.
            behind = {each: start for each, start in positions.items() if start > self._target.get(each, start)}
            self._target |= {each: min(start, ends[each]) for each, start in behind.items()}
        for partition, target in self._target.items():
            if partition not in found:
                self._loss.tell(f"partition {partition}, which is to be read up to {target}, is not there any more")
            elif ends.get(partition, target) < target:
                self._loss.tell(
                    f"the log of {partition} ends at {ends[partition]}, before the target {target}",
                    once=f"the log of {partition} ends before the target {target}",
                )
        # The target may be of a broker that was behind, and lack what the last batch has. Any other partition that it
        # lacks is new since then, and left for the next run.
        known = last.spans.keys() - changes(last, found).keys()
        for each, start in positions.items():
            self._target.setdefault(each, ends[each] if each in known else start)
        return {each: min(end, self._target[each]) for each, end in ends.items()}

    def _weigh(self, spans: Mapping[TopicPartition, Span], limit: ReadLimit) -> None:
        """Law 5."""
        if self._options.max_bytes is not None and not isinstance(limit, ReadAllAvailable):
            self._scale.note(self._cluster.sample(self._scale.unknown(spans)))

    def _admitted(self, plan: BatchPlan, limit: ReadLimit) -> BatchPlan | None:
        """None: too little for a batch yet."""
        paced = self._target is None and not isinstance(limit, ReadAllAvailable)
        if paced and not self._pace.may_start(plan.records, time.monotonic()):
            return None
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        lag = {partition: span.end - span.start for partition, span in plan.spans.items()}
        sizes = admitted(lag, most)
        if self._options.max_bytes is not None and not isinstance(limit, ReadAllAvailable):
            light = self._scale.admitted(lag, self._options.max_bytes)
            sizes = {partition: min(size, light[partition]) for partition, size in sizes.items()}
        spans = {tp: Span(span.start, span.start + sizes[tp]) for tp, span in plan.spans.items()}
        return replace(plan, spans=spans)

    def _confirm(self, last: BatchPlan) -> None:
        """Law 4."""
        group, ends = self._options.commit_group, last.ends
        new = {partition: end for partition, end in ends.items() if self._told.get(partition) != end}
        if group is None or not new or time.monotonic() < self._tell_from:
            return
        try:
            self._cluster.commit(group, new)
            self._told.update(new)
            self._tell_failures = 0
        except KafkaError as error:
            self._tell_failures += 1
            # What reads what is available now may try it once only.
            if self._tell_failures == 1 and self._target is None:
                return
            self._tell_from = time.monotonic() + _TELL_AGAIN
            _log.warning(
                "the group %s (commitOffsetsToGroup) was not told of the query's offsets, and is not tried again for "
                "%d s; it must have no members of its own, and its coordinator must be there: %s",
                group,
                _TELL_AGAIN,
                error,
            )


def _plain(data: dict[str, Any]) -> BatchPlan:
    plan = BatchPlan.from_json(data)
    if plan.mark is not None:
        raise ConfigError(
            f"the checkpoint is of a query of the group {plan.mark.group!r}, and this one has no consumerGroup: give "
            "the option, or a new checkpoint"
        )
    return plan
