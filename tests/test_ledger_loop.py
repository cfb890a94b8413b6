"""The loop of the documentation, word for word, around a fake consumer: the ledger's promises as the user meets them.

Hypothesis decides when tasks end, commits complete, partitions are requested, lost and assigned, also between
the loop's lines. (The real consumer's machines run under the same loop in their own tests.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instride.commits import CommitEntry, CommitSnapshot
from instride.ledger import OffsetLedger
from instride.records import ConsumerRecord, TopicPartition

Pending = tuple[CommitSnapshot, TopicPartition, CommitEntry]
PARTITIONS = [TopicPartition("flights", number) for number in range(3)]
LOG = [0, 1, 2, 5, 6, 9, 10, 11, 14]
"""The offsets of every partition: with gaps, as compaction leaves them."""


class World:
    """The group, the brokers and the pool. Every method of the consumer lets a little of them happen first."""

    def __init__(self, data: st.DataObject, *, losses: bool) -> None:
        self.data = data
        self.losses = losses
        self.epochs = Counter[TopicPartition]()
        self.positions: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = dict.fromkeys(PARTITIONS, 0)
        self.requested: set[TopicPartition] = set()
        self.revoke_next: set[TopicPartition] = set()
        self.revoke_thereafter: set[TopicPartition] = set()
        self.lost: set[TopicPartition] = set()
        self.newly_lost: set[TopicPartition] = set()
        self.in_flight: list[Pending] = []
        self.tasks: list[tuple[ConsumerRecord, Future[None]]] = []
        self.handled = Counter[tuple[TopicPartition, int]]()

    # --- what the loop calls -----------------------------------------------------------------------------

    def submit(self, record: ConsumerRecord) -> Future[None]:
        self.happen()
        future: Future[None] = Future()
        self.tasks.append((record, future))
        return future

    def poll(self) -> list[ConsumerRecord]:
        self.happen()
        for partition in self.revoke_next:
            self._let_go(partition)
        self.revoke_next, self.revoke_thereafter = self.revoke_thereafter, set()
        self.lost, self.newly_lost = self.newly_lost, set()
        self.revoke_next |= self.requested
        self.requested = set()
        pending = self.revoke_next | self.revoke_thereafter
        return [record for each in sorted(self.positions) if each not in pending for record in self._fetch(each)]

    def lost_partitions(self) -> set[TopicPartition]:
        self.happen()
        return self.lost

    def to_be_revoked_partitions(self) -> set[TopicPartition]:
        self.happen()
        return set(self.revoke_next)

    def delay_revoke(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in set(partitions) & self.revoke_next:
            self.revoke_next.remove(partition)
            self.revoke_thereafter.add(partition)
        self.happen()

    def commit_async(self, snapshot: CommitSnapshot) -> None:
        self.happen()
        self.in_flight += [(snapshot, partition, entry) for partition, entry in snapshot.entries.items()]

    # --- what happens meanwhile --------------------------------------------------------------------------

    def happen(self) -> None:
        for _ in range(self.data.draw(st.integers(0, 2))):
            number = self.data.draw(st.integers(0, 9))
            partition = PARTITIONS[number % len(PARTITIONS)]
            happening = self.data.draw(st.sampled_from(["end", "end", "respond", "fail", "assign", "ask", "lose"]))
            getattr(self, f"_{happening}")(partition, number)

    def _end(self, _: TopicPartition, number: int) -> None:
        if self.tasks:
            record, future = self.tasks.pop(number % len(self.tasks))
            self.handled[record.topic_partition, record.offset] += 1
            future.set_result(None)

    def _respond(self, _: TopicPartition, number: int) -> None:
        if self.in_flight:
            self._settle(self.in_flight.pop(0), good=True)

    def _fail(self, _: TopicPartition, number: int) -> None:
        if self.in_flight:
            self._settle(self.in_flight.pop(0), good=False)

    def _settle(self, pending: Pending, *, good: bool) -> None:
        snapshot, partition, entry = pending
        stale = partition not in self.positions or entry.epoch != self.epochs[partition]
        if good and not stale:
            assert self.committed[partition] <= entry.offset, "a commit went backwards"
            behind = [each for each in LOG if each < entry.offset]
            assert all(self.handled[partition, each] for each in behind), "a commit went beyond a gap"
            self.committed[partition] = entry.offset
        snapshot.settle(partition, entry, committed=good and not stale, stale=stale)

    def _assign(self, partition: TopicPartition, _: int) -> None:
        if partition not in self.positions:
            self.epochs[partition] += 1
            self.positions[partition] = self.committed[partition]

    def _ask(self, partition: TopicPartition, _: int) -> None:
        if partition in self.positions and partition not in self.revoke_next | self.revoke_thereafter:
            self.requested.add(partition)

    def _lose(self, partition: TopicPartition, _: int) -> None:
        if self.losses and partition in self.positions:
            del self.positions[partition]
            self.newly_lost.add(partition)
            for listed in (self.requested, self.revoke_next, self.revoke_thereafter):
                listed.discard(partition)

    def _let_go(self, partition: TopicPartition) -> None:
        """The revoke completes: the commits of it that are in flight get their responses first."""
        for pending in [each for each in self.in_flight if each[1] == partition]:
            self.in_flight.remove(pending)
            self._settle(pending, good=True)
        del self.positions[partition]

    def _fetch(self, partition: TopicPartition) -> list[ConsumerRecord]:
        offsets = [each for each in LOG if each >= self.positions[partition]][: self.data.draw(st.integers(0, 3))]
        if offsets:
            self.positions[partition] = offsets[-1] + 1
        epoch = self.epochs[partition]
        return [ConsumerRecord(partition.topic, partition.partition, offset, epoch=epoch) for offset in offsets]


def one_round(ledger: OffsetLedger, consumer: World, cancelled: list[ConsumerRecord]) -> None:
    records = consumer.poll()
    for record in ledger.forget(consumer.lost_partitions()):
        cancelled.append(record)
    for record in ledger.track(records):
        ledger.watch(record, consumer.submit(record))
    consumer.commit_async(ledger.committable())
    consumer.delay_revoke(ledger.uncommitted(consumer.to_be_revoked_partitions()))
    ledger.check()


def play(data: st.DataObject, *, losses: bool) -> tuple[World, OffsetLedger]:
    ledger, world = OffsetLedger(), World(data, losses=losses)
    for _ in range(data.draw(st.integers(1, 12))):
        one_round(ledger, world, [])
    while world.tasks:  # the pool drains
        world._end(PARTITIONS[0], 0)
    world.commit_async(ledger.committable())  # the last commit
    while world.in_flight:
        world._settle(world.in_flight.pop(0), good=True)
    return world, ledger


@pytest.mark.requirement("KIP-983/2")
@pytest.mark.requirement("KIP-983/7")
@pytest.mark.requirement("KIP-983/8")
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_without_a_loss_every_record_is_handled_exactly_once(data: st.DataObject) -> None:
    world, ledger = play(data, losses=False)
    assert set(world.handled.values()) <= {1}
    for partition, position in world.positions.items():
        delivered = [each for each in LOG if each < position]
        assert all(world.handled[partition, each] == 1 for each in delivered)
        assert world.committed[partition] == (delivered[-1] + 1 if delivered else 0)
    assert ledger.uncommitted(world.positions) == set()


@pytest.mark.requirement("KIP-983/15")
@pytest.mark.requirement("KIP-983/8")
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_with_losses_no_commit_is_of_an_older_epoch_or_beyond_a_gap(data: st.DataObject) -> None:
    """`World._settle` asserts it of every commit; what is committed was handled at least once."""
    world, _ = play(data, losses=True)
    for partition, committed in world.committed.items():
        assert all(world.handled[partition, each] for each in LOG if each < committed)


def test_a_record_that_ends_between_the_lines_delays_its_partition_once_more() -> None:
    ledger, partition = OffsetLedger(), PARTITIONS[0]
    (record,) = ledger.track([ConsumerRecord("flights", 0, 0, epoch=1)])
    early = ledger.committable()
    ledger.done(record)
    assert not early
    assert ledger.uncommitted([partition]) == {partition}
