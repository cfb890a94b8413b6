"""Where a script of `raw_script` is played: at a model broker in virtual time, or at a real one.

Laws
1. A member has one connection for each of its channels ("join", "rest", "fetch"), as our client has, and sends
   version-free requests. What is sent on one connection has its responses in order.
2. Both places have one topic and one group of the script's own.
3. Each place tells its time, so that a play can be found to have been late (`raw_plays`).
"""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from instride._core.network.actions import ConnectionKey, Role
from instride._wire import api
from instride._wire.connection import Connection
from instride.errors.codes import ErrorCode
from instride.records import TopicPartition
from instride.testing._simulation.broker_model import BrokerModel
from instride.testing._simulation.history import History
from instride.testing._simulation.links import Link
from instride.testing._simulation.scheduler import Scheduler

__all__ = ["PARTITIONS", "KafkaPlace", "ModelPlace", "Place"]

PARTITIONS: Final = 4
_LATENCY: Final = 0.0005
_POLL: Final = 0.02
SOON: Final = 0.3
"""Seconds after which a response that has not come waits for somebody. Both places have the same, for law 3."""
_NOT_READY: Final = (14, 15, 16)

T = TypeVar("T")


class Place(Protocol):
    """soon: seconds after which a response that has not come waits for somebody."""

    topic: str
    group: str
    soon: float

    def now(self) -> float:
        """Seconds, from any beginning."""
        ...

    def send(self, who: str, channel: str, request: api.Request) -> int:
        """Send a request; what returns is its ticket."""
        ...

    def take(self, who: str, channel: str, ticket: int, *, patience: float) -> api.Response | None:
        """The response, or None where none came within so many seconds."""
        ...

    def wait(self, seconds: float) -> None: ...
    def produce(self, partition: int, count: int) -> None: ...
    def retain(self, partition: int, count: int) -> None: ...
    def delete(self) -> None:
        """Delete the topic. All that follows from that has happened when this returns."""
        ...

    def create(self) -> None:
        """Create it again, likewise."""
        ...

    def drop(self, who: str, channel: str) -> None:
        """Close the connection; the next `send` opens another."""
        ...


# -- the model


class _Owner:
    """The client's end of a `Link`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.responses: dict[int, api.Response] = {}

    def link_responded(self, link: Link, request_id: int, response: api.Response) -> None:
        self.responses[request_id] = response

    def link_closed(self, link: Link) -> None:
        raise AssertionError("the model closed a connection")

    def link_broke_within_a_frame(self, link: Link) -> None:
        raise AssertionError("the model broke a connection")


class ModelPlace:
    """One model broker, asked over the simulation's own connections."""

    def __init__(self, *, initial_delay: float = 0.0) -> None:
        self.topic, self.group, self.soon = "topic", "g", SOON
        self._scheduler = Scheduler(0)
        topics, history = {self.topic: PARTITIONS}, History(self._scheduler)
        self.brokers = BrokerModel(
            self._scheduler, history, nodes=1, topics=topics, initial_delay=initial_delay, ids=True
        )
        self._owners: dict[str, _Owner] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._tickets = 0

    def now(self) -> float:
        return self._scheduler.now

    def send(self, who: str, channel: str, request: api.Request) -> int:
        self._tickets += 1
        self._link(who, channel).transmit(self._tickets, request)
        return self._tickets

    def _link(self, who: str, channel: str) -> Link:
        owner = self._owners.setdefault(who, _Owner(who))
        if (who, channel) not in self._links:
            key = ConnectionKey(Role.COORDINATOR, 1)
            link = Link(self._scheduler, owner, key, 1, self.brokers.serve, lambda: _LATENCY)
            self._links[who, channel] = link
        return self._links[who, channel]

    def take(self, who: str, channel: str, ticket: int, *, patience: float) -> api.Response | None:
        responses = self._owners[who].responses
        if ticket not in responses:
            self._scheduler.run(self._scheduler.now + patience, lambda: ticket in responses)
        return responses.pop(ticket, None)

    def wait(self, seconds: float) -> None:
        self._scheduler.run(self._scheduler.now + seconds, lambda: False)

    def produce(self, partition: int, count: int) -> None:
        self.brokers.produce(TopicPartition(self.topic, partition), count)

    def retain(self, partition: int, count: int) -> None:
        self.brokers.retain(TopicPartition(self.topic, partition), count)

    def delete(self) -> None:
        self.brokers.delete(self.topic)

    def create(self) -> None:
        self.brokers.create(self.topic)

    def drop(self, who: str, channel: str) -> None:
        self._links.pop((who, channel)).close()


# -- the real one


