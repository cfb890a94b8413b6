"""What a blocking poll of each kind is given reaches its call, and what it took it took once."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

import instride._consumer_base
import instride._net.mailbox
from instride import Changes, Consumer, OffsetRange, RangeConsumer, TopicPartition
from instride._core.application.partition import Delivery
from instride._core.events import Assigned, BackgroundEvent, Close, Fetched, Positioned, RevocationRequested
from instride._core.network.ranges import RangeChunk
from instride._wire.arrow import schema
from instride.consumer import _joined
from instride.errors import ConfigError, NetworkThreadDiedError
from instride.observers import Observer
from instride.testing._simulation.chunk import SimulatedChunk
from network_replies import reply


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


class Network:
    """Stands for the network thread: responds at once to what is sent, whenever it is woken."""

    def __init__(self, consumer: Any) -> None:
        driver = consumer._driver
        self.events: deque[Any] = driver._thread.events
        self.mailbox = driver._mailbox
        self.begun = False
        self.alive = True
        self.is_current = False
        driver._thread = self

    def start(self) -> None:
        self.begun = True

    def join(self, timeout: float) -> bool:
        return True

    def future(self, call: int) -> Future[None]:
        return Future()

    def wake(self) -> None:
        while self.events:
            event = self.events.popleft()
            self.alive = self.alive and not isinstance(event, Close)
            if (replied := reply(event, lambda _: 1 << 60)) is not None:
                self.up(replied)

    def up(self, *events: BackgroundEvent) -> None:
        self.mailbox.deliver(list(events))


class Clock:
    """A wait takes no time: it ends at its moment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = 1000.0
        for module in (instride._consumer_base, instride._net.mailbox, instride._net.driver):
            monkeypatch.setattr(module, "now", lambda: self.at)

    def waits(self, network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
        def wait(until: float) -> None:
            assert until < 1e9, "it would wait for ever"
            self.at = max(self.at, until)

        monkeypatch.setattr(network.mailbox, "wait", wait)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    def rows(chunk: SimulatedChunk, columns: object = None, **layout: bool) -> pa.RecordBatch:
        count, fields = chunk.next_offset - chunk.first_offset, schema(**layout)
        return pa.RecordBatch.from_arrays([pa.nulls(count, field.type) for field in fields], schema=fields)

    monkeypatch.setattr(SimulatedChunk, "to_arrow", rows)
    return Clock(monkeypatch)


def fetched(number: int, start: int, end: int) -> Fetched:
    chunk = SimulatedChunk(topic="t", partition=number, first_offset=start, next_offset=end)
    return Fetched(partition=tp(number), epoch=1, fetch_number=0, start=start, chunk=chunk, next_offset=end)


def of_range(number: int, start: int, end: int, *, epoch: int = 1, fetch_number: int = 0) -> Fetched:
    chunk: Any = RangeChunk(topic="t", partition=number, first_offset=start, next_offset=end)
    return Fetched(
        partition=tp(number), epoch=epoch, fetch_number=fetch_number, start=start, chunk=chunk, next_offset=end
    )


class Interceptor:
    def __init__(self) -> None:
        self.consumed = 0

    def on_consume(self, records: Any) -> None:
        self.consumed += len(records)

    def on_commit(self, offsets: Any) -> None: ...

    def close(self) -> None: ...


def count(found: Any) -> int:
    if isinstance(found, pa.Table):
        return int(found.num_rows)
    return len(found.records if isinstance(found, Changes) else found)


@pytest.mark.parametrize("name", ["poll", "poll_arrow", "poll_changes"])
def test_each_kind_of_poll_has_its_timeout_and_its_limit(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    consumer = Consumer(bootstrap_servers="127.0.0.1:1", group_id="g")
    network = Network(consumer)
    clock.waits(network, monkeypatch)
    consumer.assign([tp(0)])
    network.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=0))
    poll = getattr(consumer, name)
    poll(timeout=2.0)
    assert clock.at == 1002.0
    network.up(fetched(0, 0, 5))
    assert count(poll(timeout=2.0, max_records=3)) == 3
    assert count(poll(timeout=2.0)) == 2, "what came once does not come again"
    assert clock.at == 1002.0


