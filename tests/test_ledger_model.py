"""`OffsetLedger` against a naive model: every order of calls that hypothesis can think of."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from instride.commits import CommitEntry, CommitSnapshot
from instride.consumer_records import Stretch
from instride.errors import OffsetGapError
from instride.ledger import OffsetLedger
from instride.records import ConsumerRecord, OffsetRange, TopicPartition

PARTITIONS = [TopicPartition("t", number) for number in range(2)]
PARTITION = st.sampled_from(PARTITIONS)
HOW = st.sampled_from(["finished", "failed", "cancelled", "in progress"])
Delivered = ConsumerRecord | OffsetRange


class OfAClosedLoop:
    """A future of asyncio that is done, and whose event loop is closed, does so."""

    def add_done_callback(self, callback: Any, /) -> None:
        raise RuntimeError("Event loop is closed")


@dataclass
class Modelled:
    """One record: its state in words, and the offset that it finishes to."""

    record: Delivered
    end: int
    state: str = "in progress"
    error: Exception | None = None
    raised: bool = False
    behind_gap: bool = False


@dataclass
class ModelPartition:
    epoch: int
    seek: int
    position: int
    records: list[Modelled] = field(default_factory=list)
    committed: int = -1
    stale: bool = False
    gap: tuple[int, int] | None = None
    gap_raised: bool = False
    known_to: int = -1

    def finished_to(self) -> int:
        end = -1
        for each in self.records:
            if each.state != "finished" or each.behind_gap:
                break
            end = each.end
        return end

    def ahead(self) -> bool:
        return self.finished_to() > self.committed and not self.stale


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ledger = OffsetLedger()
        self.current: dict[TopicPartition, ModelPartition] = {}
        self.everything: list[Modelled] = []
        self.snapshots: list[CommitSnapshot] = []
        self.epochs = 0

    # --- what a consumer does ---------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        for partition in PARTITIONS:
            self.assign_anew(partition, 0)

    @rule(partition=PARTITION, offset=st.integers(0, 50))
    def assign_anew(self, partition: TopicPartition, offset: int) -> None:
        self.epochs += 1
        self._begin(partition, ModelPartition(epoch=self.epochs, seek=0, position=offset))

    @rule(partition=PARTITION, offset=st.integers(0, 50))
    def seek(self, partition: TopicPartition, offset: int) -> None:
        if partition in self.current:
            old = self.current[partition]
            self._begin(partition, ModelPartition(epoch=old.epoch, seek=old.seek + 1, position=offset))

    def _begin(self, partition: TopicPartition, fresh: ModelPartition) -> None:
        self.current[partition] = fresh
        self._deliver(partition, [1], as_range=False, leader_epoch=0)

    @rule(
        partition=PARTITION,
        gaps=st.lists(st.integers(1, 3), min_size=1, max_size=5),
        as_range=st.booleans(),
        leader_epoch=st.integers(0, 1),
        known=st.booleans(),
        missing=st.sampled_from([0, 0, 0, 2]),
    )
    def poll(
        self,
        partition: TopicPartition,
        gaps: list[int],
        as_range: bool,
        leader_epoch: int,
        known: bool,
        missing: int,
    ) -> None:
        """missing: so many offsets were polled before, and not tracked; known: whether the ledger can tell."""
        if partition in self.current:
            self.current[partition].position += missing
            self._deliver(partition, gaps, as_range=as_range, leader_epoch=leader_epoch, known=known)

    def _deliver(
        self, partition: TopicPartition, gaps: list[int], *, as_range: bool, leader_epoch: int, known: bool = True
    ) -> None:
        model, batch, start = self.current[partition], [], self.current[partition].position
        if known and model.gap is None and -1 < model.known_to < start:
            model.gap = (model.known_to, start)
        for gap in gaps:
            offset, size = model.position + gap, gap if as_range else 1
            record = _record(partition, model, offset, size, leader_epoch, as_range)
            batch.append(Modelled(record, offset + size, behind_gap=model.gap is not None))
            model.position = offset + size
        model.known_to = model.position if known else -1
        stretches = [Stretch(start, model.position, len(batch))] if known else None
        taken = self.ledger.track((each.record for each in batch), stretches=stretches)
        assert taken == [each.record for each in batch]
        model.records += batch
        self.everything += batch

    # --- what handlers do -------------------------------------------------------------------------------

    @rule(picks=st.lists(st.integers(0, 30), min_size=1, max_size=8))
    def finish(self, picks: list[int]) -> None:
        for pick in picks:
            self.end(pick, "finished")

    @rule(pick=st.integers(0, 30), how=HOW)
    def end(self, pick: int, how: str) -> None:
        """A record of the current assignments ends in some way, perhaps not for the first time."""
        if ours := self._all():
            one = ours[pick % len(ours)]
            self._end(one, how, known=True)

    @rule(pick=st.integers(0, 30), how=HOW)
    def end_any(self, pick: int, how: str) -> None:
        """Any record that was ever delivered ends, also those of epochs long over."""
        if self.everything:
            one = self.everything[pick % len(self.everything)]
            self._end(one, how, known=any(each is one for each in self._all()))

    def _end(self, one: Modelled, how: str, *, known: bool) -> None:
        error = ValueError(f"before {one.end}")
        self._tell(one.record, how, error)
        if known and one.state != "finished" and (how != "cancelled" or one.state == "in progress"):
            one.state, one.raised = how, False
            one.error = error if how == "failed" else None

    def _tell(self, record: Delivered, how: str, error: Exception) -> None:
        future: Future[None] = Future()
        if how == "finished":
            self.ledger.done(record)
        elif how == "failed":
            self.ledger.fail(record, error)
        elif how == "in progress":
            self.ledger.watch(record, future)
        else:
            future.cancel()
            self.ledger._on_done(record, future)

    @rule(pick=st.integers(0, 30))
    def watch_what_cannot_be_watched(self, pick: int) -> None:
        """It is left open as one that is cancelled is; one that has failed has failed anew, with its error."""
        if self.everything:
            one = self.everything[pick % len(self.everything)]
            with suppress(RuntimeError):
                self.ledger.watch(one.record, OfAClosedLoop())
            one.state = "cancelled" if one.state == "in progress" else one.state
            one.raised = False

    # --- what the application asks ----------------------------------------------------------------------

    @rule(partitions=st.sets(PARTITION))
    def forget(self, partitions: set[TopicPartition]) -> None:
        expected = []
        for partition in partitions:
            model = self.current.pop(partition, None)
            expected += [each.record for each in model.records if each.state == "in progress"] if model else []
        assert self.ledger.forget(partitions) == expected

    @rule()
    def take_snapshot(self) -> None:
        self.snapshots.append(self.ledger.committable())

    @rule(pick=st.integers(0, 5), committed=st.booleans(), stale=st.booleans())
    def response(self, pick: int, committed: bool, stale: bool) -> None:
        """Snapshots get their responses in any order, some twice, some never."""
        if not self.snapshots:
            return
        snapshot = self.snapshots[-1 - pick % len(self.snapshots)]
        for partition, entry in snapshot.entries.items():
            snapshot.settle(partition, entry, committed=committed, stale=stale and not committed)
            self._settled(partition, entry, committed, stale and not committed)

    def _settled(self, partition: TopicPartition, entry: CommitEntry, committed: bool, stale: bool) -> None:
        model = self.current.get(partition)
        if model is not None and (model.epoch, model.seek) == (entry.epoch, entry.seek_number):
            model.committed = max(model.committed, entry.offset if committed else -1)
            model.stale = model.stale or stale

    @rule()
    def check(self) -> None:
        waiting = [one for one in self._all() if one.state == "failed" and not one.raised]
        try:
            self.ledger.check()
        except ValueError as error:
            (found,) = [one for one in waiting if one.error is error]
            found.raised = True
        except OffsetGapError as gap:
            model = self.current[TopicPartition(gap.topic, gap.partition)]
            (model.gap_raised,) = {True} if model.gap and not model.gap_raised else set()
        else:
            assert waiting == []
            assert all(model.gap is None or model.gap_raised for model in self.current.values())

    def _all(self) -> list[Modelled]:
        return [each for model in self.current.values() for each in model.records]

    # --- what must hold after each step -----------------------------------------------------------------

    @invariant()
    def what_may_be_committed_is_as_the_model_says(self) -> None:
        entries = self.ledger.committable().entries
        assert {partition: each.offset for partition, each in entries.items()} == {
            partition: model.finished_to() for partition, model in self.current.items() if model.ahead()
        }
        for partition, entry in entries.items():
            model = self.current[partition]
            last = next(each.record for each in model.records if each.end == entry.offset)
            assert (entry.epoch, entry.seek_number) == (model.epoch, model.seek)
            assert entry.leader_epoch == last.leader_epoch

    @invariant()
    def what_is_worth_a_delay_is_as_the_model_says(self) -> None:
        under_way = {
            partition
            for partition, model in self.current.items()
            if any(each.state == "in progress" and not each.behind_gap for each in model.records)
        }
        ahead = {p for p, m in self.current.items() if m.ahead()}
        assert self.ledger.uncommitted(PARTITIONS) == under_way | ahead

    @invariant()
    def the_counts_are_as_the_model_says(self) -> None:
        states = [one.state for one in self._all()]
        assert self.ledger.in_progress() == states.count("in progress")
        assert len(self.ledger.failures()) == states.count("failed")
        for partition in PARTITIONS:
            model = self.current.get(partition)
            open_ones = (
                [each.record for each in model.records if each.state != "finished" and not each.behind_gap]
                if model
                else []
            )
            assert self.ledger.oldest(partition) == (open_ones[0] if open_ones else None)
        assert {(each.topic, each.partition): (each.start, each.end) for each in self.ledger.gaps()} == {
            partition: model.gap for partition, model in self.current.items() if model.gap is not None
        }


def _record(
    partition: TopicPartition, model: ModelPartition, offset: int, size: int, leader_epoch: int, as_range: bool
) -> Delivered:
    topic, number = partition
    epoch, seek = model.epoch, model.seek
    if not as_range:
        return ConsumerRecord(topic, number, offset, epoch=epoch, seek_number=seek, leader_epoch=leader_epoch)
    return OffsetRange(
        topic=topic,
        partition=number,
        start=offset,
        end=offset + size,
        epoch=epoch,
        seek_number=seek,
        leader_epoch=leader_epoch,
    )


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
