"""What the network thread does with connections: those that are given up, that authenticate anew, that fail amid it."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any, cast

import pytest
from test_transport import Ends

from attack.broker import Broker
from instride import Consumer
from instride._core.events import BackgroundEvent, CallCompleted
from instride._core.network.actions import Action, ConnectionKey, Deliver, OpenConnection, Role, Transmit
from instride._net import thread as thread_module
from instride._net.mailbox import Mailbox
from instride._net.resolver import SocketAddress
from instride._net.thread import NetworkThread
from instride._wire.api import ApiVersions
from instride.commits import CommitResult
from instride.config import ConsumerConfig
from instride.errors import (
    AuthenticationError,
    ConsumerClosedError,
    NetworkThreadDiedError,
    TransportError,
    UnsupportedVersionError,
)

PATIENCE = 60.0
KEY = ConnectionKey(Role.DATA, 1)
BOOTSTRAP = ConnectionKey(Role.BOOTSTRAP, 0)
TOKENS: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_plain_without_tls": True,
}


class Machine:
    """In the network machine's place. told: what it hears of connections and requests."""

    waits_for_capacity, awaits_poll_at = False, float("-inf")

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def tick(self, at: float) -> list[Action]:
        return []

    def deadline(self) -> float:
        return 0.0

    def opened(self, key: ConnectionKey, at: float) -> None:
        self.told.append(("opened", key))

    def opening(self, key: ConnectionKey, standing: str) -> None:
        self.told.append(("opening", key))

    def closed(self, key: ConnectionKey, error: Exception, at: float) -> None:
        self.told.append(("closed", key, error))

    def response_received(self, request_id: int, result: object, at: float) -> None:
        self.told.append(("response", request_id, result))


class Thread(NetworkThread):
    """One whose turns the test takes, on its own thread."""

    def __init__(self, **settings: Any) -> None:
        self.machine = Machine()
        super().__init__(ConsumerConfig(bootstrap_servers="b:1", **settings), cast(Any, self.machine), Mailbox())
        self.opened = ExitStack()
        self._open_own(self.opened)

    def woken(self) -> None:
        """Waits for a byte, and takes it."""
        assert self.is_woken(PATIENCE)
        self._drain_wakes()

    def is_woken(self, patience: float = 0.0) -> bool:
        assert self._wake_pair is not None
        return bool(select.select([self._wake_pair.inner], [], [], patience)[0])

    def end(self) -> None:
        self._clean_up()
        self.opened.close()


@pytest.fixture
def make() -> Iterator[Callable[..., Thread]]:
    with ExitStack() as stack:

        def made(**settings: Any) -> Thread:
            thread = Thread(**settings)
            stack.callback(thread.end)
            return thread

        yield made


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.transport.close()
    made.peer.close()


@pytest.fixture
def listens() -> Iterator[SocketAddress]:
    """An address where connections are taken."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield (socket.AF_INET, server.getsockname())


def has(thread: Thread, ends: Ends) -> None:
    """The connection is one of the thread's, and ready."""
    thread._transports[KEY] = ends.transport
    thread._where[KEY] = "b:1"
    thread._announced.add(KEY)


def resolved(thread: Thread) -> None:
    while thread._resolved:
        thread._authenticate_and_connect(*thread._resolved.popleft())


# --- opening -----------------------------------------------------------------------------------------------


