"""What a consumer holds of what brokers sent stays within the published bound, whatever they send, and all is read.

A broker sends one batch at least for the first partition of a response that has records, however large (KIP-74).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from network_script import NetworkScript, tp

from instride._core.events import (
    Assign,
    Consumed,
    DropBuffered,
    Fetched,
    Pause,
    Resume,
    SetPosition,
    UnreadablePartitions,
)
from instride._core.network.actions import ConnectionKey, Transmit
from instride._core.network.ranges import RangeChunk
from instride._wire import api
from instride._wire.record_chunk import Piece
from instride.errors import FrameTooLargeError

KIB = 1 << 10
MIB = 1 << 20
BUFFER = 64 * MIB
# As docs/security.md has it.
BOUND = BUFFER * 11 // 10 + 40 * MIB
HEADERS = 200


class Batches:
    """Batches of one record each, as long as they were sent."""

    def __init__(self, partition: int, offset: int, sizes: list[int]) -> None:
        self.partition, self.offset, self.sizes = partition, offset, sizes
        self.next_offset = offset + len(sizes)
        self.length = sum(sizes)

    @property
    def done(self) -> bool:
        return not self.sizes

    @property
    def nbytes(self) -> int:
        return sum(self.sizes)

    def decode(self, target: int, capacity: int, *, alone: bool = False) -> Piece | None:
        if self.sizes[0] > capacity and not alone:
            return None
        start, size = self.offset, self.sizes.pop(0)
        self.offset += 1
        chunk = RangeChunk(
            topic="t", partition=self.partition, first_offset=start, next_offset=self.offset, nbytes=size
        )
        return Piece(chunk=chunk, next_offset=self.offset, nbytes=size)  # type: ignore[arg-type]

    def detach(self, most: int = 0, *, usual: int = 0, stays: bool = False) -> None:
        pass


@dataclass(kw_only=True)
class World:
    """Brokers whose logs have batches of these sizes, again and again, and an application that polls now and then.

    most: what was held, and came, at most. read: how far each partition was returned. dropped: for want of memory.
    """

    script: NetworkScript
    sizes: dict[int, tuple[int, ...]]
    batches: weakref.WeakSet[Batches] = field(default_factory=weakref.WeakSet)
    buffered: dict[int, list[Fetched]] = field(default_factory=dict)
    paused: set[int] = field(default_factory=set)
    unreadable: set[int] = field(default_factory=set)
    fetch_numbers: dict[int, int] = field(default_factory=dict)
    to_drop: list[DropBuffered] = field(default_factory=list)
    read: dict[int, int] = field(default_factory=dict)
    working_on: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)
    refused: int = 0
    dropped: int = 0
    most: int = 0

    @property
    def held(self) -> int:
        buffered = sum(each.chunk.nbytes for events in self.buffered.values() for each in events if each.chunk)
        worked_on = sum(each[3] for each in self.working_on.values())
        return buffered + worked_on + sum(each.nbytes for each in self.batches)

    def fetches(self) -> list[Transmit]:
        return [each for each in self.script.waiting if isinstance(each.request, api.Fetch)]

    def respond(self, place: int) -> None:
        """One of the brokers that were sent a fetch does: or the consumer does not want to have it all."""
        waiting = self.fetches()
        if not waiting:
            self.script.pass_time(0.2)
            return
        self.most = max(self.most, self.held + sum(map(self.coming, waiting)))
        action = waiting[place % len(waiting)]
        assert isinstance(action.request, api.Fetch)
        length, found = self.found(action.request)
        self.script.waiting.remove(action)
        if 0 < action.request.most_bytes < length:
            self.refused += 1
            error = FrameTooLargeError("too long", length=length)
            self.script.open.discard(ConnectionKey(*action.key))
            self.script.machine.closed(action.key, error, self.script.now)
        else:
            self.most = max(self.most, self.held + length)
            self.batches.update(each.undecoded for each in found.values() if isinstance(each.undecoded, Batches))
            self.script.machine.response_received(
                action.request_id, api.FetchResponse(partitions=found), self.script.now
            )
        del found
        self.script.pass_time(0.2)
        self.take()

    def coming(self, action: Transmit) -> int:
        """How much of its response may be received, while the others' are: nothing of one that is too long."""
        assert isinstance(action.request, api.Fetch)
        length, _ = self.found(action.request)
        return length if length <= (action.request.most_bytes or length) else 0

    def found(self, request: api.Fetch) -> tuple[int, dict[api.Partition, api.FetchedPartition]]:
        """As Kafka does it, without sessions."""
        length, found, left = 0, dict[api.Partition, api.FetchedPartition](), request.max_bytes
        for each in request.partitions:
            log, sizes = self.sizes[each.partition], list[int]()
            most = min(left, each.max_bytes)
            while left > 0 and ((size := log[(each.offset + len(sizes)) % len(log)]) <= most or not (length or sizes)):
                sizes.append(size)
                most -= size
            length, left = length + sum(sizes) + HEADERS, left - sum(sizes)
            found[tp(each.partition)] = api.FetchedPartition(
                next_offset=each.offset,
                high_watermark=1 << 40,
                undecoded=Batches(each.partition, each.offset, sizes) if sizes else None,
            )
        return length, found

    def take(self) -> None:
        for event in self.script.take(Fetched):
            if event.chunk is not None and event.fetch_number == self.fetch_numbers.get(event.partition.partition, 0):
                self.buffered.setdefault(event.partition.partition, []).append(event)
        self.to_drop += self.script.take(DropBuffered)
        self.most = max(self.most, self.held)

    def poll(self, records: int) -> None:
        """Tells what the last poll returned, and returns the next ones: so many of each partition."""
        worked_on, self.working_on = self.working_on, {}
        if worked_on:
            self.script.do(Consumed(partitions={tp(partition): each for partition, each in worked_on.items()}))
            self.take()
        self.drop()
        for partition in sorted(self.buffered.keys() - self.paused - self.unreadable) if records else ():
            events, rest = self.buffered[partition][:records], self.buffered[partition][records:]
            self.buffered[partition] = rest
            if events:
                nbytes = sum(each.chunk.nbytes for each in events if each.chunk)
                self.working_on[partition] = (events[0].epoch, events[0].fetch_number, len(events), nbytes)
                assert events[0].start == self.read.get(partition, 0), "without a gap"
                self.read[partition] = events[-1].next_offset
        self.take()

    def drop(self) -> None:
        """As a poll does it: what is wanted, and then it is fetched again from where it was returned."""
        for event in self.to_drop:
            partition, number = event.partition.partition, event.fetch_number
            if number == self.fetch_numbers.get(partition, 0):
                self.dropped += bool(self.buffered.pop(partition, None))
                self.fetch_numbers[partition] = number + 1
                self.script.do(
                    SetPosition(
                        partition=event.partition,
                        epoch=event.epoch,
                        seek_number=0,
                        fetch_number=number + 1,
                        offset=self.read.get(partition, 0),
                    )
                )
        self.to_drop.clear()

    def cannot_read(self, partition: int) -> None:
        """A record of it cannot be deserialized; or it can, now."""
        self.unreadable ^= {partition}
        self.script.do(UnreadablePartitions(partitions={tp(each): each + 1 for each in sorted(self.unreadable)}))
        self.take()

    def pause(self, partition: int) -> None:
        """Or resume."""
        if partition in self.paused:
            self.paused.discard(partition)
            self.script.do(Resume(partition=tp(partition), epoch=partition + 1))
        else:
            self.paused.add(partition)
            self.script.do(Pause(partition=tp(partition), epoch=partition + 1))
        self.take()

    def run(self, rounds: int) -> None:
        for turn in range(rounds):
            self.respond(turn)
            self.poll(20)


