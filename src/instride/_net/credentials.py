"""What each authentication needs: credentials, a fresh nonce, a token (`oauth.py`) or a ticket (`kerberos.py`).

Laws
1. Nothing here is logged.
2. What only failed for the moment is a TransportError: it is tried again, and ends nothing. A refusal is an
   AuthenticationError.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

from instride._net.kerberos import KerberosAuthenticator
from instride._net.oauth import TokenAuthenticator
from instride._wire.sasl.exchange import Mechanism
from instride._wire.sasl.plain import Plain
from instride._wire.sasl.scram import Scram, ScramCredentials
from instride.config import ConsumerConfig
from instride.errors import KafkaError

__all__ = ["Authenticator", "authenticator"]

Prepared = Callable[[Mechanism | KafkaError], None]


class Authenticator:
    """make: a mechanism for each authentication, at once. Not thread-safe: the network thread owns it."""

    def __init__(self, make: Callable[[], Mechanism]) -> None:
        self._make = make
        self.patience: Final = 0.0
        """Seconds that `prepare` may take."""

    @property
    def deadline(self) -> float:
        return float("inf")

    def prepare(self, host: str, on_done: Prepared) -> None:
        """Call `on_done` with the mechanism for one authentication, or why there is none; now or from `poll`.

        host: the broker's, as connected to.
        """
        on_done(self._make())

    def poll(self) -> None:
        """Hand on what has arrived or is late."""

    def refused(self, mechanism: Mechanism) -> None:
        """A broker has refused an authentication with it."""

    def accepted(self, mechanism: Mechanism) -> None:
        """A broker has accepted it."""


def authenticator(
    config: ConsumerConfig, wake: Callable[[], None], tell: Callable[[KafkaError], None]
) -> Authenticator | TokenAuthenticator | KerberosAuthenticator | None:
    """What the settings ask for; None where they ask for no SASL. Raises ConfigError where a package is missing.

    wake: makes the network thread call `poll`. tell: hears why an older token serves where there should be a new one.
    """
    # Less than the connection has, so that its end tells of the token or ticket.
    patience = 0.8 * config.connection_setup_timeout
    match config.sasl_mechanism:
        case None:
            return None
        case "GSSAPI":
            return KerberosAuthenticator(config, patience=patience, wake=wake)
        case "OAUTHBEARER":
            assert config.sasl_oauth_token is not None
            return TokenAuthenticator(config.sasl_oauth_token, patience=patience, wake=wake, tell=tell)
        case "PLAIN":
            plain = Plain(config.sasl_username or "", config.sasl_password or "")
            return Authenticator(lambda: plain)
        case name:
            credentials = ScramCredentials(name, config.sasl_username or "", config.sasl_password or "")
            # Letters of base64url: a nonce must not have the comma that ends an attribute (RFC 5802).
            return Authenticator(lambda: Scram(credentials, nonce=secrets.token_urlsafe(24)))
