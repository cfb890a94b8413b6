"""Any history that a network side can tell, at any pace of polls: records come once, in order, and only when owned."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from application_script import Script, tp
from hypothesis import given, settings
from hypothesis import strategies as st

from instride._core.events import Assigned, CompleteRevoke, PartitionsAssigned, Positioned, Revoked, SetPosition
from instride.errors import KafkaTimeoutError

PARTITIONS = 2
LENGTH = 50
STEPS = ("assign", "fetch", "fetch", "ask", "reassign", "lose", "poll", "poll", "delay", "hold", "seek", "pause")


@dataclass
class Network:
    """What a network side would know, and an application that it talks to."""

    script: Script = field(default_factory=Script)
    epochs: dict[int, int] = field(default_factory=dict)
    requested: set[int] = field(default_factory=set)
    positions: dict[int, int] = field(default_factory=dict)
    fetch_numbers: dict[int, int] = field(default_factory=dict)
    waits: set[int] = field(default_factory=set)  # reassigned, or sought: nothing is fetched before SetPosition
    returned: dict[tuple[int, int], int] = field(default_factory=dict)  # (partition, epoch) -> position
    generation: int = 0
    newest: int = 0

    def __post_init__(self) -> None:
        self.script.subscribe()

    # -- what the network side does

    def assign(self, p: int) -> None:
        if p in self.epochs:
            return
        self.generation += 1
        self.newest += 1
        self.epochs[p] = self.newest
        self.positions[p] = self.fetch_numbers[p] = 0
        self.script.up(Assigned(generation=self.generation, partitions={tp(p): self.newest}))
        self.script.up(Positioned(partition=tp(p), epoch=self.newest, seek_number=0, offset=0))

    def fetch(self, p: int) -> None:
        if p in self.epochs and p not in self.requested and p not in self.waits:
            start = self.positions[p]
            self.positions[p] = start + 3
            number = self.fetch_numbers[p]
            self.script.fetched(p, start, start + 3, epoch=self.epochs[p], fetch_number=number)

    def ask(self, p: int) -> None:
        if p in self.epochs and p not in self.requested:
            self.requested.add(p)
            self.script.revocation_requested(p, epoch=self.epochs[p])

    def reassign(self, p: int) -> None:
        if p in self.requested:
            self.requested.discard(p)
            self.waits.add(p)
            self.script.reassigned(p, epoch=self.epochs[p])

    def hold(self, p: int) -> None:
        """Requested with something buffered, delayed, and reassigned."""
        self.fetch(p)
        self.ask(p)
        self.poll()
        self.delay(p)
        self.reassign(p)

    def lose(self, p: int) -> None:
        if p in self.epochs:
            self.script.lost(p, epoch=self.epochs[p])
            self._forget(p)

    def hear(self) -> None:
        """What the application posted."""
        for event in self.script.take_posted(SetPosition):
            p = event.partition.partition
            if self.epochs.get(p) == event.epoch and event.offset >= 0:
                self.positions[p], self.fetch_numbers[p] = event.offset, event.fetch_number
                self.waits.discard(p)
        for complete in self.script.take_posted(CompleteRevoke):
            for partition, epoch in complete.partitions.items():
                if self.epochs.get(partition.partition) == epoch:
                    self._forget(partition.partition)
                    self.script.up(Revoked(partitions={partition: epoch}))

    def _forget(self, p: int) -> None:
        del self.epochs[p]
        self.requested.discard(p)
        self.waits.discard(p)

    # -- what the user does

    def poll(self) -> None:
        machine = self.script.machine
        for delivery in self.script.run(machine.poll(self.script.now, 0.0, immediate=False, limit=4)):
            p, key = delivery.partition.partition, (delivery.partition.partition, delivery.epoch)
            assert delivery.chunk.first_offset == self.returned.get(key, 0), "once, in order, without a gap"
            self.returned[key] = delivery.chunk.next_offset
            assert p in self.script.assignment()
            assert p not in self.script.to_be_revoked()
            assert delivery.partition not in machine.paused()
        assert self.script.to_be_revoked() <= self.script.assignment()

    def delay(self, p: int) -> None:
        if p in self.script.to_be_revoked() and self.script.delay(p):
            assert p not in self.script.to_be_revoked()
            assert p in self.script.assignment()

    def seek(self, p: int) -> None:
        """To where it stands: nothing is skipped and nothing comes twice."""
        if p not in self.script.assignment():
            return
        try:
            position = self.script.run(self.script.machine.position(self.script.now, tp(p), 0.0))
        except KafkaTimeoutError:
            return  # not found yet
        self.script.machine.seek(tp(p), position)

    def pause(self, p: int) -> None:
        """And seek, so that this network side hears where to go on."""
        machine = self.script.machine
        if p in self.script.assignment():
            (machine.resume if tp(p) in machine.paused() else machine.pause)([tp(p)])
            self.seek(p)


@pytest.mark.requirement("KIP-983/18")
@pytest.mark.requirement("threading/29")
@pytest.mark.rule("3")
@pytest.mark.rule("8")
@settings(max_examples=200)
@given(seed=st.integers(0, 1 << 32), prompt=st.booleans())
def test_records_come_once_in_order_and_only_when_owned(seed: int, prompt: bool) -> None:
    """A seed draws its steps evenly, which finds more here than steps that are drawn one by one."""
    network, random = Network(), Random(seed)
    for _ in range(LENGTH):
        what, p = random.choice(STEPS), random.randrange(PARTITIONS)
        if what == "poll":
            network.poll()
        else:
            getattr(network, what.replace(" ", "_"))(p)
        if prompt:
            network.hear()
    # In the end everything is settled, and what is owned flows.
    for _ in range(4):
        network.poll()
        network.hear()
    assert network.script.assignment() == set(network.epochs)
    owned = set(network.epochs) - network.requested
    for p in owned:
        network.script.machine.resume([tp(p)])
        network.seek(p)
    network.hear()
    before = dict(network.returned)
    for p in owned:
        network.fetch(p)
    for _ in range(4):
        network.poll()
    for p in owned:
        key = (p, network.epochs[p])
        assert network.returned[key] == before.get(key, 0) + 3
    assert network.script.take_posted(PartitionsAssigned) != [] or not network.generation
