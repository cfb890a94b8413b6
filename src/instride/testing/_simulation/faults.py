"""What befalls members, connections and nodes at a plan's times.

Laws
1. A fault of a member that is not there, or has gone, does nothing.
2. What users do to themselves (`narrow`, `resubscribe`) is no fault of anybody's, but comes at its time as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from instride.testing._simulation.broker_model import BrokerModel
from instride.testing._simulation.history import BROKER, History
from instride.testing._simulation.member import Member
from instride.testing._simulation.network import EVERY_NODE, Network
from instride.testing._simulation.plan import Fault, FaultKind, Plan
from instride.testing._simulation.process import Process
from instride.testing._simulation.scheduler import Scheduler

__all__ = ["Faults"]


class Faults:
    """members: those that have joined, by name. all_topics: what members read."""

    def __init__(
        self,
        plan: Plan,
        scheduler: Scheduler,
        history: History,
        brokers: BrokerModel,
        network: Network,
        members: Mapping[str, Member],
    ) -> None:
        self._plan = plan
        self._scheduler = scheduler
        self._history = history
        self._brokers = brokers
        self._network = network
        self._members = members
        self._all_topics = tuple(plan.topic_sizes())
        self._of_nodes: dict[FaultKind, Callable[[Fault], None]] = {
            "move coordinator": lambda fault: brokers.move_coordinator(fault.seconds),
            "move leader": lambda fault: brokers.move_leader(plan.partition(fault.member % plan.partitions)),
            "down": lambda fault: network.take_down(self._node(fault), fault.seconds, self._processes()),
            "slow node": lambda fault: network.slow_down(self._node(fault), fault.seconds),
            "refuse leaves": lambda fault: brokers.refusals.refuse_leaves(fault.code, self._end_of(fault)),
            "refuse commits": lambda fault: brokers.refusals.refuse_commits(fault.code, self._end_of(fault)),
            "refuse group": lambda fault: brokers.refusals.refuse_group(fault.code, self._end_of(fault)),
            "refuse joins": lambda fault: brokers.refusals.refuse_joins(fault.code, self._end_of(fault)),
            "refuse partition": self._refuse_partition,
            "refuse topic": self._refuse_topic,
        }
        self._of_members: dict[FaultKind, Callable[[Member, Fault], None]] = {
            "cut": lambda member, fault: member.process.cut(fault.role),
            "cut within a frame": lambda member, fault: member.process.make_fragile(fault.role),
            "stall": lambda member, fault: member.process.stall(fault.role),
            "suspend": lambda member, fault: member.process.suspend(fault.seconds),
            "crash": lambda member, _fault: member.process.crash(),
            "isolate": lambda member, fault: network.isolate(member.process, fault.seconds),
            "part from coordinator": self._part_from_coordinator,
            "part from all": lambda member, fault: network.part(member.process, EVERY_NODE, fault.seconds),
            "pause": self._pause,
            "absent": self._absent,
            "nervous": self._nervous,
            "narrow": self._narrow,
            "resubscribe": self._resubscribe,
            "resubscribe in haste": self._resubscribe,
            "wakeup": self._wakeup,
            "wakeups": self._wakeups,
        }

    def strike(self, fault: Fault) -> None:
        if fault.kind in self._of_nodes:
            if fault.code:
                self._history.add(BROKER, fault.kind, fault.code, round(self._end_of(fault), 3))
            self._of_nodes[fault.kind](fault)
            return
        member = self._members.get(self._plan.members[fault.member].name)
        if member is not None and member.process.running:
            self._of_members[fault.kind](member, fault)

    def _end_of(self, fault: Fault) -> float:
        """What ends by itself ends before the quiet time."""
        return min(self._scheduler.now + fault.seconds, self._plan.quiet_after)

    def _refuse_partition(self, fault: Fault) -> None:
        tp = self._plan.partition(fault.member % self._plan.partitions)
        self._brokers.refusals.refuse_partition(tp, fault.code, self._end_of(fault))

    def _refuse_topic(self, fault: Fault) -> None:
        topic = self._plan.partition(fault.member % self._plan.partitions).topic
        self._brokers.refusals.refuse_topic(topic, fault.code, self._end_of(fault))

    def _node(self, fault: Fault) -> int:
        return 1 + fault.member % self._plan.nodes

    def _processes(self) -> list[Process]:
        return [member.process for member in self._members.values()]

    def _part_from_coordinator(self, member: Member, fault: Fault) -> None:
        self._network.part(member.process, self._brokers.coordinator, fault.seconds)

    def _pause(self, member: Member, fault: Fault) -> None:
        self._history.add(member.process.name, "paused", fault.seconds)
        member.hold += fault.seconds

    def _absent(self, member: Member, fault: Fault) -> None:
        """Its loop does not come back until the group has thrown it out and taken it again."""
        self._network.isolate(member.process, fault.seconds)
        member.hold += 0.9 * self._plan.max_poll_interval

    def _nervous(self, member: Member, _fault: Fault) -> None:
        self._history.add(member.process.name, "woken at each delay")
        member.process.nervous = True

    def _resubscribe(self, member: Member, fault: Fault) -> None:
        member.resubscribes = fault.kind

    def _narrow(self, member: Member, fault: Fault) -> None:
        """It wants its first topic only, for a while."""
        if len(self._all_topics) > 1:
            member.topics = self._all_topics[:1]
            self._history.add(member.process.name, "narrows", fault.seconds)
            until = min(self._scheduler.now + fault.seconds, self._plan.quiet_after)
            self._scheduler.at(until, partial(self._widen, member))

    def _widen(self, member: Member) -> None:
        member.topics = self._all_topics

    def _wakeup(self, member: Member, _fault: Fault) -> None:
        self._history.add(member.process.name, "woken")
        member.process.wakeup()

    def _wakeups(self, member: Member, fault: Fault) -> None:
        self._history.add(member.process.name, "woken for", fault.seconds)
        self._wake(member.process, self._scheduler.now + fault.seconds)

    def _wake(self, process: Process, until: float) -> None:
        if process.running and self._scheduler.now < until:
            process.wakeup()
            self._scheduler.after(self._scheduler.jitter(0.05), partial(self._wake, process, until))
