"""What each authentication needs: credentials, a fresh nonce, or a token that a function of the user's returns.

Laws
1. The user's function runs on a thread of its own, never on the network thread; at most one call at a time, however
   long it takes. All that wait get its result, and give up on it before their connection does.
2. A token that says how long it is good is used again for four fifths of that time; any other is requested each time.
   One that a broker has refused is not used again, but for a back-off: the function is not called again sooner than a
   second after its last call, and twice as long after each further refusal, until a token is accepted.
3. Nothing here is logged.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable

from instride._net.clock import now
from instride._net.kerberos import KerberosAuthenticator
from instride._wire.sasl.exchange import Mechanism
from instride._wire.sasl.oauthbearer import OAuthBearer, OAuthToken
from instride._wire.sasl.plain import Plain
from instride._wire.sasl.scram import Scram, ScramCredentials
from instride.config import ConsumerConfig
from instride.errors import AuthenticationError, KafkaError, TransportError

__all__ = ["Authenticator", "authenticator"]

Prepared = Callable[[Mechanism | KafkaError], None]

# Seconds between two calls of the user's function where brokers refuse what it returns.
_FIRST_BACKOFF = 1.0
_LONGEST_BACKOFF = 60.0
# Of those that double the back-off: it has reached its longest long before, and 2**n stays small.
_MOST_REFUSALS = 10


class Authenticator:
    """make: a mechanism for each authentication, at once. Not thread-safe: the network thread owns it."""

    def __init__(self, make: Callable[[], Mechanism]) -> None:
        self._make = make

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


class _TokenAuthenticator(Authenticator):
    """The same for tokens. wake: makes the network thread call `poll`. patience: seconds."""

    def __init__(self, function: Callable[[], object], *, patience: float, wake: Callable[[], None]) -> None:
        self._function = function
        self._patience = patience
        self._wake = wake
        self._waiting: list[tuple[float, Prepared]] = []
        self._arrived: deque[object] = deque()
        self._running = False
        self._token: OAuthToken | None = None
        self._good_until = 0.0
        self._requested_at = 0.0
        self._refused: OAuthToken | None = None
        self._refusals = 0

    @property
    def deadline(self) -> float:
        return min((until for until, _ in self._waiting), default=float("inf"))

    def prepare(self, host: str, on_done: Prepared) -> None:
        if self._token is not None and now() < self._good_until:
            on_done(OAuthBearer(self._token))
            return
        self._waiting.append((now() + self._patience, on_done))
        if not self._running:
            self._running, self._requested_at = True, now()
            try:
                threading.Thread(target=self._ask, name="instride-oauth-token", daemon=True).start()
            except (RuntimeError, MemoryError) as error:
                # By way of `poll`, as a token comes: that ends `_running`, and tells all that wait.
                self._arrived.append(TransportError(f"cannot ask for a token: no thread can be started ({error})"))
                self._wake()

    def _ask(self) -> None:
        result: object
        try:
            result = self._function()
        except (AuthenticationError, TransportError) as error:  # of `oauth`: they say it all
            result = error
        except BaseException as error:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            result = AuthenticationError(f"sasl_oauth_token raised {type(error).__name__}")
            result.__cause__ = error
        self._arrived.append(result)
        self._wake()

    def poll(self) -> None:
        while self._arrived:
            self._running = False
            result = self._arrived.popleft()
            waiting, self._waiting = self._waiting, []
            found = self._kept(result)
            for _, on_done in waiting:
                on_done(OAuthBearer(found) if isinstance(found, OAuthToken) else found)
        for entry in [entry for entry in self._waiting if now() >= entry[0]]:
            # `_running` stays: the function that hangs is not called a second time (law 1).
            self._waiting.remove(entry)
            why = f"sasl_oauth_token did not return within {self._patience:g} s (see connection_setup_timeout)"
            entry[1](AuthenticationError(why))

    def refused(self, mechanism: Mechanism) -> None:
        """Law 2. A token counts once; other connections may have used it too, or still have an older one."""
        token = self._token
        if token is not self._refused and isinstance(mechanism, OAuthBearer) and mechanism.token is token:
            self._refused = token
            patience = min(_FIRST_BACKOFF * 2**self._refusals, _LONGEST_BACKOFF)
            self._good_until = min(self._good_until, self._requested_at + patience)
            self._refusals = min(self._refusals + 1, _MOST_REFUSALS)

    def accepted(self, mechanism: Mechanism) -> None:
        self._refusals = 0

    def _kept(self, result: object) -> OAuthToken | KafkaError:
        if isinstance(result, KafkaError):
            return result
        try:
            token = OAuthToken(value=result) if isinstance(result, str) else result
        except ValueError as error:
            return AuthenticationError(f"sasl_oauth_token: {error}")
        if not isinstance(token, OAuthToken):
            return AuthenticationError(
                f"sasl_oauth_token must return a text or an OAuthToken, not {type(token).__name__}"
            )
        if token.expires_in is not None:
            self._token, self._good_until = token, now() + 0.8 * token.expires_in
        return token


def authenticator(config: ConsumerConfig, wake: Callable[[], None]) -> Authenticator | KerberosAuthenticator | None:
    """What the settings ask for; None where they ask for no SASL. Raises ConfigError where a package is missing."""
    # Less than the connection has, so that its end tells of the token or ticket.
    patience = 0.8 * config.connection_setup_timeout
    match config.sasl_mechanism:
        case None:
            return None
        case "GSSAPI":
            return KerberosAuthenticator(config, patience=patience, wake=wake)
        case "OAUTHBEARER":
            assert config.sasl_oauth_token is not None
            return _TokenAuthenticator(config.sasl_oauth_token, patience=patience, wake=wake)
        case "PLAIN":
            plain = Plain(config.sasl_username or "", config.sasl_password or "")
            return Authenticator(lambda: plain)
        case name:
            credentials = ScramCredentials(name, config.sasl_username or "", config.sasl_password or "")
            # Letters of base64url: a nonce must not have the comma that ends an attribute (RFC 5802).
            return Authenticator(lambda: Scram(credentials, nonce=secrets.token_urlsafe(24)))
