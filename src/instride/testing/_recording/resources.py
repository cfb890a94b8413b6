"""What a process needs: memory, open files, threads, and what a consumer has buffered."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from instride._verbs import Verbs

__all__ = ["sample"]


def sample(consumer: Verbs) -> tuple[int, int, int, int, int | None]:
    """(bytes of memory, open files, threads, bytes buffered, the most that may be). 0 for what is not known here."""
    metrics = {each.name: int(value) for each, value in consumer.metrics().items() if each.name in _BUFFERED}
    return _rss(), _files(), threading.active_count(), metrics["buffered-bytes"], metrics["buffered-bytes-limit"]


_BUFFERED = frozenset({"buffered-bytes", "buffered-bytes-limit"})


def _rss() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _files() -> int:
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        return 0
