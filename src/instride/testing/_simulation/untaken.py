"""What a member's network side has delivered and its application has not taken: only whoever sees both sides knows."""

from __future__ import annotations

from collections import deque

from instride._core.application.machine import ApplicationMachine
from instride._core.events import BackgroundEvent, Lost, PartitionFailed, Positioned, Revoked
from instride.records import TopicPartition
from instride.testing._tap import is_overtaken

__all__ = ["Untaken"]


class Untaken:
    """queue: of events to this application."""

    __slots__ = ("_application", "_queue")

    def __init__(self, application: ApplicationMachine, queue: deque[BackgroundEvent]) -> None:
        self._application = application
        self._queue = queue

    def lost(self, partition: TopicPartition) -> bool:
        """Whether the application will hear, and has not yet, that the partition is lost."""
        return self._is_coming(partition, Lost)

    def revoked(self, partition: TopicPartition) -> bool:
        """The same of a revoke that is complete."""
        return self._is_coming(partition, Revoked)

    def _is_coming(self, partition: TopicPartition, kind: type[Lost | Revoked]) -> bool:
        inbox = self._application._state.inbox
        coming = (*self._queue, *inbox.losses, *inbox.completions)
        return any(partition in each.partitions for each in coming if isinstance(each, kind))

    def is_overtaken(self, event: Positioned | PartitionFailed) -> bool:
        """Whether the application has sought since, so that it will drop this."""
        return is_overtaken(self._application, event)
