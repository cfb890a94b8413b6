"""Pending requests of the application: each ends once, is retried while that can help, and ends in time."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest
from network_script import NetworkScript, tp

from instride._core.events import EARLIEST, CallCompleted, FetchCommitted, FetchMetadata, FetchOffsets
from instride._core.network.actions import Action, OpenConnection
from instride._wire import api
from instride.errors import (
    AuthenticationError,
    BrokerResponseError,
    ErrorCode,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    TransportError,
)
from instride.records import Node, OffsetAndMetadata, OffsetAndTimestamp, PartitionInfo, TopicPartition


@pytest.fixture
def script() -> NetworkScript:
    made = NetworkScript()
    made.committed_offset = None
    return made


def ask_committed(script: NetworkScript, *partitions: int, timeout: float = 10.0) -> None:
    requested = tuple(tp(p) for p in partitions or (0,))
    script.do(FetchCommitted(call=1, deadline=script.now + timeout, partitions=requested))
    script.pass_time(0.5)


def ask_offsets(script: NetworkScript, *partitions: TopicPartition, timeout: float = 10.0) -> None:
    script.do(FetchOffsets(call=2, deadline=script.now + timeout, timestamps=dict.fromkeys(partitions, EARLIEST)))
    script.pass_time(0.5)


def offsets_of(response: CallCompleted) -> dict[TopicPartition, int]:
    return {tp: each.offset for tp, each in response.result.items()}


def ask_topics(script: NetworkScript, *names: str, internal: bool = True, timeout: float = 10.0) -> None:
    """Without names: all topics. CallCompleted by the test, once the brokers are known."""
    script.do(FetchMetadata(call=3, deadline=script.now + timeout, topics=names or None, internal=internal))
    script.pass_time(0.5)


def the_response(script: NetworkScript) -> CallCompleted:
    (response,) = script.take(CallCompleted)
    return response


# --- committed offsets --------------------------------------------------------------------------------------


def test_committed_offsets_come_with_their_metadata_and_none_for_none(script: NetworkScript) -> None:
    ask_committed(script, 0, 1)
    offsets: dict[tuple[str, int], api.CommittedOffset] = {
        tp(0): api.CommittedOffset(offset=5, leader_epoch=2, metadata="by me"),
        tp(1): api.CommittedOffset(offset=-1),
    }
    script.response(api.OffsetFetch, api.OffsetFetchResponse(offsets=offsets))
    response = the_response(script)
    assert response.call == 1
    assert response.result == {tp(0): OffsetAndMetadata(offset=5, metadata="by me", leader_epoch=2), tp(1): None}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ],
)
def test_a_passing_error_is_asked_again(script: NetworkScript, code: int) -> None:
    ask_committed(script)
    left_out: dict[tuple[str, int], api.CommittedOffset] = {
        tp(0): api.CommittedOffset(error=ErrorCode.UNKNOWN_SERVER_ERROR)
    }
    script.response(api.OffsetFetch, api.OffsetFetchResponse(error=code, offsets=left_out))
    assert script.take(CallCompleted) == []
    script.pass_time(3.0)
    found: dict[tuple[str, int], api.CommittedOffset] = {tp(0): api.CommittedOffset(offset=5)}
    script.response(api.OffsetFetch, api.OffsetFetchResponse(offsets=found))
    assert the_response(script).error is None


def test_a_broken_connection_is_asked_again(script: NetworkScript) -> None:
    ask_committed(script)
    script.response(api.OffsetFetch, TransportError("gone"))
    script.pass_time(3.0)
    script.requested(api.OffsetFetch)


def test_a_final_error_has_its_response_at_once(script: NetworkScript) -> None:
    ask_committed(script)
    script.response(
        api.OffsetFetch,
        api.OffsetFetchResponse(offsets={tp(0): api.CommittedOffset(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)}),
    )
    assert isinstance(the_response(script).error, TopicAuthorizationFailedError)


def test_a_final_error_ends_it_whatever_else_the_coordinator_refuses(script: NetworkScript) -> None:
    ask_committed(script, 0, 1)
    offsets: dict[tuple[str, int], api.CommittedOffset] = {
        tp(0): api.CommittedOffset(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        tp(1): api.CommittedOffset(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    }
    script.response(api.OffsetFetch, api.OffsetFetchResponse(offsets=offsets))
    assert isinstance(the_response(script).error, TopicAuthorizationFailedError)


# --- offsets by time ----------------------------------------------------------------------------------------


def test_offsets_come_from_the_leaders(script: NetworkScript) -> None:
    ask_offsets(script, tp(0), tp(1))
    assert script.requested(api.ListOffsets).timestamps == {tp(0): EARLIEST, tp(1): EARLIEST}
    listed: dict[tuple[str, int], api.ListedOffset] = {
        tp(0): api.ListedOffset(offset=3),
        tp(1): api.ListedOffset(offset=4),
    }
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets=listed))
    response = the_response(script)
    assert (response.call, offsets_of(response)) == (2, {tp(0): 3, tp(1): 4})


def test_only_what_is_missing_is_asked_again(script: NetworkScript) -> None:
    ask_offsets(script, tp(0), tp(1))
    listed: dict[tuple[str, int], api.ListedOffset] = {
        tp(0): api.ListedOffset(offset=3),
        tp(1): api.ListedOffset(error=ErrorCode.NOT_LEADER_OR_FOLLOWER),
    }
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets=listed))
    script.pass_time(3.0)
    assert script.requested(api.ListOffsets).timestamps == {tp(1): EARLIEST}
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(1): api.ListedOffset(offset=4)}))
    assert offsets_of(the_response(script)) == {tp(0): 3, tp(1): 4}


def test_a_response_backs_off_once_however_many_partitions_it_refuses(script: NetworkScript) -> None:
    requested = [tp(p) for p in range(4)]
    ask_offsets(script, *requested)
    refused: dict[tuple[str, int], api.ListedOffset]
    refused = dict.fromkeys(requested, api.ListedOffset(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets=refused))
    script.pass_time(2 * script.config.retry_backoff + 0.01)  # the first failure was that no leader was known yet
    assert len(script.requested(api.ListOffsets).timestamps) == 4


def test_one_final_error_ends_it_whatever_else_is_refused(script: NetworkScript) -> None:
    ask_offsets(script, tp(0), tp(1))
    listed: dict[tuple[str, int], api.ListedOffset] = {
        tp(0): api.ListedOffset(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        tp(1): api.ListedOffset(error=ErrorCode.NOT_LEADER_OR_FOLLOWER),
    }
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets=listed))
    assert isinstance(the_response(script).error, TopicAuthorizationFailedError)


def test_one_final_error_ends_it_once(script: NetworkScript) -> None:
    ask_offsets(script, tp(0), tp(1))
    listed: dict[tuple[str, int], api.ListedOffset] = {
        tp(0): api.ListedOffset(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        tp(1): api.ListedOffset(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    }
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets=listed))
    assert isinstance(the_response(script).error, TopicAuthorizationFailedError)


def test_a_leader_that_does_not_respond_is_asked_again(script: NetworkScript) -> None:
    ask_offsets(script, tp(0))
    script.response(api.ListOffsets, TransportError("gone"))
    script.pass_time(3.0)
    script.requested(api.ListOffsets)


@pytest.mark.parametrize(
    ("lacking", "named"),
    [([3], "t-3"), (range(1, 24), ", ".join(f"t-{p}" for p in range(1, 21)) + " and 3 more")],
    ids=["one", "many"],
)
def test_the_deadline_names_what_has_no_offset_where_others_have_one(lacking: Sequence[int], named: str) -> None:
    """One leader responds, and the other one never does."""
    script = NetworkScript(topics={"t": 24})
    script.nodes, script.leaders = (1, 2), dict.fromkeys(lacking, 2)
    ask_offsets(script, *map(tp, range(24)))
    told = (each.request for each in script.waiting if each.key.node_id == 1)
    (request,) = (each for each in told if isinstance(each, api.ListOffsets))
    found = dict.fromkeys(request.timestamps, api.ListedOffset(offset=3))
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets=found))
    script.pass_time(10.0)
    error = the_response(script).error
    assert isinstance(error, KafkaTimeoutError)
    of = f"{len(lacking)} of 24 partitions"
    assert str(error) == f"no response within the timeout for {of}: {named}; last obstacle: none"


def test_a_look_up_that_is_denied_for_long_goes_on_on_another_connection(script: NetworkScript) -> None:
    """Its name led to another machine when it was opened, and nothing else is requested on it."""
    ask_offsets(script, tp(0), timeout=30.0)
    script.attempts.clear()
    denied = api.ListedOffset(offset=-1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    while not script.attempts:
        if "ListOffsets" in script.waits():
            script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): denied}))
        script.pass_time(0.5)
        assert script.take(CallCompleted) == []
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(offset=7)}))
    assert offsets_of(the_response(script)) == {tp(0): 7}


def test_a_look_up_that_a_follower_denies_goes_on_though_it_serves_fetches() -> None:
    """The leader's name led to its machine when the connection was opened (KIP-392)."""
    script = NetworkScript()
    script.member_of(1, 0)
    ask_offsets(script, tp(0), timeout=30.0)
    script.attempts.clear()
    lags = api.FetchedPartition(next_offset=0, high_watermark=9, last_stable_offset=9)
    denied = api.ListedOffset(offset=-1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    while not script.attempts:
        if "ListOffsets" in script.waits():
            script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): denied}))
        if "Fetch" in script.waits():
            script.response(api.Fetch, api.FetchResponse(partitions={tp(0): lags}))
        if "Heartbeat" in script.waits():
            script.response(api.Heartbeat, api.HeartbeatResponse())
        script.pass_time(0.5)
        assert script.take(CallCompleted) == [], "it never ends"
    script.pass_time(0.5)
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(offset=7)}))
    assert offsets_of(the_response(script)) == {tp(0): 7}


