"""What the threading refactor asks of the group's states and of time: they are gone through in order, it is kept."""

from __future__ import annotations

import itertools

import pytest
from network_script import NetworkScript, tp

from instride.core.events import Answered, Assigned, Close, PartitionsAssigned, Polled
from instride.core.group.membership import GroupState
from instride.core.network.actions import Action, Transmit
from instride.errors import KafkaError
from instride.wire import api

LOADING, NOT_AVAILABLE, REBALANCE_IN_PROGRESS = 14, 15, 27


@pytest.fixture
def script() -> NetworkScript:
    return NetworkScript()


def state(script: NetworkScript) -> GroupState:
    return script.machine._group.state


@pytest.mark.requirement("threading/18")
@pytest.mark.requirement("threading/19")
def test_the_group_is_stable_when_the_application_has_taken_the_assignment(script: NetworkScript) -> None:
    assert state(script) is GroupState.UNJOINED
    script.subscribe()
    assert state(script) is GroupState.PREPARING_REBALANCE
    script.join(1)
    assert state(script) is GroupState.COMPLETING_REBALANCE
    script.sync(0)
    assert state(script) is GroupState.ASSIGNING_PARTITIONS
    (event,) = script.take(Assigned)
    assert event.partitions.keys() == {tp(0)}
    script.pass_time(1.0)
    assert state(script) is GroupState.ASSIGNING_PARTITIONS, "nobody has answered"
    script.do(PartitionsAssigned(generation=1))
    assert state(script) is GroupState.STABLE


@pytest.mark.requirement("threading/18")
def test_an_answer_to_an_older_assignment_does_not_make_it_stable(script: NetworkScript) -> None:
    script.subscribe()
    script.rebalance(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(2, 0)
    script.do(PartitionsAssigned(generation=1))
    assert state(script) is GroupState.ASSIGNING_PARTITIONS
    script.do(PartitionsAssigned(generation=2))
    assert state(script) is GroupState.STABLE


class Beating(NetworkScript):
    """Notes when each heartbeat was sent, and answers it a little later."""

    def __init__(self) -> None:
        super().__init__(heartbeat_interval=2.0, session_timeout=12.0, max_poll_interval=60.0)
        self.sent: list[float] = []

    def _act(self, action: Action) -> None:
        super()._act(action)
        if isinstance(action, Transmit) and isinstance(action.request, api.Heartbeat):
            self.sent.append(self.now)

    def beat(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.25)):
            self.pass_time(0.25)
            if "Heartbeat" in self.waits():
                self.answer(api.Heartbeat, api.HeartbeatAnswer())


@pytest.mark.requirement("threading/27")
@pytest.mark.requirement("KIP-41/5")
def test_heartbeats_come_at_their_interval_and_no_sooner() -> None:
    """While the application polls all the time, and while it does not."""
    script = Beating()
    script.member_of(1, 0)
    joined = script.now
    for _ in range(40):
        script.do(Polled())
        script.beat(0.5)
    script.beat(30.0)
    pauses = [later - earlier for earlier, later in itertools.pairwise([joined, *script.sent])]
    assert len(pauses) >= 20
    assert min(pauses) >= 2.0
    assert max(pauses) <= 2.25, "what is answered at its time is asked again an interval later"


@pytest.mark.vector(72)
@pytest.mark.requirement("surface/close-bounded")
def test_commits_that_find_no_coordinator_hold_up_a_close_until_its_timeout(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.coordinator_error = NOT_AVAILABLE
    script.machine._coordinator.lost("the broker is gone")
    script.commit({0: 3})
    script.do(Close(call=1, deadline=script.now + 1.0))
    script.pass_time(0.9)
    assert [each for each in script.take(Answered) if each.call == 1] == []
    assert not script.stopped
    script.pass_time(0.2)
    (answer,) = [each for each in script.take(Answered) if each.call == 1]
    assert isinstance(answer.error, KafkaError)
    assert script.stopped


def test_a_rebalance_that_went_well_ends_the_growth_of_the_back_off() -> None:
    script = NetworkScript(retry_backoff=1.0, retry_backoff_max=16.0, session_timeout=60.0, max_poll_interval=900.0)
    script.subscribe()

    def pause() -> float:
        script.answer(api.JoinGroup, api.JoinGroupAnswer(error=LOADING))
        refused = script.now
        while "JoinGroup" not in script.waits():
            script.pass_time(0.25)
            script.do(Polled())
        return script.now - refused

    assert [round(pause()) for _ in range(4)] == [1, 2, 4, 8]
    script.rebalance(1, 0)
    script.do(PartitionsAssigned(generation=1))
    script.heartbeat(REBALANCE_IN_PROGRESS)
    assert round(pause()) == 1
