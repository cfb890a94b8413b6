"""Every API in every version that it shares with us, spoken with a real broker over a plain socket."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar
from uuid import UUID

import pytest
from wire_broker import greeting

from instride._wire import api
from instride._wire.connection import Connection
from instride._wire.consumer_protocol import (
    Assignment,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from instride._wire.message_codecs import codec_of
from instride.errors import ErrorCode, FrameTooLargeError, NotKafkaError
from instride.records import ConsumerRecord, TopicPartition
from instride.testing import LocalKafka

pytestmark = pytest.mark.kafka

A = TypeVar("A", bound=api.Response)

DEADLINE = 60.0


class Client:
    """One connection and one request at a time.

    pin: make the connection believe that the broker speaks just this version of every API.
    """

    def __init__(self, address: str, *, pin: int | None = None, max_frame_bytes: int = 1 << 26) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=DEADLINE)
        self._ids = itertools.count(1)
        self.connection = Connection(client_id="wire-test", max_frame_bytes=max_frame_bytes)
        if pin is None:
            self._greet()
        else:
            self.connection.handshake()
            self.connection.receive_data(greeting(ranges=dict.fromkeys(range(100), (pin, pin))))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _greet(self) -> None:
        while not self.connection.ready:
            self._socket.sendall(self.connection.handshake())
            self._receive()
            if self.connection.failure is not None:
                raise self.connection.failure

    def _receive(self) -> list[Any]:
        size = self._socket.recv_into(self.connection.get_buffer())
        if not size:
            raise self.connection.end_of_stream()
        return self.connection.buffer_updated(size)

    def call(self, request: api.Request, kind: type[A]) -> A:
        request_id = next(self._ids)
        self._socket.sendall(self.connection.send(request_id, request))
        received: list[Any] = []
        while not received:
            received = self._receive()
            if self.connection.failure is not None:
                raise self.connection.failure
        assert received[0].request_id == request_id
        assert isinstance(received[0].response, kind)
        return received[0].response


def until(call: Callable[[], A], done: Callable[[A], bool]) -> A:
    """Asks again until the broker has settled."""
    end = time.monotonic() + DEADLINE
    while True:
        response = call()
        if done(response):
            return response
        assert time.monotonic() < end, f"still {response}"


@pytest.fixture
def client(kafka: LocalKafka) -> Iterator[Client]:
    with Client(kafka.bootstrap_servers) as one:
        yield one


def coordinated(client: Client, group: str) -> None:
    """Waits until the group's coordinator responds (the first group of a broker makes the offsets topic)."""
    request = api.FindCoordinator(group_id=group)
    until(lambda: client.call(request, api.FindCoordinatorResponse), lambda response: response.error == 0)
    fetch = api.OffsetFetch(group_id=group, partitions=())
    until(lambda: client.call(fetch, api.OffsetFetchResponse), lambda response: response.error == 0)


def shared(client: Client, kind: type[api.Request]) -> range:
    """The versions of an API that the broker and we have in common."""
    codec = codec_of(kind)
    lowest, highest = client.connection.versions[codec.api_key]
    return range(max(lowest, codec.lowest), min(highest, codec.highest) + 1)


def topic_id_of(client: Client, topic: str) -> UUID:
    response = client.call(api.Metadata(topics=(topic,)), api.MetadataResponse)
    return response.topics[0].topic_id


def test_api_versions(kafka: LocalKafka, client: Client) -> None:
    versions = client.connection.versions
    for kind in api.RESPONSES:
        assert shared(client, kind), kind
    for version in shared(client, api.ApiVersions):
        with Client(kafka.bootstrap_servers, pin=version) as pinned:
            assert pinned.call(api.ApiVersions(), api.ApiVersionsResponse).versions.keys() == versions.keys()


def test_metadata(kafka: LocalKafka, client: Client, kafka_topic: Callable[..., str]) -> None:
    topic = kafka_topic(3)
    for version in shared(client, api.Metadata):
        if version < 4:
            continue  # these would create the topic
        with Client(kafka.bootstrap_servers, pin=version) as pinned:
            response = pinned.call(api.Metadata(topics=(topic, "no-such-topic")), api.MetadataResponse)
            (broker,) = response.brokers
            assert f"{broker.host}:{broker.port}" == kafka.address()
            found = {each.name: each for each in response.topics}
            assert found["no-such-topic"].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert [each.partition for each in found[topic].partitions] == [0, 1, 2]
            assert {each.leader for each in found[topic].partitions} == {broker.node_id}
            assert {each.replicas for each in found[topic].partitions} == {(broker.node_id,)}
            assert (found[topic].topic_id != api.NO_TOPIC_ID) == (version >= 10)
            everything = pinned.call(api.Metadata(topics=None), api.MetadataResponse)
            assert topic in {each.name for each in everything.topics}
            assert pinned.call(api.Metadata(topics=()), api.MetadataResponse).topics == ()


