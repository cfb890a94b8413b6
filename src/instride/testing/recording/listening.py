"""A user's rebalance listener, watched."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from instride.core.application.listener import RebalanceListener
from instride.records import TopicPartition

__all__ = ["WatchedListener"]


class WatchedListener(RebalanceListener):
    """Says what the listener is about to hear, then calls it."""

    def __init__(self, listener: RebalanceListener, say: Callable[..., None]) -> None:
        self._listener = listener
        self._say = say

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._say("on assigned", tuple(sorted(partitions)))
        self._listener.on_partitions_assigned(partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._say("on revoked", tuple(sorted(partitions)))
        self._listener.on_partitions_revoked(partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._say("on lost", tuple(sorted(partitions)))
        self._listener.on_partitions_lost(partitions)
