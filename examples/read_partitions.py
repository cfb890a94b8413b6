"""Read partitions without a group: from their beginnings to where they end now, then stop.

    python examples/read_partitions.py --topic flights --partitions 0 1 2

Nothing is committed, and nobody else is disturbed. The ends are requested once, so that a topic which grows faster than
it is read is read to an end all the same.
"""

from __future__ import annotations

import argparse

from instride import Consumer, TopicPartition


def run(servers: str, partitions: list[TopicPartition]) -> None:
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        unread = {partition for partition in partitions if consumer.position(partition) < ends[partition]}
        while unread:
            for record in consumer.poll(timeout=1.0):
                if record.offset < ends[record.topic_partition]:
                    print(record.partition, record.offset)
            # The position also moves over what is no record: aborted transactions, what was compacted away.
            unread = {partition for partition in unread if consumer.position(partition) < ends[partition]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--servers", default="localhost:9092")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, nargs="+", required=True)
    given = parser.parse_args()
    run(given.servers, [TopicPartition(given.topic, number) for number in given.partitions])


if __name__ == "__main__":
    main()
