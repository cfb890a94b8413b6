"""One connection: connecting, TLS, bytes out, bytes in. What the bytes mean is `_wire.connection`'s business.

Laws
1. The socket never blocks.
2. Every address of a name is tried before the connection fails; the error tells of each. One that does not respond has
   its share of the time only, so that the others have theirs: what is left, divided by those that are left, but enough
   for a few SYNs. Where all have failed before, the first has most of the time (`resolver.share`).
3. After `close`, nothing is sent and nothing is reported.
4. Nothing is sent before TLS, where there is any, has verified the peer.
5. While the connection authenticates anew, requests wait; then they are sent in order (KIP-368). That begins so early
   that what it needs (a token, a ticket) may take its time before the session ends. Where it is not to be had it is
   tried again, with a back-off, until the session ends: until then the connection is good. A response that may take
   minutes, as a Join's may, is awaited first (`hold`): the broker reads nothing meanwhile, so a token that was chosen
   before may have ended when it is read. Later requests wait as well, and the session may end then: a broker takes
   another authentication all the same.
6. A response that has begun to come goes on coming: a Join may be waited for as long as a rebalance takes, but not the
   second half of its response.
7. The pump receives while it waits, whole responses at once, into what `offer` gave it. What it has not received, as
   where a response seems to have stopped, is read here; so is all of TLS until the connection is ready, and where
   `openssl` finds no way to OpenSSL.
"""

from __future__ import annotations

import errno
import os
import random
import selectors
import socket
import ssl
import struct
from collections import deque
from contextlib import suppress

from instride._net.clock import now
from instride._net.openssl import trouble, unlocked_line
from instride._net.pump import Line, receive, send
from instride._net.resolver import SocketAddress, least_share, share
from instride._net.tls import Tls
from instride._wire.api import Request
from instride._wire.connection import Connection, Received
from instride._wire.sasl.exchange import Mechanism
from instride.errors import AuthenticationError, KafkaError, TransportError

__all__ = ["Transport"]

# Bytes read of one connection before others have their turn.
_READ_TURN = 4 << 20
# struct linger: on, for zero seconds. `close` then resets the connection and forgets what is unsent.
_NO_LINGER = struct.pack("ii", 1, 0)
# A peer that went without a word is noticed within half a minute, though a Join may wait there for minutes with nothing
# to send: probed after 10 s of silence, each 5 s, three times. What it does not acknowledge counts as well (ms).
_LIFE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
# Seconds that each of many addresses has at least: a SYN is sent at once, after 1 and after 3 seconds.
_LEAST_SHARE = 3.5
# Seconds until an authentication is tried anew for which there was no token or ticket; doubled each time.
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0


