"""Brokers that lie by a script, in virtual time: while they lie nothing spins, and once they cease all is read."""

from __future__ import annotations

import struct
from itertools import count
from typing import Any

import pytest
from crc32c import crc32c

from attack.broker import Request
from attack.bytes_of import array, assignment, batch, compact_array, compact_bytes, record, text
from attack.virtual import Damaged, SilentBroker
from instride.errors import ErrorCode

LASTS = 10.0
BOUND = 60.0
MEMBERS = [False, True]
FETCH = 1
# How a frame of zstd begins that wants so much.
WINDOW_OF_2_GIB = b"\x28\xb5\x2f\xfd\0\xa8"


class Liar(SilentBroker):
    """lies: while it does. turn: rises with each lie."""

    lies = True

    def __init__(self) -> None:
        super().__init__()
        self.turn = count()

    def nodes(self) -> list[tuple[int, str, int]]:
        return [(node, "127.0.0.1", self.port) for node in (1, 2, 3)]


class OldSessions(Liar):
    """Each fetch gets a response under the session of another one, with what was requested of its partitions."""

    def fetch(self, request: Request) -> bytes:
        made = super().fetch(request)
        if not self.lies:
            return made
        session = (7, 8, 0, request["session_id"], -1, 1 << 30)[next(self.turn) % 6]
        return made[:6] + struct.pack(">i", session) + made[10:]


class Endless(Liar):
    """Each response asks for patience, as long as a number goes."""

    def body(self, key: int, version: int, rest: bytes) -> bytes:
        made = super().body(key, version, rest)
        return struct.pack(">i", (1 << 31) - 1) + made[4:] if self.lies and key != 18 else made


class Flapping(Liar):
    """In each metadata another broker leads, and the leader epoch goes up and down."""

    def partition_entry(self, topic: str, index: int) -> bytes:
        if not self.lies:
            return super().partition_entry(topic, index)
        turn = next(self.turn)
        return struct.pack(">hiiiiiiii", 0, index, turn % 3 + 1, (9, 0, 3, 8, 1)[turn % 5], 1, 1, 1, 1, 0)


class FlappingAndRefusing(Flapping):
    """Besides, whoever is asked says that another one leads."""

    def fetch_entry(self, index: int, offset: int) -> bytes:
        errors = (
            0,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            0,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )
        error = errors[next(self.turn) % len(errors)] if self.lies else 0
        return self.fetched_entry(index, b"", error=error) if error else super().fetch_entry(index, offset)


class Wandering(Liar):
    """In each response another broker is the coordinator, and whoever is asked denies it now and then."""

    def coordinator(self, _: Request) -> bytes:
        node = next(self.turn) % 3 + 1 if self.lies else 1
        address = struct.pack(">i", node) + text("127.0.0.1") + struct.pack(">i", self.port)
        return struct.pack(">ih", 0, 0) + text(None) + address

    def heartbeat_error(self) -> int:
        return (16, 0, 14, 15, 16)[next(self.turn) % 5] if self.lies else 0

    def join(self, request: Request) -> bytes:
        made = super().join(request)
        return made[:4] + struct.pack(">h", 16) + made[6:] if self.lies and next(self.turn) % 2 else made


class Numbered(Liar):
    """Responses bear the number of the one before, of none, or come twice."""

    def __init__(self) -> None:
        super().__init__()
        self.before = b""

    def response(self, frame: bytes) -> bytes:
        made, before = super().response(frame), self.before
        self.before = made
        if not self.lies or frame[:2] == b"\0\x12":
            return made
        return (
            made,
            made + made,
            made[:4] + before[4:8] + made[8:] if before else made,
            before + made,
            made[:4] + struct.pack(">i", -1) + made[8:],
            made,
        )[next(self.turn) % 6]


class Downgraded(Liar):
    """Each connection hears of other versions: none of an API, upside down, below zero, twice; and ends soon."""

    def versions(self, version: int) -> bytes:
        made = super().versions(version)
        if not self.lies:
            return made
        turn = next(self.turn) % 6
        offered = [made[at : at + 6] for at in range(6, len(made), 6)]
        wrong = {
            0: offered,
            1: [each for each in offered if each[:2] != b"\0\1"],
            2: [each[:2] + each[4:6] + b"\0\0" for each in offered],
            3: [each[:2] + b"\xff\xfe\xff\xff" for each in offered],
            4: [*offered, *offered],
            5: [each for each in offered if each[:2] == b"\0\x12"],
        }[turn]
        return made[:2] + array(wrong)

    def body(self, key: int, version: int, rest: bytes) -> bytes:
        if self.lies and key != 18 and next(self.turn) % 7 == 0:
            raise KeyError(key)  # it hangs up
        return super().body(key, version, rest)


