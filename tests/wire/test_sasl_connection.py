"""Authentication on a connection: after the versions, before all else, and again in between."""

from __future__ import annotations

import base64
import errno
import struct
from collections.abc import Callable
from typing import Any

import pytest
from wire_broker import framed, greeting

from instride._wire import api, message_codecs
from instride._wire.connection import Connection
from instride._wire.sasl.exchange import Mechanism
from instride._wire.sasl.gssapi import Gssapi
from instride._wire.sasl.oauthbearer import OAuthBearer, OAuthToken
from instride._wire.sasl.plain import Plain
from instride._wire.sasl.scram import Scram, ScramCredentials
from instride.errors import (
    AuthenticationError,
    ErrorCode,
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailedError,
    TransportError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)

SECRET = "canary-password"


def breaks(error: Exception) -> Mechanism:
    """One whose library raises."""

    class Breaks(Plain):
        def response(self, challenge: bytes) -> bytes | None:
            raise error

    return Breaks("user", SECRET)


class Script:
    """A broker that reads what the connection sends and responds as the test says."""

    def __init__(self, mechanism: Mechanism | None = None, ranges: dict[int, tuple[int, int]] | None = None) -> None:
        self.connection = Connection(
            client_id="c", max_frame_bytes=1 << 20, mechanism=mechanism or Plain("user", SECRET)
        )
        self.connection.handshake()
        self.connection.receive_data(greeting(ranges=ranges))

    def sent(self) -> tuple[int, int, bytes] | None:
        """(api key, correlation id, body) of what the connection sends now."""
        frame = self.connection.handshake()
        if not frame:
            return None
        _, key, version, correlation_id, size = struct.unpack_from(">ihhih", frame)
        body = frame[14 + size :]
        return key, correlation_id, body.removeprefix(b"\x00") if (key, version) == (36, 2) else body

    def response(self, correlation_id: int, body: bytes, *, flexible: bool = False) -> list[Any]:
        head = struct.pack(">i", correlation_id) + (b"\x00" if flexible else b"")
        return self.connection.receive_data(framed(head + body))

    def agree(self, error: int = 0, mechanisms: tuple[str, ...] = ("PLAIN",)) -> None:
        sent = self.sent()
        assert sent is not None
        assert sent[0] == 17
        names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in mechanisms)
        self.response(sent[1], struct.pack(">hi", error, len(mechanisms)) + names)

    def authenticate(self, error: int = 0, message: str = "", lifetime_ms: int = 0) -> bytes:
        """Responds to SaslAuthenticate version 2; returns the client's message."""
        sent = self.sent()
        assert sent is not None
        assert sent[0] == 36
        text = bytes([len(message) + 1]) + message.encode()
        self.response(sent[1], struct.pack(">h", error) + text + b"\x01" + struct.pack(">q", lifetime_ms) + b"\x00",
                    flexible=True)  # fmt: skip
        return sent[2]

    def challenge(self, message: bytes) -> None:
        sent = self.sent()
        assert sent is not None
        said = bytes([len(message) + 1]) + message
        self.response(sent[1], struct.pack(">hb", 0, 0) + said + bytes(8) + b"\x00", flexible=True)

    @property
    def failure(self) -> KafkaError | None:
        return self.connection.failure


def is_ready(script: Script) -> bool:
    return script.connection.ready


def test_nothing_is_ready_before_the_broker_has_taken_the_credentials() -> None:
    script = Script()
    assert not is_ready(script)
    with pytest.raises(RuntimeError):
        script.connection.send(1, api.Metadata(topics=()))
    script.agree()
    assert not is_ready(script)
    assert SECRET.encode() in script.authenticate(lifetime_ms=1500)
    assert is_ready(script)
    assert script.connection.session_lifetime == 1.5
    assert script.sent() is None


def test_a_refusal_is_told_without_the_secret_that_the_broker_repeats() -> None:
    script = Script()
    script.agree()
    script.authenticate(error=ErrorCode.SASL_AUTHENTICATION_FAILED, message=f"no user with\n{SECRET} here")
    assert isinstance(script.failure, SaslAuthenticationFailedError)
    assert script.failure.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "no user with?*** here" in str(script.failure)
    assert SECRET not in str(script.failure)
    assert not script.connection.ready


