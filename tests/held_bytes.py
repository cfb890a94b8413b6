"""Weighs what a part of instride holds, by what Python allocated for it: the same whatever else runs on the machine."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import TypeVar

__all__ = ["bytes_of"]

T = TypeVar("T")


def bytes_of(part: str, make: Callable[[], T]) -> tuple[T, int]:
    """part: a package of the core. What `make` returns, and how many bytes the part's own code holds once it has."""
    tracemalloc.start()
    try:
        made = make()
        gc.collect()
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    own = snapshot.filter_traces([tracemalloc.Filter(True, f"*/instride/_core/{part}/*")])
    return made, sum(each.size for each in own.statistics("filename"))