def test_a_found_offset_comes_with_its_time_and_epoch(script: NetworkScript) -> None:
    script.do(FetchOffsets(call=2, deadline=script.now + 10, timestamps={tp(0): 1_700_000_000_000}))
    script.pass_time(0.5)
    assert script.requested(api.ListOffsets).timestamps == {tp(0): 1_700_000_000_000}
    listed = api.ListedOffset(offset=3, timestamp=1_700_000_000_005, leader_epoch=7)
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): listed}))
    found = OffsetAndTimestamp(offset=3, timestamp=1_700_000_000_005, leader_epoch=7)
    assert the_response(script).result == {tp(0): found}


def test_a_topic_that_may_not_be_read_ends_the_lookup_at_once_and_no_later_one(
    script: NetworkScript,
) -> None:
    script.topic_errors["t"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    ask_offsets(script, tp(0))
    assert isinstance(the_response(script).error, TopicAuthorizationFailedError)
    del script.topic_errors["t"]
    ask_offsets(script, tp(0))
    assert script.take(CallCompleted) == [], "what is known is of before the question"
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(offset=3)}))
    assert offsets_of(the_response(script)) == {tp(0): 3}


@pytest.mark.parametrize(
    ("wanted", "obstacle"),
    [
        (TopicPartition("nowhere", 0), "nowhere-0 is not there: its topic does not exist"),
        (TopicPartition("t", 9), "t-9 is not there: its topic has 4 partitions"),
        (TopicPartition("t", 2), "no leader of t-2 is known"),
    ],
)
def test_the_deadline_names_what_is_not_there(script: NetworkScript, wanted: TopicPartition, obstacle: str) -> None:
    script.leaders[2] = -1
    ask_offsets(script, tp(0), wanted, timeout=5.0)
    script.pass_time(1.0)
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(offset=3)}))
    script.pass_time(5.0)
    error = the_response(script).error
    assert isinstance(error, KafkaTimeoutError)
    what = f"no response within the timeout for 1 of 2 partitions: {wanted}"
    assert str(error) == f"{what}; last obstacle: {obstacle}"


