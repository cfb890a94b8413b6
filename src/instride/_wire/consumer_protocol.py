"""What members of a group tell their leader, and the leader them: the bytes inside of JoinGroup and SyncGroup.

Laws
1. Equal values give equal bytes: topics and partitions are written sorted and once each. (A broker takes changed
   bytes for a changed member, and starts a rebalance.)
2. Readers take what other clients really write: a version that is higher than ours is read as our highest, bytes after
   the last known field are ignored, fields that are missing at the end have their defaults (kafka-go ends its
   version 1 after the userdata), null arrays are empty, an empty rack is none.
3. What is read is sorted and once each too, and negative partitions are dropped, so that no assignor meets any.
4. Only bytes that are cut off inside of a field, or lie, or name more than `MOST_NAMED` topics and partitions, are a
   ProtocolError. Of a subscription it is told which (`TooManyNamedError`): it may be honest.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from instride._topic_partition import TopicPartition
from instride._wire.reader import Reader
from instride.errors import ProtocolError

__all__ = [
    "MOST_NAMED",
    "Assignment",
    "SharedTopics",
    "Subscription",
    "TooManyNamedError",
    "read_assignment",
    "read_subscription",
    "write_assignment",
    "write_subscription",
]

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_OWNED_FROM: Final = 1
_GENERATION_FROM: Final = 2
_RACK_FROM: Final = 3
_HIGHEST: Final = 3
# The assignment's layout is the same in all versions; 0 is the one that every client knows.
_ASSIGNMENT_VERSION: Final = 0
_SMALLEST_TOPIC: Final = 6  # a name's length and a count of partitions
_UNKNOWN_GENERATION: Final = -1
# Members of as many kinds may differ in what they subscribe to.
_MOST_LISTS: Final = 16

MOST_NAMED: Final = 200_000
"""Of topics and partitions together: each takes two hundred bytes here, for four that came."""


class TooManyNamedError(ProtocolError):
    """A subscription that names more than is read. It never leaves the leader that reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a member says when it joins.

    owned: the partitions it holds (version 1 and later; KIP-429).
    generation: the one it joined last, or -1 (version 2 and later; KIP-792).
    rack: where it runs, or None (version 3 and later; KIP-881).
    userdata: the assignor's own bytes, or None.
    version: that of the bytes; as read it may be higher than 3.
    repeats: whether its topics were read of another member already (`SharedTopics`).
    """

    topics: tuple[str, ...] = ()
    owned: tuple[TopicPartition, ...] = ()
    generation: int = _UNKNOWN_GENERATION
    rack: str | None = None
    userdata: bytes | None = None
    version: int = _HIGHEST
    repeats: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What the leader gives a member."""

    partitions: tuple[TopicPartition, ...] = ()
    userdata: bytes | None = None


def write_subscription(subscription: Subscription) -> bytes:
    """The bytes of a subscription in its `version`, which must be 0 to 3.

    Fields that the version does not have are left out.
    """
    version = subscription.version
    if not 0 <= version <= _HIGHEST:
        raise ValueError(f"a subscription is written in version 0 to {_HIGHEST}, not {version}")
    topics = sorted(set(subscription.topics))
    parts = [_INT16.pack(version), _INT32.pack(len(topics)), *map(_string, topics)]
    parts.append(_bytes(subscription.userdata))
    if version >= _OWNED_FROM:
        parts.append(_partitions(subscription.owned))
    if version >= _GENERATION_FROM:
        parts.append(_INT32.pack(subscription.generation))
    if version >= _RACK_FROM:
        parts.append(_string(subscription.rack or None))
    return b"".join(parts)


class SharedTopics:
    """Lists of topics that members of one group wrote alike: they are read, and kept, once. Not thread-safe."""

    __slots__ = ("_read",)

    def __init__(self) -> None:
        self._read: list[tuple[bytes, tuple[str, ...]]] = []

    def read(self, reader: Reader) -> tuple[tuple[str, ...], bool]:
        """The topics that the next bytes name, sorted. And whether others had named the same."""
        for written, topics in self._read:
            if reader.next_is(written):
                return topics, True
        start = reader.position
        names = {reader.string() for _ in range(reader.claim(reader.array_count(2) or 0))}
        topics = tuple(sorted(names))
        # Beyond it every member's list is read by itself: to compare with ever more would be quadratic.
        if len(self._read) < _MOST_LISTS:
            self._read.append((reader.since(start), topics))
        return topics, False


def read_subscription(data: bytes | memoryview, shared: SharedTopics | None = None) -> Subscription:
    """The subscription in JoinGroup's metadata of a member. Raises ProtocolError (law 4).

    shared: of the members of one group.
    """
    reader = Reader(data, elements=MOST_NAMED)
    try:
        return _subscription(reader, shared or SharedTopics())
    except ProtocolError as error:
        raise TooManyNamedError(str(error)) if reader.elements < 0 else error from None


def _subscription(reader: Reader, shared: SharedTopics) -> Subscription:
    version = _version(reader)
    topics, known = shared.read(reader)
    userdata = reader.nullable_bytes() if reader.remaining else None
    owned = _read_partitions(reader) if version >= _OWNED_FROM and reader.remaining else ()
    generation = reader.int32() if version >= _GENERATION_FROM and reader.remaining else _UNKNOWN_GENERATION
    rack = reader.nullable_string() if version >= _RACK_FROM and reader.remaining else None
    return Subscription(
        topics=topics,
        repeats=known,
        owned=owned,
        generation=max(generation, _UNKNOWN_GENERATION),
        rack=rack or None,
        userdata=userdata,
        version=version,
    )


def write_assignment(assignment: Assignment) -> bytes:
    """The bytes of an assignment."""
    return b"".join(
        (
            _INT16.pack(_ASSIGNMENT_VERSION),
            _partitions(assignment.partitions),
            _bytes(assignment.userdata),
        )
    )


def read_assignment(data: bytes | memoryview) -> Assignment:
    """The assignment in SyncGroup's response; no bytes at all are no partitions. Raises ProtocolError (law 4)."""
    reader = Reader(data, elements=MOST_NAMED)
    if not reader.remaining:
        return Assignment()
    _version(reader)
    partitions = _read_partitions(reader)
    return Assignment(partitions=partitions, userdata=reader.nullable_bytes() if reader.remaining else None)


def _version(reader: Reader) -> int:
    version = reader.int16()
    if version < 0:
        raise ProtocolError(f"the consumer protocol has no version {version}")
    return version


def _read_partitions(reader: Reader) -> tuple[TopicPartition, ...]:
    found: dict[str, set[int]] = {}
    for _ in range(reader.claim(reader.array_count(_SMALLEST_TOPIC) or 0)):
        topic = reader.string()
        numbers = reader.int32s(reader.claim(reader.array_count(4) or 0))
        found.setdefault(topic, set()).update(numbers)
    return tuple(
        TopicPartition(topic, number) for topic in sorted(found) for number in sorted(found[topic]) if number >= 0
    )


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(set(partitions)):
        topics.setdefault(topic, []).append(partition)
    parts = [_INT32.pack(len(topics))]
    for topic, numbers in topics.items():
        parts += (_string(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join(parts)


def _string(value: str | None) -> bytes:
    if value is None:
        return _INT16.pack(-1)
    data = value.encode()
    return _INT16.pack(len(data)) + data


def _bytes(value: bytes | None) -> bytes:
    return _INT32.pack(-1) if value is None else _INT32.pack(len(value)) + value
