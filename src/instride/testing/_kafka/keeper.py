"""Run as a script: the process that owns the brokers of one LocalKafka and its temporary folder.

    LocalKafka (the user's process)  --pipe: a JSON command a line-->  keeper  --parent of-->  the brokers' JVMs

Laws
1. Whatever ends the owner, SIGKILL too, ends the pipe or changes this process's parent. Either makes the keeper kill
   every JVM (SIGKILL, which also ends a suspended one), remove the folder, and end. So does the verb "end": while a
   fork of the owner lives, the owner cannot end the pipe.
2. The keeper is the JVMs' parent and the folder's maker, so at no moment does one exist that it does not know of, and a
   process id that it signals cannot have passed to another process: it is freed only when the keeper reaps it.
3. It lives in a session of its own: a terminal's Ctrl-C, meant for the owner, reaches neither it nor the JVMs.
4. It needs the standard library only and is started isolated, so that it starts at once.
5. Where the keeper itself is killed, Linux kills the JVMs (PR_SET_PDEATHSIG), and the owner then removes the folder.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PARENT_CHECK_SECONDS = 0.5
_PR_SET_PDEATHSIG = 1


class Keeper:
    """The children by name, and the commands on them. One thread, one command at a time."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *, name: str, command: list[str], log: str) -> dict[str, Any]:
        with Path(log).open("ab") as out:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                preexec_fn=_die_with_keeper,  # noqa: PLW1509 - there is one thread here
            )
        self.children[name] = child
        return {"pid": child.pid}

    def signal(self, *, name: str, number: int) -> dict[str, Any]:
        self.children[name].send_signal(number)  # which does nothing to a child that was reaped
        return {}

    def state(self, *, name: str) -> dict[str, Any]:
        return {"code": self.children[name].poll()}

    def finish(self) -> None:
        for child in self.children.values():
            child.kill()
        for child in self.children.values():
            child.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


_keeper_pid = os.getpid()
_prctl: Callable[..., int] | None = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def _die_with_keeper() -> None:
    """Runs in the child, before its program. The second look is for a keeper that was killed before the first line."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != _keeper_pid:
            os._exit(1)


def serve(keeper: Keeper, owner: int) -> None:
    """Serve commands until the owner says "end", or is gone."""
    rest = b""
    while os.getppid() == owner:  # the pipe alone is not enough: a fork of the owner may hold its other end open
        ready, _, _ = select.select([0], [], [], _PARENT_CHECK_SECONDS)
        if not ready:
            continue
        data = os.read(0, 65536)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        for command in map(json.loads, lines):
            if command["do"] == "end":
                return
            response(run(keeper, command))


def run(keeper: Keeper, command: dict[str, Any]) -> dict[str, Any]:
    verbs: dict[str, Callable[..., dict[str, Any]]] = {
        "start": keeper.start,
        "signal": keeper.signal,
        "state": keeper.state,
    }
    try:
        return verbs[command["do"]](**command["with"]) | {"number": command["number"]}
    except (OSError, KeyError, subprocess.SubprocessError) as error:
        return {"error": f"{type(error).__name__}: {error}", "number": command["number"]}


def response(message: dict[str, Any]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def main(owner: int, base: str) -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    keeper = Keeper(tempfile.mkdtemp(prefix="instride-kafka-", dir=base or None))
    try:
        response({"folder": keeper.folder, "number": 0})
        serve(keeper, owner)
    finally:
        keeper.finish()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