def test_only_bootstrap_servers_go_by_their_canonical_names(
    make: Callable[..., Thread], listens: SocketAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = make(client_dns_lookup="resolve_canonical_bootstrap_servers_only")
    turns: list[int] = []

    def canonical(host: str, port: int, turn: int, on_done: Callable[..., None], **_: object) -> None:
        turns.append(turn)
        on_done("b-1.test", [listens])

    monkeypatch.setattr(thread._resolver, "resolve_canonical", canonical)
    monkeypatch.setattr(thread._resolver, "resolve", lambda host, port, on_done, **_: on_done([listens]))
    for key in (BOOTSTRAP, KEY):
        thread._open(OpenConnection(key=key, host="b", port=9092))
        resolved(thread)
    assert {key: each.host for key, each in thread._transports.items()} == {BOOTSTRAP: "b-1.test", KEY: "b"}
    thread._open(OpenConnection(key=BOOTSTRAP, host="b", port=9092))
    assert turns == [0, 2], "its next name, after two attempts at the place"


def test_an_opening_that_is_given_up_while_its_name_is_looked_up_comes_to_nothing(
    make: Callable[..., Thread], listens: SocketAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread, results = make(), list[Callable[..., None]]()
    monkeypatch.setattr(thread._resolver, "resolve", lambda host, port, on_done, **_: results.append(on_done))
    thread._open(OpenConnection(key=KEY, host="b", port=9092))
    thread._close(KEY)
    thread._open(OpenConnection(key=KEY, host="c", port=9092))
    for result in ([listens], TransportError("no such name")):
        results[0](result)
        resolved(thread)
    assert not thread._transports
    assert thread.machine.told == []
    results[1]([listens])
    resolved(thread)
    assert [each.host for each in thread._transports.values()] == ["c"]


def test_an_opening_that_is_given_up_while_a_token_is_requested_comes_to_nothing(
    make: Callable[..., Thread], listens: SocketAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    thread = make(sasl_oauth_token=lambda: "token" if go.wait(PATIENCE) else "", **TOKENS)
    monkeypatch.setattr(thread._resolver, "resolve", lambda host, port, on_done, **_: on_done([listens]))
    for host in ("b", "c"):
        thread._open(OpenConnection(key=KEY, host=host, port=9092))
        thread._drain_wakes()
        resolved(thread)
    go.set()
    thread.woken()
    thread._authenticate_due()
    assert [each.host for each in thread._transports.values()] == ["c"]
    assert [each[0] for each in thread.machine.told] == ["opening"]


def test_without_a_token_nothing_is_opened_and_the_user_is_told_why() -> None:
    class Counted(Broker):
        sasl = True

    def no_token() -> str:
        raise ZeroDivisionError

    with (
        closing(Counted()) as broker,
        Consumer(bootstrap_servers=f"127.0.0.1:{broker.port}", sasl_oauth_token=no_token, **TOKENS) as consumer,
    ):
        with pytest.raises(AuthenticationError, match="sasl_oauth_token raised ZeroDivisionError"):
            consumer.list_topics(timeout=PATIENCE)
        assert not broker.requested


# --- authenticating anew -----------------------------------------------------------------------------------


def test_a_connection_whose_session_ends_soon_authenticates_anew(make: Callable[..., Thread], ends: Ends) -> None:
    thread, tokens = make(sasl_oauth_token=lambda: "token", **TOKENS), []
    has(thread, ends)
    ends.transport.authenticate_at = 0.0
    authenticate_again = ends.session.authenticate_again

    def noted(mechanism: Any) -> None:
        tokens.append(mechanism.token.value)
        authenticate_again(mechanism)

    ends.session.authenticate_again = noted  # type: ignore[method-assign]
    thread._authenticate_due()
    assert ends.transport.authenticate_at == float("inf"), "it is asked for once"
    thread.woken()
    thread._act([Transmit(key=KEY, request_id=1, request=ApiVersions())])
    assert ends.session.sent == [1], "it is of use until the token is there"
    thread._authenticate_due()
    assert tokens == ["token"]
    assert ends.heard(13) == b"[1][who I am]"
    thread._authenticate_due()
    assert tokens == ["token"], "once"
    assert thread.machine.told == []
    assert thread._mechanisms[KEY].token.value == "token"  # type: ignore[attr-defined]


def test_a_connection_for_which_no_new_token_comes_is_closed(make: Callable[..., Thread], ends: Ends) -> None:
    def no_token() -> str:
        raise AuthenticationError("the provider has locked us out")

    thread = make(sasl_oauth_token=no_token, **TOKENS)
    has(thread, ends)
    ends.transport.authenticate_at = 0.0
    thread._authenticate_due()
    thread.woken()
    thread._authenticate_due()
    assert [each[:2] for each in thread.machine.told] == [("closed", KEY)]
    assert "locked us out" in str(thread.machine.told[0][2])
    assert not thread._transports
    assert ends.heard(1) == b"", "its peer hears of the end, and of nothing else"


def test_a_token_for_a_connection_that_was_closed_meanwhile_is_dropped(make: Callable[..., Thread], ends: Ends) -> None:
    thread = make(sasl_oauth_token=lambda: "token", **TOKENS)
    has(thread, ends)
    ends.transport.authenticate_at = 0.0
    thread._authenticate_due()
    thread._close(KEY)
    thread.woken()
    thread._authenticate_due()
    assert thread.machine.told == []
    assert not thread._mechanisms


# --- requests ----------------------------------------------------------------------------------------------


def test_of_two_requests_to_a_peer_that_is_gone_the_end_is_told_once(make: Callable[..., Thread], ends: Ends) -> None:
    thread = make()
    has(thread, ends)
    ends.reset()
    thread._act([Transmit(key=KEY, request_id=number, request=ApiVersions()) for number in (1, 2)])
    assert [each[:2] for each in thread.machine.told] == [("closed", KEY)]
    assert ends.session.sent == [1]
    assert not thread._transports


def test_a_request_that_the_broker_does_not_know_is_an_error_of_its_own(
    make: Callable[..., Thread], ends: Ends
) -> None:
    thread = make()
    has(thread, ends)
    ends.session.unknown.add(1)
    thread._act([Transmit(key=KEY, request_id=number, request=ApiVersions()) for number in (1, 2)])
    ((what, number, error),) = thread.machine.told
    assert (what, number, type(error)) == ("response", 1, UnsupportedVersionError)
    assert ends.heard(3) == b"[2]", "the connection stays good"


# --- waking and ending -------------------------------------------------------------------------------------


@pytest.mark.parametrize("wakes", [1, 63, 64, 65, 200])
def test_however_often_it_is_woken_one_look_takes_all(make: Callable[..., Thread], wakes: int) -> None:
    thread = make()
    for _ in range(wakes):
        thread._wake()
    assert thread.is_woken()
    thread._drain_wakes()
    assert not thread.is_woken()
    thread._wake()
    assert thread.is_woken()


def test_a_future_that_the_other_thread_ends_first_ends_once(make: Callable[..., Thread]) -> None:
    """Both the thread that dies and the one that has just posted end what is left."""
    thread = make()

    class Raced(dict[int, Any]):
        def popitem(self) -> tuple[int, Any]:
            thread._futures = {}
            for future in self.values():
                future.set_exception(NetworkThreadDiedError("the other thread's"))
            self.clear()
            return super().popitem()

    future = thread.future(1)
    thread._futures = Raced(thread._futures)
    thread._fail_futures(ConsumerClosedError("ours"))
    assert isinstance(future.exception(0), NetworkThreadDiedError)


def test_a_response_to_a_commit_ends_its_future_and_no_other(make: Callable[..., Thread]) -> None:
    thread = make()
    good, bad, left = (thread.future(number) for number in (1, 2, 3))
    error = TransportError("lost")
    events: list[BackgroundEvent] = [
        CallCompleted(call=1, result=CommitResult()),
        CallCompleted(call=2, error=error),
        CallCompleted(call=99),
    ]
    thread._act([Deliver(event=each) for each in events])
    assert good.result(0) == CommitResult()
    assert bad.exception(0) is error
    assert not left.done()


def test_what_was_handed_over_while_the_thread_died_ends_with_what_killed_it(make: Callable[..., Thread]) -> None:
    """The thread has ended all that it knew of; whoever has just posted ends its own."""
    thread = make()
    thread._died = NetworkThreadDiedError("of a bug")
    future = thread.future(1)
    thread.wake()
    assert future.exception(0) is thread._died


def test_a_thread_that_ends_closes_its_connections_and_ends_its_futures(
    make: Callable[..., Thread], ends: Ends
) -> None:
    thread = make()
    has(thread, ends)
    future = thread.future(1)
    thread._clean_up()
    assert ends.heard(1) == b""
    assert isinstance(future.exception(0), ConsumerClosedError)


def test_a_start_that_was_interrupted_just_after_may_be_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a signal's exception before anybody noted that the thread runs."""
    with closing(Broker()) as broker:
        consumer = Consumer(bootstrap_servers=f"127.0.0.1:{broker.port}")
        thread = consumer._driver._thread
        start = thread.start

        def interrupted() -> None:
            start()
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            consumer.list_topics(timeout=PATIENCE)
        assert not consumer._driver.started
        assert list(consumer.list_topics(timeout=PATIENCE)) == ["t"]
        consumer.close()
        assert not thread.alive


def test_while_others_hold_the_gil_it_is_not_given_up_to_decode(
    make: Callable[..., Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would come back late. Told once, when that begins and when it ends."""
    told: list[bool] = []
    monkeypatch.setattr(thread_module, "keep_gil", lambda *, keep: told.append(keep))

    class Crowded:
        crowded = False

        def select(self, timeout: float) -> list[tuple[Any, int]]:
            return []

    thread, pump = make(), Crowded()
    thread._pump = pump  # type: ignore[assignment]
    for crowded, so_far in ((False, []), (True, [True]), (True, [True]), (False, [True, False])):
        pump.crowded = crowded
        thread._turn()
        assert told == so_far


# --- what a turn costs -------------------------------------------------------------------------------------


def test_a_turn_offers_no_buffer_for_a_connection_on_which_nothing_happened(
    make: Callable[..., Thread], ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread, offered = make(), list[ConnectionKey]()
    has(thread, ends)
    monkeypatch.setattr(type(ends.transport), "offer", lambda self: offered.append(KEY))
    thread._after(KEY)
    for _ in range(3):
        thread._turn()
    assert offered == [KEY]
    thread._act([Transmit(key=KEY, request_id=1, request=ApiVersions())])
    for _ in range(3):
        thread._turn()
    assert offered == [KEY, KEY], "it has sent something: a response may come now"