def world(sizes: dict[int, tuple[int, ...]], *, nodes: int = 1, kind: type[World] = World, **config: object) -> World:
    script = NetworkScript(topics={"t": len(sizes)}, group_id=None, **config)  # type: ignore[arg-type]
    script.nodes = tuple(range(1, nodes + 1))
    script.leaders = {partition: 1 + partition % nodes for partition in sizes}
    made = kind(script=script, sizes=sizes)
    script.do(Assign(partitions={tp(partition): partition + 1 for partition in sizes}))
    for request in [each for each in script.waiting if isinstance(each.request, api.ListOffsets)]:
        assert isinstance(request.request, api.ListOffsets)
        offsets = {each: api.ListedOffset(offset=0) for each in request.request.timestamps}
        script.response(api.ListOffsets, api.ListOffsetsResponse(offsets=offsets))
    return made


@pytest.mark.requirement("surface/byte-bounds")
@pytest.mark.parametrize("nodes", [1, 3, 10])
def test_values_as_large_as_the_buffer_come_one_by_one(nodes: int) -> None:
    """Each of ten partitions has values of nearly fetch_buffer_bytes; the application works on one at a time."""
    made = world(dict.fromkeys(range(10), (60_000_000,)), nodes=nodes)
    made.run(200)
    assert made.most < BOUND, f"{made.most / MIB:.0f} MiB"
    assert min(made.read.get(partition, 0) for partition in range(10)) > 3
    assert not any("failed" in each for each in made.script.logs)


