"""Fetch Apache Kafka from Maven Central.

Laws
1. The fetch runs under a keeper (see `keeper`): where this process is killed, the fetch and its files go too.
2. It ends: done, failed, or stopped when its time is over. Meanwhile it tells its progress to the log.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from instride.errors import KafkaNotFoundError
from instride.testing._kafka.processes import Processes

__all__ = ["fetched"]

logger = logging.getLogger(__name__)

_SCRIPT: Final = Path(__file__).with_name("fetch_jars.py")
_FETCH_SECONDS: Final = 900.0
_TELL_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.1
_JOB: Final = "fetch"


@contextmanager
def fetched(endpoint: str, base: Path) -> Iterator[Path]:
    """Fetch; give the folder that then holds the jars, at any depth; remove it on leaving.

    endpoint: Maven coordinates as jgo takes them. base: where the folder is made. Raises KafkaNotFoundError.
    """
    if find_spec("jgo") is None:
        raise KafkaNotFoundError(
            "there is no Apache Kafka here, and no jgo to fetch one: set KAFKA_HOME to an unpacked one, or run: "
            'pip install "instride[testing]"'
        )
    processes = Processes(base)
    try:
        folder, log = processes.folder, processes.folder / "log"
        processes.start(_JOB, [sys.executable, "-P", str(_SCRIPT), endpoint, str(folder)], log)
        if _wait(processes) != 0:
            raise KafkaNotFoundError(_failure(log))
        yield folder / "jgo"
    finally:
        processes.end()


def _wait(processes: Processes) -> int | None:
    """The exit code; None when the time is over."""
    start = told = time.monotonic()
    while (code := processes.exit_code(_JOB)) is None and time.monotonic() < start + _FETCH_SECONDS:
        if time.monotonic() > told + _TELL_SECONDS:
            told = time.monotonic()
            logger.info("fetching Apache Kafka: %s", _progress(processes.folder / "m2"))
        time.sleep(_POLL_SECONDS)
    return code


def _progress(repository: Path) -> str:
    poms, jars = (sum(1 for _ in repository.rglob(f"*.{kind}")) for kind in ("pom", "jar"))
    return f"{poms} descriptions read, {jars} jars fetched"


def _failure(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return (
        "Apache Kafka could not be fetched from Maven Central; is the network there? KAFKA_HOME may name one that is "
        f"unpacked already. The end of what jgo said: {' | '.join(lines[-3:]) or 'nothing'}"
    )
