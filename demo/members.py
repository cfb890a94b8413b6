"""The demo's member processes: started, watched, asked to leave, and gone with this process however it ends.

Laws
1. A member is a real process of its own, started through the keeper of `instride.testing`: it cannot outlive
   this one.
2. A member that ends before it was asked to is an error that shows the end of its log.
3. To be asked to leave is SIGTERM. One that has not left in time is killed when the keeper ends.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Final

from demo.member import MemberSettings
from instride.errors import KafkaError
from instride.testing.processes import Processes

__all__ = ["DemoError", "Members"]

LOG_LINES: Final = 25


class DemoError(KafkaError):
    """The demo cannot go on: a member ended, or did not come to where it should be in time."""


class Members:
    """The members of one run, by name. processes: whose folder also holds their logs."""

    def __init__(self, processes: Processes, prefix: str) -> None:
        self._processes = processes
        self._prefix = prefix
        self._started: list[str] = []
        self._asked: set[str] = set()

    def start(self, module: str, settings: MemberSettings) -> None:
        """Start `python -m module` with these settings."""
        command = [sys.executable, "-m", module, *settings.arguments()]
        self._processes.start(self._name(settings.app), command, self._log(settings.app))
        self._started.append(settings.app)

    def ask_to_leave(self, *apps: str) -> None:
        for app in apps:
            self._asked.add(app)
            self._processes.signal(self._name(app), signal.SIGTERM)

    def ask_all_to_leave(self) -> None:
        self.ask_to_leave(*self.running())

    def running(self) -> list[str]:
        return [app for app in self._started if self._processes.exit_code(self._name(app)) is None]

    def check(self) -> None:
        """DemoError if one ended by itself, or with a failure."""
        for app in self._started:
            code = self._processes.exit_code(self._name(app))
            if code is not None and (code or app not in self._asked):
                raise DemoError(f"{app} ended with status {code}; the end of its log:\n{self._tail(app)}")

    def _name(self, app: str) -> str:
        return f"{self._prefix}-{app}"

    def _log(self, app: str) -> Path:
        return self._processes.folder / f"{self._name(app)}.log"

    def _tail(self, app: str) -> str:
        lines = self._log(app).read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES:]) or "(it is empty)"
