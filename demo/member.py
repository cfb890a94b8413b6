"""What every member process of the demo shares: how it is told what to do, and the work that it does.

Laws
1. A member is told everything on its command line, as one JSON value; it reads nothing else.
2. It says that it is ready, waits for the file `join` (so that a slow start-up costs nobody anything), works, and on
   SIGTERM or SIGINT finishes what is under way, commits, leaves the group and ends with status 0.
3. Both kinds of members do the same work, here: parse the flights, and take long over one of them.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from demo.flights import parse
from demo.history import Note
from instride.testing.recording import Recorder

__all__ = ["MemberSettings", "Stop", "wait_to_join"]

LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """app: the member's name. output, histories: folders. join: the file whose appearing lets it join.

    slow_row: the flight that takes slow_seconds to work on; the others take none.
    """

    app: str
    bootstrap_servers: str
    topic: str
    group_id: str
    output: Path
    histories: Path
    join: Path
    slow_row: int
    slow_seconds: float

    def argument(self) -> str:
        """The command line's last part."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_argument(cls) -> Self:
        values = json.loads(sys.argv[1])
        return cls(**{**values, **{name: Path(values[name]) for name in ("output", "histories", "join")}})

    def work(self, values: Iterable[bytes | memoryview]) -> pa.Table:
        """The flights in these record values. It takes long if the slow one is among them."""
        table = parse(values)
        if pc.index(table["row"], self.slow_row).as_py() >= 0:
            time.sleep(self.slow_seconds)
        return table


class Stop:
    """Set by SIGTERM and SIGINT. Build it on the main thread."""

    def __init__(self) -> None:
        self._event = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._set)

    def _set(self, number: int, frame: object) -> None:
        self._event.set()

    def __bool__(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        return self._event.wait(seconds)


def wait_to_join(settings: MemberSettings, history: Recorder, stop: Stop) -> bool:
    """Say that this member is ready, and wait until it may join. False: it shall stop instead."""
    history.add(settings.app, Note.READY)
    while not settings.join.exists():
        if stop.wait(LOOK_SECONDS):
            return False
    return True
