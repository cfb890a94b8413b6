"""How `stop(query)` reaches the query's source, which is a process of its own beside Spark's driver.

Laws
1. Each run of a source has a token. It is in the end offsets that the run plans, and so in the query's progress; by it
   the driver finds the unix socket on which the source listens.
2. A source that was asked to leave plans no batch any more. When the batch in flight is confirmed and its offsets are
   committed to the group, it leaves the group, and says so. One whose member an error has ended says nothing: Spark
   finishes the batch, and then the query ends by that error. One that hangs up without a word is asked again while the
   query is active: it may have had no thread for the request.
3. The sockets are in a folder that only this user may enter. One whose process was killed is removed by the next
   source that begins.
4. A query is known to be in group mode by its first progress. One without progress is stopped at once where no source
   listens on this machine: then none has begun to read. Where one does, and Spark keeps no progress, nothing tells
   whether it is the query's.
5. The first batch of a run may have the token of the run before it, and the batch that follows it may report that once
   more. A source whose token is in later ones plans batches, and its socket must be here: else `stop` would wait for it
   for ever. Without new records it waits: no later batch says that the source is not that of the run before. And before
   the run's first batch law 4 stops a query at once whose socket is in another folder.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
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
_FRESH: Final = 60.0
"""Seconds for which a socket on which nobody listens may be one that is just being opened."""
_TURN: Final = 0.1
"""Seconds between two looks at a query."""
_KEPT: Final = "spark.sql.streaming.numRecentProgressUpdates"
"""Spark keeps one progress less than this says, and looks at it each time that a batch ends."""


def new_token() -> str:
    return os.urandom(8).hex()


def _folder() -> Path:
    """Raises ConfigError where somebody else may write to it."""
    folder = _named_folder()
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not _is_ours(folder) or folder.lstat().st_mode & 0o077:
        raise ConfigError(f"{folder} must be a folder that only this user may enter; mend it, or set TMPDIR")
    return folder


def _named_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"instride-{os.getuid()}"


def _is_ours(folder: Path) -> bool:
    # Not `stat`: somebody else may have put a link there.
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _place(token: str) -> Path:
    return _folder() / f"{token}.sock"


_PASSES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ECONNABORTED)
"""Why a socket or a caller could not be had for the moment: no file descriptor was left, say."""


class Door:
    """The source's side. leave: asks the member to leave. What it returns ends when the member is gone, and says
    whether it left as in law 2."""

    def __init__(self, token: str, leave: Callable[[], Future[bool]]) -> None:
        self._leave = leave
        self._path = _place(token)
        if len(str(self._path)) > _MOST:
            raise ConfigError(f"{self._path} is too long a name for a socket: set TMPDIR to a shorter folder")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(self._path))
        _remove_older(self._path)
        self._socket.listen()
        threading.Thread(target=self._listen, name="instride-door", daemon=True).start()

    def close(self) -> None:
        # First: from here on nobody connects to a socket on which nobody listens.
        with suppress(OSError):  # the next source removes it
            self._path.unlink()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._socket.close()

    def _listen(self) -> None:
        while True:
            try:
                caller, _ = self._socket.accept()
            except OSError as error:
                if error.errno not in _PASSES:
                    return  # it is closed
                time.sleep(_TURN)
                continue
            try:
                threading.Thread(target=self._serve, args=(caller,), name="instride-leaving", daemon=True).start()
            except RuntimeError:  # the system has no thread left: the caller asks again
                caller.close()
                time.sleep(_TURN)

    def _serve(self, caller: socket.socket) -> None:
        with caller, suppress(OSError):
            if caller.makefile("rb").readline(len(_LEAVE)) == _LEAVE and self._leave().result():
                caller.sendall(_LEFT)


def stop(query: StreamingQuery, *, timeout: float | None = None) -> None:
    """Stop a streaming query of the source so that nothing of it is read twice, and wait until that is done.

    A source in group mode (the option `consumerGroup`) plans nothing more, awaits that Spark has committed the batch in
    flight, commits its offsets to the group and leaves it; then the query is stopped. Any other query is just stopped;
    if sources in group mode run on this machine, too, as soon as its first batch is over, which says that it is none.

    timeout: seconds; None waits as long as the batch takes. Call it in the driver, from any thread but the one that
    runs the query's own foreachBatch, whose batch it would wait for; a listener may call it.
    Raises KafkaTimeoutError: then the query is active, and may be stopped again. A source in group mode that was
    reached plans nothing more; the error says whether one was. Raises IllegalStateError in the query's own
    foreachBatch, under Spark Connect, where the source is on another machine, and where the source has another
    temporary folder than the driver. Raises ConfigError where a source in group mode runs on this machine, and
    `spark.sql.streaming.numRecentProgressUpdates` is below 2, or the sockets' folder was opened to other users; mend
    that, and call it again.
    """
    if type(query).__module__.startswith("pyspark.sql.connect"):
        raise IllegalStateError("instride.spark.stop reaches a query in its driver only, not over Spark Connect")
    if _runs_in_this_thread(query):
        raise IllegalStateError(
            "stop(query) awaits the query's batch, and was called in it (foreachBatch): call it in another thread"
        )
    deadline = None if timeout is None else time.monotonic() + timeout
    callers = _reached(query, deadline)
    try:
        for token in callers:
            while query.isActive and not _has_left(token, callers):
                _check(deadline, "the query's batch was not confirmed in time; in group mode it plans nothing more")
    finally:
        for caller in callers.values():
            caller.close()
    query.stop()


def _reached(query: StreamingQuery, deadline: float | None) -> dict[str, socket.socket]:
    """Every source of the query in group mode, asked to leave, by its token. Waits for the run's first progress,
    which names them. Raises IllegalStateError (law 5), ConfigError."""
    since: dict[str, int] = {}
    while query.isActive:
        # Before the progress: a batch that ends between the two is in it.
        waits = _waits_for_data(query)
        progress = query.lastProgress
        if progress is not None:
            tokens = _tokens(progress["sources"])
            callers = {token: caller for token in tokens for caller in _requested(token)}
            if len(callers) == len(tokens):
                return callers
            for caller in callers.values():
                caller.close()
            # The batch before the first one of this run: the sources of the last run planned it.
            for token in tokens - callers.keys():
                newer = progress["batchId"] > since.setdefault(token, progress["batchId"]) + 1
                if newer and not _place(token).exists():
                    raise _out_of_reach(token)
        elif not _anybody_listens():
            return {}
        else:
            _check_progress_is_kept(query)
            if waits:
                return {}
        _check(deadline, "no source of the query was reached in time; in group mode the query plans on")
        time.sleep(_TURN)
    return {}


def _out_of_reach(token: str) -> IllegalStateError:
    return IllegalStateError(
        f"the query's source plans batches, and does not listen at {_place(token)}: where the driver and its Python "
        "processes have different temporary folders, set TMPDIR to the same one for both. The query was not stopped; a "
        "source of it that was reached plans nothing more"
    )


def _check_progress_is_kept(query: StreamingQuery) -> None:
    kept = str(query._jsq.sparkSession().conf().get(_KEPT))
    if int(kept) < 2:
        raise ConfigError(
            f"{_KEPT} is {kept}: Spark keeps no progress of the query, by which stop finds its source in group mode. "
            "Set it to 2 or more in the query's session, also while the query runs, and stop it again; one without "
            "consumerGroup ends by query.stop()"
        )


def _runs_in_this_thread(query: StreamingQuery) -> bool:
    """Py4J calls `foreachBatch` in the JVM's own thread of the query, which Spark names by its id. Not by the local
    property that Spark sets there: threads that are begun within a batch inherit it."""
    from pyspark import SparkContext  # noqa: PLC0415 - the source's own process has none

    context = SparkContext._active_spark_context
    if context is None or context._jvm is None:
        return False
    name = str(context._jvm.java.lang.Thread.currentThread().getName())
    return name.startswith("stream execution thread for") and f"id = {query.id}" in name


def _anybody_listens() -> bool:
    """Law 4. Raises ConfigError where one does in our folder, which was opened to others since."""
    try:
        folder = _named_folder()
        # In one that is not ours no source can have a socket. Not `glob`: it says nothing of one that cannot be read.
        found = _is_ours(folder) and any(_listens(path) for path in folder.iterdir() if path.suffix == ".sock")
    except OSError as error:
        return error.errno in _PASSES  # it cannot be told for the moment
    if found:
        _folder()  # is it still closed to others?
    return found


def _listens(path: Path) -> bool:
    """So does one that is too busy, or suspended, to take a caller. Raises OSError where this process has no socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.setblocking(False)
        return caller.connect_ex(str(path)) in (0, errno.EAGAIN, errno.EINPROGRESS)


