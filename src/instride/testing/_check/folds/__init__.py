"""One function for each kind of event: it tells the rules what the event says, then takes it into the state.

members, ownership, records, commits    by what the event is about
turns                                   time as a member itself passes it
"""

from __future__ import annotations

from instride.testing._check.folds import commits, members, ownership, records
from instride.testing._check.history_state import Folds

__all__ = ["FOLDS"]

FOLDS: Folds = {**members.FOLDS, **ownership.FOLDS, **records.FOLDS, **commits.FOLDS}
