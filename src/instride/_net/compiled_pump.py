# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled form of `pump`, for Cython; `plain_pump` gives the same answers.

Laws
1. Whoever gives up the GIL beside a busy thread gets it back up to `sys.getswitchinterval()` later. So it is given up
   once for a wait, however many reads a response takes, and never for what does not wait (`send`, `receive`).
2. What is received goes where `Line.offer` said, and no further. What it means is not judged here: but for its first
   four bytes, by which a frame that has room is whole.
3. A frame that has begun is told of after `_MOMENT` (twice that where bytes keep coming), whole or not: who waits for
   it judges whether it goes on coming.
4. TLS is OpenSSL's, called without the GIL on a connection that Python made (`openssl.py`). What OpenSSL has unpacked
   the system does not know of: it is received before anything is waited for.

`compiled_pump.pyi` is what type checkers see.
"""

from __future__ import annotations

import os

from instride._wire.compiled import require_compiled

try:
    import cython
except ImportError:
    require_compiled(__name__, compiled=False)
    raise
if cython.compiled:
    from cython.cimports.cpython.exc import PyErr_SetFromErrno
    from cython.cimports.libc.errno import EAGAIN, EINTR, ENOMEM, errno
    from cython.cimports.libc.stdlib import free, malloc

__all__ = ["COMPILED", "Line", "Pump", "Waker", "receive", "send"]

COMPILED: bool = cython.compiled
require_compiled(__name__, compiled=COMPILED)

# Seconds: how long the rest of a frame is waited for; a GIL that comes back so late, somebody holds; how long that is
# taken to go on.
_MOMENT = cython.declare(cython.double, 0.1)
_LATE = cython.declare(cython.double, 0.002)
_CROWDED_FOR = cython.declare(cython.double, 1.0)
# Milliseconds until it is waited anew where the system had no memory for a wait.
_PAUSE = cython.declare(cython.int, 5)
# Of a long frame so much is to be there before the system wakes us; the last of it may be less.
_AT_ONCE = cython.declare(cython.Py_ssize_t, 1 << 20)
_HEAD = cython.declare(cython.Py_ssize_t, 4)
# What OpenSSL may have of a record that is not whole: that much less is still to come.
_RECORD = cython.declare(cython.Py_ssize_t, 17 << 10)
# OpenSSL takes lengths as an int.
_LARGEST_READ = cython.declare(cython.Py_ssize_t, 1 << 30)
# Of SSL_get_error.
_WANT_READ = cython.declare(cython.int, 2)
_WANT_WRITE = cython.declare(cython.int, 3)

if cython.compiled:
    _Slot = cython.struct(
        octets=cython.p_uchar,
        size=cython.Py_ssize_t,
        used=cython.Py_ssize_t,
        wanted=cython.Py_ssize_t,
        least=cython.Py_ssize_t,
        told=cython.bint,
        tls=cython.pointer(Secured),
    )


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _now() -> cython.double:
    # Not the clock of `clock`: waits are relative, and the time that poll counts stops with this one in a suspend.
    at: timespec
    clock_gettime(CLOCK_MONOTONIC, cython.address(at))
    return at.tv_sec + at.tv_nsec * 1e-9


@cython.final
@cython.cclass
class Line:
    """See `compiled_pump.pyi`."""

    _view: cython.uchar[::1]
    _used: cython.Py_ssize_t
    _wanted: cython.Py_ssize_t
    _least: cython.Py_ssize_t
    _offered: cython.bint
    _tls: Secured
    _keeper: object

    def __init__(self, secured: tuple | None = None, keeper: object = None) -> None:
        self._tls.ssl = cython.NULL
        self._tls.outcome = 0
        self._keeper = keeper
        if secured is not None:
            self._secure(secured)
        self._used = 0
        self._wanted = 0
        self._least = 1  # SO_RCVLOWAT, as it was set last
        self._offered = False
        self._view = None

    @cython.cfunc
    def _secure(self, secured: tuple) -> object:
        places: cython.size_t[7]
        n: cython.Py_ssize_t
        for n in range(7):
            places[n] = secured[n]
        self._tls.ssl = cython.cast(cython.p_void, places[0])
        self._tls.read = cython.cast(ssl_read_t, places[1])
        self._tls.write = cython.cast(ssl_write_t, places[2])
        self._tls.has_pending = cython.cast(ssl_has_pending_t, places[3])
        self._tls.get_error = cython.cast(ssl_get_error_t, places[4])
        self._tls.clear_error = cython.cast(err_clear_error_t, places[5])
        self._tls.peek_last_error = cython.cast(err_peek_last_error_t, places[6])
        return None

    @property
    def trouble(self) -> object:
        if self._tls.outcome == 0:
            return None
        return (self._tls.outcome, self._tls.code, self._tls.number)

    def send(self, data: cython.const[cython.uchar][::1]) -> int:
        if data.shape[0] == 0 or self._tls.ssl == cython.NULL or self._tls.outcome != 0:
            return 0
        # SSL_get_error looks into the thread's error queue, where another connection may have left something.
        self._tls.clear_error()
        clear_errno()
        size: cython.Py_ssize_t = min(data.shape[0], _LARGEST_READ)
        sent: cython.int = self._tls.write(self._tls.ssl, cython.address(data[0]), cython.cast(cython.int, size))
        if sent > 0:
            return sent
        _judge(cython.address(self._tls), sent)
        return 0

    def offer(self, buffer: cython.uchar[::1], wanted: cython.Py_ssize_t) -> None:
        self._view = buffer
        self._used = 0
        self._wanted = wanted
        self._offered = True

    @property
    def received(self) -> int:
        return self._used

    def take(self) -> int:
        # A view that stays would keep the segment from being used again (`memory_pool`).
        self._view = None
        self._offered = False
        used: cython.Py_ssize_t = self._used
        self._used = 0
        return used


@cython.final
@cython.cclass
class _Entry:
    number: cython.int
    events: cython.short
    data: object
    line: Line

    def __init__(self, number: cython.int, events: cython.short, data: object, line: object):
        self.number = number
        self.events = events
        self.data = data
        self.line = line


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _frame_end(octets: cython.p_uchar, used: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """How many bytes the frame takes that begins here: 0 where that is not known yet, `used` where it has no room."""
    if used < _HEAD:
        return 0
    length: cython.longlong = octets[0]
    if length > 127:
        return used
    length = (length * 256 + octets[1]) * 65536 + octets[2] * 256 + octets[3]
    return used if length + _HEAD > size else length + _HEAD


@cython.final
@cython.cclass
class Pump:
    """See `compiled_pump.pyi`."""

    takes = cython.declare(cython.longlong, visibility="readonly")
    _entries: dict
    _eager: cython.bint
    _crowded_until: cython.double

    def __init__(self, *, eager: bool) -> None:
        self._entries = {}
        self._eager = eager
        self._crowded_until = 0.0
        self.takes = 0

    @property
    def crowded(self) -> bool:
        return _now() < self._crowded_until

    def register(self, data: object, number: cython.int, interest: cython.int, line: object = None) -> None:
        events: cython.short = (POLLIN if interest & 1 else 0) | (POLLOUT if interest & 2 else 0)
        self._entries[data] = _Entry(number, events, data, line)

    def unregister(self, data: object) -> None:
        self._entries.pop(data, None)

    def select(self, timeout: cython.double) -> list:
        # The list keeps the lines' buffers alive, whose addresses C has.
        entries: list = list(self._entries.values())
        count: cython.Py_ssize_t = len(entries)
        # One more than needed: malloc of nothing may give NULL, which means no memory here.
        fds: cython.pointer(pollfd) = cython.cast(
            cython.pointer(pollfd),
            malloc((count + 1) * cython.sizeof(pollfd)),
        )
        slots: cython.pointer(_Slot) = cython.cast(cython.pointer(_Slot), malloc((count + 1) * cython.sizeof(_Slot)))
        if fds == cython.NULL or slots == cython.NULL:
            free(fds)
            free(slots)
            raise MemoryError("no memory to wait for sockets")
        try:
            self._lay_out(entries, fds, slots)
            self._wait(fds, slots, count, timeout)
            return self._tell(entries, fds, slots)
        finally:
            free(fds)
            free(slots)

    @cython.cfunc
    def _lay_out(self, entries: list, fds: cython.pointer(pollfd), slots: cython.pointer(_Slot)) -> object:
        n: cython.Py_ssize_t
        entry: _Entry
        line: Line
        for n in range(len(entries)):
            entry = entries[n]
            line = entry.line
            fds[n].fd = entry.number
            fds[n].events = entry.events
            fds[n].revents = 0
            slots[n].octets = cython.NULL
            slots[n].size = slots[n].used = slots[n].wanted = 0
            slots[n].told = False
            slots[n].tls = cython.NULL
            if line is not None and line._offered and line._view.shape[0] > 0:
                slots[n].octets = cython.address(line._view[0])
                slots[n].size = line._view.shape[0]
                slots[n].used = line._used
                slots[n].wanted = line._wanted
                slots[n].least = line._least
                if line._tls.ssl != cython.NULL:
                    slots[n].tls = cython.address(line._tls)
                # Others may have read since: less is missing now, or another frame is awaited.
                if self._eager and line._wanted - line._used < line._least:
                    _wake_for(cython.address(slots[n]), fds[n].fd)
        return None

    @cython.cfunc
    def _wait(
        self,
        fds: cython.pointer(pollfd),
        slots: cython.pointer(_Slot),
        count: cython.Py_ssize_t,
        timeout: cython.double,
    ) -> object:
        """Law 1. Beside a busy thread what is there already is received before the GIL is given up."""
        eager: cython.bint = self._eager
        back: cython.double = _now()
        done: cython.double
        failed: cython.int
        if timeout <= 0 or back < self._crowded_until:
            _check_failed(_pump(fds, slots, count, 0.0, eager))
            if timeout <= 0 or _anything(fds, slots, count):
                return None
        self.takes += 1
        with cython.nogil:
            failed = _pump(fds, slots, count, timeout, eager)
            back = _now()
        done = _now()
        _check_failed(failed)
        if done - back > _LATE:
            self._crowded_until = done + _CROWDED_FOR
        return None

    @cython.cfunc
    def _tell(self, entries: list, fds: cython.pointer(pollfd), slots: cython.pointer(_Slot)) -> list:
        n: cython.Py_ssize_t
        entry: _Entry
        found: list = []
        for n in range(len(entries)):
            entry = entries[n]
            mask: cython.int = 0
            if slots[n].octets != cython.NULL:
                entry.line._used = slots[n].used
                entry.line._wanted = slots[n].wanted
                entry.line._least = slots[n].least
                if slots[n].used > 0 or slots[n].told:
                    # So that the beginning of a frame is seen, too: it may be all that comes (law 3).
                    mask = 1
            elif fds[n].revents & ~POLLOUT:
                mask = 1
            if fds[n].revents & POLLOUT:
                mask |= 2
            elif fds[n].revents and fds[n].events & POLLOUT and not fds[n].events & POLLIN:
                mask |= 2  # an error of a connection that is being made
            if mask:
                found.append((entry.data, mask))
        return found


if cython.compiled:

    @cython.cfunc
    def _check_failed(number: cython.int) -> object:
        if number in {ENOMEM, EAGAIN}:
            # The system may have memory again soon. What was received before is told of.
            with cython.nogil:
                poll(cython.NULL, 0, _PAUSE)
        elif number != 0:
            # More sockets than the process may have open, say: then poll comes back at once, again and again.
            raise OSError(number, os.strerror(number))
        return None

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _anything(
        fds: cython.pointer(pollfd),
        slots: cython.pointer(_Slot),
        count: cython.Py_ssize_t,
    ) -> cython.bint:
        """Whether somebody is to be told of something: a frame's beginning alone may wait."""
        n: cython.Py_ssize_t
        for n in range(count):
            if slots[n].octets == cython.NULL:
                if fds[n].revents != 0:
                    return True
            elif slots[n].told or fds[n].revents & ~POLLIN:
                return True
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _pump(
        fds: cython.pointer(pollfd),
        slots: cython.pointer(_Slot),
        count: cython.Py_ssize_t,
        timeout: cython.double,
        eager: cython.bint,
    ) -> cython.int:
        """Until something is whole, or ready, or the time is over: then what is there is received all the same.

        Returns the number of the error that poll met, or 0.
        """
        at: cython.double = _now()
        until: cython.double = at + timeout
        n: cython.Py_ssize_t
        ready: cython.int
        begun: cython.bint = _unpack(slots, fds, count, eager)
        if begun:
            if _anything(fds, slots, count):
                return 0
            until = min(until, at + _MOMENT)
        while True:
            # Rounded up: poll would else come back before the time, and again and again until it is over.
            ready = poll(fds, count, 0 if until <= at else cython.cast(cython.int, (until - at) * 1000 + 0.999))
            if ready < 0:
                # A signal that this thread took: to look at everything a turn early does no harm.
                return 0 if errno == EINTR else errno
            if ready > 0:
                for n in range(count):
                    # Input and nothing else: with a hang-up or an error beside it, whoever reads is to meet that.
                    if fds[n].revents == POLLIN and slots[n].octets != cython.NULL:
                        _receive(cython.address(slots[n]), fds[n].fd, eager)
                        if not begun and slots[n].used > 0:
                            begun = True
                            until = min(until, _now() + _MOMENT)
                    elif fds[n].revents & ~POLLOUT:
                        slots[n].told = True
                if _anything(fds, slots, count):
                    return 0
            at = _now()
            if (at >= until and ready == 0) or at >= until + _MOMENT:
                return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _receive(slot: cython.pointer(_Slot), fd: cython.int, eager: cython.bint) -> cython.void:
        if slot.tls != cython.NULL:
            if not _decipher(slot):
                return
        else:
            got: cython.Py_ssize_t = recv(fd, slot.octets + slot.used, slot.size - slot.used, 0)
            if got <= 0:
                if got == 0 or errno not in {EAGAIN, EINTR}:
                    slot.told = True  # whoever reads it sees the same
                return
            slot.used += got
        if slot.wanted == 0:
            slot.wanted = _frame_end(slot.octets, slot.used, slot.size)
        if slot.used == slot.size or (slot.wanted > 0 and slot.used >= slot.wanted):
            slot.told = True
        if eager:
            _wake_for(slot, fd)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _unpack(
        slots: cython.pointer(_Slot),
        fds: cython.pointer(pollfd),
        count: cython.Py_ssize_t,
        eager: cython.bint,
    ) -> cython.bint:
        """Law 4. Whether there is anything, or was: what `_wait` received before it gives up the GIL has begun, too."""
        n: cython.Py_ssize_t
        found: cython.bint = False
        for n in range(count):
            # `_anything` looks at them before this call has polled: they would be those of the call before.
            fds[n].revents = 0
            if slots[n].tls != cython.NULL and slots[n].tls.has_pending(slots[n].tls.ssl):
                _receive(cython.address(slots[n]), fds[n].fd, eager)
            found = found or slots[n].used > 0 or slots[n].told
        return found

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _decipher(slot: cython.pointer(_Slot)) -> cython.bint:
        """Record after record, as long as there are any. Whether anything has come."""
        before: cython.Py_ssize_t = slot.used
        got: cython.int
        while slot.used < slot.size:
            slot.tls.clear_error()
            clear_errno()
            got = slot.tls.read(
                slot.tls.ssl,
                slot.octets + slot.used,
                cython.cast(cython.int, min(slot.size - slot.used, _LARGEST_READ)),
            )
            if got <= 0:
                if _judge(slot.tls, got):
                    slot.told = True
                break
            slot.used += got
        return slot.used > before

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _judge(tls: cython.pointer(Secured), returned: cython.int) -> cython.bint:
        """Notes why a read or write gave nothing. Whether anybody is to be told."""
        # Before all else, since every call may set it anew.
        number: cython.int = errno
        outcome: cython.int = tls.get_error(tls.ssl, returned)
        if outcome == _WANT_READ:
            return False
        # A read that wants to write answers the peer's new keys: Python's own read goes on with it.
        if outcome != _WANT_WRITE:
            tls.outcome = outcome
            tls.code = tls.peek_last_error()
            # With 0 the peer ended without TLS's close_notify, and errno tells of something else.
            tls.number = 0 if returned == 0 else number
        # Python's ssl would take what is left in the queue for the trouble of its own next call.
        tls.clear_error()
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _wake_for(slot: cython.pointer(_Slot), fd: cython.int) -> cython.void:
        missing: cython.Py_ssize_t = slot.wanted - slot.used
        if slot.tls != cython.NULL:
            missing -= _RECORD
        value: cython.int = 1
        if missing > 1:
            value = cython.cast(cython.int, missing if missing < _AT_ONCE else _AT_ONCE)
        if value != slot.least:
            slot.least = value
            setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, cython.address(value), cython.sizeof(cython.int))


@cython.final
@cython.cclass
class Waker:
    """See `compiled_pump.pyi`."""

    _number: cython.int

    def __init__(self, number: cython.int) -> None:
        self._number = number

    def wake(self) -> None:
        octet: cython.uchar = 0
        # The GIL is kept until the byte is sent: so nothing closes the socket, or opens another of its number, in
        # between.
        if self._number >= 0:
            _send(self._number, cython.address(octet), 1, 0)

    def close(self) -> None:
        self._number = -1


def send(number: cython.int, data: cython.const[cython.uchar][::1]) -> int:
    """See `compiled_pump.pyi`."""
    if data.shape[0] == 0:
        return 0
    sent: cython.Py_ssize_t = _send(number, cython.address(data[0]), data.shape[0], 0)
    if sent < 0:
        PyErr_SetFromErrno(OSError)
    return sent


def receive(number: cython.int, buffer: cython.uchar[::1]) -> int:
    """See `compiled_pump.pyi`."""
    got: cython.Py_ssize_t = recv(number, cython.address(buffer[0]), buffer.shape[0], 0)
    if got < 0:
        PyErr_SetFromErrno(OSError)
    return got
