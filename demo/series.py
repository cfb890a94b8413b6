"""Throughput over time, from a run's progress: records a second in bins of equal length.

Laws
1. Every record is in exactly one bin: the sum of a series times the bin's length is the number of records.
2. A record counts when it was written and committed, so work that takes long shows as nothing, then as a
   peak.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from demo.events import Progress
from demo.history import History

__all__ = ["bin_times", "rate", "worked_by"]


def worked_by(app: str, partition: int | None = None) -> Callable[[Progress], bool]:
    """Chooses the progress of an application and, where one is named, of a partition."""
    return lambda each: each.app == app and partition in (None, each.partition)


def bin_times(run: History, *, seconds: float) -> np.ndarray:
    """The middle of each bin, in seconds from the run's start."""
    return (np.arange(_bins(run, seconds)) + 0.5) * seconds


def rate(run: History, chosen: Callable[[Progress], bool], *, seconds: float) -> np.ndarray:
    """Records a second in each bin, of the progress that is chosen."""
    rows = np.zeros(_bins(run, seconds))
    for progress in run.progress:
        if chosen(progress):
            rows[int((progress.t - run.start) / seconds)] += progress.rows
    return rows / seconds


def _bins(run: History, seconds: float) -> int:
    return int((run.end - run.start) / seconds) + 1
