"""OAuth: which token an authentication takes, when the next is requested, and how it is fetched.

Laws of the client-credentials grant (RFC 6749, 4.4): a client's id and secret for a bearer token, over HTTPS
1. Only https, only the one URL that was given: no redirect is followed, no proxy asked, no other scheme known. Where
   the environment has INSTRIDE_OAUTH_ALLOWED_URLS (URLs with commas between), the URL must be one of these; so in each
   process that the object is sent to.
2. A call ends within its timeout, and reads a bounded response, however slowly and however much the other side sends.
   Of a name with several addresses each has its share of the time (`resolver.share`), and those that failed come last
   the next time. To look the name up is the system's business, and takes nothing of the timeout.
3. The secret goes to a server whose certificate was verified for the URL's host, and nowhere else: into no repr, error
   or log line, also where the server repeats it.
4. A provider that is busy or broken for the moment (HTTP 408, 425, 429, 5xx) is a TransportError; if it wants to be
   left alone for a while (Retry-After), it is, for a minute at most. Any other refusal is an AuthenticationError.

Laws of tokens (`TokenAuthenticator`), which a function of the user's returns
T1. The user's function runs on a thread of its own, never on the network thread; one call at a time is awaited. All
    that wait get its result, and give up on it before their connection does. A call that takes too long is left alone,
    and another may be made; a few may hang so, and no more. A token that it returns late counts if no later call has
    returned one.
T2. A token that says how long it is good is used again for four fifths of that time, or for so long that a new one can
    be had before it ends; any other is requested each time. One that a broker has refused is not used again, but for a
    back-off: the function is not called again sooner than a second after its last call, and twice as long after each
    further refusal, until a token is accepted.
T3. Where no new token is to be had, the one that there is serves until it ends, if no broker has refused it. The
    function is called again after a back-off, which is shorter where no token serves; who asks before that hears the
    last error.
T4. What a function raises is a TransportError only where it is trouble with the network or a provider, or was caused by
    it; what was refused, or may be a mistake in the function or in what it was given, is an AuthenticationError.
T5. Nothing here is logged.

When an open connection authenticates anew (KIP-368): `transport`, law 5, and `thread`, law 4.
"""

from __future__ import annotations

import base64
import errno
import http.client
import io
import json
import os
import socket
import ssl
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final, Literal
from urllib.parse import SplitResult, quote_plus, urlencode, urlsplit

from instride._net.clock import now
from instride._net.resolver import AddressOrder, SocketAddress, least_share, lookup, share
from instride._wire.sasl.exchange import Mechanism
from instride._wire.sasl.oauthbearer import OAuthBearer, OAuthToken
from instride.errors import AuthenticationError, ConfigError, KafkaError, TlsError, TransportError
from instride.errors._quoting import quoted_from

__all__ = ["OAuthClientCredentials", "TokenAuthenticator"]

_ALLOWED_URLS: Final = "INSTRIDE_OAUTH_ALLOWED_URLS"
_MOST_BYTES: Final = 1 << 17

Prepared = Callable[[Mechanism | KafkaError], None]

# Seconds between two calls of the user's function where brokers refuse what it returns, or where it fails.
_FIRST_BACKOFF = 1.0
_LONGEST_BACKOFF = 60.0
# Where no token serves: connections wait for one.
_LONGEST_WITHOUT_A_TOKEN = 8.0
# Of those that double the back-off: it has reached its longest long before, and 2**n stays small.
_MOST_REFUSALS = 10
# The other side ended the connection: a load balancer without a server behind it, or one that starts anew.
_CUT_OFF: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
# Of an HTTP response that a lost connection cut short, or that is none; and of a program that asks a provider.
_CUT_SHORT: Final = (http.client.BadStatusLine, http.client.IncompleteRead, subprocess.TimeoutExpired)
# The same of packages, which give it no cause: by the module's root and the name, so that none need be imported.
_CUT_SHORT_BY_NAME: Final = frozenset(
    {
        ("aiohttp", "ClientPayloadError"),
        ("aiohttp", "ServerDisconnectedError"),
        ("httpcore", "RemoteProtocolError"),
        ("httpx", "RemoteProtocolError"),
    }
)
# Calls that were left alone, and have not returned.
_MOST_HANGING = 4
# Of an error's causes; there may be a circle of them.
_MOST_CAUSES = 20
# HTTP: the provider is busy, or wants the request once more.
_PASSING = frozenset({http.HTTPStatus.REQUEST_TIMEOUT, http.HTTPStatus.TOO_EARLY, http.HTTPStatus.TOO_MANY_REQUESTS})
_LONGEST_RETRY_AFTER = 60.0
# Seconds for an address of a provider to take a connection, where so many are left: the second SYN follows after one.
_LEAST_SHARE = 1.5
# An OSError that is of none of the classes for it: the network's, or there are no more files or memory for the moment.
_OF_THE_NETWORK = frozenset(
    {
        errno.EADDRNOTAVAIL,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EMFILE,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENETUNREACH,
        errno.ENFILE,
        errno.ENOBUFS,
        errno.ENOMEM,
    }
)
_MISTAKES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    NameError,
    NotImplementedError,
    SyntaxError,
    TypeError,
)


