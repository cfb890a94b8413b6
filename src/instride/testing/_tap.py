"""Writes down what a member's network side does: the events of docs/histories.md that its application cannot see.

Laws
1. It sees what the shell of `_core.network` sees: events delivered, requests sent, responses, connections closed.
   The same code watches the simulation's processes and a `Consumer`'s thread.
2. It changes nothing and decides nothing. It takes no clock: `now` is given.
3. A look-up that the application's seek has overtaken is no position, and a failure of before it is none: the
   application drops them. Only who sees both sides can tell (`is_overtaken`).
4. Only a request that was put on a connection counts as sent. When the connection ends, its response will not come: a
   commit is then told as a response with code -1.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from instride._core.application.machine import ApplicationMachine
from instride._core.events import (
    Assigned,
    BackgroundEvent,
    CallCompleted,
    CallsCompleted,
    CommitsSettled,
    DeadlineMoved,
    Epochs,
    FetchesBegan,
    Lost,
    PartitionFailed,
    PartlyCommitted,
    Positioned,
    PositionsFound,
    Reassigned,
    RevocationRequested,
    Revoked,
)
from instride._wire import api
from instride.commits import CommitResult
from instride.errors import CommitOvertakenError, OffsetOutOfRangeError
from instride.errors.codes import ErrorCode
from instride.observers import Observer
from instride.records import TopicPartition

__all__ = ["Tap", "is_overtaken"]

_NO_RESPONSE = ErrorCode.UNKNOWN_SERVER_ERROR
_FOREVER = float("inf")


class Tap(Observer):
    """say: takes an event's kind and detail. session_timeout: the member's. Not thread-safe.

    overtaken: whether a look-up or a failure is (law 3).
    beats: how often the coordinator has said that the member is one; any thread may read it.
    """

    def __init__(
        self,
        say: Callable[..., None],
        *,
        session_timeout: float,
        overtaken: Callable[[Positioned | PartitionFailed], bool] = lambda _: False,
    ) -> None:
        self._say = say
        self._overtaken = overtaken
        self.session_timeout = session_timeout
        self._sent: dict[int, tuple[Hashable, api.Request, float]] = {}
        self._pending = 0
        self.beats = 0
        self._alive = _FOREVER
        self._bound: float | None = None

    # -- to the application

    def on_background_event(self, event: BackgroundEvent, at: float) -> None:
        match event:
            case Assigned():
                self._say("assigned", event.generation, _pairs(event.partitions))
            case RevocationRequested():
                self._say("requested", _pairs(event.partitions))
                self._deadline(event)
            case DeadlineMoved():
                self._deadline(event)
            case Reassigned():
                self._say("reassigned", _pairs(event.partitions))
            case Lost():
                self._say("lost", _pairs(event.partitions))
            case Revoked():
                self._say("revoked", _pairs(event.partitions))
            case FetchesBegan():
                for each in event.began:
                    self._say("first fetch", each.partition, each.epoch)
            case CommitsSettled():
                self._say("settled", _pairs(event.partitions))
            case Positioned() | PositionsFound():
                self._positioned(event)
            case CallCompleted() | CallsCompleted() | PartlyCommitted():
                self._completed(event)
            case PartitionFailed() if isinstance(event.error, OffsetOutOfRangeError) and not self._overtaken(event):
                self._say("out of range", event.partition)

    def _positioned(self, event: Positioned | PositionsFound) -> None:
        for each in event.positions if isinstance(event, PositionsFound) else (event,):
            if not self._overtaken(each):
                self._say("positioned", each.partition, each.epoch, each.offset)

    def _completed(self, event: CallCompleted | CallsCompleted | PartlyCommitted) -> None:
        for each in (event,) if isinstance(event, CallCompleted) else event.calls:
            if isinstance(each.result, CommitResult):
                self._committed(each.result)

    def _committed(self, result: CommitResult) -> None:
        committed = tuple(sorted((tp, each.offset) for tp, each in result.committed.items()))
        others = result.not_committed.items()
        instead = tuple(
            sorted((tp, error.committed) for tp, error in others if isinstance(error, CommitOvertakenError))
        )
        if committed or instead:
            self._say("commit told", committed, instead)

    def _deadline(self, event: RevocationRequested | DeadlineMoved) -> None:
        if event.partitions:
            until = None if event.deadline == _FOREVER else round(event.deadline, 6)
            self._say("deadline", _pairs(event.partitions), until)

    # -- to the brokers

    def on_request(self, connection: Hashable, number: int, request: api.Request, at: float) -> None:
        """The request was put on the connection."""
        self._sent[number] = connection, request, at
        if isinstance(request, api.OffsetCommit):
            offsets = tuple(
                (TopicPartition(*tp), each.offset, each.leader_epoch) for tp, each in sorted(request.offsets.items())
            )
            self._say("sends commit", number, offsets)
        elif isinstance(request, api.JoinGroup | api.SyncGroup):
            self._pending += 1
            self._lives_until(self._alive)
        elif isinstance(request, api.LeaveGroup):
            self._leaves()

    def on_response(self, number: int, response: api.Response | Exception, at: float) -> None:
        """Its response came, or it is sure that none will."""
        found = self._sent.pop(number, None)
        if found is None:
            return
        _, request, sent_at = found
        match request, response:
            case api.OffsetCommit(), _:
                errors = response.errors if isinstance(response, api.OffsetCommitResponse) else {}
                offsets = sorted(request.offsets.items())
                codes = tuple((TopicPartition(*tp), each.offset, errors.get(tp, _NO_RESPONSE)) for tp, each in offsets)
                self._say("commit response", number, codes)
            case api.FindCoordinator(), api.FindCoordinatorResponse(error=ErrorCode.GROUP_AUTHORIZATION_FAILED):
                self._say("group refused")
            case api.OffsetFetch(), api.OffsetFetchResponse():
                self._looked_up(request, response)
            # Well, rebalancing, or of an older generation: the coordinator looks at the generation of members only.
            case api.Heartbeat(), api.HeartbeatResponse(error=ErrorCode.NONE | ErrorCode.REBALANCE_IN_PROGRESS):
                self._lives_until(sent_at + self.session_timeout)
            case api.Heartbeat(), api.HeartbeatResponse(error=ErrorCode.ILLEGAL_GENERATION) if self._pending:
                self._lives_until(sent_at + self.session_timeout)
            case ((api.JoinGroup() | api.SyncGroup()), _):
                self._pending -= 1
                good = isinstance(response, api.JoinGroupResponse | api.SyncGroupResponse) and not response.error
                self._lives_until(at + self.session_timeout if good else self._alive)

    def on_connection_closed(self, connection: Hashable, at: float) -> None:
        """Law 3."""
        for number in [number for number, (on, _, _) in self._sent.items() if on == connection]:
            self.on_response(number, ConnectionError(), at)

    def _looked_up(self, request: api.OffsetFetch, response: api.OffsetFetchResponse) -> None:
        for tp in sorted(request.partitions or ()):
            found = response.offsets.get(tp)
            code = response.error or (_NO_RESPONSE if found is None else found.error)
            offset = None if found is None or code or found.offset < 0 else found.offset
            self._say("looked up", TopicPartition(*tp), offset, code)

    def _leaves(self) -> None:
        """There is no membership to know of any more."""
        self._sent = {number: sent for number, sent in self._sent.items() if not isinstance(sent[1], api.Heartbeat)}
        self._alive = _FOREVER
        self._lives_until(_FOREVER)

    def _lives_until(self, until: float) -> None:
        """While a Join or Sync is under way, nobody outside can say what the member may believe: no bound then."""
        self._alive = until if self._alive == _FOREVER else max(until, self._alive)
        bound = None if self._pending or self._alive == _FOREVER else self._alive
        if bound != self._bound:
            self._bound = bound
            self.beats += bound is not None
            self._say("alive", bound)


def is_overtaken(application: ApplicationMachine, event: Positioned | PartitionFailed) -> bool:
    """Whether the application has sought since, so that it will drop this. Any thread may ask."""
    owned = application._state.lists.owned.get(event.partition)
    if owned is None or owned.epoch != event.epoch:
        return False
    if isinstance(event, Positioned):
        return event.seek_number < owned.seek_number
    return event.fetch_number < owned.fetch_number


def _pairs(partitions: Epochs) -> tuple[tuple[TopicPartition, int], ...]:
    return tuple(partitions.items())
