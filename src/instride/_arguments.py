"""What may be given to a verb, and what one is told who gives something else. Not for users.

Laws
1. A wrong kind is a TypeError, a value out of bounds a ValueError; nothing was changed when one is raised.
2. Each names the verb, the argument and what came, and says what to write instead.
3. What can mean one thing only is taken: a pair for a `TopicPartition`, and whole numbers of any kind (numpy's too).
"""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from instride._texts import not_sendable
from instride.commits import CommitEntry, CommitSnapshot, OnSettled
from instride.listeners import AsyncRebalanceListener, RebalanceListener
from instride.records import OffsetAndMetadata, TopicPartition

__all__ = [
    "CheckedSnapshot",
    "as_topic",
    "async_listener",
    "commit_offsets",
    "count",
    "listener",
    "misplaced_settings",
    "misplaced_timeout",
    "named_partitions",
    "partition",
    "partitions",
    "positive",
    "seconds",
    "seek_offset",
    "text",
    "times",
]

FOREVER: Final = 1e9
"""Seconds. No wait needs more, and every clock can add it."""

_PARTITION: Final = 'TopicPartition("flights", 0)'
_LARGEST: Final = (1 << 63) - 1
_LARGEST_PARTITION: Final = (1 << 31) - 1
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_CALLBACKS: Final = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")


def misplaced_settings(kind: str, values: tuple[object, ...]) -> None:
    """A consumer takes settings by name only. TypeError for what users of other clients pass by position."""
    if not values:
        return
    example = f'{kind}(bootstrap_servers="localhost:9092", group_id="billing")'
    if isinstance(values[0], Mapping):
        hint = "a dictionary is spread with **, and its names have underscores: {'group.id': ...} is group_id=..."
    else:
        hint = f"topics are given to subscribe([{as_topic(values[0])}])"
    raise TypeError(f"{kind} takes its settings by name: {example}; {hint}")


def as_topic(value: object) -> str:
    """For an example. What cannot be a topic's name is not shown: it may be settings, with a password among them."""
    return repr(value if isinstance(value, str) and _TOPIC.fullmatch(value) else "flights")


def misplaced_timeout(verb: str, values: tuple[object, ...]) -> None:
    """A time-out is given by name only, in seconds. TypeError for one that is passed by position."""
    if values:
        raise TypeError(
            f"{verb} takes its time-out by name, in seconds: {verb}(timeout=1.0); it was given {values[0]!r}"
        )


def partition(verb: str, value: Any) -> TopicPartition:
    """One partition: a `TopicPartition`, or a tuple like it."""
    if not _is_pair(value):
        raise TypeError(f"{verb} takes a partition such as {_PARTITION}, not {_shown(value)}{_hint(value)}")
    # Of an enum's member, or numpy's text, the text alone: the decoder's records take nothing else.
    topic, number = str.__str__(value[0]), value[1]
    if not topic:
        raise ValueError(f"{verb}: the topic of {value!r} is empty")
    if why := not_sendable(topic):
        raise ValueError(f"{verb}: the topic {why}")
    number = _whole(number)
    if number is None:
        raise TypeError(f"{verb}: the partition's number must be a whole number such as 0; it is {value[1]!r}")
    if not 0 <= number <= _LARGEST_PARTITION:
        raise ValueError(f"{verb}: the partition's number must be 0 or more; it is {number}")
    return TopicPartition(topic, number)


def partitions(verb: str, values: Any) -> tuple[TopicPartition, ...]:
    """Any iterable of partitions; one partition alone is refused."""
    if _is_pair(values):
        raise TypeError(f"{verb} takes an iterable of partitions: {verb}([{_PARTITION}]), not one alone: {values!r}")
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(f"{verb} takes an iterable of partitions such as [{_PARTITION}], not {_shown(values)}")
    return tuple(partition(verb, value) for value in values)


def named_partitions(verb: str, arguments: tuple[Any, ...]) -> tuple[TopicPartition, ...]:
    """Partitions one by one, or iterables of them: ``pause(tp)``, ``pause([tp])``."""
    found: list[TopicPartition] = []
    for argument in arguments:
        if isinstance(argument, Iterable) and not isinstance(argument, str | bytes) and not _is_pair(argument):
            found += partitions(verb, argument)
        else:
            found.append(partition(verb, argument))
    return tuple(found)


