"""What users do of their own will: pause single partitions, read records again, go back to what is committed.

Laws
1. Each asks the plan how likely it is, and chance. None of it is done after the quiet time begins.
2. A seek is of a partition that the last poll returned records of, and not to be revoked: it is read on at once.
"""

from __future__ import annotations

from collections.abc import Collection, Generator

from instride._core.application.calls import Wait
from instride.consumer_records import ConsumerRecords
from instride.errors import KafkaError
from instride.records import TopicPartition
from instride.testing._simulation.plan import MemberPlan
from instride.testing._simulation.scheduler import Scheduler
from instride.testing._simulation.verbs import SimulatedConsumer

__all__ = ["UserBehaviour"]


class UserBehaviour:
    """Of one member's user."""

    def __init__(self, plan: MemberPlan, consumer: SimulatedConsumer, scheduler: Scheduler, quiet_after: float) -> None:
        self._plan = plan
        self._consumer = consumer
        self._scheduler = scheduler
        self._quiet_after = quiet_after

    def _likes(self, how_likely: float) -> bool:
        """Law 1. Chance is not asked where there is none."""
        return (
            how_likely > 0 and self._scheduler.now < self._quiet_after and self._scheduler.random.random() < how_likely
        )

    def is_quiet(self) -> bool:
        return self._scheduler.now >= self._quiet_after

    def after_a_round(self, records: ConsumerRecords) -> None:
        """Pause one partition more, or resume one; read some of what was returned again."""
        if self._plan.pauses:
            self._pause_or_resume()
        if self._likes(self._plan.seeks):
            self._seek_back(records)

    def _pause_or_resume(self) -> None:
        consumer, paused = self._consumer, sorted(self._consumer.paused())
        rest = sorted(consumer.assignment() - consumer.paused())
        if self._likes(self._plan.pauses) and rest:
            consumer.pause(self._scheduler.random.choice(rest))
        elif paused and (self._scheduler.now >= self._quiet_after or self._scheduler.random.random() < 0.4):
            consumer.resume(*paused[:1])

    def _seek_back(self, records: ConsumerRecords) -> None:
        """Law 2."""
        owned = self._consumer.assignment() - self._consumer.to_be_revoked_partitions()
        returned = sorted({record.topic_partition for record in records} & owned)
        if returned:
            partition = self._scheduler.random.choice(returned)
            first = min(record.offset for record in records if record.topic_partition == partition)
            self._consumer.seek(partition, max(0, first - self._scheduler.random.randrange(4)))

    def rewind(self, partitions: Collection[TopicPartition]) -> Generator[Wait, float, None]:
        """After a failure: go on behind what is committed."""
        if not self._plan.rewinds or self._scheduler.now >= self._quiet_after or not partitions:
            return
        try:
            committed = yield from self._consumer.committed(*sorted(partitions), timeout=1.0)
        except KafkaError:
            return
        owned = self._consumer.assignment() - self._consumer.to_be_revoked_partitions()
        for partition in sorted(owned & set(partitions)):
            found = committed.get(partition)
            self._consumer.seek(partition, 0 if found is None else found.offset)
