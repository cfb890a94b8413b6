"""A part of `make attack-kafka`: a real Kafka behind a damaging network, and a producer that a real Kafka obeys."""

from __future__ import annotations

import os
import socket
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from attack.bytes_of import array, text
from attack.cases import CASES, header_bomb
from attack.judge import run_at
from attack.kafka import PARTITIONS, drawn, run_round, write
from instride.testing import LocalKafka

pytestmark = pytest.mark.kafka
SEED = int(os.environ.get("ATTACK_SEED", "1"))


class Direct:
    """The broker itself."""

    def __init__(self, kafka: LocalKafka) -> None:
        self.port = int(kafka.bootstrap_servers.rpartition(":")[2])
        self.requested: Counter[int] = Counter()

    def close(self) -> None:
        pass


def produce(kafka: LocalKafka, topic: str, partition: int, batch: bytes) -> int:
    """As any producer may, byte by byte. The broker's error code."""
    entry = struct.pack(">ii", partition, len(batch)) + batch
    body = text(None) + struct.pack(">hi", 1, 30_000) + array([text(topic) + array([entry])])
    frame = struct.pack(">hhi", 0, 7, 1) + text("attack") + body
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port))) as peer, peer.makefile("rb") as stream:
        peer.sendall(struct.pack(">i", len(frame)) + frame)
        response = stream.read(struct.unpack(">i", stream.read(4))[0])
    # The correlation id, one topic, its name, one partition, its number.
    (code,) = struct.unpack_from(">h", response, 4 + 4 + 2 + len(topic) + 4 + 4)
    return int(code)


@pytest.mark.slow
def test_a_header_bomb_that_a_real_kafka_takes_stops_one_partition(
    kafka: LocalKafka, kafka_topic: Callable[..., str]
) -> None:
    topic = kafka_topic(PARTITIONS)
    write(kafka, topic, numbers=(1, 2))
    bomb = header_bomb()
    assert len(bomb) < 4000
    assert produce(kafka, topic, 0, bomb) == 0
    (case,) = (each for each in CASES if each.name == "header bomb")
    assert run_at(replace(case, topic=topic), Direct(kafka)).broken == ()


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.parametrize("damages", [("cut", "late"), ("flipped", "shortened", "swapped", "twice")])
def test_a_network_that_damages_what_a_real_kafka_sends(
    kafka: LocalKafka, kafka_topic: Callable[..., str], damages: tuple[str, ...]
) -> None:
    """Damaged bytes may lie within what a broker may say; `make attack-kafka` looks for how long such a lie lasts."""
    topic, harmless = kafka_topic(PARTITIONS), damages == ("cut", "late")
    write(kafka, topic)
    case = replace(drawn(SEED, topic), damages=damages, values=harmless, gapless=harmless)
    broken = run_round(kafka, case, SEED).broken
    assert [each for each in broken if harmless or not each.startswith("stands still")] == []