@pytest.mark.requirement("surface/byte-bounds")
@pytest.mark.parametrize("nodes", [1, 3, 10, 40])
@pytest.mark.parametrize("size", [MIB, 3 * MIB, 9_000_000])
def test_however_many_brokers_send_a_large_batch_at_once(nodes: int, size: int) -> None:
    """A broker sends its first batch whole, and all of them may do so before the application polls."""
    made = world(dict.fromkeys(range(40), (size,)), nodes=nodes)
    for _ in range(400):
        for _ in made.fetches():
            made.respond(0)
        made.poll(20)
        if len(made.read) == 40:
            break
    assert made.most < BOUND, f"{made.most / MIB:.0f} MiB"
    assert len(made.read) == 40


@pytest.mark.requirement("surface/byte-bounds")
def test_values_that_fit_are_fetched_ahead_and_none_is_refused() -> None:
    made = world(dict.fromkeys(range(10), (MIB,)), nodes=3)
    made.run(100)
    assert made.most < BOUND
    assert made.refused == 0
    assert len(made.read) == 10


def test_a_value_larger_than_the_buffer_comes_when_nothing_else_is_there() -> None:
    made = world({0: (MIB, 65 * MIB), 1: (MIB,)})
    made.run(40)
    assert made.read[0] > 3
    assert made.read[1] > 3
    assert made.most < BOUND


def test_after_a_while_no_other_large_value_is_expected() -> None:
    made = world({0: (60_000_000, *[MIB] * 60)})
    made.run(40)
    (fetch,) = made.fetches()
    made.script.pass_time(0.1)
    assert isinstance(fetch.request, api.Fetch)
    made.respond(0)
    assert [isinstance(each.request, api.Fetch) for each in made.fetches()] == [True], "beside what is buffered"
    assert made.read[0] > 20


def test_a_lane_that_waits_for_room_has_its_turn_before_the_others() -> None:
    made = world({0: (60_000_000,), 1: (MIB,)}, nodes=2)
    for turn in range(6):
        made.respond(turn)  # nobody polls
    assert made.fetches() == [], "the broker of the small values waits behind that of the large ones"
    made.run(10)
    assert made.read[0] > 1
    assert made.read[1] > 1


def test_what_came_of_a_paused_partition_is_let_go_of_for_a_large_value() -> None:
    made = world({0: (32 * KIB, 60_000_000), 1: (32 * KIB, 60_000_000)}, max_partition_fetch_bytes=MIB)
    made.respond(0)
    made.respond(0)
    assert [each.partition for each in made.batches] == [0], "it waits until what is buffered was returned"
    made.pause(0)
    made.run(5)
    assert made.read == {1: 4}, "it flows, though the buffer was full of a paused partition"
    made.pause(0)
    made.run(8)
    assert made.read[0] > 2
    assert made.most < BOUND


@pytest.mark.requirement("surface/byte-bounds")
@pytest.mark.parametrize("stands_still", [World.pause, World.cannot_read])
def test_what_is_buffered_and_stands_still_gives_way(stands_still: Callable[[World, int], None]) -> None:
    """Of three partitions a value of nearly fetch_buffer_bytes is buffered, one after the other, as each is paused."""
    made = world(dict.fromkeys(range(4), (60_000_000,)), nodes=2)
    stood: set[int] = set()
    for turn in range(60):
        made.respond(turn)
        buffered = [each for each, events in made.buffered.items() if events and each not in stood]
        if buffered and len(stood) < 3:
            stands_still(made, buffered[0])
            stood.add(buffered[0])
        made.poll(20)
    assert made.most < BOUND, f"{made.most / MIB:.0f} MiB"
    assert len(stood) == 3
    assert made.dropped == 3
    (flows,) = set(range(4)) - stood
    assert made.read[flows] > 3
    before = dict(made.read)
    for each in sorted(stood):
        stands_still(made, each)
    made.run(60)
    assert made.most < BOUND
    assert all(made.read[each] > before.get(each, 0) for each in range(4)), "each goes on, without a gap"


