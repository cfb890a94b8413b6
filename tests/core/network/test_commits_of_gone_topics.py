"""A commit of a topic that is gone: it ends, and holds up no revoke (KAFKA-16224)."""

from __future__ import annotations

import pytest
from network_script import NetworkScript, tp

from instride._core.events import CallCompleted, Lost, RevocationRequested, Revoked, Subscribe
from instride._wire import api
from instride.errors import UnknownTopicOrPartitionError

UNKNOWN_TOPIC = 3


@pytest.fixture
def script() -> NetworkScript:
    made = NetworkScript()
    made.member_of(1, 0)
    return made


def outcome(script: NetworkScript, call: int) -> Exception | None:
    (response,) = (each for each in script.take(CallCompleted) if each.call == call)
    return response.committed[tp(0)]


def refused_for(script: NetworkScript, seconds: float) -> None:
    """The coordinator says that there is no such topic, whenever it is asked to commit."""
    end = script.now + seconds
    while script.now < end:
        if "OffsetCommit" in script.waits():
            script.committed(UNKNOWN_TOPIC)
        script.pass_time(0.25)
        if "Heartbeat" in script.waits():
            script.response(api.Heartbeat, api.HeartbeatResponse())


@pytest.mark.rule("completing")
@pytest.mark.requirement("surface/deleted-topics")
def test_a_commit_of_a_topic_that_is_gone_does_not_hold_up_its_revoke(script: NetworkScript) -> None:
    script.do(Subscribe(topics=frozenset({"u"})))
    (requested,) = script.take(RevocationRequested)
    del script.topics["t"]
    call = script.commit({0: 5})
    script.complete(0)
    refused_for(script, 4.75)
    assert script.take(Revoked) == [], "a broker that has just started may not know its topics yet"
    refused_for(script, 1.2)
    assert [each.partitions for each in script.take(Revoked)] == [requested.partitions]
    assert isinstance(outcome(script, call), UnknownTopicOrPartitionError)
    assert script.take(Lost) == []


def test_the_metadata_is_asked_about_a_topic_that_the_coordinator_does_not_know(script: NetworkScript) -> None:
    """Though no fetch has told of it."""
    del script.topics["t"]
    call = script.commit({0: 5})
    refused_for(script, 8.0)
    assert isinstance(outcome(script, call), UnknownTopicOrPartitionError)


def test_a_topic_that_the_metadata_has_is_committed_again(script: NetworkScript) -> None:
    call = script.commit({0: 5})
    refused_for(script, 30.0)
    assert script.take(CallCompleted) == []
    script.committed()
    assert outcome(script, call) is None


def test_a_topic_that_was_known_in_between_has_its_time_again(script: NetworkScript) -> None:
    call = script.commit({0: 5})
    refused_for(script, 4.0)
    script.committed()
    assert outcome(script, call) is None
    del script.topics["t"]
    script.commit({0: 6})
    refused_for(script, 3.0)
    assert script.take(CallCompleted) == []
