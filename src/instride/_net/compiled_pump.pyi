"""What `compiled_pump.py` offers, for type checkers (its own annotations speak Cython)."""

from typing import Final, Generic, TypeVar, final

COMPILED: Final[bool]

D = TypeVar("D")

@final
class Line:
    """Where a socket's bytes are received while `Pump.select` waits. Not thread-safe.

    secured: addresses of OpenSSL's connection and functions, where it speaks TLS (`openssl.py` makes such a line).
    keeper: what must live as long.
    """

    def __init__(self, secured: tuple[int, ...] | None = None, keeper: object = None) -> None: ...
    @property
    def trouble(self) -> tuple[int, int, int] | None:
        """Why TLS has ended, where it has: of SSL_get_error, OpenSSL's error queue, and errno."""

    def send(self, data: memoryview) -> int:
        """By TLS, without giving up the GIL. How many bytes went; 0: none now, or there is trouble."""

    def offer(self, buffer: memoryview, wanted: int) -> None:
        """Receive into this buffer, which is not empty. wanted: as many bytes of it make a frame whole; 0: a frame
        begins with the buffer, and its first four bytes say how long it is.

        Nobody else touches the buffer until it was taken.
        """

    @property
    def received(self) -> int:
        """How many bytes are in the buffer."""

    def take(self) -> int:
        """Give the buffer back. How many bytes were received into it."""

@final
class Pump(Generic[D]):
    """Not thread-safe: the network thread owns it. register, unregister: a socket by its number.

    crowded: in the last second the GIL came back late: some thread of the process holds it as long as it may.
    takes: how often `select` gave up the GIL.
    """

    def __init__(self, *, eager: bool) -> None:
        """eager: have the system wake us for much at once (SO_RCVLOWAT, where it means that)."""

    @property
    def crowded(self) -> bool: ...
    @property
    def takes(self) -> int: ...
    def register(self, data: D, number: int, interest: int, line: Line | None = None) -> None:
        """data: whose socket it is, one each. number: of the socket. interest: as of `selectors`."""

    def unregister(self, data: D) -> None: ...
    def select(self, timeout: float) -> list[tuple[D, int]]:
        """Whose socket is ready, and for what (`selectors.EVENT_READ`, `EVENT_WRITE`); nothing after `timeout` seconds.

        A socket with a line is ready to read once a frame is whole, when it failed or ended, and where a part of a
        frame has come and either a moment of 0.1 s is over or something else is ready. Raises OSError.
        """

@final
class Waker:
    """Writes a byte to a socket that does not block, from any thread, without giving up the GIL.

    Closed before the socket is, it never writes to whatever has the number then.
    """

    def __init__(self, number: int) -> None: ...
    def wake(self) -> None: ...
    def close(self) -> None: ...

def send(number: int, data: memoryview) -> int:
    """How many bytes the socket took, without giving up the GIL: it must not block. Raises OSError."""

def receive(number: int, buffer: memoryview) -> int:
    """How many bytes came, without giving up the GIL: the socket must not block. Raises OSError."""
