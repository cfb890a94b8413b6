"""Consume, transform, produce: the output and the offsets behind it are one transaction. Kill it whenever you like.

    pip install confluent-kafka
    python examples/transactions.py --topic orders --output bills --group billing --instance billing-1

A reader of the output with isolation_level="read_committed" sees the output of each record once, whatever was killed,
suspended or handed over meanwhile. Each member needs a name of its own that stays the same when it is started again:
with it the broker ends the transaction that the killed one has left.
"""

from __future__ import annotations

import argparse
import signal

import confluent_kafka

from instride import Consumer, ConsumerRecord, ConsumerRecords, TopicPartition

Record = ConsumerRecord[bytes | None, bytes | None]


def transform(record: Record) -> bytes:
    return b"%d %s" % (record.partition, record.value or b"")  # your work


class Bridge:
    def __init__(self, consumer: Consumer[bytes | None, bytes | None], producer: confluent_kafka.Producer, output: str):
        self._consumer = consumer
        self._producer = producer
        self._output = output

    def write(self, records: ConsumerRecords[bytes | None, bytes | None]) -> None:
        """All of one poll, in one transaction. What is aborted is read again."""
        first: dict[TopicPartition, int] = {}
        following: dict[TopicPartition, int] = {}
        for record in records:
            first.setdefault(record.topic_partition, record.offset)
            following[record.topic_partition] = record.offset + 1
        try:
            self._transaction(records, following)
        except confluent_kafka.KafkaException as failed:
            if not failed.args[0].txn_requires_abort():  # another process has this name, say
                raise
            self._producer.abort_transaction()
            for partition, offset in first.items():
                self._consumer.seek(partition, offset)

    def _transaction(
        self, records: ConsumerRecords[bytes | None, bytes | None], following: dict[TopicPartition, int]
    ) -> None:
        self._producer.begin_transaction()
        for record in records:
            self._producer.produce(self._output, transform(record), record.key)
        offsets = [confluent_kafka.TopicPartition(*partition, offset) for partition, offset in following.items()]
        self._producer.send_offsets_to_transaction(offsets, self._consumer.group_metadata().for_confluent_kafka())
        self._producer.commit_transaction()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--servers", default="localhost:9092")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--instance", required=True)
    given = parser.parse_args()
    stopping: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: stopping.append(number))
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": given.servers, "transactional.id": given.instance, "log_level": 0}
    )  # silent: it raises what matters
    producer.init_transactions()  # waits until what its predecessor left is ended
    with Consumer(
        bootstrap_servers=given.servers,
        group_id=given.group,
        group_instance_id=given.instance,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        enable_auto_commit=False,
        max_poll_records=100,
    ) as consumer:
        consumer.subscribe([given.topic])
        bridge = Bridge(consumer, producer, given.output)
        while not stopping:
            records = consumer.poll(timeout=0.5)
            if records:
                bridge.write(records)


if __name__ == "__main__":
    main()
