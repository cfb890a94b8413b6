"""What the network thread does with connections: those that are given up, that authenticate anew, that fail amid it."""

from __future__ import annotations

import logging
import os
import select
import selectors
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
from test_reads import Frames
from test_transport import Ends

from attack.broker import Broker
from instride import Consumer, TopicPartition
from instride._core.events import BackgroundEvent, CallCompleted, ChangeSettings
from instride._core.network.actions import (
    Action,
    CloseConnection,
    ConnectionKey,
    Deliver,
    OpenConnection,
    Role,
    Transmit,
)
from instride._net import oauth
from instride._net import thread as thread_module
from instride._net import transport as transport_module
from instride._net.mailbox import Mailbox
from instride._net.resolver import SocketAddress
from instride._net.thread import NetworkThread
from instride._wire.api import ApiVersions
from instride._wire.connection import Received
from instride.commits import CommitResult
from instride.config import ConsumerConfig
from instride.errors import (
    AuthenticationError,
    ConsumerClosedError,
    IllegalSaslStateError,
    KafkaError,
    NetworkThreadDiedError,
    SaslAuthenticationFailedError,
    TlsError,
    TransportError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)

PATIENCE = 60.0
KEY = ConnectionKey(Role.DATA, 1)
JOIN = ConnectionKey(Role.JOIN, 1)
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

    def handle(self, event: Any, at: float) -> None:
        self.told.append(("handled", event.config))

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


def has(thread: Thread, ends: Ends, key: ConnectionKey = KEY) -> None:
    """The connection is one of the thread's, and ready."""
    thread._transports[key] = ends.transport
    thread._announced.add(key)


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
    assert turns == [0, 1], "its next name, after an attempt that came to nothing"
    resolved(thread)
    ready(thread, BOOTSTRAP)
    thread._open(OpenConnection(key=BOOTSTRAP, host="b", port=9092))
    assert turns == [0, 1, 1], "the name that was good"


def ready(thread: Thread, key: ConnectionKey) -> None:
    """As if its handshake had ended."""
    transport = thread._transports[key]
    transport._connection = Frames()
    thread._after(key)
    assert key in thread._announced


def names(dead: SocketAddress, good: SocketAddress) -> Callable[..., None]:
    """In the resolver's place: every name has these addresses."""
    return lambda host, port, on_done, **_: on_done([dead, good])


def first_tried(thread: Thread, *keys: ConnectionKey) -> list[SocketAddress]:
    found = []
    for key in keys:
        thread._open(OpenConnection(key=key, host="b", port=9092))
        resolved(thread)
        found.append(thread._transports[key].tried[0])
    return found


TAIL, JOIN = ConnectionKey(Role.TAIL, 1), ConnectionKey(Role.JOIN, 1)


