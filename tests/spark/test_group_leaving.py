"""How `stop(query)` finds the query's source. With a member: test_group_kafka."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import SparkContext

import instride
from instride.errors import ConfigError, IllegalStateError, KafkaTimeoutError
from instride.spark import stop
from instride.spark._data_source import leaving
from instride.spark._data_source.leaving import Door, new_token


class Query:
    """What `stop` needs of a StreamingQuery. ends: of the batches that its looks see, one after another; the last one
    again and again. None: it has no progress. kept: the number that Spark's setting gives."""

    def __init__(self, *ends: object, message: str = "Processing new data", kept: int = 100) -> None:
        self._progress: list[dict[str, Any]] = [
            {"batchId": number, "sources": [{"endOffset": end}]} for number, end in enumerate(ends)
        ]
        self.status = {"isTriggerActive": not message.startswith("Waiting"), "message": message}
        self.isActive = True
        self.id = "q"
        settings = SimpleNamespace(get={"spark.sql.streaming.numRecentProgressUpdates": str(kept)}.__getitem__)
        self._jsq = SimpleNamespace(sparkSession=lambda: SimpleNamespace(conf=lambda: settings))

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        return self._progress.pop(0) if len(self._progress) > 1 else self._progress[0] if self._progress else None

    def stop(self) -> None:
        self.isActive = False


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Any:
    with tempfile.TemporaryDirectory(dir="/tmp") as made:  # a socket has a short name
        monkeypatch.setattr(tempfile, "tempdir", made)
        yield Path(made)


def leave(query: Query, timeout: float | None = None) -> None:
    stop(cast("Any", query), timeout=timeout)


def test_a_source_is_found_by_the_token_of_its_run_and_awaited() -> None:
    """The first progress is of a batch that an earlier run had planned: nobody listens there any more."""
    left, token, requested = Future[bool](), new_token(), threading.Event()

    def ask() -> Future[bool]:
        requested.set()
        return left

    door = Door(token, ask)
    query = Query({"group": {"run": new_token()}}, f'{{"group": {{"run": "{token}"}}}}')
    with pytest.raises(KafkaTimeoutError, match="stop it again"):
        leave(query, timeout=0.0)
    stopping = threading.Thread(target=leave, args=(query,))
    stopping.start()
    assert requested.wait(60)
    assert stopping.is_alive()
    left.set_result(True)
    stopping.join(60)
    assert not query.isActive
    door.close()


def test_a_source_that_was_not_reached_in_time_is_not_said_to_plan_nothing_more() -> None:
    """Whoever relied on that stopped the query in the middle of the next batch."""
    door = Door(new_token(), lambda: pytest.fail("the source of another query was asked"))
    with pytest.raises(KafkaTimeoutError, match=r"no source .* was reached in time.*plans on.*stop it again"):
        leave(Query(), timeout=0.0)
    door.close()


def test_a_first_batch_that_ends_between_two_looks_is_seen() -> None:
    """The query was stopped at once, and the group did not hear of that batch."""
    token, left = new_token(), Future[bool]()
    asked = threading.Event()

    def ask() -> Future[bool]:
        asked.set()
        left.set_result(True)
        return left

    class Ending(Query):
        @property
        def lastProgress(self) -> dict[str, Any] | None:
            found = None if self.status["isTriggerActive"] else super().lastProgress
            self.status = {"isTriggerActive": False, "message": "Waiting for next trigger"}
            return found

    door, query = Door(token, ask), Ending({"group": {"run": token}})
    leave(query, timeout=60.0)
    assert asked.is_set()
    assert not query.isActive
    door.close()


def test_a_source_in_another_folder_is_told_of(folder: Path) -> None:
    """Driver and source had different temporary folders. The stop waited for ever."""
    before, now = {"group": {"run": new_token()}}, {"group": {"run": new_token()}}
    query = Query(before, before, now, now)
    with pytest.raises(KafkaTimeoutError, match="stop it again"):
        leave(query, timeout=0.5)
    query = Query(before, before, now, now, now)
    with pytest.raises(IllegalStateError, match=rf"does not listen at {folder}/.*{now['group']['run']}.*set TMPDIR"):
        leave(query, timeout=60.0)
    assert query.isActive


