"""The client-credentials grant: against an identity provider of our own in this process, over HTTPS."""

from __future__ import annotations

import base64
import errno
import json
import logging
import pickle
import socket
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
                self.send_response_only(status)  # without a Date of its own
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
        "https://local..host/",
        f"https://{'x' * 64}.test/",
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
        {"ca_file": "a\0b"},
        {"ca_file": "\ud800"},
        *[{name: "x\ud800"} for name in ("client_id", "client_secret", "scope", "audience")],
        {"client_secret": "x\udfff", "send_in": "body"},
        {"extensions": {"logical_cluster": "x"}},
        {"extensions": {"auth": "x"}},
        {"extensions": {"a": 1}},
        {"extensions": {1: "a"}},
        {"extensions": {"a": "\1"}},
        {"extensions": 5},
        {"extensions": "abc"},
    ],
)
def test_other_settings_that_are_refused(wrong: dict[str, Any]) -> None:
    given: dict[str, Any] = {"token_url": "https://localhost/", "client_id": "c", "client_secret": SECRET}
    with pytest.raises(ConfigError, match=next(iter(wrong))) as refused:
        OAuthClientCredentials(**{**given, **wrong})
    assert refused.value.__cause__ is None or "ca_file" in wrong
    assert "x\\u" not in repr(refused.value), "it may be the secret"


def test_the_environment_can_narrow_which_urls_may_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSTRIDE_OAUTH_ALLOWED_URLS", "https://a.test/token, https://b.test/token")
    OAuthClientCredentials(token_url="https://b.test/token", client_id="c", client_secret=SECRET)
    for url in ("https://c.test/token", "https://b.test/token/", "https://b.test/"):
        with pytest.raises(ConfigError, match="INSTRIDE_OAUTH_ALLOWED_URLS"):
            OAuthClientCredentials(token_url=url, client_id="c", client_secret=SECRET)
    monkeypatch.setenv("INSTRIDE_OAUTH_ALLOWED_URLS", "")
    with pytest.raises(ConfigError):
        OAuthClientCredentials(token_url="https://b.test/token", client_id="c", client_secret=SECRET)


def test_the_environment_of_the_process_that_it_is_sent_to_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Spark's executors, say."""
    made = OAuthClientCredentials(token_url="https://b.test/token", client_id="c", client_secret=SECRET)
    sent = pickle.dumps(made)
    monkeypatch.setenv("INSTRIDE_OAUTH_ALLOWED_URLS", "https://a.test/token")
    with pytest.raises(ConfigError, match="INSTRIDE_OAUTH_ALLOWED_URLS"):
        pickle.loads(sent)
    monkeypatch.setenv("INSTRIDE_OAUTH_ALLOWED_URLS", "https://b.test/token")
    assert repr(pickle.loads(sent)) == repr(made)


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


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.EMFILE, "Too many open files"), TransportError),
        (OSError(errno.ENFILE, "Too many open files in system"), TransportError),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), TransportError),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), AuthenticationError),
        (ssl.SSLError(errno.EMFILE, "no certificate found"), AuthenticationError),
    ],
)
def test_authorities_that_cannot_be_read_for_the_moment_are_read_again(
    monkeypatch: pytest.MonkeyPatch, error: OSError, kind: type[KafkaError]
) -> None:
    """And before the connection is opened, which would take the last file. It was fatal, and did not say why."""

    def refused(**_: object) -> ssl.SSLContext:
        raise error

    fetch = OAuthClientCredentials(token_url="https://localhost:1/token", client_id="id", client_secret=SECRET)
    monkeypatch.setattr(ssl, "create_default_context", refused)
    with pytest.raises(kind, match=f"the system's authorities cannot be read .*{error.strerror}") as raised:
        fetch()
    assert raised.value.fatal is (kind is AuthenticationError)


def test_a_look_up_without_memory_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise MemoryError

    fetch = OAuthClientCredentials(token_url="https://localhost:1/token", client_id="id", client_secret=SECRET)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    with pytest.raises(TransportError, match="MemoryError"):
        fetch()


def test_a_connection_that_ends_in_the_handshake_says_nothing_of_certificates() -> None:
    """A load balancer without a server behind it. It was a TlsError, which is fatal."""
    listener = socket.create_server(("127.0.0.1", 0))

    def take_and_close() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 14)  # the greeting: to close with bytes unread would be a reset

    with listener:
        thread = threading.Thread(target=take_and_close, daemon=True)
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/token"
        fetch = OAuthClientCredentials(token_url=url, client_id="id", client_secret=SECRET)
        with pytest.raises(TransportError, match="did not respond"):
            fetch()
        thread.join(60.0)


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


