"""Requests and their connections: opened when needed, in order, one response each, given up in time."""

from __future__ import annotations

import pytest

from instride._core.network.actions import Action, CloseConnection, ConnectionKey, OpenConnection, Role, Transmit
from instride._core.network.connections import Connections
from instride._wire import api
from instride.config import ConsumerConfig
from instride.errors import (
    AuthenticationError,
    FrameTooLargeError,
    KafkaTimeoutError,
    NotKafkaError,
    ProtocolError,
    TransportError,
    UnsupportedVersionError,
)
from step_counter import steps

pytestmark = pytest.mark.part

KEY = ConnectionKey(Role.DATA, 1)
OTHER = ConnectionKey(Role.JOIN, 1)
WHERE = ("b", 1)


class Outbox:
    """A `Connections` and what came of it."""

    def __init__(self) -> None:
        self.config = ConsumerConfig(
            bootstrap_servers="b:1", request_timeout=30.0, connection_setup_timeout=10.0, reconnect_backoff=1.0,
            reconnect_backoff_max=4.0,
        )  # fmt: skip
        self.out: list[Action] = []
        self.connections = Connections(self.config, lambda: 0.5, self.out)
        self.ended: list[tuple[str, api.Response | Exception]] = []

    def send(self, name: str, now: float = 0.0, *, key: ConnectionKey = KEY, timeout: float | None = None) -> None:
        request = api.FindCoordinator(group_id=name)
        self.connections.send(
            key, WHERE, request, lambda result, _now: self.ended.append((name, result)), now, timeout=timeout
        )

    def transmitted(self) -> list[str]:
        requests = [each.request for each in self.out if isinstance(each, Transmit)]
        return [each.group_id for each in requests if isinstance(each, api.FindCoordinator)]

    def request_id(self, name: str) -> int:
        for each in self.out:
            if isinstance(each, Transmit) and each.request == api.FindCoordinator(group_id=name):
                return each.request_id
        raise LookupError(name)

    def opens(self) -> int:
        return sum(isinstance(each, OpenConnection) for each in self.out)


@pytest.fixture
def box() -> Outbox:
    return Outbox()


def test_a_connection_is_opened_by_the_first_request_and_only_once(box: Outbox) -> None:
    assert box.opens() == 0
    box.send("a")
    box.send("b")
    assert box.out == [OpenConnection(key=KEY, host="b", port=1)]
    assert not box.connections.is_ready(KEY)
    assert box.connections.busy(KEY)


def test_requests_wait_for_the_connection_and_go_in_order(box: Outbox) -> None:
    for name in "abc":
        box.send(name)
    box.connections.opened(KEY, 1.0)
    box.send("d", 1.0)
    assert box.transmitted() == ["a", "b", "c", "d"]
    assert box.connections.is_ready(KEY)


def test_a_response_ends_its_own_request_once(box: Outbox) -> None:
    box.send("a")
    box.send("b")
    box.connections.opened(KEY, 0.0)
    response = api.FindCoordinatorResponse(node_id=3)
    box.connections.response_received(box.request_id("b"), response, 1.0)
    box.connections.response_received(box.request_id("b"), response, 1.0)
    assert box.ended == [("b", response)]
    box.connections.closed(KEY, TransportError("x"), 2.0)
    assert [name for name, _ in box.ended] == ["b", "a"]
    box.connections.response_received(box.request_id("a"), response, 3.0)
    assert len(box.ended) == 2, "it had ended already"


def test_a_request_without_response_closes_its_connection_and_ends_those_behind_it(box: Outbox) -> None:
    box.send("a")
    box.send("b", timeout=100.0)
    box.send("elsewhere", key=OTHER, timeout=100.0)
    box.connections.opened(KEY, 0.0)
    assert box.connections.deadline() == 10.0, "the other connection is still opening"
    box.connections.opened(OTHER, 0.0)
    assert box.connections.deadline() == 30.0
    box.connections.expire(29.9)
    assert box.ended == []
    box.connections.expire(30.0)
    assert [name for name, _ in box.ended] == ["a", "b"]
    assert all(isinstance(result, TransportError) for _, result in box.ended)
    assert "b:1" in str(box.ended[0][1])
    assert box.out[-1] == CloseConnection(key=KEY, abort=True), "it may not arrive after what is sent next"