@pytest.mark.parametrize(
    ("name", "set_to", "count_of_first"),
    [("poll", None, 500), ("poll_changes", None, 500), ("poll_arrow", None, 600), ("poll_arrow", 100, 100)],
)
def test_a_table_has_all_there_is_where_nobody_bounds_it(
    clock: Clock, name: str, set_to: int | None, count_of_first: int
) -> None:
    consumer = Consumer(bootstrap_servers="127.0.0.1:1", max_poll_records=set_to)
    network = Network(consumer)
    consumer.assign([tp(0)])
    network.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=0), fetched(0, 0, 600))
    assert count(getattr(consumer, name)(timeout=0)) == count_of_first


def test_what_a_poll_deserializes_and_what_it_does_not(clock: Clock) -> None:
    def refuse(value: bytes) -> object:
        raise LookupError("no flight")

    one = Interceptor()
    consumer = Consumer(bootstrap_servers="127.0.0.1:1", value_deserializer=refuse, interceptors=[one])
    network = Network(consumer)
    consumer.assign([tp(0)])
    network.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=0), fetched(0, 0, 6))
    assert len(consumer.poll(max_records=1, deserialize=False)) == 1
    table = consumer.poll_arrow(max_records=1, binary_view=True, dictionary=True)
    assert (table.num_rows, table.schema) == (1, schema(binary_view=True, dictionary=True))
    assert len(consumer.poll_changes(max_records=1, deserialize=False).records) == 1
    assert one.consumed == 3
    assert consumer.poll(max_records=1, deserialize=False).standing is not None


@pytest.mark.parametrize("name", ["poll", "poll_arrow", "poll_changes"])
@pytest.mark.parametrize("mode", ["immediate", "two-step"])
def test_which_polls_let_go_of_what_is_requested_at_once(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, name: str, mode: Any
) -> None:
    consumer = Consumer(bootstrap_servers="127.0.0.1:1", group_id="g", revoke_mode=mode)
    network = Network(consumer)
    clock.waits(network, monkeypatch)
    consumer.subscribe(["t"])
    network.up(Assigned(generation=1, partitions={tp(0): 1}))
    getattr(consumer, name)(timeout=1.0)
    network.up(RevocationRequested(partitions={tp(0): 1}, deadline=float("inf")))
    getattr(consumer, name)(timeout=1.0)
    kept = frozenset() if mode == "immediate" and name != "poll_changes" else {tp(0)}
    assert consumer.assignment() == kept


def test_records_one_by_one_go_on_after_a_poll_of_them(clock: Clock) -> None:
    consumer = Consumer(bootstrap_servers="127.0.0.1:1")
    network = Network(consumer)
    consumer.assign([tp(0)])
    network.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=0), fetched(0, 0, 2))
    records = iter(consumer)
    assert [next(records).offset for _ in range(2)] == [0, 1]
    network.up(fetched(0, 2, 3))
    assert next(records).offset == 2


# --- ranges --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["key_deserializer", "value_deserializer", "interceptors"])
def test_a_consumer_of_ranges_refuses_what_reads_records(name: str) -> None:
    given: Any = {name: [Interceptor()] if name == "interceptors" else bytes.decode}
    with pytest.raises(ConfigError, match="reads no records"):
        RangeConsumer(bootstrap_servers="127.0.0.1:1", **given)


def ranges(found: list[OffsetRange]) -> list[tuple[int, int, int, int, int]]:
    return [(each.partition, each.start, each.end, each.epoch, each.seek_number) for each in found]


