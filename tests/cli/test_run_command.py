"""`instride run` with real processes and no Kafka: its workers' set-ups, or handlers, tell that they are up."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import IO, Any

import pytest

from attack.broker import Broker
from instride._cli import worker
from instride._cli.run import _Processes, _tell_worker
from instride._cli.supervisor import CANNOT_BEGIN, FAILED, Action, Start, Supervisor, Tell, Word
from instride._cli.targets import settings_of, target
from instride._cli.worker import loaded
from instride.errors import ConfigError

INSTRIDE = Path(sysconfig.get_path("scripts")) / "instride"
PATIENCE = 120.0

APP = """
import asyncio, atexit, os, signal, stat, subprocess, sys, threading
from contextlib import asynccontextmanager, contextmanager
from instride import Processor, RunningProcessor

def tell(what):
    os.write(1, f"{what} {os.environ['INSTRIDE_WORKER']} {os.getpid()}\\n".encode())

def handle(record): ...

@contextmanager
def told():
    tell("up")
    yield
    tell("down")

def hang(record):
    tell("up")
    threading.Event().wait()

class Told:
    # Instead of a method of a run: it does that, and tells of it.

    def __init__(self, name):
        self.name, self.does = name, getattr(RunningProcessor, name)

    def __get__(self, running, _):
        def called():
            self.does(running)
            tell(self.name)
        return called

go = threading.Event()

def works(record):
    # Until SIGUSR1.
    if not go.is_set():
        tell("up")
        go.wait()
        tell("down")

signal.signal(signal.SIGUSR1, lambda *_: go.set())
if "TELLS" in os.environ:
    RunningProcessor.stop, RunningProcessor.cancel = Told("stop"), Told("cancel")

def starts(record):
    # A program that reads its standard input to the end: no pipe, on which it might wait for ever.
    assert not stat.S_ISFIFO(os.fstat(0).st_mode)
    assert subprocess.run(["cat"], capture_output=True).stdout == b""
    hang(record)

@contextmanager
def refuses():
    raise LookupError("no database")
    yield

@contextmanager
def hangs():
    hang(None)
    yield

@asynccontextmanager
async def awaits():
    tell("up")
    await asyncio.Event().wait()
    yield

async def handle_async(record): ...

@asynccontextmanager
async def leaves_a_thread():
    # Called by asyncio.to_thread, say.
    thread = asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    atexit.register(tell, "down")
    tell("up")
    yield
    thread.cancel()

app = Processor(handle, topics=["t"], lifespan=told)
leaving = Processor(handle_async, topics=["t"], lifespan=leaves_a_thread)
stuck = Processor(hang, topics=["t"], concurrency=1, drain_timeout=0.1)
hung = Processor(handle, topics=["t"], lifespan=hangs, drain_timeout=0.1)
waits = Processor(handle_async, topics=["t"], lifespan=awaits, drain_timeout=0.1)
working = Processor(works, topics=["t"], concurrency=1)
starting = Processor(starts, topics=["t"], concurrency=1, drain_timeout=0.1)
bad = Processor(handle, topics=["t"], lifespan=refuses)
other = 5
odd = {5: 5}
settings = {"bootstrap_servers": "localhost:1", "group_id": "g"}
early = {"auto_offset_reset": "earliest", "group_id": "g"}
def made():
    return {**settings, "group_instance_id": "i"}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "billing.py").write_text(APP)
    return tmp_path


