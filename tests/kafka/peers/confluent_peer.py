"""A member that is librdkafka, by confluent-kafka. See `peer_help`."""

import json
import sys
from typing import Any

from confluent_kafka import Consumer


def main(servers: str, group: str, topic: str, name: str, settings: str) -> None:
    lost: list[int] = []

    def on_assign(consumer: Any, partitions: list[Any]) -> None:
        consumer.incremental_assign(partitions)

    def on_revoke(consumer: Any, partitions: list[Any]) -> None:
        consumer.incremental_unassign(partitions)

    def on_lost(consumer: Any, partitions: list[Any]) -> None:
        lost.extend(each.partition for each in partitions)
        consumer.incremental_unassign(partitions)

    chosen = {
        "bootstrap.servers": servers,
        "group.id": group,
        "client.id": name,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "partition.assignment.strategy": "cooperative-sticky",
        "heartbeat.interval.ms": 100,
        "session.timeout.ms": 10000,
        **json.loads(settings),  # None takes one away
    }
    consumer = Consumer({key: value for key, value in chosen.items() if value is not None})
    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
    for command in sys.stdin:
        if command.split() == ["close"]:
            consumer.close()
            return
        messages = [each for each in consumer.consume(100, 0.05) if each.error() is None]
        if messages:
            consumer.commit(asynchronous=False)
        seen = ",".join(f"{each.partition()}:{each.offset()}" for each in messages)
        owned = ",".join(str(each.partition) for each in consumer.assignment())
        print(f"{seen}|{owned}|{','.join(map(str, lost))}", flush=True)
        lost.clear()


main(*sys.argv[1:])
