"""What an asynchronous verb is given reaches its call: time-outs, limits and choices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pyarrow as pa
import pytest
from aio_help import Scene, VirtualLoop, epochs, tp

from instride import AsyncConsumer, Changes
from instride._core.events import (
    EARLIEST,
    LATEST,
    Close,
    Commit,
    FetchMetadata,
    FetchOffsets,
    Positioned,
    RevocationRequested,
    Unsubscribe,
)
from instride._wire.arrow import schema
from instride.errors import KafkaTimeoutError
from instride.testing._simulation.chunk import SimulatedChunk

Verb = Callable[[AsyncConsumer], Coroutine[Any, Any, Any]]


def silent(**settings: Any) -> Scene:
    """A consumer of one partition, at offset 0, whose network responds to nothing."""
    scene = Scene(**settings)
    scene.network._respond = lambda event: None  # type: ignore[method-assign]
    scene.consumer.assign([tp(0), tp(1)])
    scene.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=0))
    return scene


@pytest.mark.parametrize(
    "verb",
    [
        pytest.param(lambda consumer: consumer.commit({tp(0): 3}, timeout=2.0), id="commit"),
        pytest.param(lambda consumer: consumer.committed(tp(0), timeout=2.0), id="committed"),
        pytest.param(lambda consumer: consumer.position(tp(1), timeout=2.0), id="position"),
        pytest.param(lambda consumer: consumer.beginning_offsets([tp(0)], timeout=2.0), id="beginning_offsets"),
        pytest.param(lambda consumer: consumer.end_offsets([tp(0)], timeout=2.0), id="end_offsets"),
        pytest.param(lambda consumer: consumer.offsets_for_times({tp(0): 1}, timeout=2.0), id="offsets_for_times"),
        pytest.param(lambda consumer: consumer.partitions_for("t", timeout=2.0), id="partitions_for"),
        pytest.param(lambda consumer: consumer.list_topics(timeout=2.0), id="list_topics"),
    ],
)
def test_a_verb_without_a_response_raises_at_its_timeout(loop: VirtualLoop, verb: Verb) -> None:
    async def story() -> None:
        with pytest.raises(KafkaTimeoutError):
            await verb(silent().consumer)
        assert 1002.0 <= loop.at <= 1002.5

    loop.play(story())


@pytest.fixture
def with_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated records, too, are rows of a table."""

    def rows(chunk: SimulatedChunk, columns: object = None, **layout: bool) -> pa.RecordBatch:
        count, fields = chunk.next_offset - chunk.first_offset, schema(**layout)
        return pa.RecordBatch.from_arrays([pa.nulls(count, field.type) for field in fields], schema=fields)

    monkeypatch.setattr(SimulatedChunk, "to_arrow", rows)


@pytest.mark.usefixtures("with_columns")
@pytest.mark.parametrize("name", ["poll", "poll_arrow", "poll_changes"])
def test_each_kind_of_poll_has_its_timeout_and_its_limit(loop: VirtualLoop, name: str) -> None:
    async def story() -> None:
        scene = silent()
        poll = getattr(scene.consumer, name)
        await poll(timeout=2.0)
        assert loop.at == 1002.0
        scene.fetched(0, 0, 5)
        assert count(await poll(timeout=2.0, max_records=3)) == 3
        assert count(await poll(timeout=2.0)) == 2, "what came once does not come again"
        assert loop.at == 1002.0

    loop.play(story())


def count(found: Any) -> int:
    if isinstance(found, pa.Table):
        return int(found.num_rows)
    return len(found.records if isinstance(found, Changes) else found)


