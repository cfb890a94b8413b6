"""What a response brought is decoded when there is room for it, in turns; what is counted is what is really held."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

import pytest
from network_script import NetworkScript, tp

from instride._core.events import (
    Assign,
    Close,
    Consumed,
    DropBuffered,
    EndsFound,
    Fetched,
    PartitionFailed,
    Pause,
    Polled,
    Resume,
    SetPosition,
    UnreadablePartitions,
)
from instride._core.network.actions import Deliver, Transmit
from instride._core.network.ranges import RangeChunk
from instride._wire import api
from instride._wire.memory_pool import segment_bytes
from instride._wire.record_chunk import Piece
from instride.errors import CorruptRecordError, ErrorCode, FrameTooLargeError

KIB = 1 << 10
MIB = 1 << 20


@dataclass(slots=True)
class Batches:
    """Undecoded batches: of each, how many bytes its records take. One record each, from `offset` on."""

    offset: int
    sizes: list[int]
    partition: int = 0
    tail: int = 0
    corrupt: Exception | None = None
    done: bool = False
    detached: bool = False
    # How much of it was worth keeping when it was detached last; -1: all.
    kept: int = -1
    # How long a response it was told to be usual, and whether it may stay there.
    usual: int = 0
    stays: bool = False
    nbytes: int = 0
    # As it came, compressed; 0: so little that it is decoded at once.
    length: int = 0
    # How many records more the headers count than there are.
    more: int = 0
    requested: list[tuple[int, int, bool]] = field(default_factory=list)

    @property
    def next_offset(self) -> int:
        return self.offset + len(self.sizes) + self.tail + self.more

    def decode(self, target: int, capacity: int, *, alone: bool = False) -> Piece | None:
        self.requested.append((target, capacity, alone))
        if not self.sizes:
            self.done = True
            return Piece(next_offset=self.offset + self.tail, corrupt=self.corrupt)
        if self.sizes[0] > capacity and not alone:
            return None
        start, size = self.offset, self.sizes.pop(0)
        self.offset += 1
        chunk = RangeChunk(
            topic="t", partition=self.partition, first_offset=start, next_offset=self.offset, nbytes=size
        )
        self.done = not self.sizes and self.corrupt is None and not self.tail
        return Piece(chunk=chunk, next_offset=self.offset, nbytes=size)  # type: ignore[arg-type]

    def detach(self, most: int = -1, *, usual: int = 0, stays: bool = False) -> None:
        self.detached = True
        self.kept, self.usual, self.stays = most, usual, stays


class Followed(Batches):
    """Whether it is still there can be seen."""


def member(*partitions: int, **settings: object) -> NetworkScript:
    script = NetworkScript(topics={"t": 48}, **settings)  # type: ignore[arg-type]
    script.member_of(1, *partitions)
    return script


def response(script: NetworkScript, **found: Batches) -> None:
    partitions: dict[api.Partition, api.FetchedPartition] = {}
    for name, batches in found.items():
        number = batches.partition = int(name[1:])
        partitions[tp(number)] = api.FetchedPartition(
            next_offset=batches.offset, high_watermark=1000, undecoded=batches
        )
    script.response(api.Fetch, api.FetchResponse(partitions=partitions))


def fetched(script: NetworkScript) -> list[tuple[int, int]]:
    return [(each.partition.partition, each.next_offset) for each in script.take(Fetched)]


def requested(script: NetworkScript) -> dict[int, int]:
    requests = [each.request for each in script.waiting if isinstance(each.request, api.Fetch)]
    return {each.partition: each.offset for request in requests for each in request.partitions}


def consume(script: NetworkScript, partition: int, records: int, nbytes: int) -> None:
    script.do(Consumed(partitions={tp(partition): (script.epoch(partition), 0, records, nbytes)}))


@pytest.mark.parametrize("buffer", [1 * MIB, 64 * MIB, 256 * MIB])
def test_a_response_of_what_was_requested_is_usual_and_a_longer_one_is_not(buffer: int) -> None:
    script = member(0, fetch_buffer_bytes=buffer)
    (request,) = [each.request for each in script.waiting if isinstance(each.request, api.Fetch)]
    batches = Batches(0, [60 * MIB] * 3, length=60 * MIB)
    response(script, p0=batches)
    larger_batch = MIB  # brokers allow it by default, and it comes whole
    assert batches.usual >= segment_bytes(request.max_bytes + larger_batch)
    assert batches.usual < buffer // 4 + 2 * larger_batch


@pytest.mark.requirement("surface/lag")
@pytest.mark.parametrize("length", [1 * KIB, 90 * KIB], ids=["at once", "in a later turn"])
def test_an_end_that_went_back_is_told_whenever_its_records_are_decoded(length: int) -> None:
    script = member(0)
    for end, batches in ((50, None), (3, Batches(0, [KIB] * 3, length=length))):
        stated = api.FetchedPartition(next_offset=0, high_watermark=end, undecoded=batches)
        script.response(api.Fetch, api.FetchResponse(partitions={tp(0): stated}))
    assert fetched(script) == [(0, 1), (0, 2), (0, 3)]
    assert [each.end for event in script.take(EndsFound) for each in event.ends] == [50, 3]


@pytest.mark.requirement("surface/byte-bounds")
@pytest.mark.rule("M")
def test_what_has_no_room_waits_undecoded_and_is_not_requested_again() -> None:
    script = member(0, fetch_buffer_bytes=200 * KIB)
    batches = Batches(0, [60 * KIB] * 3, length=90 * KIB)
    response(script, p0=batches)
    assert fetched(script) == [(0, 1)], "a half is 100 KiB"
    assert batches.requested[-1] == (40 * KIB, 40 * KIB, False)
    assert batches.detached
    assert requested(script) == {}
    consume(script, 0, 1, 60 * KIB)
    assert fetched(script) == [(0, 2)]
    consume(script, 0, 1, 60 * KIB)
    assert fetched(script) == [(0, 3)]
    assert requested(script) == {0: 3}


@pytest.mark.requirement("surface/byte-bounds")
@pytest.mark.parametrize(("came", "decoded"), [(90, 100), (100, 100), (150, 50), (300, 25)])
def test_where_more_than_a_half_has_come_so_much_less_is_decoded_at_a_time(came: int, decoded: int) -> None:
    """A broker that sends more than was requested filled the memory by as much."""
    script = member(0, fetch_buffer_bytes=200 * KIB)
    batches = Batches(0, [10 * KIB] * 50, length=came * KIB)
    response(script, p0=batches)
    assert batches.requested[0][1] == decoded * KIB


def test_a_piece_keeps_all_its_memory_until_its_last_record_is_consumed() -> None:
    script = member(0, fetch_buffer_bytes=200 * KIB)
    chunk = RangeChunk(topic="t", partition=0, first_offset=0, next_offset=10, nbytes=80 * KIB)
    found = api.FetchedPartition(chunk=chunk, next_offset=10, high_watermark=1000)  # type: ignore[arg-type]
    script.response(api.Fetch, api.FetchResponse(partitions={tp(0): found}))
    consume(script, 0, 9, 72 * KIB)
    batches = Batches(10, [30 * KIB])
    response(script, p0=batches)
    assert set(batches.requested) == {(92 * KIB, 20 * KIB, False)}
    consume(script, 0, 1, 8 * KIB)
    assert fetched(script)[-1] == (0, 11)


class DetachedWhenAlone(Batches):
    """found: whether its response had been let go of, at each decoding of a batch that passes alone."""

    def __init__(self, found: list[bool]) -> None:
        super().__init__(0, [500 * KIB])
        self._found = found

    def decode(self, target: int, capacity: int, *, alone: bool = False) -> Any:
        if alone:
            self._found.append(self.detached)
        return super().decode(target, capacity, alone=alone)


def test_what_passes_alone_lets_go_of_the_rest_of_its_response_first() -> None:
    """The others' part of it, which was given up, would be there beside the batch."""
    found: list[bool] = []
    response(member(0, 1, fetch_buffer_bytes=200 * KIB), p0=DetachedWhenAlone(found), p1=DetachedWhenAlone(found))
    assert found == [True]


