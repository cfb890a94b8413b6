"""OAuth: which token an authentication takes, when the next is requested, and how it is fetched.

Laws of the client-credentials grant (RFC 6749, 4.4): a client's id and secret for a bearer token, over HTTPS
1. Only https, only the one URL that was given: no redirect is followed, no proxy asked, no other scheme known. Where
   the environment has INSTRIDE_OAUTH_ALLOWED_URLS (URLs with commas between), the URL must be one of these.
2. A call ends within its timeout, and reads a bounded response, however slowly and however much the other side sends.
3. The secret goes to a server whose certificate was verified for the URL's host, and nowhere else: into no repr, error
   or log line, also where the server repeats it.

Laws of tokens (`TokenAuthenticator`), which a function of the user's returns
T1. The user's function runs on a thread of its own, never on the network thread; at most one call at a time, however
    long it takes. All that wait get its result, and give up on it before their connection does.
T2. A token that says how long it is good is used again for four fifths of that time; any other is requested each time.
    One that a broker has refused is not used again, but for a back-off: the function is not called again sooner than a
    second after its last call, and twice as long after each further refusal, until a token is accepted.
T3. Nothing here is logged.

When an open connection authenticates anew (KIP-368): `transport`, law 5, and `thread`, law 4.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import os
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal
from urllib.parse import SplitResult, quote_plus, urlencode, urlsplit

from instride._net.clock import now
from instride._wire.sasl.exchange import Mechanism
from instride._wire.sasl.oauthbearer import OAuthBearer, OAuthToken
from instride.errors import AuthenticationError, ConfigError, KafkaError, TlsError, TransportError
from instride.errors._quoting import quoted_from

__all__ = ["OAuthClientCredentials", "TokenAuthenticator"]

_ALLOWED_URLS: Final = "INSTRIDE_OAUTH_ALLOWED_URLS"
_MOST_BYTES: Final = 1 << 17

Prepared = Callable[[Mechanism | KafkaError], None]

# Seconds between two calls of the user's function where brokers refuse what it returns.
_FIRST_BACKOFF = 1.0
_LONGEST_BACKOFF = 60.0
# Of those that double the back-off: it has reached its longest long before, and 2**n stays small.
_MOST_REFUSALS = 10


class OAuthClientCredentials:
    """Fetches tokens with a client's own credentials: to be given as ``sasl_oauth_token``.

    token_url: the identity provider's token endpoint, https. client_id, client_secret: as registered there. scope,
    audience: what is requested; left out where None. ca_file: PEM, whom to trust instead of the system's authorities.
    timeout: seconds for one fetch; it should be less than four fifths of the consumer's ``connection_setup_timeout``.
    send_in: "header" (HTTP Basic, as RFC 6749 prefers) or "body". extensions: SASL extensions (KIP-342) of each token.

    A call returns an `OAuthToken`, whose ``expires_in`` is the provider's; the consumer uses it again for four fifths
    of that. It raises AuthenticationError where the provider refuses, TlsError, or TransportError. Thread-safe.
    Building one reads the ca_file and raises ConfigError. It can be pickled (with its secret), for Spark's executors.
    """

    def __init__(
        self,
        *,
        token_url: str,
        client_id: str,
        client_secret: str,
        scope: str | None = None,
        audience: str | None = None,
        ca_file: str | None = None,
        timeout: float = 5.0,
        send_in: Literal["header", "body"] = "header",
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        self._parts = _checked(token_url)
        for name, value in (("client_id", client_id), ("client_secret", client_secret)):
            if not isinstance(value, str) or not value:
                raise ConfigError(f"{name} must be a text that is not empty")
        if send_in not in ("header", "body"):
            raise ConfigError(f"send_in must be 'header' or 'body', not {send_in!r}")
        if not 0 < timeout <= 3600:
            raise ConfigError(f"timeout must be more than 0 seconds and 3600 at most, not {timeout}")
        self._url = token_url
        self._timeout = timeout
        self._client_id, self._secret = client_id, client_secret
        self._extensions = dict(extensions or {})
        self._form = {"grant_type": "client_credentials"}
        self._form |= {name: value for name, value in (("scope", scope), ("audience", audience)) if value is not None}
        self._headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if send_in == "header":
            # Quoted before they are joined (RFC 6749, 2.3.1): so a colon in the id divides nothing.
            pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            self._form |= {"client_id": client_id, "client_secret": client_secret}
        self._ca_file = ca_file
        self._context()

    def _context(self) -> ssl.SSLContext:
        """Made anew for each fetch, so that this object can be sent to other processes. Raises ConfigError."""
        try:
            context = ssl.create_default_context(cafile=self._ca_file)
        except OSError as error:
            raise ConfigError(f"ca_file {self._ca_file!r} cannot be read as PEM certificates: {error}") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context

    def __repr__(self) -> str:
        return f"<OAuthClientCredentials of {self._client_id!r} at {self._url}>"

    def __call__(self) -> OAuthToken:
        """Fetch one token. Takes up to `timeout`, and as long as the system takes to look up the host's name."""
        deadline = time.monotonic() + self._timeout
        try:
            status, body = self._post(deadline)
        except ssl.SSLError as error:
            raise TlsError(f"{self._url}: its certificate or TLS is not good: {self._shown(str(error))}") from None
        except (OSError, http.client.HTTPException) as error:
            text = f"{self._url} did not respond within {self._timeout:g} s or as HTTP: {type(error).__name__}"
            raise TransportError(text) from None
        return self._token(status, body)

    def _post(self, deadline: float) -> tuple[int, bytes]:
        """Law 2."""
        host, port = self._parts.hostname or "", self._parts.port or 443
        body = urlencode(self._form)
        with (
            # Never 0, which would make the socket one that does not block.
            socket.create_connection((host, port), max(deadline - time.monotonic(), 0.001)) as plain,
            self._context().wrap_socket(plain, server_hostname=host.removesuffix(".")) as secured,
        ):
            # `sendall` takes it for all of the bytes together, not for each part.
            secured.settimeout(max(deadline - time.monotonic(), 0.001))
            secured.sendall(self._request(body))
            response = http.client.HTTPResponse(_Bounded(secured, deadline), method="POST")  # type: ignore[arg-type]
            response.begin()
            return response.status, response.read(_MOST_BYTES + 1)  # with a bound: else it believes Content-Length

    def _request(self, body: str) -> bytes:
        path = (self._parts.path or "/") + (f"?{self._parts.query}" if self._parts.query else "")
        headers = {**self._headers, "Host": self._parts.netloc, "Content-Length": len(body), "Connection": "close"}
        lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", body]
        return "\r\n".join(lines).encode("ascii")

    def _token(self, status: int, body: bytes) -> OAuthToken:
        response = _json_object(body)
        if status != http.HTTPStatus.OK:
            told = " ".join(str(response[name]) for name in ("error", "error_description") if name in response)
            raise AuthenticationError(f"{self._url} gave no token but HTTP status {status}: {self._shown(told) or '-'}")
        # RFC 6749 (5.1) requires a type, in any case of letters: a provider that says none is taken to mean this one.
        kind, value = response.get("token_type", "Bearer"), response.get("access_token")
        if not isinstance(kind, str) or kind.lower() != "bearer" or not isinstance(value, str):
            raise AuthenticationError(f"{self._url} responded without a bearer token in access_token")
        try:
            return OAuthToken(value=value, expires_in=_seconds(response), extensions=self._extensions)
        except (ValueError, TypeError, OverflowError):
            raise AuthenticationError(f"{self._url} responded with a token or an expires_in that cannot be") from None

    def _shown(self, text: str) -> str:
        """Law 3."""
        return quoted_from(text, (self._secret, self._headers.get("Authorization", "")[6:]))


