"""Members come and go, hold, pause and let go while connections break: every record exactly once, none lost.

The seed decides who does what and which reads fail; threads and the broker are free, so a run is not repeated to the
letter, but what is promised holds in each.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from kafka_help import Member, drive, each_once, tps

from filled_topics import fill
from instride._net.transport import Transport
from instride._wire.connection import Received
from instride.errors import TransportError
from instride.testing import LocalKafka

Topic = Callable[..., str]
Join = Callable[..., Member]

PARTITIONS = 6
STEPS = 120
COOPERATIVE = [["cooperative-sticky"]]
EAGER = [["range"], ["sticky", "range"]]
BOUNCE = [*COOPERATIVE, ["cooperative-sticky", "range"], ["range", "cooperative-sticky"]]


@pytest.fixture(params=range(1, 7))
def random(request: pytest.FixtureRequest) -> Random:
    return Random(request.param)


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch, random: Random) -> None:
    """One read of a hundred finds its connection broken."""
    readable = Transport.readable

    def read(self: Transport) -> list[Received]:
        if random.random() < 0.01:
            self._fail(TransportError("the test broke this connection"))
            return []
        return readable(self)

    monkeypatch.setattr(Transport, "readable", read)


@pytest.fixture
def choices(request: pytest.FixtureRequest) -> list[list[str]]:
    """What a member's assignors may be."""
    return {4: EAGER, 5: EAGER, 6: BOUNCE}.get(request.node.callspec.params["random"], COOPERATIVE)


@pytest.mark.drawn(1)
@pytest.mark.history("faults")
@pytest.mark.usefixtures("breaking")
def test_members_come_and_go_while_connections_break(
    kafka: LocalKafka, kafka_topic: Topic, join: Join, random: Random, choices: list[list[str]]
) -> None:
    topic = kafka_topic(PARTITIONS)
    everything = tps(topic, *range(PARTITIONS))
    written: list[tuple[int, int]] = []
    all_members: list[Member] = []
    members: list[Member] = []

    def come() -> None:
        if len(members) < 3:
            # A member whose join is cut off at the wrong moment is waited for until its session ends.
            settings = {"session_timeout": 6.0, "reconnect_backoff": 0.01, "reconnect_backoff_max": 0.05}
            limit, assignors = random.choice([3, 50]), choices[len(all_members) % len(choices)]
            member = join(f"m{len(all_members)}", topic, max_poll_records=limit, assignors=assignors, **settings)
            members.append(member)
            all_members.append(member)

    def go() -> None:
        if len(members) > 1:
            members.pop(random.randrange(len(members))).consumer.close(timeout=10)

    def hold() -> None:
        random.choice(members).holding = set(random.sample(everything, random.randrange(PARTITIONS)))

    def pause() -> None:
        consumer = random.choice(members).consumer
        consumer.resume(*consumer.paused())
        consumer.pause(*sorted(consumer.assignment())[:2])

    def write() -> None:
        start = len(written) // PARTITIONS
        written.extend(fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 5), start=start))

    come()
    for _ in range(STEPS):
        for act, odds in ((come, 0.05), (go, 0.03), (hold, 0.2), (pause, 0.1), (write, 0.1)):
            if random.random() < odds:
                act()
        for member in members:
            member.turn()

    for member in members:
        member.holding.clear()
        member.consumer.resume(*member.consumer.paused())
    drive(*members, until=lambda: sum(len(each.records) for each in all_members) >= len(written))
    each_once(written, *all_members)
    assert [each.lost for each in all_members if each.lost] == []