@pytest.mark.usefixtures("with_columns")
def test_a_table_has_all_there_is_where_nobody_bounds_it(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = silent()
        scene.fetched(0, 0, 1100)
        assert count(await scene.consumer.poll(timeout=0)) == 500
        assert count(await scene.consumer.poll_arrow(timeout=0)) == 600

    loop.play(story())


@pytest.mark.usefixtures("with_columns")
def test_what_a_poll_deserializes_and_what_it_does_not(loop: VirtualLoop) -> None:
    asked = []

    def refuse(value: bytes) -> object:
        asked.append(value)
        raise LookupError("no flight")

    async def story() -> None:
        scene = silent(value_deserializer=refuse)
        scene.fetched(0, 0, 6)
        assert len(await scene.consumer.poll(max_records=1, deserialize=False)) == 1
        table = await scene.consumer.poll_arrow(max_records=1, binary_view=True, dictionary=True)
        assert (table.num_rows, table.schema) == (1, schema(binary_view=True, dictionary=True))
        assert len((await scene.consumer.poll_changes(max_records=1, deserialize=False)).records) == 1
        assert asked == []

    loop.play(story())


def test_changes_take_nothing_that_is_to_be_revoked_at_once(loop: VirtualLoop) -> None:
    """With revoke_mode "immediate" too: who asks for changes works with the lists."""

    async def story() -> None:
        scene = Scene(revoke_mode="immediate")
        scene.consumer.subscribe(["t"])
        scene.assigned(0)
        await scene.consumer.poll(timeout=0)
        scene.up(RevocationRequested(partitions=epochs(0), deadline=float("inf")))
        changes = await scene.consumer.poll_changes(timeout=0)
        assert changes.to_be_revoked == {tp(0)}
        assert scene.consumer.assignment() == {tp(0)}

    loop.play(story())


def test_choices_of_a_commit_reach_the_network_side(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = Scene()
        scene.consumer.assign([tp(0)])
        await scene.consumer.commit({tp(0): 3})
        await scene.consumer.commit({tp(0): 3}, wait_for_rebalance=False, allow_rewind=True)
        await scene.consumer.commit_async({tp(0): 3})
        await scene.consumer.commit_async({tp(0): 3}, allow_rewind=True)
        sent = [(each.carry_over, each.allow_rewind) for each in scene.network.of(Commit)]
        assert sent == [(True, False), (False, True), (True, False), (True, True)]

    loop.play(story())


def test_which_offsets_and_which_topics_are_asked_for(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = silent()
        consumer = scene.consumer
        for verb in (consumer.beginning_offsets, consumer.end_offsets):
            with pytest.raises(KafkaTimeoutError):
                await verb([tp(0)], timeout=0.1)
        for internal in (False, True):
            with pytest.raises(KafkaTimeoutError):
                await consumer.list_topics(include_internal=internal, timeout=0.1)
        asked = scene.network.of(FetchOffsets)
        assert [each.timestamps for each in asked] == [{tp(0): EARLIEST}, {tp(0): LATEST}]
        assert [each.internal for each in scene.network.of(FetchMetadata)] == [False, True]

    loop.play(story())


def test_an_unsubscribe_ends_at_its_timeout(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = Scene()
        scene.network.silent |= {Unsubscribe}
        scene.consumer.subscribe(["t"], listener=scene.listener)
        scene.assigned(0)
        await scene.consumer.poll(timeout=0)
        began = loop.at
        await scene.consumer.unsubscribe(timeout=2.0)
        assert began + 2.0 <= loop.at <= began + 2.6

    loop.play(story())


@pytest.mark.parametrize("how", ["plain", "in a listener", "cancelled", "out of time"])
def test_a_close_leaves_the_group_or_not_as_it_was_told(loop: VirtualLoop, how: str) -> None:
    async def story() -> None:
        scene = Scene()
        consumer = scene.consumer
        consumer.subscribe(["t"], listener=scene.listener)
        if how == "in a listener":
            scene.listener.meanwhile = lambda: consumer.close(timeout=3.0, leave_group=False)
        scene.assigned(0)
        await asyncio.wait([asyncio.create_task(consumer.poll(timeout=1.0))])
        if how in ("cancelled", "out of time"):
            scene.listener.meanwhile = asyncio.Event().wait
        began = loop.at
        close = asyncio.create_task(consumer.close(timeout=3.0, leave_group=False))
        await asyncio.sleep(0.02)
        if how == "cancelled":
            close.cancel()
        await asyncio.wait([close])
        await asyncio.sleep(0.02)
        (event,) = scene.network.of(Close)
        assert event.leave is False
        assert loop.at <= began + 4.1
        assert how == "plain" or event.deadline <= began + 4.1

    loop.play(story())


def test_a_close_takes_its_timeout_once_whoever_it_waits_for(loop: VirtualLoop) -> None:
    """The listener of another task's poll takes a part of it."""

    async def story() -> None:
        scene = Scene()
        scene.network.silent |= {Close}
        scene.consumer.subscribe(["t"], listener=scene.listener)
        scene.listener.meanwhile = lambda: asyncio.sleep(2.0)
        scene.assigned(0)
        poll = asyncio.create_task(scene.consumer.poll())
        await asyncio.sleep(0.01)
        scene.listener.meanwhile = None
        await scene.consumer.close(timeout=4.0)
        (event,) = scene.network.of(Close)
        assert event.deadline <= 1004.1
        await asyncio.wait([poll])

    loop.play(story())


class Interceptor:
    def __init__(self) -> None:
        self.consumed = 0
        self.closed = 0

    def on_consume(self, records: Any) -> None:
        self.consumed += len(records)

    def on_commit(self, offsets: Any) -> None: ...

    def close(self) -> None:
        self.closed += 1


def test_interceptors_hear_of_records_and_of_the_end_also_of_one_that_is_cancelled(loop: VirtualLoop) -> None:
    async def story() -> None:
        one = Interceptor()
        scene = silent(interceptors=[one])
        scene.fetched(0, 0, 5)
        await scene.consumer.poll()
        assert one.consumed == 5
        close = asyncio.create_task(scene.consumer.close())
        await asyncio.sleep(0.02)
        close.cancel()
        await asyncio.wait([close])
        assert (close.cancelled(), one.closed, scene.consumer._driver.closed) == (True, 1, True)

    loop.play(story())


def test_a_with_that_raises_closes_too(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = Scene()

        async def fails() -> None:
            async with scene.consumer as consumer:
                consumer.assign([tp(0)])
                raise LookupError

        with pytest.raises(LookupError):
            await fails()
        assert scene.consumer._driver.closed

    loop.play(story())


def test_what_was_polled_says_whether_its_member_still_stands(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = silent()
        scene.fetched(0, 0, 5)
        records = await scene.consumer.poll()
        assert records._standing is not None

    loop.play(story())
