"""A record that cannot be deserialized: it stands there until it can be read or is gone past, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from application_script import Script, tp
from hypothesis import given
from hypothesis import strategies as st

from instride._core.application.calls import Wait
from instride._core.application.machine import ApplicationMachine
from instride._core.application.partition import Delivery
from instride._core.events import (
    Commit,
    Consumed,
    DropBuffered,
    Fetched,
    PartitionFailed,
    Positioned,
    SetPosition,
    UnreadablePartitions,
    Wakeup,
)
from instride.errors import DeserializationError, LogTruncationError, WakeupError
from instride.records import ConsumerRecord, TopicPartition
from instride.testing._simulation.chunk import SimulatedChunk


class Reader:
    """Deserializes all but `bad`, as (partition, offset)."""

    def __init__(self, bad: Iterable[tuple[int, int]] = ()) -> None:
        self.bad = set(bad)
        self.interrupt_at: tuple[int, int] | None = None
        self.meanwhile: Callable[[], object] | None = None
        self.calls = 0

    def read(self, record: ConsumerRecord) -> ConsumerRecord:
        self.calls += 1
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        where = (record.partition, record.offset)
        if where == self.interrupt_at:
            self.interrupt_at = None
            raise KeyboardInterrupt
        if where in self.bad:
            raise DeserializationError(f"{where} is bad", part="value", record=record)
        return record


class ReadingScript(Script):
    """Polls deserialize. Partitions 0 and 1 are assigned, at offset 0."""

    def __init__(self, *bad: tuple[int, int], **settings: Any) -> None:
        super().__init__(**settings)
        self.reader = Reader(bad)
        self.subscribe()
        self.assigned(0, 1)
        self.poll()

    def arrives(self, partition: int, start: int, end: int, *, leader_epoch: int = 0, fetch_number: int = 0) -> None:
        chunk = SimulatedChunk(
            topic="t", partition=partition, first_offset=start, next_offset=end, epoch_starts=(0,) * (leader_epoch + 1)
        )
        self.up(
            Fetched(
                partition=tp(partition),
                epoch=1,
                fetch_number=fetch_number,
                start=start,
                chunk=chunk,
                next_offset=end,
            )
        )

    def read(self, limit: int = -1) -> list[tuple[int, int]]:
        """(partition, offset) of what a poll returned; each delivery agrees with its records."""
        call = self.machine.poll(self.now, 0.0, immediate=False, limit=limit, read=self.reader.read)
        return shown_records(self.run(call))

    def fails(self, *, after: float = 0.0) -> tuple[int, int]:
        """after: seconds, for an error that was raised before."""
        self.now += after
        with pytest.raises(DeserializationError) as failed:
            self.read()
        return failed.value.partition, failed.value.offset

    def reading_outlasts_the_lease(self) -> None:
        """That of the next poll does, unless somebody renews the lease."""
        self.lease.expires = self.now + 10

        def long() -> None:
            self.now += 11

        self.reader.meanwhile = long

    def position(self, partition: int) -> int:
        return self.run(self.machine.position(self.now, tp(partition), 0.0))

    def leader_epoch(self) -> int:
        """That which a commit of what was read of partition 0 tells the group."""
        self.machine.commit_async(self.now, None)
        (commit,) = self.take_posted(Commit)
        return commit.entries[tp(0)].leader_epoch


def shown_records(deliveries: Sequence[Delivery]) -> list[tuple[int, int]]:
    found = []
    for each in deliveries:
        assert each.records is not None
        assert [record.offset for record in each.records] == list(
            range(each.chunk.first_offset, each.chunk.next_offset)
        )
        found += [(record.partition, record.offset) for record in each.records]
    return found


@pytest.mark.requirement("surface/deserialization-error")
@pytest.mark.vector(58)
@pytest.mark.rule("17")
def test_the_error_repeats_with_back_off_and_the_position_stays_until_a_seek() -> None:
    script = ReadingScript((0, 2))
    script.arrives(0, 0, 5)
    assert script.read() == [(0, 0), (0, 1)], "what comes before it"
    assert script.fails() == (0, 2)
    for delay in (1, 2, 4, 8, 16, 32, 60, 60):
        script.now += delay - 0.01
        assert script.read() == [], "it is not tried yet"
        assert script.fails(after=0.01) == (0, 2)
        assert script.position(0) == 2
        (error,) = script.machine.failed().values()
        assert isinstance(error, DeserializationError)
    script.machine.seek(tp(0), 3)
    script.arrives(0, 3, 5, fetch_number=1)
    assert script.machine.failed() == {}
    assert script.read() == [(0, 3), (0, 4)]


def test_the_network_side_knows_which_partitions_cannot_be_read() -> None:
    """It waits for no poll to take what is buffered of them."""
    script = ReadingScript((0, 1), (1, 0))

    def told() -> list[dict[Any, int]]:
        return [dict(each.partitions) for each in script.take_posted(UnreadablePartitions)]

    script.arrives(0, 0, 3)
    assert (script.read(), told()) == ([(0, 0)], [{tp(0): 1}])
    script.arrives(1, 0, 3)
    assert (script.fails(), told()) == ((0, 1), [])
    assert (script.fails(), told()) == ((1, 0), [{tp(0): 1, tp(1): 1}])
    assert (script.fails(after=1.0), told()) == ((0, 1), [])
    assert (script.fails(), told()) == ((1, 0), [])
    script.reader.bad = {(1, 0)}
    script.now += 2.0
    assert (script.read(), told()) == ([(0, 1), (0, 2)], [{tp(1): 1}])
    script.machine.seek(tp(1), 3)
    assert (script.read(), told()) == ([], [{}])
    assert (script.read(), told()) == ([], [])


def test_a_bad_first_record_is_told_at_once() -> None:
    script = ReadingScript((0, 0))
    script.arrives(0, 0, 2)
    assert script.fails() == (0, 0)
    assert script.position(0) == 0


def test_it_can_be_read_after_all() -> None:
    """A schema registry that was down for a while, say."""
    script = ReadingScript((0, 1))
    script.arrives(0, 0, 3)
    script.read()
    assert script.fails() == (0, 1)
    script.reader.bad.clear()
    assert script.read() == []
    script.now += 1.0
    assert script.read() == [(0, 1), (0, 2)]
    assert script.machine.failed() == {}


def test_others_are_returned_first_and_do_not_hide_it() -> None:
    script = ReadingScript((0, 0))
    script.arrives(0, 0, 2)
    script.arrives(1, 0, 2)
    assert script.read() == [(1, 0), (1, 1)]
    script.arrives(1, 2, 9)
    assert script.fails() == (0, 0), "though the other has records again"


def test_two_that_cannot_be_read_are_told_one_after_the_other() -> None:
    script = ReadingScript((0, 0), (1, 0))
    script.arrives(0, 0, 1)
    script.arrives(1, 0, 1)
    first = script.fails()
    script.machine.seek(tp(first[0]), 1)
    assert {first, script.fails()} == {(0, 0), (1, 0)}


def test_what_was_not_returned_is_not_told_as_consumed_and_not_fetched_again() -> None:
    script = ReadingScript((0, 2), prefetch="total")
    script.arrives(0, 0, 5)
    script.posted.clear()
    script.read()
    script.fails()
    (consumed,) = script.take_posted(Consumed)
    assert consumed.partitions[tp(0)][2] == 2
    assert script.take_posted(SetPosition) == []


def test_chunks_behind_it_keep_their_order() -> None:
    script = ReadingScript((0, 1))
    for start in (0, 2, 4):
        script.arrives(0, start, start + 2)
    assert script.read() == [(0, 0)]
    script.fails()
    script.reader.bad.clear()
    script.now += 1.0
    assert script.read() == [(0, offset) for offset in range(1, 6)]
    assert script.position(0) == 6


def test_a_gap_and_control_batches_behind_it_move_the_position_once_it_is_past() -> None:
    script = ReadingScript((0, 1))
    script.arrives(0, 0, 2)
    script.up(Fetched(partition=tp(0), epoch=1, fetch_number=0, start=2, chunk=None, next_offset=9))
    script.read()
    assert script.position(0) == 1
    script.fails()
    script.reader.bad.clear()
    script.now += 1.0
    script.read()
    assert script.position(0) == 9


def test_the_leader_epoch_is_that_of_the_last_record_returned() -> None:
    script = ReadingScript((0, 3))
    script.arrives(0, 0, 2, leader_epoch=4)
    script.arrives(0, 2, 5, leader_epoch=7)
    assert script.read(limit=2) == [(0, 0), (0, 1)]
    assert script.leader_epoch() == 4
    assert script.read() == [(0, 2)]
    assert script.leader_epoch() == 7
    script.reader.bad = {(0, 5)}
    script.machine.seek(tp(0), 5, leader_epoch=7)
    script.arrives(0, 5, 6, leader_epoch=8, fetch_number=1)
    script.fails()
    assert script.leader_epoch() == 7


def test_while_it_is_paused_nothing_of_it_is_tried_or_raised() -> None:
    script = ReadingScript((0, 0))
    script.arrives(0, 0, 1)
    script.fails()
    script.machine.pause([tp(0)])
    script.reader.calls = 0
    script.now += 9.0
    assert script.read() == []
    assert script.reader.calls == 0
    script.machine.resume([tp(0)])
    assert script.fails() == (0, 0)


def test_a_commit_of_what_was_returned_ends_before_it() -> None:
    script = ReadingScript((0, 2))
    script.arrives(0, 0, 5)
    script.read()
    script.fails()
    script.machine.commit_async(script.now, None)
    entries = script.posted[-1].entries  # type: ignore[union-attr]
    assert entries[tp(0)].offset == 2


@pytest.mark.rule("2")
def test_a_poll_that_raises_it_is_continued_and_the_lists_do_not_move_twice() -> None:
    script = ReadingScript((0, 0))
    script.arrives(0, 0, 1)
    script.revocation_requested(1)
    script.fails()
    assert script.to_be_revoked() == {1}, "requested by the poll that raised"
    assert script.read() == []
    assert script.to_be_revoked() == {1}, "so that the application can still delay it"
    assert script.delay(1) is True


def test_a_revoke_of_its_partition_ends_it() -> None:
    script = ReadingScript((0, 0))
    script.arrives(0, 0, 1)
    script.fails()
    script.revocation_requested(0)
    assert script.read() == []


@pytest.mark.parametrize("earlier", [False, True], ids=["fresh", "tried before"])
def test_what_is_interrupted_was_not_taken(earlier: bool) -> None:
    script = ReadingScript(*([(0, 0)] if earlier else []))
    script.arrives(0, 0, 3)
    script.arrives(1, 0, 3)
    if earlier:
        script.read()
        script.fails()
        script.reader.bad.clear()
        script.arrives(1, 3, 6)
        script.now += 1.0
    script.reader.interrupt_at = (0, 0) if earlier else (1, 1)
    with pytest.raises(KeyboardInterrupt):
        script.read()
    assert script.position(0) == 0
    rest = {(0, 0), (0, 1), (0, 2), *((1, offset) for offset in (range(3, 6) if earlier else range(3)))}
    assert set(script.read() + script.read()) == rest


def test_a_poll_that_deserializes_nothing_returns_it() -> None:
    script = ReadingScript((0, 0))
    script.arrives(0, 0, 3)
    script.fails()
    assert script.poll() == [(0, 0, 3)]


def test_without_deserializers_no_record_is_made() -> None:
    script = ReadingScript()
    script.arrives(0, 0, 3)
    (delivery,) = script.run(script.machine.poll(script.now, 0.0, immediate=False, limit=-1))
    assert delivery.records is None


@given(
    chunks=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 4)), max_size=8),
    bad=st.sets(st.tuples(st.integers(0, 1), st.integers(0, 12)), max_size=6),
    limits=st.lists(st.sampled_from([1, 2, 3, -1]), min_size=1),
    fairness=st.sampled_from(["greedy", "proportional"]),
)
def test_whatever_is_bad_all_others_come_once_and_in_order(
    chunks: list[tuple[int, int]], bad: set[tuple[int, int]], limits: list[int], fairness: str
) -> None:
    script = ReadingScript(*bad, fetch_fairness=fairness)
    ends = {0: 0, 1: 0}
    for partition, size in chunks:
        script.arrives(partition, ends[partition], ends[partition] + size)
        ends[partition] += size
    everything = [(partition, offset) for partition in (0, 1) for offset in range(ends[partition])]
    seen: list[tuple[int, int]] = []
    told: set[tuple[int, int]] = set()
    stood: list[bool] = []
    for number in range(10 + 2 * len(everything)):
        script.now += 1.0
        try:
            seen += script.read(limits[number % len(limits)])
        except DeserializationError as error:
            where = (error.partition, error.offset)
            told.add(where)
            stood.append(script.position(error.partition) == error.offset)
            script.reader.bad.discard(where)  # as if it had been mended: nothing is fetched again
    assert sorted(seen) == everything
    for partition in (0, 1):
        offsets = [offset for which, offset in seen if which == partition]
        assert offsets == sorted(offsets)
        assert script.position(partition) == ends[partition]
    assert told == bad & set(everything)
    assert all(stood)


def dropped(script: ReadingScript) -> SetPosition:
    """What the next poll says of partition 0 when the network side needs the memory of what is buffered of it."""
    script.up(DropBuffered(partition=tp(0), epoch=1, fetch_number=0))
    script.take_posted(SetPosition)
    assert script.read() == []
    (told,) = script.take_posted(SetPosition)
    return told


@pytest.mark.requirement("surface/byte-bounds")
def test_an_unreadable_record_that_was_dropped_is_fetched_once_it_is_due() -> None:
    """It stays in `failed_partitions` all the time, and its back-off grows."""
    script = ReadingScript((0, 2))
    script.arrives(0, 0, 5)
    assert script.read() == [(0, 0), (0, 1)]
    assert script.fails() == (0, 2)
    told = dropped(script)
    assert (told.offset, told.fetch_number, told.seek_number) == (2, 1, 0)
    assert script.machine.failed().keys() == {tp(0)}
    script.take_posted(UnreadablePartitions)
    script.now += 1.0
    assert script.read() == []
    assert script.take_posted(UnreadablePartitions) == [UnreadablePartitions(partitions={})], "it may be fetched"
    assert script.machine.failed().keys() == {tp(0)}
    script.arrives(0, 2, 5, fetch_number=1)
    assert script.fails() == (0, 2), "tried again at once"
    assert script.take_posted(UnreadablePartitions) == [UnreadablePartitions(partitions={tp(0): 1})]
    script.now += 1.0
    assert script.read() == [], "the back-off goes on growing"
    script.reader.bad.clear()
    script.now += 1.0
    assert script.read() == [(0, 2), (0, 3), (0, 4)], "nothing is lost, nothing comes twice"


@pytest.mark.requirement("surface/byte-bounds")
def test_what_is_buffered_of_a_paused_partition_is_dropped_and_comes_again() -> None:
    script = ReadingScript()
    script.arrives(0, 0, 5)
    assert script.read(limit=2) == [(0, 0), (0, 1)]
    script.machine.pause([tp(0)])
    told = dropped(script)
    assert (told.offset, told.keeps_buffer) == (2, False)
    script.machine.resume([tp(0)])
    script.arrives(0, 5, 8)
    assert script.read() == [], "of the older fetch"
    script.arrives(0, 2, 8, fetch_number=1)
    assert script.read() == [(0, each) for each in range(2, 8)]


@pytest.mark.requirement("surface/byte-bounds")
def test_a_buffer_that_is_gone_already_is_not_dropped() -> None:
    script = ReadingScript()
    script.machine.seek(tp(0), 3)
    script.arrives(0, 3, 5, fetch_number=1)
    script.take_posted(SetPosition)
    for event in (
        DropBuffered(partition=tp(0), epoch=1, fetch_number=0),
        DropBuffered(partition=tp(0), epoch=0, fetch_number=1),
        DropBuffered(partition=tp(5), epoch=0, fetch_number=0),
    ):
        script.up(event)
    assert script.read() == [(0, 3), (0, 4)]
    assert script.take_posted(SetPosition) == []


@pytest.mark.requirement("surface/byte-bounds")
def test_what_a_revoke_drops_is_told_to_the_network_side() -> None:
    script = ReadingScript()
    script.arrives(0, 0, 5)
    assert script.read(limit=2) == [(0, 0), (0, 1)]
    script.take_posted(Consumed)
    script.revocation_requested(0)
    assert script.read() == []
    told = [each.partitions[tp(0)] for each in script.take_posted(Consumed) if tp(0) in each.partitions]
    assert [(epoch, number, records) for epoch, number, records, _ in told if records] in ([(1, 0, 3)], [(1, 0, 5)])


def beside_a_small_poll(meanwhile: Callable[[ReadingScript], object]) -> list[int]:
    """What is returned of 20 records, where this happens and is looked at while the second poll deserializes."""
    script = ReadingScript()
    script.arrives(0, 0, 20)
    returned = script.read(limit=4)

    def happens() -> None:
        meanwhile(script)
        script.machine.positions()

    script.reader.meanwhile = happens
    for limit in (6, 6, -1, -1):
        with suppress(LogTruncationError):
            returned += script.read(limit=limit)
    return [offset for _, offset in returned]


def test_what_comes_while_a_poll_deserializes_makes_no_record_come_twice() -> None:
    """A deserializer may ask for the lag, and so may a listener of telemetry at the poll's end."""
    assert beside_a_small_poll(lambda script: script.arrives(0, 20, 25)) == list(range(25))


