"""`SimulatedCluster`: everything of one plan, put together and run.

Laws
1. A history ends when every record is committed and every member has closed, or at `ends_at`.
2. When the quiet time begins no fault is left: what is stalled is cut, what is down is up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from instride.config import ConsumerConfig
from instride.core.network.actions import ConnectionKey
from instride.testing.check.terms import Terms
from instride.testing.simulation.broker_model import HOST, PORT, BrokerModel
from instride.testing.simulation.history import BROKER, History
from instride.testing.simulation.links import Link
from instride.testing.simulation.member import LOOPS, Loop, Member
from instride.testing.simulation.plan import Fault, MemberPlan, Plan
from instride.testing.simulation.process import Process
from instride.testing.simulation.scheduler import Scheduler
from instride.testing.simulation.verbs import SimulatedConsumer
from instride.testing.simulation.workers import WorkerPool

__all__ = ["SimulatedCluster", "run"]

_LONGEST_GAP = 2.5
"""Seconds that a partition with records may stand still: a long poll, round trips, a turn of the others."""
_LONGEST_REBALANCE = 3.0
"""Seconds in which all have joined: heartbeats, a commit budget, round trips."""
_LATE = 0.5
"""How much later than its bound something may be told: the network thread's turn comes when it comes."""
_BEAT = 1.0
"""The longest heartbeat interval of all plans, with the time that an answer takes."""


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
        self.history = History(self.scheduler, keep_logs=keep_logs)
        self.brokers = BrokerModel(
            self.scheduler,
            self.history,
            nodes=plan.nodes,
            topics=plan.topic_sizes(),
            initial_delay=plan.initial_delay,
        )
        self.members: dict[str, Member] = {}
        self._down: dict[int, float] = {}
        self._isolated: dict[str, tuple[int, float]] = {}
        self._closing = False
        self._all_topics = tuple(plan.topic_sizes())

    def run(self) -> History:
        """What happened, from the first join to the last close."""
        plan, at = self.plan, self.scheduler.at
        self.history.add(BROKER, "history", *self._terms())
        from_the_start = {number for time, number, _ in plan.produced if not time}
        empty = [(0.0, number, 0) for number in range(plan.partitions) if number not in from_the_start]
        for time, number, count in [*plan.produced, *empty]:
            at(time, partial(self.brokers.produce, plan.partition(number), count))
        for member in plan.members:
            at(member.joins_at, partial(self._join, member))
            if member.leaves_at < float("inf"):
                at(member.leaves_at, partial(self._leave, member.name))
        for fault in plan.faults:
            at(fault.time, partial(self._strike, fault))
        at(plan.quiet_after, self._calm_down)
        self.scheduler.run(plan.ends_at, self._over)
        self.history.add(BROKER, "end", True)
        return self.history

    def _terms(self) -> Terms:
        """What a history of this plan may be judged by."""
        plan = self.plan
        return Terms(
            source=f"simulation of seed {plan.seed}",
            kind=plan.kind,
            view="broker",
            reset="earliest",
            gap=_LONGEST_GAP,
            rebalance=_LONGEST_REBALANCE,
            delay=plan.max_poll_interval + _LATE,
            session=plan.session_timeout + _LATE,
            beat=_BEAT,
        )

    # -- the end

    def _over(self) -> bool:
        if self.scheduler.now <= self.plan.quiet_after:
            return False
        if not self._closing and self._all_committed():
            self._closing = True
            for name in self.members:
                self._leave(name)
        if self._closing:
            return not any(member.process.running for member in self.members.values())
        return all(member.process.crashed for member in self.members.values())

    def _all_committed(self) -> bool:
        offsets = self.brokers.group.offsets
        return all(end == 0 or (tp in offsets and offsets[tp].offset == end) for tp, end in self.brokers.ends.items())

    # -- members

    def _join(self, plan: MemberPlan) -> None:
        config = self._config(plan)
        process = Process(plan.name, config, self.scheduler, self.history, self._connect, self._latency)
        member = Member(
            plan=plan,
            process=process,
            consumer=SimulatedConsumer(process, config),
            pool=WorkerPool(process, plan.workers, self._duration, self._fails),
            duration=self._duration,
            topics=self._all_topics,
        )
        self.members[plan.name] = member
        steady = plan.loop in ("flagship", "changes") and plan.most_in_flight > 1000
        loop = LOOPS[plan.loop] if self._loop is None else self._loop
        process.start(loop(member), steady=steady and self._loop is None)

    def _leave(self, name: str) -> None:
        self.history.add(name, "leaving")
        self.members[name].stopping = True

    def _config(self, member: MemberPlan) -> ConsumerConfig:
        plan = self.plan
        config = ConsumerConfig(
            bootstrap_servers=tuple(f"{HOST}:{PORT + node}" for node in range(1, plan.nodes + 1)),
            group_id="g",
            client_id=member.name,
            assignors=member.assignors,
            auto_offset_reset="earliest",
            max_poll_records=member.limit,
            fetch_fairness=plan.fairness,
            prefetch=plan.prefetch,
            fetch_max_wait=plan.fetch_max_wait,
            max_partition_fetch_bytes=1000,
            fetch_buffer_bytes=5000,
            revoke_mode="immediate" if member.loop == "immediate" else "two-step",
            enable_auto_commit=member.loop == "auto-commit",
            auto_commit_interval=0.5,
            commit_budget=plan.commit_budget,
            session_timeout=plan.session_timeout,
            heartbeat_interval=plan.heartbeat_interval,
            max_poll_interval=plan.max_poll_interval,
            request_timeout=plan.request_timeout,
            default_api_timeout=5.0,
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

    def _fails(self) -> bool:
        return self.scheduler.now < self.plan.quiet_after and self.scheduler.random.random() < self.plan.failing

    # -- the network

    def _latency(self) -> float:
        low, high = self.plan.latency
        return low + (high - low) * self.scheduler.random.random()

    def _connect(self, process: Process, key: ConnectionKey, host: str, port: int) -> Link:
        node = port - PORT
        link = Link(self.scheduler, process, key, node, self.brokers.serve, self._latency)
        link.alive = self._down.get(node, 0.0) <= self.scheduler.now
        behind, until = self._isolated.get(process.name, (0, 0.0))
        link.stalled = behind == node and self.scheduler.now < until
        return link

    # -- faults

    def _strike(self, fault: Fault) -> None:
        if fault.kind == "move coordinator":
            self.brokers.move_coordinator(fault.seconds)
        elif fault.kind == "move leader":
            self.brokers.move_leader(self.plan.partition(fault.member % self.plan.partitions))
        elif fault.kind == "down":
            self._take_down(fault)
        else:
            member = self.members.get(self.plan.members[fault.member].name)
            if member is not None and member.process.running:
                self._strike_member(member, fault)

    def _strike_member(self, member: Member, fault: Fault) -> None:
        process = member.process
        match fault.kind:
            case "cut":
                process.cut(fault.role)
            case "stall":
                process.stall(fault.role)
            case "suspend":
                process.suspend(fault.seconds)
            case "pause":
                self.history.add(process.name, "paused", fault.seconds)
                member.hold += fault.seconds
            case "crash":
                process.crash()
            case "isolate":
                self._isolate(process, fault.seconds)
            case "absent":  # its loop does not come back until the group has thrown it out and taken it again
                self._isolate(process, fault.seconds)
                member.hold += 0.9 * self.plan.max_poll_interval
            case "nervous":
                self.history.add(process.name, "woken at each delay")
                process.nervous = True
            case "narrow":
                self._narrow(member, fault.seconds)
            case "resubscribe" | "resubscribe in haste":
                member.resubscribes = fault.kind
            case "wakeup":
                self.history.add(process.name, "woken")
                process.wakeup()
            case "wakeups":
                self.history.add(process.name, "woken for", fault.seconds)
                self._wake(process, self.scheduler.now + fault.seconds)

    def _isolate(self, process: Process, seconds: float) -> None:
        """Between it and the coordinator's node nothing arrives, and nobody is told."""
        node = self.brokers.coordinator
        self._isolated[process.name] = (node, min(self.scheduler.now + seconds, self.plan.quiet_after))
        self.history.add(process.name, "isolated", node, seconds)
        for link in process.links.values():
            link.stalled |= link.node == node

    def _narrow(self, member: Member, seconds: float) -> None:
        """It wants its first topic only, for a while."""
        if len(self._all_topics) > 1:
            member.topics = self._all_topics[:1]
            self.history.add(member.plan.name, "narrows", seconds)
            self.scheduler.at(min(self.scheduler.now + seconds, self.plan.quiet_after), partial(self._widen, member))

    def _widen(self, member: Member) -> None:
        member.topics = self._all_topics

    def _wake(self, process: Process, until: float) -> None:
        if process.running and self.scheduler.now < until:
            process.wakeup()
            self.scheduler.after(self.scheduler.jitter(0.05), partial(self._wake, process, until))

    def _take_down(self, fault: Fault) -> None:
        """A node restarts; another takes the group over, where there is one."""
        node = 1 + fault.member % self.plan.nodes
        self._down[node] = self.scheduler.now + fault.seconds
        self.history.add(BROKER, "down", node, fault.seconds)
        for member in self.members.values():
            for link in list(member.process.links.values()):
                if link.node == node:
                    link.cut()
        if node == self.brokers.coordinator:
            self.brokers.move_coordinator(fault.seconds if self.plan.nodes == 1 else 0.2)

    def _calm_down(self) -> None:
        self.history.add(BROKER, "quiet")
