"""Work on records in threads, and hand a partition over when its own work is done: the loop of the README.

    python examples/hand_over.py --topic flights --group demo

Start it twice: the second takes half of the partitions, one by one, as the first finishes what it has in progress of
them. What is only queued moves at once. SIGTERM or Ctrl-C ends it: what was started is finished and committed; a second
Ctrl-C does not wait for it.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time

from instride import Consumer, ConsumerRecord, PartitionExecutor


def handle(record: ConsumerRecord) -> None:
    """Your work. It may take longer than max_poll_interval, since it runs beside the polls."""
    time.sleep(0.01)
    print(f"{record.partition} {record.offset}\n", end="", flush=True)  # in one piece: others print too


def run(servers: str, topic: str, group: str, stop: threading.Event) -> None:
    with (
        Consumer(bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest") as consumer,
        PartitionExecutor(handle, max_workers=16, max_records=1_000) as work,
    ):
        consumer.subscribe([topic])
        try:
            while not stop.is_set():
                work.submit(consumer.poll(timeout=0.1), lost=consumer.lost_partitions())
                consumer.commit_async(work.committable())
                consumer.delay_revoke(work.hold(consumer.to_be_revoked_partitions()), reason=work.oldest)
                consumer.pause(*work.full())
                consumer.resume(*work.ready())
                work.check()
        finally:
            work.drain(timeout=25)
            consumer.commit(work.committable())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--servers", default="localhost:9092")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    given = parser.parse_args()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        run(given.servers, given.topic, given.group, stop)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