@pytest.mark.parametrize(("cut", "end"), [(7, 7), (10, 10), (15, 15)])
def test_a_log_that_is_cut_while_a_poll_deserializes_has_no_record_twice(cut: int, end: int) -> None:
    """Of what the poll has, and of what it left, what is still there is returned."""

    def is_cut(script: ReadingScript) -> None:
        error = LogTruncationError("cut", topic="t", partition=0, offset=20, divergent_offset=cut)
        script.up(PartitionFailed(partition=tp(0), epoch=1, fetch_number=0, error=error, void_from=cut))

    assert beside_a_small_poll(is_cut) == list(range(end))


@pytest.mark.parametrize("reset", [5, None])
def test_a_bad_record_that_a_log_was_cut_before_is_not_raised(reset: int | None) -> None:
    """To seek past it, as its error says, would have passed over the records that replaced it."""
    script = ReadingScript((0, 10))
    script.arrives(0, 0, 20)
    assert [offset for _, offset in script.read()] == list(range(10))
    error = LogTruncationError("cut", topic="t", partition=0, offset=20, divergent_offset=5)
    script.up(PartitionFailed(partition=tp(0), epoch=1, fetch_number=0, error=error, reset=reset, void_from=5))
    if reset is None:
        with pytest.raises(LogTruncationError):
            script.read()
    else:
        assert script.read() == []
        assert [event.offset for event in script.take_posted(SetPosition)] == [5]


