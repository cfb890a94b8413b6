"""What is seen of connections that fail, of brokers that are gone, and of topics that are not there."""

from __future__ import annotations

import logging

import pytest
from network_script import NetworkScript, tp

from instride._core.events import (
    Assign,
    CallCompleted,
    Close,
    ErrorRaised,
    FetchCommitted,
    Fetched,
    FetchOffsets,
    PartitionFailed,
    Polled,
)
from instride._core.network.actions import Action, CloseConnection, ConnectionKey, OpenConnection, Role
from instride._wire import api
from instride.errors import (
    ErrorCode,
    FrameTooLargeError,
    InvalidTopicError,
    NotKafkaError,
    TransportError,
    UnknownTopicOrPartitionError,
)

REBOOTSTRAP_REQUIRED = 129
DATA, TAIL = ConnectionKey(Role.DATA, 1), ConnectionKey(Role.TAIL, 1)
COORDINATOR = ConnectionKey(Role.COORDINATOR, 1)


class Silent(NetworkScript):
    """While `silent`, no connection opens and none is refused."""

    silent = True

    def _act(self, action: Action) -> None:
        if self.silent and isinstance(action, OpenConnection):
            self.attempts.append((action.host, action.port))
        else:
            super()._act(action)


def told(script: NetworkScript) -> list[Exception]:
    return [each.error for each in script.take(ErrorRaised)]


def assigned(script: NetworkScript, *partitions: int, topic: str = "t") -> NetworkScript:
    script.do(Assign(partitions={tp(p, topic): p + 1 for p in partitions}))
    return script


def test_that_a_name_leads_to_another_cluster_is_a_line_of_the_log() -> None:
    script = assigned(NetworkScript(group_id=None, metadata_max_age=10.0), 0)
    script.hold_metadata = True
    for cluster_id in ("one", "two"):
        script.pass_time(11.0)
        topic = api.MetadataTopic(name="t", partitions=(api.MetadataPartition(partition=0, leader=1),))
        brokers = (api.Broker(node_id=1, host="b", port=1),)
        script.response(api.Metadata, api.MetadataResponse(brokers=brokers, topics=(topic,), cluster_id=cluster_id))
    line = "the cluster's id was 'one' and is 'two': offsets of the one mean nothing in the other"
    assert script.levels[script.logs.index(line)] == logging.WARNING


# --- no broker ------------------------------------------------------------------------------------------------


def test_what_is_not_kafka_is_told_at_once_and_then_seldom() -> None:
    script = NetworkScript(bootstrap_servers="s0:1,s1:1")
    script.reachable, script.refusal = False, NotKafkaError("an HTTP server")
    assigned(script, 0)
    script.pass_time(5.0)
    (error,) = told(script)
    assert isinstance(error, NotKafkaError)
    assert "s0:1: an HTTP server" in str(error)
    assert "s1:1" in str(error)
    script.pass_time(60.0)
    assert told(script) == [], "nobody polls"
    script.do(Polled(at=script.now))
    script.pass_time(60.0)
    assert len(told(script)) == 1


def test_that_nobody_responds_is_told_after_two_seconds_and_again() -> None:
    script = NetworkScript(bootstrap_servers="s0:1,s1:1")
    script.reachable = False
    assigned(script, 0)
    script.pass_time(1.9)
    assert told(script) == []
    script.pass_time(1.5)
    (error,) = told(script)
    assert type(error) is TransportError
    assert any("after 2 s: no broker of bootstrap_servers responds" in line for line in script.logs)
    script.do(Polled(at=script.now))
    script.pass_time(5.5)
    assert len(told(script)) == 1
    script.reachable = True
    script.pass_time(5.0)
    assert "Fetch" in script.waits(), "and it goes on as soon as somebody responds"
    script.do(Polled(at=script.now))
    script.pass_time(100.0)
    assert told(script) == [], "it has passed"


def test_that_a_server_swallows_packets_is_logged_after_two_seconds() -> None:
    script = Silent()
    assigned(script, 0)
    script.pass_time(1.9)
    assert not any("after 2 s" in line for line in script.logs)
    script.pass_time(0.2)
    assert any("after 2 s: no broker of bootstrap_servers responds" in line for line in script.logs)
    assert told(script) == [], "an attempt is under way: nothing has failed yet"
    script.pass_time(script.config.connection_setup_timeout)
    assert len(told(script)) == 1


def test_a_broker_that_stalls_is_told_with_the_setting_and_the_connections_progress() -> None:
    script = Silent(bootstrap_servers="s0:1")
    assigned(script, 0)
    opening = ConnectionKey(Role.BOOTSTRAP, 0)
    script.machine.opening(opening, "SASL authentication has not ended")
    script.pass_time(script.config.connection_setup_timeout)
    (said,) = told(script)
    assert "s0:1 within connection_setup_timeout: SASL authentication has not ended" in str(said)
    script.machine.opening(opening, "of a connection that was given up")
    script.pass_time(2 * script.config.connection_setup_timeout)
    assert not any("given up" in line for line in script.logs), "each attempt begins anew"
    script.machine.opening(DATA, "of a connection that nobody knows")