def test_find_coordinator(kafka: LocalKafka, client: Client) -> None:
    coordinated(client, "wire-find")
    for version in shared(client, api.FindCoordinator):
        with Client(kafka.bootstrap_servers, pin=version) as pinned:
            response = pinned.call(api.FindCoordinator(group_id="wire-find"), api.FindCoordinatorResponse)
            assert response.error == 0
            assert f"{response.host}:{response.port}" == kafka.address()


def test_list_offsets(kafka: LocalKafka, client: Client, kafka_topic: Callable[..., str]) -> None:
    topic = kafka_topic(2)
    for version in shared(client, api.ListOffsets):
        with Client(kafka.bootstrap_servers, pin=version) as pinned:
            request = api.ListOffsets(
                timestamps={(topic, 0): -1, (topic, 1): -2, (topic, 7): -1}, read_committed=version >= 2
            )
            response = pinned.call(request, api.ListOffsetsResponse)
            assert response.offsets[topic, 0].error == response.offsets[topic, 1].error == 0
            assert response.offsets[topic, 0].offset == response.offsets[topic, 1].offset == 0
            assert response.offsets[topic, 7].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_where_an_epoch_ends(kafka: LocalKafka, client: Client, kafka_topic: Callable[..., str]) -> None:
    topic = kafka_topic(1)
    for version in shared(client, api.OffsetForLeaderEpoch):
        with Client(kafka.bootstrap_servers, pin=version) as pinned:
            request = api.OffsetForLeaderEpoch(
                epochs={(topic, 0): 0, (topic, 7): 0}, leader_epochs={(topic, 0): 0, (topic, 7): 0}
            )
            response = pinned.call(request, api.OffsetForLeaderEpochResponse)
            assert response.ends[topic, 0] == api.EpochEnd(leader_epoch=0, end_offset=0)
            assert response.ends[topic, 7].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            fenced = api.OffsetForLeaderEpoch(epochs={(topic, 0): 9}, leader_epochs={(topic, 0): 9})
            assert (
                pinned.call(fenced, api.OffsetForLeaderEpochResponse).ends[topic, 0].error
                == ErrorCode.UNKNOWN_LEADER_EPOCH
            )
            newer = api.OffsetForLeaderEpoch(epochs={(topic, 0): 9}, leader_epochs={(topic, 0): 0})
            assert pinned.call(newer, api.OffsetForLeaderEpochResponse).ends[topic, 0] == api.EpochEnd()


def test_offsets_are_committed_and_fetched(kafka: LocalKafka, client: Client, kafka_topic: Callable[..., str]) -> None:
    topic, group = kafka_topic(2), "wire-offsets"
    coordinated(client, group)
    ids = {topic: topic_id_of(client, topic)}
    for version in shared(client, api.OffsetCommit):
        commit = api.OffsetCommit(
            group_id=group,
            generation=-1,
            member_id="",
            offsets={(topic, 1): api.OffsetToCommit(offset=version, leader_epoch=0, metadata=f"v{version}")},
            topic_ids=ids,
        )
        with Client(kafka.bootstrap_servers, pin=version) as pinned:
            assert pinned.call(commit, api.OffsetCommitResponse).errors == {(topic, 1): 0}
        fetch = api.OffsetFetch(group_id=group, partitions=((topic, 0), (topic, 1)), topic_ids=ids)
        response = client.call(fetch, api.OffsetFetchResponse)
        assert response.error == 0
        assert response.offsets[topic, 0] == api.CommittedOffset()
        assert response.offsets[topic, 1] == api.CommittedOffset(
            offset=version, metadata=f"v{version}", leader_epoch=0 if version >= 6 else -1
        )
    for version in shared(client, api.OffsetFetch):
        with Client(kafka.bootstrap_servers, pin=version) as pinned:
            response = pinned.call(fetch, api.OffsetFetchResponse)
            assert response.offsets[topic, 0].offset == -1
            assert response.offsets[topic, 1].offset == shared(client, api.OffsetCommit)[-1]


def test_fetch(kafka: LocalKafka, client: Client, kafka_topic: Callable[..., str]) -> None:
    topic = kafka_topic(1)
    produce(kafka, topic, [b"x" * 100_000, b"y", b"z"])
    topic_id = topic_id_of(client, topic)
    for version in shared(client, api.Fetch):
        request = api.Fetch(
            partitions=(api.FetchPartition(topic=topic, partition=0, offset=1, topic_id=topic_id),),
            max_wait=5.0,
            min_bytes=1,
            max_bytes=1 << 20,
        )
        with Client(kafka.bootstrap_servers, pin=version) as pinned:
            response = pinned.call(request, api.FetchResponse)
            fetched = response.partitions[topic, 0]
            assert (response.error, fetched.error, fetched.high_watermark) == (0, 0, 3)
            assert fetched.undecoded is not None
            values: list[ConsumerRecord] = []
            piece = None
            while not fetched.undecoded.done:
                piece = fetched.undecoded.decode(1 << 20, 1 << 20, alone=True)
                assert piece is not None
                values += [] if piece.chunk is None else piece.chunk.records(epoch=1, seek_number=0)
            assert piece is not None
            assert (piece.next_offset, piece.corrupt) == (3, None)
            assert [record.value for record in values] == [b"y", b"z"]


