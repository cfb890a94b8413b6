"""What a function that gives tokens does, and what those hear who wait for one. In virtual time."""

from __future__ import annotations

import errno
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from email.message import Message
from http.client import BadStatusLine, IncompleteRead, InvalidURL
from subprocess import CalledProcessError, TimeoutExpired
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError, URLError

import pytest

from instride import OAuthToken
from instride._net import oauth
from instride._net.credentials import authenticator
from instride._net.oauth import TokenAuthenticator
from instride._wire.sasl.oauthbearer import OAuthBearer
from instride.config import ConsumerConfig
from instride.errors import AuthenticationError, TransportError

PATIENCE = 60.0


class Asks:
    """The network thread's side. found: what the preparations came to. asked: how often the function was called."""

    def __init__(self, function: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
        self.at, self.asked = 1000.0, 0
        self.found: list[Any] = []
        self.woken = threading.Event()
        self.told: list[str] = []
        self._function = function
        monkeypatch.setattr(oauth, "now", lambda: self.at)
        made = authenticator(
            ConsumerConfig(
                bootstrap_servers="b:1",
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                sasl_plain_without_tls=True,
                sasl_oauth_token=self._counted,  # type: ignore[arg-type]  # what is wrong is tried too
            ),
            self.woken.set,
            lambda error: self.told.append(str(error)),
        )
        assert isinstance(made, TokenAuthenticator)
        self.authenticator = made

    def _counted(self) -> object:
        self.asked += 1
        return self._function()

    def prepare(self) -> None:
        self.authenticator.prepare("b", self.found.append)

    def arrived(self) -> None:
        assert self.woken.wait(PATIENCE)
        self.woken.clear()
        self.authenticator.poll()

    def outcome(self) -> Any:
        self.prepare()
        self.arrived()
        return self.found.pop()


class Provider:
    """Returns when it is told to."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def __call__(self) -> str:
        assert self.go.wait(PATIENCE)
        return "token"


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    yield made
    made.go.set()


def raising(error: BaseException) -> Callable[[], str]:
    def function() -> str:
        raise error

    return function


def test_all_that_wait_get_the_result_of_one_call(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    asks = Asks(provider, monkeypatch)
    for _ in range(3):
        asks.prepare()
    assert asks.found == []
    provider.go.set()
    asks.arrived()
    assert [type(each) for each in asks.found] == [OAuthBearer] * 3
    assert asks.asked == 1


def test_a_function_that_does_not_return_is_given_up(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the connection's own end, so that it says why; for whoever came later it is called once more."""
    asks = Asks(provider, monkeypatch)
    asks.prepare()
    asks.at = asks.authenticator.deadline - 1.0
    asks.prepare()
    asks.authenticator.poll()
    assert asks.found == []
    asks.at += 1.0
    asks.authenticator.poll()
    (error,) = asks.found
    assert isinstance(error, TransportError), "it may return in time when it is called again"
    assert "sasl_oauth_token did not return within 8 s (see connection_setup_timeout)" in str(error)
    provider.go.set()
    while len(asks.found) < 2:
        asks.arrived()
    assert [type(each) for each in asks.found] == [TransportError, OAuthBearer]
    assert asks.authenticator.deadline == float("inf")
    assert asks.asked == 2


class HangsOnce(Provider):
    """returned: what each call returns, in turn."""

    def __init__(self, *returned: object) -> None:
        super().__init__()
        self._returned = iter(returned)
        self._calls = 0

    def __call__(self) -> Any:
        self._calls += 1
        returned = next(self._returned)
        if self._calls == 1:
            assert self.go.wait(PATIENCE)
        if isinstance(returned, Exception):
            raise returned
        return returned


@pytest.mark.parametrize("late", [OAuthToken(value="late", expires_in=3600.0), AuthenticationError("late")])
def test_what_a_call_returns_that_was_given_up_takes_nothing_back(
    late: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = HangsOnce(late, OAuthToken(value="good", expires_in=3600.0), "another")
    asks = Asks(hangs, monkeypatch)
    asks.prepare()
    asks.at = asks.authenticator.deadline
    asks.authenticator.poll()
    assert [type(each) for each in asks.found] == [TransportError]
    asks.at += 1.0
    assert asks.outcome().token.value == "good"
    hangs.go.set()
    asks.arrived()
    asks.prepare()
    assert [each.token.value for each in asks.found[1:]] == ["good"]
    assert asks.asked == 2


def test_a_late_token_is_better_than_none(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = HangsOnce(OAuthToken(value="late", expires_in=3600.0))
    asks = Asks(hangs, monkeypatch)
    asks.prepare()
    asks.at = asks.authenticator.deadline
    asks.authenticator.poll()
    hangs.go.set()
    asks.arrived()
    asks.prepare()
    assert asks.found[1].token.value == "late"
    assert asks.asked == 1


def test_of_calls_that_hang_there_is_a_bounded_number(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    asks = Asks(provider, monkeypatch)
    for _ in range(20):
        asks.prepare()
        asks.at = asks.authenticator.deadline
        asks.authenticator.poll()
        asks.at += 60.0
    assert len(asks.found) == 20
    assert {type(each) for each in asks.found} == {TransportError}
    assert asks.asked == oauth._MOST_HANGING
    provider.go.set()
    while asks.authenticator._hanging:
        asks.arrived()
    assert isinstance(asks.outcome(), OAuthBearer)


def test_a_token_that_does_not_say_how_long_it_is_good_is_used_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for token in ("token", OAuthToken(value="token")):
        asks = Asks(lambda token=token: token, monkeypatch)  # type: ignore[misc]
        assert [asks.outcome().token.value for _ in range(3)] == ["token"] * 3
        assert asks.asked == 3


def test_a_token_that_says_so_is_used_for_four_fifths_of_that_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asks = Asks(lambda: OAuthToken(value="token", expires_in=100.0), monkeypatch)
    asks.outcome()
    asks.at += 79.0
    asks.prepare()
    assert (len(asks.found), asks.asked) == (1, 1)
    asks.at += 1.0
    asks.prepare()
    asks.arrived()
    assert (len(asks.found), asks.asked) == (2, 2)


@pytest.mark.parametrize(("life", "good"), [(100.0, 80.0), (20.0, 10.0), (10.0, 4.5), (1.0, 0.45)])
def test_of_a_short_life_so_much_is_left_that_a_new_token_may_take_its_time(
    life: float, good: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = Asks(lambda: OAuthToken(value="token", expires_in=life), monkeypatch)
    asks.outcome()
    began = asks.at
    asks.at = began + good - 0.01
    asks.prepare()
    assert asks.asked == 1
    asks.at = began + good + 0.01
    asks.prepare()
    asks.arrived()
    assert asks.asked == 2


class Fails:
    """Returns a token that is good for a hundred seconds, or raises `error` where there is one."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __call__(self) -> OAuthToken:
        if self.error is not None:
            raise self.error
        return OAuthToken(value="token", expires_in=100.0)


@pytest.mark.parametrize("error", [ConnectionError(), AuthenticationError("locked out"), ZeroDivisionError()])
def test_where_there_is_no_new_token_the_old_one_serves_until_it_ends(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = Fails()
    asks = Asks(fails, monkeypatch)
    old = asks.outcome().token
    began = asks.at
    fails.error = error
    asks.at = began + 80.0
    assert asks.outcome().token is old
    assert len(asks.told) == 1, "it is told, and not raised"
    calls = []
    while asks.at < began + 99.9:
        asks.at += 0.1
        asked = asks.asked
        asks.prepare()
        if asks.authenticator._waiting:
            asks.arrived()
        calls += [round(asks.at - began, 1)] * (asks.asked - asked)
        assert asks.found.pop().token is old
    assert calls == [81.1, 83.2, 87.3, 95.4], "with a back-off"
    asks.at = began + 100.1
    assert not isinstance(asks.outcome(), OAuthBearer), "asked as it ends, whatever the back-off was"
    fails.error = None
    asks.at += 8.0
    assert asks.outcome().token is not old


@pytest.mark.parametrize("error", [ConnectionError(), AuthenticationError("locked out")])
def test_without_a_token_that_serves_the_function_is_called_with_a_back_off_too(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many connections ask for one. Who asks meanwhile hears why there is none."""
    fails = Fails()
    fails.error = error
    asks = Asks(fails, monkeypatch)
    began, calls = asks.at, list[float]()
    while asks.at < began + 30.0:
        asked = asks.asked
        asks.prepare()
        if asks.authenticator._waiting:
            asks.arrived()
        calls += [round(asks.at - began, 1)] * (asks.asked - asked)
        assert isinstance(asks.found.pop(), AuthenticationError | TransportError)
        asks.at += 0.5
    assert calls == [0.0, 1.0, 3.0, 7.0, 15.0, 23.0]
    assert asks.told == []
    fails.error = None
    asks.at += 8.0
    assert asks.outcome().token.value == "token"


def test_an_old_token_serves_where_the_function_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hangs(Provider):
        def __call__(self) -> Any:
            assert not asks.asked or asks.asked == 1 or self.go.wait(PATIENCE)
            return OAuthToken(value="token", expires_in=100.0)

    hangs = Hangs()
    asks = Asks(hangs, monkeypatch)
    old = asks.outcome().token
    asks.at += 80.0
    asks.prepare()
    asks.at = asks.authenticator.deadline
    asks.authenticator.poll()
    assert asks.found[0].token is old
    hangs.go.set()


def test_a_token_that_was_refused_serves_nobody_where_there_is_no_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = Fails()
    asks = Asks(fails, monkeypatch)
    asks.authenticator.refused(asks.outcome())
    fails.error = ConnectionError()
    asks.at += 5.0
    assert isinstance(asks.outcome(), TransportError)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda: 7, "sasl_oauth_token must return a text or an OAuthToken, not int"),
        (lambda: None, "sasl_oauth_token must return a text or an OAuthToken, not NoneType"),
        (lambda: "", "sasl_oauth_token: the OAuth token is empty, or has letters"),
        (lambda: "two words", "sasl_oauth_token: the OAuth token is empty, or has letters"),
        (raising(ZeroDivisionError("canary")), "sasl_oauth_token raised ZeroDivisionError"),
        (raising(SystemExit(1)), "sasl_oauth_token raised SystemExit"),
    ],
    ids=["a number", "nothing", "no letter", "a space", "an error", "an exit"],
)
def test_what_is_no_token_is_an_error_of_authentication(
    function: Callable[[], Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = Asks(function, monkeypatch).outcome()
    assert isinstance(error, AuthenticationError)
    assert str(error).startswith(told)
    assert "canary" not in str(error)


class StatusError(Exception):
    """As `httpx` and `requests` have it."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.response = SimpleNamespace(status_code=status)


class RefusedError(StatusError, OSError):
    """As `requests` has it."""


def caused(by: BaseException) -> Exception:
    error = RuntimeError("a package's own")
    error.__cause__ = by
    return error


def amid(dealt_with: BaseException, error: Exception) -> Exception:
    """Raised while another was dealt with."""
    error.__context__ = dealt_with
    return error


def from_none(dealt_with: BaseException) -> Exception:
    error = amid(dealt_with, ValueError("invalid_client"))
    error.__suppress_context__ = True
    return error


class MissingSchema(OSError, ValueError):  # noqa: N818 - as `requests` has it
    pass


class ChunkedEncodingError(OSError):
    """As `requests` has it."""


def of_package(module: str, name: str) -> Exception:
    """As the package has it, which need not be installed."""
    kind: type[Exception] = type(name, (Exception,), {"__module__": module})
    return kind("Server disconnected")


def in_a_circle() -> Exception:
    error = RuntimeError("a")
    error.__context__ = caused(error)
    return error


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ConnectionRefusedError(), True),
        (TimeoutError(), True),
        (caused(ConnectionResetError()), True),
        (caused(caused(TimeoutError())), True),
        (StatusError(503), True),
        (StatusError(429), True),
        (HTTPError("https://idp.test", 502, "Bad Gateway", Message(), None), True),
        (HTTPError("https://idp.test", 401, "Unauthorized", Message(), None), False),
        (RefusedError(401), False),
        (StatusError(403), False),
        (caused(ssl.SSLCertVerificationError()), False),
        (SystemExit(503), False),
        (KeyError("access_token"), False),
        (in_a_circle(), False),
        (socket.gaierror(socket.EAI_AGAIN, "again"), True),
        (OSError(errno.ENETUNREACH, "no network"), True),
        (OSError("Multiple exceptions: [Errno 111] ..."), True),
        (amid(TimeoutError(), URLError("timed out")), True),
        (amid(KeyError("no token in the cache"), ConnectionResetError()), True),
        (caused(ssl.SSLEOFError()), True),
        (FileNotFoundError(errno.ENOENT, "the secret's file"), False),
        (PermissionError(errno.EACCES, "the secret's file"), False),
        (amid(FileNotFoundError(errno.ENOENT, "the cache"), ValueError("invalid_client")), False),
        (from_none(ConnectionResetError()), False),
        (amid(ConnectionResetError(), NameError("a mistake")), False),
        (caused(amid(TimeoutError(), TypeError("a mistake"))), False),
        (URLError("unknown url type: htps"), False),
        (MissingSchema("no scheme supplied"), False),
        (ssl.SSLError(errno.ENETUNREACH, "a number of OpenSSL's"), False),
        (IncompleteRead(b"{", 5), True),
        (BadStatusLine(""), True),
        (amid(caused(IncompleteRead(b"{", 5)), ChunkedEncodingError()), True),
        (InvalidURL("nonnumeric port"), False),
        (TimeoutExpired("a program that prints a token", 5.0), True),
        (CalledProcessError(1, "a program that prints a token"), False),
        (of_package("httpx", "RemoteProtocolError"), True),
        (caused(of_package("httpcore", "RemoteProtocolError")), True),
        (of_package("aiohttp.client_exceptions", "ServerDisconnectedError"), True),
        (of_package("aiohttp.client_exceptions", "ClientPayloadError"), True),
        (of_package("httpx", "LocalProtocolError"), False),
        (of_package("billing.httpx", "RemoteProtocolError"), False),
    ],
    ids=lambda each: type(each).__name__,
)
def test_trouble_with_the_network_or_a_provider_is_no_refusal(
    error: BaseException, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Asks(raising(error), monkeypatch).outcome()
    assert type(found) is (TransportError if passes else AuthenticationError)
    assert str(found) == f"sasl_oauth_token raised {type(error).__name__}"
    assert found.__cause__ is error
    assert (found.retriable, found.fatal) == (passes, not passes)


@pytest.mark.parametrize("error", [AuthenticationError("locked out"), TransportError("no route")])
def test_an_error_of_our_own_is_told_as_it_is(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    asks = Asks(raising(error), monkeypatch)
    for _ in range(2):
        assert asks.outcome() is error
        asks.at += 8.0
    assert asks.asked == 2
