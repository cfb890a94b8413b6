"""TLS and every SASL mechanism against a real broker: what works, and what is refused and how."""

from __future__ import annotations

import contextlib
import functools
import logging
import ssl
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from security_help import PASSWORD, PATIENCE, USER, Listeners, add_scram_user, connections_outlast, token

from instride import Consumer, OAuthToken, TopicPartition
from instride.errors import (
    AuthenticationError,
    KafkaError,
    NotKafkaError,
    SaslAuthenticationFailedError,
    TlsError,
    TransportError,
)

pytestmark = pytest.mark.kafka

Open = Callable[..., Consumer]
TP = TopicPartition("secured", 0)
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def consumes_and_commits(open_consumer: Open, settings: dict[str, Any]) -> None:
    """A member of a group reads all records and commits them; the broker knows the commit."""
    consumer = open_consumer(group_id=f"g-{uuid.uuid4().hex[:8]}", **settings)
    consumer.subscribe(["secured"])
    values: list[bytes | None] = []
    deadline = time.monotonic() + PATIENCE
    while len(values) < 20:
        assert time.monotonic() < deadline, f"{len(values)} records came"
        values += [record.value for record in consumer.poll(timeout=0.2)]
    assert values == [str(number).encode() for number in range(20)]
    consumer.commit(timeout=PATIENCE)
    found = consumer.committed(TP, timeout=PATIENCE)[TP]
    assert found is not None
    assert found.offset == 20


def refused(consumer: Consumer, kind: type[KafkaError], words: str) -> None:
    """Poll raises it, soon."""
    consumer.assign([TP])
    with pytest.raises(kind, match=words):
        consumer.poll(timeout=PATIENCE)


# -- TLS


@pytest.mark.requirement("surface/tls")
def test_tls_with_our_own_authority(listeners: Listeners, open_consumer: Open) -> None:
    consumes_and_commits(open_consumer, listeners.tls())


def test_a_context_of_the_users_own(listeners: Listeners, open_consumer: Open) -> None:
    context = ssl.create_default_context(cafile=listeners.certificates.file("ca.pem"))
    consumer = open_consumer(**listeners.tls(ssl_ca_file=None, ssl_context=context))
    assert consumer.end_offsets([TP], timeout=PATIENCE) == {TP: 20}


@pytest.mark.requirement("surface/tls")
def test_an_unknown_authority_is_refused(listeners: Listeners, open_consumer: Open) -> None:
    other = listeners.certificates.file("other-ca.pem")
    refused(open_consumer(**listeners.tls(ssl_ca_file=other)), TlsError, "ssl_ca_file")
    refused(open_consumer(**listeners.tls(ssl_ca_file=None)), TlsError, "ssl_ca_file")


@pytest.mark.requirement("surface/tls-names")
def test_a_wrong_name_is_refused_unless_told_otherwise(listeners: Listeners, open_consumer: Open) -> None:
    refused(open_consumer(**listeners.tls("WRONGNAME")), TlsError, "advertised.listeners")
    consumer = open_consumer(**listeners.tls("WRONGNAME", ssl_check_hostname=False))
    assert consumer.end_offsets([TP], timeout=PATIENCE) == {TP: 20}
    other = listeners.certificates.file("other-ca.pem")
    lenient = open_consumer(**listeners.tls("WRONGNAME", ssl_check_hostname=False, ssl_ca_file=other))
    refused(lenient, TlsError, "ssl_ca_file")


@pytest.mark.requirement("surface/tls")
def test_an_expired_certificate_is_refused(listeners: Listeners, open_consumer: Open) -> None:
    refused(open_consumer(**listeners.tls("EXPIRED")), TlsError, "expired")


@pytest.mark.requirement("surface/tls-client")
@pytest.mark.parametrize("key", ["key.pem", "key-encrypted.pem"])
def test_a_client_certificate(listeners: Listeners, open_consumer: Open, key: str) -> None:
    files = {
        "ssl_cert_file": listeners.certificates.file("cert.pem"),
        "ssl_key_file": listeners.certificates.file(key),
        "ssl_key_password": "canary-key-password" if "encrypted" in key else None,
    }
    consumer = open_consumer(**listeners.tls("MUTUAL", **files))
    assert consumer.end_offsets([TP], timeout=PATIENCE) == {TP: 20}


@pytest.mark.requirement("surface/tls-client")
def test_a_client_certificate_that_is_missing(listeners: Listeners, open_consumer: Open) -> None:
    refused(open_consumer(**listeners.tls("MUTUAL", request_timeout=1.0)), KafkaError, "ssl_cert_file")


def test_plain_text_to_a_tls_port(listeners: Listeners, open_consumer: Open) -> None:
    refused(open_consumer(bootstrap_servers=listeners.kafka.listener("TLS")), NotKafkaError, "security_protocol")


