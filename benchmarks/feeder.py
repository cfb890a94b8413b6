"""Records at an even rate, each with the time at which it was made.

    python -m benchmarks.feeder SERVERS TOPIC PARTITIONS RATE [KEYS]

With so many keys, or else without. Runs until its standard input ends, then prints how many it made. A late turn makes
up for what it missed: at a broker that is slower than the rate, the records are made as fast as it takes them.
"""

from __future__ import annotations

import select
import struct
import sys
import time

TIME = struct.Struct("<q")
"""A record's value: nanoseconds of the machine's clock."""
_MANY = 5_000
"""Records a second from which on they go out in batches: a request for each would be more than the broker takes."""


def main(servers: str, topic: str, partitions: int, rate: float, keys: int = 0) -> None:
    from confluent_kafka import Producer

    linger = 0 if rate < _MANY else 5
    producer = Producer({"bootstrap.servers": servers, "linger.ms": linger, "log_level": 0})
    began, made = time.monotonic(), 0
    while not select.select([sys.stdin], [], [], 0.001)[0]:
        for number in range(made, int((time.monotonic() - began) * rate)):
            key, place = (b"k%d" % (number % keys), number % keys) if keys else (None, number)
            try:
                producer.produce(topic, key=key, value=TIME.pack(time.time_ns()), partition=place % partitions)
            except BufferError:  # its queue is full
                break
            made += 1
        producer.poll(0)
    producer.flush()
    print(made, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), *map(int, sys.argv[5:]))