def test_a_bad_record_before_the_cut_is_raised() -> None:
    script = ReadingScript((0, 3))
    script.arrives(0, 0, 20)
    assert [offset for _, offset in script.read()] == [0, 1, 2]
    error = LogTruncationError("cut", topic="t", partition=0, offset=20, divergent_offset=5)
    script.up(PartitionFailed(partition=tp(0), epoch=1, fetch_number=0, error=error, reset=5, void_from=5))
    with pytest.raises(DeserializationError):
        script.read()


@pytest.mark.rule("16")
def test_what_is_read_past_the_end_of_the_lease_counts_for_nothing() -> None:
    """A poll looks at the clock again once its deserializer has run: another member may own the partition by then."""
    script = ReadingScript()
    script.arrives(0, 0, 3)
    script.reading_outlasts_the_lease()
    assert script.read() == []
    assert script.position(0) == 0
    assert script.take_posted(Consumed) == []
    script.lease.expires = script.now + 10
    assert script.read() == [(0, 0), (0, 1), (0, 2)]
    (consumed,) = script.take_posted(Consumed)
    assert consumed.partitions[tp(0)][2] == 3


@pytest.mark.rule("16")
def test_what_is_lost_while_it_is_read_is_not_returned_by_the_next_lease() -> None:
    script = ReadingScript()
    script.arrives(0, 0, 3)
    script.arrives(1, 0, 2)

    def loses() -> None:
        script.lost(0)
        script.lease.number += 1

    script.reader.meanwhile = loses
    assert script.read() == [(1, 0), (1, 1)]
    assert script.lost_partitions() == {0}