def test_what_nobody_waits_for_any_more_is_not_logged_at_the_end() -> None:
    script = Silent(bootstrap_servers="s0:1")
    assigned(script, 0)
    script.pass_time(1.0)
    script.do(Close(call=9, deadline=script.now + 3.0))
    script.pass_time(3.0)
    assert script.stopped
    assert not any("no broker of bootstrap_servers responds" in line for line in script.logs)


def test_a_server_that_swallows_packets_costs_a_set_up_time_out_then_comes_another() -> None:
    script = Silent(bootstrap_servers="s0:1,s1:1")
    assigned(script, 0)
    script.pass_time(script.config.connection_setup_timeout - 0.1)
    assert script.attempts == [("s0", 1)]
    script.pass_time(1.0)
    assert script.attempts == [("s0", 1), ("s1", 1)]


@pytest.mark.parametrize("known", [True, False])
def test_a_broker_that_wants_us_to_begin_anew_is_believed(known: bool) -> None:
    """KIP-1102, from a broker that is known or from a bootstrap server."""
    script = NetworkScript(bootstrap_servers="s0:1,s1:1")
    script.hold_metadata = not known
    assigned(script, 0)
    if known:
        script.hold_metadata = True
        script.response(
            api.Fetch,
            api.FetchResponse(partitions={tp(0): api.FetchedPartition(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)}),
        )
        script.pass_time(2.0)
    script.attempts.clear()
    script.response(api.Metadata, api.MetadataResponse(error=REBOOTSTRAP_REQUIRED))
    script.hold_metadata = False
    script.pass_time(3.0)
    assert script.attempts[0][0] == ("s0" if known else "s1")
    assert "Fetch" in script.waits()
    assert told(script) == []


def test_what_is_read_to_its_end_waits_while_the_cluster_is_discovered_anew() -> None:
    """No response moves its partitions off a broker that is gone, where a fetch is throttled."""
    script = NetworkScript(bootstrap_servers="s0:1", metadata_max_age=5.0)
    assigned(script, 0)
    end = api.FetchedPartition(high_watermark=0, last_stable_offset=0, next_offset=0)
    script.response(api.Fetch, api.FetchResponse(session_id=7, partitions={tp(0): end}, throttle_time=6.5))
    script.hold_metadata = True
    script.pass_time(6.0)
    script.response(api.Metadata, api.MetadataResponse(error=REBOOTSTRAP_REQUIRED))
    script.pass_time(1.0)
    assert "Fetch" not in script.waits(), "no broker is known"
    script.response(api.Metadata, script.metadata(script.requested(api.Metadata)))
    script.pass_time(3.0)
    assert "Fetch" in script.waits()
    assert told(script) == []


def test_a_bootstrap_server_that_wants_us_to_begin_anew_is_dialled_again() -> None:
    """KIP-1102: its name may lead to another cluster by now. On the same connection it would say the same for ever."""
    script = NetworkScript(bootstrap_servers="s0:1")
    script.hold_metadata = True
    assigned(script, 0)
    for _ in range(2):
        script.attempts.clear()
        script.response(api.Metadata, api.MetadataResponse(error=REBOOTSTRAP_REQUIRED))
        script.pass_time(2.0)
        assert script.attempts == [("s0", 1)]


def test_who_begins_anew_leaves_every_broker_and_looks_for_its_coordinator_again() -> None:
    """KIP-1102: heartbeats and commits would go to the old cluster, and records come from the new one."""
    script = NetworkScript(bootstrap_servers="s0:1")
    script.member_of(1, 0)
    script.hold_metadata = True
    script.response(
        api.Fetch,
        api.FetchResponse(partitions={tp(0): api.FetchedPartition(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)}),
    )
    script.pass_time(2.0)
    assert "Heartbeat" not in script.waits(), "its end would say that the coordinator is gone"
    script.response(api.Metadata, api.MetadataResponse(error=REBOOTSTRAP_REQUIRED))
    assert script.open == set()
    script.commit({0: 1})
    script.hold_metadata, script.coordinator, script.nodes, script.leaders = False, 7, (7,), {0: 7}
    script.pass_time(script.config.heartbeat_interval)
    assert {each.key.node_id for each in script.waiting} == {7}
    assert {"Heartbeat", "OffsetCommit", "Fetch"} <= set(script.waits())
    assert told(script) == []


# --- no topic -------------------------------------------------------------------------------------------------


def test_a_partition_that_its_topic_lacks_is_told_after_two_seconds() -> None:
    script = assigned(NetworkScript(), 0, 99)
    script.pass_time(1.9)
    assert told(script) == []
    script.pass_time(60.0)
    (error,) = told(script)
    assert isinstance(error, UnknownTopicOrPartitionError)
    assert "t-99 does not exist: its topic has 4 partitions" in str(error)


def test_partitions_that_do_not_exist_are_told_together_and_no_more_when_they_do() -> None:
    script = assigned(NetworkScript(), *range(1000))
    script.pass_time(5.0)
    (error,) = told(script)
    named = ", ".join(f"t-{p}" for p in range(4, 24))
    assert f"996 partitions do not exist: {named} and 976 more (of t-4 its topic has 4 partitions)" in str(error)
    script.topics["t"] = 1000
    script.do(Polled(at=script.now))
    script.pass_time(30.0)
    assert told(script) == []