# --- topics -------------------------------------------------------------------------------------------------


def test_the_partitions_of_a_topic_come_with_their_leaders(script: NetworkScript) -> None:
    script.topics = {"t": 2, "other": 1}
    ask_topics(script, "t")
    leader = Node(node_id=1, host="b", port=1)
    infos = tuple(PartitionInfo(topic="t", partition=number, leader=leader) for number in (0, 1))
    response = the_response(script)
    assert (response.call, response.result) == (3, {"t": infos})


@pytest.mark.requirement("surface/topics")
def test_the_topics_id_is_told_where_the_broker_has_one(script: NetworkScript) -> None:
    script.topics, script.topic_ids = {"t": 1, "old": 1}, {"t": UUID(int=7)}
    ask_topics(script, "t", "old")
    result = the_response(script).result
    assert {topic: infos[0].topic_id for topic, infos in result.items()} == {"t": UUID(int=7), "old": None}


def test_a_topic_that_does_not_exist_is_left_out_and_not_created(script: NetworkScript) -> None:
    script.pass_time(0.5)
    script.hold_metadata = True
    ask_topics(script, "nowhere")
    request = script.requested(api.Metadata)
    assert request == api.Metadata(topics=("nowhere",), allow_auto_topic_creation=False)
    script.response(api.Metadata, script.metadata(request))
    assert the_response(script).result == {}


