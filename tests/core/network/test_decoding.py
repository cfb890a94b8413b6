"""What a response brought is decoded when there is room for it, in turns; what is counted is what is really held."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from network_script import NetworkScript, tp

from instride._core.events import Close, Consumed, Fetched, PartitionFailed, Pause, Resume, SetPosition
from instride._core.network.ranges import RangeChunk
from instride._wire import api
from instride._wire.chunk import Piece
from instride.errors import CorruptRecordError, ErrorCode

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
    nbytes: int = 0
    asked: list[tuple[int, int, bool]] = field(default_factory=list)

    def decode(self, target: int, room: int, *, alone: bool = False) -> Piece | None:
        self.asked.append((target, room, alone))
        if not self.sizes:
            self.done = True
            return Piece(next_offset=self.offset + self.tail, corrupt=self.corrupt)
        if self.sizes[0] > room and not alone:
            return None
        start, size = self.offset, self.sizes.pop(0)
        self.offset += 1
        chunk = RangeChunk(
            topic="t", partition=self.partition, first_offset=start, next_offset=self.offset, nbytes=size
        )
        self.done = not self.sizes and self.corrupt is None and not self.tail
        return Piece(chunk=chunk, next_offset=self.offset, nbytes=size)  # type: ignore[arg-type]

    def detach(self) -> None:
        self.detached = True


def member(*partitions: int, **settings: object) -> NetworkScript:
    script = NetworkScript(**settings)  # type: ignore[arg-type]
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


def asked(script: NetworkScript) -> dict[int, int]:
    requests = [each.request for each in script.waiting if isinstance(each.request, api.Fetch)]
    return {each.partition: each.offset for request in requests for each in request.partitions}


def consume(script: NetworkScript, partition: int, records: int, nbytes: int) -> None:
    script.do(Consumed(partitions={tp(partition): (script.epoch(partition), 0, records, nbytes)}))


@pytest.mark.requirement("surface/byte-bounds")
@pytest.mark.rule("M")
def test_what_has_no_room_waits_undecoded_and_is_not_requested_again() -> None:
    script = member(0, fetch_buffer_bytes=200 * KIB)
    batches = Batches(0, [60 * KIB] * 3)
    response(script, p0=batches)
    assert fetched(script) == [(0, 1)], "a half is 100 KiB"
    assert batches.asked[-1] == (40 * KIB, 40 * KIB, False)
    assert batches.detached
    assert asked(script) == {}
    consume(script, 0, 1, 60 * KIB)
    assert fetched(script) == [(0, 2)]
    consume(script, 0, 1, 60 * KIB)
    assert fetched(script) == [(0, 3)]
    assert asked(script) == {0: 3}


def test_a_piece_keeps_all_its_memory_until_its_last_record_is_consumed() -> None:
    script = member(0, fetch_buffer_bytes=200 * KIB)
    chunk = RangeChunk(topic="t", partition=0, first_offset=0, next_offset=10, nbytes=80 * KIB)
    found = api.FetchedPartition(chunk=chunk, next_offset=10, high_watermark=1000)  # type: ignore[arg-type]
    script.response(api.Fetch, api.FetchResponse(partitions={tp(0): found}))
    consume(script, 0, 9, 72 * KIB)
    batches = Batches(10, [30 * KIB])
    response(script, p0=batches)
    assert set(batches.asked) == {(92 * KIB, 20 * KIB, False)}
    consume(script, 0, 1, 8 * KIB)
    assert fetched(script)[-1] == (0, 11)


def test_one_batch_that_is_larger_than_all_passes_alone() -> None:
    script = member(0, 1, fetch_buffer_bytes=200 * KIB)
    response(script, p0=Batches(0, [500 * KIB, 20 * KIB]), p1=Batches(0, [500 * KIB, 500 * KIB]))
    ((first, _),) = fetched(script)
    assert asked(script) == {1 - first: 0}, "what came of the other was given up: it is fetched again"
    consume(script, first, 1, 500 * KIB)
    assert len(fetched(script)) == 1


def test_what_a_paused_partition_keeps_lets_one_batch_at_a_time_pass() -> None:
    script = member(0, 1, fetch_buffer_bytes=200 * KIB)
    response(script, p0=Batches(0, [90 * KIB]), p1=Batches(0, []))
    script.do(Pause(partition=tp(0), epoch=script.epoch(0)))
    script.pass_time(1)
    response(script, p1=Batches(0, [30 * KIB, 30 * KIB]))
    assert fetched(script) == [(0, 1), (1, 1)]
    consume(script, 1, 1, 30 * KIB)
    assert fetched(script) == [(1, 2)]


@pytest.mark.parametrize("turns", range(10))
def test_a_large_batch_passes_as_soon_as_polls_have_taken_what_was_there_before_it(turns: int) -> None:
    """Its neighbours always have more: whoever is tried first when nothing waits is the one that passes."""
    script = member(*range(10), fetch_buffer_bytes=200 * KIB)
    neighbours = {f"p{number}": Batches(0, [10 * KIB] * 500) for number in range(1, 10)}
    response(script, p0=Batches(0, [500 * KIB]), **neighbours)
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


def test_one_that_waits_for_capacity_and_is_lost_is_forgotten() -> None:
    script = member(0, 1, fetch_buffer_bytes=200 * KIB)
    response(script, p0=(batches := Batches(0, [500 * KIB])), p1=Batches(0, [90 * KIB]))
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
    found = api.FetchedPartition(next_offset=0, high_watermark=1000, undecoded=batches)
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


def test_a_corrupt_batch_is_fetched_once_more_after_what_was_good() -> None:
    script = member(0)
    error = CorruptRecordError("bad checksum")
    for _ in range(2):
        response(script, p0=Batches(0 if not asked(script).get(0) else 1, [5] * (asked(script)[0] == 0), corrupt=error))
        script.pass_time(1)
    assert fetched(script) == [(0, 1)]
    (failed,) = script.take(PartitionFailed)
    assert failed.error is error


def test_only_the_position_moves_where_no_record_is_to_be_returned() -> None:
    script = member(0)
    response(script, p0=Batches(0, [], tail=9))
    (event,) = script.take(Fetched)
    assert (event.chunk, event.next_offset) == (None, 9)
    assert asked(script) == {0: 9}


def test_the_meters_tell_of_a_response_when_all_of_it_is_decoded() -> None:
    script = member(0, 1)
    response(script, p0=Batches(0, [5, 6]), p1=Batches(0, [7]))
    meter = script.machine.meter
    assert (meter.fetch_records.most(script.now), meter.fetch_bytes.most(script.now)) == (3, 18)
