"""`OffsetLedger` under many threads: workers finish, a committer commits, a tracker goes on tracking."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier, Event, Thread
from weakref import finalize

from instride.commits import CommitSnapshot
from instride.ledger import OffsetLedger
from instride.records import ConsumerRecord, TopicPartition

PARTITIONS = 4
ROUNDS = 60
BATCH = 50


def batch_of(round_number: int) -> list[ConsumerRecord]:
    start = round_number * BATCH
    return [
        ConsumerRecord("t", partition, offset, epoch=1)
        for partition in range(PARTITIONS)
        for offset in range(start, start + BATCH)
    ]


class Handled:
    """What the workers have finished, noted before the ledger hears of it."""

    def __init__(self) -> None:
        self._done = [bytearray(ROUNDS * BATCH) for _ in range(PARTITIONS)]

    def note(self, record: ConsumerRecord) -> None:
        self._done[record.partition][record.offset] = 1

    def assert_covers(self, snapshot: CommitSnapshot) -> None:
        for partition, entry in snapshot.items():
            assert all(self._done[partition.partition][: entry.offset])


def commit_until(stop: Event, ledger: OffsetLedger, handled: Handled) -> dict[TopicPartition, int]:
    """Commits again and again, every third time in vain; gives back what was committed."""
    committed: dict[TopicPartition, int] = {}
    turn = 0
    while True:
        last_turn = stop.is_set()
        snapshot = ledger.committable()
        handled.assert_covers(snapshot)
        turn += 1
        for partition, entry in snapshot.entries.items():
            good = last_turn or turn % 3 > 0
            assert entry.offset > committed.get(partition, 0)
            committed[partition] = entry.offset if good else committed.get(partition, 0)
            snapshot.settle(partition, entry, committed=good)
        if last_turn:
            return committed


def test_nothing_is_lost_between_threads() -> None:
    ledger, handled, stop = OffsetLedger(), Handled(), Event()

    def handle(record: ConsumerRecord) -> None:
        handled.note(record)

    with ThreadPoolExecutor(1) as committer:
        committing = committer.submit(commit_until, stop, ledger, handled)
        with ThreadPoolExecutor(8) as pool:
            for number in range(ROUNDS):
                for record in ledger.track(batch_of(number)):
                    ledger.watch(record, pool.submit(handle, record))
        stop.set()
        committed = committing.result(60)
    assert committed == {TopicPartition("t", number): ROUNDS * BATCH for number in range(PARTITIONS)}
    assert (ledger.in_progress(), ledger.uncommitted(committed)) == (0, set())


def test_losses_and_endings_at_the_same_moment_leave_the_counts_right() -> None:
    """Two threads end the same records while a third forgets the partition and tracks it in the next epoch."""
    ledger = OffsetLedger()
    partition = TopicPartition("t", 0)
    for epoch in range(1, 40):
        records = ledger.track([ConsumerRecord("t", 0, offset, epoch=epoch) for offset in range(30)])
        gate = Barrier(3)

        def end_all(these: list[ConsumerRecord], gate: Barrier) -> None:
            gate.wait(60)
            for each in these:
                ledger.done(each)

        def lose(gate: Barrier) -> None:
            gate.wait(60)
            ledger.forget([partition])

        with ThreadPoolExecutor(3) as pool:
            for future in (
                pool.submit(end_all, records, gate),
                pool.submit(end_all, records[::-1], gate),
                pool.submit(lose, gate),
            ):
                future.result(60)
        assert ledger.in_progress() == 0
        assert not ledger.committable()


def test_no_lock_is_held_while_a_futures_callback_runs() -> None:
    """A future that is done already calls back from within `watch`; another thread must get through meanwhile."""
    ledger = OffsetLedger()
    (record,) = ledger.track([ConsumerRecord("t", 0, 0, epoch=1)])
    requested: list[int] = []

    class Nosy(Future[None]):
        def add_done_callback(self, fn: object) -> None:
            with ThreadPoolExecutor(1) as other:
                requested.append(other.submit(ledger.in_progress).result(10))

    ledger.watch(record, Nosy())
    assert requested == [1]


def test_a_finalizer_may_call_the_ledger() -> None:
    """The last reference to a record may go while the ledger holds its lock."""
    ledger = OffsetLedger()
    gone: list[int] = []

    class Payload:
        topic, partition, epoch, seek_number, leader_epoch, offset = "t", 0, 1, 0, -1, 0

    def lose_the_last_reference() -> None:
        payload = Payload()
        finalize(payload, lambda: gone.append(ledger.in_progress()))
        ledger.track([payload])
        del payload
        ledger.track([ConsumerRecord("t", 0, 0, epoch=2)])

    thread = Thread(target=lose_the_last_reference, daemon=True)
    thread.start()
    thread.join(20)
    assert gone
