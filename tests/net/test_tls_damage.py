"""A byte that the network damages in a TLS handshake is no refusal: it passes, and is not told as one."""

from __future__ import annotations

import random
import ssl

import pytest
import trustme

from instride._net.tls import Tls
from instride.errors import KafkaError, TlsError, TransportError

SERVER_HELLO = 200
"""Bytes. What follows is encrypted in TLS 1.3: damage of it cannot look like anything else."""


class Handshake:
    """Both sides of one, in memory. damage: which bit of which byte that the server sends is flipped."""

    def __init__(self, server: ssl.SSLContext, client: ssl.SSLContext, damage: tuple[int, int] | None) -> None:
        self._to_client, from_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._to_server, self._from_server = from_client, ssl.MemoryBIO()
        self._client = client.wrap_bio(self._to_client, from_client, server_hostname="broker.test")
        self._server = server.wrap_bio(self._to_server, self._from_server, server_side=True)
        self._damage = damage

    def play(self) -> Exception | None:
        """The client's error."""
        for _ in range(2):
            try:
                self._client.do_handshake()
            except ssl.SSLWantReadError:
                self._serve()
            except ssl.SSLError as error:
                return error
        return None

    def _serve(self) -> None:
        try:
            self._server.do_handshake()
        except ssl.SSLWantReadError:
            sent = bytearray(self._from_server.read())
            if self._damage is not None:
                at, bit = self._damage
                sent[at % len(sent)] ^= 1 << bit
            self._to_client.write(bytes(sent))


@pytest.fixture(scope="module")
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    server.minimum_version = ssl.TLSVersion.TLSv1_3
    authority.issue_cert("broker.test").configure_cert(server)
    authority.configure_trust(client)
    return server, client


def told(client: ssl.SSLContext, error: Exception | None) -> KafkaError:
    assert error is not None
    return Tls(context=client, host="broker.test", where="broker.test:9093").failure(error)


def test_a_flipped_bit_in_a_handshake_passes(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    server, client = contexts
    assert Handshake(server, client, None).play() is None
    dice = random.Random(0)
    for at in range(SERVER_HELLO, SERVER_HELLO + 400, 4):
        error = told(client, Handshake(server, client, (at, dice.randrange(8))).play())
        assert isinstance(error, TransportError), (at, error)
        assert "broker.test:9093" in str(error)


def test_a_refused_certificate_does_not_pass(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    server, _ = contexts
    client = ssl.create_default_context()
    assert isinstance(told(client, Handshake(server, client, None).play()), TlsError)


@pytest.mark.parametrize(
    "reason",
    [
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "TLSV13_ALERT_CERTIFICATE_REQUIRED",
        "TLSV1_ALERT_UNKNOWN_CA",
        "TLSV1_ALERT_PROTOCOL_VERSION",
        "SSLV3_ALERT_HANDSHAKE_FAILURE",
        "UNSUPPORTED_PROTOCOL",
        "EE_KEY_TOO_SMALL",
        "CA_MD_TOO_WEAK",
    ],
)
def test_what_one_side_does_not_take_is_a_refusal(reason: str) -> None:
    error = ssl.SSLError(1, reason)
    error.reason = reason
    assert isinstance(told(ssl.create_default_context(), error), TlsError)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (62, "It must name what bootstrap_servers and the broker's advertised.listeners name."),
        (10, "Renew it on the broker, or set this machine's clock."),
        (20, "Give the authority that signed it as ssl_ca_file."),
        (26, ""),  # for another purpose: no setting of ours mends it
    ],
)
def test_a_certificate_that_is_refused_says_why_and_what_to_do(code: int, advice: str) -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, "for this reason"
    found = told(ssl.create_default_context(), error)
    assert isinstance(found, TlsError)
    said = f"the certificate of broker.test:9093 is refused: for this reason. {advice}"
    assert str(found) == said.rstrip()
