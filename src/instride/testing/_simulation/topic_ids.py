"""Which topic of a name is meant: how often that was recreated, what its id is, and how a history counts its epochs.

Laws
1. Each has an id of its own (KIP-516), and its leader epochs begin at 0, as Kafka's do.
2. A history knows a record by its offset and leader epoch. So there the epochs of a later topic of the name go on
   behind all of those before: by so many more than the brokers, and the members, have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from uuid import UUID

from instride._wire import api

__all__ = ["as_told", "epochs_before", "id_of"]

_EPOCHS: Final = 1_000_000
"""More than a topic ever has."""
_NUMBERS: Final = 1 << 64


def id_of(topic: str, number: int) -> UUID:
    """number: how often it was recreated."""
    return UUID(int=int.from_bytes(topic.encode()) * _NUMBERS + number + 1)


def epochs_before(topic_id: UUID) -> int:
    """Law 2."""
    return max(0, topic_id.int % _NUMBERS - 1) * _EPOCHS


def as_told(request: api.OffsetCommit) -> api.OffsetCommit:
    """As a history tells it."""
    if not request.topic_ids:
        return request
    before = {topic: epochs_before(topic_id) for topic, topic_id in request.topic_ids.items()}
    offsets = {
        tp: replace(each, leader_epoch=each.leader_epoch + before.get(tp[0], 0)) if each.leader_epoch >= 0 else each
        for tp, each in request.offsets.items()
    }
    return replace(request, offsets=offsets)