class OAuthClientCredentials:
    """Fetches tokens with a client's own credentials: to be given as ``sasl_oauth_token``.

    token_url: the identity provider's token endpoint, https. client_id, client_secret: as registered there. scope,
    audience: what is requested; left out where None. ca_file: PEM, whom to trust instead of the system's authorities.
    timeout: seconds for one fetch; it should be less than four fifths of the consumer's ``connection_setup_timeout``.
    send_in: "header" (HTTP Basic, as RFC 6749 prefers) or "body". extensions: SASL extensions (KIP-342) of each token.

    A call returns an `OAuthToken`, whose ``expires_in`` is the provider's; the consumer uses it again for four fifths
    of that. It raises AuthenticationError where the provider refuses, TlsError, or TransportError where it does not
    respond, is busy or broken (which it may not be later). Thread-safe.
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
            _check_letters(name, value)
        for name, given in (("scope", scope), ("audience", audience)):
            _check_letters(name, given)
        if send_in not in ("header", "body"):
            raise ConfigError(f"send_in must be 'header' or 'body', not {send_in!r}")
        if not 0 < timeout <= 3600:
            raise ConfigError(f"timeout must be more than 0 seconds and 3600 at most, not {timeout}")
        self._url = token_url
        self._timeout = timeout
        self._client_id, self._secret = client_id, client_secret
        self._extensions = _checked_extensions(extensions)
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
        self._order = AddressOrder()
        # Law 4, by this machine's monotonic clock.
        self._not_before = 0.0
        self._context()

    def __getstate__(self) -> dict[str, Any]:
        """Without what is true on this machine only."""
        return self.__dict__ | {"_order": AddressOrder(), "_not_before": 0.0}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Law 1, by this process's environment. Raises ConfigError."""
        _checked(state["_url"])
        self.__dict__.update(state)

    def _context(self) -> ssl.SSLContext:
        """Made anew for each fetch, so that this object can be sent to other processes. Raises ConfigError."""
        try:
            context = ssl.create_default_context(cafile=self._ca_file)
        except (OSError, ValueError) as error:
            what = "the system's authorities" if self._ca_file is None else f"ca_file {self._ca_file!r}"
            raise ConfigError(f"{what} cannot be read as PEM certificates: {error}") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context

    def __repr__(self) -> str:
        return f"<OAuthClientCredentials of {self._client_id!r} at {self._url}>"

    def __call__(self) -> OAuthToken:
        """Fetch one token. Takes up to `timeout`, and as long as the system takes to look up the host's name."""
        at = time.monotonic()
        if at < self._not_before:
            wait = self._not_before - at
            raise TransportError(f"{self._url} wants no request for {wait:.0f} s more (Retry-After)")
        try:
            response = self._post(self._context())
        except ConfigError as error:
            kind = TransportError if _may_pass(error) else AuthenticationError
            raise kind(str(error)) from None
        except (OSError, http.client.HTTPException, MemoryError) as error:
            if isinstance(error, ssl.SSLError) and not isinstance(error, _CUT_OFF):
                text = f"{self._url}: its certificate or TLS is not good: {self._shown(str(error))}"
                raise TlsError(text) from None
            text = f"{self._url} did not respond within {self._timeout:g} s or as HTTP: {type(error).__name__}"
            raise TransportError(text) from None
        return self._token(*response)

    def _post(self, context: ssl.SSLContext) -> tuple[int, bytes, float]:
        """Law 2. The status, the body, and for how many seconds the provider wants no request.

        context: made before the connection, which would take the last file that reading the certificates needs.
        """
        host, port = self._parts.hostname or "", self._parts.port or 443
        found = lookup(host, port)
        deadline = time.monotonic() + self._timeout
        ordered = self._order.ordered(host, found)
        failed: list[SocketAddress] = []
        try:
            with self._connected(host, ordered, failed, deadline) as plain:
                working = failed.pop()
                try:
                    response = self._post_on(context, plain, host, deadline)
                except BaseException:
                    failed.append(working)  # it may be the address: the next call tells
                    raise
        finally:
            self._order.failed(host, *failed)
        self._order.worked(host, working)
        return response

    def _connected(
        self, host: str, ordered: list[SocketAddress], tried: list[SocketAddress], deadline: float
    ) -> socket.socket:
        """tried: is given those that were, of which the last is connected to. Raises OSError, of the last one."""
        failure: OSError = OSError("no address")
        all_failed = self._order.all_failed(host, ordered)
        for number, (family, address) in enumerate(ordered):
            left = deadline - time.monotonic()
            if left <= 0:
                break  # the others have not failed
            tried.append((family, address))
            patient, others = all_failed and number == 0, len(ordered) - number - 1
            least = least_share(self._timeout, _LEAST_SHARE)
            try:
                # Within: a system without IPv6 has no socket for it, and other addresses.
                plain = socket.socket(family, socket.SOCK_STREAM)
                try:
                    # Never 0, which would make it one that does not block.
                    plain.settimeout(max(share(left, others, least=least, patient=patient), 0.001))
                    plain.connect(address)
                except BaseException:
                    plain.close()
                    raise
                return plain
            except OSError as error:
                failure = error
        raise failure

    def _post_on(
        self, context: ssl.SSLContext, plain: socket.socket, host: str, deadline: float
    ) -> tuple[int, bytes, float]:
        plain.settimeout(max(deadline - time.monotonic(), 0.001))
        with context.wrap_socket(plain, server_hostname=host.removesuffix(".")) as secured:
            # `sendall` takes it for all of the bytes together, not for each part.
            secured.settimeout(max(deadline - time.monotonic(), 0.001))
            secured.sendall(self._request(urlencode(self._form)))
            response = http.client.HTTPResponse(_Bounded(secured, deadline), method="POST")  # type: ignore[arg-type]
            response.begin()
            # With a bound: else it believes Content-Length.
            body = response.read(_MOST_BYTES + 1)
            if response.length:  # what is left; a read with a bound does not say that the connection ended before
                raise http.client.IncompleteRead(body, response.length)
            return response.status, body, _retry_after(response)

    def _request(self, body: str) -> bytes:
        path = (self._parts.path or "/") + (f"?{self._parts.query}" if self._parts.query else "")
        headers = {**self._headers, "Host": self._parts.netloc, "Content-Length": len(body), "Connection": "close"}
        lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", body]
        return "\r\n".join(lines).encode("ascii")

    def _token(self, status: int, body: bytes, retry_after: float) -> OAuthToken:
        response = _json_object(body)
        if status != http.HTTPStatus.OK:
            told = " ".join(str(response[name]) for name in ("error", "error_description") if name in response)
            text = f"{self._url} gave no token but HTTP status {status}: {self._shown(told) or '-'}"
            if not _passes(status):
                raise AuthenticationError(text)
            self._not_before = time.monotonic() + retry_after
            raise TransportError(text)
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
        (parts.hostname or "").encode("idna")  # raises for what is no host name
        bad = parts.scheme != "https" or not parts.hostname or "@" in parts.netloc or parts.fragment or parts.port == 0
    except ValueError:
        bad = True
    if bad:
        raise ConfigError("token_url must be https://host[:port]/path, without a user, a password or a fragment")
    allowed = os.environ.get(_ALLOWED_URLS)
    if allowed is not None and url not in {each.strip() for each in allowed.split(",")}:
        raise ConfigError(f"token_url {url} is not among those that the environment's {_ALLOWED_URLS} allows")
    return parts