class Run:
    """One `instride run`, and what its workers told: "up", "down", "stop" or "cancel"; slot; process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.errors = ""

    def told(self) -> tuple[str, int, int]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.fullmatch(r"(up|down|stop|cancel) (\d+) (\d+)\n", line)
        assert found, line
        return found[1], int(found[2]), int(found[3])

    def end(self) -> tuple[int, list[str]]:
        """Its output ends when all of its workers have ended."""
        output, self.errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, output.splitlines()


@contextmanager
def run(folder: Path, *arguments: str, errors: int | IO[str] = subprocess.PIPE) -> Iterator[Run]:
    with subprocess.Popen(
        [INSTRIDE, "run", *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True
    ) as process:
        try:
            yield Run(process)
        finally:
            process.kill()


@contextmanager
def run_with_a_broker(folder: Path, app: str) -> Iterator[Run]:
    """Its topic has records."""
    with closing(Broker()) as broker:
        servers = f"127.0.0.1:{broker.port}"
        with run(folder, app, "--settings", "billing:early", "--bootstrap-servers", servers) as running:
            yield running


@pytest.mark.slow
def test_workers_start_and_sigterm_stops_them(folder: Path) -> None:
    with run(folder, "billing:app", "--workers", "2", "--settings", "billing:made") as running:
        up = [running.told() for _ in range(2)]
        assert {slot for _, slot, _ in up} == {0, 1}
        running.process.terminate()
        code, output = running.end()
    assert code == 0, running.errors
    assert {line.split()[0] for line in output} <= {"down"}
    assert len(output) == 2


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_sigint_stops(folder: Path) -> None:
    with run(folder, "billing:app", "--workers", "2", "--settings", "billing:settings") as running:
        up = dict(running.told()[1:] for _ in range(2))
        os.kill(up[1], signal.SIGKILL)
        what, slot, process = running.told()
        assert (what, slot) == ("up", 1)
        assert process != up[1]
        running.process.send_signal(signal.SIGINT)
        code, output = running.end()
    assert code == 0, running.errors
    assert sorted(output) == sorted([f"down 0 {up[0]}", f"down 1 {process}"])


@pytest.mark.slow
def test_a_line_that_cannot_be_written_ends_no_worker(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk with the log is full; the log's reader is gone. Python keeps the line for its end."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    with (
        Path("/dev/full").open("w") as full,
        run(folder, "billing:app", "--workers", "2", "--settings", "billing:settings", errors=full) as running,
    ):
        up = dict(running.told()[1:] for _ in range(2))
        os.kill(up[1], signal.SIGKILL)
        what, slot, process = running.told()
        assert (what, slot) == ("up", 1)
        running.process.terminate()
        assert running.process.wait(PATIENCE) == 0
        assert running.process.stdout is not None
        assert sorted(running.process.stdout.read().splitlines()) == sorted([f"down 0 {up[0]}", f"down 1 {process}"])


@pytest.mark.slow
def test_workers_stop_when_the_supervisor_is_killed(folder: Path) -> None:
    with run(folder, "billing:app", "--workers", "2", "--settings", "billing:settings") as running:
        up = {running.told() for _ in range(2)}
        running.process.kill()
        _, output = running.end()
    assert sorted(output) == sorted(f"down {slot} {process}" for _, slot, process in up)


@pytest.mark.slow
def test_a_stop_that_gives_up_what_is_at_work_fails_and_says_so_in_one_line(folder: Path) -> None:
    with run_with_a_broker(folder, "billing:stuck") as running:
        assert running.told()[:2] == ("up", 0)
        running.process.terminate()
        assert running.end() == (1, [])
    assert [line for line in running.errors.splitlines() if not re.match(r"\d{4}-", line)] == [
        "instride run: worker 0 left work behind: DrainTimeoutError: stopped with 1 record in progress after 0.1 s "
        "(drain_timeout): t-0 at offset 0. No commit covers what was in progress: it is handled again",
        "instride run: worker 0 ended with status 1",
    ]


@contextmanager
def at_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Run, int]]:
    """A run of one worker, whose process handles a record until SIGUSR1; it tells of each stop, and of a cancel."""
    monkeypatch.setenv("TELLS", "1")
    with run_with_a_broker(folder, "billing:working") as running:
        what, _, worker = running.told()
        assert what == "up"
        yield running, worker


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_the_init_signals_too_finishes_what_is_at_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """systemd signals every process of a service, and the supervisor tells its workers besides."""
    with at_work(folder, monkeypatch) as (running, worker):
        for process in (worker, running.process.pid, worker):
            os.kill(process, number)
            assert running.told() == ("stop", 0, worker)
        os.kill(worker, signal.SIGUSR1)
        code, output = running.end()
    assert f"down 0 {worker}" in output
    assert code == 0, running.errors


@pytest.mark.slow
def test_a_second_signal_to_the_supervisor_cancels_its_workers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with at_work(folder, monkeypatch) as (running, worker):
        running.process.terminate()
        assert running.told() == ("stop", 0, worker)
        threading.Event().wait(0.5)  # by then it counts as another signal
        running.process.terminate()
        assert running.told() == ("cancel", 0, worker)
        code, output = running.end()
    assert f"down 0 {worker}" not in output
    assert code == 0, running.errors


@pytest.mark.slow
def test_a_worker_without_its_supervisor_finishes_what_is_at_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_work(folder, monkeypatch) as (running, worker):
        os.kill(worker, signal.SIGTERM)
        assert running.told() == ("stop", 0, worker)
        running.process.kill()
        assert running.told() == ("stop", 0, worker)
        os.kill(worker, signal.SIGUSR1)
        _, output = running.end()
    assert f"down 0 {worker}" in output


@pytest.mark.slow
def test_a_call_in_a_thread_of_an_executor_keeps_no_worker(folder: Path) -> None:
    """Python itself waits for such threads at its end. What the user registered for that end is called."""
    with run(folder, "billing:leaving", "--settings", "billing:settings", "--grace", "30") as running:
        _, _, worker = running.told()
        running.process.terminate()
        assert running.end() == (0, [f"down 0 {worker}"]), running.errors


EXITS = """
import atexit
from instride._cli import worker

