"""`Recorder`: one file of events, written while an application runs.

Laws
1. An event is stamped when it comes, and events are written in the order in which they came, by one thread at a time.
   Times never fall: one that comes behind a later one gets its time. The clock is the consumer's own, which all
   processes of a machine share: their files are one history.
2. A line is flushed before its event's call returns: what a killed process did up to then is there.
3. What was recorded is judged from the file, as anybody else would.
4. Nobody waits for ever for a line of another's. A signal's handler may interrupt whoever writes it, on the same
   thread, and close the consumer; then the network thread has something to tell, too. After a short wait such events
   are left to the one who writes, who goes on when the handler returns: law 2 does not hold for them. Who ends the file
   or reads it waits longer: a disk may be slow.
5. A poll is written with the next event of anybody once it is completed: one that an exception leaves at its very end
   has taken nothing. What a killed process was returned last may be missing then, if it did nothing about it.
6. An exception that a signal's handler raises may come anywhere. A line leaves the queue in the step that writes it:
   none of the queue is lost, written twice, or written before an earlier one. The lock is always let go.
7. No line is missing between two others. The one that a full disk refuses stays in the file's buffer; where the disk
   is full at the next one still, the recorder writes nothing more. Who ends the file or reads it is told.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Self

from instride._core.application.calls import at_once
from instride._net.clock import now
from instride.records import TopicPartition
from instride.testing._check.events import BROKER, Event, encode, read_histories
from instride.testing._check.judge import check
from instride.testing._check.parameters import Parameters
from instride.testing._check.violation import Violation
from instride.testing._recording.member import Observable, RecordedMember
from instride.testing._recording.peer import RecordedPeer

__all__ = ["Recorder"]

_PATIENCE: Final = 0.1
"""Seconds for which an event waits for those who write (law 4)."""
_LONG_PATIENCE: Final = 10.0
"""The same for the end and for the verdict."""
_LONGEST_LINE: Final = 1 << 22
"""Bytes of the file's buffer (law 7): of a longer line the rest is lost."""
_Write = Callable[[Callable[[], object]], None]
"""Writes something that is due. It takes what says that it is not due any more, and calls that in the same step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """lines: what is left to be written of it. completed: whether it may be."""

    lines: deque[tuple[Event, str]]
    completed: Callable[[], bool]


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
        self._names: dict[str, object] = {BROKER: self}
        self._file = self.path.open("w", encoding="utf-8", buffering=_LONGEST_LINE)
        self._file.reconfigure(line_buffering=True)
        self._full: list[OSError] = []  # why nothing more is written (law 7)
        self._written_at = float("-inf")
        self._due: deque[_Write] = deque()  # what is to be written
        self._held: dict[str, _Held] = {}  # of each member its last poll (law 5)
        self._lock = threading.Lock()  # of who writes it
        self._writer = 0  # the number of that thread; 0 is nobody's
        parameters = Parameters(
            source=source or f"process {os.getpid()}", kind=kind, view="clients", reset=reset, gap=gap, delay=delay
        )
        self.add(BROKER, "history", *parameters)

    def add(self, who: str, what: str, *detail: Any) -> None:
        """Write one event, now. what: a kind of docs/histories.md with its fields in order, or a note of your own."""
        event = Event(now(), who, what, detail)
        # Encoded here, so that what is no event is the error of who said it.
        self._do(partial(self._write, event, encode(event)))

    def hold(self, who: str, events: Iterable[tuple[Any, ...]], completed: Callable[[], bool]) -> None:
        """Write these, stamped now, once their poll is completed; what was held of this member before, now or never."""
        told = [Event(now(), who, what, tuple(detail)) for what, *detail in events]
        held = _Held(lines=deque((event, encode(event)) for event in told), completed=completed)
        self._do()
        self._held[who] = held

    def _do(self, *writes: _Write, patience: float = _PATIENCE) -> None:
        for held in tuple(self._held.values()):
            if held.lines and held.completed():
                self._due.append(partial(self._write_held, held))
        self._due.extend(writes)
        me = threading.get_ident()
        # A handler that interrupts the writer waits for nothing: its own thread goes on when it returns.
        while self._writer != me and self._write_due(me, patience):
            # What came before the lock was let go may be nobody else's.
            if not self._due:
                break

    def _write_due(self, me: int, patience: float) -> bool:
        """Whether the lock was free in time."""
        held: list[bool] = []
        try:
            # In one step (law 6): after an `acquire` of its own a handler could raise before anybody knows of the lock.
            held.extend(map(self._lock.acquire, (True,), (patience,)))
            if held == [True]:
                self._writer = me
                while self._due:
                    self._due[0](self._due.popleft)
        finally:
            if held == [True]:
                self._writer = 0
                self._lock.release()
        return held == [True]

    def _write_held(self, held: _Held, written: Callable[[], object]) -> None:
        """Again is harmless: several threads may have found that it is due."""
        while held.lines:
            self._write(*held.lines[0], held.lines.popleft)
        written()

    def _write(self, event: Event, line: str, written: Callable[[], object]) -> None:
        was_full = bool(self._full)
        self._flush()
        if self._file.closed or self._full:
            written()
            if not was_full:
                self._raise_if_full()
            return
        if event.time < self._written_at:
            line = encode(event._replace(time=self._written_at))
        self._written_at = max(event.time, self._written_at)
        # In this order: where the file raises, by a signal's handler or since a disk is full, it has the line already.
        at_once([(written,), (self._file.write, line + "\n")])

    def _flush(self, written: Callable[[], object] | None = None) -> None:
        """What the disk refused is written now, or never (law 7)."""
        try:
            if not self._file.closed and not self._full:
                self._file.flush()
        except OSError as error:
            self._note_full(error)
        if written is not None:
            written()

    def _close(self, written: Callable[[], object]) -> None:
        """Another thread may run this for the one that closes: so an error is not raised here, but noted. Who closes
        raises what is noted.
        """
        try:
            at_once([(written,), (self._file.close,)])
        except OSError as error:
            self._note_full(error)

    def _note_full(self, error: OSError) -> None:
        """Law 7. Not of a TimeoutError, say, that a signal's handler raised: it has no number."""
        if error.errno is None:
            raise error
        self._full.append(error)

    # -- who is watched

    def watch(
        self, consumer: Observable, name: str, *, finishes: Literal["told", "delivered"] = "told"
    ) -> RecordedMember:
        """Record all that this consumer or pipeline does from now on. Not after its first use: IllegalStateError.

        name: of the member; unique in the history (ValueError). finishes: "told": call `done` of what is returned here;
        "delivered": a record counts as finished when a poll has returned it.
        """
        self._take(name)
        try:
            return RecordedMember(self.add, self.hold, consumer, name, finishes=finishes, holes=self.holes)
        except BaseException:
            del self._names[name]
            raise

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
        own = object()
        if self._names.setdefault(name, own) is not own:
            raise ValueError(f"{name!r} is the name of another member of this history: give each one of its own")

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
        event = Event(now(), BROKER, "end", (drained,))
        # Closed at once: what a member's thread would write between the two comes after the end.
        try:
            self._do(partial(self._write, event, encode(event)), self._close)
        except OSError as error:
            self._note_full(error)
        # Not where a handler raised something: the end may not be among what is due yet.
        self.close()

    def close(self) -> None:
        """What comes later is not recorded."""
        self._do(self._close, patience=_LONG_PATIENCE)
        self._raise_if_full()

    def _raise_if_full(self) -> None:
        if self._full:
            raise self._full[0]

    def check(self, others: Iterable[Path] = ()) -> list[Violation]:
        """Judge what was recorded; others: files that other processes of the same run wrote."""
        self._do(self._flush, patience=_LONG_PATIENCE)  # behind what others' threads have left to be written
        self._raise_if_full()
        return check(each.event for each in read_histories([self.path, *others]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
