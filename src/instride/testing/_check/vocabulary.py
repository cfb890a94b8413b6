"""What a history can say: every kind of event, its fields, and what a field may hold.

Laws
1. One table. Writers, readers and docs/histories.md follow it; `VERSION` rises when a field changes its meaning.
2. In memory a detail is a tuple in the order of the fields, made of texts, numbers, partitions and tuples of these. In
   a file each field has its name.
3. What is of another kind is told and never judged: a note. It has one field, `detail`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from instride.records import TopicPartition

__all__ = ["KINDS", "VERSION", "Field", "note", "parts", "stretch"]

VERSION: Final = 1
_LATEST: Final = 1e15
_LONGEST: Final = 1_000_000
"""Offsets of one stretch. More is a writer's error, and would leave the checker without memory. `parts` tells more."""

Read = Callable[[Any], Any]
"""From JSON to what is kept in memory. Raises ValueError or TypeError for what may not be there."""


class Field(NamedTuple):
    """optional: an event need not tell it. Such a field is the last one."""

    name: str
    read: Read
    optional: bool = False


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("true or false")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("a whole number")
    return value


def _offset(value: Any) -> int:
    if _whole(value) < 0:
        raise ValueError("an offset, which is not negative")
    return int(value)


def _seconds(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < _LATEST:
        raise TypeError("a number")
    return float(value)


def _or_null(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def _one_of(*words: str) -> Read:
    def read(value: Any) -> str:
        if value not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return str(value)

    return read


def _items(value: Any, count: int | None = None) -> list[Any]:
    if not isinstance(value, list) or (count is not None and len(value) != count):
        raise TypeError("a list" if count is None else f"a list of {count}")
    return value


def _partition(value: Any) -> TopicPartition:
    topic, number = _items(value, 2)
    return TopicPartition(_text(topic), _offset(number))


def _tuple(*reads: Read) -> Read:
    return lambda value: tuple(read(each) for read, each in zip(reads, _items(value, len(reads)), strict=True))


def _list(read: Read) -> Read:
    return lambda value: tuple(read(each) for each in _items(value))


def note(value: Any) -> Any:
    """Lists become tuples; anything else stays as it is."""
    return tuple(note(each) for each in value) if isinstance(value, list) else value


def stretch(first: int, last: int) -> None:
    """Whether these are the ends of one, both included. ValueError says what is wrong."""
    if not 0 <= last - first < _LONGEST:
        raise ValueError(f"a stretch of 1 to {_LONGEST:,} offsets")


def parts(first: int, last: int) -> Iterator[tuple[int, int]]:
    """The stretches as which these are written, both ends included; none where `last` comes before `first`."""
    return ((start, min(start + _LONGEST - 1, last)) for start in range(first, last + 1, _LONGEST))


def _delivery(value: Any) -> tuple[Any, ...]:
    found: tuple[Any, ...] = _DELIVERY(value)
    stretch(found[3], found[4])
    return found


_PARTITIONS = _list(_partition)
_EPOCHS = _list(_tuple(_partition, _whole))
_CODES = _list(_tuple(_partition, _offset, _whole))
_OFFSETS = _list(_tuple(_partition, _offset))
_DELIVERY = _tuple(_partition, _whole, _whole, _offset, _offset, _whole)
_DELIVERIES = _list(_delivery)
_LIMIT = _or_null(_seconds)


def _kind(**fields: Read) -> tuple[Field, ...]:
    return tuple(Field(name, read) for name, read in fields.items())


KINDS: Final[dict[str, tuple[Field, ...]]] = {
    # what the history is
    "history": _kind(
        version=_whole,
        source=_text,
        kind=_one_of("calm", "storm", "slow", "faults"),
        view=_one_of("broker", "clients"),
        reset=_or_null(_one_of("earliest", "latest")),
        gap=_LIMIT,
        rebalance=_LIMIT,
        delay=_LIMIT,
        session=_LIMIT,
        beat=_LIMIT,
    ),
    "end": _kind(drained=_flag),
    # the log
    "produced": _kind(partition=_partition, end=_offset),
    "log starts": _kind(partition=_partition, offset=_offset),
    "hole": _kind(partition=_partition, first=_offset, last=_offset),
    "truncated": _kind(partition=_partition, end=_offset, leader_epoch=_offset),
    "recreated": _kind(partition=_partition, leader_epoch=_offset),
    # a member's life
    "started": _kind(steady=_flag, finishes=_one_of("told", "delivered"), commits=_flag),
    "subscribes": _kind(topics=_list(_text)),
    "leaving": _kind(),
    "crashed": _kind(),
    "died": _kind(thread=_text, error=_text),
    "closed": _kind(clean=_flag),
    "unsubscribes": _kind(how=_text),
    "unsubscribed": _kind(),
    "timed out": _kind(verb=_text),
    "interrupted": _kind(verb=_text, until=_LIMIT),
    # what is assigned to it
    "assigned": _kind(generation=_or_null(_whole), partitions=_EPOCHS),
    "requested": _kind(partitions=_EPOCHS),
    "deadline": _kind(partitions=_EPOCHS, until=_LIMIT),
    "reassigned": _kind(partitions=_EPOCHS),
    "revoked": _kind(partitions=_EPOCHS),
    "lost": _kind(partitions=_EPOCHS),
    "on assigned": _kind(partitions=_PARTITIONS),
    "on revoked": _kind(partitions=_PARTITIONS),
    "on lost": _kind(partitions=_PARTITIONS),
    # where it reads
    "looked up": _kind(partition=_partition, offset=_or_null(_offset), code=_whole),
    "out of range": _kind(partition=_partition),
    "seek": _kind(partition=_partition),
    "positioned": _kind(partition=_partition, epoch=_whole, offset=_offset),
    "first fetch": _kind(partition=_partition, epoch=_whole),
    # what its application does
    "pauses": _kind(partitions=_PARTITIONS),
    "resumes": _kind(partitions=_PARTITIONS),
    "still paused": _kind(partitions=_PARTITIONS),
    "poll": _kind(records=_DELIVERIES, to_be_revoked=_PARTITIONS, lost=_PARTITIONS),
    "signal": _kind(seek_numbers=_list(_tuple(_partition, _whole, _whole))),
    "signal over": _kind(),
    "delay": _kind(partitions=_PARTITIONS, accepted=_flag),
    "begins": _kind(partition=_partition, offset=_offset, epoch=_whole),
    "done": (
        *_kind(partition=_partition, offset=_offset, epoch=_whole),
        Field("leader_epoch", _whole, optional=True),
    ),
    "range done": _kind(partition=_partition, first=_offset, last=_offset, epoch=_whole),
    "failed": _kind(partition=_partition, offset=_offset, epoch=_whole),
    "cancelled": _kind(partition=_partition, offset=_offset, epoch=_whole),
    "gave up": _kind(partitions=_PARTITIONS),
    "not begun": _kind(partition=_partition, epoch=_whole, offset=_offset),
    "commit failed": _kind(error=_text),
    "own offsets": _kind(offsets=_OFFSETS),
    "allows rewind": _kind(offsets=_OFFSETS),
    # what it and the coordinator say to each other
    "alive": _kind(until=_LIMIT),
    "sends commit": _kind(number=_whole, offsets=_list(_tuple(_partition, _offset, _whole))),
    "commit response": _kind(number=_whole, offsets=_CODES),
    "commit told": _kind(committed=_OFFSETS, instead=_OFFSETS),
    "group refused": _kind(),
    # the coordinator's side
    "commit": _kind(generation=_whole, offsets=_CODES),
    "group": _kind(state=_text, generation=_whole, members=_list(_text)),
    "evicted": _kind(why=_text),
    "blind": _kind(),
    "stored": _kind(offsets=_OFFSETS),
    # resources
    "load": _kind(
        buffered=_offset,
        cap=_offset,
        queued=_offset,
        requests=_offset,
        connections=_offset,
        turns=_offset,
        sent=_offset,
    ),
    "sample": _kind(rss=_offset, files=_offset, threads=_offset, buffered=_offset, cap=_or_null(_offset)),
}
