"""The owner's end of the keeper: start processes that cannot outlive this one.

Laws
1. Calls may come from any thread; one command and its response are one step. Responses carry their command's number, so
   that a call that was interrupted between the two (Ctrl-C) does not leave its response to the next one.
2. A fork of the owner is not the owner: there, every call but ``end`` is an error, and ``end`` does nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import IO, Any, Final

from instride.errors import LocalKafkaError

__all__ = ["Processes"]

_KEEPER: Final = Path(__file__).with_name("keeper.py")
_GONE: Final = "the process that keeps the brokers has ended, and they with it"


class Processes:
    """Child processes by name, and a temporary folder, all gone with this process. See `keeper`."""

    def __init__(self, base: Path | None = None) -> None:
        """Start the keeper. base: where the temporary folder is made; the system's place by default."""
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_KEEPER), str(self._owner), str(base or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            self.folder = Path(self._read(0)["folder"])
        except BaseException:
            self._end_keeper()
            raise

    def start(self, name: str, command: list[str], log: Path) -> int:
        """Start a process; its output is appended to the log. Returns its process id."""
        return int(self._ask("start", name=name, command=command, log=str(log))["pid"])

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal; none is sent to a process that has ended."""
        self._ask("signal", name=name, number=int(number))

    def exit_code(self, name: str) -> int | None:
        """None while it runs (or is suspended); negative when a signal ended it."""
        code = self._ask("state", name=name)["code"]
        return None if code is None else int(code)

    @property
    def keeper_pid(self) -> int:
        return self._keeper.pid

    def end(self) -> None:
        """Kill all, remove the folder. Again is harmless."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            if self._keeper.returncode is None:
                self._end_keeper()
        shutil.rmtree(self.folder, ignore_errors=True)  # the keeper did so, unless it was killed

    def _ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        if os.getpid() != self._owner:
            raise LocalKafkaError("this LocalKafka belongs to the process that started it, not to a fork of that")
        with self._lock:
            number = next(self._numbers)
            try:
                self._send(verb, number, arguments)
            except (OSError, ValueError) as error:
                raise LocalKafkaError(_GONE) from error
            return self._read(number)

    def _end_keeper(self) -> None:
        """A command, since the pipe does not end while a fork of this process has its other end."""
        with suppress(OSError, ValueError):  # the keeper was killed, or an earlier end was interrupted
            self._send("end", 0, {})
        self._keeper.communicate()

    def _send(self, verb: str, number: int, arguments: dict[str, Any]) -> None:
        stream = _pipe(self._keeper.stdin)
        stream.write(json.dumps({"do": verb, "number": number, "with": arguments}).encode() + b"\n")
        stream.flush()

    def _read(self, number: int) -> dict[str, Any]:
        while line := _pipe(self._keeper.stdout).readline():
            response: dict[str, Any] = json.loads(line)
            if response["number"] != number:
                continue
            if "error" in response:
                raise LocalKafkaError(response["error"])
            return response
        raise LocalKafkaError(_GONE)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
