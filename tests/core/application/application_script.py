"""A scripted application side: the tests play the network side and the clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from instride._core.application.calls import Call, Wait
from instride._core.application.machine import ApplicationMachine
from instride._core.application.partition import Delivery
from instride._core.events import (
    ApplicationEvent,
    Assigned,
    BackgroundEvent,
    Epochs,
    Fetched,
    Lost,
    Positioned,
    Reassigned,
    RevocationRequested,
    Revoked,
    Unsubscribe,
)
from instride._core.network.ranges import RangeChunk
from instride._core.ownership import RebalanceProtocol
from instride._core.session_lease import Lease
from instride.config import ConsumerConfig
from instride.listeners import RebalanceListener
from instride.records import TopicPartition

__all__ = ["RecordingListener", "Script", "epochs", "shown", "tp"]

T = TypeVar("T")
E = TypeVar("E")


class Script:
    """One application machine. `up` says what comes from the network side; `poll` runs a poll to its end."""

    def __init__(
        self,
        *,
        protocol: RebalanceProtocol = RebalanceProtocol.COOPERATIVE,
        lease: Lease | None = None,
        queue: deque[BackgroundEvent] | None = None,
        **settings: Any,
    ) -> None:
        self.config = config = ConsumerConfig(**{"bootstrap_servers": "test:9092", "group_id": "g", **settings})
        self.lease = lease or Lease()
        self.queue: deque[BackgroundEvent] = deque() if queue is None else queue
        self.posted: list[ApplicationEvent] = []
        self._unsubscribed = 0
        self.heard_commits: list[dict[int, int]] = []
        self.machine = ApplicationMachine(
            config,
            protocol=protocol,
            queue=self.queue,
            post=self._post,
            lease=self.lease,
            on_commit=lambda offsets: self.heard_commits.append(
                {tp.partition: at.offset for tp, at in offsets.items()}
            ),
        )
        self.now = 100.0
        self.immediate = False

    def subscribe(self, listener: RebalanceListener | None = None) -> None:
        self.machine.subscribe(["t"], listener)

    def _post(self, event: ApplicationEvent) -> None:
        self.posted.append(event)
        if isinstance(event, Unsubscribe):
            self._unsubscribed = event.call

    def up(self, *events: BackgroundEvent) -> None:
        self.queue.extend(events)

    def assigned(self, *partitions: int, epoch: int = 1) -> None:
        """Assign partitions of topic t, each positioned at 0."""
        epochs = {tp(p): epoch for p in partitions}
        self.up(Assigned(generation=1, partitions=epochs, unsubscribed=self._unsubscribed))
        for p in partitions:
            self.up(Positioned(partition=tp(p), epoch=epoch, seek_number=0, offset=0))

    def revocation_requested(self, *partitions: int, epoch: int = 1, deadline: float = 400.0) -> None:
        self.up(RevocationRequested(partitions={tp(p): epoch for p in partitions}, deadline=deadline))

    def reassigned(self, *partitions: int, epoch: int = 1) -> None:
        self.up(Reassigned(partitions={tp(p): epoch for p in partitions}))

    def revoked(self, *partitions: int, epoch: int = 1) -> None:
        self.up(Revoked(partitions={tp(p): epoch for p in partitions}))

    def lost(self, *partitions: int, epoch: int = 1) -> None:
        self.up(Lost(partitions={tp(p): epoch for p in partitions}))

    def fetched(
        self,
        partition: int,
        first: int,
        end: int,
        *,
        epoch: int = 1,
        fetch_number: int = 0,
        start: int | None = None,
        leader_epoch: int = -1,
        topic_id: UUID | None = None,
    ) -> None:
        """start: where the fetch was made, if not at its first record."""
        chunk = RangeChunk(
            topic="t", partition=partition, first_offset=first, next_offset=end, leader_epoch=leader_epoch
        )
        self.up(
            Fetched(
                partition=tp(partition),
                epoch=epoch,
                fetch_number=fetch_number,
                start=first if start is None else start,
                chunk=chunk,  # type: ignore[arg-type]  # a chunk without record objects will do
                next_offset=end,
                topic_id=topic_id,
            )
        )

    def run(self, call: Call[T], timeout: float = 0.0) -> T:
        """Run a call to its end; when it waits, time goes to the moment it waits for."""
        try:
            wait = next(call)
        except StopIteration as end:
            result: T = end.value
            return result
        return self.go_on(call, until=wait.until)

    def go_on(self, call: Call[T], *, until: float = 0.0) -> T:
        """The same of a call that waits already. until: what it waits for."""
        try:
            while True:
                self.now = max(self.now, until)
                until = call.send(self.now).until
        except StopIteration as end:
            result: T = end.value
            return result

    def start(self, call: Call[T]) -> Wait:
        """Run a call until it waits."""
        return next(call)

    def poll(self, *, timeout: float = 0.0, limit: int = -1) -> list[tuple[int, int, int]]:
        """(partition, start, end) of everything that the poll returned."""
        return shown(self.run(self.machine.poll(self.now, timeout, immediate=self.immediate, limit=limit)))

    def take_posted(self, kind: type[E]) -> list[E]:
        """Events of a kind that were posted since the last look."""
        found: list[E] = [event for event in self.posted if isinstance(event, kind)]
        self.posted[:] = [event for event in self.posted if not isinstance(event, kind)]
        return found

    # what the user sees, as partition numbers
    def to_be_revoked(self) -> set[int]:
        return {each.partition for each in self.machine.to_be_revoked()}

    def lost_partitions(self) -> set[int]:
        return {each.partition for each in self.machine.lost()}

    def assignment(self) -> set[int]:
        return {each.partition for each in self.machine.assignment()}

    def delay(self, *partitions: int) -> bool:
        return self.machine.delay_revoke([tp(p) for p in partitions])


class RecordingListener(RebalanceListener):
    def __init__(self) -> None:
        self.heard: list[tuple[str, list[int]]] = []
        self.error: Exception | None = None
        self.meanwhile: Callable[[], None] = lambda: None

    def _hear(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        self.heard.append((what, [each.partition for each in partitions]))
        self.meanwhile()
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._hear("assigned", partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._hear("revoked", partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._hear("lost", partitions)


def tp(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


def epochs(*partitions: int, epoch: int = 1) -> Epochs:
    return {tp(p): epoch for p in partitions}


def shown(deliveries: Sequence[Delivery]) -> list[tuple[int, int, int]]:
    return [(each.partition.partition, each.chunk.first_offset, each.chunk.next_offset) for each in deliveries]