def test_a_mechanism_that_is_not_taken() -> None:
    script = Script()
    script.agree(error=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=("SCRAM-SHA-512", "GSSAPI"))
    assert isinstance(script.failure, UnsupportedSaslMechanismError)
    assert isinstance(script.failure, AuthenticationError)
    assert "SCRAM-SHA-512, GSSAPI" in str(script.failure)


def test_a_listener_without_sasl() -> None:
    script = Script()
    script.agree(error=ErrorCode.ILLEGAL_SASL_STATE)
    assert isinstance(script.failure, IllegalSaslStateError)
    assert "security_protocol" in str(script.failure)


def test_a_broker_that_cannot_is_told_before_a_secret_is_sent() -> None:
    script = Script(ranges={18: (0, 3), 3: (0, 9)})
    assert script.sent() is None
    assert isinstance(script.failure, UnsupportedVersionError)


def test_a_broker_that_talks_for_ever_is_cut_short() -> None:
    class Endless(Plain):
        def response(self, challenge: bytes) -> bytes | None:
            return b"more"

    script = Script(Endless("u", "p"))
    script.agree()
    for _ in range(4):
        script.authenticate()
    assert isinstance(script.failure, AuthenticationError)


def test_again_without_mixing_with_requests() -> None:
    script = Script()
    script.agree()
    script.authenticate(lifetime_ms=10_000)
    connection = script.connection
    frame = connection.send(7, api.Heartbeat(group_id="g", generation=1, member_id="m"))
    correlation_id = struct.unpack_from(">i", frame, 8)[0]
    connection.authenticate_again(Plain("user", "other"))
    assert not is_ready(script)
    with pytest.raises(RuntimeError):
        connection.send(8, api.Metadata(topics=()))
    script.agree()
    # The response to what was sent before comes in between.
    (received,) = script.response(correlation_id, struct.pack(">ih", 0, 0) + b"\x00", flexible=True)
    assert received.request_id == 7
    assert b"other" in script.authenticate(lifetime_ms=20_000)
    assert is_ready(script)
    assert connection.session_lifetime == 20.0


def test_a_refusal_of_another_authentication_ends_the_connection() -> None:
    script = Script()
    script.agree()
    script.authenticate(lifetime_ms=10_000)
    script.connection.authenticate_again(Plain("user", "other"))
    script.agree()
    script.authenticate(error=ErrorCode.SASL_AUTHENTICATION_FAILED, message="expired")
    assert isinstance(script.failure, AuthenticationError)


def test_a_broker_that_hangs_up_names_what_may_be_wrong() -> None:
    script = Script()
    assert "during authentication" in str(script.connection.end_of_stream())
    plain = Connection(client_id="c", max_frame_bytes=1 << 20)
    plain.handshake()
    plain.receive_data(greeting())
    plain.send(1, api.Metadata(topics=()))
    assert isinstance(plain.end_of_stream(), TransportError)
    assert "security_protocol" in str(plain.end_of_stream())


def test_any_other_refusal_of_a_mechanism_is_told_by_its_code() -> None:
    script = Script()
    script.agree(error=ErrorCode.UNKNOWN_SERVER_ERROR)
    assert isinstance(script.failure, AuthenticationError)
    assert "SaslHandshake (PLAIN) with error code -1" in str(script.failure)
    assert script.sent() is None


def test_another_authentication_needs_a_connection_that_is_ready() -> None:
    script = Script()
    with pytest.raises(RuntimeError, match="ready"):
        script.connection.authenticate_again(Plain("user", SECRET))
    script.agree()
    script.authenticate()
    script.connection.authenticate_again(Plain("user", SECRET))
    with pytest.raises(RuntimeError, match="ready"):
        script.connection.authenticate_again(Plain("user", SECRET))


def scram() -> Mechanism:
    return Scram(ScramCredentials("SCRAM-SHA-256", "user", SECRET), nonce="n0nce")


