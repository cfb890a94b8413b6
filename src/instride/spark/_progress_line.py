"""One line on the terminal that says how far a pipeline is. Nothing where there is no terminal.

Laws
1. It is told what `on_event` is told, on the same thread, and draws at most a few times a second.
2. What it says is known from events alone: offsets that are in the sink, and those that were known to be behind when
   their partition was last committed. A partition that was lost counts no more.
3. Whatever the terminal does, the pipeline goes on: a line that cannot be written ends the drawing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TextIO

from instride.errors._quoting import counted
from instride.records import TopicPartition
from instride.spark._events import JobFinished, JobStarted, PipelineEvent, RangeCommitted, RangeFailed
from instride.telemetry import OwnershipChange, OwnershipChanged

__all__ = ["ProgressLine"]

_SECONDS: Final = 0.2
_BAR: Final = 20
_CLEAR: Final = "\r\x1b[K"
_NO_WIDTH: Final = (80, 24)


class ProgressLine:
    """For one run. stream: where it is drawn, if that is a terminal. clock: seconds."""

    def __init__(self, name: str, stream: TextIO | None, clock: Callable[[], float]) -> None:
        self._name = name
        self._stream = stream if stream is not None and _is_terminal(stream) else None
        self._clock = clock
        self._began = clock()
        self._drawn_at = self._began
        self._owned: set[TopicPartition] = set()
        self._behind: dict[TopicPartition, int] = {}
        self._jobs = 0
        self._offsets = 0
        self._rows = 0
        self._failures = 0

    def hear(self, event: PipelineEvent) -> None:
        """Note it, and draw where it is time to."""
        if self._stream is None:
            return
        self._note(event)
        now = self._clock()
        if now - self._drawn_at >= _SECONDS:
            self._drawn_at = now
            # One column stays free: a terminal goes on to the next line where the last one is filled.
            self._write(_CLEAR + self._text(now)[: self._width() - 1])

    def end(self) -> None:
        """The last state stays on the terminal, on a line of its own."""
        self._write(_CLEAR + self._text(self._clock())[: self._width() - 1] + "\n")

    def _note(self, event: PipelineEvent) -> None:
        match event:
            case OwnershipChanged(change=OwnershipChange.ASSIGNED):
                self._owned.update(event.partitions)
            case OwnershipChanged(change=OwnershipChange.REVOKED | OwnershipChange.LOST):
                self._owned.difference_update(event.partitions)
            case JobStarted():
                self._jobs += 1
            case JobFinished():
                self._jobs -= 1
            case RangeCommitted():
                self._offsets += event.range.end - event.range.start
                self._rows += event.rows
                self._behind[event.range.topic_partition] = event.behind
            case RangeFailed():
                self._failures += 1
            case _:
                pass

    def _text(self, now: float) -> str:
        behind = sum(offsets for partition, offsets in self._behind.items() if partition in self._owned)
        known = self._offsets + behind
        share = self._offsets / known if known else 0.0
        bar = "#" * int(_BAR * share)
        speed = self._offsets / max(now - self._began, 0.001)
        failures = f", {counted(self._failures, 'failure')}" if self._failures else ""
        return (
            f"{self._name} [{bar:<{_BAR}}] {int(100 * share)} %, {behind:,} offsets behind, {speed:,.0f}/s, "
            f"{self._rows:,} rows, {counted(len(self._owned), 'partition')}, {counted(self._jobs, 'job')}{failures}"
        )

    def _width(self) -> int:
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns if self._stream is not None else 0
        except Exception:  # noqa: BLE001 - law 3
            columns = 0
        return columns or _NO_WIDTH[0]

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except Exception:  # noqa: BLE001 - law 3
            self._stream = None


def _is_terminal(stream: TextIO) -> bool:
    """Of whatever an application has put in the place of standard error: it may be closed, and may be no stream."""
    try:
        return stream.isatty()
    except Exception:  # noqa: BLE001 - law 3
        return False
