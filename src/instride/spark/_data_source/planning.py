"""What the next micro-batch reads: from where the last one ended, to where the logs end now. Decisions only.

Laws
1. A partition goes on where the batch before it ended. One that is new since begins at its earliest record.
2. What cannot be read any more is data loss: a topic or partition that is gone, a topic that was made again, a log that
   ends before the position, a new partition whose first records are gone. It is an error that names it, or with
   failOnDataLoss=false a warning; then what is left is read, and nothing twice. Of a log that ends before the position
   nothing is read until it has grown beyond that. New partitions are looked at in `stream.py`. Records behind a
   position that retention has deleted are missed by whoever reads them: `spark/_range_reader.py`, law 6.
3. What one broker says need not be so: it may be behind the others. So `stream.py` looks again before anything here is
   told that a partition is not there as it was.
4. Where loss is passed over, the checkpoint remembers where a partition stood that is gone, or of another topic. It may
   only be out of sight, as where somebody took away the right to describe its topic, or a broker is behind for long. It
   goes on there once it is there again with the topic's id of before. Where others go, all but the newest _REMEMBERED
   are forgotten, since most never come back; the log names some. What a task had to pass over, since its partition
   went while the batch ran, is in no later batch: the end of the batch is where the partition stood.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from instride.errors import OffsetsGoneError
from instride.records import TopicPartition
from instride.spark._data_source.offsets import BatchPlan, Found, Gone, Span

__all__ = ["LossReport", "changes", "forgotten", "goes_on", "made_again", "next_plan", "now_gone"]

_log = logging.getLogger(__name__)

_REMEMBERED: Final = 1_000


class LossReport:
    """Law 2."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail
        self._told: set[str] = set()

    def tell(self, what: str, *, once: str = "") -> None:
        """Raises OffsetsGoneError, or warns once. once: of what it warns once; "": of this text."""
        if self._fail:
            raise OffsetsGoneError(
                f"{what}: some data may be lost. Nothing was skipped; failOnDataLoss=false goes on with what there is"
            )
        if (once or what) not in self._told:
            self._told.add(once or what)
            _log.warning("%s: some data may be lost", what)


def made_again(topic: str, known: str, now: str) -> str:
    """What is told of it: once, whoever notices it."""
    return f"topic {topic} was deleted and made again (its id was {known}, and is {now})"


def changes(last: BatchPlan, found: Found) -> dict[TopicPartition, str]:
    """The partitions of the last batch that are not there as they were: the id of their topic now, "" for one that is
    gone."""
    changed = {}
    for partition in last.spans:
        known, now = last.topic_ids.get(partition.topic, ""), found.get(partition)
        if now is None or (known and now and known != now):
            changed[partition] = now or ""
    return changed


def goes_on(last: BatchPlan, found: Found, loss: LossReport) -> dict[TopicPartition, int]:
    """Where the partitions of the last batch go on, and those that are there again (law 4). Others are not in it: those
    that are gone now, or of another topic."""
    changed = changes(last, found)
    for partition, now in changed.items():
        if now:
            loss.tell(made_again(partition.topic, last.topic_ids[partition.topic], now))
        else:
            loss.tell(f"partition {partition} is not there any more")
    again = {each: gone.offset for each, gone in last.gone.items() if found.get(each) == gone.topic_id}
    return again | {partition: end for partition, end in last.ends.items() if partition not in changed}


def now_gone(last: BatchPlan, found: Found) -> dict[TopicPartition, Gone]:
    """Law 4. A topic without an id could be any other when it comes again."""
    ids = last.topic_ids
    new = {
        each: Gone(topic_id=ids[each.topic], offset=last.spans[each].end)
        for each in changes(last, found)
        if ids.get(each.topic)
    }
    before = [(each, gone) for each, gone in last.gone.items() if found.get(each) != gone.topic_id and each not in new]
    return dict(before[-_REMEMBERED:] if new else before) | new


def forgotten(last: BatchPlan, made: BatchPlan) -> set[TopicPartition]:
    """What the checkpoint has no more with the plan that was made (law 4). No loss: it may be read again."""
    return last.gone.keys() - made.gone.keys() - made.spans.keys()


def next_plan(
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str],
    loss: LossReport,
) -> BatchPlan:
    """Everything that there is to read now."""
    spans = {}
    for partition, start in positions.items():
        end = ends[partition]
        if end < start:
            loss.tell(
                f"the log of {partition} ends at {end}, before the offset {start} that is to be read next",
                once=f"the log of {partition} ends before {start}",
            )
        # Nobody says where the new log parts from the old one. So it stays where it was, and nothing comes twice; what
        # is written below it is passed over. Spark's connector goes back to the log's end.
        spans[partition] = Span(start, max(start, end))
    return BatchPlan(spans, topic_ids)
