"""The list of lies. A case is a broker that overrides what it lies about, and what the consumer must do all the same.

item: of issue 10. works: how long the application works on a value of over 1 MB, in seconds. known: why a bound is not
held yet; such a case must fail, and is told by name.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import hmac
import random
import socket
import ssl
import struct
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import trustme
from crc32c import crc32c

from attack.broker import PER_BATCH, Broker, Request
from attack.bytes_of import array, assignment, batch, record, text
from attack.proxy import DAMAGES, passed
from instride.errors import ErrorCode
from instride.errors.broker import name_of_code

__all__ = ["CASES", "FOR_ALL", "Case"]

SECRET = "canary-K1tty/9&zq+7x"  # noqa: S105 - nobody's
SASL = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "reader",
    "sasl_password": SECRET,
    "sasl_plain_without_tls": True,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One lie.

    lie: what the broker, a fellow member or a producer does. flows: the partitions that go on all the same, of which
    `enough` records come. errors: those that must be raised. may_raise: those that may. values, gapless: whether
    records are compared with what was written. overwork: seconds of work beyond a call's time-out. requests: so many,
    and forty more a poll, are patience. assign: so many partitions are assigned by hand; 0: a group's member.
    pauses: so many partitions, the lowest ones, are paused after 1.5 s, and stay so.
    addresses: so many has each name, of which the last one is right; 0: what the system says.
    pattern: to subscribe to, in place of the topic. lists: all topics are listed before each poll.
    any_error: of ours may be raised. told: what an error or a line of the log must say.
    damages: of the network between, which `damaged` of all suffers. good_after: seconds after which there are none any
    more; then all that was `written` of each partition that flows is read from
    its beginning. Until then each value is one that was written, where `written` says how many.
    """

    name: str
    item: str
    lie: str
    broker: type[Broker]
    flows: tuple[int, ...] = ()
    enough: int = 20
    errors: tuple[str, ...] = ()
    may_raise: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    settings: dict[str, Any] = field(default_factory=dict)
    assign: int = 3
    values: bool = True
    gapless: bool = True
    seconds: float = 1.0
    most_seconds: float = 20.0
    close: float = 2.0
    overwork: float = 1.0
    requests: int = 200
    secrets: tuple[str, ...] = ()
    limits: dict[str, int] = field(default_factory=dict)
    limit_later: bool = False
    no_threads: bool = False
    token_life: int = 0
    pattern: str = ""
    lists: bool = False
    pauses: int = 0
    addresses: int = 0
    damages: tuple[str, ...] = ()
    damaged: float = 0.1
    topic: str = "t"
    any_error: bool = False
    told: str = ""
    written: int = 0
    good_after: float = 0.0
    works: float = 0.0
    known: str = ""


CASES: list[Case] = []
# Cases that need nothing of a client but its plain settings: they are run against others too.
FOR_ALL = frozenset(
    {
        "header bomb",
        "decompression bomb, zstd",
        "compressible lines",
        "aborted transactions, 7 M",
        "base offset, bit 20",
        "base offset, bit 40",
        "base offset, bit 62",
        "batch before the fetch offset",
        "out of range, once",
        "out of range, once, earliest",
        "out of range, for ever",
        "a partition 300 times",
        "length prefix, before the handshake",
        "length prefix, for metadata",
        "length prefix, for a fetch",
        "web server",
        "join 22 for ever",
        "join 27 for ever",
        "sync 27 for ever",
        "no leaders",
        "20,000 partitions",
        "100,000 partitions that do not exist",
        "a fellow's typo",
        "evil host names",
        "300 names",
    }
)
TRANSPORT = ("TransportError", "ProtocolError", "FrameTooLargeError", "NotKafkaError", "KafkaTimeoutError")


def case(name: str, item: str, lie: str, **more: Any) -> Any:
    """Of the class below it."""

    def add(broker: type[Broker]) -> type[Broker]:
        CASES.append(Case(name=name, item=item, lie=lie, broker=broker, **more))
        return broker

    return add


# -- producers


@functools.cache
def header_bomb() -> bytes:
    return batch(0, record(0, b"0:0", 20_000_000), 1, "zstd")


@case("header bomb", "1", "20 M headers in one record of a batch of 4 KB", flows=(1, 2), errors=("CorruptRecordError",))
class HeaderBomb(Broker):
    def __init__(self) -> None:
        header_bomb()  # it takes seconds: not while the victim waits
        super().__init__()

    def records(self, index: int, offset: int) -> bytes:
        return header_bomb() if index == 0 else super().records(index, offset)


@functools.cache
def zeros(codec: str) -> bytes:
    return batch(0, record(0, bytes(400_000_000)), 1, codec)


class ValueBomb(Broker):
    codec = "zstd"

    def __init__(self) -> None:
        zeros(self.codec)  # it takes seconds: not while the victim waits
        super().__init__()

    def records(self, index: int, offset: int) -> bytes:
        return zeros(self.codec) if index == 0 else super().records(index, offset)


for _codec in ("gzip", "zstd"):
    case(
        f"decompression bomb, {_codec}",
        "2",
        f"a value of 400 MB zeros, {_codec}",
        flows=(1, 2),
        errors=("CorruptRecordError",),
    )(type(f"ValueBomb_{_codec}", (ValueBomb,), {"codec": _codec}))


@functools.cache
def least_records(count: int) -> bytes:
    return batch(0, b"".join(record(n, b"") for n in range(count)), count, "zstd")


@case(
    "records of nothing",
    "1",
    "in 25 of 50 lagging partitions 1.2 M records of zero bytes in a batch of 1 MB; a slow reader",
    flows=(0, 1, 49),
    assign=50,
    values=False,
    seconds=4.0,
    most_seconds=90.0,
    requests=2000,
)
class LeastRecords(Broker):
    partitions, end, count = 50, 1_000_000_000, 1_200_000

    def __init__(self) -> None:
        least_records(self.count)
        super().__init__()

    def fetch(self, request: Request) -> bytes:
        """As Kafka does: only the first batch of a response may be larger than was requested."""
        self.asking.first = True
        return super().fetch(request)

    def records(self, index: int, offset: int) -> bytes:
        first, self.asking.first = self.asking.first, False
        if index % 2:
            return lines(offset, "none", self.asking.most)
        made = struct.pack(">q", offset - offset % self.count) + least_records(self.count)[8:]
        return made if first or len(made) <= self.asking.most else b""


@case(
    "records of nothing, whatever was requested",
    "2",
    "the same, and the broker sends a batch of each partition in every response, three times what was requested",
    flows=(1, 3),
    assign=50,
    values=False,
    seconds=8.0,
    most_seconds=60.0,
    requests=2000,
)
class LeastRecordsOfEach(LeastRecords):
    def records(self, index: int, offset: int) -> bytes:
        self.asking.first = True
        return super().records(index, offset)


