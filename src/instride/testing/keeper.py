"""Run as a script: the process that owns the brokers of one LocalKafka and its temporary folder.

    LocalKafka (the user's process)  --pipe: one JSON command a line-->  keeper  --parent of-->  the brokers' JVMs

Laws
1. Whatever ends the owner, SIGKILL too, ends the pipe or changes this process's parent. Either makes the keeper kill every
   JVM (SIGKILL, which also ends a suspended one), remove the folder, and end.
2. The keeper is the JVMs' parent and the folder's maker, so there is no moment in which one exists that it does not know of,
   and a process id that it signals cannot have passed to another process: it is freed only when the keeper reaps it.
3. It lives in a session of its own: a terminal's Ctrl-C, meant for the owner, does not reach it or the JVMs.
4. It needs the standard library only, and is started isolated, so that it starts in some 30 ms.
5. Where the keeper itself is killed, Linux kills the JVMs (PR_SET_PDEATHSIG); the owner then removes the folder.
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
from pathlib import Path
from typing import Any

_PARENT_CHECK_SECONDS = 0.5
_PR_SET_PDEATHSIG = 1


class Keeper:
    """The children by name, and the commands on them. One thread, one command at a time."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self._prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def start(self, *, name: str, command: list[str], log: str) -> dict[str, Any]:
        with Path(log).open("ab") as out:
            self.children[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                preexec_fn=self._die_with_keeper if self._prctl else None,  # noqa: PLW1509 - one thread here
            )
        return {"pid": self.children[name].pid}

    def _die_with_keeper(self) -> None:
        assert self._prctl is not None
        self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    def signal(self, *, name: str, number: int) -> dict[str, Any]:
        self.children[name].send_signal(number)  # does nothing to a child that was reaped
        return {}

    def state(self, *, name: str) -> dict[str, Any]:
        return {"code": self.children[name].poll()}

    def finish(self) -> None:
        for child in self.children.values():
            child.kill()
        for child in self.children.values():
            child.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def serve(keeper: Keeper, owner: int) -> None:
    """Answer commands until the pipe ends, the owner is gone, or it says ``end``."""
    waiting = b""
    while True:
        ready, _, _ = select.select([0], [], [], _PARENT_CHECK_SECONDS)
        if os.getppid() != owner:
            return  # the pipe alone is not enough: a fork of the owner may hold its other end open
        if not ready:
            continue
        data = os.read(0, 65536)
        if not data:
            return
        *lines, waiting = (waiting + data).split(b"\n")
        for line in lines:
            command = json.loads(line)
            if command["do"] == "end":
                return
            answer(run(keeper, command))


def run(keeper: Keeper, command: dict[str, Any]) -> dict[str, Any]:
    verbs = {"start": keeper.start, "signal": keeper.signal, "state": keeper.state}
    try:
        return verbs[command.pop("do")](**command)
    except (OSError, KeyError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def answer(message: dict[str, Any]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def main(owner: int, base: str) -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    keeper = Keeper(tempfile.mkdtemp(prefix="instride-kafka-", dir=base or None))
    try:
        answer({"folder": keeper.folder})
        serve(keeper, owner)
    finally:
        keeper.finish()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
