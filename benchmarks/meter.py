"""What a stretch of this process's time cost."""

from __future__ import annotations

import re
import resource
import time
from pathlib import Path


def peak_mb(process: int | str) -> float:
    """What it took of memory at most; 0.0 where it has ended. Not getrusage's: that counts the program that it was made
    from, too."""
    try:
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


class Meter:
    """Of this process, from its making on."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._usage = resource.getrusage(resource.RUSAGE_SELF)

    @property
    def seconds(self) -> float:
        """So far. It costs what a look at a clock does; `read` costs some twenty microseconds: it is for the end."""
        return time.perf_counter() - self._wall

    def read(self, rows: int) -> dict[str, float]:
        wall, usage, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF), self._usage
        cpu = usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime
        return {
            "rows": rows,
            "seconds": wall - self._wall,
            "cpu": cpu,
            "faults": usage.ru_minflt - before.ru_minflt,
            "peak_mb": peak_mb("self"),
            "switches": usage.ru_nvcsw + usage.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw,
        }
