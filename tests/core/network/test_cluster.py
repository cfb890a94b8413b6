"""Metadata: who is asked, when again, and what a user hears of it."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from instride._core.events import ErrorRaised
from instride._core.network.actions import CloseConnection, ConnectionKey, Deliver, Log, OpenConnection, Role, Transmit
from instride._core.network.cluster import Cluster, send_to_leader
from instride._core.network.context import Context
from instride._wire import api
from instride.config import ConsumerConfig
from instride.errors import (
    ErrorCode,
    InvalidTopicError,
    NotKafkaError,
    TopicAuthorizationFailedError,
    TransportError,
    UnknownTopicOrPartitionError,
)
from instride.records import TopicPartition

pytestmark = pytest.mark.part

TP = TopicPartition("t", 0)


def broker(node_id: int) -> api.Broker:
    return api.Broker(node_id=node_id, host=f"b{node_id}", port=9092)


def topic(name: str = "t", *leaders: int, error: int = 0) -> api.MetadataTopic:
    partitions = tuple(api.MetadataPartition(partition=p, leader=leader) for p, leader in enumerate(leaders))
    return api.MetadataTopic(name=name, error=error, partitions=partitions)


class World:
    """A `Cluster` whose requests the test responds to."""

    def __init__(self, servers: str = "s0:1", **settings: Any) -> None:
        defaults: dict[str, Any] = {"retry_backoff": 1.0, "retry_backoff_max": 1.0, "reconnect_backoff": 0.001}
        self.config = ConsumerConfig(bootstrap_servers=servers, **{**defaults, **settings})
        self.context = Context(self.config, lambda: 0.5, lambda: 0.0)
        self.revoked = set[TopicPartition]()
        self.cluster = Cluster(self.context, wanted=lambda partition: partition not in self.revoked)
        self.now = 100.0
        self.cluster.follow(frozenset({"t"}))

    def poll(self) -> float:
        self.context.connections.expire(self.now)
        return self.cluster.poll(self.now)

    def refresh(self) -> None:
        """Something is out of date, a while after the last response."""
        self.now += 1.0
        self.cluster.refresh()

    def requested(self) -> ConnectionKey | None:
        """Which connection the request under way uses; its connection opens."""
        for action in self.context.out:
            if isinstance(action, OpenConnection):
                self.context.connections.opened(action.key, self.now)
                return action.key
            if isinstance(action, Transmit):
                return action.key
        return None

    def request(self) -> Transmit:
        self.requested()
        return [each for each in self.context.out if isinstance(each, Transmit)][-1]

    def response(self, response: api.Response) -> None:
        request = self.request()
        self.done()
        self.context.connections.response_received(request.request_id, response, self.now)

    def refuse(self, error: Exception | None = None) -> ConnectionKey:
        """The connection of the request breaks."""
        key = next(each.key for each in self.context.out if isinstance(each, OpenConnection | Transmit))
        self.done()
        self.context.connections.closed(key, error or TransportError("refused"), self.now)
        return key

    def done(self) -> None:
        """What was requested is done; what the user is to hear stays."""
        self.context.out[:] = [each for each in self.context.out if isinstance(each, Deliver)]

    def errors(self) -> list[Exception]:
        self.poll()
        raised = [each.event for each in self.context.out if isinstance(each, Deliver)]
        self.context.out[:] = [each for each in self.context.out if not isinstance(each, Deliver)]
        return [each.error for each in raised if isinstance(each, ErrorRaised)]

    def known(self, *brokers: int, topics: tuple[api.MetadataTopic, ...] | None = None) -> None:
        """A Metadata response arrives."""
        self.poll()
        known = topics if topics is not None else (topic("t", brokers[0]),)
        self.response(api.MetadataResponse(brokers=tuple(map(broker, brokers)), topics=known))


@pytest.mark.requirement("surface/bootstrap")
def test_bootstrap_servers_are_asked_in_turn() -> None:
    world = World("s0:1,s1:1,s2:1")
    requested = []
    for _ in range(4):
        world.poll()
        requested.append(world.refuse().node_id)
        assert world.poll() == pytest.approx(world.now + 1.0), "after a back-off"
        assert world.requested() is None
        world.now += 1.0
    assert requested == [0, 1, 2, 0]


def test_two_requests_that_one_bootstrap_server_lost_skip_no_other() -> None:
    world = World("s0:1,s1:1")
    for _ in range(2):  # metadata and the search for the coordinator wait for the same connection
        world.cluster.no_response(ConnectionKey(Role.BOOTSTRAP, 0))
    assert world.cluster.any_node(world.now)[0] == ConnectionKey(Role.BOOTSTRAP, 1)


def test_once_brokers_are_known_they_are_used_and_the_bootstrap_connection_closes() -> None:
    world = World()
    world.poll()
    key = world.requested()
    assert key == ConnectionKey(Role.BOOTSTRAP, 0)
    world.response(api.MetadataResponse(brokers=(broker(7),), topics=(topic("t", 7),)))
    assert CloseConnection(key=key) in world.context.out
    assert world.cluster.any_node(world.now) == (ConnectionKey(Role.DATA, 7), ("b7", 9092))
    assert world.cluster.leader(TP) == (broker(7), -1)
    assert world.cluster.partition_count("t") == 1


def test_that_the_brokers_are_of_another_cluster_is_told_once() -> None:
    """A name of bootstrap_servers leads elsewhere since: offsets of the one cluster mean nothing in the other."""
    world, told = World(), []
    for cluster_id in ("one", None, "one", "two", "two"):
        world.refresh()
        world.poll()
        known = api.MetadataResponse(brokers=(broker(1),), topics=(topic("t", 1),), cluster_id=cluster_id)
        world.response(known)
        told.append([each.message for each in world.context.out if isinstance(each, Log)])
    line = "the cluster's id was 'one' and is 'two': offsets of the one mean nothing in the other"
    assert told == [[], [], [], [line], []]


def test_that_two_clusters_take_turns_is_told_once_in_a_while() -> None:
    """One name leads to both of them."""
    world, levels = World(), []
    for turn in range(12):
        world.refresh()
        world.poll()
        world.context.now = world.now
        cluster_id = ("one", "two")[turn % 2]
        world.response(api.MetadataResponse(brokers=(broker(1),), topics=(topic("t", 1),), cluster_id=cluster_id))
        levels += [each.level for each in world.context.out if isinstance(each, Log)]
    assert levels == [logging.WARNING] * 2 + [logging.DEBUG] * 9


def test_a_broker_that_did_not_respond_is_left_out_until_the_metadata_is_fresh() -> None:
    world = World()
    world.known(1, 2)
    world.cluster.suspect(1)
    assert world.cluster.any_node(world.now)[0] == ConnectionKey(Role.DATA, 2)
    world.cluster.no_response(ConnectionKey(Role.DATA, 2))
    assert world.cluster.any_node(world.now)[0] == ConnectionKey(Role.BOOTSTRAP, 0)
    world.refresh()
    world.known(1, 2)
    assert world.cluster.any_node(world.now)[0] == ConnectionKey(Role.DATA, 1)


def refused_in_turn(world: World, count: int) -> list[str]:
    """Where the next questions go, each of which breaks."""
    requested = []
    for _ in range(count):
        world.refresh()
        world.poll()
        key = world.refuse()
        requested.append(f"{key.role.value} {key.node_id}")
    return requested


def test_when_neither_known_nor_bootstrap_servers_respond_all_are_tried_again() -> None:
    """The list may name servers that are gone for good: then only the known ones can come back."""
    world = World("s0:1,s1:1", reconnect_backoff=0.001, reconnect_backoff_max=0.001)
    world.known(1, 2)
    once = ["data 1", "data 2", "bootstrap 0", "bootstrap 1"]
    assert refused_in_turn(world, 8) == once * 2
    world.refresh()
    world.poll()
    world.response(api.MetadataResponse(brokers=(broker(1),), topics=(topic("t", 1),)))
    assert world.cluster.leader(TP) == (broker(1), -1)


def test_a_cluster_that_moved_is_found_by_the_bootstrap_servers() -> None:
    world = World("s0:1")
    world.known(1, 2)
    refused_in_turn(world, 2)
    world.refresh()
    world.poll()
    assert world.requested() == ConnectionKey(Role.BOOTSTRAP, 0)
    world.response(api.MetadataResponse(brokers=(broker(7),), topics=(topic("t", 7),)))
    assert world.cluster.brokers.keys() == {7}
    assert world.cluster.leader(TP) == (broker(7), -1)


@pytest.mark.requirement("surface/rediscovery")
def test_a_broker_that_says_so_makes_us_begin_with_the_list() -> None:
    world = World("s0:1,s1:1")
    world.known(1, 2)
    world.refresh()
    world.poll()
    world.response(api.MetadataResponse(brokers=(broker(1),), error=ErrorCode.REBOOTSTRAP_REQUIRED))
    assert world.cluster.brokers == {}
    world.now += 1.5
    world.poll()
    assert world.requested() == ConnectionKey(Role.BOOTSTRAP, 0)
    world.response(api.MetadataResponse(error=ErrorCode.REBOOTSTRAP_REQUIRED))
    world.now += 1.5
    world.poll()
    assert world.requested() == ConnectionKey(Role.BOOTSTRAP, 1), "the next of the list"
    assert world.errors() == []


def test_a_broker_that_knows_no_broker_yet_is_no_cluster() -> None:
    """As in Java: it has just started. What is known stays, and another one is asked."""
    nothing = api.MetadataResponse(brokers=(), topics=(topic("t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),))
    world = World("s0:1,s1:1")
    world.poll()
    assert world.requested() == ConnectionKey(Role.BOOTSTRAP, 0)
    world.response(nothing)
    world.now += 1.0
    world.poll()
    assert world.requested() == ConnectionKey(Role.BOOTSTRAP, 1)
    world.response(api.MetadataResponse(brokers=(broker(1), broker(2)), topics=(topic("t", 1),)))
    world.refresh()
    world.poll()
    assert world.requested() == ConnectionKey(Role.DATA, 1)
    world.response(nothing)
    assert world.cluster.leader(TP) == (broker(1), -1)
    world.now += 5.0
    world.poll()
    assert world.requested() == ConnectionKey(Role.DATA, 2)
    assert world.errors() == []


def test_a_ready_and_idle_connection_is_preferred() -> None:
    world = World()
    world.known(1, 2)
    key = ConnectionKey(Role.DATA, 2)
    world.context.connections.send(key, ("b2", 1), api.Metadata(topics=()), lambda _r, _t: None, world.now)
    world.context.connections.opened(key, world.now)
    assert world.cluster.any_node(world.now)[0] == key, "ready, if busy"


def test_metadata_is_requested_again_after_its_age_and_at_once_for_a_new_topic() -> None:
    world = World(metadata_max_age=60.0)
    world.known(1)
    assert world.poll() == world.now + 60.0
    world.cluster.follow(frozenset({"t", "u"}))
    world.poll()
    request = world.request().request
    assert isinstance(request, api.Metadata)
    assert request.topics == ("t", "u")


def test_many_refreshes_are_one_request() -> None:
    world = World()
    world.known(1)
    for _ in range(5):
        world.refresh()
        world.poll()
    assert len([each for each in world.context.out if isinstance(each, OpenConnection | Transmit)]) == 1


def test_responses_that_help_nobody_are_spaced() -> None:
    """Else who finds no leader in a response would ask again at once, and again."""
    world = World()
    world.known(1)
    world.cluster.refresh()
    assert world.poll() == pytest.approx(world.now + 1.0)
    assert world.requested() is None
    world.now += 1.0
    world.poll()
    assert world.requested() is not None


def test_without_a_topic_of_interest_nothing_is_asked_once_brokers_are_known() -> None:
    world = World()
    world.cluster.follow(frozenset())
    world.known(1, topics=())
    world.refresh()
    assert world.poll() == float("inf")


# --- what the user hears --------------------------------------------------------------------------------------


def test_an_unknown_topic_is_raised_after_two_seconds_and_when_it_vanishes_again() -> None:
    world = World()
    told = []
    for error in [3] * 12 + [0] + [3] * 12:
        missing = topic("t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if error else topic("t", 1)
        world.known(1, topics=(missing,))
        found = world.errors()
        told += [world.now] * len(found)
        for each in found:
            assert isinstance(each, UnknownTopicOrPartitionError)
            assert "'t'" in str(each)
        world.refresh()
    assert told == [102.0, 115.0], "two seconds after it was first missed, each time"


def test_a_topic_that_the_response_leaves_out_is_unknown_too() -> None:
    world = World()
    told = []
    for _ in range(7):
        world.known(1, topics=())
        told += world.errors()
        world.now += 1.0
    assert len(told) == 1
    assert world.cluster.partition_count("t") is None


def test_a_topic_that_may_not_be_read_is_told_at_once_and_once() -> None:
    world = World()
    world.known(1, topics=(topic("t", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED),))
    (error,) = world.errors()
    assert isinstance(error, TopicAuthorizationFailedError)
    world.now += 10
    world.known(1, topics=(topic("t", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED),))
    assert world.errors() == []


def test_another_error_of_a_topic_is_told_with_its_name_and_code() -> None:
    world = World()
    world.known(1, topics=(topic("t", error=ErrorCode.INVALID_TOPIC_EXCEPTION),))
    world.now += 6.0
    world.poll()
    world.response(
        api.MetadataResponse(brokers=(broker(1),), topics=(topic("t", error=ErrorCode.INVALID_TOPIC_EXCEPTION),))
    )
    (error,) = world.errors()
    assert isinstance(error, InvalidTopicError)
    assert "'t'" in str(error)


def test_a_partition_without_a_leader_is_requested_again() -> None:
    world = World()
    world.known(1, topics=(topic("t", -1),))
    assert world.cluster.leader(TP) is None
    assert world.poll() == pytest.approx(world.now + 1.0)


def test_a_partition_that_its_topic_does_not_have_is_told_once() -> None:
    world = World()
    world.known(1)
    missing = TopicPartition("t", 5)
    for _ in range(12):
        world.cluster.miss(missing, world.now)
        world.now += 1.0
    (error,) = world.errors()
    assert "t-5" in str(error)
    world.cluster.miss(TP, world.now)
    assert world.errors() == []


def test_a_cluster_that_was_never_reached_is_told_after_two_seconds() -> None:
    world = World("s0:1,s1:1", request_timeout=10.0)
    told = []
    for _ in range(30):
        world.poll()
        world.refuse(TransportError("connection refused"))
        told += [(world.now, error) for error in world.errors()]
        world.now += 1.0
    assert [at for at, _ in told] == [102.0], "both have refused for two seconds"
    error = told[0][1]
    assert "s0:1: connection refused" in str(error)
    assert "s1:1: connection refused" in str(error)
    assert str(error.__cause__) == "connection refused"


def test_what_is_not_kafka_is_told_at_once() -> None:
    world = World()
    world.poll()
    world.refuse(NotKafkaError("HTTP responds there"))
    (error,) = world.errors()
    assert isinstance(error, NotKafkaError)
    assert "HTTP" in str(error)


def test_once_a_broker_was_reached_an_outage_is_waited_out() -> None:
    world = World(request_timeout=5.0)
    world.known(1)
    world.refresh()
    for _ in range(20):
        world.poll()
        world.refuse()
        world.refresh()
        world.now += 1.5
    assert world.errors() == []


def test_hooks_hear_of_every_update() -> None:
    world = World()
    heard: list[float] = []
    world.cluster.on_update.append(heard.append)
    world.known(1)
    world.refresh()
    world.known(1)
    assert heard == [100.0, 101.0]


def led_by(leader: int, epoch: int) -> api.MetadataTopic:
    partition = api.MetadataPartition(partition=0, leader=leader, leader_epoch=epoch)
    return api.MetadataTopic(name="t", topic_id=UUID(int=1), partitions=(partition,))


def leader_of(world: World) -> int | None:
    found = world.cluster.leader(TP)
    return None if found is None else found[0].node_id


def test_a_leader_that_is_no_broker_is_doubted_after_five_seconds() -> None:
    """Law 4: until then metadata with an older epoch are those of a broker that lags."""
    world = World()
    world.known(1, 2, topics=(led_by(2, 5),))
    world.refresh()
    world.known(1, topics=(led_by(1, 4),))
    world.now += 3.9
    world.refresh()
    world.known(1, topics=(led_by(1, 4),))
    assert leader_of(world) is None
    world.refresh()
    world.known(1, topics=(led_by(1, 4),))
    assert leader_of(world) == 1


@pytest.mark.parametrize(("apart", "believed"), [(30.0, 1), (30.1, 2)])
def test_denials_half_a_minute_apart_are_of_one_time(apart: float, believed: int) -> None:
    """Law 4: a leader that served in between led."""
    world = World(metadata_max_age=60.0)
    world.known(1, 2, topics=(led_by(2, 5),))
    for _ in range(4):
        world.now = world.context.now = world.now + apart
        world.cluster.refused(TP, ErrorCode.NOT_LEADER_OR_FOLLOWER, ConnectionKey(Role.DATA, 2))
    world.refresh()
    world.known(1, 2, topics=(led_by(1, 4),))
    assert leader_of(world) == believed


# --- a topic that is recreated ----------------------------------------------------------------------------------


def identified(number: int) -> api.MetadataTopic:
    return replace(topic("t", 1), topic_id=UUID(int=number))


def named(world: World, *numbers: int) -> list[int]:
    """One response after the other names these ids. Which ones are believed."""
    believed = []
    for number in numbers:
        world.refresh()
        world.known(1, topics=(identified(number),))
        believed.append(world.cluster.topic_id("t").int)
    return believed


@pytest.mark.requirement("surface/topic-ids")
def test_a_broker_that_is_two_recreations_behind_is_not_believed() -> None:
    """Law 6: by the id before the last one, what was read was read again."""
    world = World()
    assert named(world, 1, 2, 3, 1, 2, 3) == [1, 2, 3, 3, 3, 3]
    assert named(world, *[1] * 5) == [3] * 5
    assert named(world, 1, 3, 2) == [1, 1, 1], "it was named for long, and is the present one"


def test_as_many_former_ids_are_remembered_as_a_broker_may_be_behind() -> None:
    """A topic that is recreated again and again, as in a test, takes no memory for each time."""
    world = World()
    named(world, *range(1, 20))
    assert named(world, 11) == [19]
    assert named(world, 10) == [10]


# --- a connection that leads to the wrong machine ---------------------------------------------------------------


DENIED = ErrorCode.NOT_LEADER_OR_FOLLOWER
DATA, TAIL = ConnectionKey(Role.DATA, 1), ConnectionKey(Role.TAIL, 1)


def listed(*errors: int) -> api.Response:
    """Of partitions 0, 1 and so on."""
    return api.ListOffsetsResponse(offsets={("t", p): api.ListedOffset(error=each) for p, each in enumerate(errors)})


def validated(*errors: int) -> api.Response:
    return api.OffsetForLeaderEpochResponse(ends={("t", p): api.EpochEnd(error=each) for p, each in enumerate(errors)})


def leading(**settings: Any) -> World:
    world = World(**settings)
    world.known(1, topics=(topic("t", 1, 1),))
    return world


def asked(world: World, node_id: int) -> int:
    """A request is on its way to the leader. Returns its id."""
    send_to_leader(
        world.context, world.cluster, node_id, api.ListOffsets(timestamps={TP: -1}), lambda *_: None, world.now
    )
    request = world.request()
    world.done()
    return request.request_id


def closes(
    world: World, response: api.Response, *, after: float = 0.0, serves_fetch_on: ConnectionKey | None = None
) -> bool:
    """Whether what the leader says to a request has its connection closed, once the metadata are fresh."""
    world.now += after
    world.context.now = world.now
    world.context.connections.response_received(asked(world, 1), response, world.now)
    if serves_fetch_on is not None:
        world.cluster.fetched(serves_fetch_on, {TP}, ())
    world.refresh()
    world.known(1, topics=(topic("t", 1, 1),))
    closed = CloseConnection(key=DATA) in world.context.out
    world.done()
    return closed


@pytest.mark.parametrize("told", [listed, validated])
def test_what_a_leader_denies_of_offsets_counts_whoever_asked(told: Callable[..., api.Response]) -> None:
    world = leading()
    assert not closes(world, told(DENIED))
    assert closes(world, told(DENIED, DENIED), after=6.0)


@pytest.mark.parametrize("told", [listed, validated])
def test_what_a_leader_tells_of_one_offset_speaks_for_its_connection(told: Callable[..., api.Response]) -> None:
    world = leading()
    assert not closes(world, told(DENIED))
    assert not closes(world, told(DENIED, 0), after=6.0)
    assert not closes(world, told(DENIED), after=6.0)


def closings(world: World, seconds: float, *, serves_fetch_on: ConnectionKey | None = TAIL) -> list[float]:
    """When the connection to a leader that denies each second was closed; for each, after how long."""
    at, until = [world.now], world.now + seconds
    while world.now < until:
        if closes(world, listed(DENIED), serves_fetch_on=serves_fetch_on):
            at.append(world.now)
    return [after - before for before, after in itertools.pairwise(at)]


@pytest.mark.parametrize("serves_fetch_on", [DATA, TAIL])
def test_a_leader_that_denies_on_each_connection_is_connected_to_ever_less_often(
    serves_fetch_on: ConnectionKey,
) -> None:
    world = leading()
    apart = closings(world, 300.0, serves_fetch_on=serves_fetch_on)
    assert apart == [7.0, 12.0, 22.0, 42.0, 62.0, 62.0, 62.0]
    assert not closes(world, listed(0))
    assert closings(world, 10.0) == [7.0], "it served"


@pytest.mark.parametrize("elsewhere", [None, ConnectionKey(Role.TAIL, 2)])
def test_a_broker_that_serves_nothing_at_all_is_connected_to_as_often_as_at_first(
    elsewhere: ConnectionKey | None,
) -> None:
    """All its connections led to another machine; each new one may be the first that leads to it again."""
    world = leading()
    assert closings(world, 40.0) == [7.0, 12.0], "one of them led there"
    assert not closes(world, listed(0))
    assert closings(world, 70.0, serves_fetch_on=elsewhere) == [7.0] * 10


def forgotten(world: World) -> None:
    world.cluster.start_anew(DATA, world.now)


def elsewhere(world: World) -> None:
    world.refresh()
    world.poll()
    moved = replace(broker(1), host="elsewhere")
    world.response(api.MetadataResponse(brokers=(moved,), topics=(topic("t", 1, 1),)))


@pytest.mark.parametrize("left", [forgotten, elsewhere])
def test_another_address_of_a_broker_has_the_haste_of_the_first(left: Callable[[World], None]) -> None:
    world = leading()
    assert closings(world, 20.0) == [7.0, 12.0]
    left(world)
    world.refresh()
    world.known(1, topics=(topic("t", 1, 1),))
    assert closings(world, 10.0) == [7.0]


def test_denials_of_rare_look_ups_add_up() -> None:
    """Each has a short time-out. What is served in between would be told."""
    world = leading()
    assert not closes(world, listed(DENIED))
    assert closes(world, listed(DENIED), after=600.0)


def test_a_follower_that_serves_fetches_does_not_serve_what_a_leader_does() -> None:
    """Its machine is what the connection leads to."""
    world = leading()
    assert not closes(world, listed(DENIED), serves_fetch_on=DATA)
    assert closes(world, listed(DENIED), after=6.0, serves_fetch_on=DATA)


def test_a_leader_that_tells_an_offset_speaks_for_fetches_too() -> None:
    """No other machine would."""
    world = leading()
    world.context.now = world.now
    for response in (listed(0), listed(0, 0)):
        world.cluster.refused(TP, DENIED, DATA, fetched=True)
        assert not closes(world, response, after=6.0)


OTHER = TopicPartition("t", 1)


def fetches_denied(world: World, seconds: float, *denied: TopicPartition, served: TopicPartition | None) -> list[float]:
    """Each second these are denied in a response that serves this one. When the connection was closed for that."""
    closed, until = [], world.now + seconds
    while world.now < until:
        world.context.connections.response_received(asked(world, 1), listed(), world.now)  # so that it is open
        world.context.now = world.now
        for partition in denied:
            world.cluster.refused(partition, DENIED, DATA, fetched=True)
        if served is not None:
            world.cluster.fetched(DATA, {*denied, served}, {*denied})
        world.refresh()
        world.known(1, topics=(topic("t", 1, 1),))
        if CloseConnection(key=DATA) in world.context.out:
            closed.append(world.now)
        world.done()
    return closed


def test_what_is_fetched_of_others_does_not_speak_for_what_is_denied() -> None:
    """The machine there may be a follower of those. It may be the leader, too: so there is less haste."""
    world = leading()
    assert fetches_denied(world, 55.0, TP, served=OTHER) == []
    assert len(fetches_denied(world, 10.0, TP, served=OTHER)) == 1


def test_a_leader_that_denies_one_partition_is_connected_to_once_in_a_minute() -> None:
    """Each connection that is closed cuts off what is served on it."""
    world = leading()
    closed = fetches_denied(world, 300.0, TP, served=OTHER)
    assert len(closed) == 4
    assert all(after - before > 60.0 for before, after in itertools.pairwise(closed))


def test_what_is_denied_of_one_partition_after_the_other_is_of_no_connection() -> None:
    """As where one leader after the other moves away: each is denied for a moment."""
    world, closed = leading(), list[float]()
    for _ in range(40):
        closed += fetches_denied(world, 3.0, TP, served=OTHER) + fetches_denied(world, 3.0, OTHER, served=TP)
    assert closed == []


def test_there_is_haste_again_where_nothing_else_is_served_any_more() -> None:
    """To close it cuts off nothing."""
    world = leading()
    assert fetches_denied(world, 20.0, TP, served=OTHER) == []
    assert len(fetches_denied(world, 8.0, TP, served=None)) == 1


def passes(world: World, seconds: float, *leaders: int) -> bool:
    """Nothing is requested for so long. Whether the metadata that come then close the connection."""
    world.now += seconds
    world.refresh()
    world.known(1, 2, topics=(topic("t", *(leaders or (1, 1))),))
    closed = CloseConnection(key=DATA) in world.context.out
    world.done()
    return closed


@pytest.mark.parametrize("quiet", [8.0, 300.0])
def test_denials_that_have_ended_close_no_connection_later(quiet: float) -> None:
    """All is at its end, or paused, and the connection served well until then."""
    world = leading()
    assert fetches_denied(world, 10.0, TP, served=OTHER) == []
    assert not passes(world, quiet)


@pytest.mark.parametrize(("quiet", "closed"), [(20.0, True), (40.0, False)])
def test_denials_that_have_ended_are_forgotten_after_half_a_minute(quiet: float, closed: bool) -> None:
    world = leading()
    for after in (0.0, 8.0):
        world.now = world.context.now = world.now + after
        world.cluster.refused(TP, DENIED, DATA, fetched=True)
    assert passes(world, quiet) is closed


def test_a_broker_that_serves_the_others_slowly_is_given_as_much_time() -> None:
    """A response takes it 8 s, and each other one denies one of the two. The metadata come each second."""
    world, closed = leading(), 0
    for second in range(55):
        world.context.now = world.now
        if second % 16 == 0:
            world.cluster.refused(TP, DENIED, DATA, fetched=True)
        if second % 8 == 0:
            world.cluster.fetched(DATA, {TP, OTHER} if second % 16 == 0 else {OTHER}, {TP})
        closed += passes(world, 0.0)
    assert closed == 0


def served_on_the_other_connection(world: World) -> None:
    for _ in range(40):
        world.now = world.context.now = world.now + 1.0
        world.cluster.fetched(TAIL, {TP, OTHER}, ())


def paused(world: World) -> None:
    assert fetches_denied(world, 40.0, served=OTHER) == []


def moved_and_back(world: World) -> None:
    assert not passes(world, 0.0, 2, 1)


def revoked_and_back(world: World) -> None:
    world.revoked.add(TP)
    assert not passes(world, 0.0)
    world.revoked.clear()


@pytest.mark.parametrize("ended", [served_on_the_other_connection, paused, moved_and_back, revoked_and_back])
def test_denials_before_a_partition_was_elsewhere_do_not_count_with_those_after(ended: Callable[[World], None]) -> None:
    world = leading()
    assert fetches_denied(world, 50.0, TP, served=OTHER) == []
    ended(world)
    assert fetches_denied(world, 50.0, TP, served=OTHER) == []


def test_what_look_ups_were_denied_leaves_fetches_their_haste() -> None:
    """A broker restarts, an hour later, and the new connection leads to another machine."""
    world = leading()
    assert len(closings(world, 300.0)) == 7
    world.context.connections.closed(DATA, TransportError("restart"), world.now)
    world.now += 3600.0
    assert len(fetches_denied(world, 8.0, TP, served=None)) == 1


def test_elections_that_look_ups_met_an_hour_apart_close_no_connection() -> None:
    """Each moved another partition. The broker serves fetches of the third one all the time."""
    world = World()
    world.known(1, 2, topics=(topic("t", 1, 1, 1),))
    for denied, leaders in (((DENIED,), (2, 1, 1)), ((0, DENIED), (2, 2, 1))):
        world.context.now = world.now
        told = {("t", p): api.ListedOffset(error=code) for p, code in enumerate(denied) if code}
        world.context.connections.response_received(asked(world, 1), api.ListOffsetsResponse(offsets=told), world.now)
        assert not passes(world, 0.0, *leaders)
        assert not passes(world, 3600.0, *leaders)


def test_who_serves_next_what_it_denied_has_the_haste_of_the_first() -> None:
    world = leading()
    for _ in range(2):
        assert fetches_denied(world, 6.0, TP, served=None) == []
        world.cluster.fetched(TAIL, {OTHER}, ())
        assert len(fetches_denied(world, 1.0, TP, served=None)) == 1
        world.cluster.fetched(DATA, {TP}, ())


def test_what_is_sent_on_the_next_connection_outlives_the_one_that_denied() -> None:
    """Both kinds of request are denied on it."""
    world, ended = leading(), list[object]()

    def again(result: object, now: float) -> None:
        ended.append(result)
        send_to_leader(world.context, world.cluster, 1, api.ListOffsets(timestamps={TP: -1}), again, now)

    for after in (0.0, 6.0):
        world.now = world.context.now = world.now + after
        world.cluster.refused(TP, DENIED, DATA, fetched=True)
        world.cluster.refused(TP, DENIED, DATA)
    again(None, world.now)
    world.refresh()
    world.known(1, topics=(topic("t", 1, 1),))
    assert len(ended) == 2, "at the call, and as its connection was closed"


def test_what_was_denied_of_a_topic_that_nobody_followed_since_is_forgotten() -> None:
    """A look-up may name any: what it is denied must not be kept for ever."""
    world = World(metadata_max_age=20.0)
    world.known(1, 2, topics=(led_by(2, 5),))
    world.context.now = world.now
    world.cluster.refused(TP, DENIED, ConnectionKey(Role.DATA, 2))
    world.cluster.follow(frozenset({"u"}))
    world.known(1, 2, topics=(topic("u", 1),))
    world.cluster.follow(frozenset({"t"}))
    world.refresh()
    world.known(1, 2, topics=(led_by(2, 5),))
    world.now = world.context.now = world.now + 21.0
    world.cluster.refused(TP, DENIED, ConnectionKey(Role.DATA, 2))
    world.known(1, 2, topics=(led_by(1, 4),))
    assert leader_of(world) == 2


def test_denials_on_a_connection_that_has_ended_say_nothing_of_the_next_one() -> None:
    world = leading()
    assert not closes(world, listed(DENIED))
    world.context.connections.closed(DATA, TransportError("gone"), world.now)
    assert not closes(world, listed(DENIED), after=6.0, serves_fetch_on=TAIL)
    assert closes(world, listed(DENIED), after=6.0)
    world.now += 6.0
    world.context.connections.close(DATA, TransportError("gone"), world.now)
    assert closings(world, 20.0) == [12.0], "but another one that denies is less urgent all the same"


def test_a_denial_is_of_the_connection_on_which_it_came() -> None:
    """The leader has moved meanwhile, and the one of old is right."""
    world = leading()
    world.refresh()
    world.known(1, 2, topics=(topic("t", 1, 2),))
    late = [asked(world, 1), asked(world, 1)]
    world.context.connections.response_received(asked(world, 2), listed(0, 0), world.now)
    for each in late:
        world.refresh()
        world.known(1, 2, topics=(topic("t", 2, 2),))
        world.now = world.context.now = world.now + 6.0
        world.context.connections.response_received(each, listed(DENIED), world.now)
    world.refresh()
    world.known(1, 2, topics=(topic("t", 2, 2),))
    assert not any(isinstance(each, CloseConnection) for each in world.context.out)