def test_a_broker_that_knows_no_broker_yet_is_asked_again(script: NetworkScript) -> None:
    script.pass_time(0.5)
    script.hold_metadata = True
    ask_topics(script, "t")
    script.response(api.Metadata, api.MetadataResponse(brokers=(), topics=()))
    assert script.take(CallCompleted) == []
    script.pass_time(2.0)
    script.response(api.Metadata, script.metadata(api.Metadata(topics=("t",))))
    assert set(the_response(script).result) == {"t"}


def test_all_topics_leave_internal_ones_out_unless_requested(script: NetworkScript) -> None:
    script.topics = {"t": 1, "__consumer_offsets": 1}
    for internal, expected in ((False, {"t"}), (True, {"t", "__consumer_offsets"})):
        ask_topics(script, internal=internal)
        assert set(the_response(script).result) == expected


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION])
def test_a_topic_that_may_not_be_described_is_an_error(script: NetworkScript, code: int) -> None:
    script.topic_errors["t"] = code
    ask_topics(script, "t")
    error = the_response(script).error
    assert isinstance(error, BrokerResponseError)
    assert error.code == code
    assert "'t'" in str(error)


def test_a_topic_whose_leaders_are_not_known_yet_is_asked_again(script: NetworkScript) -> None:
    script.topic_errors["t"] = ErrorCode.LEADER_NOT_AVAILABLE
    ask_topics(script, "t")
    assert script.take(CallCompleted) == []
    del script.topic_errors["t"]
    script.pass_time(3.0)
    assert set(the_response(script).result) == {"t"}


def test_a_broker_that_breaks_off_is_asked_again(script: NetworkScript) -> None:
    script.pass_time(0.5)
    script.hold_metadata = True
    ask_topics(script, "t")
    first = script.waiting[0].key
    script.response(api.Metadata, TransportError("gone"))
    script.pass_time(1.0)
    assert script.waiting[0].key != first, "another broker, or a bootstrap server where there is none"
    script.response(api.Metadata, TransportError("gone"))
    script.hold_metadata = False
    script.pass_time(3.0)
    assert set(the_response(script).result) == {"t"}


def test_a_broker_that_asks_for_another_bootstrap_has_the_cluster_discovered_anew(script: NetworkScript) -> None:
    script.nodes = (1, 2)
    script.pass_time(0.5)
    script.hold_metadata = True
    ask_topics(script, "t", timeout=30.0)
    script.attempts.clear()
    script.response(api.Metadata, api.MetadataResponse(error=ErrorCode.REBOOTSTRAP_REQUIRED))
    assert script.take(CallCompleted) == []
    script.hold_metadata = False
    script.pass_time(3.0)
    assert script.attempts[0] == ("test", 9092), "and no other broker that was known"
    assert set(the_response(script).result) == {"t"}