def test_one_batch_that_is_larger_than_all_passes_alone() -> None:
    script = member(0, 1, fetch_buffer_bytes=200 * KIB)
    response(script, p0=Batches(0, [500 * KIB, 20 * KIB]), p1=Batches(0, [500 * KIB, 500 * KIB]))
    ((first, _),) = fetched(script)
    assert requested(script) == {1 - first: 0}, "what came of the other was given up: it is fetched again"
    consume(script, first, 1, 500 * KIB)
    assert len(fetched(script)) == 1


@pytest.mark.parametrize(("size", "beside"), [(150 * KIB, 50 * KIB), (150 * KIB + 1, 12 * KIB + KIB // 2)])
def test_while_one_batch_fills_the_buffer_little_is_requested_beside_it(size: int, beside: int) -> None:
    script = member(0, 1, fetch_buffer_bytes=200 * KIB)

    def requested() -> dict[int, int]:
        requests = [each.request for each in script.waiting if isinstance(each.request, api.Fetch)]
        return {each.partition: each.max_bytes for request in requests for each in request.partitions}

    response(script, p0=Batches(0, [size]), p1=Batches(0, [], tail=1))
    assert requested() == {1: beside}


def drop(script: NetworkScript, offset: int) -> int:
    """The application drops what it is asked to. Of which partition it was."""
    (asked,) = script.take(DropBuffered)
    script.do(
        SetPosition(
            partition=asked.partition,
            epoch=asked.epoch,
            seek_number=0,
            fetch_number=asked.fetch_number + 1,
            offset=offset,
        )
    )
    return asked.partition.partition


def test_what_a_paused_partition_keeps_gives_way_to_a_batch_that_needs_its_room() -> None:
    script = member(0, 1, fetch_buffer_bytes=200 * KIB)
    response(script, p0=Batches(0, [90 * KIB]), p1=Batches(0, []))
    script.do(Pause(partition=tp(0), epoch=script.epoch(0)))
    script.pass_time(1)
    response(script, p1=Batches(0, [30 * KIB, 30 * KIB]))
    assert fetched(script) == [(0, 1)]
    assert drop(script, 0) == 0
    assert fetched(script) == [(1, 1), (1, 2)]


@pytest.mark.parametrize("turns", range(10))
def test_a_large_batch_passes_as_soon_as_polls_have_taken_what_was_there_before_it(turns: int) -> None:
    """Its neighbours always have more: whoever is tried first when nothing waits is the one that passes."""
    script = member(*range(10), fetch_buffer_bytes=200 * KIB)
    neighbours = {f"p{number}": Batches(0, [10 * KIB] * 500) for number in range(1, 10)}
    response(script, **neighbours, p0=Batches(0, [500 * KIB]))
    buffered = fetched(script)
    assert 0 not in dict(buffered)
    for _ in range(turns):  # a poll takes one record of the many
        partition, _ = buffered.pop(0)
        consume(script, partition, 1, 10 * KIB)
        buffered += fetched(script)
    taken: dict[int, int] = {}
    for partition, _ in buffered:
        taken[partition] = taken.get(partition, 0) + 1
    script.do(Consumed(partitions={tp(p): (script.epoch(p), 0, n, n * 10 * KIB) for p, n in taken.items()}))
    assert fetched(script) == [(0, 1)]


@pytest.mark.parametrize("large", [95 * KIB, 500 * KIB], ids=["within the half", "larger than it"])
@pytest.mark.parametrize("partitions", [2, 10, 48])
def test_a_large_batch_has_its_turn_though_its_neighbours_always_have_more(partitions: int, large: int) -> None:
    """A poll takes one record of one partition: something decoded always waits, if its neighbours may go on."""
    script = member(*range(partitions), fetch_buffer_bytes=200 * KIB)
    neighbours = {f"p{number}": Batches(0, [2 * KIB] * 500) for number in range(1, partitions)}
    response(script, **neighbours, p0=Batches(0, [large]))
    buffered = fetched(script)
    waited = 0
    while 0 not in dict(buffered):
        waited += 1
        partition, _ = buffered.pop(0)
        consume(script, partition, 1, 2 * KIB)
        buffered += fetched(script)
        assert waited < 80, "16 turns, and until all 50 that may be decoded were taken"


def test_those_that_large_batches_made_wait_have_their_turn_between_these() -> None:
    """Each time that one passes alone, what came of the others is dropped, the small one's too."""
    script = member(*range(6), fetch_buffer_bytes=200 * KIB)
    at = dict.fromkeys(range(6), 0)
    passed: list[int] = []
    while passed.count(5) < 3:
        wanted = requested(script)
        if wanted:
            sizes = {number: 500 * KIB if number < 5 else 20 * KIB for number in wanted}
            response(script, **{f"p{n}": Batches(offset, [sizes[n]] * 3) for n, offset in wanted.items()})
        for partition, end in fetched(script):
            passed.append(partition)
            at[partition] = end
            consume(script, partition, 1, (500 if partition < 5 else 20) * KIB)
        assert len(passed) < 60
    assert set(passed) == set(range(6))


def test_what_nobody_can_deserialize_holds_up_no_large_batch() -> None:
    """A poll does not take it away, so nobody waits for that."""
    script = member(0, 1, fetch_buffer_bytes=200 * KIB)
    response(script, p1=Batches(0, [30 * KIB, 30 * KIB]), p0=Batches(0, [500 * KIB]))
    assert fetched(script) == [(1, 1), (1, 2)]
    script.do(UnreadablePartitions(partitions={tp(1): script.epoch(1) + 1, tp(7): 1}))
    assert fetched(script) == [], "of another assignment"
    script.do(UnreadablePartitions(partitions={tp(1): script.epoch(1)}))
    assert fetched(script) == [], "it is not alone yet"
    assert drop(script, 0) == 1
    assert fetched(script) == [(0, 1)]


@pytest.mark.requirement("KIP-41/12")
def test_what_nobody_can_deserialize_does_not_count_where_records_are_bounded() -> None:
    script = member(0, 1, prefetch="total", max_poll_records=2)
    response(script, p0=Batches(0, [5, 5]))
    assert fetched(script) == [(0, 1), (0, 2)]
    consume(script, 1, 0, 0)
    assert 1 not in requested(script)
    script.do(UnreadablePartitions(partitions={tp(0): script.epoch(0)}))
    assert 1 in requested(script)


def test_one_that_waits_for_capacity_and_is_lost_is_forgotten() -> None:
    script = member(0, 1, fetch_buffer_bytes=200 * KIB)
    response(script, p1=Batches(0, [90 * KIB]), p0=(batches := Batches(0, [500 * KIB])))
    assert fetched(script) == [(1, 1)]
    epoch = script.epoch(1)
    script.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    script.do(Consumed(partitions={tp(1): (epoch, 0, 1, 90 * KIB)}))
    assert fetched(script) == []
    assert batches.sizes == [500 * KIB]


def test_a_small_batch_passes_where_nothing_of_its_partition_is_buffered() -> None:
    script = member(0, 1, fetch_buffer_bytes=4 * KIB)
    response(script, p0=Batches(0, [16 * KIB]), p1=Batches(0, [16 * KIB, 16 * KIB]))
    assert sorted(fetched(script)) == [(0, 1), (1, 1)]


def test_one_turn_decodes_a_bounded_amount_and_the_next_goes_on_at_once() -> None:
    script = member(0, 1, fetch_buffer_bytes=256 * MIB)
    batches = Batches(0, [MIB] * 10)
    action = next(each for each in script.waiting if isinstance(each.request, api.Fetch))
    script.waiting.remove(action)
    found = api.FetchedPartition(next_offset=batches.offset, high_watermark=1000, undecoded=batches)
    script.machine.response_received(action.request_id, api.FetchResponse(partitions={tp(0): found}), script.now)
    assert len(batches.sizes) == 6, "four are about a turn"
    script.machine.tick(script.now)
    assert len(batches.sizes) == 2
    assert script.machine.deadline() <= script.now
    script.settle()
    assert batches.done


def test_partitions_take_turns_in_being_decoded() -> None:
    script = member(0, 1, fetch_buffer_bytes=256 * MIB)
    response(script, p0=Batches(0, [MIB] * 8), p1=Batches(0, [MIB] * 8))
    order = [partition for partition, _ in fetched(script)]
    assert sorted(order) == [0] * 8 + [1] * 8
    assert set(order[:2]) == set(order[2:4]) == {0, 1}


def test_the_next_turn_goes_on_with_whom_the_last_one_came_to() -> None:
    script = member(0, 1, 2, fetch_buffer_bytes=256 * MIB)
    response(script, **{f"p{number}": Batches(0, [3 * MIB] * 3, length=MIB) for number in range(3)})
    order = [partition for partition, _ in fetched(script)]
    assert order == order[:3] * 3
    assert sorted(order[:3]) == [0, 1, 2]


def test_those_whose_share_grows_are_decoded_further() -> None:
    """Nothing else happens to them: nothing is consumed of them, and nothing comes."""
    script = member(*range(32), fetch_buffer_bytes=3200 * KIB)
    others = range(1, 32)
    came: dict[api.Partition, api.FetchedPartition] = {tp(p): api.FetchedPartition(high_watermark=5) for p in others}
    came[tp(0)] = api.FetchedPartition(high_watermark=5, undecoded=Batches(0, [60 * KIB] * 3))
    script.response(api.Fetch, api.FetchResponse(partitions=came))
    script.do(Polled(at=script.now))
    assert fetched(script) == [(0, 1)], "a share is 50 KiB"
    came = {tp(p): api.FetchedPartition(next_offset=5, high_watermark=5) for p in others}
    script.response(api.Fetch, api.FetchResponse(partitions=came))
    assert fetched(script)[-1] == (0, 2), "the others are at their ends: it is 100 KiB"


def test_a_small_batch_of_one_that_was_passed_over_passes_without_capacity() -> None:
    """What came of it before was another one."""
    script = member(0, 1, 2, fetch_buffer_bytes=200 * KIB)
    response(script, p1=Batches(0, [100 * KIB]), p0=Batches(0, [60 * KIB]), p2=Batches(0, [60 * KIB]))
    assert fetched(script) == [(1, 1)]
    seek = SetPosition(partition=tp(2), epoch=script.epoch(2), seek_number=1, fetch_number=1, offset=70)
    script.do(seek)
    script.response(api.Fetch, api.FetchResponse())
    arrives(script, p2=Batches(70, [10 * KIB]))
    script.settle()
    assert fetched(script) == [(2, 71)]


def test_of_many_that_were_passed_over_all_are_decoded_once_there_is_capacity() -> None:
    """It takes several turns of the machine, and nothing else happens meanwhile."""
    script = member(*range(16))
    others = {f"p{number}": Batches(0, [3 * MIB] * 2) for number in range(6)}
    response(script, p6=Batches(0, [31 * MIB]), **others)
    assert fetched(script) == [(6, 1)]
    script.machine.handle(Consumed(partitions={tp(6): (script.epoch(6), 0, 1, 31 * MIB)}), script.now)
    script.turn()
    while script.machine.deadline() <= script.now:
        script.turn()
    assert sorted(fetched(script)) == [(number, 1) for number in range(6)]


def test_one_not_tried_with_more_capacity_is_tried_with_less_than_another_had() -> None:
    """Of the queue the first needs more than there is, and the second takes nearly all: the third was not tried."""
    script = member(*range(6), fetch_buffer_bytes=2000 * KIB)
    sizes = {"p0": 300, "p1": 490, "p5": 200, "p2": 900, "p3": 490, "p4": 200}
    response(script, **{name: Batches(0, [size * KIB]) for name, size in sizes.items()})
    assert fetched(script) == [(0, 1), (1, 1), (5, 1)]
    for number, size in ((1, 490), (0, 300)):
        consumed = Consumed(partitions={tp(number): (script.epoch(number), 0, 1, size * KIB)})
        script.machine.handle(consumed, script.now)
        script.turn()
    assert fetched(script) == [(3, 1), (4, 1)]


def test_a_partition_that_waits_for_much_is_not_tried_again_with_no_more() -> None:
    """Among thousands of such ones each poll would have all tried: a batch is looked at each time."""
    script = member(0, 1, 2, 3, fetch_buffer_bytes=200 * KIB)
    waiting = Batches(0, [80 * KIB])
    response(script, p0=Batches(0, [20 * KIB] * 4), p1=Batches(0, [50 * KIB]), p2=Batches(0, [90 * KIB]), p3=waiting)
    tries = len(waiting.requested)
    for _ in range(5):
        script.do(Polled(at=script.now))
    assert len(waiting.requested) == tries
    consume(script, 1, 1, 50 * KIB)
    assert len(waiting.requested) == tries + 1


def test_one_that_waits_for_capacity_has_it_however_often_another_was_tried() -> None:
    """Each change has that one tried again, and most of what is noted of its tries is of no use any more."""
    script = member(0, 1, 2, 3, fetch_buffer_bytes=200 * KIB)
    sizes = {"p1": 50, "p3": 50, "p0": 90, "p2": 40}
    response(script, **{name: Batches(0, [size * KIB]) for name, size in sizes.items()})
    assert fetched(script) == [(1, 1), (3, 1)]
    for _ in range(100):
        script.do(Pause(partition=tp(0), epoch=script.epoch(0)))
        script.do(Resume(partition=tp(0), epoch=script.epoch(0)))
    consume(script, 1, 1, 50 * KIB)
    assert fetched(script) == [(2, 1)]


def test_with_nothing_that_came_nothing_that_waits_is_decoded() -> None:
    """Else it took its time before the next fetch leaves."""
    script = member(0, 1, 2, fetch_buffer_bytes=200 * KIB)
    waiting = Batches(0, [60 * KIB])
    response(script, p1=Batches(0, [90 * KIB]), p0=waiting)
    assert fetched(script) == [(1, 1)]
    script.machine.handle(Consumed(partitions={tp(1): (script.epoch(1), 0, 1, 90 * KIB)}), script.now)
    action = next(each for each in script.waiting if isinstance(each.request, api.Fetch))
    script.waiting.remove(action)
    tries = len(waiting.requested)
    script.machine.response_received(action.request_id, api.FetchResponse(), script.now)
    assert len(waiting.requested) == tries
    script.settle()
    assert fetched(script) == [(0, 1)]


def by_hand() -> tuple[NetworkScript, Followed]:
    """What came of partition 0 waits, since what came of partition 1 fills the half of the buffer."""
    script = NetworkScript(group_id=None, fetch_buffer_bytes=200 * KIB)
    script.do(Assign(partitions={tp(0): 1, tp(1): 2}))
    starts: dict[api.Partition, api.ListedOffset] = {tp(p): api.ListedOffset(offset=0) for p in (0, 1)}
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets=starts))
    batches = Followed(0, [60 * KIB])
    response(script, p1=Batches(0, [90 * KIB, 20 * KIB]), p0=batches)
    assert fetched(script) == [(1, 1)]
    return script, batches


def test_what_came_of_one_that_was_assigned_anew_by_hand_is_not_decoded() -> None:
    """Its batch took memory, and nobody would have taken its records."""
    script, batches = by_hand()
    script.machine.handle(Consumed(partitions={tp(1): (2, 0, 1, 90 * KIB)}), script.now)
    script.do(Assign(partitions={tp(0): 3, tp(1): 2}))
    assert fetched(script) == [(1, 2)]
    assert batches.sizes


def test_what_came_of_one_that_was_assigned_anew_by_hand_is_let_go_of() -> None:
    script, batches = by_hand()
    kept = weakref.ref(batches)
    del batches
    script.do(Assign(partitions={tp(0): 3, tp(1): 2}))
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("how", ["seek", "revoke", "close"])
def test_what_is_void_is_not_decoded(how: str) -> None:
    script = member(0, 1, fetch_buffer_bytes=200 * KIB)
    batches = Batches(0, [90 * KIB, 90 * KIB])
    response(script, p0=batches)
    epoch = script.epoch(0)
    assert fetched(script) == [(0, 1)]
    if how == "seek":
        script.do(SetPosition(partition=tp(0), epoch=epoch, seek_number=1, fetch_number=1, offset=70))
    elif how == "revoke":
        script.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
        script.rebalance(2, 1)
    else:
        script.do(Close(call=1, deadline=script.now + 5))
    script.do(Consumed(partitions={tp(0): (epoch, 0, 1, 90 * KIB)}))
    assert fetched(script) == []
    assert len(batches.sizes) == 1


def test_what_came_for_a_paused_partition_is_decoded_once_it_is_resumed() -> None:
    script = member(0, fetch_buffer_bytes=200 * KIB)
    script.do(Pause(partition=tp(0), epoch=script.epoch(0)))
    response(script, p0=Batches(0, [60 * KIB, 30 * KIB]))
    assert fetched(script) == []
    script.do(Resume(partition=tp(0), epoch=script.epoch(0)))
    assert fetched(script) == [(0, 1), (0, 2)]


def test_what_came_of_a_partition_that_is_paused_keeps_nothing_that_came_with_it() -> None:
    """Three paused partitions of twelve kept three whole responses."""
    script = member(0, fetch_buffer_bytes=200 * KIB)
    batches = Batches(0, [60 * KIB, 60 * KIB, 60 * KIB])
    response(script, p0=batches)
    assert fetched(script) == [(0, 1)]
    assert (batches.detached, batches.stays) == (True, True)
    script.do(Pause(partition=tp(0), epoch=script.epoch(0)))
    script.pass_time(1)
    assert not batches.stays


def test_a_corrupt_batch_is_fetched_once_more_after_what_was_good() -> None:
    script = member(0)
    error = CorruptRecordError("bad checksum")
    for _ in range(2):
        response(
            script,
            p0=Batches(0 if not requested(script).get(0) else 1, [5] * (requested(script)[0] == 0), corrupt=error),
        )
        script.pass_time(1)
    assert fetched(script) == [(0, 1)]
    (failed,) = script.take(PartitionFailed)
    assert failed.error is error


def test_only_the_position_moves_where_no_record_is_to_be_returned() -> None:
    script = member(0)
    response(script, p0=Batches(0, [], tail=9))
    (event,) = script.take(Fetched)
    assert (event.chunk, event.next_offset) == (None, 9)
    assert requested(script) == {0: 9}


def test_the_meters_tell_of_a_response_when_all_of_it_is_decoded() -> None:
    script = member(0, 1)
    response(script, p0=Batches(0, [5, 6]), p1=Batches(0, [7]))
    meter = script.machine.meter
    assert (meter.fetch_records.most(script.now), meter.fetch_bytes.most(script.now)) == (3, 18)


# --- fetching ahead: the next fetch leaves before what came is decoded -----------------------------------------


def large(offset: int, count: int = 4, **options: Any) -> Batches:
    """So much that the next fetch leaves first."""
    return Batches(offset, [MIB // 4] * count, length=MIB, **options)


def arrives(script: NetworkScript, **found: Batches | api.FetchedPartition) -> list[str]:
    """A response comes. What the turn does: "fetch" and "records"."""
    partitions: dict[api.Partition, api.FetchedPartition] = {}
    for name, each in found.items():
        number = int(name[1:])
        if isinstance(each, Batches):
            each.partition = number
        partitions[tp(number)] = (
            api.FetchedPartition(next_offset=each.offset, high_watermark=10**6, undecoded=each)
            if isinstance(each, Batches)
            else each
        )
    action = next(each for each in script.waiting if asks_for(each.request, partitions))
    script.waiting.remove(action)
    script.machine.response_received(action.request_id, api.FetchResponse(partitions=partitions), script.now)
    return turn(script)


def asks_for(request: api.Request, partitions: Container[api.Partition]) -> bool:
    return isinstance(request, api.Fetch) and any((e.topic, e.partition) in partitions for e in request.partitions)


def turn(script: NetworkScript) -> list[str]:
    done = []
    for action in script.turn():
        if isinstance(action, Transmit) and isinstance(action.request, api.Fetch):
            done.append("fetch")
        elif isinstance(action, Deliver) and isinstance(action.event, Fetched):
            done.append("records")
    return done


def test_the_next_fetch_leaves_before_what_came_is_decoded() -> None:
    script = member(0)
    batches = large(0)
    assert arrives(script, p0=batches) == ["fetch"]
    assert requested(script) == {0: 4}
    assert not batches.requested
    assert not batches.detached
    assert turn(script) == ["records"] * 4
    assert fetched(script) == [(0, 1), (0, 2), (0, 3), (0, 4)]
    assert batches.detached


@pytest.mark.parametrize("partitions", [1, 4])
def test_with_capacity_hardly_anything_is_decoded_without_a_fetch_outstanding(partitions: int) -> None:
    """One partition of them has records: it must not wait for itself."""
    script = member(*range(partitions))
    pieces = without = 0
    for number in range(100):
        before = arrives(script, p0=large(4 * number)).count("records")  # a fetch leaves when the turn is over
        pieces, without = pieces + before, without + before
        for _ in range(3):
            outstanding, done = 0 in requested(script), turn(script).count("records")
            pieces, without = pieces + done, without + done * (not outstanding)
        consume(script, 0, 4, MIB)
    assert pieces == 400
    assert without <= 0.05 * pieces


def test_what_came_ahead_is_decoded_in_its_order() -> None:
    script = member(0)
    arrives(script, p0=large(0, 30))
    arrives(script, p0=large(30))
    script.settle()
    assert [end for _, end in fetched(script)] == list(range(1, 35))


def test_a_turn_without_decoding_is_followed_by_one_with_it() -> None:
    """Responses that come in every turn leave the decoding its time."""
    script = member(0)
    assert arrives(script, p0=large(0)) == ["fetch"]
    assert "records" in arrives(script, p0=large(4))


def test_little_is_decoded_as_it_comes_but_after_what_came_earlier() -> None:
    script = member(0)
    assert arrives(script, p0=Batches(0, [5], length=5)) == ["records", "fetch"]
    arrives(script, p0=large(1))
    arrives(script, p0=Batches(5, [5], length=5))
    script.settle()
    assert [end for _, end in fetched(script)] == list(range(1, 7))


def test_little_that_comes_beside_much_waits_for_the_next_turn_too() -> None:
    script = NetworkScript()
    script.nodes, script.leaders = (1, 2), {1: 2}
    script.member_of(1, 0, 1)
    first, second = (each for each in script.waiting if isinstance(each.request, api.Fetch))
    for action in (first, second):
        script.waiting.remove(action)
        (key,) = ((each.topic, each.partition) for each in action.request.partitions)  # type: ignore[union-attr]
        batches = large(0) if action is first else Batches(0, [5], length=5)
        batches.partition = key[1]
        found = api.FetchedPartition(next_offset=batches.offset, high_watermark=1000, undecoded=batches)
        script.machine.response_received(action.request_id, api.FetchResponse(partitions={key: found}), script.now)
    assert "records" not in turn(script)
    assert turn(script).count("records") == 5


def test_where_no_fetch_follows_all_is_decoded_at_once() -> None:
    script = member(0)
    script.do(Pause(partition=tp(0), epoch=script.epoch(0)))
    assert arrives(script, p0=large(0)) == []
    script.do(Resume(partition=tp(0), epoch=script.epoch(0)))
    assert len(fetched(script)) == 4


def test_what_comes_ahead_of_a_paused_partition_is_kept() -> None:
    script = member(0)
    arrives(script, p0=large(0))
    script.do(Pause(partition=tp(0), epoch=script.epoch(0)))
    assert arrives(script, p0=large(4)) == []
    assert requested(script) == {}
    script.do(Resume(partition=tp(0), epoch=script.epoch(0)))
    assert [end for _, end in fetched(script)] == list(range(1, 9))
    assert requested(script) == {0: 8}


BAD = CorruptRecordError("bad checksum")


@pytest.mark.rule("17")
@pytest.mark.parametrize("order", ["decoded first", "came first"])
def test_a_bad_batch_voids_what_was_fetched_ahead(order: str) -> None:
    script = member(0)
    arrives(script, p0=large(0, corrupt=BAD, more=9))
    if order == "decoded first":
        script.settle()
        assert len(fetched(script)) == 4
    arrives(script, p0=large(13))
    script.settle()
    assert len(fetched(script)) == (4 if order == "came first" else 0)
    if requested(script):
        script.response(api.Fetch, api.FetchResponse())
    script.pass_time(1)
    assert requested(script) == {0: 4}, "it is fetched once more, from where it was good"
    response(script, p0=Batches(4, [5]))
    assert fetched(script) == [(0, 5)]


def test_what_does_not_continue_what_was_decoded_is_void() -> None:
    """The headers said more than the batches held."""
    script = member(0)
    arrives(script, p0=large(0, more=3))
    assert requested(script) == {0: 7}
    arrives(script, p0=large(7))
    script.settle()
    assert [end for _, end in fetched(script)] == [1, 2, 3, 4]
    script.response(api.Fetch, api.FetchResponse())
    assert requested(script) == {0: 4}


def test_behind_what_leads_no_further_nothing_is_fetched() -> None:
    script = member(0)
    nothing_whole = large(0, 0, corrupt=BAD)
    assert arrives(script, p0=nothing_whole) == []
    script.pass_time(1)
    assert requested(script) == {0: 0}


@pytest.mark.parametrize(
    "met",
    [
        api.FetchedPartition(error=ErrorCode.OFFSET_OUT_OF_RANGE),
        api.FetchedPartition(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        api.FetchedPartition(next_offset=9, high_watermark=50),
        api.FetchedPartition(next_offset=4, corrupt=BAD),
    ],
    ids=["out of range", "refused", "moved", "corrupt"],
)
def test_what_a_fetch_ahead_met_is_not_judged_before_all_is_decoded(met: api.FetchedPartition) -> None:
    script = member(0, fetch_buffer_bytes=8 * MIB)
    arrives(script, p0=Batches(0, [3 * MIB, 3 * MIB], length=10 * KIB))
    assert requested(script) == {0: 2}
    script.response(api.Fetch, api.FetchResponse(partitions={tp(0): met}))
    script.pass_time(1)
    assert (requested(script), script.take(PartitionFailed)) == ({}, [])
    consume(script, 0, 1, 3 * MIB)
    assert fetched(script) == [(0, 1), (0, 2)]
    assert requested(script) == {0: 2}, "now it is requested again, and judged"


def test_no_news_ahead_says_nothing() -> None:
    script = member(0, fetch_buffer_bytes=8 * MIB)
    arrives(script, p0=Batches(0, [3 * MIB, 3 * MIB], length=10 * KIB))
    script.response(api.Fetch, api.FetchResponse(partitions={tp(0): api.FetchedPartition(next_offset=2)}))
    assert fetched(script) == [(0, 1)]
    assert requested(script) == {0: 2}


@pytest.mark.rule("14")
def test_a_seek_voids_what_was_fetched_ahead() -> None:
    script = member(0)
    arrives(script, p0=large(0))
    script.machine.handle(
        SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=1, fetch_number=1, offset=70), script.now
    )
    arrives(script, p0=large(4))
    script.settle()
    assert fetched(script) == []
    assert requested(script) == {0: 70}


def test_another_leader_voids_what_is_not_decoded() -> None:
    """Its log may be another one behind what was decoded last: only that is compared with it (KIP-320)."""
    script = member(0, fetch_buffer_bytes=8 * MIB)
    arrives(script, p0=Batches(0, [3 * MIB, 3 * MIB], length=10 * KIB))
    script.leader_epochs = {0: 5}
    script.fresh_metadata()
    consume(script, 0, 1, 3 * MIB)
    script.response(api.Fetch, api.FetchResponse())
    assert fetched(script) == [(0, 1)]
    assert requested(script) == {0: 1}


def test_one_that_passes_alone_drops_what_came_behind_it() -> None:
    script = member(0, fetch_buffer_bytes=8 * MIB)
    arrives(script, p0=Batches(0, [100], length=MIB))
    arrives(script, p0=Batches(1, [50 * MIB], length=MIB))
    script.settle()
    assert [end for _, end in fetched(script)] == [1]
    arrives(script, p0=Batches(2, [100], length=KIB))
    consume(script, 0, 1, 100)
    script.settle()
    assert [end for _, end in fetched(script)] == [2]
    consume(script, 0, 1, 50 * MIB)
    assert requested(script) == {0: 2}


@pytest.mark.requirement("KIP-41/12")
@pytest.mark.parametrize("prefetch", ["total", "partition"])
def test_what_nobody_has_counted_is_not_fetched_ahead_where_records_are_bounded(prefetch: str) -> None:
    script = member(0, prefetch=prefetch)
    assert arrives(script, p0=large(0)) == ["records"] * 4 + ["fetch"]


def test_a_fetch_ahead_has_room_beside_what_came() -> None:
    """A share is 4 MiB; a fetch is of 1 MiB at most, and two responses are 2 MiB."""
    script = member(0, fetch_buffer_bytes=8 * MIB)
    arrives(script, p0=Batches(0, [5 * MIB, 5 * MIB], length=MIB))
    assert requested(script) == {0: 2}
    arrives(script, p0=Batches(2, [5 * MIB], length=MIB))
    script.settle()
    assert requested(script) == {}, "two responses wait"


def test_what_was_consumed_wakes_only_where_it_may_change_something() -> None:
    """Elsewhere nobody wakes the network side for it: it hears of it with the next response."""

    def waits(sizes: list[int], consumed: int, **settings: object) -> bool:
        script = member(0, fetch_buffer_bytes=16 * MIB, **settings)
        response(script, p0=Batches(0, sizes, length=MIB))
        for size in sizes[:consumed]:
            consume(script, 0, 1, size)
        return script.machine.waits_for_capacity

    assert not waits([KIB], 0)
    assert waits([KIB], 0, prefetch="total")
    assert waits([5 * MIB, 5 * MIB], 0)
    assert not waits([5 * MIB, 5 * MIB], 2)


def test_only_as_much_is_dropped_as_a_large_batch_needs_and_those_that_keep_most() -> None:
    script = member(0, 1, 2, fetch_buffer_bytes=400 * KIB)
    response(script, p0=Batches(0, [20 * KIB]), p1=Batches(0, [100 * KIB]), p2=Batches(0, []))
    assert sorted(fetched(script)) == [(0, 1), (1, 1)]
    for number in (0, 1):
        script.do(Pause(partition=tp(number), epoch=script.epoch(number)))
    script.pass_time(1)
    response(script, p2=Batches(0, [300 * KIB]))
    assert fetched(script) == []
    assert drop(script, 0) == 1
    assert fetched(script) == [(2, 1)], "what is small stays"
    assert script.take(DropBuffered) == []


def two_leaders() -> NetworkScript:
    """Partition 0 has had its first records; the next fetch of it has a response of any length that fits."""
    script = NetworkScript(topics={"t": 48})
    script.nodes, script.leaders = (1, 2), {0: 1, 1: 2, 2: 1}
    script.member_of(1, 0, 1, 2)
    response(script, p0=Batches(0, [KIB]), p2=Batches(0, [KIB]))
    script.take(Fetched)
    consume(script, 0, 1, KIB)
    consume(script, 2, 1, KIB)
    return script


def longest(script: NetworkScript) -> dict[int, int]:
    """By the node of each fetch: how long its response may be."""
    fetches = [each for each in script.waiting if isinstance(each.request, api.Fetch)]
    return {each.key.node_id: each.request.most_bytes for each in fetches if isinstance(each.request, api.Fetch)}


def test_what_is_to_pass_alone_waits_for_a_long_response() -> None:
    """Both would be there at once."""
    script = two_leaders()
    assert longest(script)[1] > 60 * MIB
    large = Batches(0, [50 * MIB])
    of_partition_1(script, large)
    assert fetched(script) == []
    response(script, p0=Batches(1, [], tail=1))
    assert fetched(script) == [(1, 1)]
    assert large.kept == 8 * MIB, "what follows the batch is dropped, where that is more than a response"


def test_no_long_response_is_requested_while_a_batch_is_to_pass_alone() -> None:
    script = two_leaders()
    of_partition_1(script, Batches(0, [50 * MIB]))
    response(script, p0=Batches(1, [KIB], length=MIB))
    assert all(each < 20 * MIB for each in longest(script).values())


def test_a_long_response_that_is_expected_waits_for_what_is_to_pass_alone() -> None:
    """Else the batch waited for ever where one such response follows the other."""
    script = two_leaders()
    (action,) = [each for each in script.waiting if each.key.node_id == 1 and isinstance(each.request, api.Fetch)]
    script.waiting.remove(action)
    script.open.discard(action.key)
    script.machine.closed(action.key, FrameTooLargeError("too long", length=20 * MIB), script.now)
    script.pass_time(0.2)
    of_partition_1(script, Batches(0, [50 * MIB]))
    assert fetched(script) == []
    response(script, p0=Batches(1, [KIB], length=MIB))
    assert fetched(script) == [(1, 1)]


def test_what_gave_way_to_a_batch_alone_has_its_turn_before_the_next_one() -> None:
    """Else it gave way each time: a large response takes longer than a small one of large batches."""
    script = two_leaders()
    of_partition_1(script, Batches(0, [50 * MIB]))
    response(script, p0=Batches(1, [20 * MIB], length=20 * MIB))
    assert fetched(script) == [(1, 1)]
    consume(script, 1, 1, 50 * MIB)
    of_partition_1(script, Batches(1, [50 * MIB]))
    assert fetched(script) == []
    response(script, p0=Batches(1, [20 * MIB], length=20 * MIB))
    assert fetched(script) == [(0, 2)]


def of_partition_1(script: NetworkScript, batches: Batches) -> None:
    """The response of its leader."""
    batches.partition = 1
    found = api.FetchedPartition(next_offset=batches.offset, high_watermark=1000, undecoded=batches)
    action = next(each for each in script.waiting if isinstance(each.request, api.Fetch) and each.key.node_id == 2)
    script.waiting.remove(action)
    script.machine.response_received(action.request_id, api.FetchResponse(partitions={tp(1): found}), script.now)
    script.settle()