def test_a_connection_that_does_not_come_up_is_given_up(box: Outbox) -> None:
    box.send("a")
    assert box.connections.deadline() == 10.0
    box.connections.expire(10.0)
    ((_, error),) = box.ended
    assert "connection_setup_timeout" in str(error)
    assert box.out[-1] == CloseConnection(key=KEY, late=True), "another address may be better"
    assert box.connections.last_error is error


def test_a_request_that_waits_for_a_reconnect_ends_at_its_own_deadline(box: Outbox) -> None:
    box.send("a")
    box.connections.closed(KEY, TransportError("refused"), 0.0)
    box.send("b", timeout=0.5)
    box.send("c", timeout=5.0)
    box.connections.expire(0.5)
    name, error = box.ended[-1]
    assert name == "b"
    assert isinstance(error, KafkaTimeoutError)
    assert str(error) == "no connection to b:1 within the timeout; it failed last with: refused"
    box.connections.expire(1.0)
    box.connections.opened(KEY, 1.0)
    assert box.transmitted() == ["c"]


@pytest.mark.parametrize("brokers", [{}, {1: ("moved", 1)}], ids=["gone", "moved"])
def test_nothing_waits_to_be_dialled_where_no_broker_is_any_more(
    box: Outbox, brokers: dict[int, tuple[str, int]]
) -> None:
    box.send("a")
    box.connections.closed(KEY, TransportError("refused"), 0.0)
    box.send("b", timeout=60.0)
    box.connections.keep({1: WHERE}, 0.5)
    assert [name for name, _ in box.ended] == ["a"], "it may come back"
    box.connections.keep(brokers, 0.5)
    name, error = box.ended[-1]
    assert (name, type(error)) == ("b", TransportError)
    box.connections.expire(5.0)
    assert box.opens() == 1


@pytest.mark.requirement("threading/13")
@pytest.mark.requirement("surface/back-off")
def test_after_failures_the_back_off_grows_to_its_bound_and_a_success_ends_it(box: Outbox) -> None:
    now, pauses = 0.0, []
    for _ in range(4):
        box.send("a", now)
        before = box.opens()
        box.connections.closed(KEY, TransportError("refused"), now)
        assert box.connections.backing_off(KEY, now)
        box.send("b", now, timeout=60.0)
        ready = box.connections.deadline()
        box.connections.expire(ready - 0.001)
        assert box.opens() == before, "not before the back-off ends"
        box.connections.expire(ready)
        assert box.opens() == before + 1
        pauses.append(ready - now)
        now = ready
    assert pauses == pytest.approx([1.0, 2.0, 4.0, 4.0])
    box.connections.opened(KEY, now)
    box.connections.closed(KEY, TransportError("gone"), now)
    box.send("c", now)
    assert box.connections.deadline() == pytest.approx(now + 1.0)


def test_close_ends_requests_with_the_error_and_needs_no_back_off(box: Outbox) -> None:
    box.send("a")
    box.connections.opened(KEY, 0.0)
    error = TransportError("bootstrap is done")
    box.connections.close(KEY, error, 0.0)
    assert box.ended == [("a", error)]
    assert box.out[-1] == CloseConnection(key=KEY)
    assert not box.connections.backing_off(KEY, 0.0)
    box.connections.close(KEY, error, 0.0)
    box.connections.close(OTHER, error, 0.0)
    assert sum(isinstance(each, CloseConnection) for each in box.out) == 1


def test_what_the_shell_says_of_a_connection_that_was_given_up_is_ignored(box: Outbox) -> None:
    box.connections.opened(KEY, 0.0)
    box.connections.closed(KEY, TransportError("x"), 0.0)
    box.send("a")
    box.connections.close(KEY, TransportError("x"), 0.0)
    box.connections.opened(KEY, 1.0)
    box.connections.closed(KEY, TransportError("late"), 1.0)
    assert not box.connections.is_ready(KEY)
    assert not box.connections.backing_off(KEY, 1.0)


def test_a_sender_may_send_again_when_its_response_comes(box: Outbox) -> None:
    def again(_result: object, now: float) -> None:
        box.send("again", now)

    box.connections.send(KEY, WHERE, api.FindCoordinator(group_id="first"), again, 0.0)
    box.connections.opened(KEY, 0.0)
    box.connections.closed(KEY, TransportError("gone"), 0.0)
    box.connections.expire(1.0)
    box.connections.opened(KEY, 1.0)
    assert box.transmitted() == ["first", "again"]