def _check_letters(name: str, value: object) -> None:
    """An error of Python's own would show the secret."""
    if any("\ud800" <= letter <= "\udfff" for letter in str(value)):
        raise ConfigError(f"{name} has a character that cannot be sent (half of a surrogate pair)")


def _checked_extensions(extensions: Mapping[str, str] | None) -> dict[str, str]:
    """As each token checks them."""
    try:
        given = dict(extensions or {})
        OAuthToken(value="x", extensions=given)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"extensions must be texts by name, names of letters only: {error}") from None
    return given


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


def _passes(status: int) -> bool:
    return status in _PASSING or status >= http.HTTPStatus.INTERNAL_SERVER_ERROR


def _retry_after(response: http.client.HTTPResponse) -> float:
    """Seconds: of `Retry-After`, which is a number of them or a time; that goes by the provider's clock (`Date`)."""
    given, sent = (str(response.headers.get(name, "")).strip() for name in ("Retry-After", "Date"))
    try:
        seconds = float(given) if given.isdecimal() else _apart(sent, given)
    except (OverflowError, TypeError, ValueError):  # TypeError: one of them has no time zone
        return 0.0
    return min(max(seconds, 0.0), _LONGEST_RETRY_AFTER)


def _apart(first: str, second: str) -> float:
    return float((parsedate_to_datetime(second) - parsedate_to_datetime(first)).total_seconds())


