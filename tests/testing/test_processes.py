"""The keeper: no child and no file outlives the owner, however the owner or the keeper ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from instride.errors import LocalKafkaError
from instride.testing._kafka import processes as module
from instride.testing._kafka.processes import Processes

Eventually = Callable[[Callable[[], bool]], None]
IsAlive = Callable[[int], bool]

SLEEP = ["sleep", "600"]

# An owner in a process of its own, which tells what it started and then does what the test says.
OWNER = """
import os, signal, sys, time
from pathlib import Path
from instride.testing._kafka.processes import Processes
p = Processes(Path(sys.argv[1]))
first = p.start("first", ["sleep", "600"], p.folder / "log")
second = p.start("second", ["sleep", "600"], p.folder / "log")
p.signal("second", signal.SIGSTOP)
(p.folder / "data").write_text("x")
def tell(*more):
    print(p.folder, p.keeper_pid, first, second, *more, flush=True)
"""
ENDINGS = {
    "killed": "tell(); os.kill(os.getpid(), signal.SIGKILL)",
    "exits": "tell()",
    "exits at once": "tell(); os._exit(3)",
    "raises": "tell(); raise SystemExit(1)",
    "killed, a fork of it lives on": (
        "fork = os.fork()\nif not fork:\n    time.sleep(60)\ntell(fork); os.kill(os.getpid(), signal.SIGKILL)"
    ),
}


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path)
    yield made
    made.end()


@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_outlives_the_owner(ending: str, tmp_path: Path, eventually: Eventually, is_alive: IsAlive) -> None:
    source = str(Path(module.__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", OWNER + ENDINGS[ending], str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    ) as owner:
        assert owner.stdout is not None
        folder, keeper, first, second, *fork = owner.stdout.readline().split()
        owner.wait()
        try:
            eventually(lambda: not any(is_alive(int(pid)) for pid in (keeper, first, second)))
            assert not Path(folder).exists()
            assert list(tmp_path.iterdir()) == []
        finally:
            for pid in fork:
                os.kill(int(pid), signal.SIGKILL)


def test_end_kills_all_and_removes_the_folder(tmp_path: Path, is_alive: IsAlive) -> None:
    made = Processes(tmp_path)
    pids = [made.start(name, SLEEP, made.folder / "log") for name in ("a", "b")]
    made.signal("b", signal.SIGSTOP)
    made.end()
    assert not any(map(is_alive, [*pids, made.keeper_pid]))
    assert list(tmp_path.iterdir()) == []
    made.end()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_it_ends_though_a_fork_of_the_owner_lives_on(tmp_path: Path, is_alive: IsAlive) -> None:
    """The fork holds the other end of the keeper's pipe, so that the owner cannot end it."""
    made = Processes(tmp_path)
    child = made.start("child", SLEEP, made.folder / "log")
    until, over = os.pipe()
    fork = os.fork()
    if not fork:
        os.close(over)
        os.read(until, 1)
        os._exit(0)
    ending = threading.Thread(target=made.end)
    ending.start()
    try:
        ending.join(60)
        assert not ending.is_alive(), "it waits for the fork"
        assert not any(map(is_alive, [child, made.keeper_pid]))
        assert list(tmp_path.iterdir()) == []
    finally:
        os.close(over)
        os.waitpid(fork, 0)
        os.close(until)
        ending.join()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can tie a process's life to its parent's")
def test_a_killed_keeper_takes_its_children_along(
    processes: Processes, eventually: Eventually, is_alive: IsAlive
) -> None:
    child = processes.start("child", SLEEP, processes.folder / "log")
    os.kill(processes.keeper_pid, signal.SIGKILL)
    eventually(lambda: not is_alive(child))
    with pytest.raises(LocalKafkaError, match="has ended"):
        processes.exit_code("child")
    processes.end()
    assert not processes.folder.exists()


def test_a_signal_to_the_owners_group_does_not_reach_the_children(processes: Processes, is_alive: IsAlive) -> None:
    child = processes.start("child", SLEEP, processes.folder / "log")
    groups = {os.getpgid(processes.keeper_pid), os.getpgid(child)}
    assert os.getpgrp() not in groups
    assert os.getsid(child) != os.getsid(0)
    assert is_alive(child)


def test_exit_codes_and_signals(processes: Processes, eventually: Eventually) -> None:
    log = processes.folder / "log"
    processes.start("good", ["sh", "-c", "echo out; echo err >&2"], log)
    eventually(lambda: processes.exit_code("good") == 0)
    assert log.read_text() == "out\nerr\n"
    processes.start("bad", ["sh", "-c", "exit 7"], log)
    eventually(lambda: processes.exit_code("bad") == 7)
    processes.start("killed", SLEEP, log)
    assert processes.exit_code("killed") is None
    processes.signal("killed", signal.SIGKILL)
    eventually(lambda: processes.exit_code("killed") == -signal.SIGKILL)
    processes.signal("killed", signal.SIGKILL)  # to nobody: harmless


def test_a_program_that_is_not_there_is_an_error(processes: Processes) -> None:
    with pytest.raises(LocalKafkaError, match=r"FileNotFoundError.*no-such-program"):
        processes.start("x", ["/no-such-program"], processes.folder / "log")
    assert processes.start("y", SLEEP, processes.folder / "log") > 0


def test_a_response_that_nobody_waited_for_is_passed_over(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when Ctrl-C comes between a command and its response."""
    processes.start("child", SLEEP, processes.folder / "log")
    with monkeypatch.context() as patch:
        patch.setattr(processes, "_read", lambda number: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            processes.signal("nobody", signal.SIGKILL)
    assert processes.exit_code("child") is None


def test_a_fork_cannot_use_it_and_does_not_end_it(
    processes: Processes, monkeypatch: pytest.MonkeyPatch, is_alive: IsAlive
) -> None:
    child = processes.start("child", SLEEP, processes.folder / "log")
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)  # what a fork sees: another process id
        with pytest.raises(LocalKafkaError, match="not to a fork"):
            processes.exit_code("child")
        processes.end()
    assert is_alive(child)
    assert processes.exit_code("child") is None