@pytest.mark.parametrize("ready", [True, False])
def test_what_broke_the_protocol_is_no_fault_of_the_other_requests(box: Outbox, ready: bool) -> None:
    box.send("a")
    if ready:
        box.connections.opened(KEY, 0.0)
    error = ProtocolError("bad length") if ready else NotKafkaError("HTTP responds there")
    box.connections.closed(KEY, error, 0.0)
    ((_, result),) = box.ended
    assert isinstance(result, TransportError)
    assert result.retriable == ready, "while shaking hands it tells what is there"


def test_every_connection_ends_with_close_all(box: Outbox) -> None:
    box.send("a")
    box.send("b", key=OTHER)
    box.connections.close_all(0.0)
    assert [name for name, _ in box.ended] == ["a", "b"]
    assert box.connections.deadline() == float("inf")


def test_a_frame_over_the_bound_is_the_oldest_requests_error_and_breaks_the_others(box: Outbox) -> None:
    """Brokers respond in order, so whose response it is is known although it was never read."""
    box.send("oldest")
    box.send("other")
    box.connections.opened(KEY, 0.0)
    box.connections.closed(KEY, FrameTooLargeError("a frame of 5 bytes was announced"), 1.0)
    assert {name: type(result) for name, result in box.ended} == {
        "oldest": FrameTooLargeError,
        "other": TransportError,
    }


def test_a_connection_says_what_it_is_for() -> None:
    assert [str(each) for each in (KEY, OTHER)] == ["data connection to node 1", "join connection to node 1"]


def test_two_late_requests_of_a_connection_end_even_if_the_first_end_closes_it(box: Outbox) -> None:
    """They wait for the back-off of a connection that broke."""
    box.send("before")
    box.connections.closed(KEY, ProtocolError("x"), 0.0)
    request = api.FindCoordinator(group_id="first")

    def first(_result: object, now: float) -> None:
        box.ended.append(("first", ProtocolError("ended")))
        box.connections.close_all(now)

    box.connections.send(KEY, WHERE, request, first, 0.0, timeout=0.5)
    box.send("second", timeout=0.5)
    assert box.opens() == 1, "not before the back-off has ended"
    box.connections.expire(0.6)
    assert [name for name, _ in box.ended] == ["before", "first", "second"]


def test_to_requests_refused_credentials_are_a_broken_connection_so_that_they_retry(
    box: Outbox,
) -> None:
    box.send("a")
    box.connections.closed(KEY, AuthenticationError("wrong password"), 0.0)
    ((name, error),) = box.ended
    assert name == "a"
    assert isinstance(error, TransportError)
    assert error.retriable
    assert isinstance(error.__cause__, AuthenticationError)


def test_a_broker_that_is_said_not_to_know_what_all_know_is_asked_anew(box: Outbox) -> None:
    """Law 8: on another connection; what was under way on this one is told of it first."""
    box.send("a")
    box.connections.opened(KEY, 0.0)
    unsupported = UnsupportedVersionError("the broker does not know the request FindCoordinator")
    box.connections.response_received(box.request_id("a"), unsupported, 1.0)
    assert box.ended == [("a", unsupported)]
    assert isinstance(box.out[-1], CloseConnection)
    box.send("b", 1.0)
    assert box.transmitted() == ["a"]
    box.connections.expire(3.0)
    assert box.opens() == 2


def test_idle_connections_cost_a_turn_nothing() -> None:
    def turn(idle: int) -> int:
        box = Outbox()
        for number in range(idle):
            key = ConnectionKey(Role.DATA, 100 + number)
            box.send(f"{number}", key=key)
            box.connections.opened(key, 0.0)
            box.connections.response_received(box.request_id(f"{number}"), api.FindCoordinatorResponse(node_id=3), 1.0)
        assert box.connections.deadline() == float("inf")
        box.send("a", 11.0)

        def look() -> None:
            box.connections.expire(12.0)
            assert box.connections.deadline() == 21.0
            box.connections.opened(KEY, 12.0)
            assert box.connections.deadline() == 41.0
            box.connections.response_received(box.request_id("a"), api.FindCoordinatorResponse(node_id=3), 13.0)
            assert box.connections.deadline() == float("inf")

        return steps(look)

    assert turn(3) == turn(300)
