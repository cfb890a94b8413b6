"""How much of what there is goes into the next micro-batch. Pure.

Laws
1. At most `limit` offsets, shared by backlog. A partition with a small backlog is never starved by one with a large
   (KIP-41): each that has something gets at least one offset, as with Spark's connector, even beyond the limit.
2. With a least number, a batch waits until that many are there, or `max_delay` seconds have passed since the last one.
   The first does not wait. As in Spark's connector, one that was found empty counts as it.
3. At most `limit` bytes, by what the first records of each partition's backlog weigh; shared by the backlogs' bytes, so
   each partition gives the same part of what it has. A partition that was not weighed gives one offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from instride.records import TopicPartition
from instride.spark._data_source.offsets import Span

__all__ = ["Pace", "Sample", "Scale", "admitted"]


def admitted(lag: Mapping[TopicPartition, int], limit: int | None) -> dict[TopicPartition, int]:
    """How many offsets of each partition's lag."""
    total = sum(lag.values())
    if limit is None or total <= limit:
        return dict(lag)
    return {partition: min(size, max(1, limit * size // total)) for partition, size in lag.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the offsets [start, end) weigh. nbytes: of those from `first` on; before it there is nothing to read."""

    start: int
    first: int
    end: int
    nbytes: int

    @property
    def weight(self) -> float:
        """Bytes for each offset."""
        return self.nbytes / max(1, self.end - self.first)


class Scale:
    """What an offset of each partition weighs, by the newest sample (law 3). Not thread-safe."""

    def __init__(self) -> None:
        self._samples: dict[TopicPartition, Sample] = {}

    def unknown(self, spans: Mapping[TopicPartition, Span]) -> dict[TopicPartition, Span]:
        """Those that have something to read and do not begin within what was sampled."""
        return {each: span for each, span in spans.items() if span.start < span.end and not self._knows(each, span)}

    def note(self, samples: Mapping[TopicPartition, Sample]) -> None:
        self._samples.update(samples)

    def admitted(self, lag: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
        """As `admitted` above, with a limit of bytes."""
        weights = {each: self._samples[each].weight for each in lag if each in self._samples}
        total = sum(lag[each] * weight for each, weight in weights.items())
        part = 1.0 if total <= limit else limit / total
        return {each: min(size, max(1, int(size * part) if each in weights else 1)) for each, size in lag.items()}

    def _knows(self, partition: TopicPartition, span: Span) -> bool:
        sample = self._samples.get(partition)
        return sample is not None and sample.start <= span.start < sample.end


class Pace:
    """Law 2. Not thread-safe; the time is an argument."""

    def __init__(self, least: int | None, max_delay: float) -> None:
        self._least = least
        self._max_delay = max_delay
        self._last: float | None = None

    def may_start(self, lag: int, now: float) -> bool:
        """Whether a batch is to start. True counts as its start."""
        if lag == 0 and self._last is not None:
            return False
        wait = (
            self._least is not None
            and lag < self._least
            and self._last is not None
            and now < self._last + self._max_delay
        )
        if not wait:
            self._last = now
        return not wait
