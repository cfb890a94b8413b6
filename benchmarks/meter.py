"""What a stretch of this process's time cost."""

from __future__ import annotations

import resource
import time


class Meter:
    """Of this process, from its making on."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._usage = resource.getrusage(resource.RUSAGE_SELF)

    def read(self, rows: int) -> dict[str, float]:
        wall, usage, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF), self._usage
        cpu = usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime
        return {
            "rows": rows,
            "seconds": wall - self._wall,
            "cpu": cpu,
            "faults": usage.ru_minflt - before.ru_minflt,
            "peak_mb": usage.ru_maxrss / 1024,
            "switches": usage.ru_nvcsw + usage.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw,
        }
