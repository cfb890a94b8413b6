"""A real Kafka behind a network that damages what it sends: ``python -m attack.kafka --seconds 3600 --seed 1``.

Each round is a case of its own, drawn by the seed: some damages, a group's member or partitions assigned by hand,
settings. After some seconds the network is good, and then everything must be read as it was written.

The exit status is 1 where a bound is not held.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable

from attack.broker import Broker
from attack.cases import Case
from attack.judge import MIB, Outcome, run_at
from attack.proxy import DAMAGES, Proxy
from instride.testing import LocalKafka

__all__ = ["PARTITIONS", "WRITTEN", "drawn", "run_round", "write"]

# One of each codec.
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = len(CODECS)
WRITTEN = 600
# A connection that ends early or is slow changes no byte.
_HARMLESS = frozenset({"cut", "late"})


def write(kafka: LocalKafka, topic: str, numbers: Iterable[int] = range(PARTITIONS)) -> None:
    """WRITTEN records to each of these partitions, in batches of twenty."""
    from confluent_kafka import Producer  # noqa: PLC0415 - of the tests alone

    for number in numbers:
        producer = Producer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "compression.type": CODECS[number],
                "batch.num.messages": 20,
                "linger.ms": 50,
            }
        )
        for offset in range(WRITTEN):
            producer.produce(topic, b"%d:%d" % (number, offset), partition=number)
        assert producer.flush(60) == 0


def drawn(seed: int, topic: str = "t") -> Case:
    """The round of this seed."""
    dice = random.Random(seed)  # noqa: S311
    damages = tuple(sorted(dice.sample(sorted(DAMAGES), dice.choice((1, 1, 2, 3)))))
    exact = _HARMLESS.issuperset(damages)
    by_hand = dice.random() < 0.5
    return Case(
        name=f"{seed}: {', '.join(damages)}; {'by hand' if by_hand else 'a member'}",
        item="5",
        lie="a damaging network before a real Kafka",
        broker=Broker,
        topic=topic,
        damages=damages,
        damaged=dice.choice((0.05, 0.1, 0.3)),
        good_after=dice.choice((3.0, 5.0, 8.0)),
        flows=tuple(range(PARTITIONS)),
        enough=WRITTEN,
        written=WRITTEN,
        assign=PARTITIONS if by_hand else 0,
        values=exact,
        gapless=exact,
        any_error=True,
        most_seconds=60.0,
        settings={
            "isolation_level": dice.choice(("read_committed", "read_uncommitted")),
            "max_poll_records": dice.choice((20, 500)),
            "max_partition_fetch_bytes": dice.choice((500, 4000, 1 << 20)),
            "fetch_max_wait": dice.choice((0.05, 0.5)),
            **({} if by_hand else {"group_id": f"g-{seed}", "session_timeout": 6.0, "heartbeat_interval": 0.2}),
        },
        requests=2000,
    )


def run_round(kafka: LocalKafka, case: Case, seed: int) -> Outcome:
    port = int(kafka.bootstrap_servers.rpartition(":")[2])
    proxy = Proxy(port, case.damages, seed, share=case.damaged, seconds=case.good_after)
    try:
        outcome = run_at(case, proxy)
        outcome.seen["damaged"] = proxy.damaged
        return outcome
    finally:
        proxy.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="attack.kafka", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long rounds are begun")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; each next has the next number")
    given = parser.parse_args()
    rounds, bad, damaged, worst, seed = 0, 0, 0, 0, given.seed
    errors: Counter[str] = Counter()
    with LocalKafka() as kafka:
        kafka.create_topic("t", partitions=PARTITIONS)
        write(kafka, "t")
        end = time.monotonic() + given.seconds
        while time.monotonic() < end:
            outcome = run_round(kafka, drawn(seed), seed)
            rounds, seed, bad = rounds + 1, seed + 1, bad + bool(outcome.broken)
            damaged += outcome.seen["damaged"]
            worst = max(worst, outcome.seen.get("memory", 0))
            errors.update(outcome.seen.get("errors", {}))
            if outcome.broken:
                print(f"{outcome.case.name}: {'; '.join(outcome.broken)}", flush=True)
    raised = ", ".join(f"{name} {count}" for name, count in errors.most_common())
    print(
        f"{rounds} rounds, {damaged} pieces damaged, memory at most {worst / MIB:.0f} MiB; {bad} rounds broke a bound"
    )
    print(f"raised: {raised or 'nothing'}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
