"""`Recorder`: one file of events, written while an application runs.

Laws
1. Events are stamped and written under one lock, so times never fall. The clock is the consumer's own, which all
   processes of a machine share: their files are one history.
2. A line is flushed at once: what a killed process did up to then is there.
3. What was recorded is judged from the file, as anybody else would.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from instride._net.clock import now
from instride.records import TopicPartition
from instride.testing._check.events import BROKER, Event, encode, read_histories
from instride.testing._check.judge import check
from instride.testing._check.parameters import Parameters
from instride.testing._check.violation import Violation
from instride.testing._recording.member import Observable, RecordedMember
from instride.testing._recording.peer import RecordedPeer

__all__ = ["Recorder"]


class Recorder:
    """Thread-safe.

    path: of the file, which is made or replaced. kind: what the run may be judged by ("calm", "slow", "faults"; see
    docs/histories.md). reset: auto_offset_reset of the members. gap, delay: seconds, or None for no bound. holes: the
    topics are compacted or transactional, so that offsets without a record are no skips.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        source: str = "",
        kind: Literal["calm", "storm", "slow", "faults"] = "faults",
        reset: Literal["earliest", "latest"] | None = None,
        gap: float | None = None,
        delay: float | None = None,
        holes: bool = False,
    ) -> None:
        self.path = Path(path)
        self.holes = holes
        self._lock = threading.Lock()
        self._names = {BROKER}
        self._file = self.path.open("w", encoding="utf-8", buffering=1)
        parameters = Parameters(
            source=source or f"process {os.getpid()}", kind=kind, view="clients", reset=reset, gap=gap, delay=delay
        )
        self.add(BROKER, "history", *parameters)

    def add(self, who: str, what: str, *detail: Any) -> None:
        """Write one event, now. what: a kind of docs/histories.md with its fields in order, or a note of your own."""
        with self._lock:
            self._write(Event(now(), who, what, detail))

    def _write(self, event: Event) -> None:
        if not self._file.closed:
            self._file.write(encode(event) + "\n")

    # -- who is watched

    def watch(
        self, consumer: Observable, name: str, *, finishes: Literal["told", "delivered"] = "told"
    ) -> RecordedMember:
        """Record all that this consumer or pipeline does from now on. Not after its first use: IllegalStateError.

        name: of the member; unique in the history (ValueError). finishes: "told": call `done` of what is returned here;
        "delivered": a record counts as finished when a poll has returned it.
        """
        self._take(name)
        return RecordedMember(self.add, consumer, name, finishes=finishes, holes=self.holes)

    def peer(
        self, name: str, *, finishes: Literal["told", "delivered"] = "delivered", commits: bool = False
    ) -> RecordedPeer:
        """A member with another client, of which records and partitions are seen.

        finishes, commits: whether `done` and `committed` will be called; else what it returned counts as finished, and
        nothing is known of its commits.
        """
        self._take(name)
        return RecordedPeer(self.add, name, finishes=finishes, commits=commits)

    def _take(self, name: str) -> None:
        with self._lock:
            if name in self._names:
                raise ValueError(f"{name!r} is the name of another member of this history: give each one of its own")
            self._names.add(name)

    # -- what only others know

    def produced(self, partition: TopicPartition, end: int) -> None:
        """The partition's log ends before this offset now."""
        self.add(BROKER, "produced", partition, end)

    def stored(self, offsets: Mapping[TopicPartition, int]) -> None:
        """What is committed in the end, as looked up at the broker."""
        self.add(BROKER, "stored", tuple(sorted(offsets.items())))

    # -- the end

    def end(self, *, drained: bool) -> None:
        """The run is over, and the file is closed. drained: all that was produced was to be done by now."""
        with self._lock:  # once: what a member's thread would write between the two comes after the end
            self._write(Event(now(), BROKER, "end", (drained,)))
            self._file.close()

    def close(self) -> None:
        """What comes later is not recorded."""
        with self._lock:
            self._file.close()

    def check(self, others: Iterable[Path] = ()) -> list[Violation]:
        """Judge what was recorded; others: files that other processes of the same run wrote."""
        return check(each.event for each in read_histories([self.path, *others]))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
