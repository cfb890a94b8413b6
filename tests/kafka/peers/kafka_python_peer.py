"""A member that is kafka-python. See `peer_help`.

Its polls run on a thread of their own and are long, since it may stop between its join and its sync where a poll ends
there; a turn does not wait for the end of a poll. What it owns is what its listener was told.
"""

import json
import logging
import os
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Final

from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError, RebalanceInProgressError

from kafka import ConsumerRebalanceListener, KafkaConsumer

logging.basicConfig(level=logging.INFO)

ASSIGNORS = {
    "cooperative-sticky": CooperativeStickyAssignor,
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
POLL_MS: Final = 3000
TURN_SECONDS: Final = 0.1
CLOSE_SECONDS: Final = 5.0
"""For as long a close tries to commit: between a member's join and its sync, the broker refuses each commit."""


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Called on the thread of its sockets, where it cannot commit."""

    def __init__(self) -> None:
        self.owned: frozenset[Any] = frozenset()
        self.lost: list[int] = []

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.owned -= frozenset(revoked)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.owned |= frozenset(assigned)

    def on_partitions_lost(self, lost: Any) -> None:
        self.lost += [each.partition for each in lost]
        self.owned -= frozenset(lost)


def main(servers: str, group: str, topic: str, name: str, settings: str) -> None:
    given = json.loads(settings)
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        client_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[ASSIGNORS[n] for n in given.get("assignor", "cooperative-sticky").split(",")],
        heartbeat_interval_ms=int(os.environ.get("PEER_HEARTBEAT_MS", "100")),
        session_timeout_ms=int(1000 * given.get("session", 10)),
    )
    consumer.partitions_for_topic(topic)  # kafka-python 3.0 may hang where it leads before it knows the topic
    listener = Listener()
    consumer.subscribe([topic], listener=listener)
    polling: Future[list[Any]] | None = None
    with ThreadPoolExecutor(1) as pool:
        for command in sys.stdin:
            if command.split() == ["close"]:
                break
            polling = polling or pool.submit(poll, consumer)
            done, _ = wait([polling], TURN_SECONDS)
            records = [each for poll in done for each in poll.result()]
            polling = None if done else polling
            lost, listener.lost = listener.lost, []
            seen = ",".join(f"{each.partition}:{each.offset}" for each in records)
            owned = ",".join(str(each.partition) for each in listener.owned)
            print(f"{seen}|{owned}|{','.join(map(str, lost))}", flush=True)
        pool.submit(close, consumer).result()


def poll(consumer: KafkaConsumer) -> list[Any]:
    records = [each for batch in consumer.poll(timeout_ms=POLL_MS).values() for each in batch]
    committed(consumer)  # also where nothing came: a rebalance may have refused the last commit
    return records


def close(consumer: KafkaConsumer) -> None:
    deadline = time.monotonic() + CLOSE_SECONDS
    while not committed(consumer) and time.monotonic() < deadline:
        time.sleep(0.05)
    consumer.close()


def committed(consumer: KafkaConsumer) -> bool:
    """False where a rebalance refuses the commit."""
    try:
        consumer.commit()
    except KafkaError as error:
        logging.warning("commit: %s", error)
        return not isinstance(error, RebalanceInProgressError)
    return True


main(*sys.argv[1:])