@pytest.mark.parametrize(
    ("verb", "left"),
    [
        (lambda machine: machine.pause([tp(0)]), []),
        (lambda machine: machine.seek(tp(0), 50), []),
        (lambda machine: machine.pause([tp(1)]), [(0, 0), (0, 1), (0, 2)]),
    ],
)
def test_a_poll_obeys_what_a_telemetry_listener_pauses_or_seeks_in_it(
    verb: Callable[[ApplicationMachine], None], left: list[tuple[int, int]]
) -> None:
    """The listener hears when the poll has deserialized its records, and before it returns them."""
    script = ReadingScript()
    script.arrives(0, 0, 3)
    call = script.machine.poll(script.now, 0.0, immediate=False, limit=-1, read=script.reader.read)
    assert script.start(call).in_hand
    verb(script.machine)
    assert shown_records(script.go_on(call)) == left


def test_who_pauses_within_a_poll_and_wakes_it_is_not_kept_waiting() -> None:
    """As a signal's handler does that closes the consumer: the last look of the poll takes the wakeup."""
    script = ReadingScript()
    script.arrives(0, 0, 3)
    call = script.machine.poll(script.now, 60.0, immediate=False, limit=-1, read=script.reader.read)
    assert script.start(call).in_hand
    script.machine.pause([tp(0)])
    script.up(Wakeup())
    with pytest.raises(WakeupError):
        call.send(script.now)


