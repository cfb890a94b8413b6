"""The README's loop in virtual time: `PartitionQueues` under the real machines, with faults, judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from instride import ConsumerRecord
from instride.errors import CommitFailedError, KafkaTimeoutError, RebalanceInProgressError, TransportError, WakeupError
from instride.processing.partition_queues import PartitionQueues
from instride.testing import SimulatedCluster
from instride.testing.simulation import Member, UserLoop, check, plan_for, transcript
from instride.testing.simulation.process import Sleep


class Work:
    """What `PartitionExecutor` does with threads, with the simulation's workers."""

    def __init__(self, member: Member) -> None:
        self.queues: PartitionQueues[ConsumerRecord] = PartitionQueues(
            max_records=member.plan.most_in_flight, max_bytes=1 << 40, size=lambda _: 1
        )
        self._member = member
        self._running = 0

    def start(self) -> None:
        while self._running < self._member.plan.workers and (task := self.queues.take()) is not None:
            self._running += 1
            self._member.submit(task.record).add_done_callback(self._ends(task))

    def _ends(self, task: Any) -> Callable[[Any], None]:
        def end(future: Any) -> None:
            self._running -= 1
            self.queues.end(task, future.exception())
            self.start()

        return end


def readme_loop(member: Member) -> UserLoop:
    consumer, work = member.consumer, Work(member)
    queues = work.queues
    consumer.subscribe(member.topics)
    while not member.stopping:
        try:
            records = yield from consumer.poll(timeout=member.plan.poll_timeout)
        except (WakeupError, TransportError):
            continue
        queues.submit(records, consumer.lost_partitions())
        work.start()
        yield member.breath()
        consumer.commit_async(queues.ledger.committable())
        yield member.breath()
        consumer.delay_revoke(queues.hold(consumer.to_be_revoked_partitions()), reason=queues.ledger.oldest)
        yield member.breath()
        consumer.pause(*queues.full())
        consumer.resume(*queues.ready())
        for record, _ in queues.failures():
            queues.retry(record)
        work.start()
    queues.stop()
    while not queues.at_rest():
        yield Sleep(0.05)
    try:
        yield from consumer.commit(queues.ledger.committable())
    except (CommitFailedError, KafkaTimeoutError, RebalanceInProgressError, WakeupError) as error:
        member.did("commit failed", type(error).__name__)
    yield from consumer.close(timeout=5.0)


@pytest.mark.rule("16")
@pytest.mark.parametrize("seed", range(40))
def test_histories_of_the_readmes_loop_are_good(seed: int) -> None:
    history = SimulatedCluster(plan_for(seed), loop=readme_loop).run()
    # What was only queued is dropped, and returned again to the next owner (rule 16): what was handled counts.
    done = [(event.who, *event.detail) for event in history if event.what == "done"]
    handled = tuple(
        f"offset {offset}: {partition} of {who} in epoch {epoch} " for who, partition, offset, epoch in done
    )
    found = [each for each in check(history) if each.number != "S1" or each.text.startswith(handled)]
    assert not found, transcript(history, found)
