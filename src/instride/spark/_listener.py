"""How far a streaming query of the source is behind, told after each of its batches.

Laws
1. Behind is counted from what the query's progress has: where the batch ended, and where the logs ended when it was
   planned. Nobody is asked, and no query waits.
2. Sources of another kind are passed over. Of sources that read the same partition, the one that is farthest behind
   counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from instride.errors import ConfigError
from instride.records import TopicPartition
from instride.spark._data_source.offsets import BatchPlan

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

__all__ = ["OffsetsBehindListener", "offsets_behind"]


class OffsetsBehindListener(StreamingQueryListener):
    """`spark.streams.addListener(OffsetsBehindListener(export))`.

    export: called with the query's name (or its id, where it has none) and the offsets behind of each partition, after
    each batch, on the thread of Spark's listeners: keep it short. What it raises Spark logs.
    """

    def __init__(self, export: Callable[[str, Mapping[TopicPartition, int]], None]) -> None:
        self._export = export

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's names, here and below
        progress = event.progress
        behind: dict[TopicPartition, int] = {}
        for source in progress.sources:
            for partition, offsets in offsets_behind(source.endOffset, source.latestOffset).items():
                behind[partition] = max(offsets, behind.get(partition, 0))
        if behind:
            self._export(progress.name or str(progress.id), behind)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        pass


def offsets_behind(end: Any, latest: Any) -> dict[TopicPartition, int]:
    """Of one source's progress: its `endOffset` and `latestOffset`, as texts. Nothing where they are not instride's."""
    reached, newest = _plan(end), _plan(latest)
    if reached is None or newest is None:
        return {}
    return {each: max(0, newest.ends.get(each, offset) - offset) for each, offset in reached.ends.items()}


def _plan(text: Any) -> BatchPlan | None:
    try:
        found = json.loads(text) if isinstance(text, str) else text
        return BatchPlan.from_json(found)
    except (ValueError, TypeError, AttributeError, KeyError, ConfigError):
        return None