@pytest.mark.parametrize("status", [200, 401])
@pytest.mark.parametrize("sent", [0, 500])
def test_a_response_that_is_cut_may_be_whole_the_next_time(
    provider: Provider, certificates: Certificates, status: int, sent: int
) -> None:
    """A load balancer that starts anew, say. What there is of it is no token: it was taken for a refusal."""
    provider.response = lambda: (status, {"Content-Length": "1000"}, b" " * sent)
    with pytest.raises(TransportError, match="IncompleteRead") as raised:
        grant(provider, certificates)()
    assert raised.value.retriable
    provider.response = provider.token
    assert grant(provider, certificates)().expires_in == 3600


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (
            401,
            {"error": "invalid_client", "error_description": f"no {SECRET}\n here"},
            r"401: invalid_client no \*\*\*\?",
        ),
        (403, b"<html>", "403: -"),
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


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_provider_that_is_busy_or_broken_is_asked_again(
    provider: Provider, certificates: Certificates, status: int
) -> None:
    made = grant(provider, certificates)
    provider.response = lambda: (status, {}, json.dumps({"error": f"busy {SECRET}"}).encode())
    for _ in range(2):
        with pytest.raises(TransportError, match=rf"HTTP status {status}: busy \*\*\*") as raised:
            made()
        assert raised.value.retriable
    provider.response = provider.token
    assert made().expires_in == 3600


@pytest.mark.parametrize(
    ("headers", "pause"),
    [
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": "86400"}, 60),
        ({"Retry-After": "9" * 5000}, 60),
        ({"Retry-After": "Wed, 21 Oct 2065 07:28:07 GMT", "Date": "Wed, 21 Oct 2065 07:28:00 GMT"}, 7),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:07 GMT", "Date": "Wed, 21 Oct 2065 07:28:00 GMT"}, 0),
        ({"Retry-After": "Wed, 21 Oct 2065 07:28:07 GMT", "Date": "now"}, 0),
        ({"Retry-After": "Wed, 21 Oct 2065 07:28:07 -0000", "Date": "Wed, 21 Oct 2065 07:28:00 GMT"}, 0),
        ({"Retry-After": f"Wed, 21 Oct {10**20} 07:28:07 GMT", "Date": "Wed, 21 Oct 2065 07:28:00 GMT"}, 0),
        ({"Retry-After": "-5"}, 0),
        ({"Retry-After": "soon"}, 0),
    ],
)
def test_a_provider_that_wants_to_be_left_alone_is_for_a_while(
    provider: Provider, certificates: Certificates, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], pause: int
) -> None:
    at = [1000.0]
    monkeypatch.setattr(oauth, "time", SimpleNamespace(monotonic=lambda: at[0]))
    made = grant(provider, certificates)
    provider.response = lambda: (503, headers, b"")
    with pytest.raises(TransportError, match="503"):
        made()
    provider.response = provider.token
    for second in range(pause):
        at[0] = 1000.0 + second
        with pytest.raises(TransportError, match=rf"no request for {pause - second} s more \(Retry-After\)"):
            made()
    assert len(provider.requested) == 1
    assert pickle.loads(pickle.dumps(made))._not_before == 0.0, "another machine has another clock"
    at[0] = 1000.0 + pause
    assert made().expires_in == 3600


