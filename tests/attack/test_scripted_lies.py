"""Brokers that lie by a script, in virtual time: while they lie nothing spins, and once they cease all is read."""

from __future__ import annotations

import struct
from itertools import count
from typing import Any

import pytest

from attack.broker import Request
from attack.bytes_of import array, text
from attack.virtual import Damaged, SilentBroker

LASTS = 10.0
BOUND = 60.0
MEMBERS = [False, True]
FETCH = 1


class Liar(SilentBroker):
    """lies: while it does. turn: rises with each lie."""

    lies = True

    def __init__(self) -> None:
        super().__init__()
        self.turn = count()

    def nodes(self) -> list[tuple[int, str, int]]:
        return [(node, "127.0.0.1", self.port) for node in (1, 2, 3)]


class OldSessions(Liar):
    """Each fetch is answered under the session of another one, and with what its partitions asked for."""

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
        errors = (0, 6, 74, 75, 0, 76)
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
        error = 1 if self.lies and next(self.turn) % 4 == 0 else 0
        return self.fetched_entry(index, b"", error=error) if error else super().fetch_entry(index, offset)


ALL = [
    OldSessions,
    Endless,
    Flapping,
    FlappingAndRefusing,
    Wandering,
    Numbered,
    Downgraded,
    BackInTime,
]


@pytest.mark.parametrize("broker", ALL, ids=lambda each: each.__name__)
@pytest.mark.parametrize("member", MEMBERS)
def test_a_broker_that_lies_by_a_script_spins_nobody_and_all_is_read_once_it_ceases(
    broker: type[Liar], *, member: bool
) -> None:
    world = Damaged((), 0, share=0.0, until=LASTS, member=member, broker=broker)
    liar = world.broker
    assert isinstance(liar, Liar)
    world.begin()
    world.read(LASTS)
    assert liar.asked[FETCH] <= 310 * LASTS, "one under way at each of three brokers, which respond in 10 ms"
    assert sum(liar.asked.values()) - liar.asked[FETCH] < 30 * LASTS, "patience"
    liar.lies = False
    world.begin_again()
    assert world.read(BOUND, world.all_read), (world.now, world.errors, {k: len(v) for k, v in world.records.items()})
    assert world.wrong == []