def seek_offset(value: Any) -> OffsetAndMetadata:
    """Where `Consumer.seek` goes on: a number, or what was committed."""
    return _offset("seek", "offset", value)


class CheckedSnapshot(CommitSnapshot):
    """What the library builds, of partitions and offsets that it has counted. There may be thousands in each commit, so
    nothing is looked at again, or copied. entries: nobody changes them any more.
    """

    __slots__ = ()

    def __init__(self, entries: Mapping[TopicPartition, CommitEntry], on_settled: OnSettled) -> None:
        self._entries = MappingProxyType(entries)
        self._on_settled = on_settled


def commit_offsets(offsets: Any) -> CommitSnapshot | dict[TopicPartition, OffsetAndMetadata | int] | None:
    """What `Consumer.commit` takes. None: the position of each owned partition."""
    if offsets is None or isinstance(offsets, CheckedSnapshot):
        return offsets
    if isinstance(offsets, CommitSnapshot):
        for key, entry in offsets.entries.items():
            _check_entry(partition("commit", key), entry)
        return offsets
    if not isinstance(offsets, Mapping):
        raise TypeError(
            "commit takes the offset of the next record of each partition, such as "
            "{record.topic_partition: record.offset + 1}, a CommitSnapshot (OffsetLedger.committable), "
            f"or nothing for the position of each owned partition; not {_shown(offsets)}"
        )
    return {
        (tp := partition("commit", key)): _offset("commit", f"the offset of {tp}", value)
        for key, value in offsets.items()
    }


def _check_entry(tp: TopicPartition, entry: Any) -> None:
    if not isinstance(entry, CommitEntry):
        raise TypeError(
            f"commit: the entry of {tp} must be a CommitEntry, not {_shown(entry)}; offsets without epochs are given "
            "as a plain dictionary"
        )
    _offset("commit", f"the offset of {tp}", entry.to_offset_and_metadata())
    for name, value in (("epoch", entry.epoch), ("seek number", entry.seek_number)):
        if _whole(value) is None:
            raise TypeError(f"commit: the {name} of {tp} must be a whole number, not {_shown(value)}")


def times(timestamps: Any) -> dict[TopicPartition, int]:
    """What `Consumer.offsets_for_times` takes: milliseconds since 1970 of each partition."""
    verb = "offsets_for_times"
    if not isinstance(timestamps, Mapping):
        raise TypeError(f"{verb} takes {{{_PARTITION}: milliseconds since 1970}}, not {_shown(timestamps)}")
    return {(tp := partition(verb, key)): _time(verb, tp, value) for key, value in timestamps.items()}


def _time(verb: str, tp: TopicPartition, value: Any) -> int:
    found = _whole(value)
    if found is None:
        instead = "int(time.timestamp() * 1000)" if hasattr(value, "timestamp") else "int(seconds * 1000)"
        raise TypeError(f"{verb}: the time of {tp} must be whole milliseconds since 1970 ({instead}), not {value!r}")
    if not 0 <= found <= _LARGEST:
        raise ValueError(
            f"{verb}: the time {found} of {tp} is negative, or too large; milliseconds since 1970 are meant. "
            "The ends of the log are found by beginning_offsets and end_offsets"
        )
    return found


def seconds(verb: str, value: Any, *, default: float | None = None, name: str = "timeout") -> float:
    """A time-out. default: what None stands for; without one None is refused."""
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        instead = f"; write {name}.total_seconds()" if hasattr(value, "total_seconds") else ""
        raise TypeError(f"{verb}: {name} must be a number of seconds, not {_shown(value)}{instead}")
    if not value >= 0:  # nor NaN
        none = "" if default is None else "; leave it out for the default"
        raise ValueError(f"{verb}: {name} must be 0 seconds or more{none}; it is {value!r}")
    return FOREVER if value >= FOREVER else float(value)  # first: no float is as large as an int may be


def count(verb: str, name: str, value: Any) -> int:
    """How many at most; -1 is no bound."""
    if _whole(value) == -1:
        return -1
    try:
        return positive(verb, name, value)
    except ValueError as error:
        raise ValueError(f"{error}; -1 is no bound") from None


