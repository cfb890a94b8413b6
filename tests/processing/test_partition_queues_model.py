"""`PartitionQueues` against a naive model: every interleaving of small scopes, and random ones of larger scopes.

The world is a consumer that delays what `hold` returns. At each step the model says what may be started, what a
hand-over waits for and how much is queued; when a partition moves, nothing of it is under way, and the next owner
repeats nothing that was finished, unless a failed record lies before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processing_help import commit, records, tp

from instride import ConsumerRecord, TopicPartition
from instride._processing.partition_queues import PartitionQueues, Task

Action = tuple[Any, ...]
LOG = (0, 1, 3, 4, 7, 8, 9, 12)
"""Offsets have gaps."""


@dataclass
class Model:
    """One partition. states: of each record that was returned in this epoch."""

    epoch: int = 0
    owned: bool = False
    requested: bool = False
    draining: bool = False
    committed: int = 0
    states: dict[int, str] = field(default_factory=dict)

    def of(self, state: str) -> list[int]:
        return [offset for offset, each in self.states.items() if each == state]

    def prefix(self) -> int:
        """What may be committed."""
        end = self.committed
        for offset, state in self.states.items():
            if state != "finished":
                break
            end = offset + 1
        return end

    def next_start(self) -> int | None:
        lowest = min(self.of("queued"), default=None)
        if lowest is None or any(failed < lowest for failed in self.of("failed")):
            return None
        return None if self.draining and lowest > self.highest() else lowest

    def highest(self) -> int:
        return max(self.of("started") + self.of("finished"), default=-1)

    def is_waited_for(self) -> bool:
        """Rule 16, in its own words."""
        first_failed = min(self.of("failed"), default=1 << 60)
        gap = [offset for offset in self.of("queued") if offset < min(self.highest(), first_failed)]
        return bool(self.of("started") or gap or self.prefix() > self.committed)


class World:
    def __init__(self, partitions: int, length: int) -> None:
        self.length = length
        self.queues: PartitionQueues[ConsumerRecord] = PartitionQueues(
            max_records=1 << 30, max_bytes=1 << 30, size=lambda _: 1
        )
        self.models = {tp(number): Model() for number in range(partitions)}
        self.tasks: dict[tuple[TopicPartition, int], Task[ConsumerRecord]] = {}
        self.last: tuple[TopicPartition, frozenset[TopicPartition]] | None = None

    # --- what may happen, and what it does -----------------------------------------------------------------

    def actions(self) -> list[Action]:
        found: list[Action] = [("take",), ("hold",), ("commit",)]
        for partition, model in self.models.items():
            if not model.owned:
                found.append(("assign", partition))
                continue
            found += [("lose", partition), ("reassign" if model.requested else "ask", partition)]
            if not (model.requested or model.draining) and self._next_of(model) is not None:
                found.append(("submit", partition))
            found += [(how, partition, offset) for offset in model.of("started") for how in ("finish", "fail")]
            found += [(how, partition, offset) for offset in model.of("failed") for how in ("retry", "done")]
        return found

    def _next_of(self, model: Model) -> int | None:
        position = max(model.states, default=model.committed - 1)
        return next((offset for offset in LOG[: self.length] if offset > position), None)

    def do(self, action: Action) -> None:
        name, *where = action
        getattr(self, f"_{name}")(*where)
        self.judge()

    def _assign(self, partition: TopicPartition) -> None:
        old = self.models[partition]
        self.models[partition] = Model(epoch=old.epoch + 1, owned=True, committed=old.committed)

    def _submit(self, partition: TopicPartition) -> None:
        model = self.models[partition]
        offset = self._next_of(model)
        assert offset is not None
        self.queues.submit(records(partition, offset, epoch=model.epoch))
        model.states[offset] = "queued"

    def _take(self) -> None:
        may = self._startable()
        task = self.queues.take()
        if task is None:
            assert not may
            return
        partition, model = task.record.topic_partition, self.models[task.record.topic_partition]
        assert may[partition] == task.offset
        if self.last is not None and self.last[0] == partition:
            assert self.last[1] <= {partition}, "the others were passed over"
        self.last = partition, frozenset(may)
        assert model.states[task.offset] == "queued"
        model.states[task.offset] = "started"
        self.tasks[partition, task.offset] = task

    def _startable(self) -> dict[TopicPartition, int]:
        found = {partition: model.next_start() for partition, model in self.models.items()}
        return {partition: offset for partition, offset in found.items() if offset is not None}

    def _finish(self, partition: TopicPartition, offset: int) -> None:
        self.queues.end(self.tasks[partition, offset])
        self.models[partition].states[offset] = "finished"

    def _fail(self, partition: TopicPartition, offset: int) -> None:
        self.queues.end(self.tasks[partition, offset], ValueError())
        self.models[partition].states[offset] = "failed"

    def _retry(self, partition: TopicPartition, offset: int) -> None:
        self.queues.retry(self.tasks[partition, offset].record)
        self.models[partition].states[offset] = "queued"

    def _done(self, partition: TopicPartition, offset: int) -> None:
        self.queues.done(self.tasks[partition, offset].record)
        self.models[partition].states[offset] = "finished"

    def _ask(self, partition: TopicPartition) -> None:
        self.models[partition].requested = True

    def _reassign(self, partition: TopicPartition) -> None:
        self.models[partition].requested = False

    def _commit(self) -> None:
        for partition, offset in commit(self.queues.ledger.committable()).items():
            model = self.models[partition]
            assert offset == model.prefix() > model.committed
            model.committed = offset

    def _lose(self, partition: TopicPartition) -> None:
        model = self.models[partition]
        self.queues.submit([], lost=[partition])
        assert [each.offset for each in self.queues.abandoned] == model.of("started")
        old = [self.tasks[partition, offset] for offset in model.of("started")]
        self.models[partition] = Model(epoch=model.epoch, committed=model.committed)
        for task in old:
            self.queues.end(task)  # it ends nevertheless

    def _hold(self) -> None:
        requested = {partition for partition, model in self.models.items() if model.requested}
        waited_for = {partition for partition in requested if self.models[partition].is_waited_for()}
        assert self.queues.hold(requested) == waited_for
        for partition, model in self.models.items():
            model.draining = partition in requested
        for partition in requested - waited_for:
            self._moves(partition, self.models[partition])

    def _moves(self, partition: TopicPartition, model: Model) -> None:
        """Its revoke completes: the next owner begins at what is committed."""
        assert model.of("started") == []
        first_failed = min(model.of("failed"), default=1 << 60)
        repeated = [offset for offset in model.of("finished") if model.committed <= offset < first_failed]
        assert repeated == []
        self.models[partition] = Model(epoch=model.epoch, committed=model.committed)

    # --- what must hold after each step ----------------------------------------------------------------------

    def judge(self) -> None:
        if self.last is not None:  # whom a record was started of, and who had one to start ever since
            self.last = self.last[0], self.last[1] & self._startable().keys()
        models = self.models.values()
        assert self.queues.queued == sum(len(model.of("queued")) for model in models)
        assert self.queues.started == sum(len(model.of("started")) for model in models)
        open_ones = sum(len(model.states) - len(model.of("finished")) for model in models)
        assert self.queues.records == self.queues.bytes == open_ones
        assert len(self.queues.failures()) == sum(len(model.of("failed")) for model in models)

    def state(self) -> object:
        """By which equal worlds are known. Epochs only count."""
        models = [
            (each.owned, each.requested, each.draining, each.committed, tuple(each.states.items()))
            for each in self.models.values()
        ]
        turns = list(self.queues._turns)
        return str((models, turns, self.last))


def explored(partitions: int, length: int, depth: int) -> list[int]:
    """Every sequence of so many actions, equal states merged. How many new states each further action led to."""
    seen: set[object] = set()
    found: list[int] = []
    waiting: list[tuple[Action, ...]] = [()]
    while waiting and len(found) < depth:
        longer: list[tuple[Action, ...]] = []
        for path in waiting:
            for action in replayed(partitions, length, path).actions():
                world = replayed(partitions, length, path)
                world.do(action)
                if world.state() not in seen:
                    seen.add(world.state())
                    longer.append((*path, action))
        waiting = longer
        found.append(len(waiting))
    return found


def replayed(partitions: int, length: int, path: tuple[Action, ...]) -> World:
    world = World(partitions, length)
    for action in path:
        world.do(action)
    return world


@pytest.mark.rule("16")
def test_every_interleaving_of_one_partition_and_three_records_keeps_the_rule() -> None:
    found = explored(partitions=1, length=3, depth=100)
    assert found[-1] == 0, "there is no other state"
    assert sum(found) > 500


@pytest.mark.rule("16")
def test_every_interleaving_of_two_partitions_keeps_the_rule_to_a_depth() -> None:
    assert sum(explored(partitions=2, length=2, depth=9)) > 1000


@pytest.mark.rule("16")
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_long_random_interleavings_keep_the_rule(data: st.DataObject) -> None:
    world = World(3, len(LOG))
    for _ in range(data.draw(st.integers(1, 80))):
        world.do(data.draw(st.sampled_from(world.actions())))
