"""One TCP connection: connecting, bytes out, bytes in. What the bytes mean is `wire.connection`'s business.

Laws
1. The socket never blocks.
2. Every address of a name is tried before the connection fails; the error tells of each.
3. After `close`, nothing is sent and nothing is reported.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
from collections import deque

from instride.errors import KafkaError, TransportError
from instride.net.resolver import SocketAddress
from instride.wire.api import Request
from instride.wire.connection import Connection, Received

__all__ = ["Transport"]

# Bytes read of one connection before others have their turn.
_READ_TURN = 4 << 20


class Transport:
    """Not thread-safe: the network thread owns it.

    ready: connected, and the handshake is done. failure: why it is of no use any more.
    """

    def __init__(self, addresses: list[SocketAddress], where: str, connection: Connection) -> None:
        self._addresses = deque(addresses)
        self._where = where
        self._connection = connection
        self._socket: socket.socket | None = None
        self._connected = False
        self._out: deque[memoryview] = deque()
        self._errors: list[str] = []
        self.failure: KafkaError | None = None
        self._connect_next()

    # -- for the selector

    @property
    def socket(self) -> socket.socket | None:
        return self._socket

    @property
    def interest(self) -> int:
        if not self._connected:
            return selectors.EVENT_WRITE
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)

    @property
    def ready(self) -> bool:
        return self.failure is None and self._connection.ready

    # -- out

    def send(self, request_id: int, request: Request) -> None:
        """Queue a request's frame, and send what the socket takes. Raises what `Connection.send` raises."""
        self._out.append(memoryview(self._connection.send(request_id, request)))
        self.writable()

    def writable(self) -> None:
        if not self._connected and not self._finish_connecting():
            return
        assert self._socket is not None
        try:
            while self._out:
                sent = self._socket.send(self._out[0])
                if sent < len(self._out[0]):
                    self._out[0] = self._out[0][sent:]
                else:
                    self._out.popleft()
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(TransportError(f"sending to {self._where} failed: {error}"))

    # -- in

    def readable(self) -> list[Received]:
        """Answers that are complete now. May set `failure`."""
        received: list[Received] = []
        assert self._socket is not None
        taken = 0
        try:
            while taken < _READ_TURN and self.failure is None:
                count = self._socket.recv_into(self._connection.get_buffer())
                if count == 0:
                    self._fail(self._connection.end_of_stream())
                    break
                taken += count
                received += self._connection.buffer_updated(count)
                self._after_receiving()
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(TransportError(f"the connection to {self._where} broke: {error}"))
        return received

    def _after_receiving(self) -> None:
        if self._connection.failure is not None:
            self._fail(self._connection.failure)
        elif not self._connection.ready:
            self._shake_hands()

    # -- connecting

    def _connect_next(self) -> None:
        self._drop_socket()
        while self._addresses:
            family, address = self._addresses.popleft()
            try:
                self._start(family, address)
            except OSError as error:
                self._errors.append(str(error))
                self._drop_socket()
            else:
                return
        self._fail(TransportError(f"cannot connect to {self._where}: {'; '.join(self._errors) or 'no address'}"))

    def _start(self, family: int, address: object) -> None:
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
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
        self._shake_hands()
        return True

    def _shake_hands(self) -> None:
        frame = self._connection.handshake()
        if frame:
            self._out.append(memoryview(frame))
            self.writable()

    # -- the end

    def _fail(self, error: KafkaError) -> None:
        if self.failure is None:
            self.failure = error
        self._drop_socket()

    def close(self) -> None:
        self._fail(TransportError("closed"))

    def _drop_socket(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._connected = False
