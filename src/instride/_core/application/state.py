"""Everything the application side knows, in one place, owned by whoever is inside a call of the consumer."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Protocol

from instride._core.application.calls import Write, at_once
from instride._core.application.fairness import Greedy, Proportional
from instride._core.application.inbox import Inbox
from instride._core.application.ownership_view import OwnershipView
from instride._core.application.partition import OwnedPartition
from instride._core.application.revoke_lists import RevokeLists
from instride._core.events import ApplicationEvent, BackgroundEvent, CallCompleted
from instride._core.ownership import RebalanceProtocol
from instride._core.session_lease import Lease, Standing
from instride.commits import CommitEntry
from instride.config import ConsumerConfig
from instride.errors import IllegalStateError
from instride.listeners import AsyncRebalanceListener
from instride.records import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from instride._core.application.listener_calls import Callback

__all__ = ["ApplicationState", "OnCommit"]

OnCommit = Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None]


class OnCompletion(Protocol):
    """Hears of the response to a call; before its end, of a commit, what became of some partitions."""

    def __call__(self, response: CallCompleted, /, *, ended: bool) -> None: ...


class ApplicationState:
    """Shared by the modules of this folder. Not thread-safe but for `queue`, which only ever gets appended to.

    queue: background events, appended by the network side, popped here.
    send: hands an application event to the network side; as an append of a deque it is interrupted nowhere.
    wake: called after it, so that what was sent is taken soon.
    on_commit: hears of every offset that was committed, when the response is taken; may not raise.
    standing: of the poll that is under way, or of the last one.
    looked: whether no other call has drained the queue since the last poll looked at the lease.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        protocol: RebalanceProtocol,
        queue: deque[BackgroundEvent],
        send: Callable[[ApplicationEvent], None],
        wake: Callable[[], None],
        lease: Lease,
        on_commit: OnCommit | None = None,
    ) -> None:
        self.config = config
        self.on_commit = on_commit
        self.queue = queue
        self.send = send
        self._wake = wake
        self.lease = lease
        self.standing = Standing(lease, lease.number)
        self.looked = False
        self.ownership_view = OwnershipView()
        self.lists = RevokeLists(protocol, self.ownership_view, is_uncommitted=self.is_uncommitted)
        self.inbox = Inbox()
        self.fairness = _fairness(config)
        self.listener: AsyncRebalanceListener | None = None
        # Lost, and neither in the list of lost nor told to the listener yet.
        self.gone: frozenset[TopicPartition] = frozenset()
        # Calls of the listener that an event requires and that have not begun, in order.
        self.callbacks: deque[Callback] = deque()
        # What is to be written once the call of the listener that is under way has ended, however it ends.
        self.owed: Sequence[Write] = ()
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.assigned_by_hand = False
        # Of the newest assignment that a poll has taken.
        self.generation = -1
        self.member_id = ""
        # The call of the newest unsubscribe that the network side was told of: what was assigned before it is over. And
        # whether one has begun of which it was not told yet.
        self.unsubscribed = 0
        self.unsubscribing = False
        # The number of the response to a close, once the network side is told.
        self.closing: int | None = None
        self.completions: dict[int, CallCompleted] = {}
        self.awaited: set[int] = set()
        self.on_completion: dict[int, OnCompletion] = {}
        self.in_revoke_listener: frozenset[TopicPartition] = frozenset()
        self.next_auto_commit = 0.0
        # The newest that was handed over by itself.
        self.auto_committed: dict[TopicPartition, CommitEntry] = {}
        # Whether this member commits at all (rule 18).
        self.commits = config.enable_auto_commit
        self._calls = count(1)

    def is_uncommitted(self, owned: OwnedPartition) -> bool:
        """Whether auto-commit has not handed its position over yet."""
        entry = owned.at_position()
        return entry is not None and self.auto_committed.get(owned.partition) != entry

    def mark_moved(self, owned: OwnedPartition) -> None:
        if self.config.enable_auto_commit:
            self.lists.uncommitted.mark(owned)

    def marking_moved(self, owned: OwnedPartition) -> list[Write]:
        """For whatever moves a position, or will once a poll returns what is buffered."""
        return [self.lists.uncommitted.marking(owned)] if self.config.enable_auto_commit else []

    @property
    def subscribed(self) -> bool:
        """By topics, or by a pattern that may match nothing yet."""
        return bool(self.topics) or self.pattern is not None

    def post(self, event: ApplicationEvent) -> None:
        self.send(event)
        self._wake()

    def write(self, writes: Iterable[Write]) -> None:
        """All of it, or nothing where a signal's exception comes first (rule 13). `(state.send, event)` is one too."""
        at_once(writes)
        self._written()

    def write_computed(self, compute: Callable[[], Sequence[Write]]) -> None:
        """The same of what `compute` returns, if anything. It is called anew as often as a handler of a signal has
        changed meanwhile what it computes of (`Polls`): then one of the writes raises ValueError.
        """
        while True:
            unchanged, writes = self.lists.polls.unchanged(), compute()
            if not writes:
                return
            try:
                at_once([unchanged, *writes])
            except ValueError:
                continue
            break
        self._written()

    def _written(self) -> None:
        self.ownership_view.catch_up()
        self._wake()

    def refuse_while_unsubscribing(self) -> None:
        if self.unsubscribing:
            raise IllegalStateError(
                "an unsubscribe is under way: subscribe or assign when it has returned. If it was interrupted, call "
                "unsubscribe once more"
            )

    def change_settings(self, config: ConsumerConfig) -> None:
        if config.fetch_fairness != self.config.fetch_fairness:
            self.fairness = _fairness(config)
        self.config = config

    def next_call(self) -> int:
        """A handler of a signal may begin a call while another takes its number: this is one step."""
        return next(self._calls)

    def owned(self, partition: TopicPartition) -> OwnedPartition:
        """The owned partition. Raises ValueError where it is not assigned."""
        owned = self.lists.owned.get(partition)
        if owned is None:
            raise ValueError(f"{partition} is not assigned to this consumer")
        return owned


def _fairness(config: ConsumerConfig) -> Greedy | Proportional:
    return Greedy() if config.fetch_fairness == "greedy" else Proportional()
