"""The one checker for histories: which of a group's invariants does what happened break (docs/histories.md)?

    violations = check(events)          # or: python -m instride.testing.check FILE...

Laws
1. A history is a value: events in the order of time (`events`), whoever wrote them.
2. Each invariant is a small pure function (`rules`) over a state that they share (`history_state.py`).
"""

from __future__ import annotations

import sys

from instride.testing._check.command import main as _main
from instride.testing._check.events import BROKER, Event, decode, encode, read_histories, write
from instride.testing._check.judge import INVARIANTS, Judge, check
from instride.testing._check.ownerless import WithoutOwner, percentile, without_owner
from instride.testing._check.parameters import Parameters
from instride.testing._check.violation import Violation
from instride_command.ending import status_of

__all__ = [
    "BROKER",
    "INVARIANTS",
    "Event",
    "Judge",
    "Parameters",
    "Violation",
    "WithoutOwner",
    "check",
    "decode",
    "encode",
    "percentile",
    "read_histories",
    "without_owner",
    "write",
]

if __name__ == "__main__":
    sys.exit(status_of(_main))
