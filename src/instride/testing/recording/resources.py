"""What a process needs: memory, open files, threads, and what a consumer has buffered."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from instride._verbs import Verbs

__all__ = ["sample"]


def sample(consumer: Verbs) -> tuple[int, int, int, int, int | None]:
    """(bytes of memory, open files, threads, bytes buffered, the most that may be). 0 for what is not known here.

    A partition is fetched while it has less than its share of fetch_buffer_bytes, and may then bring a whole
    max_partition_fetch_bytes.
    """
    config = consumer._config
    assigned = list(consumer._driver._thread._machine._assigned_partitions().values())
    cap = config.fetch_buffer_bytes + len(assigned) * config.max_partition_fetch_bytes
    return _rss(), _files(), threading.active_count(), sum(each.nbytes for each in assigned), cap


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