def test_what_is_not_wanted_any_more_is_not_told_again() -> None:
    script = assigned(NetworkScript(), 0, 99)
    script.pass_time(5.0)
    assert len(told(script)) == 1
    assigned(script, 0)
    script.fresh_metadata()
    script.do(Polled(at=script.now))
    script.pass_time(60.0)
    assert told(script) == []


def test_a_topic_that_only_a_call_asks_for_is_told_by_that_call() -> None:
    script = assigned(NetworkScript(), 0)
    script.do(FetchOffsets(call=1, deadline=script.now + 10.0, timestamps={tp(0, "typo"): 5}))
    script.pass_time(20.0)
    (response,) = script.take(CallCompleted)
    assert "its topic does not exist" in str(response.error)
    assert told(script) == []


def test_a_missing_topic_is_told_again_and_again_until_it_is_there_or_not_wanted() -> None:
    script = NetworkScript(topics={"t": 4})
    script.subscribe("typo", "t")
    at = []
    start = script.now
    for _ in range(400):
        script.do(Polled(at=script.now))
        script.pass_time(0.5)
        at += [round(script.now - start) for _ in told(script)]
    assert at[:5] == [2, 7, 17, 37, 77]
    assert at[5:] == [137, 197]
    script.subscribe("t")
    script.pass_time(70.0)
    assert told(script) == []


@pytest.mark.parametrize(("code", "kind"), [(3, UnknownTopicOrPartitionError), (17, InvalidTopicError)])
def test_a_topic_that_is_missing_for_a_while_is_told_and_read_when_it_is_there(
    code: int, kind: type[Exception]
) -> None:
    script = NetworkScript()
    script.topic_errors = {"t": code}
    assigned(script, 0)
    script.pass_time(1.9)
    assert told(script) == []
    script.pass_time(60.0)
    (error,) = told(script)
    assert isinstance(error, kind)
    assert "'t'" in str(error)
    script.topic_errors = {}
    script.pass_time(3.0)
    assert "Fetch" in script.waits()


# --- what the shell says --------------------------------------------------------------------------------------


def test_word_of_a_connection_that_is_not_awaited_changes_nothing() -> None:
    script = assigned(NetworkScript(), 0)
    before = (list(script.waiting), set(script.open))
    for key in (ConnectionKey(Role.DATA, 77), TAIL, DATA):
        script.machine.opened(key, script.now)
    script.machine.closed(ConnectionKey(Role.DATA, 77), TransportError("never heard of it"), script.now)
    script.machine.response_received(10_000, api.HeartbeatResponse(), script.now)
    script.settle()
    assert (script.waiting, script.open) == before


def test_a_connection_breaks_once() -> None:
    script = assigned(NetworkScript(reconnect_backoff=5.0, reconnect_backoff_max=5.0), 0)
    key = next(each.key for each in script.waiting if isinstance(each.request, api.Fetch))
    script.attempts.clear()
    for _ in range(2):
        script.machine.closed(key, TransportError("gone"), script.now)
    script.settle()
    assert script.machine.meter.closed.number == 2, "the bootstrap connection, and this one"


def test_a_response_over_the_bound_is_told_to_the_request_that_is_first_in_line() -> None:
    """The others on the connection only lose it, and are made again."""
    script = assigned(NetworkScript(), 0)
    fetch = next(each for each in script.waiting if isinstance(each.request, api.Fetch))
    script.waiting.remove(fetch)
    too_large = FrameTooLargeError("a frame of 3 GiB")
    for _ in range(2):
        script.machine.closed(fetch.key, too_large, script.now)
        script.settle()
        script.pass_time(5.0)
    failed = [each.error for each in script.take(PartitionFailed)]
    assert failed
    assert "3 GiB" in str(failed[0])
    assert script.take(Fetched) == []


def test_the_end_of_a_close_ends_all_that_is_late_with_it() -> None:
    script = NetworkScript(reconnect_backoff=50.0, reconnect_backoff_max=50.0)
    script.member_of(1, 0)
    script.machine.closed(COORDINATOR, TransportError("gone"), script.now)
    script.settle()
    script.do(Close(call=1, deadline=script.now + 5.0, leave=True))
    script.do(FetchCommitted(call=2, deadline=script.now + 60.0, partitions=(tp(0),)))
    script.now += script.config.request_timeout + 1.0  # no turn of the thread meanwhile
    script.settle()
    assert sorted(each.call for each in script.take(CallCompleted)) == [1, 2]
    assert script.stopped


def test_actions_name_their_connections() -> None:
    script = NetworkScript()
    script.machine.handle(Assign(partitions={tp(0): 1}), script.now)
    (opened,) = (each for each in script.machine.tick(script.now) if isinstance(each, OpenConnection))
    assert str(opened.key) == "bootstrap connection to node 0"
    assert CloseConnection(key=opened.key).abort is False
