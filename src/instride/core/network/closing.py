"""Leaving for good or for now: the last commits, then the group (docs/rebalance.md, rule 12).

Laws
1. Commits that were handed over are awaited first, held ones too (a pending sync is awaited), until the deadline.
2. Then the group is left, where it is to be left. The answer is awaited, until the deadline, through a move of the
   coordinator too (`group.Leaving`). When the deadline comes first nothing is aborted: what was sent still arrives; and
   the caller and the log hear that the group was not left.
3. The caller is answered in any case. A close answers everything that is open still, then its caller; `Stop` follows.
"""

from __future__ import annotations

import logging
from enum import Enum, auto

from instride.core.events import CallCompleted, Close, Unsubscribe
from instride.core.network.actions import Stop
from instride.core.network.assignment import MemberAssignment
from instride.core.network.commits import Commits
from instride.core.network.context import Context
from instride.core.network.coordinator import Coordinator, CoordinatorInput
from instride.core.network.group import Group
from instride.core.network.lookups import Lookups
from instride.errors import ConsumerClosedError, KafkaTimeoutError

__all__ = ["Closing"]


class _Stage(Enum):
    OPEN = auto()
    COMMITTING = auto()
    LEAVING = auto()
    DONE = auto()


class Closing:
    """Not thread-safe: the network machine owns it."""

    def __init__(
        self,
        context: Context,
        coordinator: Coordinator,
        group: Group,
        assignment: MemberAssignment,
        commits: Commits,
        lookups: Lookups,
    ) -> None:
        self._context = context
        self._coordinator = coordinator
        self._group = group
        self._assignment = assignment
        self._commits = commits
        self._lookups = lookups
        self._stage = _Stage.OPEN
        self._event: Close | Unsubscribe | None = None
        self._failed: KafkaTimeoutError | None = None  # what went wrong before the group was left: told first

    def cut_short(self, now: float) -> None:
        """A new subscription or assignment: an unsubscribe that is still under way ends here, or it would end that."""
        event = self._event
        if isinstance(event, Unsubscribe) and self._stage is _Stage.COMMITTING:
            self._leave(event, now)
        if isinstance(event, Unsubscribe) and self._stage is _Stage.LEAVING:
            self._done(KafkaTimeoutError("a new subscription did not wait for the group's answer to leaving"), now)

    def begin(self, event: Close | Unsubscribe) -> None:
        self._event = event
        self._stage = _Stage.COMMITTING
        self._assignment.leaving = True

    def poll(self, now: float) -> float:
        event = self._event
        if event is None or self._stage in (_Stage.OPEN, _Stage.DONE):
            return float("inf")
        late = now >= event.deadline
        if self._stage is _Stage.COMMITTING and (late or not self._commits.anything_outstanding()):
            self._leave(event, now)
        elif self._stage is _Stage.LEAVING and late:
            unanswered = KafkaTimeoutError("the group's answer to leaving did not come within the timeout")
            self._done(self._failed or unanswered, now)
        return event.deadline

    def _leave(self, event: Close | Unsubscribe, now: float) -> None:
        self._stage = _Stage.LEAVING
        late = now >= event.deadline
        outstanding = self._commits.anything_outstanding()
        error = KafkaTimeoutError("commits were not answered within the timeout") if late and outstanding else None
        self._failed = error
        leave = None if isinstance(event, Unsubscribe) else event.leave
        if leave is False:
            self._done(error, now)
            return
        self._group.leave(
            lambda failed: self._left(event, self._failed or failed, now),
            now,
            reason="the consumer is closing" if isinstance(event, Close) else "unsubscribe",
            static_too=leave is True,
        )

    def _left(self, event: Close | Unsubscribe, error: Exception | None, now: float) -> None:
        if self._event is event:
            self._done(error, now)

    def _done(self, error: Exception | None, now: float) -> None:
        event = self._event
        assert event is not None
        self._stage = _Stage.DONE
        self._event = None
        self._assignment.forget_all()
        self._group.unsubscribed()
        if error is not None:
            what = "closed" if isinstance(event, Close) else "unsubscribed"
            self._context.log(logging.WARNING, f"{what}, but not everything was done before: {error}")
        if isinstance(event, Close):
            self._coordinator.move(CoordinatorInput.CLOSED)
            self._context.connections.close_all(now)
            unanswered = ConsumerClosedError("the consumer was closed before this was answered")
            self._commits.close(unanswered)
            self._lookups.close(unanswered)
        self._context.deliver(CallCompleted(call=event.call, error=error))
        if isinstance(event, Close):
            self._context.out.append(Stop())
        self._context.touch()