def _causes(error: BaseException) -> Iterable[BaseException]:
    each: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if each is None:
            return
        yield each
        each = _cause(each)


def _cause(error: BaseException) -> BaseException | None:
    """What it says that it was raised from; else what was dealt with as it was raised. Of a mistake in the dealing the
    latter is none."""
    if error.__cause__ is not None or error.__suppress_context__ or isinstance(error, _MISTAKES):
        return error.__cause__
    return error.__context__


def _is_of_the_network(error: BaseException) -> bool:
    """Not of files, nor of what was given: `requests` has an OSError that is a ValueError for a URL that is none."""
    kind = type(error)
    if isinstance(error, _CUT_SHORT) or (kind.__module__.partition(".")[0], kind.__name__) in _CUT_SHORT_BY_NAME:
        return True
    if not isinstance(error, OSError) or isinstance(error, ValueError):
        return False
    if isinstance(error, (TimeoutError, ConnectionError, socket.gaierror, *_CUT_OFF)):
        return True
    if isinstance(error, ssl.SSLError):
        return False  # its numbers are OpenSSL's
    # asyncio raises a bare one without a number where no address of a name could be connected to.
    return error.errno in _OF_THE_NETWORK or (type(error) is OSError and error.errno is None)


def _status(error: BaseException) -> int | None:
    """Of HTTP, as `urllib`, `requests` and `httpx` name it."""
    found = getattr(error, "code", None)
    if not isinstance(found, int):
        found = getattr(getattr(error, "response", None), "status_code", None)
    return found if isinstance(found, int) and 100 <= found < 600 else None


def _may_pass(error: BaseException) -> bool:
    """T4. Packages wrap what the system raised into errors of their own: it is among the causes."""
    if not isinstance(error, Exception):
        return False
    causes = list(_causes(error))
    for status in map(_status, causes):
        if status is not None:
            return _passes(status)
    refused = any(isinstance(each, ssl.SSLCertVerificationError) for each in causes)
    return not refused and any(_is_of_the_network(each) for each in causes)


def _raised(error: BaseException) -> KafkaError:
    kind = TransportError if _may_pass(error) else AuthenticationError
    # Without its text, which may have a secret in it.
    told = kind(f"sasl_oauth_token raised {type(error).__name__}")
    told.__cause__ = error
    return told


def _pause(failures: int) -> float:
    return min(_FIRST_BACKOFF * 2.0**failures, _LONGEST_BACKOFF)


def _token_of(result: object) -> OAuthToken | KafkaError:
    if isinstance(result, KafkaError):
        return result
    try:
        token = OAuthToken(value=result) if isinstance(result, str) else result
    except ValueError as error:
        return AuthenticationError(f"sasl_oauth_token: {error}")
    if isinstance(token, OAuthToken):
        return token
    return AuthenticationError(f"sasl_oauth_token must return a text or an OAuthToken, not {type(token).__name__}")