def positive(verb: str, name: str, value: Any) -> int:
    """How many, or how much: 1 at least."""
    found = _whole(value)
    if found is None:
        raise TypeError(f"{verb}: {name} must be a whole number, not {_shown(value)}")
    if found < 1:
        raise ValueError(f"{verb}: {name} must be 1 or more; it is {found}")
    return found


def text(verb: str, name: str, value: Any, *, most: int | None = None) -> str:
    """A text that is not empty. most: characters, beyond which it is cut."""
    if not isinstance(value, str):
        instead = f"; write {name}.decode()" if isinstance(value, bytes) else ""
        raise TypeError(f"{verb}: {name} must be a text, not {_shown(value)}{instead}")
    if not value:
        raise ValueError(f"{verb}: {name} is empty")
    if why := not_sendable(value[:most]):
        raise ValueError(f"{verb}: {name} {why}")
    return value[:most]


def listener(value: Any) -> RebalanceListener | None:
    """What `Consumer.subscribe` calls at rebalances: an object with a listener's three methods, none of them async."""
    found = async_listener(value)
    for name in _CALLBACKS if found is not None else ():
        if inspect.iscoroutinefunction(getattr(found, name)):
            raise TypeError(
                f"subscribe: {name} of {_shown(value)} is asynchronous; a Consumer's listener has plain methods, that "
                "of an AsyncConsumer either"
            )
    return cast(RebalanceListener | None, found)


def async_listener(value: Any) -> AsyncRebalanceListener | None:
    """What `AsyncConsumer.subscribe` calls: the same, and its methods may be async."""
    if value is None:
        return None
    if isinstance(value, type) or not all(callable(getattr(value, name, None)) for name in _CALLBACKS):
        instead = f"; write listener={value.__name__}()" if isinstance(value, type) else ""
        raise TypeError(f"subscribe: listener must be an object of a RebalanceListener, not {_shown(value)}{instead}")
    found: AsyncRebalanceListener = value
    return found


def _offset(verb: str, name: str, value: Any) -> OffsetAndMetadata:
    """Raises of the number, of the metadata, or of the epoch."""
    given = value if isinstance(value, OffsetAndMetadata) else OffsetAndMetadata(offset=value)
    offset, epoch = _whole(given.offset), _whole(given.leader_epoch)
    if offset is None:
        raise TypeError(f"{verb}: {name} must be a whole number or an OffsetAndMetadata, not {_shown(given.offset)}")
    if not 0 <= offset <= _LARGEST:
        raise ValueError(f"{verb}: {name} must not be negative, nor above 2**63 - 1; it is {offset}")
    _check_metadata(verb, name, given.metadata)
    if epoch is None or not -1 <= epoch <= _LARGEST_PARTITION:
        raise ValueError(f"{verb}: the leader epoch beside {name} must be -1 or more; it is {given.leader_epoch!r}")
    return OffsetAndMetadata(offset=offset, metadata=given.metadata, leader_epoch=epoch)


def _check_metadata(verb: str, name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{verb}: the metadata beside {name} must be a text, not {_shown(value)}")
    if why := not_sendable(value):
        raise ValueError(f"{verb}: the metadata beside {name} {why}")


def _is_pair(value: Any) -> bool:
    """Whether it can only be meant as one partition."""
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)


def _whole(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _hint(value: Any) -> str:
    if _is_record(value):
        return "; write record.topic_partition"
    if isinstance(getattr(value, "topic", None), str) and isinstance(getattr(value, "partition", None), int):
        return "; write TopicPartition(it.topic, it.partition)"
    return ""


def _is_record(value: Any) -> bool:
    return isinstance(getattr(value, "topic_partition", None), TopicPartition)


def _shown(value: Any) -> str:
    """What came, short: a record's payload stays out of logs."""
    if value is None:
        return "None"
    shown = repr(value) if isinstance(value, str | bytes | int | float | tuple | list | set | frozenset) else ""
    kind = type(value).__name__
    return f"{shown} ({kind})" if shown and len(shown) <= 80 else f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"