class Transport:
    """Not thread-safe: the network thread owns it.

    tls: None for plain text. ready: connected, and the handshake is done. failure: why it is of no use any more.
    authenticate_at: when `authenticate_again` is to be called (then it is never, until it was).
    stalls_at: when `stalled` is to be called; never where neither a response has begun, nor another address may be
    tried. patience: seconds that a response may stop for in its middle. line: for the pump.
    until: when it is to be ready, and is given up else. tried: the addresses so far, of which the last is connected to.
    all_failed: the addresses, in earlier attempts.
    ahead: seconds that it may take to prepare another authentication.
    """

    def __init__(
        self,
        addresses: list[SocketAddress],
        where: str,
        connection: Connection,
        *,
        tls: Tls | None = None,
        patience: float = float("inf"),
        until: float = float("inf"),
        ahead: float = 0.0,
        all_failed: bool = False,
    ) -> None:
        self._addresses = deque(addresses)
        self.tried: list[SocketAddress] = []
        self._until = until
        self._least_share = least_share(max(until - now(), 0.0), _LEAST_SHARE)
        self._all_failed = all_failed
        self._where = where
        self._connection = connection
        self._socket: socket.socket | None = None
        self._tls = tls
        self._connected = False
        self._secure = False
        self._tls_waits_for = selectors.EVENT_WRITE
        self._out: deque[memoryview] = deque()
        self._waiting: list[tuple[int, Request]] | None = None
        # Requests wait, and the authentication has not begun.
        self._held = False
        self._was_ready = False
        self.line: Line | None = None
        self._offered = False
        self._met: OSError | None = None
        self.authenticate_at = float("inf")
        self._session_ends_at = float("inf")
        self._ahead = ahead
        self._pause = _FIRST_PAUSE
        self.stalls_at = float("inf")
        self._patience = patience
        self._errors: list[str] = []
        self.failure: KafkaError | None = None

    def open(self) -> Transport:
        """Begin to connect. Apart from `__init__`: whoever closes it can know of it before there is a socket."""
        self._connect_next()
        return self

    # -- for the selector

    @property
    def host(self) -> str:
        """As connected to."""
        return self._where.rpartition(":")[0]

    @property
    def where(self) -> str:
        return self._where

    @property
    def socket(self) -> socket.socket | None:
        return self._socket

    @property
    def interest(self) -> int:
        if not self._connected:
            return selectors.EVENT_WRITE
        if not self._secure:
            return self._tls_waits_for
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)

    @property
    def ready(self) -> bool:
        return self.failure is None and self._connection.ready

    @property
    def session_ends_at(self) -> float:
        """Never while it is held: nothing is sent in the session then."""
        return float("inf") if self._held else self._session_ends_at

    @property
    def standing(self) -> str:
        """What is waited for, until `ready`."""
        if not self._connected:
            return "the address does not respond"
        return self._connection.standing if self._secure else "the TLS handshake has not ended"

    # -- out

    def send(self, request_id: int, request: Request) -> None:
        """Queue a request's frame, and send what the socket takes. Raises what `Connection.send` raises."""
        if self._waiting is not None:
            self._waiting.append((request_id, request))
            return
        self._out.append(memoryview(self._connection.send(request_id, request)))
        if self.line is not None and not self.line.received:
            self._take_back()  # what is awaited now may be long
        self.writable()

    def hold(self) -> bool:
        """Law 5, where it is due. Whether a response is awaited: once that is there, it is due again."""
        if not self._connection.outstanding:
            return False
        self.authenticate_at = float("inf")
        self._held = True
        self._waiting = self._waiting or []
        return True

    def release(self) -> list[Received]:
        """Send what is held, in the session that there is. Returns what cannot be sent."""
        if not self._held:
            return []
        self._held = False
        return self._send_waiting()

    def authenticate_again(self, mechanism: Mechanism) -> None:
        """Law 5. Does nothing where the connection has failed."""
        self.authenticate_at = float("inf")
        if self.ready:
            self._held = False
            self._waiting = self._waiting or []
            self._connection.authenticate_again(mechanism)
            self._shake_hands()
            self.writable()

    def put_off_authentication(self) -> bool:
        """Law 5: there is no mechanism for it now. False: the session has ended."""
        at = now()
        if at >= self._session_ends_at:
            return False
        self.authenticate_at = min(at + self._pause, self._session_ends_at)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return True

    def writable(self) -> None:
        if not (self._connected or self._finish_connecting()) or not (self._secure or self._finish_tls()):
            return
        assert self._socket is not None
        try:
            while self._out:
                sent = self._send(self._out[0])
                if sent < len(self._out[0]):
                    self._out[0] = self._out[0][sent:]
                else:
                    self._out.popleft()
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as error:
            self._fail(self._broken(error, f"sending to {self._where} failed"))

    def _send(self, data: memoryview) -> int:
        assert self._socket is not None
        if self._tls is None:
            return send(self._socket.fileno(), data)
        if self.line is None:
            return self._socket.send(data)
        sent = self.line.send(data)
        # `Line.send` says 0 where Python's own send raises that the socket is full.
        if sent or self.line.trouble is None:
            if not sent and data:
                raise BlockingIOError
            return sent
        raise trouble(self.line.trouble) or ssl.SSLEOFError("the peer has ended the connection")

    # -- in

    def offer(self) -> None:
        """Law 7. Before the pump waits."""
        if self.line is not None and not self._offered:
            self._offered = True
            self.line.offer(self._connection.get_buffer(), self._connection.wanted)

    def _take_back(self) -> int:
        """How many bytes were received."""
        if not self._offered or self.line is None:
            return 0
        self._offered = False
        return self.line.take()

    def readable(self) -> list[Received]:
        """Responses that are complete now. May set `failure`."""
        received: list[Received] = []
        # The handshake is gone on with in `writable`, whichever way its bytes go. A socket that is not connected yet
        # has nothing to say: the event was of the address before it, which has failed.
        if not self._secure:
            if self._connected:
                self.writable()
            return received
        taken = self._take_back()
        if taken:
            received += self._updated(taken)
        if self.line is not None and self.line.trouble is not None:
            self._end_tls(trouble(self.line.trouble))
        elif not taken:
            taken = self._read(received)
        if taken:
            self.stalls_at = now() + self._patience if self._connection.in_the_middle else float("inf")
        return received

    def _end_tls(self, error: OSError | None) -> None:
        """None: the peer has ended it."""
        if error is None or isinstance(error, ssl.SSLZeroReturnError):
            self._fail(self._end_of_stream())
        else:
            self._fail(self._broken(error, f"the connection to {self._where} broke"))

    def _read(self, received: list[Received]) -> int:
        """What the pump has not received. How much it was."""
        taken = 0
        try:
            # What TLS has unpacked already the selector does not know of.
            while self.failure is None and (taken < _READ_TURN or self._unpacked()):
                # Released before it is updated: a frame's buffer that somebody views is copied when it grows
                # (`extended`).
                with self._connection.get_buffer() as buffer:
                    length, count = min(len(buffer), _READ_TURN), self._read_into(buffer)
                if count == 0:
                    self._fail(self._end_of_stream())
                    break
                taken += count
                received += self._updated(count)
                if self._met is not None and self.failure is None:
                    self._end_tls(self._met)
                # A short read has emptied the socket: another would only say so.
                if count < length:
                    break
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as error:
            self._fail(self._broken(error, f"the connection to {self._where} broke"))
        except MemoryError:
            self._fail(self._no_memory())
        return taken

    def _read_into(self, buffer: memoryview) -> int:
        assert self._socket is not None
        if self._tls is None:
            return receive(self._socket.fileno(), buffer[:_READ_TURN])
        return self._unpack_into(buffer[:_READ_TURN])

    def _unpack_into(self, buffer: memoryview) -> int:
        """TLS gives 16 KiB at a time: all that are there go into the buffer before anybody looks at them.

        What ends the connection after some have come is noted: no read would meet it again.
        """
        assert self._socket is not None
        taken = 0
        try:
            while taken < len(buffer):
                count = self._socket.recv_into(buffer[taken:])
                if not count:
                    self._met = ssl.SSLZeroReturnError() if taken else None
                    break
                taken += count
        except OSError as error:
            if not taken:
                raise
            if not isinstance(error, ssl.SSLWantReadError | ssl.SSLWantWriteError):
                self._met = error
        return taken

    def _updated(self, count: int) -> list[Received]:
        try:
            return self._connection.buffer_updated(count) + self._after_receiving()
        except MemoryError:
            self._fail(self._no_memory())
            return []

    def _no_memory(self) -> TransportError:
        return TransportError(f"no memory for what {self._where} sends")

    def stalled(self) -> None:
        """Laws 2 and 6. `readable` was called before, and nothing had come."""
        if self._connected:
            self._fail(TransportError(f"{self._where} stopped in the middle of a response"))
        elif self._has_peer():
            self.writable()  # it is connected, and the system has not woken us for that
        else:
            self._errors.append("no response")
            self._connect_next()

    def _has_peer(self) -> bool:
        assert self._socket is not None
        try:
            self._socket.getpeername()
        except OSError:
            return False
        return True

    def _unpacked(self) -> bool:
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def _after_receiving(self) -> list[Received]:
        failure = self._connection.failure
        if isinstance(failure, AuthenticationError):
            self._fail(type(failure)(f"{self._where}: {failure}"))
        elif failure is not None:
            self._fail(failure)
        elif not self._connection.ready:
            self._shake_hands()
            if self._connection.failure is None:
                self.writable()
            else:  # what is to be sent next, this broker does not know
                self._fail(self._connection.failure)
        if self._held:
            if not self._connection.outstanding:
                self.authenticate_at = now()
        elif self._connection.ready and (not self._was_ready or self._waiting is not None):
            return self._authenticated()
        return []

    def _authenticated(self) -> list[Received]:
        """Ready, or ready again: what waited goes out. Returns what cannot be sent."""
        self._was_ready = True
        if self.line is None and isinstance(self._socket, ssl.SSLSocket):
            self.line = unlocked_line(self._socket)
        lifetime = self._connection.session_lifetime
        if lifetime > 0:
            self.authenticate_at = now() + _until_next(lifetime, self._ahead)
            self._session_ends_at = now() + lifetime
            self._pause = _FIRST_PAUSE
        return self._send_waiting()

    def _send_waiting(self) -> list[Received]:
        # None before they are sent: `send` would else queue them once more.
        waiting, self._waiting = self._waiting or [], None
        refused = []
        for request_id, request in waiting:
            try:
                self.send(request_id, request)
            except KafkaError as error:
                refused.append(Received(request_id=request_id, error=error))
            if self.failure is not None:
                break
        return refused

    # -- connecting

    def _connect_next(self) -> None:
        self._drop_socket()
        while self._addresses:
            family, address = self._addresses.popleft()
            self.tried.append((family, address))
            try:
                self._start(family, address)
            except OSError as error:
                self._errors.append(str(error))
                self._drop_socket()
            else:
                self.stalls_at = self._next_at()
                return
        self._fail(TransportError(f"cannot connect to {self._where}: {'; '.join(self._errors) or 'no address'}"))

    def _next_at(self) -> float:
        """Law 2. The last one has all that is left: whoever opens the connection ends that."""
        others = len(self._addresses)
        if not others:
            return float("inf")
        at, patient = now(), self._all_failed and len(self.tried) == 1
        time_left = self._until - at
        mine = share(time_left, others, least=self._least_share, patient=patient)
        # For another one there would be no time: it has not failed.
        return at + mine if mine < time_left else float("inf")

    def _start(self, family: int, address: object) -> None:
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # macOS and BSD have some of them only.
        for option, value in _LIFE.items():
            if hasattr(socket, option):
                self._socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        code = self._socket.connect_ex(address)  # type: ignore[arg-type]
        if code not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
            raise OSError(code, os.strerror(code))

    def _finish_connecting(self) -> bool:
        assert self._socket is not None
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._errors.append(os.strerror(code))
            self._connect_next()
            return False
        self._connected = True
        self.stalls_at = float("inf")
        if self._tls is None:
            self._secure = True
            self.line = Line()
            self._shake_hands()
            return True
        try:
            self._socket = self._tls.wrap(self._socket)
        except Exception as error:  # noqa: BLE001 - the context may be of a class of the user's own
            self._fail(self._tls.failure(error))
            return False
        return True

    def _finish_tls(self) -> bool:
        assert isinstance(self._socket, ssl.SSLSocket)
        assert self._tls is not None
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            self._tls_waits_for = selectors.EVENT_READ
            return False
        except ssl.SSLWantWriteError:
            self._tls_waits_for = selectors.EVENT_WRITE
            return False
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(self._tls.failure(error))
            return False
        self._secure = True
        self._shake_hands()
        return True

    def _shake_hands(self) -> None:
        """Queue what the handshake wants sent."""
        frame = self._connection.handshake()
        if frame:
            self._out.append(memoryview(frame))

    def _broken(self, error: OSError, what: str) -> KafkaError:
        # In TLS 1.3 a broker refuses our certificate after our handshake has ended: the first read tells.
        if self._tls is not None and not self._connection.versions:
            return self._tls.failure(error)
        return TransportError(f"{what}: {error}")

    def _end_of_stream(self) -> KafkaError:
        if self._tls is not None and not self._connection.versions:
            return self._tls.closed(None)
        return self._connection.end_of_stream()

    # -- the end

    def _fail(self, error: KafkaError) -> None:
        if self.failure is None:
            self.failure = error
        self._drop_socket()

    def close(self, *, abort: bool = False) -> None:
        """abort: reset the connection. Else the kernel goes on sending what the peer has not got, for minutes."""
        if abort and self._socket is not None:
            with suppress(OSError):  # macOS takes no option of a socket that both sides have shut
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._fail(TransportError("closed"))

    def let_go(self) -> None:
        """In a forked child: the connection is the parent's, whose peer is told nothing. Of TLS nothing is touched: the
        parent's thread may have been inside it.

        The child may go on within a method of this object, where a callback forked: what it sends or reads then goes by
        the socket, which has no number any more, and not by OpenSSL's copy of that, which may be another file's.
        """
        self.line = self._tls = None
        self._connected = self._secure = True
        if self._socket is not None and (number := self._socket.detach()) >= 0:
            with suppress(OSError):  # another hook of the fork's may have closed it
                os.close(number)

    def _drop_socket(self) -> None:
        self._take_back()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._connected = self._secure = False


def _until_next(lifetime: float, ahead: float) -> float:
    """When to authenticate anew, in seconds from the beginning of a session of `lifetime`: before the broker's patience
    ends, and not on all connections at once (as the Java client does)."""
    share, more = random.uniform(0.85, 0.95), random.uniform(1.05, 1.2)  # noqa: S311 - no secret
    # Of a short session half is used: else it would be authenticated all the time.
    early = max(min(lifetime * share, lifetime - ahead * more), lifetime / 2)
    return max(early, 1.1)  # a broker takes no other authentication within a second