@pytest.mark.parametrize("make", [lambda: Plain("user", SECRET), lambda: OAuthBearer(OAuthToken(value=SECRET)), scram])
def test_no_mechanisms_secret_is_in_a_refusal_that_repeats_it(make: Callable[[], Mechanism]) -> None:
    mechanism = make()
    script = Script(mechanism)
    script.agree()
    script.authenticate(error=ErrorCode.SASL_AUTHENTICATION_FAILED, message=f"who is {SECRET}?")
    assert f"refused {mechanism.name}: who is ***?" in str(script.failure)


def test_the_proof_is_not_in_a_refusal_that_repeats_it() -> None:
    """With salt and nonce, which everybody on the way sees, passwords could be tried on it."""
    first = b"r=n0nce-and-more,s=c2FsdA==,i=4096"
    sent = scram().response(first)
    assert sent is not None
    proof = sent.decode().partition(",p=")[2]
    script = Script(scram())
    script.agree()
    script.challenge(first)
    script.authenticate(error=ErrorCode.SASL_AUTHENTICATION_FAILED, message=f"not {proof}")
    assert "refused SCRAM-SHA-256: not ***" in str(script.failure)
    encoded = base64.b64encode(sent).decode()
    other = Script(scram())
    other.agree()
    other.challenge(first)
    other.authenticate(error=ErrorCode.SASL_AUTHENTICATION_FAILED, message=encoded[-60:])
    assert encoded[-30:] not in str(other.failure)


class Ticket:
    """A context of Kerberos that wants more, however much it gets."""

    complete, mutual = False, True

    def step(self, _: bytes) -> bytes:
        return b"more"

    def wrap(self, message: bytes) -> bytes:
        return message

    unwrap = wrap


@pytest.mark.parametrize(
    ("make", "messages"),
    [
        (lambda: Plain("user", SECRET), 0),
        (lambda: OAuthBearer(OAuthToken(value=SECRET)), 0),
        (scram, 0),
        (scram, 1),
        (lambda: Gssapi(Ticket(), b"ticket"), 0),
        (lambda: Gssapi(Ticket(), b"ticket"), 1),
        (lambda: Gssapi(Ticket(), b"ticket"), 2),
    ],
)
def test_a_broker_that_stalls_leaves_no_connection_ready_and_says_what_is_awaited(
    make: Callable[[], Mechanism], messages: int
) -> None:
    """messages: of the broker, before it stalls. `connection_setup_timeout` ends the wait."""
    mechanism = make()
    silent = Connection(client_id="c", max_frame_bytes=1 << 20, mechanism=mechanism)
    assert silent.handshake()
    assert silent.standing == "the broker does not respond to ApiVersions"
    script = Script(mechanism)
    script.agree(mechanisms=(mechanism.name,))
    for _ in range(messages):
        script.challenge(b"r=n0ncebroker,s=c2FsdA==,i=4096")
    assert script.sent() is not None, "a message of ours is the last"
    assert (script.sent(), script.failure, is_ready(script)) == (None, None, False)
    assert script.connection.standing == "SASL authentication has not ended"


def test_a_handshake_message_that_cannot_be_imported_is_an_error_that_may_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_files(_api_key: int, _version: int) -> type:
        raise OSError(errno.EMFILE, "Too many open files")

    script = Script()
    kio = message_codecs._kio()
    with monkeypatch.context() as patch:
        message_codecs._schemas.cache_clear()
        patch.setattr(message_codecs, "_kio", lambda: kio._replace(request_schema=no_files))
        assert script.connection.handshake() == b""
    assert isinstance(script.failure, TransportError)
    assert "Too many open files" in str(script.failure)
    assert script.failure.retriable


def test_whatever_a_mechanism_raises_ends_its_authentication_and_no_more() -> None:
    script = Script(breaks(LookupError(SECRET)))
    script.agree()
    script.authenticate()
    failure = script.connection.failure
    assert isinstance(failure, AuthenticationError)
    assert str(failure).endswith("PLAIN raised LookupError")


def test_that_there_is_no_memory_is_no_refusal() -> None:
    """The transport makes a TransportError of it: the connection is tried again."""
    script = Script(breaks(MemoryError()))
    script.agree()
    with pytest.raises(MemoryError):
        script.authenticate()
