"""A member that is kafka-python. See `peer_help`."""

import logging
import sys

from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from kafka import KafkaConsumer

logging.basicConfig(level=logging.INFO)


def main(servers: str, group: str, topic: str, name: str, settings: str) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        client_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[CooperativeStickyAssignor],
        heartbeat_interval_ms=100,
        session_timeout_ms=10000,
    )
    consumer.partitions_for_topic(topic)  # kafka-python 3.0 may hang where it leads before it knows the topic
    consumer.subscribe([topic])
    for command in sys.stdin:
        if command.split() == ["close"]:
            consumer.close()
            return
        records = [each for batch in consumer.poll(timeout_ms=50).values() for each in batch]
        if records:
            consumer.commit()
        seen = ",".join(f"{each.partition}:{each.offset}" for each in records)
        owned = ",".join(str(each.partition) for each in consumer.assignment())
        print(f"{seen}|{owned}|", flush=True)


main(*sys.argv[1:])
