"""Telemetry's events as lines of a log: one for each rebalance, and warnings that name what is waited for.

Laws
1. INFO: a rebalance that ended, a hand-over that was delayed, a stall that is over. WARNING: a revocation of which half
   of the time has passed, a loss, a partition that stands still, a position that was reset. Everything else is DEBUG.
2. Partitions and offsets are named; no key, value or secret is.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import singledispatch

from instride.errors._quoting import MOST_NAMED, counted, first_of
from instride.telemetry import (
    DelayAtRisk,
    FetchBegan,
    HandedOver,
    OwnershipChange,
    OwnershipChanged,
    PartitionFlows,
    PartitionStalled,
    PositionReset,
    RebalanceEnded,
    RebalanceOutcome,
    RebalanceStarted,
    TelemetryEvent,
)

__all__ = ["first_fetches", "formatted"]


@singledispatch
def formatted(event: TelemetryEvent) -> tuple[int, str]:
    """The level, as in `logging`, and the line."""
    raise TypeError(f"not an event of telemetry: {event!r}")


@formatted.register
def _changed(event: OwnershipChanged) -> tuple[int, str]:
    # The lines of so many hand-overs are bounded: this one tells of them all.
    many = event.change is OwnershipChange.LOST and len(event.partitions) > MOST_NAMED
    level = logging.WARNING if many else logging.DEBUG
    return level, f"{event.change.value.replace('_', ' ')}: {first_of(event.partitions)}"


@formatted.register
def _started(event: RebalanceStarted) -> tuple[int, str]:
    return logging.DEBUG, f"a rebalance began after generation {event.generation}: {event.reason}"


@formatted.register
def _ended(event: RebalanceEnded) -> tuple[int, str]:
    steps = {"join": event.joining, "sync": event.syncing, "taken by a poll after": event.taking}
    took = ", ".join(f"{name} {_seconds(value)}" for name, value in steps.items() if value is not None)
    brought = {
        "assigned": event.assigned,
        "revocation requested of": event.revocation_requested,
        "reassigned": event.reassigned,
        "delayed": event.delayed,
    }
    parts = [f"rebalance to generation {event.generation} took {_seconds(event.seconds)}{f' ({took})' if took else ''}"]
    parts += [f"{name} {first_of(partitions)}" for name, partitions in brought.items() if partitions]
    parts.append(f"because {event.reason}")
    if event.joins > 1:
        parts.append(f"it joined {event.joins} times")
    if event.outcome is not RebalanceOutcome.TAKEN:
        parts.append(event.outcome.value)
    return logging.INFO, "; ".join(parts)


@formatted.register
def _handed_over(event: HandedOver) -> tuple[int, str]:
    steps = ", ".join(f"{name} {_seconds(value)}" for name, value in event.phases.items() if value >= 0.0005)
    told = f"{event.partition} was {event.how.value}"
    if event.requested_at is not None:
        told += f" {_seconds(event.seconds)} after its revocation was requested{f' ({steps})' if steps else ''}"
    if event.blocker is not None:
        told += f"; it waited for {event.blocker}"
    if event.abandoned:
        told += f"; {event.abandoned} of its records may come again at its next owner: returned and not committed"
    if event.how is OwnershipChange.LOST:
        return logging.WARNING, told
    return (logging.INFO if event.polls_delayed else logging.DEBUG), told


@formatted.register
def _fetch_began(event: FetchBegan) -> tuple[int, str]:
    return first_fetches([event])


def first_fetches(began: Sequence[FetchBegan]) -> tuple[int, str]:
    """One line for those that come together. Raises ValueError where there are none."""
    took = [each.at - each.assigned_at for each in began]
    least, most = _seconds(min(took)), _seconds(max(took))
    after = least if least == most else f"{least} to {most}"
    names = first_of([each.partition for each in began])
    if len(began) == 1:
        return logging.DEBUG, f"the first fetch of {names} was sent {after} after it was assigned"
    return logging.DEBUG, f"the first fetches of {names} were sent {after} after they were assigned"


@formatted.register
def _at_risk(event: DelayAtRisk) -> tuple[int, str]:
    waits = f"it waits for {event.blocker}" if event.blocker is not None else "no reason was given"
    return (
        logging.WARNING,
        f"half of the time for the revocation of {event.partition} has passed: {waits}; in "
        f"{_seconds(event.seconds_left)} the partition is lost",
    )


@formatted.register
def _stalled(event: PartitionStalled) -> tuple[int, str]:
    places = {"next offset": event.offset, "log end": event.end or -1, "fetched": event.waiting or -1}
    where = [f"{name} {value}" for name, value in places.items() if value >= 0]
    told = f"{event.partition} is owned and stands still for {_seconds(event.seconds)}: {event.cause.value}"
    told += f", {event.error}" if event.error else ""
    return logging.WARNING, told + (f" ({', '.join(where)})" if where else "")


@formatted.register
def _flows(event: PartitionFlows) -> tuple[int, str]:
    return logging.INFO, f"{event.partition} stands still no more, after {_seconds(event.seconds)}"


@formatted.register
def _reset(event: PositionReset) -> tuple[int, str]:
    between = f"{counted(abs(event.count), 'offset')} {'skipped' if event.count >= 0 else 'may come again'}"
    moved = f"is read on from offset {event.to_offset} instead of {event.from_offset} ({between})"
    return logging.WARNING, f"{event.partition} {moved}: {event.cause.value}"


def _seconds(value: float) -> str:
    return f"{value:.3f} s" if value < 1 else f"{value:.1f} s"
