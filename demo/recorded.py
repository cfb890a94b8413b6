"""The demo's histories (docs/histories.md): written by its processes while they run, judged at the end.

Laws
1. Each process writes a file of its own beside its event log; together they are one history.
2. What the source sent is told at the end, when all is known. Nothing is judged by its time: the machine may be slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from instride.records import TopicPartition
from instride.testing.check import Violation, WithoutOwner, read_histories, without_owner
from instride.testing.recording import Recorder

__all__ = ["finish", "ownerless", "recorder"]

_SUFFIX: Final = ".history.jsonl"


def recorder(folder: Path, topic: str, who: str) -> Recorder:
    """A process's own part of the run's history. folder: that of the event logs."""
    folder.mkdir(parents=True, exist_ok=True)
    return Recorder(folder / f"{who}{_SUFFIX}", source=f"the demo on {topic}", kind="calm", reset="earliest")


def finish(folder: Path, topic: str, ends: Mapping[int, int]) -> list[Violation]:
    """Tell what was sent to each partition, and judge the whole."""
    with recorder(folder, topic, "end") as last:
        for partition, end in sorted(ends.items()):
            last.produced(TopicPartition(topic, partition), end)
        last.end(drained=True)
    return last.check(sorted(path for path in folder.glob(f"*{_SUFFIX}") if path != last.path))


def ownerless(folder: Path) -> list[WithoutOwner]:
    """Every time without an owner in a run's history, in the order in which they ended."""
    return without_owner(each.event for each in read_histories(sorted(folder.glob(f"*{_SUFFIX}"))))