class Timer:
    # Its time is over when the user's function is called.

    def __init__(self, _, cut_off, arguments):
        global end
        end = lambda: cut_off(*arguments)

    def start(self):
        pass

def hang():
    print("hangs", flush=True)
    end()

worker.threading.Timer = Timer
worker.time.sleep = lambda seconds: print("another", seconds, flush=True)
atexit.register(hang)
atexit.register(print, "first", flush=True)
worker._end(3)
"""


def test_an_exit_function_that_hangs_is_called_once_and_named() -> None:
    """All that was registered for the end would be called again, and threads be blamed. It has a time of its own."""
    done = subprocess.run([sys.executable, "-c", EXITS], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (3, "first\nhangs\nanother 10.0\n")
    assert done.stderr == "instride run: exit functions of a worker did not end in 10 s: they are left behind\n"


LATE_THREAD = """
import atexit, sys, threading
from instride._cli import worker

main, may_end, calls = threading.main_thread(), threading.Event(), []

class Timer(threading.Thread):
    # Its time is over at once.

    def __init__(self, _, cut_off, arguments):
        super().__init__(target=cut_off, args=arguments)

def once():
    calls.append(None)
    print("called", flush=True)
    may_end.set()
    # Until Python is at the functions too: it waits for its turn, or calls this one again.
    while len(calls) == 1 and sys._current_frames()[main.ident].f_code.co_filename != worker.__file__:
        pass

worker.threading.Timer = Timer
threading.Thread(target=may_end.wait).start()
atexit.register(once)
worker._end(3)
"""


def test_where_threads_end_just_too_late_no_exit_function_is_called_twice() -> None:
    script = [sys.executable, "-c", LATE_THREAD]
    done = subprocess.run(script, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (3, "called\n")
    assert done.stderr == "instride run: threads of a worker did not end in 10 s: they are left behind\n"


HANGING_THREAD = """
import atexit, threading
from instride._cli import worker

hangs = threading.Event()

class Timer(threading.Thread):
    # Its time is over at once.

    def __init__(self, _, cut_off, arguments):
        super().__init__(target=cut_off, args=arguments)

class Thread(threading.Thread):
    # One waits for it until the user's function hangs.

    def join(self, timeout=None):
        hangs.wait()
        print("waited", timeout, flush=True)

def hang():
    # As a pool's does, for a process that does not end.
    hangs.set()
    threading.Event().wait()

