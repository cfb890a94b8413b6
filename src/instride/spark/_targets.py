"""With available_now: up to where each partition is to be read, and whether there still is as much (the loop's law 4).

Laws
1. A partition is done once the sink is at its target. The run is over when each partition that is ours is done.
2. What was there when the run began may be gone by now, and would be awaited for ever. So while no job runs, the
   brokers are asked every `_PAUSE` seconds what is there, and where the logs end that are ours and have begun. They are
   asked before the end, too, if partitions that are not ours had records: these may have gone without an owner.
3. A partition lacks what is to be read if its log ends before the target, or is not there any more, and the sink has
   less. Two looks in a row must say so, since a broker may be behind. Of partitions that are not ours only those count
   that are not there: nobody will have these. The others are their owners' concern.
4. The thread that polls waits for none of it. A look that fails is followed by another. It holds up no end, unless the
   look before it found something gone: then the end waits, for as long as it takes, until a look says more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from instride._core.network.cluster import MISSING_GRACE
from instride._processing.dead_letters import text_of
from instride.errors import SinkError, WakeupError
from instride.records import TopicPartition
from instride.spark._starting import passes
from instride.spark.sink import Sink

__all__ = ["Ends", "Looked", "Short", "Targets"]

_log = logging.getLogger(__name__)

_PAUSE: Final = MISSING_GRACE

Ends = Callable[[Collection[TopicPartition], Collection[TopicPartition]], Mapping[TopicPartition, int | None]]
"""See `TopicLookup.ends`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """A partition that lacks what is to be read. end: its log's; None where it is not there. position: the sink's, when
    the look began.
    """

    end: int | None
    position: int

    def told(self, partition: TopicPartition, target: int) -> str:
        found = "it is not there any more" if self.end is None else f"its log ends at {self.end} now"
        return f"{partition} was to be read up to offset {target}, but {found}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What a look has found. short: None where it failed. error: one that no other look mends."""

    short: Mapping[TopicPartition, Short] | None = None
    error: Exception | None = None


class Targets:
    """For the thread that polls. aside: does something on another thread. There `ends` is called, and `tell` hears
    `Looked`; `take` is then to be called with it.
    """

    def __init__(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        ends: Ends,
        sink: Sink,
        tell: Callable[[Looked], None],
        aside: Callable[[Callable[[], object]], None],
    ) -> None:
        self._offsets = dict(offsets)
        self._ends = ends
        self._sink = sink
        self._tell = tell
        self._aside = aside
        # Of those that are ours and have begun, where the sink is.
        self._positions: dict[TopicPartition, int] = {}
        # Of these, what is done.
        self._there: set[TopicPartition] = set()
        # Of all, what has something to be read, and was not seen to be done.
        self._unread = {partition for partition, target in offsets.items() if target > 0}
        self._short: Mapping[TopicPartition, Short] = {}
        self._is_looking = self._has_looked = False
        self._look_at = time.monotonic() + _PAUSE

    def of(self, partition: TopicPartition) -> int:
        return self._offsets.get(partition, 0)

    def reached(self, partition: TopicPartition, position: int) -> None:
        """The sink is there. The partition is ours."""
        self._positions[partition] = position
        if position >= self.of(partition):
            self._there.add(partition)
            self._unread.discard(partition)
        else:
            self._there.discard(partition)

    def forget(self, partition: TopicPartition) -> None:
        """It is not ours any more."""
        self._positions.pop(partition, None)
        self._there.discard(partition)

    def are_reached(self, owned: int) -> bool:
        """Law 1. owned: how many are ours."""
        return self._are_done(owned) and (self._has_looked or not self._unread)

    def _are_done(self, owned: int) -> bool:
        return 0 < len(self._there) == owned

    # -- whether it is there

    def look(self, owned: int, *, works: bool) -> None:
        """Law 2, in each turn. works: a job runs."""
        now = time.monotonic()
        is_last = self._are_done(owned)
        if not is_last:
            self._has_looked = False
        if works:
            self._look_at = now + _PAUSE
            return
        asks = is_last and self._unread and not self._has_looked and not self._short
        if not self._is_looking and (now >= self._look_at or asks):
            self._is_looking = True
            wanted = {each: target for each, target in self._offsets.items() if each not in self._there}
            ours = {each: position for each, position in self._positions.items() if each not in self._there}
            self._aside(lambda: self._tell(self._looked(wanted, ours)))

    def take(self, message: Looked) -> dict[TopicPartition, Short]:
        """What is lost, by law 3."""
        self._is_looking = False
        self._look_at = time.monotonic() + _PAUSE
        if message.short is None:
            self._has_looked = not self._short
            return {}
        before = self._short
        self._short = {
            partition: short
            for partition, short in message.short.items()
            if partition not in self._there and (short.end is None or partition in self._positions)
        }
        self._has_looked = not self._short
        return {each: short for each, short in self._short.items() if each in before}

    def lower(self, partition: TopicPartition, end: int) -> None:
        """It is to be read up to the end of its log. The partition is ours, and has begun."""
        self._offsets[partition] = end
        # Not the look's position, which may be of before the last commit.
        self.reached(partition, self._positions[partition])

    # -- on another thread

    def _looked(self, wanted: Mapping[TopicPartition, int], ours: Mapping[TopicPartition, int]) -> Looked:
        try:
            return Looked(short=self._found(wanted, ours))
        except WakeupError:
            # The run ends.
            return Looked()
        except Exception as error:  # noqa: BLE001 - a sink may be anybody's; the run ends with what it raised
            if not passes(error):
                return Looked(error=error)
            _log.warning("whether all is there that is to be read is not known now: %s", error)
            return Looked()
        except BaseException as error:  # noqa: BLE001 - pyo3's PanicException is no Exception
            told = SinkError(f"{type(error).__name__}: {text_of(error)}")
            told.__cause__ = error
            return Looked(error=told)

    def _found(
        self, wanted: Mapping[TopicPartition, int], ours: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Short]:
        """wanted: the targets. ours: the sink's positions."""
        ends = self._ends(wanted, ours)
        gone = [each for each in wanted if each not in ends]
        positions = self._sink.positions(gone) if gone else {}
        found = {each: Short(end=None, position=positions[each] or 0) for each in gone}
        for each, position in ours.items():
            end = ends.get(each)
            if end is not None and end < wanted[each]:
                found[each] = Short(end=end, position=position)
        return {each: short for each, short in found.items() if short.position < wanted[each]}
