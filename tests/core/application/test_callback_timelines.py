"""KIP-429's two timelines of callbacks in immediate mode, order and arguments, empty sets included; and in two-step."""

from __future__ import annotations

import pytest
from application_script import RecordingListener, Script, epochs, tp

from instride.core.events import Assigned, CommitsSettled, Lost, PartitionsRevoked, Revoked, RevokeRequested
from instride.core.group.protocol import RebalanceProtocol

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

    def asked_for(self, *partitions: int, epoch: int) -> None:
        self.script.up(RevokeRequested(partitions=epochs(*partitions, epoch=epoch), deadline=400.0))

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
    t.asked_for(epoch=0)
    t.assigned(1, 0)
    t.poll()
    assert t.heard() == [("revoked", []), ("assigned", [0, 1])], "revoked even if empty; sorted"
    t.asked_for(1, 0, epoch=2)
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
    t.asked_for(1, epoch=1)
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
    t.asked_for(epoch=0)
    t.assigned(0)
    t.poll()
    assert t.heard() == [("assigned", [0])]
    assert t.script.to_be_revoked() == set()


@pytest.mark.rule("10")
def test_two_step_eager_calls_revoked_at_completion() -> None:
    t = Timeline(EAGER, immediate=False)
    t.assigned(0, 1)
    t.poll()
    t.asked_for(0, 1, epoch=1)
    t.poll()
    assert t.script.to_be_revoked() == {0, 1}
    assert t.script.delay(1)
    t.poll()
    t.settled(0, epoch=1)
    t.poll()
    assert t.heard() == [("assigned", [0, 1]), ("revoked", [0])], "the delayed one is still held"
    assert t.script.assignment() == {1}


@pytest.mark.rule("5")
def test_a_request_that_waits_of_what_was_lost_is_told_as_a_loss_alone() -> None:
    t = Timeline(EAGER)
    t.assigned(0)
    t.poll()
    t.heard()
    t.asked_for(0, epoch=1)
    t.script.up(Lost(partitions=epochs(0)))
    t.poll()
    t.poll()
    assert t.heard() == [("lost", [0])], "not revoked, not even of an empty set"