class TokenAuthenticator:
    """The `Authenticator` of tokens: see there. wake: makes the network thread call `poll`. patience: seconds.

    tell: hears why an older token serves where there should be a new one (T3).
    """

    def __init__(
        self,
        function: Callable[[], object],
        *,
        patience: float,
        wake: Callable[[], None],
        tell: Callable[[KafkaError], None],
    ) -> None:
        self.patience: Final = patience
        self._function = function
        self._wake = wake
        self._tell = tell
        self._waiting: list[tuple[float, Prepared]] = []
        # What a call returned, with the call's number.
        self._arrived: deque[tuple[int, object]] = deque()
        self._calls = 0
        self._awaited: int | None = None
        self._requested_at = 0.0
        self._hanging: set[int] = set()
        self._failures = 0
        self._not_before = 0.0
        # Until then: why there is no new token.
        self._error: KafkaError | None = None
        # The newest, and the call that returned it.
        self._token: OAuthToken | None = None
        self._token_call = 0
        self._good_until = 0.0
        self._expires_at = 0.0
        # Whose token a broker refused: the function may return the same object again.
        self._refused_call = 0
        self._refusals = 0

    @property
    def deadline(self) -> float:
        if not self._waiting:
            return float("inf")
        first = min(until for until, _ in self._waiting)
        return first if self._awaited is None else min(first, self._requested_at + self.patience)

    def prepare(self, host: str, on_done: Prepared) -> None:
        token = self._token
        if token is not None and (now() < self._good_until or (now() < self._not_before and self._serves())):
            on_done(OAuthBearer(token))
            return
        if self._error is not None and now() < self._not_before and not self._serves():
            on_done(self._error)
            return
        self._waiting.append((now() + self.patience, on_done))
        self._call()

    def _serves(self) -> bool:
        """T3."""
        return self._token_call != self._refused_call and now() < self._expires_at

    def _call(self) -> None:
        """T1. Unless one is awaited, or too many hang."""
        if self._awaited is not None and now() >= self._requested_at + self.patience:
            self._hanging.add(self._awaited)
            self._awaited = None
        if self._awaited is not None or len(self._hanging) >= _MOST_HANGING:
            return
        self._calls += 1
        self._awaited, self._requested_at = self._calls, now()
        try:
            name = "instride-oauth-token"
            threading.Thread(target=self._ask, args=(self._calls,), name=name, daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            # By way of `poll`, as a token comes: that ends the call, and tells all that wait.
            why = TransportError(f"cannot ask for a token: no thread can be started ({error})")
            self._arrived.append((self._calls, why))
            self._wake()

    def _ask(self, call: int) -> None:
        result: object
        try:
            result = self._function()
        except (AuthenticationError, TransportError) as error:  # of `OAuthClientCredentials`: they say it all
            result = error
        except BaseException as error:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            result = _raised(error)
        self._arrived.append((call, result))
        self._wake()

    def poll(self) -> None:
        while self._arrived:
            self._returned(*self._arrived.popleft())
        late = [entry for entry in self._waiting if now() >= entry[0]]
        if late:
            self._waiting = [entry for entry in self._waiting if entry not in late]
            why = f"sasl_oauth_token did not return within {self.patience:g} s (see connection_setup_timeout)"
            self._failed(late, TransportError(why))
        if self._waiting:
            self._call()

    def _returned(self, call: int, result: object) -> None:
        was_left_alone = call in self._hanging
        self._hanging.discard(call)
        if call == self._awaited:
            self._awaited = None
        found = _token_of(result)
        if isinstance(found, KafkaError):
            if not was_left_alone:
                waiting, self._waiting = self._waiting, []
                self._failed(waiting, found)
        elif call > self._token_call:
            self._token_call = call
            self._keep(found)
            waiting, self._waiting = self._waiting, []
            for _, on_done in waiting:
                on_done(OAuthBearer(found))

    def _keep(self, token: OAuthToken) -> None:
        self._token, self._failures, self._not_before, self._error = token, 0, 0.0, None
        life = token.expires_in or 0.0
        # T2. Of a short one nearly half is used: else it would be requested all the time. It is less than a session of
        # the same length lasts before its end comes near (`transport`): the next token is another one then.
        self._good_until = now() + max(min(0.8 * life, life - 1.25 * self.patience), 0.45 * life)
        self._expires_at = now() + life

    def _failed(self, waiting: list[tuple[float, Prepared]], error: KafkaError) -> None:
        """T3."""
        token = self._token if self._serves() else None
        pause = _pause(self._failures)
        if token is None:
            self._not_before = now() + min(pause, _LONGEST_WITHOUT_A_TOKEN)
        else:
            self._not_before = min(now() + pause, self._expires_at)
        self._failures, self._error = min(self._failures + 1, _MOST_REFUSALS), error
        if token is not None and waiting:
            self._tell(error)
        for _, on_done in waiting:
            on_done(error if token is None else OAuthBearer(token))

    def refused(self, mechanism: Mechanism) -> None:
        """T2. What a call returned counts once; other connections may have used it too, or still have an older one."""
        token = self._token
        if not isinstance(mechanism, OAuthBearer) or mechanism.token is not token:
            return
        if self._token_call != self._refused_call:
            self._refused_call = self._token_call
            self._good_until = self._requested_at + _pause(self._refusals)
            self._refusals = min(self._refusals + 1, _MOST_REFUSALS)

    def accepted(self, mechanism: Mechanism) -> None:
        self._refusals = 0
