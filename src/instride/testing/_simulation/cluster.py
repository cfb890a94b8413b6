"""`SimulatedCluster`: everything of one plan, put together and run.

Laws
1. A history ends when every record is committed, nobody reads again what he sought back to, and every member has
   closed; or at `ends_at`.
2. When the quiet time begins no fault is left, but for half open connections: these end by their requests' time-outs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from instride.config import ConsumerConfig
from instride.errors import UnknownTopicOrPartitionError
from instride.records import TopicPartition
from instride.testing._check.parameters import Parameters
from instride.testing._simulation.broker_model import HOST, PORT, BrokerModel
from instride.testing._simulation.faults import Faults
from instride.testing._simulation.history import BROKER, History
from instride.testing._simulation.member import LOOPS, Loop, Member
from instride.testing._simulation.network import Network
from instride.testing._simulation.plan import MemberPlan, Plan
from instride.testing._simulation.process import Process
from instride.testing._simulation.scheduler import Scheduler
from instride.testing._simulation.user_behaviour import UserBehaviour
from instride.testing._simulation.verbs import SimulatedConsumer
from instride.testing._simulation.workers import WorkerPool

__all__ = ["SimulatedCluster", "run"]

_LONGEST_GAP = 2.5
"""Seconds that a partition with records may stand still: a long poll, round trips, a turn of the others."""
_LONGEST_REBALANCE = 3.0
"""Seconds in which all have joined: heartbeats, a commit budget, round trips."""
_SETTLING = 2.0
"""Seconds of quiet in which what unruly users committed before a seek back is overtaken by what they read again."""
_IDLE = 10.0
"""Seconds of quiet, and some sessions, after which everybody has finished and committed what he can."""
_LATE = 0.5
"""How much later than its bound something may be told: the network thread's turn comes when it comes."""


def run(plan: Plan, *, keep_logs: bool = False) -> History:
    """The plan's history."""
    return SimulatedCluster(plan, keep_logs=keep_logs).run()


