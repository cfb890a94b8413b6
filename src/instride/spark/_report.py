"""What a task says of a range: the one line of text that goes from an executor to the driver. And when a job ends."""

from __future__ import annotations

import json
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from instride.errors import KafkaError
from instride.spark.sink import JobResult, OutputRange, WrittenRange

__all__ = [
    "JobEnded",
    "JobMessage",
    "RangePart",
    "RangeProblem",
    "RangeReport",
    "Reported",
    "problem_of",
    "reason_of",
    "whole",
]

_REASON_LINES: Final = 12
_TRACEBACK_LINES: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class RangePart:
    """What one of a range's tasks works on. offsets: its own, of the range's. number: its place among the parts."""

    range: OutputRange
    offsets: OutputRange
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeProblem:
    """Why work on a range failed.

    kind: the error's class. traceback: its last lines, of the process in which it was raised. fatal: whether
    trying again cannot help.
    """

    kind: str
    message: str
    traceback: str = ""
    fatal: bool = False

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReport:
    """Either what was written for the range, or the problem. records, nbytes: what was read. seconds: that it took.
    dead_letters: how many of the records went there. part: the number of the one that this tells of.
    """

    job: str
    range: OutputRange
    written: WrittenRange | None = None
    problem: RangeProblem | None = None
    records: int = 0
    nbytes: int = 0
    seconds: float = 0.0
    dead_letters: int = 0
    part: int = 0

    def to_json(self) -> str:
        return json.dumps(
            {
                "job": self.job,
                "range": asdict(self.range),
                "written": self.written.to_json() if self.written is not None else None,
                "problem": asdict(self.problem) if self.problem is not None else None,
                "records": self.records,
                "nbytes": self.nbytes,
                "seconds": self.seconds,
                "dead_letters": self.dead_letters,
                "part": self.part,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> RangeReport:
        data = json.loads(text)
        return cls(
            job=data["job"],
            range=OutputRange(**data["range"]),
            written=WrittenRange.from_json(data["written"]) if data["written"] is not None else None,
            problem=RangeProblem(**data["problem"]) if data["problem"] is not None else None,
            records=data["records"],
            nbytes=data["nbytes"],
            seconds=data["seconds"],
            dead_letters=data["dead_letters"],
            part=data["part"],
        )


def whole(parts: Sequence[RangeReport]) -> RangeReport:
    """What the parts of one range say together: a problem, where one has one. seconds: of one task, had it done all."""
    first = parts[0]
    written = [part.written for part in parts if part.written is not None]
    return RangeReport(
        job=first.job,
        range=first.range,
        # A range is in the sink as a whole or not at all: one part that failed is enough.
        written=JobResult.merge(first.job, written).written[0] if len(written) == len(parts) else None,
        problem=next((part.problem for part in parts if part.problem is not None), None),
        records=sum(part.records for part in parts),
        nbytes=sum(part.nbytes for part in parts),
        seconds=sum(part.seconds for part in parts),
        dead_letters=sum(part.dead_letters for part in parts),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """A task of the job has worked on the range."""

    report: RangeReport


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded:
    """The job is over. reason: why Spark gave it up (cancelled, an executor lost too often), or None."""

    job: str
    reason: str | None = None


JobMessage = Reported | JobEnded


def problem_of(error: Exception, message: str | None = None) -> RangeProblem:
    """What was raised, as a problem. message: in place of the error's first lines."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    return RangeProblem(
        kind=type(error).__name__,
        message=reason_of(error) if message is None else message,
        traceback="\n".join(lines[-_TRACEBACK_LINES:]),
        fatal=isinstance(error, KafkaError) and error.fatal,
    )


def reason_of(error: BaseException) -> str:
    """The first lines of what Spark says, without those of Java's stack."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith("\tat ")]
    return "\n".join(lines[:_REASON_LINES]) or type(error).__name__
