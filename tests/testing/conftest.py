"""What the tests of the testing tools share."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

DEADLINE_SECONDS = 30.0


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Poll for a state of other processes until it holds; fail when it does not come."""

    def wait(holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not holds():
            assert time.monotonic() < deadline, "the state did not come"
            time.sleep(0.02)

    return wait


@pytest.fixture
def is_alive() -> Callable[[int], bool]:
    """Whether a process runs. One that ended and that nobody has asked about yet (a zombie) does not."""

    def state(pid: int) -> str:
        if Path("/proc/self/stat").exists():
            try:
                return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                return ""
        return subprocess.run(
            ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
        ).stdout.strip()

    return lambda pid: state(pid)[:1] not in {"", "Z", "X"}
