"""The line on the terminal: what it says, how often it is drawn, and that it stays away where there is none."""

from __future__ import annotations

import io
from typing import Any

import pytest

from instride.records import OffsetRange, TopicPartition
from instride.spark._events import JobFinished, JobStarted, PipelineEvent, RangeCommitted, RangeFailed
from instride.spark._progress_line import ProgressLine
from instride.telemetry import OwnershipChange, OwnershipChanged


class Terminal(io.StringIO):
    """tty: whether it is one. Broken: each write fails."""

    def __init__(self, *, tty: bool = True, broken: bool = False) -> None:
        super().__init__()
        self.tty = tty
        self.broken = broken
        self.writes = 0

    def isatty(self) -> bool:
        return self.tty

    def write(self, text: str) -> int:
        self.writes += 1
        if self.broken:
            raise OSError(5, "the terminal is gone")
        return super().write(text)

    @property
    def lines(self) -> list[str]:
        return self.getvalue().split("\r\x1b[K")[1:]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def span(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(topic="t", partition=partition, start=start, end=end, epoch=1, seek_number=0, leader_epoch=-1)


def owned(change: OwnershipChange, *partitions: int) -> OwnershipChanged:
    return OwnershipChanged(at=0.0, change=change, partitions=tuple(TopicPartition("t", each) for each in partitions))


def committed(partition: int, start: int, end: int, behind: int) -> RangeCommitted:
    return RangeCommitted(job="j", range=span(partition, start, end), rows=1, behind=behind)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_it_says_how_far_the_pipeline_is(clock: Clock) -> None:
    terminal = Terminal()
    line = ProgressLine("flights", terminal, clock)
    events: list[PipelineEvent] = [
        owned(OwnershipChange.ASSIGNED, 0, 1),
        JobStarted(job="j", ranges=(span(0, 0, 3_000),)),
        committed(0, 0, 3_000, 1_000),
        committed(1, 0, 1_000, 5_000),
        RangeFailed(job="j", range=span(1, 1_000, 2_000), reason="", again=True),
    ]
    for event in events:
        line.hear(event)
    assert terminal.writes == 0, "it is not time yet"
    clock.now = 2.0
    line.hear(JobFinished(job="j"))
    line.hear(owned(OwnershipChange.LOST, 1))
    assert terminal.lines == [
        "flights [########            ] 40 %, 6,000 offsets behind, 2,000/s, 2 rows, 2 partitions, 0 jobs, 1 fai"[:79]
    ]
    line.end()
    assert terminal.lines[1] == "flights [################    ] 80 %, 1,000 offsets behind, 2,000/s, 2 rows, 1 p\n"


def test_it_is_drawn_a_few_times_a_second(clock: Clock) -> None:
    terminal = Terminal()
    line = ProgressLine("t", terminal, clock)
    for number in range(1_000):
        clock.now = number / 1_000
        line.hear(committed(0, number, number + 1, 0))
    assert len(terminal.lines) == 4


def test_without_a_terminal_nothing_is_written(clock: Clock) -> None:
    for stream in (Terminal(tty=False), None):
        line = ProgressLine("t", stream, clock)
        clock.now += 1.0
        line.hear(committed(0, 0, 1, 0))
        line.end()
        assert stream is None or stream.writes == 0


def test_a_terminal_that_goes_away_ends_the_drawing_alone(clock: Clock) -> None:
    terminal = Terminal(broken=True)
    line = ProgressLine("t", terminal, clock)
    for _ in range(3):
        clock.now += 1.0
        line.hear(committed(0, 0, 1, 0))
    line.end()
    assert terminal.writes == 1


class Writer:
    """What an application puts in the place of standard error: it can write, and nothing else."""

    def __init__(self) -> None:
        self.writes = 0

    def write(self, text: str) -> None:
        self.writes += 1


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


class Unasked(Writer):
    def isatty(self) -> bool:
        raise NotImplementedError


class OnlyWrites(Writer):
    """Says that it is a terminal; it has neither a size nor a buffer."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Writer(), closed(), Unasked(), OnlyWrites()], ids=lambda each: type(each).__name__)
def test_a_stream_that_is_no_terminal_ends_no_pipeline(clock: Clock, stream: Any) -> None:
    """`run` ended with an AttributeError before it had begun."""
    line = ProgressLine("t", stream, clock)
    for _ in range(3):
        clock.now += 1.0
        line.hear(committed(0, 0, 1, 0))
    line.end()
    assert getattr(stream, "writes", 0) == isinstance(stream, OnlyWrites)
