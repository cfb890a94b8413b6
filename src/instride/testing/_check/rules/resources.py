"""R1: what a member needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median_low
from typing import Final

from instride.testing._check.events import Event
from instride.testing._check.history_state import HistoryState
from instride.testing._check.rules.rule import rule

_ENOUGH: Final = 8
"""Samples of a member, below which nothing is said of a trend."""
_ENOUGH_LOADS: Final = 100
"""The same of a simulation: fifty seconds. In a short one a user who works, or a suspended process, is a trend."""
_FLAT: Final = 0.10
_ALLOWANCE: Final = {"rss": 16 << 20, "files": 4, "threads": 2}
"""What the last quarter may have above the second one, in bytes, files and threads; of rss a tenth at least."""


_FEW: Final = {"queued": 300, "requests": 40, "connections": 20, "turns": 1500, "sent": 400}
"""The most of each that a member of the simulation has at any time, or does within a second: two to four times what is
seen of three brokers and seven partitions. What is queued may be four more for each partition that it has ever owned:
where each begins, and that its position was reset, is told to an application that polls when it likes, of two
assignments. Each rebalance meanwhile is four events: a user who worked for 17 s, while his group rebalanced 56 times,
had 211 queued."""
_DRIFT: Final = {"queued": 40, "requests": 10, "connections": 6}
"""The same as _ALLOWANCE, for what is counted in a simulation."""


def _is_sampled(_event: Event, state: HistoryState) -> bool:
    return bool(state.samples or state.loads)


@rule("R1", "buffers keep their caps", "sample", "load")
def r1_caps(event: Event, state: HistoryState) -> str | None:
    """What a member has buffered is never more than it may."""
    buffered, cap = event.detail[3:5] if event.what == "sample" else event.detail[:2]
    return f"{event.who} has {buffered:,} bytes buffered; the cap is {cap:,}" if cap and buffered > cap else None


@rule("R1", "little is under way", "load")
def r1_few(event: Event, state: HistoryState) -> str | None:
    """Where time is virtual everything can be counted: what waits in the queues between a member's threads, its
    requests that wait or are in flight, and its connections are few, however long it lives; and so are the turns of its
    network thread and the requests that it sends within a second, whatever comes in: a request without end is a spin
    too. (It has no timers: its machines name their one next deadline. A thread that turns where nothing came is L4.)"""
    owned = {"queued": 4 * len({each.partition for each in state.of_member[event.who]})}
    for name, value in zip(_FEW, event.detail[2:], strict=True):
        if value > _FEW[name] + owned.get(name, 0):
            return f"{event.who} has {value} {name}"
    return None


@rule("R1", "resources stay flat", "end", when=_is_sampled)
def r1_flat(event: Event, state: HistoryState) -> str | None:
    """Over a soak memory, open files and threads stay flat: the most of the last quarter of a member's samples is not
    above the most of the second quarter (the first is warming up), but for a tenth of memory and an allowance. So do
    queues, requests and connections of one in a long simulation, by what is usual in each quarter: faults make peaks
    there, a leak does not go down again."""
    for who, samples in state.samples.items():
        if len(samples) >= _ENOUGH and (rise := _rise(samples, _ALLOWANCE, first=0, of=max)):
            return f"{who}'s {rise}"
    for who, loads in state.loads.items():
        if len(loads) >= _ENOUGH_LOADS and (
            rise := _rise(loads, _DRIFT, first=2, of=median_low, last=state.last_loads.get(who))
        ):
            return f"{who}'s {rise}"
    return None


def _rise(
    samples: Sequence[Event],
    allowances: Mapping[str, int],
    *,
    first: int,
    of: Callable[[list[int]], int],
    last: Event | None = None,
) -> str:
    """first: where in their detail these are. of: what stands for a quarter. last: of these, before a close: that ends
    much of what is open."""
    quarter = len(samples) // 4
    for place, (name, allowance) in enumerate(allowances.items(), start=first):
        early = of([sample.detail[place] for sample in samples[quarter : 2 * quarter]])
        late = of([sample.detail[place] for sample in samples[-quarter:]])
        if last is not None:
            late = min(late, last.detail[place])  # open calls of a user who was away; a leak does not go down
        if late > early + max(allowance, _FLAT * early if name == "rss" else 0):
            return f"{name} rose from {early:,} to {late:,}"
    return ""
