"""Where a micro-batch begins and ends, as Spark keeps it in the checkpoint.

Laws
1. An end offset holds the whole plan of its batch: of each partition from and to. A batch that is planned again, also
   after a restart, is the same batch; and where "latest" began is durable with the first batch.
2. Partitions are in order: Spark compares offsets as text.
3. A topic is known by its id: one that was made again under its old name is another topic. In group mode ids are there
   also of topics of which the batch reads nothing.
4. In group mode an end offset names the group and what is subscribed to: another query's checkpoint is refused. It has
   a version of its own, which older versions refuse: they would replay what a run of today has left out.
5. That a query has begun is seen from any end offset, also where its first batch found no partition. Else where it
   began would be looked up anew, and "latest" would pass over what came between.
6. Where a partition stood that is gone is there too, in the order in which they went (`planning`, law 4). The batch may
   have one of another topic of that name. An older version passes over that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from instride.errors import ConfigError
from instride.records import TopicPartition
from instride.spark.sink import OutputRange

__all__ = ["BatchPlan", "Found", "Gone", "GroupMark", "Span"]

_VERSION: Final = 1
_GROUP_VERSION: Final = 2

Found = dict[TopicPartition, str]
"""The partitions that there are, each with its topic's id ("" where the broker has none)."""


@dataclass(frozen=True, slots=True)
class Span:
    """[start, end), which may be empty."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """Where a partition stood when it was there for the last time."""

    topic_id: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMark:
    """What an end offset of group mode says besides. subscribed: the option's text. run: see `leaving`."""

    group: str
    subscribed: str
    run: str


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """One micro-batch. topic_ids: "" where a broker has none. mark: in group mode.

    empty: it is a batch, though it has no partition (law 5); False in group mode, where the mark says so. Without
    either, no partition means no batch yet. gone: law 6.
    """

    spans: Mapping[TopicPartition, Span] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    mark: GroupMark | None = None
    empty: bool = False
    gone: Mapping[TopicPartition, Gone] = field(default_factory=dict)

    @property
    def begun(self) -> bool:
        """Law 5. False: there is no batch yet."""
        return self.empty or self.mark is not None or bool(self.spans)

    @property
    def ends(self) -> dict[TopicPartition, int]:
        return {partition: span.end for partition, span in self.spans.items()}

    @property
    def records(self) -> int:
        return sum(span.end - span.start for span in self.spans.values())

    def ranges(self) -> list[OutputRange]:
        """What is to be read; empty ones are left out."""
        return [
            OutputRange(
                topic=partition.topic,
                partition=partition.partition,
                start=span.start,
                end=span.end,
                topic_id=self.topic_ids.get(partition.topic, ""),
            )
            for partition, span in sorted(self.spans.items())
            if span.start < span.end
        ]

    def to_json(self) -> dict[str, Any]:
        """For Spark: {"version": 1, "topics": {name: {"id": id, "partitions": {number: [from, to]}}}}.

        In group mode the version is 2, and there is also "group": {"id": name, "subscribed": text, "run": token}.
        Otherwise a batch without a partition has "begun": true, and what is gone is in "gone": [[topic, number, id,
        offset], ...].
        """
        names = sorted({*self.topic_ids, *(partition.topic for partition in self.spans)})
        topics: dict[str, Any] = {name: {"id": self.topic_ids.get(name, ""), "partitions": {}} for name in names}
        for partition, span in sorted(self.spans.items()):
            topics[partition.topic]["partitions"][str(partition.partition)] = [span.start, span.end]
        mark = self.mark
        group = {} if mark is None else {"group": {"id": mark.group, "subscribed": mark.subscribed, "run": mark.run}}
        begun = {"begun": True} if self.empty else {}
        went = [[each.topic, each.partition, at.topic_id, at.offset] for each, at in self.gone.items()]
        gone = {"gone": went} if went else {}
        return {"version": _GROUP_VERSION if mark else _VERSION, "topics": topics, **begun, **gone, **group}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BatchPlan:
        """Raises ConfigError for an offset that another source, or a newer version of this one, has written."""
        newest = _GROUP_VERSION if isinstance(data, dict) and "group" in data else _VERSION
        try:
            if data["version"] in (_VERSION, newest):
                return cls._read(data)
        except (KeyError, TypeError, ValueError, AttributeError):
            pass  # as below
        raise ConfigError(
            f"the checkpoint's offset is not one of instride's version {newest}: {_shortened(data)}. "
            "Use a checkpoint of this source, or a newer instride"
        )

    @classmethod
    def _read(cls, data: Mapping[str, Any]) -> BatchPlan:
        spans, topic_ids = {}, {}
        for topic, parts in data["topics"].items():
            topic_ids[topic] = str(parts["id"])
            for number, (start, end) in parts["partitions"].items():
                spans[TopicPartition(topic, int(number))] = Span(int(start), int(end))
        group = data.get("group")
        mark = group and GroupMark(group=str(group["id"]), subscribed=str(group["subscribed"]), run=str(group["run"]))
        gone = {
            TopicPartition(str(topic), int(number)): Gone(topic_id=str(topic_id), offset=int(offset))
            for topic, number, topic_id, offset in data.get("gone", ())
        }
        return cls(spans, topic_ids, mark or None, empty=bool(data.get("begun")), gone=gone)


def _shortened(data: object) -> str:
    return re.sub(r"\s+", " ", repr(data))[:100]
