"""How a close and an unsubscribe end, on the network side (docs/rebalance.md, rule 12).

Laws
1. Commits are awaited first, those that are kept back too (a pending sync is awaited), until the deadline.
2. Then the member leaves the group, where it is to leave. The response is awaited, until the deadline, through a move
    of the coordinator too (`group.Leaving`). If the deadline comes first, nothing is aborted: what was sent still
    arrives, so the member may have left. The caller and the log are told that LeaveGroup had no response.
3. Once the caller has gone on (`CALLER_WAITS`), nothing is sent for the group any more but the LeaveGroup: a
    commit would come after the end. The same holds while a listener is told that the other partitions are lost.
4. The call ends in any case. A close ends every open call, then its own; `Stop` follows.

Where these commits come from, and what the listener is told when the deadline comes first:
`_core/application/closing.py`.
Which of them are sent again, and until when: `commits.py`.
"""

from __future__ import annotations

import logging
from enum import Enum, auto

from instride._core.events import CALLER_WAITS, CallCompleted, Close, Unsubscribe
from instride._core.network.actions import Stop
from instride._core.network.assignment import MemberAssignment
from instride._core.network.commits import Commits
from instride._core.network.context import Context
from instride._core.network.coordinator import Coordinator, CoordinatorInput
from instride._core.network.group import Group
from instride._core.network.lookups import Lookups
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
        self._expected_by = float("inf")  # an unsubscribe or close that is to come
        # From the first word of an unsubscribe or close until that is done. Else nothing is to be done here.
        self.under_way = False

    def is_to_come(self, by: float) -> None:
        self._assignment.leaving = self.under_way = True
        self._expected_by = self._commits.end_by = by

    def cut_short(self, now: float) -> None:
        """A new subscription or assignment: an unsubscribe that is still under way ends here, or it would end that."""
        event = self._event
        if isinstance(event, Unsubscribe) and self._stage is _Stage.COMMITTING:
            self._leave(event, now)
        if isinstance(event, Unsubscribe) and self._stage is _Stage.LEAVING:
            self._done(KafkaTimeoutError("a new subscription did not wait for the group's response to LeaveGroup"), now)

    def begin(self, event: Close | Unsubscribe, now: float) -> None:
        before, self._event = self._event, event
        self._stage = _Stage.COMMITTING
        self.is_to_come(float("inf"))
        self._commits.end_by = event.deadline
        if isinstance(event, Unsubscribe):
            self._assignment.unsubscribed = event.call
        if before is not None and now >= before.deadline:
            # Its caller has heard that the group is left: this one gives its commits no more time.
            self._leave(event, now)

    def give_up(self, now: float) -> None:
        """Law 3; before any other part sends something."""
        event = self._event
        if self._stage is _Stage.COMMITTING and event is not None and now >= event.deadline + CALLER_WAITS:
            self._leave(event, now)
        if now >= self._expected_by + CALLER_WAITS:
            # The listener, which is still at work, was told that the rest is lost: no commit follows.
            self._assignment.forget_all()
            self.is_to_come(float("inf"))

    def poll(self, now: float) -> float:
        event = self._event
        if event is None or self._stage in (_Stage.OPEN, _Stage.DONE):
            return float("inf")
        late = now >= event.deadline
        if self._stage is _Stage.COMMITTING and (late or not self._commits.anything_outstanding()):
            self._leave(event, now)
        elif self._stage is _Stage.LEAVING and late:
            no_response = KafkaTimeoutError("the group's response to LeaveGroup did not come within the timeout")
            self._done(self._failed or no_response, now)
        return event.deadline

    def _leave(self, event: Close | Unsubscribe, now: float) -> None:
        self._stage = _Stage.LEAVING
        late = now >= event.deadline
        outstanding = self._commits.anything_outstanding()
        error = KafkaTimeoutError("commits had no response within the timeout") if late and outstanding else None
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
        self._commits.end_by = self._expected_by
        self.under_way = self._expected_by < float("inf")
        self._assignment.forget_all()
        self._group.unsubscribed()
        if error is not None:
            what = "closed" if isinstance(event, Close) else "unsubscribed"
            self._context.log(logging.WARNING, f"{what}, but not everything was done before: {error}")
        if isinstance(event, Close):
            self._coordinator.move(CoordinatorInput.CLOSED)
            closed = ConsumerClosedError("the consumer was closed before this was done")
            # Before the connections: their end says of a commit in flight only that nobody knows what became of it.
            self._commits.close(closed)
            self._lookups.close(closed)
            self._context.connections.close_all(now)
        self._context.deliver(CallCompleted(call=event.call, error=error))
        if isinstance(event, Close):
            self._context.out.append(Stop())
        self._context.touch()
