"""One function for each kind of event: it tells the rules what the event says, then takes it into the book."""

from __future__ import annotations

from instride.testing.check.book import Folds
from instride.testing.check.folds import commits, members, ownership, records

__all__ = ["FOLDS"]

FOLDS: Folds = {**members.FOLDS, **ownership.FOLDS, **records.FOLDS, **commits.FOLDS}
