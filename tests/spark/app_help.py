"""Applications of `pipeline_app`, as processes of their own with their own Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline_help import PATIENCE, read_events, wait_for

import instride
from instride.testing import LocalKafka

__all__ = ["HELPERS", "App", "environment"]

HERE = Path(__file__).parent
HELPERS = os.pathsep.join([str(HERE), str(HERE.parent)])
"""For PYTHONPATH: where the helpers of tests are, which the functions of tests import in Spark's workers."""


class App:
    """A process of `pipeline_app`. program: of another application that is told what to do in the same way."""

    program = "pipeline_app.py"

    def __init__(
        self, name: str, folder: Path, *, master: str = "local[2]", conf: dict[str, str] | None = None
    ) -> None:
        self.name = name
        self._events = folder / f"{name}.jsonl"
        self._skip = 0
        settings = {"name": name, "master": master, "events": str(self._events), "conf": conf or {}}
        self.log = folder / f"{name}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / self.program), json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment(),
                start_new_session=True,
            )

    def run(self, kafka: LocalKafka, topic: str, out: Path, *, slow: str = "none", **more: Any) -> None:
        """Begin a pipeline. more: see `pipeline_app`."""
        self.forget()
        wanted = {"topic": topic, "servers": kafka.bootstrap_servers, "out": str(out), "slow": slow}
        self.say({**wanted, "gate": str(out.parent / "gate"), **more})

    def forget(self) -> None:
        """What happened until now is not of the pipeline that begins."""
        self._skip = len(read_events(self._events))

    def say(self, wanted: dict[str, Any]) -> None:
        """Tell it what to do."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(wanted).encode() + b"\n")
        self.process.stdin.flush()

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """Those of the present pipeline."""
        return [each for each in read_events(self._events)[self._skip :] if each["event"] in kinds]

    def changed(self, change: str) -> dict[int, float]:
        """By partition when that first became of it."""
        return {
            number: each["t"]
            for each in reversed(self.events("OwnershipChanged"))
            if each["change"] == change
            for _, number in each["partitions"]
        }

    def worked_on(self) -> list[tuple[float, int]]:
        """(time, partition) of every range that is in the sink."""
        return [(each["t"], each["range"]["partition"]) for each in self.events("RangeCommitted")]

    def wait(self, condition: Callable[[], object], what: str) -> None:
        def holds() -> object:
            assert self.process.poll() is None, f"{self.name} ended:\n{self.log.read_text()[-3000:]}"
            return condition()

        wait_for(holds, f"{self.name}: {what}")

    def wait_ready(self) -> None:
        self.wait(lambda: self.events("ready"), "its Spark")

    def leave(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        wait_for(lambda: self.events("ran"), f"{self.name} to leave; its log:\n{self.log.read_text()[-3000:]}")

    def kill(self) -> None:
        assert self.process.stdin is not None
        self.process.kill()
        self.process.wait(PATIENCE)
        self.process.stdin.close()

    def end(self) -> None:
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()


def environment() -> dict[str, str]:
    paths = [str(Path(instride.__file__).parents[1]), HELPERS]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
