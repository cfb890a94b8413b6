"""Be a group's member that gets ranges of offsets; a pool of processes reads their records.

    python examples/ranges.py --topic flights --group demo

The member itself fetches no record. It gives each range to a worker. The worker reads the range with a consumer without
a group, and leaves out the records beyond the range's end. The ledger counts ranges as it counts records.
"""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import sys
import threading
from concurrent.futures import ProcessPoolExecutor

from instride import Consumer, OffsetLedger, OffsetRange, RangeConsumer


def read(servers: str, part: OffsetRange) -> int:
    """In a worker: prints every record of the range, and no other. Returns how many there were."""
    count = 0
    # "none": if retention has deleted the first records, it raises, and does not pass over the rest of the range.
    with Consumer(bootstrap_servers=servers, auto_offset_reset="none") as consumer:
        consumer.assign([part.topic_partition])
        consumer.seek(part.topic_partition, part.start)
        while consumer.position(part.topic_partition) < part.end:
            for record in consumer.poll(timeout=1.0):
                if record.offset < part.end:
                    # One write: several processes share this output.
                    sys.stdout.write(f"{record.partition} {record.offset}\n")
                    sys.stdout.flush()
                    count += 1
    return count


def run(servers: str, topic: str, group: str, stop: threading.Event) -> None:
    ledger = OffsetLedger()
    # "spawn": a process that is forked would inherit the member's sockets and threads.
    pool = ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))
    with RangeConsumer(bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        try:
            with pool:
                while not stop.is_set():
                    ranges = consumer.poll(timeout=0.1, max_offsets=1_000)
                    ledger.forget(consumer.lost_partitions())
                    for part in ledger.track(ranges):
                        ledger.watch(part, pool.submit(read, servers, part))
                    consumer.commit_async(ledger.committable())
                    consumer.delay_revoke(ledger.uncommitted(consumer.to_be_revoked_partitions()))
                    ledger.check()
        finally:
            consumer.commit(ledger.committable())


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
