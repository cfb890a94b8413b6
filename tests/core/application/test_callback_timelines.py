"""KIP-429's two timelines of callbacks in immediate mode, order and arguments, empty sets included; and in two-step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest
from application_script import RecordingListener, Script, epochs, tp

from instride._core.events import Assigned, CommitsSettled, Lost, PartitionsRevoked, RevocationRequested, Revoked
from instride._core.ownership import RebalanceProtocol
from instride.listeners import RebalanceListener
from instride.records import TopicPartition

EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE


class Timeline:
    """A consumer in immediate mode, and a network side that goes through rebalances as C describes them."""

    def __init__(self, protocol: RebalanceProtocol, *, immediate: bool = True) -> None:
        self.script = Script(protocol=protocol)
        self.script.immediate = immediate
        self.listener = RecordingListener()
        self.script.subscribe(self.listener)
        self.epoch = 0

    def heard(self) -> list[tuple[str, list[int]]]:
        heard, self.listener.heard = self.listener.heard, []
        return heard

    def poll(self) -> None:
        self.script.poll(timeout=0.0)

    def assigned(self, *partitions: int) -> None:
        self.epoch += 1
        self.script.up(Assigned(generation=self.epoch, partitions=epochs(*partitions, epoch=self.epoch)))

    def revocation_requested(self, *partitions: int, epoch: int) -> None:
        self.script.up(RevocationRequested(partitions=epochs(*partitions, epoch=epoch), deadline=400.0))

    def settled(self, *partitions: int, epoch: int) -> None:
        self.script.up(CommitsSettled(partitions=epochs(*partitions, epoch=epoch)))

    def released(self, *partitions: int, epoch: int) -> None:
        self.script.up(Revoked(partitions=epochs(*partitions, epoch=epoch)))


@pytest.mark.requirement("KIP-429/1")
@pytest.mark.requirement("KIP-429/2")
@pytest.mark.requirement("KIP-429/3")
@pytest.mark.rule("10")
def test_eager() -> None:
    t = Timeline(EAGER)
    t.assigned()
    t.poll()
    assert t.heard() == [("assigned", [])], "no revoked before the first join; assigned even if empty"
    t.revocation_requested(epoch=0)
    t.assigned(1, 0)
    t.poll()
    assert t.heard() == [("revoked", []), ("assigned", [0, 1])], "revoked even if empty; sorted"
    t.revocation_requested(1, 0, epoch=2)
    t.poll()
    assert t.heard() == [], "their commits are awaited"
    t.settled(0, 1, epoch=2)
    t.poll()
    assert t.heard() == [("revoked", [0, 1])], "all of them, in one call, before the join"
    assert t.script.take_posted(PartitionsRevoked)
    t.released(0, 1, epoch=2)
    t.assigned(0)
    t.poll()
    assert t.heard() == [("assigned", [0])], "what is assigned again is told again"
    t.script.up(Lost(partitions=epochs(0, epoch=3)))
    t.poll()
    assert t.heard() == [("lost", [0])]


@pytest.mark.requirement("KIP-429/1")
@pytest.mark.requirement("KIP-429/8")
@pytest.mark.requirement("KIP-429/10")
@pytest.mark.rule("10")
def test_cooperative() -> None:
    t = Timeline(COOPERATIVE)
    t.assigned(0, 1)
    t.poll()
    assert t.heard() == [("assigned", [0, 1])]
    t.assigned()
    t.poll()
    assert t.heard() == [("assigned", [])], "a rebalance that changes nothing: no revoked, assigned even if empty"
    t.revocation_requested(1, epoch=1)
    t.assigned(2)
    t.poll()
    assert t.heard() == [], "nothing later is told while the revoke is awaited"
    t.settled(1, epoch=1)
    t.poll()
    assert t.heard() == [("revoked", [1]), ("assigned", [2])], "revoked before assigned; only what moves"
    t.script.up(Lost(partitions={tp(0): 1, tp(2): 3}))
    t.assigned(0)
    t.poll()
    assert t.heard() == [("lost", [0, 2])], "and no revoked, and nothing later of what was lost"
    t.poll()
    assert t.heard() == [("assigned", [0])]


@pytest.mark.rule("10")
@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE])
def test_two_step_tells_no_empty_revoke_and_no_empty_assignment(protocol: RebalanceProtocol) -> None:
    t = Timeline(protocol, immediate=False)
    t.assigned()
    t.revocation_requested(epoch=0)
    t.assigned(0)
    t.poll()
    assert t.heard() == [("assigned", [0])]
    assert t.script.to_be_revoked() == set()


@pytest.mark.rule("10")
def test_two_step_eager_calls_revoked_at_completion() -> None:
    t = Timeline(EAGER, immediate=False)
    t.assigned(0, 1)
    t.poll()
    t.revocation_requested(0, 1, epoch=1)
    t.poll()
    assert t.script.to_be_revoked() == {0, 1}
    assert t.script.delay(1)
    t.poll()
    t.settled(0, epoch=1)
    t.poll()
    assert t.heard() == [("assigned", [0, 1]), ("revoked", [0])], "the delayed one is still owned"
    assert t.script.assignment() == {1}


@pytest.mark.rule("5")
def test_a_request_that_waits_of_what_was_lost_is_told_as_a_loss_alone() -> None:
    t = Timeline(EAGER)
    t.assigned(0)
    t.poll()
    t.heard()
    t.revocation_requested(0, epoch=1)
    t.script.up(Lost(partitions=epochs(0)))
    t.poll()
    t.poll()
    assert t.heard() == [("lost", [0])], "not revoked, not even of an empty set"


def test_who_tells_no_loss_from_a_revoke_hears_of_both_alike() -> None:
    """As in Java: on_partitions_lost calls on_partitions_revoked where it is not overridden."""

    class Simple(RebalanceListener):
        heard: ClassVar[list[list[int]]] = []

        def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            self.heard.append([each.partition for each in partitions])

    script = Script()
    script.subscribe(Simple())
    script.assigned(0, 1)
    script.poll()
    script.lost(1, 0)
    script.poll()
    assert Simple.heard == [[0, 1]]


@pytest.mark.requirement("KIP-429/8")
@pytest.mark.rule("10")
def test_what_was_requested_together_is_told_together_however_it_settles() -> None:
    t = Timeline(COOPERATIVE)
    t.assigned(0, 1)
    t.poll()
    t.heard()
    t.revocation_requested(0, 1, epoch=1)
    t.poll()
    t.settled(0, epoch=1)
    t.poll()
    assert t.heard() == [], "a commit of 1 has no response yet"
    t.settled(1, epoch=1)
    t.poll()
    assert t.heard() == [("revoked", [0, 1])]


def test_a_listener_that_a_new_subscribe_replaced_is_not_called_and_its_revoke_ends() -> None:
    t = Timeline(COOPERATIVE, immediate=False)
    t.assigned(0, 1)
    t.poll()
    t.heard()
    t.revocation_requested(0, epoch=1)
    t.poll()
    t.poll()
    t.script.subscribe(None)
    t.settled(0, epoch=1)
    t.poll()
    assert t.heard() == []
    assert [each.partitions for each in t.script.take_posted(PartitionsRevoked)] == [epochs(0)]
    assert t.script.assignment() == {1}
