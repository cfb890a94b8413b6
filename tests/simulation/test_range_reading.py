"""Who reads ranges without a group, as a pipeline does, beside faults: assign, seek, poll, pause, resume, over and
over, with small buffers and batches that are larger. No range is short, and none stands still."""

from __future__ import annotations

import random
from typing import Any

import pytest

from instride._core.network.actions import Role
from instride.errors import TransportError, UnknownTopicOrPartitionError, WakeupError
from instride.errors.codes import ErrorCode
from instride.records import TopicPartition
from instride.testing._simulation.plan import FaultKind
from instride.testing.simulation import Fault, Member, MemberPlan, Plan, SimulatedCluster, Sleep, UserLoop

SPAN = 8.0
"""Seconds with faults. After them a range takes at most a few request time-outs."""
END = 25.0
PATIENCE = 10.0
FAULTS: tuple[FaultKind, ...] = (
    "cut",
    "stall",
    "suspend",
    "move leader",
    "down",
    "slow node",
    "part from all",
    "wakeup",
)
REFUSALS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


def planned(seed: int) -> Plan:
    chance = random.Random(f"ranges {seed}")
    partitions = chance.randint(1, 4)
    faults = [
        Fault(
            time=chance.uniform(0.0, SPAN),
            kind=chance.choice(FAULTS),
            member=0,
            seconds=chance.uniform(0.1, 2.0),
            role=chance.choice((Role.DATA, Role.TAIL)),
        )
        for _ in range(chance.choice((0, 3, 8)))
    ]
    faults += [
        Fault(
            time=chance.uniform(0.0, SPAN),
            kind="refuse partition",
            member=number,
            seconds=chance.uniform(0.1, 2.0),
            code=chance.choice(REFUSALS),
        )
        for number in range(partitions)
    ]
    return Plan(
        members=(MemberPlan(name="reader"),),
        seed=seed,
        nodes=chance.choice((1, 2)),
        partitions=partitions,
        produced=tuple(
            (chance.choice((0.0, chance.uniform(0.0, SPAN))), number, chance.randint(5, 200))
            for number in range(partitions)
            for _ in range(3)
        ),
        faults=tuple(sorted(faults, key=lambda each: each.time)),
        quiet_after=SPAN,
        ends_at=END + PATIENCE,
        latency=chance.choice(((0.001, 0.005), (0.02, 0.1))),
        fetch_max_wait=chance.choice((0.02, 0.3)),
        batches=True,
    )


class Reader:
    """ranges: how many he has read to their end."""

    cluster: SimulatedCluster

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"reader {seed}")
        self._ends: dict[TopicPartition, int] = {}
        self.ranges = 0

    def run(self, member: Member) -> UserLoop:
        while self._now < END:
            tp = self._chance.choice(sorted(self.cluster.brokers.logs))
            end = self.cluster.brokers.logs[tp].end
            last = self._ends.get(tp, 0)
            starts = [0, *([self._chance.randrange(end)] if end else []), *([last] if last < end else [])]
            start = self._chance.choice(starts)
            if start < end:
                upto = self._ends[tp] = self._chance.randint(start + 1, end)
                yield from self._read(member, tp, start, upto)
            yield Sleep(self._chance.choice((0.0, 0.0, 0.3)))
        yield from member.consumer.close(timeout=1.0)

    @property
    def _now(self) -> float:
        return self.cluster.scheduler.now

    def _read(self, member: Member, tp: TopicPartition, start: int, end: int) -> UserLoop:
        """As `spark.range_reader` does it."""
        consumer = member.consumer
        if consumer.owned().get(tp) == start:
            consumer.resume(tp)
        else:
            consumer.assign([])
            yield Sleep(self._chance.choice((0.0, 0.01)))
            consumer.assign([tp])
            yield Sleep(self._chance.choice((0.0, 0.01)))
            consumer.seek(tp, start)
        position, since = start, self._now
        while position < end:
            try:
                records = yield from consumer.poll(timeout=0.1, limit=end - position)
            except (WakeupError, TransportError, UnknownTopicOrPartitionError):
                continue
            for each in records:
                assert each.offset == position, f"{tp} [{start}, {end}): {each.offset} came after {position - 1}"
                position, since = position + 1, self._now
            patience = PATIENCE if since > SPAN else SPAN + PATIENCE
            assert self._now - since < patience, f"{tp} [{start}, {end}) stands still at {position} since {since}"
        consumer.pause(tp)
        self.ranges += 1


def read(seed: int) -> int:
    """How many ranges were read."""
    chance = random.Random(f"settings {seed}")
    settings: dict[str, Any] = {
        "group_id": None,
        "auto_offset_reset": "none",
        "fetch_buffer_bytes": chance.choice((2_000, 5_000, 20_000)),
        "max_partition_fetch_bytes": chance.choice((1_000, 5_000)),
    }
    reader = Reader(seed)
    cluster = SimulatedCluster(planned(seed), loop=reader.run, settings=settings)
    reader.cluster = cluster
    cluster.run()
    process = cluster.members["reader"].process
    assert process.died_of is None, f"seed {seed}: {process.died_of}"
    assert process.loop_ended, f"seed {seed}: it did not come to its end"
    return reader.ranges


@pytest.mark.drawn(2)
@pytest.mark.parametrize("first", range(0, 20, 5))
def test_every_range_is_read_whole_whatever_befalls_the_reader(first: int) -> None:
    assert sum(read(seed) for seed in range(first, first + 5)) > 50