class _Bounded(io.RawIOBase):
    """What a socket sends, until the deadline and up to a bound; in a socket's place for http.client."""

    def __init__(self, secured: ssl.SSLSocket, deadline: float) -> None:
        self._socket = secured
        self._deadline = deadline
        self._left = _MOST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        # Anew for each read: a byte now and then would else keep it going past the deadline (law 2).
        self._socket.settimeout(left)
        count = self._socket.recv_into(buffer)
        self._left -= count
        if self._left < 0:
            raise http.client.HTTPException("the response is too long")
        return count

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)


def _checked(url: object) -> SplitResult:
    """Law 1."""
    # It becomes a line of the request: a line feed in it would begin a header.
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError("token_url must be a URL: ASCII without spaces")
    try:
        parts = urlsplit(url)
        bad = parts.scheme != "https" or not parts.hostname or "@" in parts.netloc or parts.fragment or parts.port == 0
    except ValueError:
        bad = True
    if bad:
        raise ConfigError("token_url must be https://host[:port]/path, without a user, a password or a fragment")
    allowed = os.environ.get(_ALLOWED_URLS)
    if allowed is not None and url not in {each.strip() for each in allowed.split(",")}:
        raise ConfigError(f"token_url {url} is not among those that the environment's {_ALLOWED_URLS} allows")
    return parts


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        response = json.loads(body)
    except (ValueError, RecursionError):  # deep brackets in a hostile body
        return {}
    return response if isinstance(response, dict) else {}


def _seconds(response: Mapping[str, Any]) -> float | None:
    """Raises ValueError, TypeError or OverflowError."""
    given = response.get("expires_in")
    if given is None:
        return None
    seconds = float(given)
    # Not `seconds <= 0`, which is false for NaN.
    if isinstance(given, bool) or not seconds > 0:
        raise ValueError
    return seconds


class TokenAuthenticator:
    """The `Authenticator` of tokens: see there. wake: makes the network thread call `poll`. patience: seconds."""

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
        except (AuthenticationError, TransportError) as error:  # of `OAuthClientCredentials`: they say it all
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
            # `_running` stays: the function that hangs is not called a second time (T1).
            self._waiting.remove(entry)
            why = f"sasl_oauth_token did not return within {self._patience:g} s (see connection_setup_timeout)"
            entry[1](AuthenticationError(why))

    def refused(self, mechanism: Mechanism) -> None:
        """T2. A token counts once; other connections may have used it too, or still have an older one."""
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
