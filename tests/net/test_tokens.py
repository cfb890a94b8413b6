"""What a function that gives tokens does, and what those hear who wait for one. In virtual time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

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
    """Before the connection's own end, so that it says why; whoever comes later may still get what it returns."""
    asks = Asks(provider, monkeypatch)
    asks.prepare()
    asks.at = asks.authenticator.deadline - 1.0
    asks.prepare()
    asks.authenticator.poll()
    assert asks.found == []
    asks.at += 1.0
    asks.authenticator.poll()
    (error,) = asks.found
    assert isinstance(error, AuthenticationError)
    assert "sasl_oauth_token did not return within 8 s (see connection_setup_timeout)" in str(error)
    provider.go.set()
    asks.arrived()
    assert [type(each) for each in asks.found] == [AuthenticationError, OAuthBearer]
    assert asks.authenticator.deadline == float("inf")
    assert asks.asked == 1


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


@pytest.mark.parametrize("error", [AuthenticationError("locked out"), TransportError("no route")])
def test_an_error_of_our_own_is_told_as_it_is(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    asks = Asks(raising(error), monkeypatch)
    assert [asks.outcome() for _ in range(2)] == [error, error], "and the function is called again"
