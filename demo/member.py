"""What every member process of the demo shares: `python -m demo.<kind>_member APP PLAN`.

Laws
1. A member is told everything on its command line; it reads nothing else.
2. It says that it is ready, waits for its file to join, works, and on SIGTERM or SIGINT finishes what is in progress,
   commits, leaves the group and ends with status 0.
3. All kinds of members do the same work: `Plan.work`.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Protocol

from demo.history import Note, recorder
from demo.plan import Plan
from instride.testing.recording import Recorder

__all__ = ["Member", "main"]

LOOK_SECONDS: Final = 0.05


class Member(Protocol):
    """run: until `stop`, which a signal's handler calls, also before."""

    def run(self) -> None: ...

    def stop(self) -> None: ...


def main(member: Callable[[Plan, str, Recorder], AbstractContextManager[Member]]) -> None:
    """Run one member until SIGTERM."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    app, plan = sys.argv[1], Plan.from_argument(sys.argv[2])
    stopped = threading.Event()
    with recorder(plan.histories, plan.topic, app) as history, member(plan, app, history) as made:

        def stop(*_: object) -> None:
            stopped.set()
            made.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        history.add(app, Note.READY)
        while not plan.join_file(app).exists() and not stopped.wait(LOOK_SECONDS):
            pass
        if not stopped.is_set():
            made.run()