@pytest.mark.requirement("surface/tls-downgrade")
def test_tls_to_a_plain_text_port(listeners: Listeners, open_consumer: Open) -> None:
    servers = listeners.kafka.bootstrap_servers
    consumer = open_consumer(**listeners.tls(bootstrap_servers=servers, request_timeout=1.0))
    refused(consumer, TransportError, "security_protocol")


# -- SASL


@pytest.mark.requirement("surface/scram")
@pytest.mark.requirement("surface/plain")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_mechanism_over_tls(listeners: Listeners, open_consumer: Open, mechanism: str) -> None:
    consumes_and_commits(open_consumer, listeners.sasl(mechanism))


@pytest.mark.requirement("surface/scram")
@pytest.mark.requirement("surface/plain")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_mechanism_without_tls(listeners: Listeners, open_consumer: Open, mechanism: str) -> None:
    exposed = mechanism in ("PLAIN", "OAUTHBEARER")
    settings = listeners.sasl(mechanism, "SASLPLAIN", sasl_plain_without_tls=exposed)
    settings |= {"security_protocol": "SASL_PLAINTEXT", "ssl_ca_file": None}
    consumer = open_consumer(**settings)
    assert consumer.end_offsets([TP], timeout=PATIENCE) == {TP: 20}


@pytest.mark.requirement("surface/wrong-credentials")
@pytest.mark.parametrize(
    ("mechanism", "wrong"),
    [
        ("PLAIN", {"sasl_password": "wrong"}),
        ("SCRAM-SHA-256", {"sasl_password": "wrong"}),
        ("SCRAM-SHA-512", {"sasl_username": "nobody"}),
        ("OAUTHBEARER", {"sasl_oauth_token": lambda: token(lifetime=-60.0)}),
        ("OAUTHBEARER", {"sasl_oauth_token": lambda: "no-jwt"}),
    ],
)
def test_wrong_credentials_are_refused(
    listeners: Listeners, open_consumer: Open, mechanism: str, wrong: dict[str, Any]
) -> None:
    consumer = open_consumer(**listeners.sasl(mechanism, **wrong))
    refused(consumer, SaslAuthenticationFailedError, f"refused {mechanism}|invalid")


@pytest.mark.requirement("surface/wrong-credentials")
def test_every_call_that_waits_tells_of_wrong_credentials(listeners: Listeners, open_consumer: Open) -> None:
    consumer = open_consumer(group_id="refused", **listeners.sasl("PLAIN", sasl_password="wrong"))
    refused(consumer, AuthenticationError, listeners.kafka.listener("SASLTLS"))
    calls: tuple[Callable[[], object], ...] = (
        lambda: consumer.poll(timeout=PATIENCE),
        lambda: consumer.position(TP, timeout=PATIENCE),
        lambda: consumer.committed(TP, timeout=PATIENCE),
        lambda: consumer.end_offsets([TP], timeout=PATIENCE),
        lambda: consumer.commit({TP: 1}, timeout=PATIENCE),
    )
    for call in calls:
        with pytest.raises(AuthenticationError):
            call()


@pytest.mark.requirement("surface/wrong-credentials")
def test_it_goes_on_when_the_user_is_created_later(listeners: Listeners, open_consumer: Open) -> None:
    name = f"late-{uuid.uuid4().hex[:8]}"
    settings = listeners.sasl("SCRAM-SHA-256", sasl_username=name, sasl_password="late")
    consumer = open_consumer(group_id=name, **settings)
    consumer.subscribe(["secured"])
    with pytest.raises(AuthenticationError):
        consumer.poll(timeout=PATIENCE)
    add_scram_user(listeners.kafka, name, "late")
    deadline = time.monotonic() + PATIENCE
    records: list[Any] = []
    while not records:
        assert time.monotonic() < deadline
        try:
            records += consumer.poll(timeout=1.0)
        except AuthenticationError:
            continue
    assert records[0].value == b"0"


def test_a_password_beyond_ascii(listeners: Listeners, open_consumer: Open) -> None:
    add_scram_user(listeners.kafka, "beyond", "pä\u2168ss")
    consumer = open_consumer(**listeners.sasl("SCRAM-SHA-512", sasl_username="beyond", sasl_password="pä\u2168ss"))
    assert consumer.end_offsets([TP], timeout=PATIENCE) == {TP: 20}


def test_sasl_to_a_listener_without(listeners: Listeners, open_consumer: Open) -> None:
    refused(open_consumer(**listeners.sasl("SCRAM-SHA-256", "TLS")), AuthenticationError, "security_protocol")


def test_no_sasl_to_a_listener_with(listeners: Listeners, open_consumer: Open) -> None:
    consumer = open_consumer(**listeners.tls("SASLTLS", request_timeout=1.0))
    refused(consumer, TransportError, "security_protocol")


