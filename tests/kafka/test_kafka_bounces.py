"""Rolling bounces between the eager and the cooperative protocol: real processes, restarted one by one (KIP-429).

Up: all eager; then each restarted with both assignors, which acts eager still; then each with the cooperative one only.
Down is the reverse. At no moment is a partition owned twice, and each record is processed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kafka_help import drive, each_once, fill
from peer_help import Peer, python_peer

from instride.testing import LocalKafka

Topic = Callable[..., str]

EAGER, BOTH, COOPERATIVE = ["range"], ["cooperative-sticky", "range"], ["cooperative-sticky"]
BOUNCES = {"up": (EAGER, BOTH, COOPERATIVE), "down": (COOPERATIVE, BOTH, EAGER)}
PARTITIONS = 6


@pytest.fixture
def start_ours(kafka: LocalKafka, group: str, tmp_path: Path) -> Iterator[Callable[[str, str, list[str]], Peer]]:
    with ExitStack() as stack:

        def start(name: str, topic: str, assignors: list[str]) -> Peer:
            settings: dict[str, Any] = {"assignors": assignors}
            peer = python_peer("instride", kafka, group, topic, name, tmp_path, settings)
            peer.verb = "poll-and-commit"
            stack.callback(peer.end)
            return peer

        yield start


def shared(members: list[Peer]) -> bool:
    return all(each.owned for each in members) and sum(len(each.owned) for each in members) == PARTITIONS


@pytest.mark.parametrize("way", BOUNCES)
def test_two_rolling_bounces(
    way: str, kafka: LocalKafka, kafka_topic: Topic, start_ours: Callable[[str, str, list[str]], Peer]
) -> None:
    topic = kafka_topic(PARTITIONS)
    written = fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 10))
    first, *later = BOUNCES[way]
    running = [start_ours(f"{name}0", topic, first) for name in "abc"]
    everybody = list(running)
    drive(*running, until=lambda: shared(running))
    for bounce, assignors in enumerate(later, start=1):
        for place, name in enumerate("abc"):
            running[place].close()
            running[place] = start_ours(f"{name}{bounce}", topic, assignors)
            everybody.append(running[place])
            start = 10 * (3 * (bounce - 1) + place + 1)
            written += fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 10), start=start)
            drive(*running, until=lambda: shared(running))
    drive(*running, until=lambda: sum(len(each.seen) for each in everybody) >= len(written))
    each_once(written, *everybody)
    assert [each.lost for each in everybody] == [[]] * len(everybody)
