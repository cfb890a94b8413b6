"""One function for each kind of event: it tells the rules what the event says, then takes it into the state.

members, ownership, records, commit_steps    by what the event is about
turns                                        time as a member itself passes it
"""

from __future__ import annotations

from instride.testing._check.folds import commit_steps, members, ownership, records
from instride.testing._check.history_state import Folds

__all__ = ["FOLDS"]

FOLDS: Folds = {**members.FOLDS, **ownership.FOLDS, **records.FOLDS, **commit_steps.FOLDS}