@pytest.mark.rule("17")
def test_a_poll_goes_on_when_the_lease_that_its_reading_outlasted_is_renewed() -> None:
    script = ReadingScript()
    script.arrives(0, 0, 3)
    script.reading_outlasts_the_lease()
    call = script.machine.poll(script.now, 60.0, immediate=False, limit=-1, read=script.reader.read)
    script.start(call)
    call.send(script.now)
    script.lease.expires = script.now + 10
    call.send(script.now)
    with pytest.raises(StopIteration) as end:
        call.send(script.now)
    assert shown_records(end.value.value) == [(0, 0), (0, 1), (0, 2)]


def waits_again(script: ReadingScript, *, immediate: bool = False) -> Wait:
    """A poll waits; then a record that cannot be read is due again. What it waits for next."""
    call = script.machine.poll(script.now, 60.0, immediate=immediate, limit=-1, read=script.reader.read)
    next(call)
    script.now += 1.5
    return call.send(script.now)


@pytest.mark.rule("20")
def test_a_poll_without_a_lease_does_not_spin_though_a_retry_is_due() -> None:
    """It tries nothing again before the lease holds, of which an event tells."""
    script = ReadingScript((0, 2))
    script.arrives(0, 0, 5)
    script.read()
    script.fails()
    script.lease.expires = script.now
    assert waits_again(script).until > script.now