def test_what_is_small_stays_while_a_partition_is_paused() -> None:
    made = world({0: (MIB,), 1: (60_000_000,)})
    made.respond(0)
    made.pause(0)
    made.run(20)
    assert made.read[1] > 3
    assert made.dropped == 0
    assert made.most < BOUND


SIZES = st.sampled_from([100 * KIB, MIB, 5 * MIB, 30 * MIB, 60_000_000, 64 * MIB])
LOGS = st.lists(st.lists(SIZES, min_size=1, max_size=5).map(tuple), min_size=1, max_size=8)
KINDS = st.sampled_from(["respond", "respond", "poll", "pause", "cannot read"])
STEPS = st.lists(st.tuples(KINDS, st.integers(0, 7)), max_size=60)


@pytest.mark.requirement("surface/byte-bounds")
@settings(max_examples=40)
@given(LOGS, st.integers(1, 4), STEPS)
def test_what_is_buffered_is_never_over_the_bound(
    logs: list[tuple[int, ...]], nodes: int, steps: list[tuple[str, int]]
) -> None:
    made = world(dict(enumerate(logs)), nodes=nodes)
    for step, number in steps:
        match step:
            case "respond":
                made.respond(number)
            case "poll":
                made.poll(20)
            case "pause":
                made.pause(number % len(logs))
            case _:
                made.cannot_read(number % len(logs))
        assert made.most < BOUND, f"{made.most / MIB:.0f} MiB"
    for partition in sorted(made.paused):
        made.pause(partition)
    for partition in sorted(made.unreadable):
        made.cannot_read(partition)
    before = dict(made.read)
    made.run(60)
    assert made.most < BOUND, f"{made.most / MIB:.0f} MiB"
    assert all(made.read.get(each, 0) > before.get(each, 0) for each in range(len(logs))), "each goes on"


class Compressed(Batches):
    """As they come they are small, decoded each takes 50 MiB: a million records without a byte, say."""

    decoded = 50 * MIB

    def decode(self, target: int, capacity: int, *, alone: bool = False) -> Piece | None:
        if self.decoded > capacity and not alone:
            return None
        start = self.offset
        self.sizes.pop(0)
        self.offset += 1
        chunk = RangeChunk(
            topic="t", partition=self.partition, first_offset=start, next_offset=self.offset, nbytes=self.decoded
        )
        return Piece(chunk=chunk, next_offset=self.offset, nbytes=self.decoded)  # type: ignore[arg-type]

    def detach(self, most: int = 1 << 40, *, usual: int = 0, stays: bool = False) -> None:
        if sum(self.sizes[1:]) > most:
            del self.sizes[1:]


class MuchMore(World):
    """Brokers that send as much as may come, however little was requested: of each partition so many batches."""

    batches_each: ClassVar = 1

    def found(self, request: api.Fetch) -> tuple[int, dict[api.Partition, api.FetchedPartition]]:
        most, found, length = request.most_bytes or 60 * MIB, dict[api.Partition, api.FetchedPartition](), 0
        for each in request.partitions:
            (size,) = self.sizes[each.partition]
            count = min(self.batches_each, (most - length - HEADERS) // size)
            if count > 0:
                batches = Compressed(each.partition, each.offset, [size] * count)
                length += size * count + HEADERS
                found[tp(each.partition)] = api.FetchedPartition(
                    next_offset=each.offset, high_watermark=1 << 40, undecoded=batches
                )
        return length, found


class MuchMoreOfOne(MuchMore):
    batches_each = 60


@pytest.mark.requirement("surface/byte-bounds")
@pytest.mark.parametrize("nodes", [1, 2, 10])
@pytest.mark.parametrize("batches_of_one", [False, True])
def test_a_batch_that_passes_alone_is_there_beside_no_long_response(nodes: int, *, batches_of_one: bool) -> None:
    made = world(dict.fromkeys(range(60), (MIB,)), nodes=nodes, kind=MuchMoreOfOne if batches_of_one else MuchMore)
    for turn in range(600):
        made.respond(turn)
        made.poll(1)
    assert made.most < BOUND, f"{made.most / MIB:.0f} MiB"
    assert len(made.read) == 60, "each has its turn"
