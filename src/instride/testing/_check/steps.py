"""What rules are asked about: each event taken apart into what it says of one assignment or one partition.

Laws
1. The rules see a step before the state has taken it in: the state is what was true until then.
2. Its name (a key of `rules.RULES`) says when it is told; its type, what a rule finds in it.
"""

from __future__ import annotations

from typing import NamedTuple

from instride.records import TopicPartition
from instride.testing._check.assignment import Assignment
from instride.testing._check.events import Event

__all__ = ["Again", "Change", "Commit", "Delivery", "EndOf", "Passed", "Place", "Step"]


class Change(NamedTuple):
    """Something happens to an assignment: "assigned", "requested", "delayed", "reassigned", "revoked", "lost",
    "standing".

    older: for "assigned", what was the newest assignment of the partition.
    """

    event: Event
    each: Assignment
    older: Assignment | None = None


class Place(NamedTuple):
    """ "positioned": an assignment is to be read from this offset. "begins": work on this record is begun."""

    event: Event
    each: Assignment
    offset: int


class Delivery(NamedTuple):
    """ "delivery": a poll returned these offsets. due: the offset that is to come next. asked, lost, paused: what else
    the poll says of the partition."""

    event: Event
    each: Assignment
    first: int
    last: int
    leader_epoch: int
    due: int | None
    requested: bool
    lost: bool
    paused: bool


class Commit(NamedTuple):
    """ "commit sent", and "commit" that was taken. each: what the sender has, or had last, of the partition."""

    event: Event
    each: Assignment | None
    partition: TopicPartition
    offset: int
    leader_epoch: int = -1


class Again(NamedTuple):
    """ "again": an offset was returned that had been returned before. Told at the end of the history.

    committed: what was known by then to be committed of `before`.
    """

    event: Event
    offset: int
    before: Assignment
    after: Assignment
    committed: int
    lines: tuple[int, ...]


class Passed(NamedTuple):
    """A turn of a member has passed (`turns`): "passed over", while the assignment has records to return; "not let go
    of", while its revoke is due; "overdue", after the deadline of its delay. turns: how many in a row, with this."""

    event: Event
    each: Assignment
    turns: int


class EndOf(NamedTuple):
    """ "end of": the history says that all was to be done. prefix: the first offset that nobody finished."""

    event: Event
    partition: TopicPartition
    end: int
    prefix: int


Step = Event | Change | Place | Delivery | Commit | Again | Passed | EndOf
