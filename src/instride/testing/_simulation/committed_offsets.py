"""What a model group has committed."""

from __future__ import annotations

from instride._wire import api
from instride.records import TopicPartition

__all__ = ["CommittedOffsets"]

Codes = tuple[tuple[api.Partition, int, int], ...]


class CommittedOffsets:
    """It asks nobody who may commit."""

    __slots__ = ("_offsets",)

    def __init__(self) -> None:
        self._offsets: dict[TopicPartition, api.OffsetToCommit] = {}

    def take(self, request: api.OffsetCommit, error: int) -> Codes:
        """Keep these, unless there is an error. Returns what a history says of it."""
        if not error:
            self._offsets.update({TopicPartition(*tp): offset for tp, offset in request.offsets.items()})
        return tuple((tp, each.offset, error) for tp, each in sorted(request.offsets.items()))

    def response(self, request: api.OffsetFetch) -> api.OffsetFetchResponse:
        return api.OffsetFetchResponse(offsets={tp: self._told(TopicPartition(*tp)) for tp in request.partitions})

    def forget(self, tp: TopicPartition) -> None:
        """Its topic is deleted."""
        self._offsets.pop(tp, None)

    def has(self, tp: TopicPartition) -> bool:
        return tp in self._offsets

    def next_offset(self, tp: TopicPartition) -> int:
        """Where who comes next begins; 0 where nothing is committed."""
        found = self._offsets.get(tp)
        return 0 if found is None else found.offset

    def leader_epoch(self, tp: TopicPartition) -> int:
        """Of the last batch before that offset; -1 where nobody knows."""
        found = self._offsets.get(tp)
        return -1 if found is None else found.leader_epoch

    def _told(self, tp: TopicPartition) -> api.CommittedOffset:
        found = self._offsets.get(tp)
        if found is None:
            return api.CommittedOffset()
        return api.CommittedOffset(offset=found.offset, leader_epoch=found.leader_epoch, metadata=found.metadata)