# -- re-authentication


@pytest.mark.requirement("surface/re-authentication")
def test_sessions_go_on_over_several_lifetimes(
    listeners: Listeners, open_consumer: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """No connection is closed and no record missed or repeated in three lifetimes of three seconds."""
    caplog.set_level(logging.DEBUG, "instride")
    requested: list[float] = []

    def fresh() -> str:
        requested.append(time.monotonic())
        return token()

    consumers: dict[Consumer, list[bytes | None]] = {}
    for mechanism in ("PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"):
        who = {"sasl_oauth_token": fresh} if mechanism == "OAUTHBEARER" else {}
        settings = listeners.sasl(mechanism, "SASLSHORT", **who)
        consumer = open_consumer(group_id=f"g-{uuid.uuid4().hex[:8]}", fetch_max_wait=0.1, **settings)
        consumer.subscribe(["secured"])
        consumers[consumer] = []

    def turn() -> None:
        for consumer, values in consumers.items():
            values += [record.value for record in consumer.poll(timeout=0.1)]
            if values:
                consumer.commit(timeout=PATIENCE)

    deadline = time.monotonic() + PATIENCE
    while not all(consumers.values()):
        assert time.monotonic() < deadline, "no records came"
        turn()
    connections_outlast(9.5, turn, caplog)
    for values in consumers.values():
        assert values == [str(number).encode() for number in range(20)]
    assert len(requested) >= 6


# -- OAuth tokens


@pytest.mark.requirement("surface/oauth-token")
def test_a_token_that_says_how_long_it_is_good_is_requested_once(listeners: Listeners, open_consumer: Open) -> None:
    requested: list[str] = []

    def function() -> OAuthToken:
        requested.append(threading.current_thread().name)
        return OAuthToken(value=token(), expires_in=3600.0)

    consumes_and_commits(open_consumer, listeners.sasl("OAUTHBEARER", sasl_oauth_token=function))
    assert requested == ["instride-oauth-token"]


@pytest.mark.requirement("surface/oauth-token")
def test_a_token_function_that_hangs_is_called_again_a_few_times(listeners: Listeners, open_consumer: Open) -> None:
    release = threading.Event()
    calls: list[None] = []

    def hang() -> str:
        calls.append(None)
        release.wait(PATIENCE)
        return token()

    settings = listeners.sasl("OAUTHBEARER", sasl_oauth_token=hang, connection_setup_timeout=0.5)
    consumer = open_consumer(**settings)
    consumer.assign([TP])
    with pytest.raises(TransportError, match="sasl_oauth_token did not return"):
        consumer.poll(timeout=PATIENCE)
    while len(calls) < 4:  # each comes later than the one before; no more of them may hang (test_tokens.py)
        with contextlib.suppress(TransportError):
            consumer.poll(timeout=0.2)
    release.set()
    while not consumer.poll(timeout=PATIENCE):
        pass


def test_a_token_function_that_raises(listeners: Listeners, open_consumer: Open) -> None:
    def broken() -> str:
        raise LookupError("the identity provider is down")

    consumer = open_consumer(**listeners.sasl("OAUTHBEARER", sasl_oauth_token=broken))
    consumer.assign([TP])
    with pytest.raises(AuthenticationError, match="raised LookupError") as told:
        consumer.poll(timeout=PATIENCE)
    assert isinstance(told.value.__cause__, LookupError)


# -- secrets


@pytest.mark.requirement("surface/secrets")
def test_no_secret_is_in_logs_reprs_or_errors(
    listeners: Listeners, open_consumer: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """Everything at DEBUG, of what works and what fails, is searched for planted secrets."""
    caplog.set_level(logging.DEBUG)
    secret_token = token(scope="canary")
    seen: list[str] = []
    for mechanism in MECHANISMS:
        for password in (PASSWORD, "canary-wrong"):
            who: dict[str, Any] = {"sasl_password": password}
            if mechanism == "OAUTHBEARER":
                good = secret_token if password == PASSWORD else "canary-token"
                who = {"sasl_oauth_token": functools.partial(str, good)}
            consumer = open_consumer(group_id="secrets", **listeners.sasl(mechanism, **who))
            consumer.assign([TP])
            seen += [repr(consumer), repr(consumer._config)]
            try:
                consumer.poll(timeout=PATIENCE)
            except KafkaError as error:
                seen += [repr(error), *traceback.format_exception(error)]
            consumer.close(timeout=2.0)
    seen.append(caplog.text)
    assert any("refused" in text for text in seen)
    for text in seen:
        assert "canary" not in text
        assert secret_token.split(".")[1] not in text
        assert USER not in caplog.text
