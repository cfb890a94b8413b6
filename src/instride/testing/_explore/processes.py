"""Explores several scenes, in several processes.

It is a module of its own, since a process that is spawned imports neither the command nor what starts it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing import get_context

from instride.testing._explore.scenes import SCENES
from instride.testing._explore.search import Report, explore

__all__ = ["reports"]


def reports(names: Sequence[str], depth: int, seconds: float, jobs: int) -> Iterator[tuple[str, Report]]:
    """Each scene's name with its report, as they are ready. seconds: for each scene."""
    one = partial(_explored, depth=depth, seconds=seconds)
    if jobs == 1:
        yield from map(one, names)
        return
    with get_context("spawn").Pool(jobs, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(one, names)


def _explored(name: str, *, depth: int, seconds: float) -> tuple[str, Report]:
    return name, explore(SCENES[name], depth=depth, until=time.monotonic() + seconds)