def addressed(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """The provider's name has these addresses."""
    found = socket.getaddrinfo

    def getaddrinfo(host: str, port: int, *_: object, **more: Any) -> list[Any]:
        assert host == "localhost"
        return [each for name in hosts for each in found(name, port, type=socket.SOCK_STREAM)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def test_a_silent_address_has_its_share_of_the_time_and_comes_last_then(
    provider: Provider, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock stands still, so each share is exact. Nothing is sent to the silent one: its `connect` times out."""
    tried: list[tuple[str, float | None]] = []

    class Socket(socket.socket):
        def connect(self, address: Any) -> None:
            tried.append((address[0], self.gettimeout()))
            if address[0] != "127.0.0.1":
                raise TimeoutError
            super().connect(address)

    monkeypatch.setattr(oauth, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    made = grant(provider, certificates)
    addressed(monkeypatch, "127.0.0.2", "127.0.0.3", "127.0.0.1")
    monkeypatch.setattr(socket, "socket", Socket)
    for _ in range(2):
        assert made().expires_in == 3600
    assert tried == [
        ("127.0.0.2", PATIENCE / 3),
        ("127.0.0.3", PATIENCE / 2),
        ("127.0.0.1", PATIENCE),
        ("127.0.0.1", PATIENCE / 3),
    ]


class Clock:
    """connects: seconds that an address takes to take a connection."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, connects: Callable[[str], float]) -> None:
        self.at = 1000.0
        self.tried: list[tuple[str, float]] = []
        clock = self

        class Socket(socket.socket):
            def connect(self, address: Any) -> None:
                patience = self.gettimeout()
                assert patience is not None
                clock.tried.append((address[0], round(patience, 3)))
                clock.at += min(patience, connects(address[0]))
                if patience < connects(address[0]):
                    raise TimeoutError
                super().connect(("127.0.0.1", address[1]))
                self.settimeout(PATIENCE)

        monkeypatch.setattr(oauth, "time", SimpleNamespace(monotonic=lambda: self.at))
        monkeypatch.setattr(socket, "socket", Socket)


def test_of_a_provider_with_many_addresses_each_has_time_to_respond(
    provider: Provider, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = grant(provider, certificates, timeout=5.0)
    hosts = [f"127.0.1.{number}" for number in range(1, 17)]
    addressed(monkeypatch, *hosts)
    clock = Clock(monkeypatch, lambda host: 1.2)
    assert made().expires_in == 3600
    assert clock.tried == [(hosts[0], 1.5)]


def test_where_all_addresses_of_a_provider_are_slow_one_is_reached_at_last(
    provider: Provider, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of all is dead, the second takes long."""
    made = grant(provider, certificates, timeout=5.0)
    addressed(monkeypatch, "127.0.1.1", "127.0.1.2")
    clock = Clock(monkeypatch, lambda host: 3.0 if host == "127.0.1.2" else 1e9)
    for _ in range(2):
        with pytest.raises(TransportError, match="TimeoutError"):
            made()
    assert made().expires_in == 3600
    assert clock.tried == [
        ("127.0.1.1", 2.5),
        ("127.0.1.2", 2.5),
        ("127.0.1.1", 4.0),
        ("127.0.1.2", 1.0),
        ("127.0.1.2", 4.0),
    ]


def test_addresses_for_which_no_time_was_left_have_not_failed(
    provider: Provider, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = grant(provider, certificates, timeout=5.0)
    hosts = [f"127.0.1.{number}" for number in range(1, 17)]
    addressed(monkeypatch, *hosts)
    clock = Clock(monkeypatch, lambda host: 1.0 if host == hosts[4] else 1e9)
    with pytest.raises(TransportError, match="TimeoutError"):
        made()
    assert made().expires_in == 3600
    assert [host for host, _ in clock.tried] == hosts[:5]


def test_to_look_the_name_up_takes_nothing_of_the_timeout(
    provider: Provider, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = grant(provider, certificates, timeout=5.0)
    clock = Clock(monkeypatch, lambda host: 3.0)
    found = socket.getaddrinfo

    def slow(*given: Any, **more: Any) -> Any:
        clock.at += 4.0
        return [each for each in found(*given, **more) if each[0] == socket.AF_INET]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    assert made().expires_in == 3600


def test_a_system_without_ipv6_goes_on_with_ipv4(
    provider: Provider, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where IPv4 has failed before, and so comes last."""

    class Socket(socket.socket):
        def __init__(self, family: int = -1, *given: Any, **more: Any) -> None:
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            super().__init__(family, *given, **more)

    made = grant(provider, certificates)
    four: Any = (socket.AF_INET, ("127.0.0.1", provider.port))
    found = [(family, 1, 6, "", to) for family, to in (four, (socket.AF_INET6, ("::1", provider.port, 0, 0)))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "socket", Socket)
    made._order.failed("localhost", four)
    for _ in range(2):
        assert made().expires_in == 3600


def test_an_address_whose_server_says_nothing_comes_last_the_next_time(
    provider: Provider, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.2", provider.port)):
        addressed(monkeypatch, "127.0.0.2", "127.0.0.1")
        made = grant(provider, certificates, timeout=0.5)
        with pytest.raises(TransportError, match="TimeoutError"):
            made()
        monkeypatch.setattr(made, "_timeout", PATIENCE)
        assert made().expires_in == 3600


def test_of_a_name_without_an_address_that_responds_the_last_error_is_told(
    provider: Provider, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = grant(provider, certificates, token_url="https://localhost:1/token")
    addressed(monkeypatch, "127.0.0.2", "127.0.0.1")
    with pytest.raises(TransportError, match="ConnectionRefusedError"):
        made()


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
