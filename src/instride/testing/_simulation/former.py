"""A topic as a node still has it that has not heard yet of its deletion."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from instride._wire import api
from instride.records import TopicPartition
from instride.testing._simulation.log_model import LogModel

__all__ = ["Former"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Former:
    """described: in metadata. The others are as those of `BrokerModel`; nothing is written any more."""

    described: api.MetadataTopic
    topic_id: UUID
    logs: dict[TopicPartition, LogModel]
    leaders: dict[TopicPartition, int]
    leader_epochs: dict[TopicPartition, int]
    epoch_starts: dict[TopicPartition, list[int]]
