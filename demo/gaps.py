"""What a hand-over costs those who have no part in it: the longest time without progress of a partition that stays.

Laws
1. A gap lies between two progresses of one partition. What comes before the first one is starting up, and no
   gap.
2. A gap that touches a time when its partition was moving is the hand-over's own, and not counted here.
3. A gap says for how much of it a job of its own partition was running: that part is its own work, not
   waiting.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from demo.history import History, Job

__all__ = ["Gap", "gaps", "longest_gap"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """No progress of the partition from start to end (seconds); its own jobs ran for `own_work` seconds of it."""

    partition: int
    start: float
    end: float
    own_work: float

    @property
    def length(self) -> float:
        return self.end - self.start


def longest_gap(run: History) -> Gap | None:
    """The longest gap of any partition that was not moving, or None where nothing has two progresses."""
    return max(gaps(run), key=lambda gap: gap.length, default=None)


def gaps(run: History) -> Iterator[Gap]:
    """Every gap of the partitions that were not moving."""
    times: defaultdict[int, list[float]] = defaultdict(list)
    for progress in run.progress:
        times[progress.partition].append(progress.t)
    for partition, at in times.items():
        own = [job for job in run.jobs if job.works_on(partition)]
        for start, end in pairwise(at):
            if not _touches(run.moving.get(partition, ()), start, end):
                yield Gap(partition=partition, start=start, end=end, own_work=_covered(own, start, end, run.end))


def _touches(windows: tuple[tuple[float, float], ...], start: float, end: float) -> bool:
    return any(window_start < end and start < window_end for window_start, window_end in windows)


def _covered(jobs: list[Job], start: float, end: float, run_end: float) -> float:
    """Seconds of [start, end] in which at least one of the jobs ran."""
    total, reached = 0.0, start
    for job in sorted(jobs, key=lambda each: each.start):
        begin, stop = max(reached, job.start), min(end, run_end if job.end is None else job.end)
        if stop > begin:
            total, reached = total + stop - begin, stop
    return total