@pytest.mark.parametrize("message", ["Processing new data", "Waiting for data to arrive"])
@pytest.mark.parametrize("kept", [0, 1])
def test_where_spark_keeps_no_progress_the_setting_is_told(kept: int, message: str) -> None:
    """The stop waited for ever, or, between two batches, took the query for one of no group, and cut it off."""
    door, query = Door(new_token(), Future), Query(message=message, kept=kept)
    with pytest.raises(ConfigError, match=rf"spark\.sql\.streaming\.numRecentProgressUpdates is {kept}.*stop it again"):
        leave(query, timeout=0.0)
    assert query.isActive
    door.close()
    leave(query, timeout=60.0)
    assert not query.isActive


def test_where_one_of_two_sources_is_in_another_folder_no_connection_is_left_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    callers, here = list[socket.socket](), new_token()

    def reached(token: str) -> list[socket.socket]:
        found = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)] if token == here else []
        callers.extend(found)
        return found

    monkeypatch.setattr(leaving, "_requested", reached)
    query = Query()
    sources = [{"endOffset": {"group": {"run": token}}} for token in (here, new_token())]
    query._progress = [{"batchId": number, "sources": sources} for number in range(3)]
    with pytest.raises(IllegalStateError, match="a source of it that was reached plans nothing more"):
        leave(query, timeout=60.0)
    assert [each.fileno() for each in callers] == [-1] * 3


@pytest.mark.parametrize(
    ("lacks", "known"),
    [("a socket", False), ("a folder", False), ("a socket", True)],
    ids=["a socket-no batch yet", "a folder-no batch yet", "a socket-batches"],
)
def test_a_driver_that_has_no_file_descriptor_left_stops_no_source(
    monkeypatch: pytest.MonkeyPatch, lacks: str, known: bool
) -> None:
    """It took that for a query of no group, and stopped it in the middle of a batch."""
    token, left = new_token(), Future[bool]()
    left.set_result(True)
    door, query = Door(token, lambda: left), Query(*[{"group": {"run": token}}] * (5 * known))

    def fails(*_: object, **__: object) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as scarce:
        scarce.setattr(socket, "socket", fails)
        if lacks == "a folder":
            scarce.setattr(Path, "iterdir", fails)
        with pytest.raises(KafkaTimeoutError, match="stop it again"):
            leave(query, timeout=0.5)
    assert query.isActive
    if known:
        leave(query, timeout=60.0)
        assert not query.isActive
    door.close()


def test_a_folder_that_cannot_be_read_keeps_no_query_from_its_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Path) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "iterdir", fails)
    query = Query()
    leave(query, timeout=60.0)
    assert not query.isActive


def test_where_no_folder_for_temporary_files_is_left_a_query_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Any:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", fails)
    query = Query()
    leave(query, timeout=60.0)
    assert not query.isActive


def test_a_source_that_had_no_file_descriptor_left_is_found_later(monkeypatch: pytest.MonkeyPatch) -> None:
    accept, token, left, failed = socket.socket.accept, new_token(), Future[bool](), threading.Event()
    left.set_result(True)

    def accepted(listening: socket.socket) -> Any:
        if not failed.is_set():
            failed.set()
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", accepted)
    door, query = Door(token, lambda: left), Query({"group": {"run": token}})
    leave(query, timeout=60.0)
    assert not query.isActive
    door.close()


