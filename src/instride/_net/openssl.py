"""OpenSSL's own read and write for a connection that Python's `ssl` has made and verified.

Python's `SSLSocket` gives the GIL away for each record of 16 KiB; beside a busy thread it comes back 5 ms later each
time. The pump therefore calls the same OpenSSL on the same connection itself.

Laws
1. Certificates, names, ciphers and the handshake are Python's. Here nothing is set, only read and written.
2. The functions are those of the library that Python's `_ssl` is linked with, and no other's.
3. Where `_ssl` keeps OpenSSL's connection is not documented, but is the same in CPython 3.7 to 3.13. It is believed
   only where its neighbours are what they are to be, and OpenSSL names our socket's number for it. Where anything is
   otherwise, nothing is found, and Python's own reads go on.
"""

from __future__ import annotations

import _ssl
import ctypes
import os
import ssl
import sys
import weakref
from dataclasses import dataclass
from functools import cache
from typing import Final

from instride._net.pump import COMPILED, Line

__all__ = ["trouble", "unlocked_line"]

_WORD: Final = ctypes.sizeof(ctypes.c_void_p)
_HEAD: Final = object.__basicsize__
_SSL, _SYSCALL, _ZERO_RETURN = 1, 5, 6  # of SSL_get_error
# In the order in which `Line` takes them.
_CALLED: Final = ("SSL_read", "SSL_write", "SSL_has_pending", "SSL_get_error", "ERR_clear_error", "ERR_peek_last_error")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Library:
    opened: ctypes.CDLL
    addresses: tuple[int, ...]


@cache
def _library() -> _Library | None:
    """Law 2: a name is looked up in `_ssl` and in what it is linked with."""
    path = getattr(_ssl, "__file__", None)
    if not COMPILED or path is None or sys.implementation.name != "cpython" or os.name != "posix":
        return None
    try:
        opened = ctypes.CDLL(path)
        number = opened.OpenSSL_version_num
        number.restype = ctypes.c_ulong
        opened.ERR_reason_error_string.restype = ctypes.c_char_p
        opened.ERR_reason_error_string.argtypes = [ctypes.c_ulong]
        opened.SSL_get_fd.argtypes = [ctypes.c_void_p]
        found = tuple(ctypes.cast(getattr(opened, name), ctypes.c_void_p).value or 0 for name in _CALLED)
    except (OSError, AttributeError):
        return None
    # Another OpenSSL in the process, a wheel's own say, must not be taken for Python's.
    if number() != ssl.OPENSSL_VERSION_NUMBER or not all(found):
        return None
    return _Library(opened=opened, addresses=found)


def unlocked_line(secured: ssl.SSLSocket) -> Line | None:
    """For the pump, after the handshake; None where there is no safe way. The line keeps what it reads from alive."""
    library = _library()
    inner: object = secured._sslobj  # type: ignore[attr-defined]
    address = 0 if library is None or inner is None else _address(secured, inner)
    if library is None or not address or library.opened.SSL_get_fd(address) != secured.fileno():
        return None
    return Line((address, *library.addresses), inner)


def _address(secured: ssl.SSLSocket, inner: object) -> int:
    """Law 3. Where OpenSSL's connection is, 0 where that is not sure.

    It stands between a weak reference to the socket and the context.
    """
    if type(inner).__basicsize__ < _HEAD + 3 * _WORD:
        return 0
    owner, address, context = (ctypes.c_size_t.from_address(id(inner) + _HEAD + n * _WORD).value for n in range(3))
    # CPython keeps one weak reference without a callback for each object: this is the very one that `_ssl` made.
    reference = weakref.ref(secured)
    return address if owner == id(reference) and context == id(secured.context) else 0


def trouble(told: tuple[int, int, int]) -> OSError | None:
    """What `Line.trouble` means, as Python's `ssl` says it. None: the peer has ended the connection."""
    outcome, code, number = told
    if outcome == _SYSCALL and not code:
        return OSError(number, os.strerror(number)) if number else None
    library = _library()
    reason: bytes | None = library.opened.ERR_reason_error_string(code) if library is not None else None
    text = "unknown error" if reason is None else reason.decode(errors="replace")
    # OpenSSL 3 calls an end without close_notify an error; 1.1 said SYSCALL without a number.
    if outcome == _ZERO_RETURN or text == "unexpected eof while reading":
        return None
    return ssl.SSLError(_SSL, f"[SSL] {text}")
