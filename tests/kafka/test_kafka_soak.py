"""R1 over a soak: memory, open files, threads and buffers stay flat while records flow and members come and go.

Short in CI; `INSTRIDE_SOAK_SECONDS=3600` for a real one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import pytest
from kafka_help import QUICK, Member, drive, tps

from filled_topics import fill
from instride import Consumer
from instride.testing import LocalKafka, RecordedMember, Recorder

Topic = Callable[..., str]

SECONDS: Final = float(os.environ.get("INSTRIDE_SOAK_SECONDS", "12"))
ROUNDS: Final = 16
"""Samples: at least, however slow the machine is."""
PARTITIONS: Final = 4


@pytest.mark.requirement("surface/byte-bounds")
@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 240)
@pytest.mark.history("calm", judges="R1")
def test_resources_stay_flat_and_buffers_keep_their_caps(
    kafka: LocalKafka, kafka_topic: Topic, group: str, history: Recorder
) -> None:
    topic = kafka_topic(PARTITIONS)
    settings = QUICK | {"fetch_buffer_bytes": 1 << 16, "max_partition_fetch_bytes": 1 << 14, "max_poll_records": 50}

    def come(name: str) -> tuple[Member, RecordedMember]:
        """Not by the fixtures, which keep what they made until the test ends."""
        consumer = Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=group, client_id=name, **settings)
        recorded = history.watch(consumer, name, finishes="delivered")
        consumer.subscribe([topic])
        return Member(name, consumer), recorded

    stays, recorded = come("stays")
    end, rounds, written = time.monotonic() + SECONDS, 0, 0
    while rounds < ROUNDS or time.monotonic() < end:
        guest, _ = come(f"guest {rounds}")
        written += len(fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 100), start=100 * rounds))
        drive(stays, guest, until=partial(_both_own, stays, guest))
        drive(stays, guest, until=partial(_have, stays, guest, count=100 * PARTITIONS))
        guest.consumer.commit()
        guest.consumer.close()
        recorded.sample()
        stays.records.clear()  # the test's own memory is not what is measured
        rounds += 1
    drive(stays, until=lambda: stays.owned == set(tps(topic, *range(PARTITIONS))))
    stays.consumer.close()
    assert written == 100 * PARTITIONS * rounds


def _both_own(one: Member, other: Member) -> bool:
    return bool(one.owned and other.owned)


def _have(one: Member, other: Member, *, count: int) -> bool:
    return len(one.records) + len(other.records) == count
