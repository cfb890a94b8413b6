"""What brokers refuse for a while: requests of one kind to the coordinator, partitions, topics.

Laws
1. A refusal has a code of Kafka's, or is one of the three below. It ends by itself.
2. Two of one kind at once: the later one counts.
"""

from __future__ import annotations

from typing import Final

from instride._wire import api
from instride.records import TopicPartition
from instride.testing._simulation.scheduler import Scheduler

__all__ = ["CORRUPT", "RESPONSE_LOST", "NO_RESPONSE", "Refusals"]

NO_RESPONSE: Final = -1
"""The request is not taken, and nothing is said."""
RESPONSE_LOST: Final = -2
"""The request is taken, and nothing is said."""
CORRUPT: Final = -3
"""Of a partition: its next batch cannot be read."""

_LEAVES: Final = (api.LeaveGroup,)
_COMMITS: Final = (api.OffsetCommit,)
_JOINS: Final = (api.JoinGroup,)
_GROUP: Final = (api.JoinGroup, api.SyncGroup, api.Heartbeat, api.OffsetCommit, api.OffsetFetch)


class Refusals:
    """Codes are 0, or None, where nothing is refused."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._requests: dict[type[api.Request], tuple[int, float]] = {}
        self._partitions: dict[TopicPartition, tuple[int, float]] = {}
        self._topics: dict[str, tuple[int, float]] = {}
        self._coordinator = (0, 0.0)

    def refuse_leaves(self, code: int, until: float) -> None:
        self._requests.update(dict.fromkeys(_LEAVES, (code, until)))

    def refuse_commits(self, code: int, until: float) -> None:
        self._requests.update(dict.fromkeys(_COMMITS, (code, until)))

    def refuse_group(self, code: int, until: float) -> None:
        """Whatever members ask, and who the coordinator is; but not LeaveGroup."""
        self._requests.update(dict.fromkeys(_GROUP, (code, until)))
        self._coordinator = code, until

    def refuse_joins(self, code: int, until: float) -> None:
        self._requests.update(dict.fromkeys(_JOINS, (code, until)))

    def refuse_partition(self, tp: TopicPartition, code: int, until: float) -> None:
        self._partitions[tp] = code, until

    def refuse_topic(self, topic: str, code: int, until: float) -> None:
        """In metadata."""
        self._topics[topic] = code, until

    # -- what brokers ask

    def of_request(self, request: api.Request) -> int:
        return self._present(self._requests.get(type(request)))

    def of_coordinator(self) -> int:
        return self._present(self._coordinator)

    def of_partition(self, tp: TopicPartition) -> int:
        """But CORRUPT, which is no refusal of the broker's."""
        code = self._present(self._partitions.get(tp))
        return 0 if code == CORRUPT else code

    def is_corrupt(self, tp: TopicPartition) -> bool:
        return self._present(self._partitions.get(tp)) == CORRUPT

    def of_topic(self, topic: str) -> int:
        return self._present(self._topics.get(topic))

    def _present(self, refusal: tuple[int, float] | None) -> int:
        return refusal[0] if refusal is not None and self._scheduler.now < refusal[1] else 0
