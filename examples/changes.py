"""What a poll changed, in one value: records, partitions to be revoked, partitions just lost (KIP-983, variant 1).

    python examples/changes.py --topic flights --group demo

A batch for each partition, written out when it is large enough, when nothing more comes, or when its partition is to
move: the next poll lets go of that partition as soon as the commit has its response.
"""

from __future__ import annotations

import argparse
import signal
import threading
from collections import defaultdict

from instride import Changes, Consumer, ConsumerRecord, TopicPartition

LARGE_ENOUGH = 20

Batches = dict[TopicPartition, list[ConsumerRecord]]


def write_out(partition: TopicPartition, batch: list[ConsumerRecord]) -> None:
    for record in batch:
        print(partition.partition, record.offset, flush=True)


def take(changes: Changes, batches: Batches) -> list[TopicPartition]:
    """Sort what is new into the batches; which of them are to be written now."""
    for partition in changes.lost:
        batches.pop(partition, None)
    for record in changes.records:
        batches[record.topic_partition].append(record)
    if not changes.records:
        return list(batches)
    moving = changes.to_be_revoked
    return [partition for partition, batch in batches.items() if partition in moving or len(batch) >= LARGE_ENOUGH]


def flush(consumer: Consumer, batches: Batches, partitions: list[TopicPartition]) -> None:
    for partition in partitions:
        batch = batches.pop(partition)
        write_out(partition, batch)
        consumer.commit_async({partition: batch[-1].offset + 1})


def run(servers: str, topic: str, group: str, stop: threading.Event) -> None:
    batches: Batches = defaultdict(list)
    with Consumer(bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        while not stop.is_set():
            flush(consumer, batches, take(consumer.poll_changes(timeout=0.1), batches))
        flush(consumer, batches, list(batches))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--servers", default="localhost:9092")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    given = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    run(given.servers, given.topic, given.group, stop)


if __name__ == "__main__":
    main()
