"""A token that a broker refuses is not used for the rest of its life: the function is asked anew, with a back-off."""

from __future__ import annotations

import struct
import threading
from contextlib import closing
from typing import Any

import pytest

from attack.broker import Broker, Request
from attack.bytes_of import array, text
from instride import Consumer, OAuthToken
from instride._net.credentials import authenticator
from instride._net.oauth import TokenAuthenticator
from instride._wire.sasl.exchange import Mechanism
from instride._wire.sasl.oauthbearer import OAuthBearer
from instride.config import ConsumerConfig
from instride.errors import AuthenticationError

SETTINGS: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_plain_without_tls": True,
}


class Provider:
    """asked: when. Each token is another one, and good for an hour, or does not say how long."""

    def __init__(self) -> None:
        self.at = 1000.0
        self.expires_in: float | None = 3600.0
        self.requested: list[float] = []

    def __call__(self) -> OAuthToken:
        self.requested.append(self.at)
        return OAuthToken(value=f"token{len(self.requested)}", expires_in=self.expires_in)


class Asks:
    """What brokers are told."""

    def __init__(self, provider: Provider) -> None:
        self.woken = threading.Event()
        made = authenticator(
            ConsumerConfig(bootstrap_servers="b:1", sasl_oauth_token=provider, **SETTINGS), self.woken.set, print
        )
        assert isinstance(made, TokenAuthenticator)
        self.authenticator = made

    def mechanism(self) -> Mechanism:
        found: list[object] = []
        self.authenticator.prepare("b", found.append)
        while not found:
            assert self.woken.wait(60.0)
            self.woken.clear()
            self.authenticator.poll()
        assert isinstance(found[0], OAuthBearer)
        return found[0]


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Provider:
    made = Provider()
    monkeypatch.setattr("instride._net.oauth.now", lambda: made.at)
    return made


@pytest.mark.parametrize("expires_in", [3600.0, 0.5, None])
def test_the_function_is_called_with_a_growing_back_off(provider: Provider, expires_in: float | None) -> None:
    provider.expires_in = expires_in
    asks = Asks(provider)
    for _ in range(900):  # a connection each second, that is refused
        asks.authenticator.refused(asks.mechanism())
        provider.at += 1.0
    assert provider.requested[:7] == [1000.0, 1001.0, 1003.0, 1007.0, 1015.0, 1031.0, 1063.0]
    apart = [later - earlier for earlier, later in zip(provider.requested[6:], provider.requested[7:], strict=False)]
    assert set(apart) == {60.0}, "a minute at most"


def test_a_function_that_keeps_its_token_is_called_with_the_same_back_off(provider: Provider) -> None:
    """It was called twice, and then when the refused token was four fifths of its life old."""
    kept = OAuthToken(value="kept", expires_in=3600.0)
    called: list[float] = []

    class Keeping(Provider):
        def __call__(self) -> OAuthToken:
            called.append(provider.at)
            return kept

    asks = Asks(Keeping())
    for _ in range(200):
        asks.authenticator.refused(asks.mechanism())
        provider.at += 1.0
    assert called == [1000.0, 1001.0, 1003.0, 1007.0, 1015.0, 1031.0, 1063.0, 1123.0, 1183.0]


def test_the_back_off_ends_when_a_token_is_accepted(provider: Provider) -> None:
    asks = Asks(provider)
    for _ in range(100):
        asks.authenticator.refused(asks.mechanism())
        provider.at += 1.0
    provider.at += 60.0
    good = asks.mechanism()
    asks.authenticator.accepted(good)
    times = len(provider.requested)
    provider.at += 2000.0
    assert asks.mechanism().secrets == good.secrets, "it is used for its life"
    asks.authenticator.refused(good)
    assert asks.mechanism().secrets != good.secrets, "it was revoked"
    assert len(provider.requested) == times + 1


def test_a_late_refusal_of_an_older_token_does_not_count(provider: Provider) -> None:
    asks = Asks(provider)
    first = asks.mechanism()
    asks.authenticator.refused(first)
    provider.at += 5.0
    second = asks.mechanism()
    assert second.secrets != first.secrets
    provider.at += 5.0
    asks.authenticator.refused(first)
    assert asks.mechanism().secrets == second.secrets


class RefusesTheFirst(Broker):
    """Of two tokens."""

    sasl = True

    def sasl_handshake(self, _: Request) -> bytes:
        return struct.pack(">h", 0) + array([text("OAUTHBEARER")])

    def sasl_authenticate(self, request: Request) -> bytes:
        if b"Bearer token1\x01" in bytes(request["auth_bytes"]):
            return struct.pack(">h", 58) + text("a bad token") + struct.pack(">iq", 0, 0)
        return struct.pack(">hhiq", 0, -1, 0, 0)


def test_a_consumer_goes_on_with_the_next_token() -> None:
    provider = Provider()
    broker = RefusesTheFirst()
    with (
        closing(broker),
        Consumer(bootstrap_servers=f"127.0.0.1:{broker.port}", sasl_oauth_token=provider, **SETTINGS) as consumer,
    ):
        with pytest.raises(AuthenticationError):
            consumer.list_topics(timeout=60)
        found: object = None
        while not found:
            try:
                found = consumer.list_topics(timeout=60)
            except AuthenticationError:
                assert len(provider.requested) < 5
    assert len(provider.requested) == 2
