"""A member that is kafka-python. See `peer_help`."""

import json
import logging
import sys

from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError

from kafka import KafkaConsumer

logging.basicConfig(level=logging.INFO)

ASSIGNORS = {
    "cooperative-sticky": CooperativeStickyAssignor,
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


def main(servers: str, group: str, topic: str, name: str, settings: str) -> None:
    given = json.loads(settings)
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        client_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[ASSIGNORS[given.get("assignor", "cooperative-sticky")]],
        heartbeat_interval_ms=100,
        session_timeout_ms=int(1000 * given.get("session", 10)),
    )
    consumer.partitions_for_topic(topic)  # kafka-python 3.0 may hang where it leads before it knows the topic
    consumer.subscribe([topic])
    for command in sys.stdin:
        if command.split() == ["close"]:
            consumer.close()
            return
        records = [each for batch in consumer.poll(timeout_ms=50).values() for each in batch]
        if records:
            commit(consumer)
        seen = ",".join(f"{each.partition}:{each.offset}" for each in records)
        owned = ",".join(str(each.partition) for each in consumer.assignment())
        print(f"{seen}|{owned}|", flush=True)


def commit(consumer: KafkaConsumer) -> None:
    """A commit that a rebalance refuses is made up for by the next."""
    try:
        consumer.commit()
    except KafkaError as error:
        logging.warning("commit: %s", error)


main(*sys.argv[1:])
