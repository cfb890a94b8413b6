"""A member that is librdkafka, by confluent-kafka. See `peer_help`."""

import json
import os
import sys
import time
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException

REVOKE_SECONDS: Final = 5.0
"""For as long a revoke tries to commit: between a member's join and its sync, the broker refuses each commit."""


def main(servers: str, group: str, topic: str, name: str, settings: str) -> None:
    given = json.loads(settings)
    assignor = given.pop("assignor", "cooperative-sticky")
    cooperative = assignor == "cooperative-sticky"
    lost: list[int] = []

    def on_assign(consumer: Any, partitions: list[Any]) -> None:
        (consumer.incremental_assign if cooperative else consumer.assign)(partitions)

    def let_go(consumer: Any, partitions: list[Any]) -> None:
        if cooperative:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def on_revoke(consumer: Any, partitions: list[Any]) -> None:
        deadline = time.monotonic() + REVOKE_SECONDS
        while not committed(consumer) and time.monotonic() < deadline:
            time.sleep(0.05)
        let_go(consumer, partitions)

    def on_lost(consumer: Any, partitions: list[Any]) -> None:
        lost.extend(each.partition for each in partitions)
        let_go(consumer, partitions)

    chosen = {
        "bootstrap.servers": servers,
        "group.id": group,
        "client.id": name,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "partition.assignment.strategy": assignor,
        "heartbeat.interval.ms": int(os.environ.get("PEER_HEARTBEAT_MS", "100")),
        "session.timeout.ms": int(1000 * given.pop("session", 10)),
        **given,  # None takes one away
    }
    consumer = Consumer({key: value for key, value in chosen.items() if value is not None})
    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
    uncommitted = False
    for command in sys.stdin:
        if command.split() == ["close"]:
            consumer.close()
            return
        messages = [each for each in consumer.consume(100, 0.05) if each.error() is None]
        if messages or uncommitted:
            uncommitted = not committed(consumer)
        seen = ",".join(f"{each.partition()}:{each.offset()}" for each in messages)
        owned = ",".join(str(each.partition) for each in consumer.assignment())
        print(f"{seen}|{owned}|{','.join(map(str, lost))}", flush=True)
        lost.clear()


def committed(consumer: Any) -> bool:
    """False where a rebalance refuses the commit: the next turn tries again."""
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        print("commit:", error, file=sys.stderr, flush=True)
        return bool(error.args[0].code() != KafkaError.REBALANCE_IN_PROGRESS)
    return True


main(*sys.argv[1:])
