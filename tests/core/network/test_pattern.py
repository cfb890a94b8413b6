"""A subscription by pattern: which topics it means, and what happens when topics come and go."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import pytest
from network_script import NetworkScript, tp

from instride._core.events import (
    Assign,
    Assigned,
    CallCompleted,
    Close,
    Commit,
    CompleteRevoke,
    EnforceRebalance,
    ErrorRaised,
    Lost,
    PartitionsAssigned,
    RevocationRequested,
    Revoked,
    Subscribe,
    SubscriptionMatched,
    Unsubscribe,
)
from instride._wire import api
from instride._wire.consumer_protocol import Assignment, write_assignment
from instride.commits import CommitEntry
from instride.errors import UnknownTopicOrPartitionError
from instride.records import TopicPartition

FLIGHTS = re.compile(r"flights-\d+")


def scripted(topics: dict[str, int], pattern: re.Pattern[str] = FLIGHTS, **settings: Any) -> NetworkScript:
    """A consumer that has just subscribed to the pattern."""
    script = NetworkScript(topics=topics, metadata_max_age=10.0, **settings)
    script.do(Subscribe(topics=frozenset(), pattern=pattern))
    return script


def member(topics: dict[str, int], *partitions: TopicPartition, **settings: Any) -> NetworkScript:
    """A stable member that holds these partitions."""
    script = scripted(topics, **settings)
    script.join(1)
    sync(script, *partitions)
    script.do(PartitionsAssigned(generation=1))
    return script


def sync(script: NetworkScript, *partitions: TopicPartition) -> None:
    script.response(
        api.SyncGroup, api.SyncGroupResponse(assignment=write_assignment(Assignment(partitions=partitions)))
    )


def matched(script: NetworkScript) -> list[set[str]]:
    return [set(event.topics) for event in script.take(SubscriptionMatched)]


def asked_metadata(script: NetworkScript) -> api.Metadata:
    script.hold_metadata = True
    script.pass_time(10.5)
    request = script.requested(api.Metadata)
    script.hold_metadata = False
    script.response(api.Metadata, script.metadata(request))
    return request


@pytest.mark.requirement("surface/pattern")
def test_the_whole_name_must_match() -> None:
    script = scripted({"flights-1": 1, "flights-22": 1, "flights-2-old": 1, "my-flights-3": 1, "other": 1})
    assert matched(script) == [{"flights-1", "flights-22"}]
    assert script.joining_with().topics == ("flights-1", "flights-22")


def test_every_topic_is_requested_and_only_while_there_is_a_pattern() -> None:
    script = member({"flights-1": 1, "other": 1}, tp(0, "flights-1"))
    assert asked_metadata(script).topics is None
    script.do(Subscribe(topics=frozenset({"other"})))
    script.pass_time(1.0)
    assert asked_metadata(script).topics == ("flights-1", "other")


@pytest.mark.parametrize(("exclude", "expected"), [(True, {"flights"}), (False, {"flights", "__consumer_offsets"})])
def test_internal_topics_are_left_out_unless_they_are_wanted(exclude: bool, expected: set[str]) -> None:
    topics = {"flights": 1, "__consumer_offsets": 1}
    script = scripted(topics, re.compile(".*"), exclude_internal_topics=exclude)
    assert matched(script) == [expected]


def test_nothing_is_joined_before_the_topics_are_known() -> None:
    script = NetworkScript(topics={"flights-1": 1})
    script.hold_metadata = True
    script.do(Subscribe(topics=frozenset(), pattern=FLIGHTS))
    script.pass_time(1.0)
    assert not [each for each in script.waiting if isinstance(each.request, api.JoinGroup)]


def test_a_response_about_some_topics_does_not_decide() -> None:
    """One that was requested before there was a pattern."""
    script = NetworkScript(topics={"flights-1": 1, "flights-2": 1})
    script.hold_metadata = True
    script.do(Subscribe(topics=frozenset({"flights-1"})))
    script.do(Subscribe(topics=frozenset(), pattern=FLIGHTS))
    request = script.requested(api.Metadata)
    assert request.topics == ("flights-1",)
    script.hold_metadata = False
    script.response(api.Metadata, script.metadata(request))
    script.pass_time(1.0)
    assert matched(script) == [{"flights-1", "flights-2"}]


def test_a_pattern_that_matches_nothing_joins_without_topics_and_finds_a_later_one() -> None:
    script = scripted({"other": 1})
    assert matched(script) == [set()]
    assert script.joining_with().topics == ()
    script.rebalance(1)
    script.do(PartitionsAssigned(generation=1))
    script.topics["flights-1"] = 1
    script.pass_time(10.5)
    assert matched(script) == [{"flights-1"}]
    assert script.joining_with().topics == ("flights-1",)


@pytest.mark.requirement("surface/enforce-rebalance")
@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
def test_a_rebalance_may_be_wanted_while_nothing_matches(assignor: str) -> None:
    script = scripted({"other": 1}, assignors=[assignor])
    script.rebalance(1)
    script.do(PartitionsAssigned(generation=1))
    script.do(EnforceRebalance(reason="is there nothing yet"))
    assert script.requested(api.JoinGroup).reason == "is there nothing yet"
    assert script.joining_with().topics == ()
    script.rebalance(2)
    assert script.take(Assigned)[-1].partitions == {}
    assert script.take(ErrorRaised) == []


@pytest.mark.requirement("KIP-429/4")
@pytest.mark.rule("11")
def test_a_broker_that_knows_no_broker_yet_takes_nothing_away() -> None:
    """It has just started. All topics seemed to be gone, and so the revocation of every partition was requested."""
    script = member({"flights-1": 2}, tp(0, "flights-1"), tp(1, "flights-1"))
    matched(script)
    script.hold_metadata = True
    script.pass_time(10.5)
    for _ in range(8):  # for longer than a broker that lists brokers, and not the topic, is not believed
        if "Metadata" in script.waits():
            script.response(api.Metadata, api.MetadataResponse(brokers=(), topics=()))
        assert (matched(script), script.take(RevocationRequested)) == ([], [])
        assert "JoinGroup" not in script.waits()
        script.pass_time(1.0)
    script.hold_metadata = False
    script.response(api.Metadata, api.MetadataResponse(brokers=(), topics=()))
    script.topics["flights-2"] = 1
    script.pass_time(2.0)
    assert matched(script) == [{"flights-1", "flights-2"}], "asked again soon"


def test_a_topic_that_is_deleted_is_requested_and_the_others_go_on() -> None:
    script = member({"flights-1": 1, "flights-2": 1}, tp(0, "flights-1"), tp(0, "flights-2"))
    (assigned,) = script.take(Assigned)
    del script.topics["flights-2"]
    script.pass_time(14.0)
    assert script.take(RevocationRequested) == [], "a broker that has just started may not list every topic yet"
    script.pass_time(2.5)
    (requested,) = script.take(RevocationRequested)
    assert requested.partitions == {tp(0, "flights-2"): assigned.partitions[tp(0, "flights-2")]}
    said = script.joining_with()
    assert said.topics == ("flights-1",)
    assert said.owned == (tp(0, "flights-1"), tp(0, "flights-2")), "pending ones are still listed"
    script.pass_time(20.0)
    assert script.take(ErrorRaised) == [], "nobody subscribed to it by its name"
    script.do(CompleteRevoke(partitions=requested.partitions))
    script.join(2)
    sync(script, tp(0, "flights-1"))
    script.pass_time(35.0)
    assert script.take(ErrorRaised) == []
    assert script.take(Lost) == []


def test_a_commit_of_a_topic_that_was_deleted_does_not_hold_up_its_revoke() -> None:
    script = member({"flights-1": 1, "flights-2": 1}, tp(0, "flights-1"), tp(0, "flights-2"))
    gone = tp(0, "flights-2")
    (assigned,) = script.take(Assigned)
    del script.topics["flights-2"]
    script.pass_time(16.5)
    (requested,) = script.take(RevocationRequested)
    entry = CommitEntry(offset=5, epoch=assigned.partitions[gone], seek_number=0)
    script.do(Commit(call=1, deadline=script.now + 60, entries={gone: entry}))
    script.do(CompleteRevoke(partitions=requested.partitions))
    while not (completed := script.take(CallCompleted)):
        script.response(api.OffsetCommit, api.OffsetCommitResponse(errors={gone: 3}))
        script.pass_time(2.0)
    assert isinstance(completed[0].committed[gone], UnknownTopicOrPartitionError)
    assert [each.partitions for each in script.take(Revoked)] == [requested.partitions]


@pytest.mark.parametrize("max_age", [10.0, 300.0])
def test_a_topic_that_one_response_does_not_list_stays(max_age: float) -> None:
    script = NetworkScript(topics={"flights-1": 1, "flights-2": 1}, metadata_max_age=max_age, max_poll_interval=900.0)
    script.do(Subscribe(topics=frozenset(), pattern=FLIGHTS))
    script.join(1)
    sync(script, tp(0, "flights-1"), tp(0, "flights-2"))
    script.do(PartitionsAssigned(generation=1))
    script.take(SubscriptionMatched)
    del script.topics["flights-2"]
    before = script.metadata_responses
    while script.metadata_responses == before:
        beat(script, 0.25)
    script.topics["flights-2"] = 1
    beat(script, 20.0)
    assert (matched(script), script.take(RevocationRequested)) == ([], [])
    script.topics["flights-2"], script.topic_ids = 3, {"flights-2": UUID(int=7)}
    beat(script, max_age + 1.0)
    del script.topics["flights-2"]
    beat(script, max_age + 8.0)
    assert matched(script) == [{"flights-1"}], "it is asked again soon, and then believed"


def beat(script: NetworkScript, seconds: float) -> None:
    """Time passes, and heartbeats are accepted."""
    end = script.now + seconds
    while script.now < end:
        script.pass_time(0.25)
        if "Heartbeat" in script.waits():
            script.response(api.Heartbeat, api.HeartbeatResponse())


def test_the_application_hears_of_the_topics_before_their_partitions() -> None:
    script = member({"flights-1": 1}, tp(0, "flights-1"))
    kinds = [type(event) for event in script.delivered]
    assert kinds.index(SubscriptionMatched) < kinds.index(Assigned)


def test_what_did_not_change_is_not_told_again() -> None:
    script = member({"flights-1": 1}, tp(0, "flights-1"))
    script.take(SubscriptionMatched)
    script.pass_time(35.0)
    assert matched(script) == []
    assert not [each for each in script.waiting if isinstance(each.request, api.JoinGroup)]


def test_a_refresh_is_no_sign_of_life_of_the_application() -> None:
    script = member({"flights-1": 1}, tp(0, "flights-1"), max_poll_interval=25.0, session_timeout=1000.0)
    for number in range(2, 5):
        script.topics[f"flights-{number}"] = 1
        script.pass_time(10.0)
    assert len(script.take(Lost)) == 1


def test_a_leader_knows_that_a_topic_of_another_member_does_not_exist() -> None:
    """Every topic is known: one that the response lacks is missing, and not waited for."""
    script = scripted({"flights-1": 2})
    request = script.requested(api.JoinGroup)
    other = request.protocols[0].metadata.replace(b"flights-1", b"nowhere-1")
    script.response(
        api.JoinGroup,
        api.JoinGroupResponse(
            generation=1,
            protocol="cooperative-sticky",
            leader="me",
            member_id="me",
            members=(
                api.GroupMember(member_id="me", metadata=request.protocols[0].metadata),
                api.GroupMember(member_id="other", metadata=other),
            ),
        ),
    )
    script.pass_time(1.0)
    assert set(script.requested(api.SyncGroup).assignments) == {"me", "other"}


@pytest.mark.parametrize(
    "event",
    [
        Subscribe(topics=frozenset({"other"})),
        Unsubscribe(call=1, deadline=1e9),
        Assign(partitions={tp(0, "other"): 7}),
        Close(call=1, deadline=1e9),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_pattern_ends_with_its_subscription(event: Any) -> None:
    script = scripted({"flights-1": 1, "other": 1})
    script.take(SubscriptionMatched)
    script.topics["flights-2"] = 1
    script.do(event)
    script.pass_time(30.0)
    assert matched(script) == []


def test_another_pattern_replaces_the_first() -> None:
    script = member({"flights-1": 1, "other": 1}, tp(0, "flights-1"))
    script.take(SubscriptionMatched)
    script.do(Subscribe(topics=frozenset(), pattern=re.compile("oth.r")))
    script.pass_time(1.0)
    assert matched(script) == [{"other"}]
    assert len(script.take(RevocationRequested)) == 1
    assert script.joining_with().topics == ("other",)


@pytest.mark.vector(29)
def test_the_partitions_that_a_topic_gains_make_its_leader_join_again() -> None:
    script = scripted({"flights-1": 1})
    script.join(1, leader=True)
    sync(script, tp(0, "flights-1"))
    script.do(PartitionsAssigned(generation=1))
    script.topics["flights-1"] = 3
    script.pass_time(10.5)
    assert script.requested(api.JoinGroup).reason == "the partitions of the group's topics changed"
