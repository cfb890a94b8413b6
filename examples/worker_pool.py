"""Workers of your own, without futures: a queue for each, so that the records of a key are handled in their order.

    python examples/worker_pool.py --topic flights --group demo

A full queue makes the loop wait; it keeps polling meanwhile, with everything paused, so that the group is heard and
nothing is lost.
"""

from __future__ import annotations

import argparse
import queue
import signal
import threading
import zlib

from instride import Consumer, ConsumerRecord, OffsetLedger

WORKERS = 4
AHEAD = 100  # records that may wait for a worker


def handle(record: ConsumerRecord) -> None:
    print(f"{record.partition} {record.offset}\n", end="", flush=True)  # in one piece: others print too


class Worker(threading.Thread):
    """Handles its queue's records one by one; None ends it."""

    def __init__(self, ledger: OffsetLedger) -> None:
        super().__init__()
        self.records: queue.Queue[ConsumerRecord | None] = queue.Queue()
        self._ledger = ledger

    def run(self) -> None:
        while (record := self.records.get()) is not None:
            try:
                handle(record)
            except Exception as error:  # noqa: BLE001 - it is raised by ledger.check in the loop
                self._ledger.fail(record, error)
            else:
                self._ledger.done(record)


def poll_once(consumer: Consumer, ledger: OffsetLedger, workers: list[Worker]) -> None:
    records = consumer.poll(timeout=0.1)
    ledger.forget(consumer.lost_partitions())
    for record in ledger.track(records):
        workers[zlib.crc32(record.key or b"") % len(workers)].records.put(record)
    consumer.commit_async(ledger.committable())
    consumer.delay_revoke(ledger.uncommitted(consumer.to_be_revoked_partitions()))
    if any(worker.records.qsize() > AHEAD for worker in workers):
        consumer.pause(*consumer.assignment())
    else:
        consumer.resume(*consumer.paused())
    ledger.check()


def run(servers: str, topic: str, group: str, stop: threading.Event) -> None:
    ledger = OffsetLedger()
    workers = [Worker(ledger) for _ in range(WORKERS)]
    with Consumer(bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        for worker in workers:
            worker.start()
        try:
            while not stop.is_set():
                poll_once(consumer, ledger, workers)
        finally:
            for worker in workers:
                worker.records.put(None)
            for worker in workers:
                worker.join()
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