def _remove_older(fresh: Path) -> None:
    """Law 3. How old they are is told by the clock that this one was made by, the file system's."""
    for path in fresh.parent.glob("*.sock"):
        with suppress(OSError):
            if fresh.stat().st_mtime - path.stat().st_mtime > _FRESH and not _listens(path):
                path.unlink()


def _waits_for_data(query: StreamingQuery) -> bool:
    """A query in group mode does so only after its first batch (law 2 of `group_stream`)."""
    status = query.status
    return not status["isTriggerActive"] and str(status["message"]).startswith("Waiting for")


def _tokens(sources: list[Any]) -> set[str]:
    found = set()
    for source in sources:
        with suppress(ValueError, TypeError, AttributeError, KeyError):
            end = source["endOffset"]
            token = (json.loads(end) if isinstance(end, str) else end)["group"]["run"]
            if _TOKEN.fullmatch(token):
                found.add(token)
    return found


def _requested(token: str) -> list[socket.socket]:
    """None where no source listens, or the system has no socket left for now. Raises ConfigError."""
    place = str(_place(token))
    try:
        caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError:
        return []
    caller.settimeout(_TURN)
    try:
        caller.connect(place)
        caller.sendall(_LEAVE)
    except OSError:
        caller.close()
        return []
    return [caller]


def _has_left(token: str, callers: dict[str, socket.socket]) -> bool:
    """Waits a turn. Where the source's process or its member ends, Spark ends the query."""
    try:
        said = callers[token].recv(len(_LEFT))
    except TimeoutError:
        return False
    except OSError:  # it ended before it had read the request
        said = b""
    if not said:
        # Until Spark knows that it has ended, this would be called again at once.
        time.sleep(_TURN)
        for again in _requested(token):
            callers[token].close()
            callers[token] = again
    return said == _LEFT


def _check(deadline: float | None, what: str) -> None:
    if deadline is not None and time.monotonic() >= deadline:
        raise KafkaTimeoutError(f"{what}. It is active: stop it again")
