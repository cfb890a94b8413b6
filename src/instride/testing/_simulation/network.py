"""The network between members and nodes: what is reachable, and how fast.

Laws
1. What ends by itself ends before the quiet time.
2. A connection is judged when it opens, and again when something happens to one that is open.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from instride._core.network.actions import ConnectionKey
from instride.testing._simulation.broker_model import PORT, BrokerModel
from instride.testing._simulation.history import BROKER, History
from instride.testing._simulation.links import Link
from instride.testing._simulation.plan import Plan
from instride.testing._simulation.process import Process
from instride.testing._simulation.scheduler import Scheduler

__all__ = ["EVERY_NODE", "Network"]

EVERY_NODE = 0
Until = tuple[int, float]
"""A node (or EVERY_NODE), and a time."""


class Network:
    def __init__(self, plan: Plan, scheduler: Scheduler, history: History, brokers: BrokerModel) -> None:
        self._plan = plan
        self._scheduler = scheduler
        self._history = history
        self._brokers = brokers
        self._down: dict[int, float] = {}
        self._slow: dict[int, float] = {}
        self._isolated: dict[str, Until] = {}
        self._parted: dict[str, Until] = {}

    def latency(self, node: int = 0) -> float:
        """Of the next message, one way."""
        low, high = self._plan.latency
        usual = low + (high - low) * self._scheduler.random.random()
        slow = self._slow.get(node, 0.0) > self._scheduler.now
        return usual + self._scheduler.random.uniform(0.2, 1.0) if slow else usual

    def connect(self, process: Process, key: ConnectionKey, host: str, port: int) -> Link:
        node = port - PORT
        latency = partial(self.latency, node)
        link = Link(self._scheduler, process, key, node, self._brokers.serve, latency, framed=self._plan.framed)
        link.alive = self._down.get(node, 0.0) <= self._scheduler.now
        behind, until = self._isolated.get(process.name, (0, 0.0))
        link.stalled = behind == node and self._scheduler.now < until
        parted_from, until = self._parted.get(process.name, (EVERY_NODE, 0.0))
        link.blocked_until = until if parted_from in (node, EVERY_NODE) else 0.0
        return link

    def isolate(self, process: Process, seconds: float) -> None:
        """Between it and the coordinator's node nothing arrives, and nobody is told."""
        node = self._brokers.coordinator
        self._isolated[process.name] = (node, self._end_of(seconds))
        self._history.add(process.name, "isolated", node, seconds)
        self._history.add(process.name, "blind")
        for link in process.links.values():
            link.stalled |= link.node == node

    def part(self, process: Process, node: int, seconds: float) -> None:
        """A network partition that heals: what is sent meanwhile arrives then."""
        until = self._end_of(seconds)
        self._parted[process.name] = (node, until)
        self._history.add(process.name, "parted", node, seconds)
        for link in process.links.values():
            if node in (link.node, EVERY_NODE):
                link.blocked_until = max(link.blocked_until, until)  # or what is sent next would overtake

    def slow_down(self, node: int, seconds: float) -> None:
        self._slow[node] = self._end_of(seconds)
        self._history.add(BROKER, "slow", node, seconds)

    def take_down(self, node: int, seconds: float, processes: Iterable[Process]) -> None:
        """A node restarts; another takes the group over, where there is one."""
        self._down[node] = self._scheduler.now + seconds
        self._history.add(BROKER, "down", node, seconds)
        self._brokers.restarted(node)
        for process in processes:
            for link in list(process.links.values()):
                if link.node == node:
                    link.cut()
        if node == self._brokers.coordinator:
            self._brokers.move_coordinator(seconds if self._plan.nodes == 1 else 0.2)

    def _end_of(self, seconds: float) -> float:
        return min(self._scheduler.now + seconds, self._plan.quiet_after)
