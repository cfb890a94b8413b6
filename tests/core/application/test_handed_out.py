"""What a poll has handed out is its caller's alone: the consumer counts none of it, and holds none of it."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import pytest
from application_script import Script, shown, tp
from test_handlers_between import handler

from instride._core.application.partition import Delivery
from instride._core.events import Consumed, Fetched, Positioned
from instride._core.network.ranges import RangeChunk

owned: WeakSet[Memory]


class Memory:
    """That of a batch: all chunks of it share it."""


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    global owned  # noqa: PLW0603 - of one test
    owned = WeakSet()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchChunk(RangeChunk):
    memory: Memory

    def split(self, count: int) -> Any:
        return tuple(
            BatchChunk(
                topic="t",
                partition=each.partition,
                first_offset=each.first_offset,
                next_offset=each.next_offset,
                memory=self.memory,
            )
            for each in RangeChunk.split(self, count)
        )


def batch(script: Script, first: int, end: int, *, partition: int = 0, nbytes: int = 0) -> None:
    memory = Memory()
    owned.add(memory)
    chunk: Any = BatchChunk(
        topic="t", partition=partition, first_offset=first, next_offset=end, nbytes=nbytes, memory=memory
    )
    script.up(Fetched(partition=tp(partition), epoch=1, fetch_number=0, start=first, chunk=chunk, next_offset=end))


@pytest.fixture
def owner(script: Script) -> Script:
    script.assigned(0, 1)
    assert script.poll() == []
    return script


def deliveries(owner: Script, limit: int = -1) -> list[Delivery]:
    return owner.run(owner.machine.poll(owner.now, 0.0, immediate=False, limit=limit))


def test_a_batch_is_let_go_of_with_its_last_record(owner: Script) -> None:
    batch(owner, 0, 10)
    batch(owner, 0, 5, partition=1)
    got = deliveries(owner)
    assert shown(got) == [(0, 0, 10), (1, 0, 5)]
    assert len(owned) == 2, "by whoever polled"
    del got
    assert len(owned) == 0, "no later call is needed"


def test_a_batch_of_which_records_are_left_stays(owner: Script) -> None:
    batch(owner, 0, 10)
    batch(owner, 10, 12)
    assert shown(deliveries(owner, 4)) == [(0, 0, 4)]
    assert len(owned) == 2
    assert shown(deliveries(owner, 7)) == [(0, 4, 10), (0, 10, 11)]
    assert len(owned) == 1
    assert shown(deliveries(owner, 7)) == [(0, 11, 12)]
    assert len(owned) == 0


def test_a_poll_that_was_not_completed_took_nothing(owner: Script) -> None:
    batch(owner, 0, 10)
    batch(owner, 10, 12)
    for limit in (10, 11, -1):
        owner.run(owner.machine.poll_aside(owner.now, 0.0, immediate=False, limit=limit))
        assert len(owned) == 2
        assert owner.machine.positions()[tp(0)][2] == 0
    batch(owner, 12, 13)
    assert shown(deliveries(owner)) == [(0, 0, 10), (0, 10, 12), (0, 12, 13)]
    assert len(owned) == 0


def test_a_small_poll_that_was_not_completed_took_nothing(owner: Script) -> None:
    batch(owner, 0, 10)
    assert shown(deliveries(owner, 2)) == [(0, 0, 2)]
    assert shown(deliveries(owner, 2)) == [(0, 2, 4)]
    for limit in (2, 3, -1):
        owner.run(owner.machine.poll_aside(owner.now, 0.0, immediate=False, limit=limit))
        assert owner.machine.positions()[tp(0)][2] == 4
    batch(owner, 10, 12)
    assert shown(deliveries(owner, 2)) == [(0, 4, 6)]
    owner.run(owner.machine.poll_aside(owner.now, 0.0, immediate=False, limit=2))
    batch(owner, 12, 13)
    assert shown(deliveries(owner)) == [(0, 6, 10), (0, 10, 12), (0, 12, 13)]
    assert len(owned) == 0


def test_a_small_poll_hears_of_a_pause_and_of_a_request_to_revoke(owner: Script) -> None:
    batch(owner, 0, 10)
    assert shown(deliveries(owner, 2)) == [(0, 0, 2)]
    owner.machine.pause([tp(0)])
    assert deliveries(owner, 2) == []
    owner.machine.resume([tp(0)])
    assert shown(deliveries(owner, 2)) == [(0, 2, 4)]
    owner.revocation_requested(0)
    assert deliveries(owner, 2) == []
    assert owner.to_be_revoked() == {0}


def test_what_is_called_before_a_poll_is_completed_sees_that_it_took_nothing(owner: Script) -> None:
    """An interceptor, or a handler of a signal."""
    batch(owner, 0, 10)
    result = owner.run(owner.machine.poll_aside(owner.now, 0.0, immediate=False, limit=-1))
    batch(owner, 10, 12)
    assert owner.machine.positions()[tp(0)][2] == 0
    assert [each.chunk.next_offset for each in result.deliveries] == [10]
    result.aside = None
    assert owner.machine.positions()[tp(0)][2] == 10
    assert shown(deliveries(owner)) == [(0, 10, 12)]
    assert len(owned) == 0


def test_a_seek_before_a_poll_is_completed_is_not_undone_by_it(owner: Script) -> None:
    batch(owner, 0, 10)
    result = owner.run(owner.machine.poll_aside(owner.now, 0.0, immediate=False, limit=4))
    owner.machine.seek(tp(0), 3)
    result.aside = None
    assert owner.machine.positions()[tp(0)][2] == 3
    assert deliveries(owner) == []


@pytest.mark.parametrize(("nbytes", "told"), [(32 << 20, [1]), ((32 << 20) + 1, [])])
def test_of_a_batch_larger_than_half_of_the_buffer_the_next_poll_tells(
    owner: Script, nbytes: int, told: list[int]
) -> None:
    """So that the network side decodes no second one while the application reads the first."""
    owner.take_posted(Consumed)
    batch(owner, 0, 1, nbytes=nbytes)
    assert shown(deliveries(owner)) == [(0, 0, 1)]
    assert [each.partitions[tp(0)][2] for each in owner.take_posted(Consumed)] == told
    assert deliveries(owner) == []
    assert [each.partitions[tp(0)][2:] for each in owner.take_posted(Consumed)] == ([] if told else [(1, nbytes)])
    assert deliveries(owner) == []
    assert owner.take_posted(Consumed) == []


@pytest.mark.parametrize("how", ["lost", "assigned by hand", "unsubscribed"])
def test_a_partition_that_has_left_holds_no_memory(how: str) -> None:
    """Though no later poll returns anything: the network side counts its buffer as free."""
    script = Script()
    if how == "lost":
        script.subscribe()
        script.assigned(0, 1)
    else:
        script.machine.assign([tp(0), tp(1)])
        script.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=0))
    assert script.poll() == []
    batch(script, 0, 1000)
    for first in range(3):  # the last one by a small poll
        assert shown(deliveries(script, 1)) == [(0, first, first + 1)]
    if how == "lost":
        script.lost(0)
        assert script.poll() == []
    elif how == "unsubscribed":
        script.run(script.machine.unsubscribe(script.now, 1.0))
    else:
        script.machine.assign([tp(1)])
    gc.collect()
    assert len(owned) == 0


@pytest.mark.rule("13")
@pytest.mark.parametrize("goes_on", [True, False])
def test_nor_does_one_that_a_handler_lets_go_of_amid_a_poll(goes_on: bool) -> None:
    """goes_on: the poll takes the next part of a turn that is under way."""
    script = Script()
    script.machine.assign([tp(0)])
    script.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=0))
    assert script.poll() == []
    batch(script, 0, 1000)
    if goes_on:
        assert shown(deliveries(script, 1)) == [(0, 0, 1)]
    with handler("unmetered", lambda: script.machine.assign([tp(1)])):
        assert len(deliveries(script, 1)) == 1
    gc.collect()
    assert len(owned) == 0
