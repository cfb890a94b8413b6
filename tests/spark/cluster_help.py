"""Spark's own standalone cluster on this machine, from the pip package, whose processes may be killed and stopped."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark
from app_help import environment
from pipeline_help import QUICK_JVM, wait_for

from instride.testing._kafka.ports import free_ports

__all__ = ["CONF", "SparkCluster", "ancestors_of", "command_of", "descendants_of"]

CONF = {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": QUICK_JVM}
"""Of applications on it."""
_EXECUTOR = b"CoarseGrainedExecutorBackend"


class SparkCluster:
    """A context manager. workers: with so many cores each. options: of the master's and workers' JVMs."""

    def __init__(self, folder: Path, *, workers: int = 1, cores: int = 2, options: str = "") -> None:
        port = free_ports(1)[0]
        self.address = f"spark://127.0.0.1:{port}"
        self.work = folder / "work"
        self._log = (folder / "cluster.log").open("ab")
        self._cores = cores
        self._options = f"{QUICK_JVM} {options}"
        self._port = port
        self._count = workers
        self._master: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._master = self._started("master.Master", "--port", str(self._port))
        self.heal()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in [*self.workers, *([self._master] if self._master is not None else [])]:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            process.terminate()
            process.wait(20)
        self._log.close()

    def heal(self) -> None:
        """As many workers as there were."""
        self.workers = [each for each in self.workers if each.poll() is None]
        for _ in range(self._count - len(self.workers)):
            self.workers.append(
                self._started(
                    "worker.Worker", "--cores", str(self._cores), "--memory", "1g", "--work-dir", str(self.work),
                    self.address,
                )
            )  # fmt: skip

    def _started(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        command = [str(spark_class), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", "--webui-port", "0"]
        env = {**environment(), "SPARK_HOME": str(spark_class.parents[1]), "SPARK_DAEMON_JAVA_OPTS": self._options}
        return subprocess.Popen(
            [*command, *arguments], stdout=self._log, stderr=self._log, env=env, start_new_session=True
        )

    def executors(self) -> dict[int, int]:
        """Of each executor its worker."""
        return {
            process: worker.pid
            for worker in self.workers
            for process in descendants_of(worker.pid)
            if _EXECUTOR in command_of(process)
        }

    def wait_for_executors(self, count: int) -> None:
        wait_for(lambda: len(self.executors()) == count, f"{count} executors")

    def executor_of(self, process: int) -> int:
        """That in which this Python worker works."""
        (found,) = [each for each in ancestors_of(process) if each in self.executors()]
        return found


def command_of(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def _parents() -> dict[int, int]:
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            found[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def ancestors_of(process: int) -> list[int]:
    parents, found = _parents(), []
    while process in parents:
        process = parents[process]
        found.append(process)
    return found


def descendants_of(process: int) -> list[int]:
    parents, found = _parents(), [process]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]
