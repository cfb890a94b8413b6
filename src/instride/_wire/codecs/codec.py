"""What the codec of one API is made of.

Laws
1. A codec is stateless: request and version give bytes; bytes, version and request give the response.
2. It speaks every version of its range. What a request says and some version cannot is left out there,
   unless that would change the meaning: then `needs` excludes the version.
3. A partition that was asked for and is not in the response has the error UNKNOWN_SERVER_ERROR, never a
   value that could be taken for a response. What the request did not name is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from uuid import UUID

from instride._wire.api import NO_TOPIC_ID, Partition
from instride._wire.entities import Fields, Made, read_response, write_request

__all__ = [
    "ANY_VERSION",
    "LARGE_BYTES",
    "SMALL_BYTES",
    "UNKNOWN_SERVER_ERROR",
    "Codec",
    "Needs",
    "all_topics_have_ids",
    "by_topic",
    "many_bytes",
    "message_codec",
    "topic_keys",
    "topic_name",
]

R = TypeVar("R")
A = TypeVar("A")

UNKNOWN_SERVER_ERROR: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The versions that can say what one request says. because: why, for the error message."""

    lowest: int = 0
    highest: int = 32767
    because: str = ""


ANY_VERSION: Final = Needs()


def _any_version(_: object) -> Needs:
    return ANY_VERSION


SMALL_BYTES: Final = 1 << 20
"""Of a response that names no partitions and no members."""
LARGE_BYTES: Final = 16 << 20
"""Of one that does: some hundred thousand of them."""


def _few_bytes(_: object) -> int:
    return SMALL_BYTES


def _as_they_are(_: object) -> Made:
    return {}


def many_bytes(_: object) -> int:
    return LARGE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec(Generic[R, A]):
    """One API.

    lowest, highest: the versions we speak. flexible_from: the first with compact types and tagged headers.
    encode: a request's body. decode: the response in a body (raises ProtocolError, nothing else).
    needs: the versions that a request's content allows.
    most_bytes: of a response to this request, whatever the broker claims.
    """

    name: str
    api_key: int
    lowest: int
    highest: int
    flexible_from: int
    encode: Callable[[R, int], bytes]
    decode: Callable[[memoryview, int, R], A]
    needs: Callable[[R], Needs] = _any_version
    most_bytes: Callable[[R], int] = _few_bytes


def message_codec(
    *,
    name: str,
    api_key: int,
    versions: tuple[int, int],
    flexible_from: int,
    fields: Callable[[R, int], Fields],
    response: Callable[[Fields, R], A],
    needs: Callable[[R], Needs] = _any_version,
    most_bytes: Callable[[R], int] = _few_bytes,
    made: Callable[[R], Made] = _as_they_are,
) -> Codec[R, A]:
    """The codec of an API whose messages are read and written by their schema.

    fields: the request's fields of all versions. answer: from the fields that a response has.
    made: of each element of its arrays.
    """

    def encode(request: R, version: int) -> bytes:
        return write_request(api_key, version, fields(request, version))

    def decode(body: memoryview, version: int, request: R) -> A:
        return response(read_response(body, api_key, version, made(request)), request)

    return Codec(
        name=name,
        api_key=api_key,
        lowest=versions[0],
        highest=versions[1],
        flexible_from=flexible_from,
        encode=encode,
        decode=decode,
        needs=needs,
        most_bytes=most_bytes,
    )


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """Each topic's partitions, in the order given."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def topic_keys(name: str, ids: Mapping[str, UUID]) -> Fields:
    """What names a topic: its name for older versions, its id for newer ones."""
    return {"name": name, "topic_id": ids.get(name, NO_TOPIC_ID)}


def topic_name(topic: Fields, names: Mapping[UUID, str]) -> str | None:
    """The name of a response's topic, or None where it has an id that was not asked for."""
    if "name" in topic:
        name: str | None = topic["name"]
        return name
    return names.get(topic["topic_id"])


def all_topics_have_ids(partitions: Iterable[Partition], ids: Mapping[str, UUID]) -> bool:
    return all(ids.get(topic, NO_TOPIC_ID) != NO_TOPIC_ID for topic in {topic for topic, _ in partitions})
