"""`roundrobin`: all partitions in order, dealt to the members in turn, past those without the topic.

Law: with identical subscriptions the members' counts differ by at most one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from instride._core.assignors.assignor import (
    Assignment,
    ClusterView,
    MemberSubscription,
    Stateless,
    as_assignment,
    in_order,
    subscribers,
)
from instride._core.ownership import RebalanceProtocol
from instride.records import TopicPartition

__all__ = ["RoundRobinAssignor"]


class RoundRobinAssignor(Stateless):
    """All partitions of all topics, one after another, to their subscribers in turn."""

    name: Final = "roundrobin"
    version: Final = 0
    protocols: Final = frozenset({RebalanceProtocol.EAGER})

    def assign(self, cluster: ClusterView, members: Iterable[MemberSubscription]) -> Assignment:
        group = in_order(members)
        ids = [member.member_id for member in group]
        parts: dict[str, list[TopicPartition]] = {member_id: [] for member_id in ids}
        turn = 0
        for topic, consumers in subscribers(group, cluster).items():
            partitions, eligible = cluster.of_topic(topic), {member.member_id for member in consumers}
            if len(eligible) == len(ids):
                for place, member_id in enumerate(ids):
                    parts[member_id] += partitions[(place - turn) % len(ids) :: len(ids)]
                turn += len(partitions)
                continue
            for partition in partitions:
                while ids[turn % len(ids)] not in eligible:
                    turn += 1
                parts[ids[turn % len(ids)]].append(partition)
                turn += 1
        return as_assignment(parts)