def test_topics_are_waited_for_until_the_deadline(script: NetworkScript) -> None:
    script.reachable = False
    ask_topics(script, timeout=5.0)
    script.pass_time(6.0)
    error = the_response(script).error
    assert isinstance(error, KafkaTimeoutError)
    assert "refused" in str(error)


def test_refused_credentials_end_a_request_about_topics_at_once(script: NetworkScript) -> None:
    script.reachable = False
    script.refusal = AuthenticationError("who are you")
    ask_topics(script, timeout=60.0)
    script.pass_time(3.0)
    assert isinstance(the_response(script).error, AuthenticationError)


# --- the deadline -------------------------------------------------------------------------------------------


@pytest.mark.requirement("threading/4")
@pytest.mark.rule("T")
def test_a_request_that_gets_no_response_ends_at_its_deadline(script: NetworkScript) -> None:
    ask_committed(script, timeout=10.0)
    script.pass_time(9.4)
    assert script.take(CallCompleted) == []
    script.pass_time(0.2)
    assert isinstance(the_response(script).error, KafkaTimeoutError)
    found: dict[tuple[str, int], api.CommittedOffset] = {tp(0): api.CommittedOffset(offset=5)}
    script.response(api.OffsetFetch, api.OffsetFetchResponse(offsets=found))
    assert script.take(CallCompleted) == [], "once"


def test_the_deadline_names_the_last_obstacle_of_a_response(script: NetworkScript) -> None:
    ask_committed(script, timeout=5.0)
    script.response(api.OffsetFetch, api.OffsetFetchResponse(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    script.pass_time(6.0)
    error = the_response(script).error
    assert isinstance(error, KafkaTimeoutError)
    assert "CoordinatorLoadInProgressError" in str(error)
    assert type(error.__cause__).__name__ == "CoordinatorLoadInProgressError"


def test_the_deadline_names_a_cluster_that_was_never_reached(script: NetworkScript) -> None:
    script.reachable = False
    ask_committed(script, timeout=5.0)
    script.pass_time(6.0)
    error = the_response(script).error
    assert isinstance(error, KafkaTimeoutError)
    assert "refused" in str(error)


def test_the_deadline_of_offsets_too_names_a_cluster_that_was_never_reached(script: NetworkScript) -> None:
    script.reachable = False
    ask_offsets(script, tp(0), timeout=5.0)
    script.pass_time(6.0)
    assert "refused" in str(the_response(script).error)


def test_the_deadline_names_a_topic_without_leader(script: NetworkScript) -> None:
    ask_offsets(script, tp(0, "nowhere"), timeout=5.0)
    script.pass_time(6.0)
    error = the_response(script).error
    assert isinstance(error, KafkaTimeoutError)
    assert "nowhere-0" in str(error)


def test_lookups_do_not_wait_for_each_other(script: NetworkScript) -> None:
    ask_committed(script)
    ask_offsets(script, tp(1))
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(1): api.ListedOffset(offset=4)}))
    assert the_response(script).call == 2


def test_where_the_network_swallows_everything_a_request_says_that_nobody_responds() -> None:
    class Silent(NetworkScript):
        """No connection opens, and none is refused."""

        def _act(self, action: Action) -> None:
            if not isinstance(action, OpenConnection):
                super()._act(action)

    script = Silent()
    script.do(FetchOffsets(call=2, deadline=script.now + 5.0, timestamps={tp(0): EARLIEST}))
    script.pass_time(5.1)
    error = the_response(script).error
    assert isinstance(error, KafkaTimeoutError)
    assert isinstance(error.__cause__, TransportError)
    assert "no broker of bootstrap_servers responds (no attempt has ended yet; check the addresses" in str(error)
