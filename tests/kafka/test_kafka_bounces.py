"""Rolling bounces between the eager and the cooperative protocol: real processes, restarted one by one (KIP-429).

Up: all eager; then each restarted with both assignors, which acts eager still; then each with the cooperative one only.
Down is the reverse. At no moment is a partition owned twice, and each record is processed once.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka_help import drive, each_once, fill
from peer_help import Peer

from instride.testing import LocalKafka

Topic = Callable[..., str]
Start = Callable[..., Peer]

EAGER, BOTH, COOPERATIVE = ["range"], ["cooperative-sticky", "range"], ["cooperative-sticky"]
BOUNCES = {"up": (EAGER, BOTH, COOPERATIVE), "down": (COOPERATIVE, BOTH, EAGER)}
# The first to join leads, and after it has been bounced the next: so everybody leads once.
GROUPS = {
    "ours": ("instride",) * 3,
    "with Java": ("java", "instride", "instride"),
    "old Java": ("java-2.8.2", "instride"),
}
PARTITIONS = 6


def begin(start_peer: Start, kind: str, name: str, topic: str, assignors: list[str]) -> Peer:
    if kind.startswith("java"):
        return start_peer(kind, name, topic, assignor=",".join(assignors))
    peer = start_peer(kind, name, topic, assignors=assignors)
    peer.verb = "poll-and-commit"
    return peer


def shared(members: list[Peer]) -> bool:
    return all(each.owned for each in members) and sum(len(each.owned) for each in members) == PARTITIONS


@pytest.mark.slow
@pytest.mark.parametrize("kinds", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("way", BOUNCES)
def test_two_rolling_bounces(
    way: str, kinds: tuple[str, ...], kafka: LocalKafka, kafka_topic: Topic, start_peer: Start
) -> None:
    topic = kafka_topic(PARTITIONS)
    written = fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 10))
    first, *later = BOUNCES[way]
    running = [begin(start_peer, kind, f"{n}-0", topic, first) for n, kind in enumerate(kinds)]
    everybody = list(running)
    drive(*running, until=lambda: shared(running))
    for bounce, assignors in enumerate(later, start=1):
        for place, kind in enumerate(kinds):
            running[place].close()
            running[place] = begin(start_peer, kind, f"{place}-{bounce}", topic, assignors)
            everybody.append(running[place])
            start = 10 * (len(kinds) * (bounce - 1) + place + 1)
            written += fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 10), start=start)
            drive(*running, until=lambda: shared(running))
    drive(*running, until=lambda: sum(len(each.seen) for each in everybody) >= len(written))
    each_once(written, *everybody)
    assert [each.lost for each in everybody] == [[]] * len(everybody)