class BackInTime(Liar):
    """The ends of the log, and those of its epochs, are others in each response."""

    def list_offsets(self, request: Request) -> bytes:
        return self.moved(super().list_offsets, request)

    def epoch_ends(self, request: Request) -> bytes:
        return self.moved(super().epoch_ends, request)

    def moved(self, respond: Any, request: Request) -> bytes:
        end = self.end
        try:
            self.end = (end, 0, end // 2, 1 << 62, 1)[next(self.turn) % 5] if self.lies else end
            made: bytes = respond(request)
            return made
        finally:
            self.end = end

    def fetch_entry(self, index: int, offset: int) -> bytes:
        error = ErrorCode.OFFSET_OUT_OF_RANGE if self.lies and next(self.turn) % 4 == 0 else 0
        return self.fetched_entry(index, b"", error=error) if error else super().fetch_entry(index, offset)


class Preferring(Liar):
    """Every fetch is sent to another replica: to one that is there, in a ring, and to some that are not."""

    def fetched_entry(self, index: int, records: bytes, **more: Any) -> bytes:
        made = super().fetched_entry(index, records, **more)
        if not self.lies:
            return made
        node = struct.pack(">i", (2, 3, 1, 77, (1 << 31) - 1, -5, 0)[next(self.turn) % 7])
        return made[: -len(records) - 8] + node + struct.pack(">i", 0)


class Watermarks(Liar):
    """The ends of the log in a fetch go below its start, below what was read, and below zero; the start goes above."""

    def fetched_entry(self, index: int, records: bytes, **more: Any) -> bytes:
        made = super().fetched_entry(index, records, **more)
        if not self.lies:
            return made
        ends = ((0, 0, 0), (-1, -1, -1), (-(1 << 63), 5, 5), (50, 200, 150), ((1 << 63) - 1, -1, 1 << 62))
        return made[:6] + struct.pack(">qqq", *ends[next(self.turn) % 5]) + made[30:]


def sealed(made: bytes, at: int, part: bytes) -> bytes:
    """The batch with these bytes in place of those, and its checksum right."""
    made = made[:at] + part + made[at + len(part) :]
    return made[:17] + struct.pack(">I", crc32c(made[21:])) + made[21:]


class Batches(Liar):
    """Batches that are not what they say: their checksums are right."""

    def records(self, index: int, offset: int) -> bytes:
        made = super().records(index, offset)
        if not self.lies or not made:
            return made
        base, count = struct.unpack_from(">q", made)[0], 10
        inner = b"".join(record(n, b"%d:%d" % (index, base + n)) for n in range(count))
        zstd, lz4, snappy = (batch(base, inner, count, codec) for codec in ("zstd", "lz4", "snappy"))
        xerial = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
        lies = (
            sealed(made, 57, struct.pack(">i", count + 1)),  # one record more than there are
            sealed(made, 57, struct.pack(">i", count - 1)),
            sealed(made, 57, struct.pack(">i", -count)),
            sealed(made, 57, struct.pack(">i", (1 << 31) - 1)),
            sealed(made, 23, struct.pack(">i", count - 2)),  # a last offset before its last record's
            sealed(made, 23, struct.pack(">i", (1 << 31) - 1)),
            sealed(made, 23, struct.pack(">i", -5)),
            sealed(made, 27, struct.pack(">qq", (1 << 63) - 1, -(1 << 63))),  # times
            sealed(made, 21, struct.pack(">h", 0x30)),  # a control batch, of no type that is known
            sealed(made, 21, struct.pack(">h", 7)),  # a codec that is none
            sealed(made, 21, struct.pack(">h", -1)),
            sealed(made, 16, b"\3"),  # a format that is not there yet
            sealed(made, 16, b"\1"),
            batch(base, zstd, count, "zstd"),  # a batch within a batch
            batch(base, zstd[61:], count, "lz4"),
            batch(base, inner, count, "gzip")[:-4],  # cut off: the next one does not come
            resized(lz4, lz4[61:-4]),  # no end of its frame
            resized(lz4, lz4[61:] * 2),  # two frames
            resized(snappy, xerial + struct.pack(">i", -1) + snappy[61:]),
            resized(snappy, xerial + struct.pack(">i", 0) * 2000),
            resized(snappy, b"\xff\xff\xff\xff\x0f" + snappy[62:]),  # four gigabytes, it says
            resized(
                zstd, b"\x28\xb5\x2f\xfd\0\xa8" + struct.pack("<I", len(inner) << 3 | 1)[:3] + inner
            ),  # a window of 2 GiB
        )
        return lies[next(self.turn) % len(lies)]


def resized(made: bytes, packed: bytes) -> bytes:
    """The batch with other compressed records."""
    made = made[:61] + packed
    return sealed(made, 8, struct.pack(">i", len(made) - 12))


class Memberships(Liar):
    """Each join tells another generation, member id, leader and protocol: from the past, endless, none."""

    def joined(self, request: Request, **more: Any) -> bytes:
        if not self.lies:
            return super().joined(request, **more)
        turn = next(self.turn)
        protocol = ("range", "", "evil\n\x1b[2J", request["protocols"][0]["name"], "x" * 30_000)[turn % 5]
        leader = ("me", "other", "", "x" * 30_000, "me")[turn % 5]
        member = ("me", "x" * 30_000, "", "you", "evil\n\x1b[2J")[turn % 5]
        generation = ((1 << 31) - 1, 1, -1, 0, 7)[turn % 5]
        listed = ([], ["me"], ["me", "me"], ["you"], ["", "x" * 30_000])[(turn // 5) % 5]
        members = (text(name) + text(None) + struct.pack(">i", -1 + (name == "me")) for name in listed if name != "")
        head = struct.pack(">ihi", 0, 0, generation) + text(protocol) + text(leader) + text(member)
        return head + array(members if turn % 2 else ())


class Assignments(Liar):
    """Each sync assigns something that cannot be."""

    def sync(self, request: Request) -> bytes:
        if not self.lies:
            return super().sync(request)
        top = (1 << 31) - 1
        given = (
            assignment({"t": [0, 0, 1, 1, 2]}),
            assignment({"t": [-1, -top]}),
            assignment({"t": [top]}),
            assignment({"": [0]}),
            assignment({"x" * 30_000: [0]}),
            assignment({"evil\n\x1b[2J": [0]}),
            struct.pack(">hi", -1, 0),
            struct.pack(">hi", 0, -5),
            struct.pack(">hi", 32767, top),
            b"",
            assignment({"t": range(3)}, b"x" * 30_000),
        )
        return self.synced(given[next(self.turn) % len(given)])

    def heartbeat_error(self) -> int:
        return (27, 0, 82, 22, 9999, 25, -32768)[next(self.turn) % 7] if self.lies else 0


class Committed(Liar):
    """Committed offsets that no log has, for partitions twice, and their texts are long."""

    def committed(self, request: Request) -> bytes:
        made = super().committed(request)
        if not self.lies:
            return made
        offset = (-2, (1 << 63) - 1, -(1 << 63), 10**6, 201)[next(self.turn) % 5]
        entries = [struct.pack(">iqi", n, offset, -7) + text("y" * 20_000) + bytes(2) for n in (0, 0, 1, 2, -1)]
        return bytes(4) + array([text("t") + array(entries)]) + bytes(2)


class Doubled(Liar):
    """Topics and partitions twice in the metadata, with other leaders, numbers below zero, brokers twice."""

    def nodes(self) -> list[tuple[int, str, int]]:
        more = [(1, "other.invalid", 9092), (-3, "127.0.0.1", self.port), (2, "", 0)]
        return [*super().nodes(), *(more if self.lies else ())]

    def topic_entry(self, topic: str) -> bytes:
        if not self.lies or topic != "t":
            return super().topic_entry(topic)
        top = (1 << 31) - 1
        numbers = ((0, 0, 1, 2), (-1, 0, 1, 2), (top, -top), (), (2, 1, 0))[next(self.turn) % 5]
        entries = (
            struct.pack(">hiiiiiiii", 0, number, (1, -9, 5)[place % 3], -place, 1, 1, 1, 1, 0)
            for place, number in enumerate(numbers)
        )
        return bytes(2) + text(topic) + b"\1" + array(entries)


class Hopeless(Liar):
    """Of every partition all is well, but for an error that is not known."""

    def fetch_entry(self, index: int, offset: int) -> bytes:
        if not self.lies:
            return super().fetch_entry(index, offset)
        return self.fetched_entry(
            index, self.records(index, offset), error=(999, -32768, -1, 32767)[next(self.turn) % 4]
        )


class OtherEpochs(Liar):
    """Batches of leader epochs that go back and forth, and the ends of epochs that go with them."""

    def records(self, index: int, offset: int) -> bytes:
        made = super().records(index, offset)
        epoch = (9, 0, -1, (1 << 31) - 1, -(1 << 31))[next(self.turn) % 5]
        return made[:12] + struct.pack(">i", epoch) + made[16:] if self.lies and made else made

    def epoch_ends(self, request: Request) -> bytes:
        made = super().epoch_ends(request)
        return made[:-12] + struct.pack(">iq", -9, -7) if self.lies and next(self.turn) % 2 else made


def an_id(number: int) -> bytes:
    return struct.pack(">qq", 7, number)


class Identified(Liar):
    """Speaks the versions in which topics have ids. In each metadata the topic has another one: a new one, an old one,
    none. A fetch by another id than the last is refused now and then, and gets a response with another id.
    """

    def __init__(self) -> None:
        super().__init__()
        self.topic_id = an_id(1)

    def versions(self, version: int) -> bytes:
        made = super().versions(version)
        return made.replace(struct.pack(">hhh", 3, 5, 7), struct.pack(">hhh", 3, 5, 12)).replace(
            struct.pack(">hhh", 1, 11, 11), struct.pack(">hhh", 1, 11, 13)
        )

    def response(self, frame: bytes) -> bytes:
        made, (key, version) = super().response(frame), struct.unpack_from(">hh", frame)
        if (key, version) not in ((3, 12), (1, 13)):
            return made
        return struct.pack(">i", len(made) - 3) + made[4:8] + b"\0" + made[8:]  # fields that are tagged: none

    def body(self, key: int, version: int, rest: bytes) -> bytes:
        # The client's id came before the fields that are tagged, of which there are none.
        return super().body(key, version, rest[1:] if (key, version) in ((3, 12), (1, 13)) else rest)

    def metadata(self, request: Request) -> bytes:
        if self.asking.version < 12:
            return super().metadata(request)
        if self.lies:
            turn = next(self.turn)
            self.topic_id = (an_id(turn + 2), an_id(turn + 2), an_id(1), bytes(16), an_id(turn + 2))[turn % 5]
        nodes = (
            struct.pack(">i", node) + compact_bytes(host.encode()) + struct.pack(">i", port) + b"\0\0"
            for node, host, port in self.nodes()
        )
        replicas = compact_array([struct.pack(">i", 1)])
        partitions = (
            struct.pack(">hiii", 0, index, 1, 0) + replicas * 2 + compact_array(()) + b"\0"
            for index in range(self.partitions)
        )
        topic = bytes(2) + compact_bytes(b"t") + self.topic_id + b"\0" + compact_array(partitions)
        topics = compact_array([topic + struct.pack(">i", -1) + b"\0"])
        return bytes(4) + compact_array(nodes) + compact_bytes(b"c") + struct.pack(">i", 1) + topics + b"\0"

    def fetch(self, request: Request) -> bytes:
        if self.asking.version < 13:
            return super().fetch(request)
        topics, turn = [], next(self.turn)
        for topic in request["topics"]:
            wrong = topic["topic_id"].bytes != self.topic_id
            error = (
                (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)[turn % 2]
                if wrong and (not self.lies or turn % 3)
                else 0
            )
            self.asking.most = 1 << 20
            entries = [self.identified(each["partition"], each["fetch_offset"], error) for each in topic["partitions"]]
            told = an_id(turn) if self.lies and turn % 7 == 0 else topic["topic_id"].bytes
            topics.append(told + compact_array(entries) + b"\0")
        self.fetched[0] += 1
        error = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR if self.lies and turn % 11 == 0 else 0
        return struct.pack(">ihi", 0, error, 0) + compact_array(topics) + b"\0"

    def identified(self, index: int, offset: int, error: int) -> bytes:
        records = b"" if error else self.records(index, offset)
        head = struct.pack(">ihqqq", index, error, self.end, self.end, 0)
        return head + compact_array(()) + struct.pack(">i", -1) + compact_bytes(records) + b"\0"


ALL = [
    Identified,
    Preferring,
    Watermarks,
    Batches,
    Memberships,
    Assignments,
    Committed,
    Doubled,
    Hopeless,
    OtherEpochs,
    OldSessions,
    Endless,
    Flapping,
    FlappingAndRefusing,
    Wandering,
    Numbered,
    Downgraded,
    BackInTime,
]


# What has to do with groups, or with nothing of them, is told to whom it may concern.
ONLY = {Preferring: False, Watermarks: False, Batches: False, Hopeless: False, OtherEpochs: False} | dict.fromkeys(
    (Memberships, Assignments, Committed), True
)


@pytest.mark.parametrize(
    ("broker", "member"),
    [
        pytest.param(each, member, id=f"{each.__name__}-{member}")
        for each in ALL
        for member in MEMBERS
        if ONLY.get(each, member) == member
    ],
)
def test_a_broker_that_lies_by_a_script_spins_nobody_and_all_is_read_once_it_ceases(
    broker: type[Liar], *, member: bool
) -> None:
    world = Damaged((), 0, share=0.0, until=LASTS, member=member, broker=broker)
    liar = world.broker
    assert isinstance(liar, Liar)
    world.begin()
    world.read(LASTS)
    assert liar.requested[FETCH] <= 310 * LASTS, "one under way at each of three brokers, which respond in 10 ms"
    assert sum(liar.requested.values()) - liar.requested[FETCH] < 30 * LASTS, "patience"
    liar.lies = False
    world.begin_again()
    assert world.read(BOUND, world.all_read), (world.now, world.errors, {k: len(v) for k, v in world.records.items()})
    assert world.wrong == []
