"""Work on records in a thread pool, and hand a partition over when its own work is done: the loop of the README.

    python examples/hand_over.py --topic flights --group demo

Start it twice: the second takes half of the partitions, one by one, as the first finishes what it has under way of
them. Ctrl-C or SIGTERM ends it; what was finished is committed.
"""

from __future__ import annotations

import argparse
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from instride import Consumer, ConsumerRecord, OffsetLedger


def handle(record: ConsumerRecord) -> None:
    """Your work. It may take as long as it likes; it runs beside the polls."""
    time.sleep(0.01)
    print(f"{record.partition} {record.offset}\n", end="", flush=True)  # in one piece: others print too


def run(servers: str, topic: str, group: str, stop: threading.Event) -> None:
    ledger = OffsetLedger()
    with Consumer(bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        try:
            with ThreadPoolExecutor(16) as pool:
                while not stop.is_set():
                    records = consumer.poll(timeout=0.1)
                    ledger.forget(consumer.lost_partitions())
                    for record in ledger.track(records):
                        ledger.watch(record, pool.submit(handle, record))
                    consumer.commit_async(ledger.committable())
                    consumer.delay_revoke(ledger.uncommitted(consumer.to_be_revoked_partitions()))
                    if ledger.in_flight() > 1_000:
                        consumer.pause(*consumer.assignment())
                    else:
                        consumer.resume(*consumer.paused())
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
