"""The client-credentials grant: against an identity provider of our own in this process, over HTTPS."""

from __future__ import annotations

import base64
import json
import logging
import pickle
import ssl
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import pytest
import trustme
from security_help import PATIENCE, Certificates, Listeners, token

from instride import Consumer, OAuthClientCredentials, TopicPartition
from instride._net import oauth
from instride.errors import AuthenticationError, ConfigError, KafkaError, TlsError, TransportError

SECRET = "canary-secret/+ %"


class Provider:
    """response: what is sent for each request, as (status, headers, body); by default a token. asked: the requests."""

    def __init__(self) -> None:
        self.requested: list[tuple[str, dict[str, str], dict[str, list[str]]]] = []
        self.response: Callable[[], tuple[int, dict[str, str], bytes]] = self.token
        self.drips: threading.Event | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}/token?tenant=1"

    def token(self, **more: Any) -> tuple[int, dict[str, str], bytes]:
        given = {"access_token": token(), "token_type": "Bearer", "expires_in": 3600, **more}
        return 200, {"Content-Type": "application/json"}, json.dumps(given).encode()

    @contextmanager
    def serve(self, certificate: trustme.LeafCert) -> Iterator[None]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                provider.requested.append((self.path, dict(self.headers.items()), parse_qs(body)))
                if provider.drips is not None:
                    self.drip(provider.drips)
                    return
                status, headers, response = provider.response()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    self.wfile.write(response)
                except OSError:
                    pass  # it was too much for whoever asked

            def drip(self, end: threading.Event) -> None:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
                try:
                    while not end.wait(0.02):
                        self.wfile.write(b"x")
                except OSError:
                    pass

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                pass  # a client that does not trust us hangs up

        server = Server(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join(PATIENCE)
            server.server_close()


@pytest.fixture
def provider(certificates: Certificates) -> Iterator[Provider]:
    made = Provider()
    with made.serve(certificates.authority.issue_cert("localhost")):
        yield made


def grant(provider: Provider, certificates: Certificates, **more: Any) -> OAuthClientCredentials:
    given = {"token_url": provider.url, "client_id": "reader:1", "client_secret": SECRET, "timeout": PATIENCE}
    return OAuthClientCredentials(**{**given, "ca_file": certificates.file("ca.pem"), **more})


@pytest.mark.requirement("surface/oauth-client")
def test_a_token_and_how_it_was_requested(provider: Provider, certificates: Certificates) -> None:
    got = grant(provider, certificates, scope="kafka read", audience="a", extensions={"logicalCluster": "x"})()
    assert got.expires_in == 3600
    assert got.extensions == {"logicalCluster": "x"}
    path, headers, form = provider.requested[0]
    assert path == "/token?tenant=1"
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka read"], "audience": ["a"]}
    pair = base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()
    assert pair == "reader%3A1:canary-secret%2F%2B+%25"
    assert headers["Host"] == f"localhost:{provider.port}"


def test_credentials_in_the_body(provider: Provider, certificates: Certificates) -> None:
    grant(provider, certificates, send_in="body")()
    _, headers, form = provider.requested[0]
    assert "Authorization" not in headers
    assert (form["client_id"], form["client_secret"]) == (["reader:1"], [SECRET])


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost/token",
        "file:///etc/passwd",
        "ftp://localhost/x",
        "HTTPS//localhost",
        "https:///x",
        "https://u:p@localhost/x",
        "https://localhost/x#y",
        "https://localhost:0/",
        "https://localhost:99999/",
        "https://local host/",
        "https://localhost/\r\nX: y",
        "https://[::1/",
        None,
    ],
)
def test_other_urls_are_refused(url: Any) -> None:
    with pytest.raises(ConfigError, match="token_url"):
        OAuthClientCredentials(token_url=url, client_id="c", client_secret=SECRET)


@pytest.mark.parametrize(
    "wrong",
    [
        {"client_id": ""},
        {"client_secret": b"x"},
        {"send_in": "query"},
        {"timeout": 0},
        {"ca_file": "absent.pem"},
    ],
)
def test_other_settings_that_are_refused(wrong: dict[str, Any]) -> None:
    given: dict[str, Any] = {"token_url": "https://localhost/", "client_id": "c", "client_secret": SECRET}
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        OAuthClientCredentials(**{**given, **wrong})


def test_the_environment_can_narrow_which_urls_may_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSTRIDE_OAUTH_ALLOWED_URLS", "https://a.test/token, https://b.test/token")
    OAuthClientCredentials(token_url="https://b.test/token", client_id="c", client_secret=SECRET)
    for url in ("https://c.test/token", "https://b.test/token/", "https://b.test/"):
        with pytest.raises(ConfigError, match="INSTRIDE_OAUTH_ALLOWED_URLS"):
            OAuthClientCredentials(token_url=url, client_id="c", client_secret=SECRET)
    monkeypatch.setenv("INSTRIDE_OAUTH_ALLOWED_URLS", "")
    with pytest.raises(ConfigError):
        OAuthClientCredentials(token_url="https://b.test/token", client_id="c", client_secret=SECRET)


def test_a_redirect_is_not_followed(provider: Provider, certificates: Certificates) -> None:
    provider.response = lambda: (307, {"Location": provider.url + "&again=1"}, b"")
    with pytest.raises(AuthenticationError, match="HTTP status 307"):
        grant(provider, certificates)()
    assert len(provider.requested) == 1


def test_an_authority_that_is_not_trusted(provider: Provider, certificates: Certificates) -> None:
    for ca_file in (certificates.file("other-ca.pem"), None):
        with pytest.raises(TlsError, match="certificate"):
            grant(provider, certificates, ca_file=ca_file)()
    assert provider.requested == []