@case(
    "records of nothing, 45 batches of one partition",
    "2",
    "the same in 45 batches of one partition, 45 times what was requested",
    flows=(1, 2),
    assign=3,
    values=False,
    seconds=4.0,
    most_seconds=60.0,
    requests=2000,
)
class LeastRecordsOfOne(LeastRecords):
    partitions, batches = 3, 45

    def records(self, index: int, offset: int) -> bytes:
        if index:
            return lines(offset, "none", self.asking.most)
        base = offset - offset % self.count
        numbers = range(base, base + self.batches * self.count, self.count)
        return b"".join(struct.pack(">q", each) + least_records(self.count)[8:] for each in numbers)


@functools.cache
def log_lines(codec: str = "gzip") -> bytes:
    """A megabyte of log lines, 28:1."""
    line = b"2026-01-01 12:00:00 INFO request %06d of flight UA%04d was done in %03d ms; path=/api/v2/flights"
    lines = (record(n, line % (n, n % 9999, n % 777) * 10) for n in range(1000))
    return batch(0, b"".join(lines), 1000, codec)


def lines(offset: int, codec: str, most: int) -> bytes:
    """A log of them from this offset on: so many bytes, or one batch where any may come."""
    made, base = log_lines(codec), offset - offset % 1000
    if most <= 0:
        return b""
    return b"".join(struct.pack(">q", base + n * 1000) + made[8:] for n in range(max(1, most // len(made))))


@functools.cache
def most_headers() -> bytes:
    return batch(0, record(0, b"0:0", 33_000_000), 1, "zstd")


@case(
    "header bombs beside a lag",
    "1",
    "in 25 of 50 lagging partitions a record of 33 M headers, just under max_decompressed_bytes; a slow reader",
    flows=(1, 49),
    assign=50,
    values=False,
    errors=("CorruptRecordError",),
    seconds=4.0,
    most_seconds=60.0,
    requests=2000,
)
class HeaderBombs(Broker):
    partitions, end = 50, 1_000_000_000

    def __init__(self) -> None:
        most_headers()
        super().__init__()

    def records(self, index: int, offset: int) -> bytes:
        return lines(offset, "none", self.asking.most) if index % 2 else most_headers()


@case(
    "large values",
    "2",
    "values of 10 MB in three partitions, which zstd makes small, beside 47 that lag",
    flows=(0, 1, 2, 3, 49),
    enough=2,
    assign=50,
    values=False,
    seconds=4.0,
    most_seconds=60.0,
    settings={"max_poll_records": 20},
)
class LargeValues(Broker):
    partitions, end, size, codec = 50, 1_000_000_000, 10_000_000, "zstd"

    def records(self, index: int, offset: int) -> bytes:
        if index > 2:
            return lines(offset, "none", self.asking.most)
        return struct.pack(">q", offset) + large_value(self.size, self.codec)[8:]


@case(
    "largest values",
    "2",
    "values of 60 MB, nearly max_decompressed_bytes, in three partitions beside 47 that lag; a poll returns one",
    flows=(0, 1, 2, 3, 49),
    enough=2,
    assign=50,
    values=False,
    seconds=4.0,
    most_seconds=60.0,
    settings={"max_poll_records": 20},
)
class LargestValues(LargeValues):
    size = 60_000_000


@case(
    "largest values, not compressed",
    "2",
    "the same, not compressed",
    flows=(0, 1, 2, 3, 49),
    enough=2,
    assign=50,
    values=False,
    seconds=4.0,
    most_seconds=90.0,
    works=0.5,
    settings={"max_poll_records": 20, "request_timeout": 30.0},
)
class LargestValuesAsTheyAre(LargestValues):
    """As Kafka does: in a response there is one batch at most that is larger than was requested, the first."""

    codec = "none"

    def fetch(self, request: Request) -> bytes:
        self.asking.first = True
        return super().fetch(request)

    def records(self, index: int, offset: int) -> bytes:
        if index <= 2 and not self.asking.first:
            return b""
        made = super().records(index, offset)
        self.asking.first = self.asking.first and not made
        return made


@functools.cache
def large_value(size: int, codec: str) -> bytes:
    return batch(0, record(0, bytes(size)), 1, codec)


@functools.cache
def noise(size: int, codec: str) -> bytes:
    return batch(0, record(0, random.Random(1).randbytes(size)), 1, codec)  # noqa: S311 - no secret


@case(
    "largest values, compressed in vain",
    "2",
    "values of 55 MB of random bytes in three partitions, compressed: both forms together are 110 MB",
    flows=(3, 49),
    enough=2,
    assign=50,
    values=False,
    errors=("CorruptRecordError",),
    seconds=4.0,
    most_seconds=90.0,
    settings={"max_poll_records": 20, "request_timeout": 30.0},
    requests=2000,
)
class LargestValuesOfNoise(LargestValuesAsTheyAre):
    codec = "zstd"

    def __init__(self) -> None:
        noise(55_000_000, self.codec)
        super().__init__()

    def records(self, index: int, offset: int) -> bytes:
        if index <= 2 and not self.asking.first:
            return b""
        self.asking.first = False
        if index > 2:
            return lines(offset, "none", self.asking.most)
        return struct.pack(">q", offset) + noise(55_000_000, self.codec)[8:]


@case(
    "60 MB, whatever was requested",
    "2",
    "a megabyte of each of 60 partitions in every response",
    flows=(0, 59),
    assign=60,
    values=False,
    settings={"max_poll_records": 500},
    seconds=4.0,
    most_seconds=40.0,
    requests=2000,
)
class WhateverWasRequested(Broker):
    partitions, end = 60, 1_000_000_000

    def records(self, index: int, offset: int) -> bytes:
        return lines(offset, "none", self.brings(index) << 20)

    def brings(self, index: int) -> int:
        """How many MiB of this partition."""
        return 1


@case(
    "60 MB of two partitions, whatever was requested",
    "2",
    "30 MB of each of two partitions in every response",
    flows=(0, 1),
    assign=2,
    values=False,
    settings={"max_poll_records": 500},
    seconds=4.0,
    most_seconds=40.0,
    requests=2000,
)
class WhateverOfTwo(WhateverWasRequested):
    partitions = 2

    def brings(self, index: int) -> int:
        return 30


@case(
    "52 MB of one partition, whatever was requested",
    "2",
    "52 MB of one partition and a megabyte of each of seven others in every response",
    flows=(0, 7),
    assign=8,
    values=False,
    settings={"max_poll_records": 500},
    seconds=4.0,
    most_seconds=40.0,
    requests=2000,
)
class WhateverOfOne(WhateverWasRequested):
    partitions = 8

    def brings(self, index: int) -> int:
        return 52 if index == 0 else 1


@functools.cache
def wide_window() -> bytes:
    """A record of 60 MB "a" in a frame of zstd that has its decoder keep up to 128 MiB besides."""
    made = record(0, b"a" * 60_000_000)
    head, left = made[: -60_000_000 - 1], 60_000_001
    frame = bytearray(b"\x28\xb5\x2f\xfd\0\x88" + struct.pack("<I", len(head) << 3)[:3] + head)
    while left > 1:
        size = min(left - 1, 1 << 17)
        left -= size
        frame += struct.pack("<I", size << 3 | 2)[:3] + b"a"
    frame += struct.pack("<I", 1 << 3 | 1)[:3] + b"\0"  # no headers
    whole = batch(0, bytes(frame), 1, "none")
    return whole[:17] + sealed_head(whole[21:], 4)


def sealed_head(after: bytes, attributes: int) -> bytes:
    """With these attributes, and the checksum before them."""
    after = struct.pack(">h", attributes) + after[2:]
    return struct.pack(">I", crc32c(after)) + after


@case(
    "a window of 128 MiB",
    "2",
    "values of 60 MB in batches of 2 KB, whose zstd frames need a window of 128 MiB",
    flows=(3, 49),
    assign=50,
    values=False,
    seconds=4.0,
    most_seconds=60.0,
    errors=("CorruptRecordError",),
    requests=2000,
    settings={"request_timeout": 30.0},
)
class WideWindow(LargeValues):
    def __init__(self) -> None:
        wide_window()
        super().__init__()

    def records(self, index: int, offset: int) -> bytes:
        if index > 2:
            return lines(offset, "none", self.asking.most)
        return struct.pack(">q", offset) + wide_window()[8:]


@case(
    "compressible lines",
    "2",
    "log lines that gzip makes 28 times smaller, 50 lagging partitions, a slow reader",
    flows=(0, 49),
    assign=50,
    values=False,
    settings={"max_poll_records": 500},
    seconds=4.0,
    most_seconds=40.0,
)
class LogLines(Broker):
    partitions, end = 50, 1_000_000_000

    def records(self, index: int, offset: int) -> bytes:
        return lines(offset, "gzip", self.asking.most)


@case(
    "compressible lines, 200 partitions",
    "2",
    "the same of 200 lagging partitions",
    flows=(0, 199),
    assign=200,
    values=False,
    settings={"max_poll_records": 500},
    seconds=4.0,
    most_seconds=60.0,
    requests=1000,
)
class LogLinesOf200(LogLines):
    partitions = 200


class OnBrokers(Broker):
    """Partitions have their leaders on 20 brokers, one after another."""

    def nodes(self) -> list[tuple[int, str, int]]:
        return [(number, "127.0.0.1", self.port) for number in range(1, 21)]

    def partition_entry(self, topic: str, index: int) -> bytes:
        made = super().partition_entry(topic, index)
        return made[:6] + struct.pack(">i", index % 20 + 1) + made[10:]


_PAUSED = {
    "flows": (40, 45, 49),
    "assign": 50,
    "pauses": 40,
    "values": False,
    "seconds": 4.0,
    "most_seconds": 60.0,
    "requests": 3000,
}


@case(
    "paused, compressible lines",
    "2",
    "50 lagging partitions on 20 brokers, log lines 28:1; after 1.5 s 40 of the partitions are paused",
    **_PAUSED,
)
class PausedLines(OnBrokers, LogLines):
    pass


@case(
    "paused, large values",
    "2",
    "the same with values of 10 MB, which zstd makes small, in all that is paused",
    settings={"max_poll_records": 20},
    **_PAUSED,
)
class PausedValues(OnBrokers, LargeValues):
    size = 10_000_000

    def records(self, index: int, offset: int) -> bytes:
        if index >= 40:
            return lines(offset, "none", self.asking.most)
        return struct.pack(">q", offset) + large_value(self.size, self.codec)[8:]


@case(
    "paused, larger values",
    "2",
    "the same with values of 30 MB",
    settings={"max_poll_records": 20, "request_timeout": 30.0},
    **_PAUSED,
)
class PausedLargerValues(PausedValues):
    size = 30_000_000


@case(
    "aborted transactions, 7 M",
    "2",
    "a fetch response that lists 7 M aborted transactions: longer than any response may be",
    settings={"isolation_level": "read_committed"},
    may_raise=TRANSPORT,
    seconds=3.0,
)
class Aborted(Broker):
    count = 7_000_000

    def fetch_entry(self, index: int, offset: int) -> bytes:
        aborted = aborted_list(self.count) if index == 0 else b""
        return self.fetched_entry(index, self.records(index, offset), aborted=aborted)


@functools.cache
def aborted_list(count: int) -> bytes:
    return b"".join(struct.pack(">qq", n, 0) for n in range(count))


@case(
    "aborted transactions, 200 k",
    "2",
    "200,000 aborted transactions with each fetch of a partition",
    settings={"isolation_level": "read_committed"},
    flows=(0, 1, 2),
    overwork=2.0,
)
class SomeAborted(Aborted):
    count = 200_000


# -- offsets


class FlippedBase(Broker):
    bit = 40

    def records(self, index: int, offset: int) -> bytes:
        made = super().records(index, offset)
        if index or not made:
            return made
        return struct.pack(">q", (offset - offset % PER_BATCH) ^ 1 << self.bit) + made[8:]


for _bit in (20, 40, 62):
    case(
        f"base offset, bit {_bit}",
        "5",
        f"bit {_bit} of a batch's base offset is flipped",
        flows=(1, 2),
        errors=("CorruptRecordError",),
    )(type(f"FlippedBase_{_bit}", (FlippedBase,), {"bit": _bit}))


@case(
    "batch before the fetch offset",
    "5",
    "a batch wholly before the requested offset",
    flows=(1, 2),
    errors=("CorruptRecordError",),
)
class Before(Broker):
    def records(self, index: int, offset: int) -> bytes:
        return super().records(index, offset - PER_BATCH if index == 0 and offset >= PER_BATCH else offset)


@case(
    "out of range, once",
    "6",
    "one false OFFSET_OUT_OF_RANGE",
    flows=(0, 1, 2),
    settings={"auto_offset_reset": "latest"},
    enough=0,
    seconds=2.0,
)
class OutOfRangeOnce(Broker):
    def fetch_entry(self, index: int, offset: int) -> bytes:
        if index == 0 and self.fetched[0] == 3:
            return self.fetched_entry(0, b"", error=ErrorCode.OFFSET_OUT_OF_RANGE)
        return super().fetch_entry(index, offset)


@case("out of range, once, earliest", "6", "one false OFFSET_OUT_OF_RANGE", flows=(0, 1, 2), enough=200)
class OutOfRangeOnceEarliest(OutOfRangeOnce):
    pass


@case(
    "out of range, for ever",
    "6",
    "OFFSET_OUT_OF_RANGE for ever, though the log has the offset",
    flows=(1, 2),
    seconds=4.0,
    may_raise=("OffsetOutOfRangeError",),
)
class OutOfRange(Broker):
    def fetch_entry(self, index: int, offset: int) -> bytes:
        return (
            self.fetched_entry(0, b"", error=ErrorCode.OFFSET_OUT_OF_RANGE)
            if index == 0
            else super().fetch_entry(index, offset)
        )


# -- a response's shape


@case(
    "a partition 300 times",
    "10",
    "the same partition 300 times in one response, each time a megabyte when it is decompressed",
    flows=(),
    values=False,
    may_raise=TRANSPORT,
    seconds=3.0,
)
class Repeated(Broker):
    def fetch(self, request: Request) -> bytes:
        entry = self.fetched_entry(0, log_lines(), end=1 << 40)
        self.fetched[0] += 1
        return struct.pack(">ihi", 0, 0, 0) + array([text("t") + array([entry] * 300)])


@case(
    "unrequested partitions", "10", "partitions and topics that were not requested, in each response", flows=(0, 1, 2)
)
class Unasked(Broker):
    def fetch(self, request: Request) -> bytes:
        made = super().fetch(request)
        (count,) = struct.unpack_from(">i", made, 10)
        more = [text("other") + array([self.fetched_entry(0, self.records(0, 0))])]
        return made[:10] + struct.pack(">i", count + len(more)) + made[14:] + b"".join(more)


@case("no progress", "10", "an empty response at once, for ever", seconds=3.0, requests=100)
class Empty(Broker):
    def fetch_entry(self, index: int, offset: int) -> bytes:
        return self.fetched_entry(index, b"")

    def linger(self) -> None:
        """It does not."""


@case(
    "no progress with reasons", "7", "the same, and an error of another partition each time", seconds=3.0, requests=100
)
class Excused(Empty):
    def fetch_entry(self, index: int, offset: int) -> bytes:
        stale = 6 if self.requested[1] % self.partitions == index else 0
        return self.fetched_entry(index, b"", error=stale)


class Claims(Broker):
    """Four bytes of a length, then silence."""

    at = 18
    length = 0x7EFFFFFF

    def response(self, frame: bytes) -> bytes:
        (key,) = struct.unpack_from(">h", frame)
        if key != self.at:
            return super().response(frame)
        correlation = frame[4:8]
        return struct.pack(">i", self.length) + correlation


for _key, _length, _when in (
    (18, 0x7EFFFFFF, "before the handshake"),
    (36, 120 << 20, "before SASL is done"),
    (3, 120 << 20, "for metadata"),
    (1, 120 << 20, "for a fetch"),
):
    case(
        f"length prefix, {_when}",
        "9",
        f"a length of {_length >> 20} MiB {_when}, and nothing after it",
        may_raise=TRANSPORT,
        seconds=2.0,
        settings=SASL if _key == 36 else {},
    )(type(f"Claims_{_key}", (Claims,), {"at": _key, "length": _length, "sasl": _key == 36}))


@case(
    "20 brokers that claim",
    "9",
    "20 brokers, each of which claims 60 MiB for a fetch, sends four bytes and is silent",
    assign=20,
    may_raise=TRANSPORT,
    seconds=4.0,
    requests=1000,
)
class TwentyBrokers(Claims):
    partitions, at, length = 20, 1, 60 << 20

    def nodes(self) -> list[tuple[int, str, int]]:
        return [(number, "127.0.0.1", self.port) for number in range(1, 21)]

    def partition_entry(self, topic: str, index: int) -> bytes:
        made = super().partition_entry(topic, index)
        return made[:6] + struct.pack(">i", index + 1) + made[10:]


@case("array lengths", "9", "metadata that claims two billion brokers", may_raise=TRANSPORT, seconds=2.0)
class Milliards(Broker):
    def metadata(self, request: Request) -> bytes:
        return struct.pack(">ii", 0, 0x7FFFFFFF)


@case("web server", "9", "HTTP instead of Kafka", errors=("NotKafkaError",), may_raise=TRANSPORT)
class Web(Broker):
    def response(self, frame: bytes) -> bytes:
        return b"HTTP/1.1 400 Bad Request\r\nServer: \x1b[31mevil\r\n\r\n" * 20


@case("noise", "9", "random bytes, seeded", may_raise=TRANSPORT, seconds=2.0)
class Noise(Broker):
    def response(self, frame: bytes) -> bytes:
        return random.Random(frame).randbytes(3000)  # noqa: S311


@case(
    "noise in bodies", "9", "random bytes as the body of every response but the first", may_raise=TRANSPORT, seconds=2.0
)
class NoiseInBodies(Broker):
    def respond(self, key: int, request: Request) -> bytes:
        return random.Random(key).randbytes(300)  # noqa: S311


@case("silence", "9", "accepts connections and sends nothing", may_raise=TRANSPORT, seconds=2.0)
class Silence(Broker):
    def response(self, frame: bytes) -> bytes:
        time.sleep(30)
        return b""


@case("another's response", "9", "correlation ids of no request", may_raise=TRANSPORT, seconds=2.0)
class Correlation(Broker):
    def response(self, frame: bytes) -> bytes:
        made = super().response(frame)
        return made if frame[1] == 18 else made[:4] + struct.pack(">i", 77777) + made[8:]


# -- the group


class JoinFails(Broker):
    join_error, sync_error = 0, 0

    def join(self, request: Request) -> bytes:
        return self.joined(request, leader="other", members=(), error=self.join_error)

    def sync(self, request: Request) -> bytes:
        return self.synced(b"" if self.sync_error else assignment({"t": range(self.partitions)}), self.sync_error)


for _api, _code in (("join", 22), ("join", 27), ("join", 25), ("sync", 22), ("sync", 27), ("sync", 25), ("sync", -1)):
    case(
        f"{_api} {_code} for ever",
        "7",
        f"the response to {_api.title()}Group has the error {name_of_code(_code)}, for ever",
        assign=0,
        seconds=4.0,
        may_raise=("BrokerResponseError",),
    )(type(f"JoinFails_{_api}_{_code}", (JoinFails,), {f"{_api}_error": _code}))


@case(
    "half a join",
    "7",
    "the first response to JoinGroup stops in its middle",
    assign=0,
    flows=(0, 1, 2),
    settings={"request_timeout": 1.0},
)
class HalfAJoin(Broker):
    def response(self, frame: bytes) -> bytes:
        made = super().response(frame)
        return made[:20] if frame[1] == 11 and self.requested[11] == 1 else made


@case(
    "heartbeat 27 for ever",
    "7",
    "each heartbeat says that the group rebalances",
    assign=0,
    seconds=4.0,
    settings={"heartbeat_interval": 0.1},
    flows=(),
    values=False,
    gapless=False,
)
class Storm(Broker):
    def heartbeat_error(self) -> int:
        return 27


@case(
    "a coordinator that moves on",
    "7",
    "each FindCoordinator names another broker, and each heartbeat says that it is not the coordinator",
    assign=0,
    seconds=4.0,
    settings={"heartbeat_interval": 0.1},
    flows=(0, 1, 2),
)
class Wandering(Broker):
    def coordinator(self, _: Request) -> bytes:
        node = 1000 + self.requested[10]
        return (
            struct.pack(">ih", 0, 0)
            + text(None)
            + struct.pack(">i", node)
            + text("127.0.0.1")
            + struct.pack(">i", self.port)
        )

    def heartbeat_error(self) -> int:
        return 16


@case(
    "partitions that come and go",
    "7",
    "the consumer leads its group, each metadata has another number of partitions, "
    "every other fetch gets NOT_LEADER_OR_FOLLOWER",
    assign=0,
    seconds=6.0,
    values=False,
    gapless=False,
)
class ComeAndGo(Broker):
    def join(self, request: Request) -> bytes:
        return self.leads(request)

    def topic_entry(self, topic: str) -> bytes:
        number = 3 + self.requested[3] % 3
        return bytes(2) + text(topic) + b"\0" + array(self.partition_entry(topic, index) for index in range(number))

    def fetch_entry(self, index: int, offset: int) -> bytes:
        stale = self.requested[1] % 2
        return (
            self.fetched_entry(index, b"", error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if stale
            else super().fetch_entry(index, offset)
        )


@case(
    "no leaders",
    "7",
    "1,000 partitions without a leader, two with",
    flows=(0, 1),
    assign=1000,
    seconds=4.0,
    requests=400,
)
class Leaderless(Broker):
    partitions = 1000

    def partition_entry(self, topic: str, index: int) -> bytes:
        if index < 2:
            return super().partition_entry(topic, index)
        return struct.pack(">hiiiiii", 5, index, -1, 0, 0, 0, 0)


@case(
    "20,000 partitions",
    "3",
    "a member of 20,000 partitions, two of which have records",
    assign=0,
    flows=(0, 19_999),
    seconds=4.0,
    most_seconds=60.0,
    requests=1000,
)
class ManyPartitions(Broker):
    partitions = 20_000

    def records(self, index: int, offset: int) -> bytes:
        return super().records(index, offset) if index in (0, 19_999) else b""


@case(
    "100,000 partitions that do not exist",
    "3",
    "the group's leader assigns them beside ours",
    assign=0,
    flows=(0, 1, 2),
    overwork=2.0,
    most_seconds=30.0,
)
class NotThere(Broker):
    def sync(self, request: Request) -> bytes:
        return self.synced(assignment({"t": range(self.partitions), "none": range(100_000)}))


@case(
    "50,000 partitions of ours that do not exist",
    "3",
    "the group's leader assigns numbers that our topic does not have",
    assign=0,
    flows=(0, 1, 2),
    overwork=2.0,
    most_seconds=30.0,
)
class NotThereOfOurs(Broker):
    def sync(self, request: Request) -> bytes:
        return self.synced(assignment({"t": range(50_000)}))


@case(
    "garbage as an assignment",
    "8",
    "the group's leader assigns random bytes",
    assign=0,
    seconds=3.0,
    may_raise=(*TRANSPORT, "InconsistentGroupProtocolError"),
)
class GarbageAssignment(Broker):
    def sync(self, request: Request) -> bytes:
        return self.synced(random.Random(1).randbytes(500))  # noqa: S311


@case(
    "a fellow's garbage",
    "8",
    "the consumer leads its group, and another member's subscription is random bytes",
    assign=0,
    flows=(0, 1, 2),
)
class GarbageFellow(Broker):
    def join(self, request: Request) -> bytes:
        return self.leads(request, ("fellow", random.Random(2).randbytes(200)))  # noqa: S311


@case(
    "a fellow's typo",
    "8",
    "the consumer leads its group, and another member subscribes to a topic that does not exist",
    assign=0,
    flows=(0, 1, 2),
    enough=1,
    gapless=False,
)
class Typo(Broker):
    def join(self, request: Request) -> bytes:
        return self.leads(request, ("fellow", struct.pack(">h", 0) + array([text("tpyo")]) + struct.pack(">i", -1)))

    def sync(self, request: Request) -> bytes:
        return self.synced(assignment({"t": range(self.partitions)}))


@case(
    "a fellow's user data",
    "8",
    "the consumer leads its group, and another member's user data is a megabyte of random bytes",
    assign=0,
    flows=(0, 1, 2),
)
class UserData(Broker):
    def join(self, request: Request) -> bytes:
        noise = random.Random(3).randbytes(900_000)  # noqa: S311
        known = struct.pack(">h", 1) + array([text("t")]) + struct.pack(">i", len(noise)) + noise + array(())
        return self.leads(request, ("fellow", known))

    def sync(self, request: Request) -> bytes:
        return self.synced(assignment({"t": range(self.partitions)}))


@case(
    "a fellow's 100 MB",
    "8",
    "the consumer leads its group, and another member's subscription is 100 MB",
    assign=0,
    flows=(),
    errors=("FrameTooLargeError",),
    any_error=True,
    seconds=6.0,
)
class HugeFellow(Broker):
    def join(self, request: Request) -> bytes:
        return self.leads(request, ("fellow", bytes(100_000_000)))


@case(
    "60,000 foreign topics",
    "8",
    "the consumer leads its group, and another member subscribes to 60,000 topics, all of which exist",
    assign=0,
    flows=(0, 1, 2),
    most_seconds=90.0,
    settings={"request_timeout": 30.0},
)
class ForeignTopics(Broker):
    count = 60_000

    def topic_entry(self, topic: str) -> bytes:
        if topic == "t":
            return super().topic_entry(topic)
        return struct.pack(">h", 0) + text(topic) + b"\0" + array([self.partition_entry(topic, 0)])

    def join(self, request: Request) -> bytes:
        names = [text(f"other-{number}") for number in range(self.count)]
        known = struct.pack(">h", 1) + array(names) + struct.pack(">i", -1) + array(())
        return self.leads(request, ("fellow", known))


@case(
    "60,000 foreign topics that do not exist",
    "8",
    "the same, and none of them exists",
    assign=0,
    flows=(0, 1, 2),
    most_seconds=90.0,
    settings={"request_timeout": 30.0},
)
class ForeignTypos(ForeignTopics):
    def topic_entry(self, topic: str) -> bytes:
        return Broker.topic_entry(self, topic)


@case(
    "60,000 foreign topics assigned",
    "3",
    "the group's leader assigns 60,000 topics that we do not subscribe to, beside ours",
    assign=0,
    flows=(0, 1, 2),
    most_seconds=90.0,
    settings={"request_timeout": 30.0},
    any_error=True,
)
class ForeignAssignment(Broker):
    def sync(self, request: Request) -> bytes:
        foreign = {f"other-{number}": range(1) for number in range(60_000)}
        return self.synced(assignment({"t": range(self.partitions), **foreign}))


@case(
    "names of 32 KB",
    "9",
    "the metadata name 198 further brokers and 200 further topics, each with a name of 32,000 letters",
    flows=(0, 1, 2),
    most_seconds=90.0,
    settings={"request_timeout": 30.0},
    any_error=True,
)
class LongNames(Broker):
    def metadata(self, request: Request) -> bytes:
        nodes = [struct.pack(">i", 1) + text("127.0.0.1") + struct.pack(">i", self.port) + text(None)]
        nodes += [
            struct.pack(">i", n) + text("h" * 32_000) + struct.pack(">i", 9092) + text(None) for n in range(2, 200)
        ]
        names = ["t", *("x" * 31_990 + f"-{number}" for number in range(200))]
        topics = [self.topic_entry("t"), *(struct.pack(">h", 3) + text(each) + b"\0" + array(()) for each in names[1:])]
        return bytes(4) + array(nodes) + text("c") + struct.pack(">i", 1) + array(topics)


class ManyTopics(Broker):
    """count: of topics besides, each of which has so many `parts`."""

    count, parts = 100_000, 0

    @functools.cached_property
    def others(self) -> bytes:
        has = array([super(ManyTopics, self).partition_entry("x", number) for number in range(self.parts)])
        names = (b"x%06d" % number for number in range(self.count))
        return b"".join(b"\0\0\0\7" + name + b"\0" + has for name in names)

    def metadata(self, request: Request) -> bytes:
        nodes = [struct.pack(">i", 1) + text("127.0.0.1") + struct.pack(">i", self.port) + text(None)]
        head = bytes(4) + array(nodes) + text("c") + struct.pack(">i", 1)
        return head + struct.pack(">i", self.count + 1) + self.topic_entry("t") + self.others


_ways: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("", "in each metadata", {"assign": 3}),
    (", to a pattern", "in each metadata, and the subscription is a pattern", {"assign": 0, "pattern": "t"}),
    (", listed", "in each metadata, and list_topics is called before each poll", {"assign": 3, "lists": True}),
)
for _how, _lie, _more in _ways:
    for _count, _parts, _fits in ((100_000, 0, True), (50_000, 1, True), (1_000_000, 0, False), (400, 800, False)):
        case(
            f"{_count:,} topics of {_parts} partitions{_how}",
            "9",
            f"{_count:,} topics that nobody requested, partitions of each: {_parts}; {_lie}",
            flows=(0, 1, 2) if _fits else (),
            most_seconds=90.0,
            seconds=3.0,
            any_error=True,
            overwork=4.0,
            settings={"request_timeout": 30.0},
            **_more,
        )(type(f"ManyTopics_{_count}_{_parts}", (ManyTopics,), {"count": _count, "parts": _parts}))


# -- names and texts

EVIL = "evil\n2026-01-01 CRITICAL forged\x1b[2J\r"


@case("evil host names", "11", "newlines and ANSI codes in the names of hosts", flows=(0, 1, 2))
class EvilHosts(Broker):
    def nodes(self) -> list[tuple[int, str, int]]:
        return [*super().nodes(), (2, EVIL, 9092), (3, "x" * 30_000, 9092), (4, "127.0.0.1\0x", 9092)]


@case(
    "evil host names that lead",
    "11",
    "the same for a partition's leader",
    flows=(1, 2),
    seconds=3.0,
    may_raise=TRANSPORT,
)
class EvilLeader(EvilHosts):
    def partition_entry(self, topic: str, index: int) -> bytes:
        made = super().partition_entry(topic, index)
        return made if index else made[:6] + struct.pack(">i", 2) + made[10:]


@case(
    "port over 65535", "11", "a leader's port that is ours plus 65536", flows=(1, 2), seconds=3.0, may_raise=TRANSPORT
)
class Port(EvilLeader):
    def nodes(self) -> list[tuple[int, str, int]]:
        return [(1, "127.0.0.1", self.port), (2, "127.0.0.1", self.port + 65536)]

    def fetch_entry(self, index: int, offset: int) -> bytes:
        assert index, "it was reached by a port that wraps"
        return super().fetch_entry(index, offset)


@case(
    "300 names",
    "4",
    "300 brokers, each of which leads a partition and has a name that does not resolve",
    flows=(299,),
    assign=300,
    seconds=4.0,
    may_raise=TRANSPORT,
)
class Names(Broker):
    partitions = 300

    def nodes(self) -> list[tuple[int, str, int]]:
        return [*((n + 2, f"broker-{n}.invalid", 9092) for n in range(299)), (1, "127.0.0.1", self.port)]

    def partition_entry(self, topic: str, index: int) -> bytes:
        made = super().partition_entry(topic, index)
        return made if index == 299 else made[:6] + struct.pack(">i", index + 2) + made[10:]


@case(
    "endless error text",
    "11",
    "FindCoordinator refuses with 30,000 characters",
    assign=0,
    errors=("GroupAuthorizationFailedError",),
    seconds=2.0,
)
class LongText(Broker):
    def coordinator(self, _: Request) -> bytes:
        return (
            struct.pack(">ih", 0, 30)
            + text(EVIL + "x" * 30_000)
            + struct.pack(">i", -1)
            + text("")
            + struct.pack(">i", -1)
        )


@case(
    "evil mechanisms",
    "11",
    "newlines and ANSI codes in the names of mechanisms",
    settings=SASL,
    errors=("UnsupportedSaslMechanismError",),
)
class EvilMechanisms(Broker):
    sasl = True

    def sasl_handshake(self, _: Request) -> bytes:
        return struct.pack(">h", 33) + array([text(EVIL), text(SECRET), text("x" * 30_000)])


class Echo(Broker):
    sasl = True
    said = ""

    def sasl_authenticate(self, _: Request) -> bytes:
        return struct.pack(">h", 58) + text(self.said) + struct.pack(">iq", 0, 0)


for _form, _said in {
    "plain": SECRET,
    "base64": base64.b64encode(f"\0reader\0{SECRET}".encode()).decode(),
    "URL-quoted": quote(SECRET, safe=""),
    "hex": SECRET.encode().hex(),
    "in part": SECRET[4:],
}.items():
    case(
        f"secret echoed, {_form}",
        "11",
        f"the broker repeats the password, {_form}",
        settings=SASL,
        errors=("SaslAuthenticationFailedError",),
        secrets=(_said, _said[2:-2]),
    )(type(f"Echo_{_form}", (Echo,), {"said": f"refused: {_said}."}))


@case(
    "a token for 10^400 seconds",
    "11",
    "expires_in: 10^400",
    settings={"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "sasl_plain_without_tls": True},
    token_life=400,
    errors=("AuthenticationError",),
)
class Token(Broker):
    sasl = True


SCRAM = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_username": "reader",
    "sasl_password": SECRET,
}
BEARER = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_plain_without_tls": True,
}


class Stalls(Broker):
    """Authentication does not go on. after: so many messages of it were responded to, the handshake the first."""

    sasl, after = True, 0

    def sasl_handshake(self, _: Request) -> bytes:
        if self.after == 0:
            self.stall()
        names = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
        return struct.pack(">h", 0) + array(map(text, names))

    def sasl_authenticate(self, request: Request) -> bytes:
        client_nonce = bytes(request["auth_bytes"]).partition(b"r=")[2]
        if self.after == 1 or b",p=" in bytes(request["auth_bytes"]):
            self.stall()
        first = b"r=%sbroker,s=%s,i=4096" % (client_nonce, base64.b64encode(b"salt-of-the-user"))
        return struct.pack(">hhi", 0, -1, len(first)) + first + bytes(8)

    def stall(self) -> None:
        threading.Event().wait(30.0)  # longer than the victim waits
        raise OSError("nothing more is sent")


for _mechanism, _settings, _life, _messages in (
    ("PLAIN", SASL, 0, 2),
    ("SCRAM", SCRAM, 0, 3),
    ("OAUTHBEARER", BEARER, 2, 2),
):
    for _after in range(_messages):
        case(
            f"SASL stalls, {_mechanism}, {_after}",
            "9",
            f"{_mechanism}: messages of the authentication that get a response: {_after}",
            settings={**_settings, "connection_setup_timeout": 0.5},
            token_life=_life,
            may_raise=TRANSPORT,
            told="within connection_setup_timeout: SASL authentication has not ended",
            secrets=(SECRET,),
            seconds=2.5,
        )(type(f"Stalls_{_mechanism}_{_after}", (Stalls,), {"after": _after}))


@case(
    "SASL stalls anew",
    "9",
    "the broker wants authentication anew each second, and the first connection gets no response to it",
    settings={**SASL, "request_timeout": 1.0},
    flows=(0, 1, 2),
    may_raise=TRANSPORT,
    told="within request_timeout",
    secrets=(SECRET,),
    most_seconds=40.0,
)
class StallsAnew(Stalls):
    """There is nothing to read before it has stalled."""

    def __init__(self) -> None:
        self.stalled = False
        self.proofs = threading.local()
        super().__init__()

    def sasl_handshake(self, _: Request) -> bytes:
        return struct.pack(">h", 0) + array([text("PLAIN")])

    def sasl_authenticate(self, _: Request) -> bytes:
        if getattr(self.proofs, "given", False) and not self.stalled:
            self.stalled = True
            self.stall()
        self.proofs.given = True
        return struct.pack(">hhiq", 0, -1, 0, 1000)

    def records(self, index: int, offset: int) -> bytes:
        return super().records(index, offset) if self.stalled else b""


@case(
    "authentication anew at once",
    "9",
    "each proof of SCRAM takes 1,000,000 iterations, and is good for a thousandth of a second",
    settings=SCRAM,
    flows=(0, 1, 2),
    may_raise=TRANSPORT,
    secrets=(SECRET,),
    overwork=3.0,
    seconds=6.0,
    most_seconds=60.0,
)
class AnewAtOnce(Broker):
    sasl = True

    def __init__(self) -> None:
        self.first = threading.local()
        super().__init__()

    def sasl_handshake(self, _: Request) -> bytes:
        return struct.pack(">h", 0) + array([text("SCRAM-SHA-512")])

    def sasl_authenticate(self, request: Request) -> bytes:
        said, salt = bytes(request["auth_bytes"]), b"salt-of-the-user"
        if b",p=" in said:
            made = self.proof(said)
        else:
            bare = said.partition(b",,")[2]
            made = b"r=%sbroker,s=%s,i=1000000" % (bare.partition(b"r=")[2], base64.b64encode(salt))
            self.first.said = bare + b"," + made
        return struct.pack(">hhi", 0, -1, len(made)) + made + struct.pack(">q", 1)

    def proof(self, said: bytes) -> bytes:
        whole = self.first.said + b"," + said.partition(b",p=")[0]
        return b"v=" + base64.b64encode(hmac.digest(scram_key(b"salt-of-the-user"), whole, "sha512"))


@functools.cache
def scram_key(salt: bytes) -> bytes:
    return hmac.digest(hashlib.pbkdf2_hmac("sha512", SECRET.encode(), salt, 1_000_000), b"Server Key", "sha512")


@case(
    "TLS stalls",
    "9",
    "accepts connections, and does not respond to the TLS handshake",
    settings={"security_protocol": "SSL", "connection_setup_timeout": 0.5},
    may_raise=TRANSPORT,
    told="within connection_setup_timeout: the TLS handshake has not ended",
    seconds=2.5,
)
class TlsStalls(Broker):
    def _serve(self, peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError):
            while peer.recv(1 << 16):
                pass


_HAPPENS = {
    "flipped": "has a flipped bit",
    "cut": "is cut off",
    "late": "arrives late",
    "twice": "arrives twice",
    "shortened": "lacks some bytes",
    "swapped": "has two parts swapped",
}


class TlsBroker(Broker):
    """Speaks TLS. What it sends is damaged on its way, by `damage` of the proxy's: ciphertext, and handshakes too."""

    damage = "late"
    share = 0.05

    def __init__(self) -> None:
        authority = trustme.CA()
        self._folder = TemporaryDirectory(prefix="instride-attack-")
        file = Path(self._folder.name, "ca.pem")
        authority.cert_pem.write_to_path(file)
        self.settings = {"security_protocol": "SSL", "ssl_ca_file": str(file)}
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(self._context)
        self._dice = random.Random(self.damage)  # noqa: S311
        super().__init__()

    def close(self) -> None:
        super().close()
        self._folder.cleanup()

    def _serve(self, peer: socket.socket) -> None:
        """Between the peer and the one who speaks TLS goes what the network makes of it."""
        outer, inner = socket.socketpair()
        for source, sink, change in ((peer, outer, _as_it_is), (outer, peer, self._damaged)):
            threading.Thread(target=passed, args=(source, sink, change), daemon=True).start()
        with contextlib.suppress(OSError), self._context.wrap_socket(inner, server_side=True) as stream:
            super()._serve(stream)

    def _damaged(self, data: bytes) -> tuple[bytes, bool]:
        if self._dice.random() >= self.share:
            return data, False
        return DAMAGES[self.damage](self._dice, data)


def _as_it_is(data: bytes) -> tuple[bytes, bool]:
    return data, False


# A record is delivered as it was written or not at all, and the next connection goes on where the last one ended.
for _damage, _happens in _HAPPENS.items():
    case(
        f"TLS, {_damage}",
        "5",
        f"a twentieth of what is received over TLS {_happens}, handshakes too",
        flows=(0, 1, 2),
        enough=100,
        may_raise=TRANSPORT,
        seconds=3.0,
        most_seconds=60.0,
        requests=2000,
    )(type(f"Tls_{_damage}", (TlsBroker,), {"damage": _damage}))


@case(
    "TLS, silent after the handshake",
    "9",
    "the TLS handshake succeeds, and the broker sends nothing after it",
    settings={"request_timeout": 1.0},
    may_raise=TRANSPORT,
    told="within connection_setup_timeout",
    seconds=2.5,
)
class TlsSilence(TlsBroker):
    share = 0.0

    def response(self, frame: bytes) -> bytes:
        threading.Event().wait(30.0)
        raise OSError("nothing more is sent")


@case(
    "TLS, no goodbye",
    "9",
    "each connection ends after six responses, without a close_notify",
    flows=(0, 1, 2),
    may_raise=TRANSPORT,
    seconds=3.0,
    most_seconds=60.0,
    requests=2000,
)
class TlsEnds(TlsBroker):
    share = 0.0

    def response(self, frame: bytes) -> bytes:
        if frame[1] == 1 and self.requested[1] % 6 == 5:
            self.requested[1] += 1
            raise OSError("the connection ends")
        return super().response(frame)


@case(
    "1,000 addresses",
    "4",
    "the broker's name has 1,000 addresses, the last of which alone takes connections",
    host="many.invalid",
    addresses=1000,
    flows=(0, 1, 2),
    may_raise=TRANSPORT,
    seconds=2.0,
)
class ManyAddresses(Broker):
    pass


@case(
    "a byte a second",
    "7",
    "each response to a fetch comes at one byte a second, while a member's heartbeats are due",
    assign=0,
    settings={"request_timeout": 1.0, "session_timeout": 6.0, "heartbeat_interval": 0.3},
    seconds=8.0,
    may_raise=TRANSPORT,
)
class Dribbles(Broker):
    def _serve(self, peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError, struct.error), peer.makefile("rb") as stream:
            while len(head := stream.read(4)) == 4:
                frame = stream.read(struct.unpack(">i", head)[0])
                made = self.response(frame)
                if frame[:2] != b"\0\1":
                    peer.sendall(made)
                    continue
                for at in range(len(made)):
                    peer.sendall(made[at : at + 1])
                    threading.Event().wait(1.0)


@case(
    "half closed",
    "7",
    "the broker ends its half of each connection after four responses, and goes on reading",
    flows=(0, 1, 2),
    seconds=3.0,
    may_raise=TRANSPORT,
    requests=2000,
)
class HalfClosed(Broker):
    def _serve(self, peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError, struct.error), peer.makefile("rb") as stream:
            for _ in range(4):
                (size,) = struct.unpack(">i", stream.read(4))
                peer.sendall(self.response(stream.read(size)))
            peer.shutdown(socket.SHUT_WR)
            while stream.read(1):
                pass


@case(
    "aborted transactions at absurd offsets",
    "5",
    "each fetch response lists aborted transactions with impossible producer ids and offsets",
    settings={"isolation_level": "read_committed"},
    flows=(0, 1, 2),
)
class AbsurdlyAborted(Broker):
    def fetch_entry(self, index: int, offset: int) -> bytes:
        top = (1 << 63) - 1
        aborted = b"".join(struct.pack(">qq", *each) for each in ((-1, top), (top, -top), (7, -1), (-top, 0), (7, top)))
        records = self.records(index, offset)
        # With nothing at the end of the log: else this broker would not wait there, as one with nothing new does.
        return self.fetched_entry(index, records, aborted=aborted if records else b"")


@case(
    "16 MiB of nothing with each response",
    "9",
    "each response, except those to fetches, is followed by zeros up to 16 MiB, and a membership is awaited",
    assign=0,
    any_error=True,
    seconds=4.0,
    overwork=3.0,
    most_seconds=40.0,
    requests=2000,
)
class Padded(Broker):
    def response(self, frame: bytes) -> bytes:
        made = super().response(frame)
        if frame[:2] in (b"\0\1", b"\0\x12"):
            return made
        return struct.pack(">i", 16 << 20) + made[4:] + bytes((16 << 20) + 4 - len(made))


# -- scarce resources


@case(
    "no files left",
    "4",
    "EMFILE: no further descriptor, from the start",
    limits={"RLIMIT_NOFILE": 0},
    errors=("TransportError",),
    may_raise=TRANSPORT,
    seconds=1.0,
)
class NoFiles(Broker):
    pass


@case(
    "few files left",
    "4",
    "room for the consumer's own descriptors and one connection",
    limits={"RLIMIT_NOFILE": 5},
    flows=(0, 1, 2),
    may_raise=TRANSPORT,
)
class FewFiles(Broker):
    pass


@case(
    "files end at once",
    "4",
    "no further descriptor, once the consumer has started and before the first response",
    limits={"RLIMIT_NOFILE": 0},
    limit_later=True,
    host="localhost",
    may_raise=TRANSPORT,
    seconds=2.0,
    requests=4000,
)
class FilesEnd(Broker):
    pass


@case(
    "files end while it reconnects",
    "4",
    "room for three descriptors, and the broker hangs up after six responses, again and again",
    limits={"RLIMIT_NOFILE": 3},
    limit_later=True,
    host="localhost",
    flows=(0, 1, 2),
    may_raise=TRANSPORT,
    seconds=2.0,
    requests=4000,
)
class HangsUp(Broker):
    def _serve(self, peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError, struct.error), peer.makefile("rb") as stream:
            for _ in range(6):
                (size,) = struct.unpack(">i", stream.read(4))
                peer.sendall(self.response(stream.read(size)))


@case(
    "no threads left",
    "4",
    "no thread can be started",
    no_threads=True,
    host="localhost",
    errors=("TransportError",),
    may_raise=TRANSPORT,
)
class NoThreads(Broker):
    pass


@case(
    "no threads for names",
    "4",
    "no further thread can be started, and names are to be looked up",
    no_threads=True,
    limit_later=True,
    host="localhost",
    may_raise=TRANSPORT,
    seconds=3.0,
)
class NoThreadsForNames(Broker):
    pass


@case(
    "little memory",
    "4",
    "400 MiB of address space, and compressible lines of 50 partitions",
    assign=50,
    flows=(0, 49),
    values=False,
    limits={"RLIMIT_AS": 400 << 20},
    may_raise=(*TRANSPORT, "CorruptRecordError"),
    settings={"max_poll_records": 500},
    seconds=3.0,
)
class LittleMemory(LogLines):
    pass


@case(
    "too little memory",
    "4",
    "40 MiB of address space, and values of 60 MB in all three partitions",
    limits={"RLIMIT_AS": 40 << 20},
    limit_later=True,
    values=False,
    errors=("TransportError",),
    may_raise=TRANSPORT,
    seconds=3.0,
)
class TooLittleMemory(LargestValues):
    partitions = 3


# -- a damaging network

for _damage in ("flipped", "cut", "late", "twice"):
    case(
        f"network, {_damage}",
        "5",
        f"a tenth of what is received {_HAPPENS[_damage]}",
        damages=(_damage,),
        seconds=6.0,
        flows=(0, 1, 2) if _damage != "flipped" else (),
        enough=1,
        # Flipped bits of names, numbers and error codes are within what a broker may say: TLS is what tells them apart.
        values=_damage != "flipped",
        gapless=_damage != "flipped",
        may_raise=(
            *TRANSPORT,
            *(
                (
                    "CorruptRecordError",
                    "BrokerResponseError",
                    "UnknownTopicOrPartitionError",
                    "OffsetOutOfRangeError",
                    "InvalidTopicError",
                    "UnsupportedVersionError",
                    "TopicAuthorizationFailedError",
                )
                if _damage == "flipped"
                else ()
            ),
        ),
        requests=2000,
    )(type(f"Network_{_damage}", (Broker,), {}))
