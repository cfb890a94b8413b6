"""A history for people: one line for each event, a column for who, and the violations where they belong."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from instride.records import TopicPartition
from instride.testing.check import Event, Violation

__all__ = ["transcript"]


def transcript(history: Iterable[Event], violations: Sequence[Violation] = ()) -> str:
    """Readable lines, in the order of time. Each violation follows the events up to its moment."""
    waiting = list(violations)
    lines = []
    for event in history:
        while waiting and waiting[0].time < event.time:
            lines.append(_violation(waiting.pop(0)))
        lines.append(f"{event.time:8.3f}  {event.who:<7} {_words(event)}")
    lines += [_violation(violation) for violation in waiting]
    return "\n".join(lines)


def _violation(violation: Violation) -> str:
    return f"{violation.time:8.3f}  ***     {violation.number}, {violation.law}: {violation.text}"


def _words(event: Event) -> str:
    match event.what, event.detail:
        case "poll", (deliveries, requested, lost):
            return "poll: " + "; ".join(
                [_records(deliveries), *_named("to be revoked", requested), *_named("lost", lost)]
            )
        case "assigned", (generation, partitions):
            return f"assigned in generation {generation}: {_epochs(partitions) or 'nothing new'}"
        case ("requested" | "reassigned" | "lost" | "revoked" | "settled") as what, (partitions,):
            return f"{what}: {_epochs(partitions)}"
        case "commit", (generation, offsets):
            told = ", ".join(f"{tp} at {offset}{f' (error {code})' if code else ''}" for tp, offset, code in offsets)
            return f"commit in generation {generation}: {told}"
        case ("done" | "failed" | "cancelled") as what, (partition, offset, epoch, *_):
            return f"{what} {partition} {offset} (epoch {epoch})"
        case "group", (state, generation, members):
            return f"group is {state}, generation {generation}, members {' '.join(members) or 'none'}"
        case "log", (level, text):
            return f"[{logging.getLevelName(level).lower()}] {text}"
        case what, detail:
            return f"{what} {' '.join(_plain(each) for each in detail)}".rstrip()


def _records(deliveries: Sequence[Any]) -> str:
    told = [f"{tp} {first}-{last} (epoch {epoch})" for tp, epoch, _, first, last, _ in deliveries]
    return ", ".join(told) or "no records"


def _named(what: str, partitions: Sequence[TopicPartition]) -> list[str]:
    return [f"{what} {', '.join(map(str, partitions))}"] if partitions else []


def _epochs(partitions: Sequence[Any]) -> str:
    return ", ".join(f"{tp} (epoch {epoch})" for tp, epoch in partitions)


def _plain(value: Any) -> str:
    if isinstance(value, tuple) and not isinstance(value, TopicPartition):
        return " ".join(_plain(each) for each in value)
    return str(value)
