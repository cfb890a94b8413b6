"""A handler that keeps a core busy, in processes: they share the partitions of one member.

    python examples/processes.py --topic images --group resize --processes 4

A process that dies (kill one) is replaced, and its record is tried again. SIGTERM or Ctrl-C ends the program: what is
in progress is finished and committed.
"""

from __future__ import annotations

import argparse
import hashlib

from instride import ConsumerRecord, Processor


def handle(record: ConsumerRecord[bytes | None, bytes]) -> None:
    """Your work. The processes import it from its module; so it is no lambda, and no function within another."""
    hashlib.pbkdf2_hmac("sha256", record.value, b"salt", 5_000)  # some milliseconds
    print(f"{record.partition} {record.offset}\n", end="", flush=True)  # in one piece: others print too


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--servers", default="localhost:9092")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    resize = Processor(
        handle,
        topics=[given.topic],
        order="none",
        processes=given.processes,
        value_deserializer=bytes,
        timeout=60.0,
    )
    resize.run(bootstrap_servers=given.servers, group_id=given.group, auto_offset_reset="earliest")


if __name__ == "__main__":
    main()