threading.Thread(target=threading.Event().wait).start()
worker.threading.Timer, worker.threading.Thread = Timer, Thread
atexit.register(hang)
atexit.register(print, "first", flush=True)
worker._end(3)
"""


def test_exit_functions_that_hang_beside_a_thread_that_does_keep_no_worker() -> None:
    """The supervisor would hear of no end, and wait for its grace, or for ever if nobody stops it."""
    script = [sys.executable, "-c", HANGING_THREAD]
    done = subprocess.run(script, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (3, "first\nwaited 10.0\n")
    assert done.stderr.splitlines() == [
        f"instride run: {what} of a worker did not end in 10 s: they are left behind"
        for what in ("threads", "exit functions")
    ]


NO_THREAD = HANGING_THREAD.replace(
    "    def join(self, timeout=None):",
    """    def start(self):
        raise RuntimeError("can't start new thread")

    def join(self, timeout=None):""",
)


def test_where_no_thread_is_left_for_the_exit_functions_they_are_left_behind() -> None:
    script = [sys.executable, "-c", NO_THREAD]
    done = subprocess.run(script, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "exit functions of a worker did not end" in done.stderr


def test_a_worker_without_a_thread_for_the_supervisors_words_cannot_begin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(worker, "_taken_standard_input", lambda: 0)
    assert worker.main("nowhere:app", None, None, None, 0) == CANNOT_BEGIN
    assert "can't start new thread" in capsys.readouterr().err


def test_a_worker_that_no_thread_can_watch_counts_as_not_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The system has none left. The supervisor would end, and leave the others without a word."""
    made, popen = list[subprocess.Popen[bytes]](), subprocess.Popen

    def make(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        made.append(popen(*arguments, **options))
        return made[-1]

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(subprocess, "Popen", make)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    processes = _Processes([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        processes._do([Start(0), Tell(0, Word.STOP)])
        assert made[0].poll() == -signal.SIGKILL
    finally:
        made[0].kill()
    assert processes._news.get_nowait() == (0, 127)
    assert capsys.readouterr().err == "instride run: worker 0 was not started: can't start new thread\n"


@pytest.mark.slow
def test_a_program_that_a_handler_starts_has_an_empty_standard_input(folder: Path) -> None:
    """Else it would take the supervisor's words, or wait for them."""
    with run_with_a_broker(folder, "billing:starting") as running:
        assert running.told()[0] == "up"
        running.process.terminate()
        assert running.end() == (1, [])


def test_a_worker_that_is_importing_is_stopped_at_once(folder: Path) -> None:
    (folder / "slow.py").write_text("import billing, threading\nbilling.tell('up')\nthreading.Event().wait()\n")
    with run(folder, "slow:app", "--settings", "billing:settings") as running:
        assert running.told()[0] == "up"
        running.process.terminate()
        assert running.end() == (0, []), running.errors


@pytest.mark.slow
def test_a_worker_that_is_importing_takes_sigint_for_a_stop(folder: Path) -> None:
    """It is replaced, as one that ended by itself."""
    (folder / "slow.py").write_text("import billing, threading\nbilling.tell('up')\nthreading.Event().wait()\n")
    with run(folder, "slow:app", "--settings", "billing:settings") as running:
        _, _, worker = running.told()
        os.kill(worker, signal.SIGINT)
        what, _, another = running.told()
        assert what == "up"
        assert another != worker
        running.process.terminate()
        assert running.end() == (0, []), running.errors
    assert "Traceback" not in running.errors


EARLY_SIGNAL = """
import pkgutil, signal, sys

class Finder:
    def find_spec(self, name, *_):
        if name == module:
            signal.raise_signal(int(number))

_, entry_point, module, number, *arguments = sys.argv
sys.argv = ["instride", *arguments]
sys.meta_path.insert(0, Finder())
sys.exit(pkgutil.resolve_name(entry_point)())
"""
PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize("module", ["instride", "typer"])
@pytest.mark.parametrize(
    ("number", "verb", "status"),
    [
        (signal.SIGTERM, "run", 0),
        (signal.SIGINT, "run", 0),
        (signal.SIGTERM, "doctor", -signal.SIGTERM),
        (signal.SIGINT, "doctor", -signal.SIGINT),
    ],
)
def test_a_signal_that_comes_while_the_command_is_imported_is_the_first(
    folder: Path, module: str, number: signal.Signals, verb: str, status: int
) -> None:
    """To a container's first process the kernel gives no signal that it does not handle. module: what is imported."""
    entry_point = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["scripts"]["instride"]
    arguments = [verb, "billing:app", "--settings", "billing:settings"] if verb == "run" else [verb]
    done = subprocess.run(
        [sys.executable, "-c", EARLY_SIGNAL, entry_point, module, str(number.value), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (status, ""), done.stderr


def test_the_programs_that_a_handler_started_are_killed_with_its_worker() -> None:
    """Each leads its own process group. A program that lived on would do its work beside the next owner's."""
    script = "exec 3<&0; cat <&3 & echo up; wait"
    started = subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0, bufsize=0
    )
    with started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"up\n"
        _tell_worker(started, Word.KILL)
        assert started.communicate(b"the program lives\n", timeout=PATIENCE)[0] == b""
        assert started.returncode == -signal.SIGKILL


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="on macOS before Python 3.13 they live on")
@pytest.mark.parametrize(
    ("end", "code", "read"),
    [
        ("kill -KILL $$", -signal.SIGKILL, b""),
        ("exit 3", 3, b""),
        *[(f"exit {code}", code, b"the program lives\n") for code in (0, FAILED, CANNOT_BEGIN)],
    ],
)
def test_the_programs_that_a_handler_started_are_killed_when_its_worker_died(
    tmp_path: Path, end: str, code: int, read: bytes
) -> None:
    """A successor handles the record again, for which they work on."""
    os.mkfifo(output := tmp_path / "output")
    script = f'exec 3<&0 4>"$0"; cat <&3 >&4 & echo up >&4; {end}'
    processes = _Processes(["sh", "-c", script, str(output)])
    processes._do([Start(0)])
    words = processes._workers[0].stdin
    assert words is not None
    with output.open("rb") as written:
        assert written.readline() == b"up\n"
        assert processes._news.get(timeout=PATIENCE) == (0, code)
        with suppress(BrokenPipeError), words:
            words.write(b"the program lives\n")
        assert written.read() == read
    processes._workers[0].wait()


TAKES_NO_SIGTERM = """
mkdir "$0.first" 2>&- || exit 0
trap "" TERM
exec 3<"$0.words" 4>"$0"
cat <&3 >&4 &
kill -KILL $$
"""


@pytest.fixture
def stubborn(tmp_path: Path) -> Iterator[tuple[list[str], IO[bytes], IO[bytes]]]:
    """The command of a worker that dies, and whose program takes no SIGTERM; what that reads, and what it writes."""
    os.mkfifo(output := tmp_path / "output")
    os.mkfifo(words := tmp_path / "output.words")
    reader = os.open(output, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    with words.open("r+b", buffering=0) as told, os.fdopen(reader, "rb") as written:
        yield ["sh", "-c", TAKES_NO_SIGTERM, str(output)], told, written


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="on macOS before Python 3.13 they live on")
def test_what_takes_no_sigterm_is_killed_before_the_successor_of_its_worker_starts(
    stubborn: tuple[list[str], IO[bytes], IO[bytes]],
) -> None:
    command, told, written = stubborn
    processes, supervisor = _Processes(command), Supervisor(workers=1, grace=PATIENCE)
    processes._do(supervisor.begin(time.monotonic()))
    while not (actions := processes._next(supervisor)):
        pass
    assert (actions, processes._workers) == ([Start(0)], {})
    with told:
        told.write(b"the program lives\n")
    assert written.read() == b""


class Stopped(Supervisor):
    """As it hears of an end."""

    def ended(self, number: int, code: int, now: float) -> list[Action]:
        return [*self.signalled(now), *super().ended(number, code, now)]


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="on macOS before Python 3.13 they live on")
def test_what_takes_no_sigterm_is_killed_when_its_worker_died_and_all_ends(
    stubborn: tuple[list[str], IO[bytes], IO[bytes]],
) -> None:
    command, told, written = stubborn
    assert _Processes(command).run(Stopped(workers=1, grace=PATIENCE)) == FAILED
    with told:
        told.write(b"the program lives\n")
    assert written.read() == b""


TAKES_SIGTERM = """
mkfifo "$0.up"
exec 3<"$0.words" 4>"$0"
"$1" -c "$2" >"$0.up" &
read _ <"$0.up"
kill -KILL $$
"""

CLEANS_UP = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.write(1, b"up\\n")
signal.sigwait([signal.SIGTERM])
os.read(3, 1)
os.write(4, b"cleaned up")
"""


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="on macOS before Python 3.13 nothing is killed")
def test_what_takes_sigterm_has_time_for_it_when_its_worker_died_and_all_ends(
    stubborn: tuple[list[str], IO[bytes], IO[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as Python's resource tracker, which frees the shared memory."""
    command, told, written = stubborn
    read = list[bytes]()

    def sleep(_: float) -> None:
        told.write(b".")
        read.append(written.read())

    monkeypatch.setattr(time, "sleep", sleep)
    processes = _Processes(["sh", "-c", TAKES_SIGTERM, command[-1], sys.executable, CLEANS_UP])
    assert processes.run(Stopped(workers=1, grace=PATIENCE)) == FAILED
    assert read == [b"cleaned up"]


def test_all_ends_at_once_where_no_worker_died(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = list[float]()
    monkeypatch.setattr(time, "sleep", slept.append)
    assert _Processes(["true"]).run(Stopped(workers=1, grace=PATIENCE)) == 0
    assert slept == []


SHARES = """
import os, signal
from multiprocessing.shared_memory import SharedMemory
memory = SharedMemory(create=True, size=4096)
os.write(2, f"{memory.name}\\n".encode())
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="on macOS before Python 3.13 nothing is killed")
def test_the_shared_memory_of_a_worker_that_died_is_freed(tmp_path: Path) -> None:
    """Python has a process for that in the worker's group, the resource tracker, which takes no SIGTERM."""
    os.mkfifo(errors := tmp_path / "errors")
    script = 'exec 2>"$0"; exec "$1" -c "$2"'
    processes = _Processes(["sh", "-c", script, str(errors), sys.executable, SHARES])
    processes._do([Start(0)])
    with errors.open() as told:
        name = told.readline().rstrip()
        assert processes._news.get(timeout=PATIENCE) == (0, -signal.SIGKILL)
        told.read()  # until the tracker has ended, too
    with processes._workers[0]:
        pass
    with pytest.raises(FileNotFoundError):
        SharedMemory(name)


def test_a_worker_that_is_reaped_as_it_ends_is_heard_of() -> None:
    """Who started the supervisor ignores SIGCHLD."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        processes = _Processes(["true"])
        processes._do([Start(0)])
        with processes._workers[0]:
            assert processes._news.get(timeout=PATIENCE) == (0, 0)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_worker_that_has_ended_is_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may be another's."""
    with subprocess.Popen(["true"], process_group=0) as ended:
        ended.wait()
        killed = list[int]()
        monkeypatch.setattr(os, "killpg", lambda group, _: killed.append(group))
        _tell_worker(ended, Word.KILL)
    assert killed == []


@pytest.mark.parametrize("error", [ProcessLookupError, PermissionError])
def test_a_worker_that_ends_as_it_is_killed_is_no_error(error: type[OSError], monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS a group of which all have ended cannot be signalled: EPERM."""

    def killpg(_group: int, _number: int) -> None:
        raise error

    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, process_group=0) as ending:
        monkeypatch.setattr(os, "killpg", killpg)
        _tell_worker(ending, Word.KILL)


ORPHANS = """
import ctypes, os, subprocess, sys
from instride._cli import run
from instride._cli.supervisor import Supervisor

PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0

def orphan():
    # Of a program that has ended.
    script = "exec 3<&0; cat <&3 >/dev/null & echo $!"
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        found = int(program.stdout.readline())
        program.wait()
    os.waitid(os.P_PID, found, os.WEXITED | os.WNOWAIT)
    return found

def is_there(process):
    return os.path.exists(f"/proc/{process}")

worker = subprocess.Popen(["false"])
os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
for _ in range(2):
    run._reap_orphans({worker.pid})
assert is_there(worker.pid)
assert worker.wait() == 1

supervisor, processes = Supervisor(workers=1, grace=60.0), run._Processes(["sleep", "600"])
left = [orphan(), orphan()]
processes._next(supervisor)
assert all(map(is_there, left))  # they go to the first process
os.getpid = lambda: 1
processes._next(supervisor)
assert not any(map(is_there, left))
run._reap_orphans(set())  # with no child at all
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the first process of a container")
def test_as_a_containers_first_process_it_reaps_orphans_and_no_worker() -> None:
    """Each would keep its number for ever, until there are no more processes."""
    done = subprocess.run(
        [sys.executable, "-c", ORPHANS], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("app", ["hung", "waits"])
def test_sigterm_amid_a_set_up_that_hangs_ends_after_drain_timeout(folder: Path, app: str) -> None:
    with run(folder, f"billing:{app}", "--settings", "billing:settings") as running:
        assert running.told()[:2] == ("up", 0)
        running.process.terminate()
        assert running.end() == (1, [])
    assert "DrainTimeoutError: stopped, and the set-up did not end in 0.1 s" in running.errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["billing:bad", "--settings", "billing:settings"], 1), (["billing:app"], 2)],
)
def test_what_cannot_run_ends_with_a_status(folder: Path, arguments: list[str], code: int) -> None:
    with run(folder, *arguments) as running:
        assert running.end() == (code, [])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["nosuch:app"],
            r"worker 0 cannot begin: 'nosuch:app': there is no module 'nosuch', neither in .* nor installed",
        ),
        (["billing:nosuch"], r"worker 0 cannot begin: 'billing:nosuch': billing has no 'nosuch'; it is of type module"),
        (["billing:app", "--group-id", "g"], r"worker 0 cannot begin: bootstrap_servers is missing; .*"),
    ],
)
def test_a_mistake_in_the_command_line_is_told_in_one_line(folder: Path, arguments: list[str], told: str) -> None:
    with run(folder, *arguments) as running:
        assert running.end() == (2, [])
    expected = rf"instride run: {told}\ninstride run: worker 0 ended with status 2\n"
    assert re.fullmatch(expected, running.errors), running.errors


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("app", ["billing:nosuch", "lacks:app"])
def test_a_mistake_that_cannot_be_written_has_its_status(folder: Path, app: str, unbuffered: str) -> None:
    """The disk with the log is full. By another status the supervisor would take it for a death, and begin anew."""
    (folder / "lacks.py").write_text("import no_such_module_of_theirs\n")
    command = [sys.executable, "-m", "instride._cli.worker", app, "billing:settings", "", "", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with (
        Path("/dev/full").open("w") as full,
        subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.PIPE, stderr=full) as process,
    ):
        assert process.wait(PATIENCE) == CANNOT_BEGIN


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for each in folder.glob("*.py"):
        sys.modules.pop(each.stem, None)