class SimulatedCluster:
    """A group, its brokers and the network between, in virtual time. Runs once, in the calling thread.

    plan: what is to happen; `plan_for(seed)` makes one by chance.
    loop: what every member runs, with one configuration; None: each the loop of its `MemberPlan`.
    settings: of `ConsumerConfig`, in place of the plan's own.
    keep_logs: whether the history has the machines' own words as well.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        loop: Loop | None = None,
        settings: Mapping[str, Any] = MappingProxyType({}),
        keep_logs: bool = False,
    ) -> None:
        if loop is not None:
            plan = replace(plan, members=tuple(replace(each, loop="flagship") for each in plan.members))
        self.plan = plan
        self._loop = loop
        self._settings = settings
        self.scheduler = Scheduler(plan.seed)
        self._assigning_dice = random.Random(f"assigning {plan.seed}")  # noqa: S311 - it must be repeatable
        self.history = History(self.scheduler, keep_logs=keep_logs)
        self.brokers = BrokerModel(
            self.scheduler,
            self.history,
            nodes=plan.nodes,
            topics=plan.topic_sizes(),
            initial_delay=plan.initial_delay,
            batches=plan.batches,
            ids=bool(plan.recreations),
            late=0.4,
        )
        self.members: dict[str, Member] = {}
        self.network = Network(plan, self.scheduler, self.history, self.brokers)
        self._faults = Faults(plan, self.scheduler, self.history, self.brokers, self.network, self.members)
        self._closing = False
        self._settling = _SETTLING if any(each.loop == "unruly" for each in plan.members) else 0.0
        self._all_topics = tuple(plan.topic_sizes())

    def run(self) -> History:
        """What happened, from the first join to the last close."""
        plan, at = self.plan, self.scheduler.at
        self.history.add(BROKER, "history", *self._terms())
        from_the_start = {number for time, number, _ in plan.produced if not time}
        empty = [(0.0, number, 0) for number in range(plan.partitions) if number not in from_the_start]
        for time, number, count in [*plan.produced, *empty]:
            at(time, partial(self.brokers.produce, plan.partition(number), count))
        for time, number, count, seconds, commit in plan.transactions:
            at(time, partial(self.brokers.transact, plan.partition(number), count, seconds, commit=commit))
        for time, number in plan.compactions:
            at(time, partial(self.brokers.compact, plan.partition(number)))
        for time, number, count in plan.retentions:
            at(time, partial(self.brokers.retain, plan.partition(number), count))
        for time, number, count in plan.truncations:
            at(time, partial(self.brokers.truncate, plan.partition(number), count))
        for time, number, seconds in plan.recreations:
            at(time, partial(self.brokers.recreate, plan.partition(number).topic, seconds))
        for member in plan.members:
            at(member.joins_at, partial(self._join, member))
            if member.leaves_at < float("inf"):
                at(member.leaves_at, partial(self._leave, member.name))
        for fault in plan.faults:
            at(fault.time, partial(self._faults.strike, fault))
        at(plan.quiet_after, self._calm_down)
        self.scheduler.run(plan.ends_at, self._over)
        self.history.add(BROKER, "end", True)
        return self.history

    def _terms(self) -> Parameters:
        """What a history of this plan may be judged by."""
        plan = self.plan
        return Parameters(
            source=f"simulation of seed {plan.seed}",
            kind=plan.kind,
            view="broker",
            reset=plan.reset,
            gap=_LONGEST_GAP,
            rebalance=None if self._delays_hold_up() else _LONGEST_REBALANCE,
            delay=plan.max_poll_interval + _LATE,
            session=plan.session_timeout + _LATE,
            beat=plan.heartbeat_interval + _LATE,
        )

    def _delays_hold_up(self) -> bool:
        """An eager member joins when all is revoked, and slow handlers may take until the deadline."""
        cooperative = all(each.assignors == ("cooperative-sticky",) for each in self.plan.members)
        return self.plan.kind == "slow" and not cooperative

    # -- the end

    def _over(self) -> bool:
        if self.scheduler.now <= self.plan.quiet_after + self._settling:
            return False
        if not self._closing and self._all_committed() and self._all_read() and self._all_heard():
            self._closing = True
            for name in self.members:
                self._leave(name)
        if self._closing:
            return not any(member.process.running for member in self.members.values())
        return all(member.process.crashed for member in self.members.values())

    def _all_committed(self) -> bool:
        return all(self._is_at_end(tp, self._next_offset(tp)) for tp in self.brokers.logs)

    def _next_offset(self, partition: TopicPartition) -> int:
        """What is committed; else where it is read since a reset to the latest: there may be nothing to commit. Nor may
        there be of a truncated log, once everybody has had time to commit."""
        committed = self.brokers.group.committed
        place = committed.next_offset(partition), committed.leader_epoch(partition)
        next_offset = self.brokers.next_offset(partition, *place)
        is_there = committed.has(partition) and partition not in self.brokers.out_of_range
        idle = self.scheduler.now > self.plan.quiet_after + _IDLE + 3 * self.plan.session_timeout
        may_lack_one = self.plan.reset != "earliest" and not is_there
        if not (idle if partition in self.brokers.truncated else may_lack_one):
            return next_offset
        return max([next_offset, *(owned.get(partition) or 0 for owned in self._owned())])

    def _all_read(self) -> bool:
        """A user who sought back a moment ago has not, and commits less than was committed if he is stopped now."""
        return all(at is not None and self._is_at_end(tp, at) for owned in self._owned() for tp, at in owned.items())

    def _all_heard(self) -> bool:
        """Else an offset of a deleted topic may look as if it were the end of the one that was created since."""
        if not self.plan.recreations:
            return True
        running = (member.process.machine for member in self.members.values() if member.process.running)
        owned = (each for machine in running for each in machine._assigned_partitions().values())
        return all(
            each.topic_id == self.brokers.topic_id(each.partition.topic) and each.divergence is None for each in owned
        )

    def _owned(self) -> Iterator[dict[TopicPartition, int | None]]:
        return (member.consumer.owned() for member in self.members.values() if member.process.running)

    def _is_at_end(self, partition: TopicPartition, offset: int) -> bool:
        log = self.brokers.logs[partition]
        return offset <= log.end and log.next_record(offset) == log.end

    # -- members

    def _join(self, plan: MemberPlan) -> None:
        config = self._config(plan)
        process = Process(
            plan.name,
            config,
            self.scheduler,
            self.history,
            connect=self.network.connect,
            latency=self.network.latency,
            assigning=self._assigning,
        )
        consumer = SimulatedConsumer(process, config)
        member = Member(
            plan=plan,
            process=process,
            consumer=consumer,
            behaviour=UserBehaviour(plan, consumer, self.scheduler, self.plan.quiet_after),
            pool=WorkerPool(process, plan.workers, self._duration, self._fails),
            duration=self._duration,
            topics=self._all_topics,
            by_hand=self._share(plan),
            expects=(UnknownTopicOrPartitionError,) if self.plan.recreations else (),
        )
        self.members[plan.name] = member
        steady = plan.loop in ("flagship", "changes", "executor") and plan.most_in_flight > 1000
        loop = LOOPS[plan.loop] if self._loop is None else self._loop
        process.start(loop(member), steady=steady and self._loop is None)

    def _share(self, member: MemberPlan) -> tuple[TopicPartition, ...]:
        """Of all partitions, which those by hand have among them."""
        names = [each.name for each in self.plan.members if each.by_hand]
        if member.name not in names:
            return ()
        numbers = range(names.index(member.name), self.plan.partitions, len(names))
        return tuple(self.plan.partition(number) for number in numbers)

    def _leave(self, name: str) -> None:
        self.history.add(name, "leaving")
        self.members[name].stopping = True

    def _config(self, member: MemberPlan) -> ConsumerConfig:
        plan = self.plan
        config = ConsumerConfig(
            bootstrap_servers=tuple(f"{HOST}:{PORT + node}" for node in range(1, plan.nodes + 1)),
            group_id="g",
            client_id=member.name,
            group_instance_id=member.instance,
            assignors=member.assignors,
            auto_offset_reset=plan.reset,
            commit_start_offsets=plan.start_offsets or None,
            isolation_level="read_committed" if plan.transactions else "read_uncommitted",
            max_poll_records=member.limit,
            fetch_fairness=plan.fairness,
            prefetch=plan.prefetch,
            fetch_max_wait=plan.fetch_max_wait,
            # With batches, so little that a partition is fetched ahead while some of it is not decoded.
            max_partition_fetch_bytes=300 if plan.batches else 1000,
            fetch_buffer_bytes=5000,
            revoke_mode="immediate" if member.loop == "immediate" or member.immediate else "two-step",
            enable_auto_commit=member.loop == "auto-commit" or member.auto_commits,
            auto_commit_interval=plan.auto_commit_interval,
            commit_budget=plan.commit_budget,
            session_timeout=plan.session_timeout,
            heartbeat_interval=plan.heartbeat_interval,
            max_poll_interval=plan.max_poll_interval,
            request_timeout=plan.request_timeout,
            default_api_timeout=plan.default_api_timeout,
            connection_setup_timeout=plan.request_timeout,
            retry_backoff_max=0.5,
            reconnect_backoff_max=0.5,
        )
        return replace(config, **self._settings)

    def _duration(self) -> float:
        shortest, longest, slow, chance = self.plan.handler
        rng = self.scheduler.random
        if self.scheduler.now > self.plan.quiet_after:
            return rng.uniform(shortest, 0.02)  # let it come to its end
        return rng.uniform(shortest, slow if rng.random() < chance else longest)

    def _assigning(self) -> float:
        shortest, longest = self.plan.assigning
        # By numbers of its own, so that a history in which it takes no time stays as it is.
        return 0.0 if self.scheduler.now > self.plan.quiet_after else self._assigning_dice.uniform(shortest, longest)

    def _fails(self) -> bool:
        return self.scheduler.now < self.plan.quiet_after and self.scheduler.random.random() < self.plan.failing

    def _calm_down(self) -> None:
        self.history.add(BROKER, "quiet")
