"""A member that is librdkafka, by confluent-kafka. See `peer_help`."""

import json
import os
import sys
from typing import Any

from confluent_kafka import Consumer, KafkaException


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
        commit(consumer)
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
    for command in sys.stdin:
        if command.split() == ["close"]:
            consumer.close()
            return
        messages = [each for each in consumer.consume(100, 0.05) if each.error() is None]
        if messages:
            commit(consumer)
        seen = ",".join(f"{each.partition()}:{each.offset()}" for each in messages)
        owned = ",".join(str(each.partition) for each in consumer.assignment())
        print(f"{seen}|{owned}|{','.join(map(str, lost))}", flush=True)
        lost.clear()


def commit(consumer: Any) -> None:
    """A commit that a rebalance refuses is made up for by the next, or by that of the revoke."""
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        print("commit:", error, file=sys.stderr, flush=True)


main(*sys.argv[1:])
