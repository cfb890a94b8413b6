"""What a task says of a range: the one line of text that goes from an executor to the driver. And when a job ends."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from instride.spark.sink import OutputRange, WrittenRange

__all__ = ["JobEnded", "JobMessage", "RangeProblem", "RangeReport", "Reported"]


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
    dead_letters: how many of the records went there.
    """

    job: str
    range: OutputRange
    written: WrittenRange | None = None
    problem: RangeProblem | None = None
    records: int = 0
    nbytes: int = 0
    seconds: float = 0.0
    dead_letters: int = 0

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
