"""A commit of a topic that is gone: it ends, and holds up no revoke (KAFKA-16224)."""

from __future__ import annotations

from uuid import UUID

import pytest
from network_script import NetworkScript, tp

from instride._core.events import (
    Assign,
    CallCompleted,
    Commit,
    CommitsSettled,
    Lost,
    PartitionsAssigned,
    PartlyCommitted,
    RevocationRequested,
    Revoked,
    SetPosition,
    Subscribe,
)
from instride._wire import api
from instride.commits import CommitEntry
from instride.errors import (
    BrokerResponseError,
    CommitFailedError,
    StaleCommitError,
    TransportError,
    UnknownTopicOrPartitionError,
)

UNKNOWN_TOPIC = 3
UNKNOWN_MEMBER_ID = 25
UNKNOWN_TOPIC_ID = 100
OLD, NEW = UUID(int=1), UUID(int=2)


@pytest.fixture
def script() -> NetworkScript:
    made = NetworkScript()
    made.member_of(1, 0)
    return made


def outcome(script: NetworkScript, call: int) -> Exception | None:
    (response,) = (each for each in script.take(CallCompleted) if each.call == call)
    return response.committed[tp(0)]


def refused_for(script: NetworkScript, seconds: float, code: int = UNKNOWN_TOPIC) -> None:
    """The coordinator says that there is no such topic, whenever it is asked to commit."""
    end = script.now + seconds
    while script.now < end:
        if "OffsetCommit" in script.waits():
            script.committed(code)
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


def parts(script: NetworkScript) -> list[tuple[int, set[int], dict[int, Exception | None]]]:
    """Of the calls that were partly committed: which, what was committed, and what became of each partition."""
    told = [each for event in script.take(PartlyCommitted) for each in event.calls]
    return [
        (each.call, {tp.partition for tp in each.result.committed}, {tp[1]: e for tp, e in each.committed.items()})
        for each in told
    ]


@pytest.mark.rule("17")
def test_a_commit_that_waits_for_a_topic_keeps_no_other_partition_waiting() -> None:
    """Its call ends late. That the other one was committed is told at once, in one event, and again with the end."""
    script = NetworkScript()
    script.member_of(1, 0, 1)
    dropped = {tp(2): CommitFailedError("it is completing")}
    calls = [script.commit({0: 5, 1: 7}, dropped=dropped), script.commit({0: 5, 1: 7})]
    script.response(api.OffsetCommit, api.OffsetCommitResponse(errors={tp(0): UNKNOWN_TOPIC, tp(1): 0}))
    assert parts(script) == [(call, {1}, {1: None}) for call in calls]
    assert script.take(CallCompleted) == []
    script.pass_time(2.0)
    assert parts(script) == []
    assert script.committed() == {0: 5}
    ended = script.take(CallCompleted)
    assert [(each.call, each.committed) for each in ended] == [
        (calls[0], {**dropped, tp(0): None, tp(1): None}),
        (calls[1], {tp(0): None, tp(1): None}),
    ]
    assert parts(script) == [], "they have ended"


@pytest.mark.rule("completing")
@pytest.mark.parametrize(("listener", "told"), [(False, Revoked), (True, CommitsSettled)])
def test_what_became_of_a_partition_is_told_before_its_hand_over(
    listener: bool, told: type[CommitsSettled | Revoked]
) -> None:
    """Its commit waits for another one. Else telemetry would say that its records are repeated."""
    script = NetworkScript()
    script.member_of(1, 0, 1, listener=listener)
    script.do(Subscribe(topics=frozenset({"u"}), listener=listener))
    script.commit({0: 5, 1: 7})
    script.complete(1)
    assert script.take(told) == []
    script.response(api.OffsetCommit, api.OffsetCommitResponse(errors={tp(0): UNKNOWN_TOPIC, tp(1): 0}))
    order = [type(each) for each in script.delivered if isinstance(each, PartlyCommitted | told)]
    assert order == [PartlyCommitted, told]


