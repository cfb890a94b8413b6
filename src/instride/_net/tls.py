"""TLS: the context for all connections, and what its failures mean to a user.

Laws
1. TLS 1.2 at least; certificates are always verified, and names too unless ssl_check_hostname=False. A context of the
   user's own that is weaker is refused when the consumer is built: nothing is downgraded silently.
2. The name that is checked is the one connected to, without a trailing dot: of bootstrap_servers, or as the cluster's
   metadata says. IP addresses are checked against the certificate's IP addresses.
3. Whatever is sent, SASL first of all, is sent after the peer was verified (`transport` waits for the handshake).
4. A refusal is a `TlsError`: a certificate, a version or a cipher that one side does not take. Whatever else goes
   wrong in the handshake may be the network's damage: a `TransportError`, after which it is tried again.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import Final

from instride.config import ConsumerConfig
from instride.errors import ConfigError, KafkaError, NotKafkaError, TlsError, TransportError

__all__ = ["Tls", "tls_context"]

_WRONG_NAME: Final = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_EXPIRED: Final = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
_UNTRUSTED: Final = (18, 19, 20, 21)  # self-signed, or an issuer that is not known here
_REFUSALS: Final = (
    *("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "HANDSHAKE_FAILURE", "UNRECOGNIZED_NAME"),
    *("ALERT_PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS", "WRONG_SSL_VERSION", "LEGACY_RENEGOTIATION"),
    *("NO_CIPHERS", "SHARED_CIPHER", "INSUFFICIENT_SECURITY", "TOO_SMALL", "TOO_WEAK"),
)
"""Parts of OpenSSL's reasons, law 4."""


class _NoNameError(ValueError):
    """No certificate can have it."""


# What OpenSSL says where the first bytes are no TLS record.
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")


def tls_context(config: ConsumerConfig) -> ssl.SSLContext | None:
    """The context that the settings ask for, None where they ask for no TLS. Reads the files. Raises ConfigError."""
    if config.security_protocol not in ("SSL", "SASL_SSL"):
        return None
    if config.ssl_context is not None:
        return _checked(config.ssl_context, check_hostname=config.ssl_check_hostname)
    try:
        context = ssl.create_default_context(cafile=config.ssl_ca_file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"ssl_ca_file {config.ssl_ca_file!r} cannot be read as PEM certificates: {error}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = config.ssl_check_hostname
    if config.ssl_cert_file is not None:
        _load_own(context, config)
    return context


def _load_own(context: ssl.SSLContext, config: ConsumerConfig) -> None:
    assert config.ssl_cert_file is not None
    try:
        # With a function in any case: without one OpenSSL would ask on the terminal.
        context.load_cert_chain(config.ssl_cert_file, config.ssl_key_file, lambda: config.ssl_key_password or "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        raise ConfigError(
            f"ssl_cert_file {config.ssl_cert_file!r} and ssl_key_file {config.ssl_key_file!r} do not load ({reason}):"
            " they must be PEM, belong together, and an encrypted key needs ssl_key_password"
        ) from None


def _checked(context: object, *, check_hostname: bool) -> ssl.SSLContext:
    """Law 1."""
    if not isinstance(context, ssl.SSLContext):
        raise ConfigError(f"ssl_context must be an ssl.SSLContext, not {type(context).__name__}")
    if context.verify_mode is not ssl.CERT_REQUIRED:
        raise ConfigError("ssl_context does not verify certificates: set its verify_mode to ssl.CERT_REQUIRED")
    if context.minimum_version not in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        raise ConfigError("ssl_context takes less than TLS 1.2: set its minimum_version to ssl.TLSVersion.TLSv1_2")
    if context.check_hostname and not check_hostname:
        raise ConfigError("ssl_context checks host names and ssl_check_hostname=False says not to: decide on one")
    if check_hostname and not context.check_hostname:
        raise ConfigError("ssl_context does not check host names: set its check_hostname, or ssl_check_hostname=False")
    return context


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS for one connection. host: as connected to; where: with the port, for messages."""

    context: ssl.SSLContext
    host: str
    where: str

    def wrap(self, connected: socket.socket) -> ssl.SSLSocket:
        """The socket with TLS on it, the handshake still to be made. A context of the user's own may raise anything."""
        # The zone of an IPv6 address (`fe80::1%eth0`) is this machine's: no certificate names it.
        name = self.host.removesuffix(".").partition("%")[0]
        # Where `wrap_socket` refuses such a name it has taken the socket, and leaves it open.
        try:
            name.encode("idna")
        except UnicodeError as error:
            raise _NoNameError(str(error)) from error
        if not name:
            raise _NoNameError("it is empty")
        if "\0" in name:
            raise _NoNameError("it has a NUL")
        return self.context.wrap_socket(connected, do_handshake_on_connect=False, server_hostname=name)

    def failure(self, error: Exception) -> KafkaError:
        """What an error before the connection was of use means."""
        # First of all: it is a ValueError and an SSLError, too.
        if isinstance(error, ssl.SSLCertVerificationError):
            return TlsError(self._untrusted(error))
        if isinstance(error, _NoNameError):
            return TransportError(f"{self.where} has a name that no certificate can have: {error}")
        if not isinstance(error, OSError):
            return TransportError(f"the ssl_context raised {type(error).__name__} for {self.where}: {error}")
        if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return self.closed(error)
        if error.reason in _NO_TLS:
            return NotKafkaError(
                f"what listens at {self.where} does not speak TLS: use the port of a TLS listener, or change"
                " security_protocol"
            )
        reason = error.reason or str(error)
        if any(each in reason for each in _REFUSALS):
            return TlsError(f"TLS with {self.where} failed: {reason}.{_hint(reason)}")
        return TransportError(
            f"what {self.where} sent for the TLS handshake was damaged on its way, or is wrong: {reason}"
        )

    def closed(self, error: Exception | None) -> TransportError:
        """The peer hung up before or just after TLS was agreed."""
        return TransportError(
            f"{self.where} closed the connection during TLS ({error or 'end of stream'}): a listener without TLS does"
            " so (check security_protocol), and one that wants a certificate (ssl_cert_file)"
        )

    def _untrusted(self, error: ssl.SSLCertVerificationError) -> str:
        text = f"the certificate of {self.where} is refused: {error.verify_message}."
        if error.verify_code in _WRONG_NAME:
            return f"{text} It must name what bootstrap_servers and the broker's advertised.listeners name."
        if error.verify_code in _EXPIRED:
            return f"{text} Renew it on the broker, or set this machine's clock."
        if error.verify_code in _UNTRUSTED:
            return f"{text} Give the authority that signed it as ssl_ca_file."
        return text


def _hint(reason: str) -> str:
    if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
        return " The broker refuses our certificate, or misses one: see ssl_cert_file and ssl_key_file."
    if "VERSION" in reason:
        return " TLS 1.2 or 1.3 is needed on both sides."
    return ""
