"""The fault of the sinks' tests itself: a driver that stops before its commit has done nothing of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from app_help import environment
from pipeline_help import PATIENCE

pytestmark = pytest.mark.spark

# The kernel may give a signal to the process to its main thread, which is busy here.
PROGRAM = """
import signal, sys, threading, time
from types import SimpleNamespace
from pathlib import Path
from pipeline_app import Faulty

committed, gate = sys.argv[1:]
sink = SimpleNamespace(writer=None, commit=lambda job: open(committed, "w").close() or {})
faulty, ready = Faulty(sink, signal.SIGSTOP, 1, Path(gate)), threading.Event()
thread = threading.Thread(target=lambda: ready.wait(0.05) or faulty.commit(None))
thread.start()
while thread.is_alive():
    pass
"""


def test_a_driver_that_is_stopped_before_its_commit_does_not_begin_it(tmp_path: Path) -> None:
    """Else it may hold a lock of the catalogue's database, so that no other driver can commit."""
    committed = tmp_path / "committed"
    arguments = [sys.executable, "-c", PROGRAM, str(committed), str(tmp_path / "gate")]
    with subprocess.Popen(arguments, env=environment()) as process:
        try:
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            assert not committed.exists()
            process.send_signal(signal.SIGCONT)
            assert process.wait(PATIENCE) == 0
            assert committed.exists()
        finally:
            process.kill()