def test_what_is_settled_without_a_response_of_the_coordinators_is_told_at_once_too() -> None:
    script = NetworkScript()
    script.member_of(1, 0, 1)
    now = CommitEntry(offset=5, epoch=script.epoch(0), seek_number=0)
    stale = CommitEntry(offset=7, epoch=99, seek_number=0)
    script.do(Commit(call=1, deadline=script.now + 60.0, entries={tp(0): now, tp(1): stale}))
    ((call, committed, told),) = parts(script)
    assert (call, committed, [*told]) == (1, set(), [1])
    assert isinstance(told[1], StaleCommitError)


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


def test_the_time_of_an_earlier_assignment_does_not_count(script: NetworkScript) -> None:
    """A coordinator that has just started did not know the topic, minutes ago; now one stale response says the same."""
    script.commit({0: 5})
    script.committed(UNKNOWN_TOPIC)
    script.heartbeat(UNKNOWN_MEMBER_ID)
    script.committed(UNKNOWN_TOPIC)
    script.rebalance(2, 0)
    script.do(PartitionsAssigned(generation=2))
    refused_for(script, 40.0)
    script.take(CallCompleted)
    script.topic_errors = {"t": UNKNOWN_TOPIC}
    script.fresh_metadata()
    script.commit({0: 9})
    refused_for(script, 3.0)
    assert script.take(CallCompleted) == []
    script.topic_errors = {}
    script.pass_time(2.0)
    assert script.committed() == {0: 9}


@pytest.fixture
def known_by_id() -> NetworkScript:
    made = NetworkScript()
    made.topic_ids = {"t": OLD}
    made.member_of(1, 0)
    return made


def test_a_commit_of_a_topic_that_is_gone_names_the_id_that_it_had(known_by_id: NetworkScript) -> None:
    """By name, a topic that is made again meanwhile would take it: its first records would be read by nobody."""
    partitions = known_by_id.topics.pop("t")
    known_by_id.fresh_metadata()
    known_by_id.commit({0: 5})
    assert known_by_id.requested(api.OffsetCommit).topic_ids == {"t": OLD}
    known_by_id.topics["t"], known_by_id.topic_ids = partitions, {"t": NEW}
    known_by_id.fresh_metadata()
    known_by_id.committed(UNKNOWN_TOPIC_ID)
    known_by_id.pass_time(30.0)
    assert "OffsetCommit" not in known_by_id.waits()


def test_a_commit_that_another_assign_left_behind_names_the_id_that_its_topic_had() -> None:
    script = NetworkScript(topics={"t": 1, "u": 1})
    script.topic_ids = {"t": OLD}
    script.do(Assign(partitions={tp(0): 1}))
    script.commit({0: 5}, epoch=1)
    script.do(Assign(partitions={tp(0, "u"): 2}))
    script.topic_ids = {"t": NEW}
    script.response(api.OffsetCommit, TransportError("gone"))
    script.fresh_metadata()
    assert script.requested(api.OffsetCommit).topic_ids == {"t": OLD}


def test_a_commit_of_an_id_that_is_gone_ends(known_by_id: NetworkScript) -> None:
    del known_by_id.topics["t"]
    call = known_by_id.commit({0: 5})
    refused_for(known_by_id, 8.0, UNKNOWN_TOPIC_ID)
    assert isinstance(outcome(known_by_id, call), UnknownTopicOrPartitionError)


def test_what_another_assign_left_behind_goes_into_no_topic_that_was_made_anew() -> None:
    """Of one topic a request names one id, or its name alone: what waits for another partition would take it along."""
    script = NetworkScript(topics={"t": 2})
    script.topic_ids = {"t": OLD}
    script.do(Assign(partitions={tp(0): 1, tp(1): 2}))
    left = script.commit({0: 5}, epoch=1)
    script.do(Assign(partitions={tp(1): 2}))
    script.topic_ids = {"t": NEW}
    script.fresh_metadata()
    script.do(SetPosition(partition=tp(1), epoch=2, seek_number=1, fetch_number=1, offset=0, divergences=1))
    script.commit({1: 3}, epoch=2, seek_number=1)
    script.response(api.OffsetCommit, TransportError("gone"))
    script.pass_time(2.0)
    request = script.requested(api.OffsetCommit)
    assert (set(request.offsets), request.topic_ids) == ({tp(1)}, {"t": NEW})
    assert isinstance(outcome(script, left), StaleCommitError)


