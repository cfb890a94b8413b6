"""A `Processor`: orders of one customer in their order, retries, dead letters; coroutines with --asyncio.

    python examples/process.py --topic orders --group billing --dead-letters orders.dlq

Start it twice: the second takes half of the partitions over, each as soon as its records in progress are finished.
SIGTERM or Ctrl-C ends it: what is in progress is finished and committed; a second one does not wait for it.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from instride import ConsumerRecord, Processor, Retry


def handle(record: ConsumerRecord[str, bytes]) -> None:
    """Your work, in a thread. What it raises is tried again, and then a dead letter."""
    time.sleep(0.01)
    print(f"{record.partition} {record.offset}\n", end="", flush=True)  # in one piece: others print too


async def handle_async(record: ConsumerRecord[str, bytes]) -> None:
    """The same on an event loop: `await` what takes time."""
    await asyncio.sleep(0.01)
    print(f"{record.partition} {record.offset}\n", end="", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--servers", default="localhost:9092")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--dead-letters", default="dead-letters")
    parser.add_argument("--asyncio", action="store_true", help="coroutines instead of threads")
    given = parser.parse_args()
    billing = Processor(
        handle_async if given.asyncio else handle,
        topics=[given.topic],
        order="key",
        concurrency=16,
        key_deserializer=bytes.decode,
        value_deserializer=bytes,
        retry=Retry(attempts=5, on=(OSError,)),
        dead_letters=given.dead_letters,
    )
    billing.run(bootstrap_servers=given.servers, group_id=given.group, auto_offset_reset="earliest")


if __name__ == "__main__":
    main()
