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
from instride.records import TopicPartition
from instride.testing._simulation.history import History

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


def as_told(request: api.OffsetCommit, who: str, history: History) -> api.OffsetCommit:
    """As the history tells it of this member, before it has it."""
    if not history.recreated:
        return request
    named = {topic: epochs_before(topic_id) for topic, topic_id in request.topic_ids.items()}

    def told(partition: TopicPartition, each: api.OffsetToCommit) -> api.OffsetToCommit:
        if each.leader_epoch < 0:
            return each
        before = named[partition.topic] if partition.topic in named else _read_of(partition, who, history)
        return replace(each, leader_epoch=each.leader_epoch + before)

    return replace(request, offsets={tp: told(TopicPartition(*tp), each) for tp, each in request.offsets.items()})


def _read_of(partition: TopicPartition, who: str, history: History) -> int:
    """How many epochs were before the topic that the member reads, which does not know its id: that of the records
    that it was returned last, or where it was told later where it begins, that which there was then."""
    told = -1
    for each in reversed(history.events):
        if told >= 0:
            if each.what == "recreated" and each.detail[0] == partition:
                return int(each.detail[1])
        elif each.who == who and each.what == "positioned" and each.detail[0] == partition:
            told = 0
        elif each.who == who and each.what == "poll":
            for tp, *_, leader_epoch in each.detail[0]:
                if tp == partition:
                    return int(leader_epoch) // _EPOCHS * _EPOCHS
    return 0
