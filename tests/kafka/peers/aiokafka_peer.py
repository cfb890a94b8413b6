"""A member that is aiokafka, which has no cooperative protocol. See `peer_help`."""

import asyncio
import json
import logging
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError

logging.basicConfig(level=logging.INFO)

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Its rebalances run beside the polls: what a revoke takes is committed by it, and what it takes amid a poll is not
    told as seen."""

    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer
        self.done: dict[Any, int] = {}

    async def on_partitions_revoked(self, revoked: Any) -> None:
        await commit(self.consumer, self.done)
        self.done.clear()

    def on_partitions_assigned(self, assigned: Any) -> None:
        pass


async def main(servers: str, group: str, topic: str, name: str, settings: str) -> None:
    given = json.loads(settings)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        client_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[ASSIGNORS[given["assignor"]]],
        heartbeat_interval_ms=100,
        session_timeout_ms=int(1000 * given.get("session", 10)),
    )
    await consumer.start()
    listener = Listener(consumer)
    consumer.subscribe([topic], listener=listener)
    polling: asyncio.Task[Any] | None = None
    while (command := await asyncio.to_thread(sys.stdin.readline)) and command.split() != ["close"]:
        polling = polling or asyncio.create_task(consumer.getmany(timeout_ms=50))
        done, _ = await asyncio.wait([polling], timeout=0.1)
        # It waits for as long as a rebalance takes, which may wait for a member that takes its turn after this one.
        records = [each for task in done for batch in task.result().values() for each in batch]
        polling = None if done else polling
        for each in records:
            listener.done[TopicPartition(each.topic, each.partition)] = each.offset + 1
        await commit(consumer, listener.done)
        seen = ",".join(f"{each.partition}:{each.offset}" for each in records)
        owned = ",".join(str(each.partition) for each in consumer.assignment())
        print(f"{seen}|{owned}|", flush=True)
    await consumer.stop()


async def commit(consumer: Any, done: dict[Any, int]) -> None:
    try:
        if done:
            await consumer.commit(dict(done))
    except KafkaError as error:
        logging.warning("commit: %s", error)


asyncio.run(main(*sys.argv[1:]))