def test_a_certificate_of_another_name(certificates: Certificates) -> None:
    provider = Provider()
    with provider.serve(certificates.authority.issue_cert("other.test")), pytest.raises(TlsError, match="certificate"):
        grant(provider, certificates)()
    assert provider.requested == []


def test_nobody_there(provider: Provider, certificates: Certificates) -> None:
    with pytest.raises(TransportError, match="ConnectionRefusedError"):
        grant(provider, certificates, token_url="https://localhost:1/token")()


def test_a_response_that_drips_is_given_up_in_time(provider: Provider, certificates: Certificates) -> None:
    provider.drips = threading.Event()
    try:
        with pytest.raises(TransportError, match=r"within 0\.5 s"):
            grant(provider, certificates, timeout=0.5)()
    finally:
        provider.drips.set()


def test_a_response_whose_bytes_always_come_in_time_is_given_up_too(
    provider: Provider, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No single read takes too long: all together do."""
    clock = SimpleNamespace(monotonic=lambda: 1e9 if provider.requested else 0.0)
    monkeypatch.setattr(oauth, "time", clock)
    provider.drips = threading.Event()
    try:
        with pytest.raises(TransportError, match="TimeoutError"):
            grant(provider, certificates)()
    finally:
        provider.drips.set()


@pytest.mark.parametrize("headers", [{}, {"Content-Length": str(1 << 40)}])
def test_a_response_that_is_too_long(provider: Provider, certificates: Certificates, headers: dict[str, str]) -> None:
    provider.response = lambda: (200, headers, b" " * (1 << 18))
    with pytest.raises(TransportError, match="HTTPException"):
        grant(provider, certificates)()


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (
            401,
            {"error": "invalid_client", "error_description": f"no {SECRET}\n here"},
            r"401: invalid_client no \*\*\*\?",
        ),
        (503, b"<html>", "503: -"),
        (200, b"not json", "access_token"),
        (200, b"[" * 100_000, "access_token"),
        (200, [], "access_token"),
        (200, {"access_token": 5}, "access_token"),
        (200, {"access_token": "t", "token_type": "mac"}, "bearer"),
        (200, {"access_token": "a b"}, "cannot be"),
        (200, {"access_token": "t", "expires_in": "soon"}, "cannot be"),
        (200, {"access_token": "t", "expires_in": -1}, "cannot be"),
        (200, {"access_token": "t", "expires_in": 10**400}, "cannot be"),
        (200, {"access_token": "t", "expires_in": 10**10}, "cannot be"),
        (200, {"access_token": "t", "expires_in": True}, "cannot be"),
        (200, {"access_token": "t", "expires_in": [1]}, "cannot be"),
    ],
)
def test_responses_without_a_good_token(
    provider: Provider, certificates: Certificates, status: int, body: Any, told: str
) -> None:
    provider.response = lambda: (status, {}, body if isinstance(body, bytes) else json.dumps(body).encode())
    with pytest.raises(AuthenticationError, match=told) as raised:
        grant(provider, certificates)()
    assert "canary" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(("given", "seconds"), [(60, 60.0), ("60", 60.0), (None, None)])
def test_how_long_it_is_good(provider: Provider, certificates: Certificates, given: Any, seconds: Any) -> None:
    provider.response = lambda: provider.token(expires_in=given)
    assert grant(provider, certificates)().expires_in == seconds


def test_it_can_be_sent_to_another_process(provider: Provider, certificates: Certificates) -> None:
    copy = pickle.loads(pickle.dumps(grant(provider, certificates)))
    assert copy().expires_in == 3600


@pytest.mark.requirement("surface/secrets")
def test_no_secret_is_shown(provider: Provider, certificates: Certificates) -> None:
    made = grant(provider, certificates)
    assert repr(made) == f"<OAuthClientCredentials of 'reader:1' at {provider.url}>"


# -- with a broker


@pytest.mark.requirement("surface/oauth-client")
@pytest.mark.kafka
def test_a_consumer_reads_with_tokens_that_are_fetched_anew_before_they_end(
    provider: Provider, certificates: Certificates, listeners: Listeners, open_consumer: Callable[..., Consumer]
) -> None:
    """The broker ends sessions after three seconds; each token says that it is good for two."""
    provider.response = lambda: provider.token(expires_in=2)
    settings = listeners.sasl("OAUTHBEARER", "SASLSHORT", sasl_oauth_token=grant(provider, certificates))
    consumer = open_consumer(fetch_max_wait=0.1, **settings)
    consumer.assign([TopicPartition("secured", 0)])
    values: list[bytes | None] = []
    while len(provider.requested) < 3 or len(values) < 20:
        values += [record.value for record in consumer.poll(timeout=0.1)]
    assert values == [str(number).encode() for number in range(20)]


@pytest.mark.kafka
def test_a_refusal_of_the_provider_is_raised_as_it_is(
    provider: Provider,
    certificates: Certificates,
    listeners: Listeners,
    open_consumer: Callable[..., Consumer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    provider.response = lambda: (401, {}, b'{"error": "invalid_client"}')
    settings = listeners.sasl("OAUTHBEARER", sasl_oauth_token=grant(provider, certificates))
    consumer = open_consumer(**settings)
    consumer.assign([TopicPartition("secured", 0)])
    with pytest.raises(AuthenticationError, match="HTTP status 401: invalid_client") as raised:
        consumer.poll(timeout=PATIENCE)
    assert isinstance(raised.value, KafkaError)
    assert "canary" not in caplog.text
    provider.response = provider.token
    deadline_polls = 0
    while not consumer.poll(timeout=1.0):
        deadline_polls += 1
        assert deadline_polls < PATIENCE
