"""How much of the machine other work took: a benchmark beside it measures that work."""

from __future__ import annotations

import os
import time
from pathlib import Path

FOREIGN_MOST = 0.05
"""A run beside which other work took a larger share of the machine is void."""

_TICK = os.sysconf("SC_CLK_TCK")


class ForeignLoad:
    """From construction on: what is neither of this process, nor of one that descends of it."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._busy, self._ours = _busy(), _ours()

    def share(self) -> float:
        """Of all cores' time since the start, stolen time too; 0 where there is no /proc."""
        total = (time.perf_counter() - self._began) * (os.cpu_count() or 1)
        return max(0.0, (_busy() - self._busy - (_ours() - self._ours)) / total)


def _busy() -> float:
    """Seconds, of all cores, that were neither idle nor waiting for a disk."""
    try:
        of_all_cores = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _, _, irq, softirq, steal, *_ = map(int, of_all_cores)
    return (user + nice + system + irq + softirq + steal) / _TICK


def _ours() -> float:
    """CPU seconds of this process and of all that descend of it, those that have ended as well."""
    try:
        numbers = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    except OSError:
        return 0.0
    parents, seconds = {}, {}
    for number in numbers:
        try:
            fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended since
            continue
        parents[number] = int(fields[1])
        seconds[number] = sum(map(int, fields[11:15])) / _TICK
    return sum(spent for number, spent in seconds.items() if _descends(number, parents))


def _descends(number: int, parents: dict[int, int]) -> bool:
    while number and number != os.getpid():
        number = parents.get(number, 0)
    return bool(number)


def not_void(runs: list[dict[str, float]]) -> list[dict[str, float]]:
    """Those beside which nothing else took the machine. All, where there is none: `void_remark` says so."""
    return [each for each in runs if each["foreign"] <= FOREIGN_MOST] or runs


def all_void(runs: list[dict[str, float]]) -> bool:
    return all(each["foreign"] > FOREIGN_MOST for each in runs)


def void_cell(runs: list[dict[str, float]]) -> str:
    """The same behind a name in a table of a page."""
    remark = void_remark(runs).strip()
    if not remark:
        return ""
    if all_void(runs):
        return f" **{remark}**"
    return f" ({remark[0].lower()}{remark[1:]})"


def void_remark(runs: list[dict[str, float]]) -> str:
    """What a table says behind the figures that it shows of `not_void(runs)`."""
    if all_void(runs):
        return f"  VOID: other work beside {'each run' if len(runs) > 1 else 'it'}"
    void = sum(each["foreign"] > FOREIGN_MOST for each in runs)
    return f"  {void} of {len(runs)} runs are void and left out" if void else ""


def foreign_cell(share: float) -> str:
    """The last cell of a row that is one run."""
    return f"{100 * share:16.1f}{void_remark([{'foreign': share}])}"