def test_what_was_left_behind_of_two_topics_of_a_name_is_committed_apart() -> None:
    """The offset of the old topic's partition was committed under the new one's id, and its owner skipped records."""
    script = NetworkScript(topics={"t": 2, "u": 1})
    script.topic_ids = {"t": OLD}
    script.do(Assign(partitions={tp(0): 1}))
    script.commit({0: 5}, epoch=1)
    script.do(Assign(partitions={tp(0, "u"): 2}))
    script.topic_ids = {"t": NEW}
    script.do(Assign(partitions={tp(1): 3}))
    script.fresh_metadata()
    script.do(SetPosition(partition=tp(1), epoch=3, seek_number=1, fetch_number=1, offset=0))
    script.commit({1: 3}, epoch=3, seek_number=1)
    script.do(Assign(partitions={tp(0, "u"): 4}))
    script.response(api.OffsetCommit, TransportError("gone"))
    seen = []
    for _ in range(4):
        script.pass_time(2.0)
        if "OffsetCommit" in script.waits():
            request = script.requested(api.OffsetCommit)
            seen.append((set(request.offsets), request.topic_ids))
            script.committed()
    assert seen == [({tp(1)}, {"t": NEW}), ({tp(0)}, {"t": OLD})]


def start(script: NetworkScript, epoch: int) -> int:
    """Where partition 0 began, after a reset."""
    entry = CommitEntry(offset=50, epoch=epoch, seek_number=0)
    script.do(Commit(call=1, deadline=script.now + 60, entries={tp(0): entry}, starts=True))
    return 1


@pytest.mark.rule("18")
@pytest.mark.parametrize("lost", [False, True])
def test_what_the_coordinator_says_of_a_start_gives_its_commit_no_more_time(lost: bool) -> None:
    """Asked by name, it says that the group has no offset, though it takes no commit of the topic.

    lost: it leaves one of those requests without a response.
    """
    script = NetworkScript()
    script.committed_offset = -1
    script.member_of(1, 0)
    script.do(Subscribe(topics=frozenset({"u"})))
    del script.topics["t"]
    call = start(script, script.epoch(0))
    script.complete(0)
    if lost:
        refused_for(script, 2.0)
        script.committed_offset = None
        if "OffsetCommit" in script.waits():
            script.committed(UNKNOWN_TOPIC)
        script.pass_time(1.0)
        script.committed_offset = -1
        script.response(api.OffsetFetch, TransportError("gone"))
        refused_for(script, 3.2)
    else:
        refused_for(script, 6.2)
    assert isinstance(outcome(script, call), UnknownTopicOrPartitionError)
    assert len(script.take(Revoked)) == 1


@pytest.mark.rule("18")
@pytest.mark.parametrize("code", [UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID])
def test_a_start_that_an_empty_assign_left_behind_ends(code: int) -> None:
    """No metadata are asked for any more, so they never say that its topic is gone."""
    script = NetworkScript()
    script.topic_ids = {"t": OLD}
    script.committed_offset = -1
    script.do(Assign(partitions={tp(0): 1}))
    script.committed_offset = None
    call = start(script, 1)
    script.do(Assign(partitions={}))
    asked = unknown_for(script, 4.75, code)
    assert script.take(CallCompleted) == [], "a broker that has just started may not know its topics yet"
    unknown_for(script, 1.2, code)
    assert isinstance(outcome(script, call), BrokerResponseError)
    named = [each.topic_ids for each in asked]
    assert named[0] == {"t": OLD}
    if code == UNKNOWN_TOPIC_ID:
        assert named[1] == {}, "by its name, since the id may be that of one that was made anew"


def unknown_for(script: NetworkScript, seconds: float, code: int) -> list[api.OffsetFetch]:
    """The coordinator does not know the topic, whenever it is asked what the group has of it. Returns the requests."""
    end, asked = script.now + seconds, []
    while script.now < end:
        if "OffsetFetch" in script.waits():
            asked.append(script.requested(api.OffsetFetch))
            found: dict[tuple[str, int], api.CommittedOffset] = {tp(0): api.CommittedOffset(error=code)}
            script.response(api.OffsetFetch, api.OffsetFetchResponse(offsets=found))
        script.pass_time(0.25)
    return asked