THEIRS = {
    "lacks": "import no_such_module_of_theirs",
    "ends": "raise SystemExit(0)",
    "wrong": "from instride import Processor\napp = Processor(print, topics=[], concurrency=0)",
    "typo": "def app(:",
    "asks": "def settings():\n    return {}['no password']",
    "leaves": "def settings():\n    raise SystemExit(0)",
    "lazy": "def __getattr__(name):\n    return {}[name]",
    "chained": "try:\n    open('no-such-file')\nexcept OSError as error:\n    raise RuntimeError('no file') from error",
}


@pytest.fixture
def _without_a_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_taken_standard_input", lambda: 0)
    monkeypatch.setattr(worker, "_SupervisorsWords", lambda pipe: None)


@pytest.mark.usefixtures("here", "_without_a_supervisor")
@pytest.mark.parametrize(
    ("app", "settings", "what", "frames", "last"),
    [
        ("lacks:app", None, "'lacks:app': the module 'lacks' was not imported", ["lacks"], "No module named 'no_such_"),
        ("ends:app", None, "'ends:app': the module 'ends' was not imported", ["ends"], "SystemExit: 0"),
        ("wrong:app", None, "'wrong:app': the module 'wrong' was not imported", ["wrong"], "topics is empty"),
        ("typo:app", None, "'typo:app': the module 'typo' was not imported", ["typo"], "SyntaxError: "),
        ("billing:app", "lacks:all", "'lacks:all': the module 'lacks' was not", ["lacks"], "No module named 'no_such_"),
        ("billing:app", "asks:settings", "--settings asks:settings: the function", ["asks"], "KeyError: 'no password'"),
        ("billing:app", "leaves:settings", "--settings leaves:settings: the function", ["leaves"], "SystemExit: 0"),
        ("lazy:app", None, "'lazy:app': lazy did not give its 'app'", ["lazy"], "KeyError: 'app'"),
        ("chained:app", None, "'chained:app': the module 'chained' was not", ["chained"] * 2, "RuntimeError: no file"),
    ],
    ids=["lacks", "ends", "wrong", "typo", "settings lack", "asks", "leaves", "lazy", "chained"],
)
def test_what_the_users_module_raises_is_told_from_their_first_line_on(
    app: str, settings: str | None, what: str, frames: list[str], last: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No line of ours comes before it. (After it there may be some, of what they called.)"""
    for name, text in THEIRS.items():
        Path(f"{name}.py").write_text(f"{text}\n")
    assert worker.main(app, settings, "localhost:1", "g", 3) == CANNOT_BEGIN
    first, *others = capsys.readouterr().err.splitlines()
    assert first.startswith(f"instride run: worker 3 cannot begin: {what}")
    files = re.findall(r'File "(.*?)", line', "\n".join(others))
    assert [Path(each).stem for each in files][: len(frames)] == frames
    assert all("importlib" not in each and "_cli" not in each for each in files)
    assert last in others[-1]


@pytest.mark.parametrize("app", ["wrong:app", "typo:app"])
def test_a_mistake_in_the_users_module_ends_all_with_its_status(folder: Path, app: str) -> None:
    for name, text in THEIRS.items():
        (folder / f"{name}.py").write_text(f"{text}\n")
    with run(folder, app, "--settings", "billing:settings") as running:
        assert running.end() == (2, [])
    assert f"worker 0 cannot begin: {app!r}: the module " in running.errors


def test_a_number_of_workers_that_no_machine_has_is_refused(folder: Path) -> None:
    """All are noted before the first starts: a number with a digit too many would fill the memory."""
    with run(folder, "billing:billing", "--workers", "1025") as running:
        assert running.end() == (2, [])
    assert "less than or equal to 1024" in running.errors


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("app", "settings", "told"),
    [
        ("billing", None, "module:name"),
        (":app", None, "module:name"),
        ("./billing:app", None, "module:name"),
        ("billing:nothing", None, "billing has no 'nothing'"),
        ("billing:app", "billing:settings.prod", "billing.settings has no 'prod'; it is of type dict$"),
        ("billing:other", "billing:settings", "must be a Processor"),
        ("billing:app", "billing:other", "must be a dict"),
        ("billing:app", "billing:odd", "must be a dict of names"),
        ("billing:app", None, "needs a group"),
    ],
)
def test_what_a_worker_cannot_begin_with_is_told(app: str, settings: str | None, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        loaded(app, settings_of(settings, None, None), 0)


def test_a_working_folder_that_is_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new release was put in its place, say."""
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="'billing:app': the working folder is gone"):
        target("billing:app")


@pytest.mark.usefixtures("here")
def test_options_go_before_settings_and_each_worker_has_an_instance_of_its_own() -> None:
    given = settings_of("billing:made", "localhost:2", "h")
    assert given == {"bootstrap_servers": "localhost:2", "group_id": "h", "group_instance_id": "i"}
    loaded("billing:app", given, 3)
    assert given["group_instance_id"] == "i-3"
