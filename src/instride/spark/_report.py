"""What a task says of a range: the one line of text that goes from an executor to the driver. And when a job ends."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

from instride._processing.dead_letters import text_of
from instride.errors import KafkaError, PipelineError
from instride.errors._quoting import LONGEST_LINE, counted
from instride.spark.sink import JobResult, OutputRange, WrittenRange

__all__ = [
    "CancelledJobs",
    "JobEnded",
    "JobMessage",
    "MarkedError",
    "RangePart",
    "RangeProblem",
    "RangeReport",
    "Reported",
    "problem_from_spark",
    "problem_of",
    "reason_of",
    "tag_of",
    "whole",
]

_REASON_LINES: Final = 12
_TRACEBACK_LINES: Final = 40
_TRACEBACK_LINE: Final = 300
"""Characters. A user's error may quote all that it was given: unbounded, each try sent and logged megabytes."""


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
    trying again cannot help. private: whether the message may have a record's content: the log has it at DEBUG alone.
    """

    kind: str
    message: str
    traceback: str = ""
    fatal: bool = False
    private: bool = False

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind

    @property
    def told(self) -> str:
        """For the log."""
        return self.kind if self.private else str(self)


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


class CancelledJobs(set[str]):
    """The names of jobs of which nothing more is submitted: Spark cancels by the tag what it knows by then. Any thread
    may change it, and look.
    """

    def check(self, job: str) -> None:
        """Raises PipelineError for one of them."""
        if job in self:
            raise PipelineError("cancelled")


def tag_of(job: str) -> str:
    """What Spark cancels a job by."""
    return f"instride-{job}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded:
    """The job is over. reason: why Spark gave it up (cancelled, an executor lost too often), or None."""

    job: str
    reason: str | None = None


JobMessage = Reported | JobEnded


def problem_of(error: BaseException, message: str | None = None) -> RangeProblem:
    """What was raised, as a problem. message: in place of the error's first lines. Both are cut where they are long."""
    return RangeProblem(
        kind=type(error).__name__,
        message=reason_of(error) if message is None else _cut(message, LONGEST_LINE),
        traceback=_last_lines("".join(traceback.format_exception(error)).splitlines()),
        # After a panic (pyo3's PanicException is no Exception) a library is in no state to be called again.
        fatal=error.fatal if isinstance(error, KafkaError) else not isinstance(error, Exception),
        private=not _quotes_nobody(error),
    )


class MarkedError(Exception):
    """Raised by a task in the place of an error: of what a task raises the driver has the text, and no class."""

    def __init__(self, error: Exception, job: str) -> None:
        super().__init__(_mark(job) + json.dumps(asdict(problem_of(error, text_of(error)))))


def problem_from_spark(error: BaseException, job: str) -> RangeProblem:
    """What a driver caught: of a `MarkedError` of the job the problem as the task knew it."""
    text = text_of(error)
    # The last one: before it stands the error's own text, which may quote an earlier one.
    for mark in reversed(list(re.finditer(re.escape(_mark(job)), text))):
        with suppress(ValueError, TypeError):  # Spark has cut it, or it is in a quotation
            return RangeProblem(**json.JSONDecoder().raw_decode(text, mark.end())[0])
    return problem_of(error)


def _mark(job: str) -> str:
    """An error of the user's may quote a record, and a record may hold anything but the job's id."""
    return f"instride-problem-{job}: "


def _quotes_nobody(error: BaseException) -> bool:
    """Whether all of the error's text is instride's, and so nothing of it a record's."""
    seen: list[BaseException | None] = [error]
    for each in seen:
        if each is None:
            continue
        if not isinstance(each, KafkaError):
            return False
        seen += [other for other in (each.__context__, each.__cause__) if other not in seen]
    return True


def _last_lines(lines: Sequence[str]) -> str:
    before = len(lines) - _TRACEBACK_LINES
    note = [f"... ({counted(before, 'line')} more before these)"] if before > 0 else []
    return "\n".join([*note, *(_cut(line, _TRACEBACK_LINE) for line in lines[-_TRACEBACK_LINES:])])


def _cut(text: str, most: int) -> str:
    more = len(text) - most
    return text if more <= 0 else f"{text[:most]}... ({counted(more, 'character')} more)"


def reason_of(error: BaseException) -> str:
    """The first lines of what Spark says, without those of Java's stack."""
    lines = [line for line in text_of(error).splitlines() if line.strip() and not line.startswith("\tat ")]
    return _cut("\n".join(lines[:_REASON_LINES]), LONGEST_LINE) or type(error).__name__