def test_an_address_that_drops_packets_is_waited_for_once(
    make: Callable[..., Thread], silent: SocketAddress, listens: SocketAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the connections are for, and however many got ready since."""
    thread = make()
    monkeypatch.setattr(thread._resolver, "resolve", names(silent, listens))
    assert first_tried(thread, BOOTSTRAP) == [silent]
    thread._transports[BOOTSTRAP].stalled()
    ready(thread, BOOTSTRAP)
    assert first_tried(thread, KEY, TAIL, JOIN) == [listens] * 3
    for key in (KEY, TAIL, JOIN):
        ready(thread, key)
    thread._close(BOOTSTRAP)
    assert first_tried(thread, BOOTSTRAP, KEY) == [listens] * 2


def test_an_attempt_that_took_too_long_is_the_fault_of_its_address(
    make: Callable[..., Thread], silent: SocketAddress, listens: SocketAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has taken the connection, say, and then said nothing."""
    thread = make()
    monkeypatch.setattr(thread._resolver, "resolve", names(silent, listens))
    first_tried(thread, KEY)
    thread._act([CloseConnection(key=KEY)])
    assert first_tried(thread, KEY) == [silent], "it was not wanted any more: that says nothing of the address"
    thread._act([CloseConnection(key=KEY, late=True)])
    assert first_tried(thread, KEY, TAIL) == [listens] * 2


def test_when_the_address_that_worked_dies_the_others_are_tried_again(
    make: Callable[..., Thread], silent: SocketAddress, listens: SocketAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = make()
    monkeypatch.setattr(thread._resolver, "resolve", names(silent, listens))
    first_tried(thread, KEY)
    thread._transports[KEY].stalled()
    ready(thread, KEY)
    thread._close(KEY)
    assert first_tried(thread, KEY) == [listens]
    thread._transports[KEY]._fail(TransportError("gone"))
    thread._after(KEY)
    assert first_tried(thread, KEY) == [silent]


def test_one_that_takes_long_is_reached_though_all_have_failed_before(
    make: Callable[..., Thread], silent: SocketAddress, listens: SocketAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = [1000.0]
    for module in (thread_module, transport_module):
        monkeypatch.setattr(module, "now", lambda: at[0])
    thread = make()
    monkeypatch.setattr(thread._resolver, "resolve", names(silent, listens))
    shares, tried = [], []
    for _ in range(4):
        tried += first_tried(thread, KEY)
        shares.append(thread._transports[KEY].stalls_at - at[0])
        thread._transports[KEY]._connect_next()
        thread._act([CloseConnection(key=KEY, late=True)])
    assert tried == [silent, silent, listens, silent], "each in its turn"
    assert shares == [5.0, 8.0, 8.0, 8.0]


def test_a_turn_gives_an_address_up_that_has_had_its_time(
    make: Callable[..., Thread], silent: SocketAddress, listens: SocketAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = make(connection_setup_timeout=0.1)
    monkeypatch.setattr(thread._resolver, "resolve", names(silent, listens))
    monkeypatch.setattr(thread.machine, "deadline", lambda: float("inf"))
    thread._open(OpenConnection(key=KEY, host="b", port=9092))
    thread._turn()
    while thread._transports[KEY].tried != [silent, listens]:
        thread._turn()  # which waits for that


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
    assert ends.transport.authenticate_at == float("inf"), "it is requested once"
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


@pytest.mark.parametrize("error", [AuthenticationError("locked us out"), ConnectionError("no provider")])
def test_a_connection_for_which_no_new_token_comes_is_good_until_its_session_ends(
    make: Callable[..., Thread], ends: Ends, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def no_token() -> str:
        raise error

    at = [1000.0]
    for module in (thread_module, transport_module, oauth):
        monkeypatch.setattr(module, "now", lambda: at[0])
    thread = make(sasl_oauth_token=no_token, **TOKENS)
    has(thread, ends)
    ends.transport._session_ends_at = 1010.0
    times = []
    ends.transport.authenticate_at = 1000.0
    while thread._transports:
        at[0] = ends.transport.authenticate_at
        times.append(at[0])
        thread._authenticate_due()
        if thread._transports:
            thread.woken()
            thread._authenticate_due()
            thread._act([Transmit(key=KEY, request_id=len(times), request=ApiVersions())])
    assert times == [1000.0, 1001.0, 1003.0, 1007.0, 1010.0]
    assert ends.session.sent == [1, 2, 3, 4], "it was of use meanwhile"
    assert [each[:2] for each in thread.machine.told] == [("closed", KEY)]
    assert isinstance(thread.machine.told[0][2], AuthenticationError | TransportError)
    assert ends.heard(13) == b"[1][2][3][4]", "its peer hears of nothing else"


def test_of_many_connections_without_a_new_token_few_lines_are_logged(
    make: Callable[..., Thread], caplog: pytest.LogCaptureFixture
) -> None:
    """Each has its own attempts: a cluster of 300 brokers wrote a line for each of them, again and again."""
    thread = make()
    with caplog.at_level(logging.DEBUG, "instride.network"):
        for number in range(30):
            key, transport = ConnectionKey(Role.DATA, number), cast(Any, Waiting())
            thread._transports[key] = thread._preparing[key] = transport
            thread._authenticate_again(key, transport, TransportError("no provider"))
    thread._transports.clear()
    levels = [each.levelno for each in caplog.records]
    assert levels[0] == logging.WARNING
    assert "no new token or ticket (no provider); trying again" in caplog.records[0].getMessage()
    assert len(levels) <= 20
    assert set(levels[1:]) == {logging.DEBUG}, "one is enough for a reader"


class Waiting:
    """In a transport's place: its session lasts."""

    failure, ready, standing = None, False, ""

    def put_off_authentication(self) -> bool:
        return True

    def release(self) -> list[Received]:
        return []


def test_a_connection_whose_session_ends_while_a_token_is_awaited_is_closed(
    make: Callable[..., Thread], ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, go = [1000.0], threading.Event()
    for module in (thread_module, transport_module, oauth):
        monkeypatch.setattr(module, "now", lambda: at[0])
    thread = make(sasl_oauth_token=lambda: "token" if go.wait(PATIENCE) else "", **TOKENS)
    monkeypatch.setattr(thread.machine, "deadline", lambda: float("inf"))
    has(thread, ends)
    ends.transport._session_ends_at = 1003.0
    ends.transport.authenticate_at = 1000.0
    thread._authenticate_due()
    assert thread._deadline() == 1003.0, "the loop wakes for it"
    at[0] = 1002.9
    thread._authenticate_due()
    assert thread._transports
    at[0] = 1003.0
    thread._authenticate_due()
    assert not thread._transports
    ((kind, key, error),) = thread.machine.told
    assert (kind, key, type(error)) == ("closed", KEY, TransportError)
    assert "ended before there was a new token or ticket" in str(error)
    go.set()
    thread.woken()
    thread._authenticate_due()
    assert len(thread.machine.told) == 1
    assert not thread._preparing


def test_what_is_prepared_at_once_is_sent_though_the_session_has_ended(
    make: Callable[..., Thread], ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine was suspended, say. A broker still takes an authentication then."""
    plain = {**TOKENS, "sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "p"}
    thread = make(**plain)
    has(thread, ends)
    ends.transport._session_ends_at = ends.transport.authenticate_at = 0.0
    thread._authenticate_due()
    assert thread._transports
    assert ends.heard(10) == b"[who I am]"


class Joined:
    """A connection where a Join is pending; the test has the clock. tokens: how many were requested.

    The session ends at 1010. provider: what the user's function does, once `go` is set.
    """

    def __init__(self, make: Callable[..., Thread], ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at, self.tokens, self.go, self.ends = 1000.0, 0, threading.Event(), ends
        self.go.set()
        for module in (thread_module, transport_module, oauth):
            monkeypatch.setattr(module, "now", lambda: self.at)
        self.trouble: Exception | None = None
        self.thread = make(sasl_oauth_token=self._token, **TOKENS)
        monkeypatch.setattr(self.thread.machine, "deadline", lambda: float("inf"))
        has(self.thread, ends, JOIN)
        ends.transport._session_ends_at = 1010.0
        ends.transport.authenticate_at = self.at
        ends.session.awaited = (1,)

    def _token(self) -> str:
        self.tokens += 1
        assert self.go.wait(PATIENCE)
        if self.trouble is not None:
            raise self.trouble
        return "token"

    def turn(self) -> None:
        self.thread._authenticate_due()

    def token_comes(self) -> None:
        self.thread.woken()
        self.turn()

    def sends(self, number: int) -> None:
        self.thread._act([Transmit(key=JOIN, request_id=number, request=ApiVersions())])

    def response(self, at: float) -> None:
        """A part of it before the rest."""
        self.at = at
        self.ends.send(struct.pack(">i", 6))
        self.thread._ready(JOIN, selectors.EVENT_READ)
        self.ends.session.awaited = ()
        self.ends.send(b"joined")
        self.thread._ready(JOIN, selectors.EVENT_READ)


@pytest.fixture
def joined(make: Callable[..., Thread], ends: Ends, monkeypatch: pytest.MonkeyPatch) -> Joined:
    return Joined(make, ends, monkeypatch)


@pytest.mark.parametrize("at", [1005.0, 1060.0])
def test_behind_a_pending_join_no_token_is_chosen_before_its_response(joined: Joined, at: float) -> None:
    """The broker reads it when it has responded to the Join: the token might have ended by then, which is fatal."""
    joined.turn()
    joined.sends(2)
    assert joined.thread._deadline() == float("inf"), "nothing is to be done before"
    joined.response(at)
    assert joined.tokens == 0
    assert joined.thread._deadline() == at
    joined.turn()
    assert joined.ends.session.sent == [], "the session may have ended"
    joined.token_comes()
    assert joined.ends.heard(10) == b"[who I am]"
    joined.ends.welcome()
    assert joined.ends.heard(3) == b"[2]"
    assert joined.tokens == 1
    assert joined.thread.machine.told == []


def test_a_join_that_is_sent_while_a_token_is_requested_is_awaited_first(joined: Joined) -> None:
    joined.ends.session.awaited = ()
    joined.turn()
    joined.sends(1)
    joined.ends.session.awaited = (1,)
    joined.token_comes()
    assert joined.ends.heard(3) == b"[1]"
    assert joined.ends.transport.ready, "the broker would read it when it has responded"
    joined.sends(2)
    joined.response(1060.0)
    joined.turn()
    joined.token_comes()
    assert joined.tokens == 2, "the first one may have ended"
    assert joined.ends.heard(10) == b"[who I am]"


def test_a_session_that_ends_behind_a_pending_join_ends_nothing(joined: Joined) -> None:
    joined.go.clear()
    joined.ends.session.awaited = ()
    joined.turn()
    joined.sends(1)
    joined.ends.session.awaited = (1,)
    joined.at = 1010.0
    joined.turn()
    assert joined.thread._deadline() == float("inf")
    joined.response(1011.0)
    joined.turn()
    joined.go.set()
    joined.token_comes()
    assert joined.ends.heard(13) == b"[1][who I am]"
    assert not joined.thread._preparing
    assert joined.thread.machine.told == []


def test_what_a_join_held_up_is_sent_where_no_token_comes_and_the_session_lasts(joined: Joined) -> None:
    joined.trouble = ConnectionError("no provider")
    joined.ends.session.unknown.add(2)
    joined.turn()
    for number in (2, 3):
        joined.sends(number)
    joined.response(1001.0)
    joined.turn()
    joined.token_comes()
    assert joined.ends.heard(3) == b"[3]"
    ((what, number, error),) = joined.thread.machine.told
    assert (what, number, type(error)) == ("response", 2, UnsupportedVersionError)
    assert joined.ends.transport.authenticate_at == 1002.0


def test_where_no_token_comes_after_the_session_the_connection_is_closed(joined: Joined) -> None:
    joined.trouble = ConnectionError("no provider")
    joined.turn()
    joined.sends(2)
    joined.response(1060.0)
    joined.turn()
    joined.token_comes()
    assert [each[:2] for each in joined.thread.machine.told] == [("closed", JOIN)]
    assert joined.ends.session.sent == []


@pytest.mark.parametrize(
    ("failure", "counts"),
    [
        (TlsError("the certificate is refused"), False),
        (UnsupportedSaslMechanismError("it takes PLAIN"), False),
        (IllegalSaslStateError("no SASL here"), False),
        (TransportError("reset"), False),
        (SaslAuthenticationFailedError("a bad token"), True),
        (AuthenticationError("the broker refused the OAuth token"), True),
    ],
    ids=lambda each: type(each).__name__,
)
def test_only_who_had_the_token_can_have_refused_it(
    make: Callable[..., Thread], ends: Ends, monkeypatch: pytest.MonkeyPatch, failure: KafkaError, counts: bool
) -> None:
    thread, refused = make(sasl_oauth_token=lambda: "token", **TOKENS), list[object]()
    assert thread._authenticator is not None
    monkeypatch.setattr(thread._authenticator, "refused", refused.append)
    thread._transports[KEY] = ends.transport
    mechanism: Any = object()
    thread._mechanisms[KEY] = mechanism
    ends.transport._fail(failure)
    thread._after(KEY)
    assert refused == ([mechanism] if counts else [])


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
    thread._over = NetworkThreadDiedError("of a bug")
    future = thread.future(1)
    thread.wake()
    assert future.exception(0) is thread._over


def test_what_is_handed_over_to_a_thread_that_has_ended_ends_at_once(make: Callable[..., Thread]) -> None:
    """By another task, while the one that closes waits for the thread."""
    thread = make()
    thread._clean_up()
    future = thread.future(1)
    thread.wake()
    assert isinstance(future.exception(0), ConsumerClosedError)


def test_a_thread_that_ends_closes_its_connections_and_ends_its_futures(
    make: Callable[..., Thread], ends: Ends
) -> None:
    thread = make()
    has(thread, ends)
    future = thread.future(1)
    thread._clean_up()
    assert ends.heard(1) == b""
    assert isinstance(future.exception(0), ConsumerClosedError)


@pytest.mark.parametrize("network", [True, False])
def test_a_callback_that_exits_is_survived_on_the_network_thread_alone(
    make: Callable[..., Thread], network: bool
) -> None:
    """On the application's own an interrupt goes on."""
    thread, raised = make(), list[BaseException]()
    futures = [thread.future(number) for number in (1, 2, 3)]
    for each in futures:
        each.add_done_callback(lambda _: sys.exit(3))

    def fail() -> None:
        try:
            thread._fail_futures(ConsumerClosedError("over"))
        except SystemExit as error:
            raised.append(error)

    runs = threading.Thread(target=fail)
    if network:
        thread._thread = runs
    runs.start()
    runs.join(PATIENCE)
    assert [each.done() for each in futures] == [network, network, True]
    assert bool(raised) != network
    while thread._futures:
        with suppress(SystemExit):
            thread._fail_futures(ConsumerClosedError("over"))


def test_a_child_may_begin_what_its_parent_had_not(make: Callable[..., Thread]) -> None:
    """A thread whose start had failed, say: it has no sockets that are another process's."""
    thread = make()
    assert thread in thread_module._with_sockets
    thread.let_go()
    assert not thread._stopping
    thread._open_own(thread.opened)


def test_what_a_thread_has_open_is_let_go_of_once_it_has_begun(
    make: Callable[..., Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a forked child the callback that forked on this thread may go on: it is to end."""
    thread, told = make(), list[str]()
    transport = cast("transport_module.Transport", SimpleNamespace(let_go=lambda: told.append("let go")))
    monkeypatch.setitem(thread._runs, "thread", True)
    monkeypatch.setitem(thread._transports, KEY, transport)
    thread.let_go()
    monkeypatch.setattr(thread, "_wake_pair", None)  # as once the thread has ended
    thread.let_go()
    assert (told, thread._stopping) == (["let go"] * 2, True)


def test_a_connection_is_known_to_a_fork_before_it_has_a_socket(
    make: Callable[..., Thread], listens: SocketAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child kept open what was just being opened."""
    thread, start, known = make(), transport_module.Transport._start, list[bool]()

    def watched(transport: transport_module.Transport, family: int, address: object) -> None:
        known.append(transport in thread._transports.values())
        start(transport, family, address)

    monkeypatch.setattr(transport_module.Transport, "_start", watched)
    monkeypatch.setattr(thread._resolver, "resolve", lambda host, port, on_done, **_: on_done([listens]))
    thread._open(OpenConnection(key=KEY, host="b", port=9092))
    resolved(thread)
    assert known == [True]


def test_a_connection_is_known_to_a_fork_until_its_socket_is_closed(
    make: Callable[..., Thread], ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child kept open what was just being closed."""
    thread, close, known = make(), socket.socket.close, list[bool]()
    has(thread, ends)
    mine = ends.transport._socket

    def watched(closing: socket.socket) -> None:
        if closing is mine:  # threads of others may close some, too
            known.append(ends.transport in thread._transports.values())
        close(closing)

    monkeypatch.setattr(socket.socket, "close", watched)
    thread._close(KEY, abort=True)
    assert known == [True]
    assert KEY not in thread._transports


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_what_is_aborted_is_reset_though_a_forked_child_lives_on(make: Callable[..., Thread], ends: Ends) -> None:
    """What the broker has not received by then must not arrive later."""
    thread = make()
    has(thread, ends)
    thread._runs["thread"] = True
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(writing)
            os.read(reading, 1)
        finally:  # not on to the rest of the tests
            os._exit(0)
    try:
        ends.transport.close(abort=True)
        with pytest.raises(ConnectionResetError):
            ends.heard(1)
    finally:
        os.close(writing)
        os.waitpid(child, 0)
        os.close(reading)


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
        assert consumer._driver.started
        assert list(consumer.list_topics(timeout=PATIENCE)) == ["t"]
        consumer.close()
        assert not thread.alive


def test_a_close_ends_the_thread_of_a_start_that_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lived on, and its member with it: the exception came between the start and the note of it."""
    running, start = threading.Event(), threading.Thread.start
    with closing(Broker()) as broker:
        consumer = Consumer(bootstrap_servers=f"127.0.0.1:{broker.port}")
        thread = consumer._driver._thread
        turn = thread._turn

        def noted() -> None:
            running.set()
            turn()

        def interrupted(self: threading.Thread) -> None:
            start(self)
            if self.name.startswith("instride-"):  # not the broker's own
                assert running.wait(PATIENCE)
                raise KeyboardInterrupt

        monkeypatch.setattr(thread, "_turn", noted)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                consumer.assign([TopicPartition("t", 0)])
        consumer.close(timeout=PATIENCE)
        assert not thread.alive


@pytest.mark.parametrize("verb", ["assignment", "assign"])
@pytest.mark.parametrize("moment", ["start", "_open_own", "_new_thread", "Thread.start"])
def test_a_verb_of_a_signals_handler_amid_a_start_neither_ends_nor_repeats_it(
    monkeypatch: pytest.MonkeyPatch, moment: str, verb: str
) -> None:
    with closing(Broker()) as broker:
        consumer = Consumer(bootstrap_servers=f"127.0.0.1:{broker.port}")
        thread, may_run, handled = consumer._driver._thread, threading.Event(), list[int]()
        run, turn, turning = thread._run, thread._turn, set[int]()

        def handler() -> None:
            if not handled:
                handled.append(1)
                consumer.assign([TopicPartition("t", 0)]) if verb == "assign" else consumer.assignment()

        def late(runs: dict[str, bool]) -> None:
            assert may_run.wait(PATIENCE)
            run(runs)

        def noted() -> None:
            turning.add(threading.get_ident())
            turn()

        def interrupted(call: Callable[..., Any], *, before: bool) -> Callable[..., Any]:
            def called(*arguments: Any) -> Any:
                if before:
                    handler()
                result = call(*arguments)
                handler()
                return result

            return called

        monkeypatch.setattr(thread, "_run", late)
        monkeypatch.setattr(thread, "_turn", noted)
        with monkeypatch.context() as patch:
            if moment == "Thread.start":
                patch.setattr(threading.Thread, "start", interrupted(threading.Thread.start, before=False))
            else:
                patch.setattr(thread, moment, interrupted(getattr(thread, moment), before=moment == "start"))
            consumer.assign([TopicPartition("t", 1)])
        assert handled
        may_run.set()
        assert list(consumer.list_topics(timeout=PATIENCE)) == ["t"]
        assert len(turning) == 1
        consumer.close(timeout=PATIENCE)
        assert not thread.alive


@pytest.mark.parametrize("verb", ["close", "list_topics"])
def test_a_thread_that_comes_after_its_start_was_given_up_does_nothing(
    monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """The system has it, and it has not come to run when the signal's exception comes."""
    late: list[threading.Thread] = []
    start = threading.Thread.start

    def interrupted(self: threading.Thread) -> None:
        late.append(self)
        raise KeyboardInterrupt

    with closing(Broker()) as broker:
        consumer = Consumer(bootstrap_servers=f"127.0.0.1:{broker.port}")
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                consumer.assign([TopicPartition("t", 0)])
        consumer.close() if verb == "close" else consumer.list_topics(timeout=PATIENCE)
        start(late[0])
        late[0].join(10.0)
        assert not late[0].is_alive()
        assert consumer._driver.alive == (verb != "close"), "it is another one's"
        consumer.close()


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


def test_the_gil_is_kept_for_as_long_as_one_thread_wants_it(
    make: Callable[..., Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one for the process. A thread that had wanted it took it from the others, or ended and left it kept."""
    kept: list[bool] = []
    monkeypatch.setattr(thread_module, "keep_gil", lambda *, keep: kept.append(keep))
    one, other = make(), make()
    for thread, keep, outcome in ((one, True, True), (other, True, True), (one, False, True)):
        thread._keep_gil(keep=keep)
        assert kept[-1] is outcome
    other._clean_up()
    assert kept[-1] is False


def test_a_forked_child_begins_with_no_thread_that_keeps_the_gil(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []
    monkeypatch.setattr(thread_module, "keep_gil", lambda *, keep: told.append(keep))
    monkeypatch.setattr(thread_module, "_keepers", {1})
    thread_module._begin_child()
    assert (told, thread_module._keepers) == ([False], set())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_in_a_forked_child_the_gil_is_not_kept(make: Callable[..., Thread], monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the threads that wanted it runs there."""
    told: list[bool] = []
    monkeypatch.setattr(thread_module, "keep_gil", lambda *, keep: told.append(keep))
    thread = make()
    thread._keep_gil(keep=True)
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if (told, thread_module._keepers) == ([True, False], set()) else 1
        finally:  # not on to the rest of the tests
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert told == [True]
    thread._clean_up()


def test_a_change_of_the_gil_that_meets_another_one_ends_as_it_should(
    make: Callable[..., Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[bool] = []
    one, other = make(), make()

    def meets(*, keep: bool) -> None:
        if len(kept) == 1:  # the other's whole change comes before this one's step
            kept.append(True)
            other._keep_gil(keep=True)
        kept.append(keep)

    monkeypatch.setattr(thread_module, "keep_gil", meets)
    one._keep_gil(keep=True)
    one._keep_gil(keep=False)
    assert kept[-1] is True
    other._clean_up()
    assert kept[-1] is False


def test_settings_that_change_bound_what_memory_is_kept_for_responses(make: Callable[..., Thread]) -> None:
    """It went on by the settings of the beginning: 18 MB beside a buffer of one."""
    thread = make(fetch_buffer_bytes=64 << 20)
    segment = thread._segments.new(bytes(1 << 20))
    thread._segments.keep(segment)
    del segment
    config = ConsumerConfig(bootstrap_servers="b:1", fetch_buffer_bytes=1 << 20)
    thread._handle(ChangeSettings(config=config), 0.0)
    assert thread._segments.take(1 << 20) is None
    assert thread.machine.told == [("handled", config)]


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