def produce(kafka: LocalKafka, topic: str, values: list[bytes]) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 100})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(DEADLINE) == 0


def test_a_group_of_one(kafka: LocalKafka, client: Client, kafka_topic: Callable[..., str]) -> None:
    topic = kafka_topic(2)
    coordinated(client, "wire-group-0")
    for version in shared(client, api.JoinGroup):
        with Client(kafka.bootstrap_servers, pin=version) as join:
            lead_alone(client, join, f"wire-group-{version}", topic)


def lead_alone(client: Client, join: Client, group: str, topic: str) -> None:
    """Joins in the pinned version, and speaks the rest of the group's requests in the highest."""
    coordinated(client, group)
    subscription = Subscription(topics=(topic,), userdata=b"")
    joined = joined_group(join, group, write_subscription(subscription))
    assert joined.leader == joined.member_id
    (member,) = joined.members
    assert read_subscription(member.metadata) == subscription
    assignment = Assignment(partitions=(TopicPartition(topic, 0), TopicPartition(topic, 1)))
    sync = api.SyncGroup(
        group_id=group,
        generation=joined.generation,
        member_id=joined.member_id,
        protocol="range",
        assignments={joined.member_id: write_assignment(assignment)},
    )
    synced = client.call(sync, api.SyncGroupResponse)
    assert synced.error == 0
    assert read_assignment(synced.assignment) == assignment
    beat = api.Heartbeat(group_id=group, generation=joined.generation, member_id=joined.member_id)
    assert client.call(beat, api.HeartbeatResponse).error == 0
    leave = api.LeaveGroup(group_id=group, member_id=joined.member_id, reason="done")
    assert client.call(leave, api.LeaveGroupResponse).error == 0
    assert client.call(leave, api.LeaveGroupResponse).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.call(beat, api.HeartbeatResponse).error == ErrorCode.UNKNOWN_MEMBER_ID


def joined_group(join: Client, group: str, metadata: bytes) -> api.JoinGroupResponse:
    request = api.JoinGroup(
        group_id=group,
        session_timeout=30.0,
        rebalance_timeout=30.0,
        member_id="",
        protocols=(api.GroupProtocol(name="range", metadata=metadata),),
        reason="r" * 300,
    )
    response = join.call(request, api.JoinGroupResponse)
    if response.error == ErrorCode.MEMBER_ID_REQUIRED:  # the id that we must come back with is in the response
        fields = {name: getattr(request, name) for name in request.__slots__}
        response = join.call(api.JoinGroup(**fields | {"member_id": response.member_id}), api.JoinGroupResponse)
    assert response.error == 0
    return response


def test_group_requests_in_every_version(kafka: LocalKafka, client: Client) -> None:
    """A member that the group does not know is refused with the same code in every version."""
    group, member = "wire-strangers", "stranger"
    coordinated(client, group)
    sync = api.SyncGroup(group_id=group, generation=1, member_id=member, protocol="range")
    beat = api.Heartbeat(group_id=group, generation=1, member_id=member)
    leave = api.LeaveGroup(group_id=group, member_id=member)
    for request in (sync, beat, leave):
        for version in shared(client, type(request)):
            with Client(kafka.bootstrap_servers, pin=version) as pinned:
                response: Any = pinned.call(request, api.RESPONSES[type(request)])
                assert response.error == ErrorCode.UNKNOWN_MEMBER_ID, (request, version)


def test_a_response_over_the_bound(kafka: LocalKafka, kafka_topic: Callable[..., str]) -> None:
    kafka_topic(50)
    with (
        pytest.raises(FrameTooLargeError, match="max_frame_bytes allows 1000"),
        Client(kafka.bootstrap_servers, max_frame_bytes=1000) as client,
    ):
        client.call(api.Metadata(topics=None), api.MetadataResponse)


def test_a_port_that_is_not_kafkas() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connecting = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)
        accepted, _ = server.accept()
        with connecting, accepted:
            accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection = Connection(client_id="t", max_frame_bytes=1 << 30)
            connecting.sendall(connection.handshake())
            connection.receive_data(connecting.recv(4096))
            assert isinstance(connection.failure, NotKafkaError)