@pytest.mark.rule("20")
def test_a_poll_that_awaits_a_revoke_does_not_spin_though_a_retry_is_due() -> None:
    script = ReadingScript((0, 2))
    script.arrives(0, 0, 5)
    script.read()
    script.fails()
    script.revocation_requested(1)
    assert waits_again(script, immediate=True).until > script.now


@pytest.mark.rule("17")
def test_an_error_behind_what_a_poll_gave_up_is_raised_once_that_was_returned() -> None:
    """It was raised at once, and who sought past the record it names lost those before it."""
    script = ReadingScript((0, 2))
    script.arrives(0, 0, 5)
    script.reading_outlasts_the_lease()
    assert script.read() == []
    script.lease.expires = script.now + 10
    assert script.read() == [(0, 0), (0, 1)]
    assert script.fails() == (0, 2)


@pytest.mark.rule("17")
def test_an_error_behind_what_an_interrupted_poll_took_is_raised_after_that() -> None:
    script = ReadingScript((0, 2))
    script.arrives(0, 0, 5)
    script.arrives(1, 0, 5)
    script.reader.interrupt_at = (1, 3)
    with pytest.raises(KeyboardInterrupt):
        script.read()
    script.machine.pause([tp(1)])
    assert script.read() == [(0, 0), (0, 1)]
    assert script.fails() == (0, 2)


