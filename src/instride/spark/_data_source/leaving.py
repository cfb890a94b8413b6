"""How `stop(query)` reaches the query's source, which is a process of its own beside Spark's driver.

Laws
1. Each run of a source has a token. It is in the end offsets that the run plans, and so in the query's progress; by it
   the driver finds the unix socket on which the source listens.
2. A source that was asked to leave plans no batch any more. When the batch in flight is confirmed and its offsets are
   committed to the group, it leaves the group, and says so.
3. The sockets are in a folder that only this user may enter.
"""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from instride.errors import ConfigError, IllegalStateError, KafkaTimeoutError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Door", "new_token", "stop"]

_TOKEN: Final = re.compile(r"[0-9a-f]{16}")
_LEAVE: Final = b"leave\n"
_LEFT: Final = b"left\n"
# Bytes of a socket's name: systems take 104 to 108, with the zero at its end.
_MOST: Final = 100
_TURN: Final = 0.1
"""Seconds between two looks at a query."""


def new_token() -> str:
    return os.urandom(8).hex()


def _folder() -> Path:
    """Raises ConfigError where somebody else may write to it."""
    folder = Path(tempfile.gettempdir()) / f"instride-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    # Not `stat`: somebody else may have put a link there.
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigError(f"{folder} must be a folder that only this user may enter; mend it, or set TMPDIR")
    return folder


def _place(token: str) -> Path:
    return _folder() / f"{token}.sock"


class Door:
    """The source's side. leave: asks the member to leave, and returns the event that says that it has left."""

    def __init__(self, token: str, leave: Callable[[], threading.Event]) -> None:
        self._leave = leave
        self._path = _place(token)
        if len(str(self._path)) > _MOST:
            raise ConfigError(f"{self._path} is too long a name for a socket: set TMPDIR to a shorter folder")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(self._path))
        self._socket.listen()
        threading.Thread(target=self._listen, name="instride-door", daemon=True).start()

    def close(self) -> None:
        # First: from here on nobody connects to a socket on which nobody listens.
        self._path.unlink(missing_ok=True)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._socket.close()

    def _listen(self) -> None:
        while True:
            try:
                caller, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(caller,), name="instride-leaving", daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        with caller, suppress(OSError):
            if caller.makefile("rb").readline(len(_LEAVE)) == _LEAVE:
                self._leave().wait()
                caller.sendall(_LEFT)


def stop(query: StreamingQuery, *, timeout: float | None = None) -> None:
    """Stop a streaming query of the source so that nothing of it is read twice, and wait until that is done.

    A source in group mode (the option `consumerGroup`) plans nothing more, awaits that Spark has committed the batch in
    flight, commits its offsets to the group and leaves it; then the query is stopped. Any other query is just stopped.

    timeout: seconds; None waits as long as the batch takes. Call it in the driver, from any thread.
    Raises KafkaTimeoutError: then the query is active, plans nothing more, and may be stopped again. Raises
    IllegalStateError under Spark Connect, where the source is on another machine.
    """
    if type(query).__module__.startswith("pyspark.sql.connect"):
        raise IllegalStateError("instride.spark.stop reaches a query in its driver only, not over Spark Connect")
    deadline = None if timeout is None else time.monotonic() + timeout
    callers = _reached(query, deadline)
    try:
        for caller in callers:
            while query.isActive and not _has_left(caller):
                _check(deadline)
    finally:
        for caller in callers:
            caller.close()
    query.stop()


def _reached(query: StreamingQuery, deadline: float | None) -> list[socket.socket]:
    """Every source of the query in group mode, asked to leave. Waits for the run's first progress, which names them."""
    while query.isActive:
        progress = query.lastProgress
        if progress is not None:
            tokens = _tokens(progress["sources"])
            callers = [caller for token in tokens for caller in _requested(token)]
            if len(callers) == len(tokens):
                return callers
            # The batch before the first one of this run: the sources of the last run planned it.
            for caller in callers:
                caller.close()
        elif _waits_for_data(query):
            return []
        _check(deadline)
        time.sleep(_TURN)
    return []


def _waits_for_data(query: StreamingQuery) -> bool:
    """A query in group mode does so only after its first batch (law 2 of `group_stream`)."""
    status = query.status
    return not status["isTriggerActive"] and str(status["message"]).startswith("Waiting for")


def _tokens(sources: list[Any]) -> list[str]:
    found = []
    for source in sources:
        with suppress(ValueError, TypeError, AttributeError, KeyError):
            end = source["endOffset"]
            token = (json.loads(end) if isinstance(end, str) else end)["group"]["run"]
            if _TOKEN.fullmatch(token):
                found.append(token)
    return found


def _requested(token: str) -> list[socket.socket]:
    """None where no source listens."""
    caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        caller.connect(str(_place(token)))
        caller.sendall(_LEAVE)
    except OSError:
        caller.close()
        return []
    caller.settimeout(_TURN)
    return [caller]


def _has_left(caller: socket.socket) -> bool:
    """Waits a turn. Where the source's process ends, Spark ends the query."""
    try:
        said = caller.recv(len(_LEFT))
    except TimeoutError:
        return False
    # The source's process has ended: until Spark knows, this would be called again at once.
    if not said:
        time.sleep(_TURN)
    return said == _LEFT


def _check(deadline: float | None) -> None:
    if deadline is not None and time.monotonic() >= deadline:
        raise KafkaTimeoutError(
            "the query's batch was not confirmed in time; the query is active and plans nothing more: stop it again"
        )
