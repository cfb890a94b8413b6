"""Where a member of a group went on without a seek, for the pipeline's loop and the source's group mode.

What is to be done about it the loop does after its call of the consumer: an observer may not call the consumer.
"""

from __future__ import annotations

from collections.abc import Sequence

from instride.observers import Observer
from instride.records import TopicPartition
from instride.telemetry import PositionReset, ResetCause, TelemetryEvent

__all__ = ["ResetObserver"]


class ResetObserver(Observer):
    """Keeps these events. For the consumer's thread: it hears them inside the consumer's calls."""

    def __init__(self) -> None:
        self._resets: list[PositionReset] = []

    def on_telemetry(self, event: TelemetryEvent) -> None:
        if isinstance(event, PositionReset):
            self._resets.append(event)

    def take(self) -> list[PositionReset]:
        """Those since the last call."""
        resets, self._resets = self._resets, []
        return resets

    def forget(self, partitions: Sequence[TopicPartition]) -> None:
        """A seek of these ends what was told of them before, but that the topic is another one."""
        self._resets = [
            event for event in self._resets if event.partition not in partitions or event.cause is ResetCause.RECREATED
        ]