def by_hand() -> Script:
    """Partition 0 is assigned, and three records of it are there."""
    script = Script()
    script.machine.assign([tp(0)])
    script.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=0))
    chunk = SimulatedChunk(topic="t", partition=0, first_offset=0, next_offset=3)
    script.up(Fetched(partition=tp(0), epoch=1, fetch_number=0, start=0, chunk=chunk, next_offset=3))
    return script


def test_what_a_listener_of_telemetry_lets_go_of_after_the_reading_is_not_returned() -> None:
    script = by_hand()
    call = script.machine.poll(script.now, 0.0, immediate=False, limit=-1, read=Reader().read)
    script.start(call)
    script.machine.assign([])  # as a listener may that hears of an event before the poll goes on
    with pytest.raises(StopIteration) as end:
        call.send(script.now)
    assert end.value.value == []


# A deserializer may call the consumer, and so may a handler of a signal while it runs.


@pytest.mark.rule("17")
def test_a_record_of_a_place_that_was_left_while_it_was_read_bars_no_other_place() -> None:
    script = ReadingScript((0, 0))
    script.arrives(0, 0, 3)
    script.arrives(1, 0, 2)
    script.reader.meanwhile = lambda: script.machine.seek(tp(0), 50)
    assert script.read() == [(1, 0), (1, 1)]
    assert script.machine.failed() == {}
    script.arrives(0, 50, 52, fetch_number=1)
    assert script.read() == [(0, 50), (0, 51)]


@pytest.mark.rule("17")
def test_a_poll_whose_reading_left_its_place_returns_what_others_have_at_once() -> None:
    """All that it takes is of the partition that was sought; what others have waits in the buffer, and wakes nobody."""
    script = ReadingScript((0, 1))
    script.arrives(0, 0, 2)
    script.arrives(1, 0, 2)
    script.reader.meanwhile = lambda: script.machine.seek(tp(0), 50)
    began = script.now
    call = script.machine.poll(script.now, 60.0, immediate=False, limit=2, read=script.reader.read)
    assert shown_records(script.run(call)) == [(1, 0), (1, 1)]
    assert script.now == began
    assert script.position(0) == 50


@pytest.mark.rule("17")
@pytest.mark.parametrize("again", [False, True], ids=["first", "tried again"])
def test_a_wakeup_that_a_deserializer_takes_from_a_poll_ends_it(*, again: bool) -> None:
    """It looks at the queue, as any call of the consumer does, and leaves the place of the record that it refuses."""
    script = ReadingScript((0, 0))
    script.arrives(0, 0, 3)
    if again:
        script.fails()
        script.now += 1.0

    def seeks_and_looks() -> None:
        script.machine.seek(tp(0), 50)
        script.up(Wakeup())
        script.machine.positions()

    script.reader.meanwhile = seeks_and_looks
    call = script.machine.poll(script.now, 60.0, immediate=False, limit=-1, read=script.reader.read)
    assert script.start(call).until <= script.now
    with pytest.raises(WakeupError):
        call.send(script.now)


@pytest.mark.rule("17")
def test_nor_does_one_that_is_tried_again() -> None:
    script = ReadingScript((0, 0))
    script.arrives(0, 0, 3)
    script.fails()
    script.now += 1.0
    script.reader.meanwhile = lambda: script.machine.seek(tp(0), 50)
    assert script.read() == []
    assert script.machine.failed() == {}


@pytest.mark.rule("17")
@pytest.mark.parametrize("after", [[], [tp(0)]], ids=["nothing", "the same"])
def test_a_record_that_cannot_be_read_and_was_let_go_of_bars_no_assignment(after: list[TopicPartition]) -> None:
    script = by_hand()
    reader = Reader([(0, 0)])

    def assigns() -> None:
        script.machine.assign([])
        script.machine.assign(after)

    reader.meanwhile = assigns
    assert script.run(script.machine.poll(script.now, 0.0, immediate=False, limit=-1, read=reader.read)) == []
    assert script.machine.failed() == {}
