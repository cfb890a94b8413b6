"""When an assignor of the user's own is called, and with what (KIP-429's timeline)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pytest
from network_script import NetworkScript, tp

from instride._core.assignors.assignor import Assignment, ClusterView, MemberSubscription
from instride._core.events import Assigned, ErrorRaised, Lost, PartitionsAssigned, RevocationRequested, Subscribe
from instride._core.ownership import RebalanceProtocol
from instride._wire import api
from instride._wire.consumer_protocol import read_subscription
from instride.errors import AssignorError
from instride.records import TopicPartition

REBALANCE_IN_PROGRESS = 27


class Recording:
    """Deals out nothing to speak of, and writes down what it is called for."""

    name = "cooperative-sticky"  # the name that the scripted coordinator chooses
    version = 0

    def __init__(self, protocol: RebalanceProtocol) -> None:
        self.protocols = {protocol}
        self.calls: list[tuple[Any, ...]] = []

    def subscription_userdata(
        self, topics: Collection[str], *, owned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        self.calls.append(("userdata", sorted(topics), [each.partition for each in owned]))
        return b"mine"

    def assign(self, cluster: ClusterView, members: Iterable[MemberSubscription]) -> Assignment:
        seen = list(members)
        self.calls.append(("assign", {each.member_id: [tp.partition for tp in each.owned] for each in seen}))
        return {each.member_id: tuple(cluster.of_topic("t")) for each in seen}

    def on_assignment(self, assignment: Sequence[TopicPartition], generation: int) -> None:
        self.calls.append(("assigned", [each.partition for each in assignment], generation))

    def take(self) -> list[tuple[Any, ...]]:
        calls, self.calls = self.calls, []
        return calls


def member(protocol: RebalanceProtocol) -> tuple[NetworkScript, Recording]:
    assignor = Recording(protocol)
    script = NetworkScript(assignors=[assignor])
    script.subscribe()
    return script, assignor


@pytest.mark.requirement("KIP-429/5")
@pytest.mark.requirement("KIP-429/6")
@pytest.mark.requirement("KIP-429/9")
def test_userdata_at_the_join_on_assignment_at_the_sync_no_assign_for_a_follower() -> None:
    script, assignor = member(RebalanceProtocol.COOPERATIVE)
    assert assignor.take() == [("userdata", ["t"], [])]
    assert read_subscription(script.requested(api.JoinGroup).protocols[0].metadata).userdata == b"mine"
    script.join(1)
    assert assignor.take() == []
    assert script.take(Assigned) == []
    script.sync(0, 1)
    assert assignor.take() == [("assigned", [0, 1], 1)]
    assert len(script.take(Assigned)) == 1, "the application hears of it after the assignor"


@pytest.mark.requirement("surface/custom-assignor")
@pytest.mark.requirement("KIP-429/6")
@pytest.mark.requirement("KIP-429/7")
def test_a_leaders_assign_sees_what_each_member_owns() -> None:
    script, assignor = member(RebalanceProtocol.COOPERATIVE)
    script.rebalance(1, 0, 1)
    script.do(PartitionsAssigned(generation=1))
    script.heartbeat(REBALANCE_IN_PROGRESS)
    assignor.take()
    script.join(2, leader=True)
    assert assignor.take() == [("assign", {"me": [0, 1]})]
    assert script.requested(api.SyncGroup).assignments.keys() == {"me"}


@pytest.mark.requirement("KIP-429/2")
@pytest.mark.requirement("KIP-429/9")
@pytest.mark.requirement("threading/20")
def test_eager_everything_is_revoked_before_the_userdata_is_requested() -> None:
    script, assignor = member(RebalanceProtocol.EAGER)
    script.rebalance(1, 0, 1)
    script.do(PartitionsAssigned(generation=1))
    assignor.take()
    script.heartbeat(REBALANCE_IN_PROGRESS)
    (requested,) = script.take(RevocationRequested)
    assert set(requested.partitions) == {tp(0), tp(1)}
    assert assignor.take() == [], "no join yet"
    script.complete(0, 1)
    assert assignor.take() == [("userdata", ["t"], [])], "it joins with nothing"
    script.rebalance(2, 1)
    assert assignor.take() == [("assigned", [1], 2)]


class Failing(Recording):
    """Raises in one of its methods, from a moment on."""

    def __init__(self) -> None:
        super().__init__(RebalanceProtocol.COOPERATIVE)
        self.fails = ""
        self.error: BaseException = LookupError("the user's bug")

    def subscription_userdata(
        self, topics: Collection[str], *, owned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        if self.fails == "userdata":
            raise self.error
        return "no bytes" if self.fails == "type" else b"mine"  # type: ignore[return-value]

    def on_assignment(self, assignment: Sequence[TopicPartition], generation: int) -> None:
        if self.fails == "on_assignment":
            raise self.error


@pytest.mark.parametrize(
    ("fails", "error"), [("userdata", LookupError), ("type", Exception), ("on_assignment", LookupError)]
)
@pytest.mark.parametrize("first", [True, False])
def test_what_an_assignor_raises_is_told_and_kills_no_thread(fails: str, error: type[Exception], first: bool) -> None:
    assignor = Failing()
    script = NetworkScript(assignors=[assignor])
    if not first:
        script.member_of(1, 0)
        script.heartbeat(REBALANCE_IN_PROGRESS)
        script.rebalance(2, 0)
        script.do(PartitionsAssigned(generation=2))
    assignor.fails = fails
    script.subscribe() if first else script.heartbeat(REBALANCE_IN_PROGRESS)
    if fails == "on_assignment":
        script.rebalance(3, 0)
    (told,) = script.take(ErrorRaised)
    assert isinstance(told.error, error)
    assert len(script.take(Lost)) == (0 if first else 1)
    assert ("LeaveGroup" in script.waits()) == (fails == "on_assignment" or not first), "nobody shall wait for us"
    script.pass_time(10.0)
    assert "JoinGroup" not in script.waits()
    assignor.fails = ""
    script.do(Subscribe(topics=frozenset({"t"})))
    script.rebalance(4, 0)
    assert script.take(Assigned)[-1].partitions.keys() == {tp(0)}


@pytest.mark.parametrize("fails", ["userdata", "on_assignment"])
def test_an_assignor_that_exits_ends_no_thread(fails: str) -> None:
    """As where it assigns: sys.exit() would end the network thread only, and all calls with it."""
    assignor = Failing()
    assignor.fails, assignor.error = fails, SystemExit(1)
    script = NetworkScript(assignors=[assignor])
    script.subscribe()
    if fails == "on_assignment":
        script.rebalance(1, 0)
    (told,) = script.take(ErrorRaised)
    assert isinstance(told.error, AssignorError)
    assert str(told.error) == "an assignor raised SystemExit"
    assert told.error.__cause__ is assignor.error