def test_ranges_of_all_partitions_once_and_without_a_bound_but_that_of_the_call(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = RangeConsumer(bootstrap_servers="127.0.0.1:1", max_poll_records=10)
    network = Network(consumer)
    clock.waits(network, monkeypatch)
    consumer.assign([tp(0), tp(1)])
    for number in (0, 1):
        network.up(Positioned(partition=tp(number), epoch=number + 1, seek_number=0, offset=0))
    network.up(of_range(0, 0, 900), of_range(1, 0, 500, epoch=2))
    assert sorted(ranges(consumer.poll())) == [(0, 0, 900, 1, 0), (1, 0, 500, 2, 0)]
    assert consumer.poll(timeout=2.0) == []
    assert clock.at == 1002.0
    consumer.seek(tp(0), 100)
    network.up(of_range(0, 100, 900, fetch_number=1))
    assert ranges(consumer.poll(timeout=2.0, max_offsets=30)) == [(0, 100, 130, 1, 1)]
    assert ranges(consumer.poll(timeout=2.0, max_offsets=None)) == [(0, 130, 900, 1, 1)]
    assert clock.at == 1002.0


@pytest.mark.parametrize("fairness", ["greedy", "proportional"])
def test_of_each_partition_there_is_one_range_however_it_was_found(clock: Clock, fairness: Any) -> None:
    """It was found in two parts, or a small poll has left a part of what it found first."""
    consumer = RangeConsumer(bootstrap_servers="127.0.0.1:1", fetch_fairness=fairness)
    network = Network(consumer)
    consumer.assign([tp(0), tp(1)])
    for number in (0, 1):
        network.up(Positioned(partition=tp(number), epoch=number + 1, seek_number=0, offset=0))
    network.up(of_range(0, 0, 10))
    assert ranges(consumer.poll(max_offsets=4)) == [(0, 0, 4, 1, 0)]
    later: Any = RangeChunk(topic="t", partition=0, first_offset=10, next_offset=15, leader_epoch=7)
    network.up(Fetched(partition=tp(0), epoch=1, fetch_number=0, start=10, chunk=later, next_offset=15))
    network.up(of_range(1, 0, 5, epoch=2), of_range(1, 5, 6, epoch=2))
    found = consumer.poll()
    assert sorted(ranges(found)) == [(0, 4, 15, 1, 0), (1, 0, 6, 2, 0)]
    assert {each.partition: each.leader_epoch for each in found} == {0: 7, 1: -1}


def test_what_does_not_go_on_is_no_part_of_a_range() -> None:
    def made(start: int, end: int, *, epoch: int = 1, seek_number: int = 0) -> Delivery:
        chunk: Any = RangeChunk(topic="t", partition=0, first_offset=start, next_offset=end)
        return Delivery(partition=tp(0), chunk=chunk, epoch=epoch, seek_number=seek_number)

    apart = [made(0, 4), made(5, 6), made(6, 8, seek_number=1), made(8, 9, epoch=2)]
    assert [(each.start, each.end) for each in _joined(apart)] == [(0, 4), (5, 6), (6, 8), (8, 9)]


def test_ranges_too_are_let_go_of_at_once_in_the_mode_of_before(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = RangeConsumer(bootstrap_servers="127.0.0.1:1", group_id="g", revoke_mode="immediate")
    network = Network(consumer)
    clock.waits(network, monkeypatch)
    consumer.subscribe(["t"])
    network.up(Assigned(generation=1, partitions={tp(0): 1}))
    consumer.poll(timeout=1.0)
    network.up(RevocationRequested(partitions={tp(0): 1}, deadline=float("inf")))
    consumer.poll(timeout=1.0)
    assert consumer.assignment() == frozenset()


@pytest.mark.parametrize("kind", [Consumer, RangeConsumer])
def test_a_timeout_without_its_name_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="timeout"):
        kind(bootstrap_servers="127.0.0.1:1").poll(1.0)


def test_a_dead_network_thread_is_raised_by_each_kind_of_poll(clock: Clock) -> None:
    consumer = Consumer(bootstrap_servers="127.0.0.1:1")
    network = Network(consumer)
    consumer.assign([tp(0)])
    network.mailbox.network_died(LookupError("a bug"))
    for poll in (consumer.poll, consumer.poll_arrow, consumer.poll_changes):
        with pytest.raises(NetworkThreadDiedError):
            poll()


@pytest.mark.parametrize("polls", [0, 2])
def test_the_death_of_the_network_thread_is_told_to_observers_once(clock: Clock, polls: int) -> None:
    """By the poll that raises it, else by close: a recorder would else blame what nobody did any more."""
    told: list[Exception] = []

    class Hearing(Observer):
        def on_died(self, error: Exception) -> None:
            told.append(error)

    consumer = Consumer(bootstrap_servers="127.0.0.1:1")
    consumer.observe(Hearing())
    network = Network(consumer)
    consumer.assign([tp(0)])
    network.mailbox.network_died(LookupError("a bug"))
    for _ in range(polls):
        with pytest.raises(NetworkThreadDiedError):
            consumer.poll()
    consumer.close()
    assert [type(each) for each in told] == [NetworkThreadDiedError]
