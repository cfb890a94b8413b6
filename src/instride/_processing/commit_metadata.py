"""What a commit remembers beside its offset: which later records are finished, and how often others were tried.

Laws
1. Pure bytes. What cannot be read (a foreign text, a damaged one, another version) is None, never an error.
2. It speaks of one topic id and one committed offset. For any other it means nothing: the topic was recreated, or
   somebody else moved the offset.
3. A range names offsets in which every record that a poll may return is finished. Offsets that the log does not have
   may lie in it: they never become records.
4. It is never longer than the bound: ranges that do not fit are left out from the top, and those records are handled
   again. `fits` says so before.
5. The mark (see `crashes`) comes first: it is small, and is left out only where nothing fits.

The text: "instride:1:", or "instride:2:" where it has a mark, and base64 (URL alphabet, without padding) of
    16 bytes    topic id; zeros where the broker has none
    varint      the committed offset
    varint      number of finished ranges, then of each: varint gap (from the end of the one before, of the first from
                the committed offset), varint length
    varint      number of records with attempts, then of each: varint offset (from the one before, of the first from
                the committed offset), varint attempts. One whose dead letter is due is there twice, which older
                versions read as once
    varint      (version 2 only, to its end) the reach, as its distance from the committed offset and one; or 0
    varint      the record that is named, likewise; or 0
    varint      how many died under it, doubled; and one where it is in progress
    4 bytes     CRC-32 of all that, big-endian
A varint is seven bits a byte, the lowest first, the eighth bit set in all but the last (LEB128).
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from instride._wire.reader import written_uvarint

__all__ = ["NO_MARK", "PREFIX", "Mark", "Remembered", "decode", "encode"]

PREFIX: Final = "instride:1:"
_PREFIX_WITH_MARK: Final = "instride:2:"
_NO_ID: Final = UUID(int=0)
_LONGEST: Final = 1 << 16
_LARGEST: Final = (1 << 63) - 1

Range = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What an owner says before it starts a record that may end its process (`crashes`).

    reach: nothing from this offset on is started; -1: it does not say. named: the record that is in progress alone
    (is_at_work), or was when an owner died; -1. deaths: how many owners died under that one.
    """

    reach: int = -1
    named: int = -1
    deaths: int = 0
    is_at_work: bool = False

    def __bool__(self) -> bool:
        return self.reach >= 0 or self.named >= 0


NO_MARK: Final = Mark()


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """finished: ranges [start, end) beyond the committed offset, rising. attempts: of those that failed, by offset.
    due: of these, those whose dead letter is to be written. mark: see there."""

    finished: Sequence[Range] = ()
    attempts: Mapping[int, int] = field(default_factory=dict)
    due: Set[int] = frozenset()
    mark: Mark = NO_MARK

    def __bool__(self) -> bool:
        return bool(self.finished or self.attempts or self.mark)


def encode(offset: int, what: Remembered, *, topic_id: UUID | None = None, limit: int) -> str:
    """The metadata of a commit at this offset; "" where there is nothing to remember. limit: characters at most."""
    if not what:
        return ""
    # 20: the topic's id and the checksum. base64 makes four characters of three bytes.
    space = (limit - len(PREFIX)) * 3 // 4 - 20
    head, fixed, mark = (topic_id or _NO_ID).bytes, written_uvarint(offset), _mark(offset, what.mark)
    # 2: the counts of ranges and attempts take a byte each at least.
    if space < len(fixed) + len(mark) + 2:
        mark = b""
    space -= len(fixed) + len(mark)
    tried = _attempts(offset, what, space // 2)
    # 5: the longest count of ranges, as a varint.
    ranges = _ranges(offset, what.finished, space - len(tried) - 5)
    if ranges == b"\0" and tried == b"\0" and not mark:
        return ""
    data = head + fixed + ranges + tried + mark
    data += binascii.crc32(data).to_bytes(4, "big")
    prefix = _PREFIX_WITH_MARK if mark else PREFIX
    return prefix + urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _mark(offset: int, mark: Mark) -> bytes:
    if not mark:
        return b""
    places = (each - offset + 1 if each >= offset else 0 for each in (mark.reach, mark.named))
    return b"".join(map(written_uvarint, (*places, 2 * mark.deaths + mark.is_at_work)))


def _ranges(offset: int, ranges: Sequence[Range], space: int) -> bytes:
    body, count, before = b"", 0, offset
    for start, end in ranges:
        more = written_uvarint(start - before) + written_uvarint(end - start)
        if len(body) + len(more) > space:
            break
        body, count, before = body + more, count + 1, end
    return written_uvarint(count) + body


def _attempts(offset: int, what: Remembered, space: int) -> bytes:
    body, count, before = b"", 0, offset
    for at in sorted(what.attempts):
        number, is_due = written_uvarint(what.attempts[at]), at in what.due
        more = written_uvarint(at - before) + number + (b"\0" + number) * is_due
        if len(body) + len(more) > space:
            break
        body, count, before = body + more, count + 1 + is_due, at
    return written_uvarint(count) + body


def decode(text: str, offset: int, topic_id: UUID | None = None) -> Remembered | None:
    """What the metadata of a commit at this offset remembers; None where it is not ours, or is damaged (laws 1, 2)."""
    if not text.startswith((PREFIX, _PREFIX_WITH_MARK)) or len(text) > _LONGEST or not text.isascii():
        return None
    encoded = text[len(PREFIX) :]
    try:
        data = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except (binascii.Error, ValueError):
        return None
    body, checksum = data[:-4], data[-4:]
    if len(body) < 16 or binascii.crc32(body).to_bytes(4, "big") != checksum:
        return None
    named = UUID(bytes=body[:16])
    if topic_id is not None and named not in (_NO_ID, topic_id):
        return None
    return _body(_numbers(body[16:]), offset, has_mark=text.startswith(_PREFIX_WITH_MARK))


def _body(numbers: Iterator[int], offset: int, *, has_mark: bool) -> Remembered | None:
    try:
        if next(numbers) != offset:
            return None
        finished, at = [], offset
        for _ in range(next(numbers)):
            start = at + next(numbers)
            at = start + next(numbers)
            finished.append((start, at))
        attempts, due, at = dict[int, int](), set[int](), offset
        for _ in range(next(numbers)):
            at += next(numbers)
            if at in attempts:
                due.add(at)
            attempts[at] = next(numbers)
        mark = _mark_from(numbers, offset) if has_mark else NO_MARK
    except StopIteration:
        return None
    largest = max([at, mark.reach, mark.named, mark.deaths, *attempts.values(), *(end for _, end in finished)])
    if next(numbers, None) is not None or largest > _LARGEST:
        return None
    return Remembered(finished=tuple(finished), attempts=attempts, due=frozenset(due), mark=mark)


def _mark_from(numbers: Iterator[int], offset: int) -> Mark:
    places = [next(numbers), next(numbers)]
    deaths = next(numbers)
    reach, named = (offset + place - 1 if place else -1 for place in places)
    return Mark(reach=reach, named=named, deaths=deaths // 2, is_at_work=bool(deaths % 2))


def _numbers(data: bytes) -> Iterator[int]:
    """All of them; nothing after one that is cut off, or that is longer than any of ours may be."""
    number = shift = 0
    for each in data:
        number |= (each & 127) << shift
        shift += 7
        if number > _LARGEST:
            yield number
            return
        if each < 128:
            yield number
            number = shift = 0