def test_a_source_that_had_no_thread_left_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket stayed open, and nobody listened any more: the stop waited for ever."""
    left, token, refused = Future[bool](), new_token(), threading.Event()
    left.set_result(True)

    class Scarce(threading.Thread):
        def start(self) -> None:
            if self.name == "instride-leaving" and not refused.is_set():
                refused.set()
                raise RuntimeError("can't start new thread")
            super().start()

    monkeypatch.setattr(leaving, "threading", SimpleNamespace(Thread=Scarce))
    door, query = Door(token, lambda: left), Query({"group": {"run": token}})
    leave(query, timeout=20.0)
    assert (query.isActive, refused.is_set()) == (False, True)
    door.close()


def test_a_query_whose_source_has_an_error_is_not_cut_off() -> None:
    """Its batch goes on in Spark, and then the query ends by the error: a stop in the middle would hide it."""
    token, left = new_token(), Future[bool]()
    left.set_result(False)
    door = Door(token, lambda: left)
    query = Query({"group": {"run": token}})
    with pytest.raises(KafkaTimeoutError, match="stop it again"):
        leave(query, timeout=0.5)
    assert query.isActive
    door.close()


def test_a_source_that_ends_before_it_has_read_the_request_is_awaited(folder: Path) -> None:
    """Its caller gets a reset, which ended `stop` by an error of the socket."""
    token = new_token()
    Door(token, Future).close()
    (place,) = folder.iterdir()
    query = Query({"group": {"run": token}})
    with ThreadPoolExecutor(1) as pool, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(place / f"{token}.sock"))
        listener.listen()
        stopping = pool.submit(leave, cast("Any", query), 60.0)
        caller, _ = listener.accept()
        assert select.select([caller], [], [], 60)[0], "the request is there, and nobody reads it"
        caller.close()
        with pytest.raises(TimeoutError):
            stopping.result(0.5)
        query.isActive = False
        assert stopping.result(60) is None


@pytest.mark.parametrize("end", [None, "nonsense", {"version": 1, "topics": {}}, {"group": {"run": "../../etc"}}, 7])
def test_a_query_of_another_source_is_just_stopped(end: object) -> None:
    query = Query(end)
    leave(query)
    assert not query.isActive


def test_a_query_that_waits_for_data_without_a_batch_is_just_stopped() -> None:
    query = Query(message="Waiting for data to arrive")
    leave(query)
    assert not query.isActive


def test_a_query_without_progress_is_just_stopped_where_no_source_is(folder: Path) -> None:
    """One of no group, whose first batch is long: it was waited for, and then told to be stopped again."""
    query = Query()
    leave(query, timeout=60.0)
    assert not query.isActive
    door = Door(new_token(), Future)
    query = Query()
    with pytest.raises(KafkaTimeoutError, match="stop it again"):
        leave(query, timeout=0.0)
    door.close()
    leave(query, timeout=60.0)
    assert not query.isActive


def test_within_its_own_batch_a_query_cannot_be_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Thread-5", "stream execution thread for other [id = r, runId = q]"):
        monkeypatch.setattr(SparkContext, "_active_spark_context", context_in(name))
        query = Query(None)
        leave(query)
        assert not query.isActive
    monkeypatch.setattr(SparkContext, "_active_spark_context", context_in("stream execution thread for [id = q, x]"))
    query = Query(None)
    with pytest.raises(IllegalStateError, match="in another thread"):
        leave(query)
    assert query.isActive


def context_in(thread: str) -> Any:
    """A context in whose JVM this thread is of that name."""
    current = SimpleNamespace(currentThread=lambda: SimpleNamespace(getName=lambda: thread))
    return SimpleNamespace(_jvm=SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(Thread=current))))


def test_a_folder_that_is_not_ours_keeps_no_query_from_its_stop(folder: Path) -> None:
    (folder / f"instride-{os.getuid()}").mkdir(mode=0o777)
    (folder / f"instride-{os.getuid()}").chmod(0o777)
    query = Query()
    leave(query, timeout=60.0)
    assert not query.isActive


@pytest.mark.parametrize("known", [False, True], ids=["no batch yet", "batches"])
def test_a_folder_that_was_opened_to_others_is_told_and_stops_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """A query without progress was stopped in the middle of its batch; that of another left a socket open."""
    made = list[socket.socket]()

    class Noted(socket.socket):
        def __init__(self, *args: Any, **accepted: Any) -> None:
            super().__init__(*args, **accepted)
            made.extend([] if accepted else [self])

    token, left = new_token(), Future[bool]()
    left.set_result(True)
    door, query = Door(token, lambda: left), Query(*[{"group": {"run": token}}] * known)
    (place,) = folder.iterdir()
    place.chmod(0o755)
    with monkeypatch.context() as noting:
        noting.setattr(socket, "socket", Noted)
        with pytest.raises(ConfigError, match=rf"{place} must be a folder that only this user may enter"):
            leave(query, timeout=60.0)
    assert query.isActive
    assert [each.fileno() for each in made] == [-1] * len(made)
    place.chmod(0o700)
    leave(query if known else Query({"group": {"run": token}}), timeout=60.0)
    door.close()


def test_a_source_that_takes_no_caller_holds_up_no_stop(folder: Path) -> None:
    """Suspended, say: the callers that it has not taken fill its queue, and a connect would wait for ever."""
    Door("first", Future).close()
    (place,) = folder.iterdir()
    suspended = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    suspended.bind(str(place / "suspended.sock"))
    suspended.listen(0)
    waiting = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(4)]
    for each in waiting:
        each.setblocking(False)
        each.connect_ex(str(place / "suspended.sock"))
    with pytest.raises(KafkaTimeoutError):
        leave(Query(), timeout=0.0)
    Door("other", Future).close()
    for each in (suspended, *waiting):
        each.close()


def test_the_socket_of_a_source_that_was_killed_is_removed_by_the_next(folder: Path) -> None:
    Door(new_token(), Future).close()
    (place,) = folder.iterdir()
    for name, age in (("old", 100.0), ("fresh", 0.0)):
        left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        left.bind(str(place / f"{name}.sock"))
        left.close()
        os.utime(place / f"{name}.sock", (time.time() - age,) * 2)
    other, door = Door("other", Future), Door("this", Future)
    os.utime(place / "other.sock", (0, 0))
    assert {each.stem for each in place.iterdir()} == {"fresh", "other", "this"}
    Door("next", Future).close()
    assert {each.stem for each in place.iterdir()} == {"fresh", "other", "this"}
    for each in (other, door):
        each.close()


def test_a_query_that_has_ended_is_left_alone() -> None:
    query = Query()
    query.isActive = False
    leave(query)


def test_a_socket_that_cannot_be_removed_keeps_no_source_from_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of its folder, whose mode somebody had changed, came before the member was told."""

    def fails(_: Path, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    door = Door(new_token(), Future)
    monkeypatch.setattr(Path, "unlink", fails)
    door.close()
    assert door._socket.fileno() == -1


def test_the_sockets_are_where_nobody_else_comes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Door(new_token(), Future).close()
    (place,) = folder.iterdir()
    assert place.stat().st_mode & 0o777 == 0o700
    assert not list(place.iterdir())
    place.chmod(0o755)
    with pytest.raises(ConfigError, match="only this user may enter"):
        Door(new_token(), Future)
    (folder / ("x" * 100)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder / ("x" * 100)))
    with pytest.raises(ConfigError, match="shorter folder"):
        Door(new_token(), Future)


def test_a_query_over_connect_is_refused() -> None:
    kind = type("StreamingQuery", (Query,), {"__module__": "pyspark.sql.connect.streaming.query"})
    with pytest.raises(IllegalStateError, match="not over Spark Connect"):
        leave(kind())


SOURCE = """
from instride.spark._data_source import source_schema, stream_reader
given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "consumerGroup": "g"}
made = stream_reader(given, source_schema(given))
limit = made.getDefaultReadLimit()
first = made.latestOffset(made.initialOffset(), limit)
try:
    print(first["group"]["run"], flush=True)  # here already: from now on a signal may come
    while True:
        assert made.latestOffset(first, limit) == first
finally:
    made.stop()  # as PySpark's process does
"""


def test_sigterm_ends_the_process_of_a_source_by_way_of_its_stop(folder: Path) -> None:
    """What `query.stop()` does to it. Each run begins with an empty batch, even where no broker is."""
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(Path(instride.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", SOURCE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        token = process.stdout.readline().strip()
        (place,) = folder.glob(f"instride-*/{token}.sock")
        process.terminate()
        assert process.wait(120) == 128 + signal.SIGTERM
    assert not place.exists()