class _Wire:
    """A connection of the product's own, over a blocking socket."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._connection = Connection(client_id="raw", max_frame_bytes=1 << 24)
        self._socket = socket.create_connection(address, 10.0)
        self._responses: dict[int, api.Response] = {}
        while not self._connection.ready:
            self._socket.sendall(self._connection.handshake())
            self._receive(time.monotonic() + 10.0)

    def send(self, ticket: int, request: api.Request) -> None:
        self._socket.sendall(self._connection.send(ticket, request))

    def take(self, ticket: int, patience: float) -> api.Response | None:
        deadline = time.monotonic() + patience
        while ticket not in self._responses:
            if not self._receive(deadline):
                return None
        return self._responses.pop(ticket)

    def _receive(self, deadline: float) -> bool:
        """Whether anything came before the deadline."""
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            data = self._socket.recv(1 << 16)
        except TimeoutError:
            return False
        finally:
            self._socket.settimeout(10.0)
        assert data, self._connection.end_of_stream()
        for received in self._connection.receive_data(data):
            assert received.response is not None, received.error
            self._responses[received.request_id] = received.response
        assert self._connection.failure is None, self._connection.failure
        return True

    def close(self) -> None:
        self._socket.close()


class KafkaPlace:
    """A real broker. The topic is there already, with PARTITIONS partitions."""

    def __init__(self, address: str, topic: str, group: str, *, soon: float = SOON) -> None:
        host, _, port = address.partition(":")
        self.topic, self.group, self.soon = topic, group, soon
        self._address = (host, int(port))
        self._wires: dict[tuple[str, str], _Wire] = {}
        self._tickets = 0
        self._wait_for_the_coordinator()

    def now(self) -> float:
        return time.monotonic()

    def send(self, who: str, channel: str, request: api.Request) -> int:
        self._tickets += 1
        if (who, channel) not in self._wires:
            self._wires[who, channel] = _Wire(self._address)
        self._wires[who, channel].send(self._tickets, request)
        return self._tickets

    def take(self, who: str, channel: str, ticket: int, *, patience: float) -> api.Response | None:
        return self._wires[who, channel].take(ticket, patience)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)  # not for a state: the script says that so much time passes

    def produce(self, partition: int, count: int) -> None:
        producer = Producer({"bootstrap.servers": f"{self._address[0]}:{self._address[1]}", "linger.ms": 5})
        for _ in range(count):
            producer.produce(self.topic, b"value", partition=partition)
        assert producer.flush(20.0) == 0

    def retain(self, partition: int, count: int) -> None:
        """By DeleteRecords, which moves the beginning of the log as retention does."""
        tp = TopicPartition(self.topic, partition)
        listed = self.take("", "rest", self.send("", "rest", api.ListOffsets(timestamps={tp: -1})), patience=20.0)
        assert isinstance(listed, api.ListOffsetsResponse)
        admin = self._admin()
        (deleted,) = admin.delete_records([At(*tp, listed.offsets[tp].offset - count)]).values()
        deleted.result(20)

    def delete(self) -> None:
        admin = self._admin()
        (deleted,) = admin.delete_topics([self.topic]).values()
        deleted.result(20)
        self._until_described(self.topic, is_there=False)
        self._settle()

    def create(self) -> None:
        self._create(self.topic, PARTITIONS)
        self._settle()

    def _settle(self) -> None:
        """A broker's metadata show a change before its logs and its coordinator have it. It takes one change after the
        other: once they show a later one, all of this one is done."""
        self._create(f"settled-{uuid.uuid4().hex}", 1)

    def _create(self, topic: str, partitions: int) -> None:
        admin = self._admin()
        (created,) = admin.create_topics([NewTopic(topic, partitions, 1)]).values()
        created.result(20)
        self._until_described(topic, is_there=True)

    def _admin(self) -> AdminClient:
        """To be kept until it has responded."""
        return AdminClient({"bootstrap.servers": f"{self._address[0]}:{self._address[1]}"})

    def drop(self, who: str, channel: str) -> None:
        self._wires.pop((who, channel)).close()

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()

    def _wait_for_the_coordinator(self) -> None:
        """It makes its topic when it is first asked, and then loads the group."""
        find, ask = api.FindCoordinator(group_id=self.group), api.OffsetFetch(group_id=self.group, partitions=())
        self._until(find, api.FindCoordinatorResponse, lambda response: response.error not in _NOT_READY)
        self._until(ask, api.OffsetFetchResponse, lambda response: response.error not in _NOT_READY)

    def _until_described(self, topic: str, *, is_there: bool) -> None:
        def is_so(response: api.MetadataResponse) -> bool:
            (found,) = response.topics
            if not is_there:
                return found.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return not found.error and all(each.leader >= 0 and not each.error for each in found.partitions)

        self._until(api.Metadata(topics=(topic,)), api.MetadataResponse, is_so)

    def _until(self, request: api.Request, kind: type[T], is_so: Callable[[T], bool]) -> None:
        deadline = time.monotonic() + 60.0
        while True:
            response = self.take("", "rest", self.send("", "rest", request), patience=20.0)
            assert isinstance(response, kind)
            if is_so(response):
                return
            assert time.monotonic() < deadline, response
            time.sleep(_POLL)
