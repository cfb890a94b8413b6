"""`Processor` on a real Kafka: hand-overs without duplicates, remembered offsets, dead letters, and its ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka_help import PATIENCE, settings, tps, until

from filled_topics import fill
from instride import (
    AsyncDatabaseStore,
    Consumer,
    ConsumerRecord,
    OutputRecord,
    Processor,
    Retry,
    RunningProcessor,
    SkipRecord,
    TopicPartition,
)
from instride._processing.commit_metadata import Remembered, decode
from instride.testing import LocalKafka

PARTITIONS = 4


class Handled:
    """What handlers finished, from any thread."""

    def __init__(self) -> None:
        self.records: list[tuple[int, int]] = []
        self._news = threading.Condition()

    def add(self, record: ConsumerRecord[Any, Any]) -> None:
        with self._news:
            self.records.append((record.partition, record.offset))
            self._news.notify_all()

    def wait_for(self, count: int) -> None:
        with self._news:
            assert self._news.wait_for(lambda: len(self.records) >= count, PATIENCE), f"only {len(self.records)} came"


def committed(kafka: LocalKafka, group: str, *partitions: TopicPartition) -> dict[int, int | None]:
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=group) as reader:
        found = reader.committed(*partitions, timeout=PATIENCE)
    return {tp.partition: None if each is None else each.offset for tp, each in found.items()}


def in_threads(handled: Handled) -> Callable[[ConsumerRecord], object]:
    def handle(record: ConsumerRecord) -> None:
        time.sleep(0.002)
        handled.add(record)

    return handle


def in_asyncio(handled: Handled) -> Callable[[ConsumerRecord], object]:
    async def handle(record: ConsumerRecord) -> None:
        await asyncio.sleep(0.002)
        handled.add(record)

    return handle


@pytest.mark.rule("16")
@pytest.mark.parametrize("form", [in_threads, in_asyncio])
@pytest.mark.parametrize("order", ["partition", "key", "none"])
def test_members_come_and_go_and_every_record_is_handled_once(
    kafka: LocalKafka, kafka_topic: Callable[..., str], group: str, form: Any, order: Any
) -> None:
    topic, handled = kafka_topic(PARTITIONS), Handled()
    written = fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 300))
    processor = Processor(form(handled), topics=[topic], order=order, concurrency=8, commit_interval=0.2)
    with processor.running(**settings(kafka, group, client_id="a")):
        handled.wait_for(100)
        with processor.running(**settings(kafka, group, client_id="b")) as second:
            until(second.consumer.holdings)
            written += fill(
                kafka, topic, dict.fromkeys(range(PARTITIONS), 100), start=300
            )  # work for both, however fast
            handled.wait_for(len(written) - 100)
        handled.wait_for(len(written))
    assert sorted(handled.records) == sorted(written)
    assert committed(kafka, group, *tps(topic, *range(PARTITIONS))) == dict.fromkeys(range(PARTITIONS), 400)


def write_more(kafka: LocalKafka, topic: str, written: list[tuple[int, int]]) -> None:
    """To each of twelve partitions, so that each rebalance finds all of them at work."""
    written.extend(fill(kafka, topic, dict.fromkeys(range(12), 40), start=len(written) // 12))


@pytest.mark.rule("16")
def test_six_members_come_one_by_one_and_go_one_by_one_without_a_duplicate(
    kafka: LocalKafka, kafka_topic: Callable[..., str], group: str
) -> None:
    topic, handled, every = kafka_topic(12), Handled(), range(12)
    written: list[tuple[int, int]] = []

    processor = Processor(in_threads(handled), topics=[topic], concurrency=4, commit_interval=0.2)
    members: list[RunningProcessor] = []
    with ExitStack() as stack:
        for number in range(6):
            write_more(kafka, topic, written)
            members.append(stack.enter_context(processor.running(**settings(kafka, group, client_id=f"m{number}"))))
            until(members[-1].consumer.holdings)
        for member in members[:5]:
            write_more(kafka, topic, written)
            member.stop()
            assert member.wait(PATIENCE)
        handled.wait_for(len(written))
    assert sorted(handled.records) == sorted(written)
    assert committed(kafka, group, *tps(topic, *every)) == dict.fromkeys(every, len(written) // 12)


@pytest.mark.rule("16")
def test_six_members_whose_joins_and_leaves_overlap_handle_every_record_once(
    kafka: LocalKafka, kafka_topic: Callable[..., str], group: str
) -> None:
    """Nobody waits for a rebalance to end before the next change is made: members join and leave amid the others'."""
    topic, handled, every = kafka_topic(12), Handled(), range(12)
    written: list[tuple[int, int]] = []

    processor = Processor(in_threads(handled), topics=[topic], concurrency=4, commit_interval=0.2)
    with ExitStack() as stack:

        def join(number: int) -> RunningProcessor:
            return stack.enter_context(processor.running(**settings(kafka, group, client_id=f"m{number}")))

        members = [join(number) for number in range(6)]
        for number in range(6, 12):
            write_more(kafka, topic, written)
            handled.wait_for(len(written) // 2)  # so that the changes fall into the work, on a machine of any speed
            members.append(join(number))
            members[number - 6].stop()
        for member in members[:6]:
            assert member.wait(PATIENCE)
        handled.wait_for(len(written))
    assert sorted(handled.records) == sorted(written)
    assert committed(kafka, group, *tps(topic, *every)) == dict.fromkeys(every, len(written) // 12)


def test_coroutine_handlers_run_on_uvloop(kafka: LocalKafka, kafka_topic: Callable[..., str], group: str) -> None:
    uvloop = pytest.importorskip("uvloop", reason="needs uvloop")
    topic, handled = kafka_topic(2), Handled()
    written = fill(kafka, topic, {0: 50, 1: 50})

    async def story() -> None:
        processor = Processor(in_asyncio(handled), topics=[topic], concurrency=8)
        async with processor.running(**settings(kafka, group)):
            await asyncio.to_thread(handled.wait_for, len(written))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())
    assert sorted(handled.records) == sorted(written)
    assert committed(kafka, group, *tps(topic, 0, 1)) == {0: 50, 1: 50}


@pytest.fixture
def uvloop_policy() -> Iterator[type[asyncio.AbstractEventLoop]]:
    """asyncio makes uvloop's event loops in this test."""
    uvloop = pytest.importorskip("uvloop", reason="needs uvloop")
    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    yield uvloop.Loop
    asyncio.set_event_loop_policy(before)


@pytest.mark.parametrize("form", ["with", "run"])
def test_where_asyncio_makes_uvloops_loops_the_processor_runs_on_one(
    kafka: LocalKafka, kafka_topic: Callable[..., str], group: str, form: str, uvloop_policy: type
) -> None:
    topic, handled, loops = kafka_topic(1), Handled(), set[type]()
    written = fill(kafka, topic, {0: 50})

    async def handle(record: ConsumerRecord) -> None:
        await asyncio.sleep(0.001)
        loops.add(type(asyncio.get_running_loop()))
        handled.add(record)
        if form == "run" and len(handled.records) == len(written):
            signal.raise_signal(signal.SIGTERM)

    processor = Processor(handle, topics=[topic], concurrency=8)
    if form == "run":
        processor.run(**settings(kafka, group))
    else:
        with processor.running(**settings(kafka, group)):
            handled.wait_for(len(written))
    assert loops == {uvloop_policy}
    assert sorted(handled.records) == sorted(written)
    assert committed(kafka, group, *tps(topic, 0)) == {0: 50}


def test_what_was_finished_beyond_a_retry_is_not_handled_again_after_a_restart(
    kafka: LocalKafka, kafka_topic: Callable[..., str], group: str
) -> None:
    topic, handled = kafka_topic(1), Handled()
    written = fill(kafka, topic, {0: 50})
    bad = True

    def handle(record: ConsumerRecord) -> None:
        if bad and record.offset in (3, 7):
            raise OSError("not yet")
        handled.add(record)

    processor = Processor(handle, topics=[topic], order="none", retry=Retry(attempts=100, backoff=30.0))
    with processor.running(**settings(kafka, group)):
        handled.wait_for(48)
    assert committed(kafka, group, *tps(topic, 0)) == {0: 3}
    bad = False
    with processor.running(**settings(kafka, group)) as again:
        handled.wait_for(50)
    assert sorted(handled.records) == written
    assert again.tally().remembered == 45
    assert committed(kafka, group, *tps(topic, 0)) == {0: 50}


KILLED = """
import sys, time
from instride import ConsumerRecord, Processor, Retry

servers, topic, group, fails = sys.argv[1:]

def handle(record: ConsumerRecord) -> None:
    if fails == "yes" and record.offset % 40 == 3:
        raise OSError("not yet")
    time.sleep(0.002)
    print(f"{record.partition} {record.offset}\\n", end="", flush=True)

retry = Retry(attempts=9, backoff=1000.0, backoff_max=1000.0)
processor = Processor(handle, topics=[topic], order="none", concurrency=4, retry=retry, commit_interval=0.1)
processor.run(bootstrap_servers=servers, group_id=group, group_instance_id="one", auto_offset_reset="earliest")
"""
"""Of every 40 records one waits for its next attempt, so that many are finished beyond it."""


@pytest.mark.slow
def test_after_sigkill_nothing_comes_again_that_a_commit_had_told(
    kafka: LocalKafka, kafka_topic: Callable[..., str], group: str
) -> None:
    """So only what was at work, or was finished after the last commit that the broker accepted."""
    topic = kafka_topic(PARTITIONS)
    written = set(fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 500)))
    with killed_program(kafka, topic, group, "yes") as (first, lines):
        printed = [next(lines) for _ in range(200)]
        until(lambda: beyond(kafka, topic, group)[1])
        first.kill()
        printed += lines
    covered, remembered = beyond(kafka, topic, group)
    assert remembered <= covered
    assert covered <= set(printed)
    again: set[tuple[int, int]] = set()
    with killed_program(kafka, topic, group, "no") as (_, lines):
        while not again >= written - set(printed):
            again.add(next(lines))
    assert not again & covered
    assert again | set(printed) == written


@contextmanager
def killed_program(
    kafka: LocalKafka, topic: str, group: str, fails: str
) -> Iterator[tuple[subprocess.Popen[str], Iterator[tuple[int, int]]]]:
    """And what it says that it has handled."""
    command = [sys.executable, "-c", KILLED, kafka.bootstrap_servers, topic, group, fails]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = (line.split() for line in process.stdout if line.endswith("\n"))
        try:
            yield process, ((int(partition), int(offset)) for partition, offset in told)
        finally:
            process.kill()


def beyond(kafka: LocalKafka, topic: str, group: str) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """What the group's commits cover, and which of that they remember beyond their offsets."""
    below, remembered = set[tuple[int, int]](), set[tuple[int, int]]()
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=group) as reader:
        for partition, each in reader.committed(*tps(topic, *range(PARTITIONS)), timeout=PATIENCE).items():
            if each is not None:
                topic_id = reader.partitions_for(topic)[0].topic_id
                memory = decode(each.metadata, each.offset, topic_id) or Remembered()
                below |= {(partition.partition, at) for at in range(each.offset)}
                remembered |= {(partition.partition, at) for span in memory.finished for at in range(*span)}
    return below | remembered, remembered


def test_the_bound_in_bytes_holds_whatever_the_partitions_bring(
    kafka: LocalKafka, kafka_topic: Callable[..., str], group: str
) -> None:
    """A poll is a third of it, and each partition without a queue could bring one. It may bring one record."""
    topic, handled, seen = kafka_topic(12), Handled(), list[float]()
    each, bound = 10_001, 300_000
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(12 * 30):
        producer.produce(topic, b"v" * 10_000, b"k", partition=number % 12)
    assert producer.flush(PATIENCE) == 0

    def handle(record: ConsumerRecord) -> None:
        if not seen:
            until(lambda: running.metrics()["bytes-buffered"] > 150_000)
        seen.append(running.metrics()["bytes-buffered"])
        handled.add(record)

    processor = Processor(handle, topics=[topic], order="none", concurrency=1, max_bytes=bound)
    running = processor.running(**settings(kafka, group, max_poll_records=10))
    with running:
        handled.wait_for(12 * 30)
    assert max(seen) <= bound + 12 * each
    assert seen[-1] == each, "the last one"


def test_a_poisonous_record_goes_to_the_dead_letter_topic_and_its_neighbours_go_on(
    kafka: LocalKafka, kafka_topic: Callable[..., str], group: str
) -> None:
    topic, letters, handled = kafka_topic(1), kafka_topic(1), Handled()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(10):
        value = b"\xff" if number == 2 else b"%d" % number
        producer.produce(topic, value, b"k", headers=[("h", b"1")])
    assert producer.flush(PATIENCE) == 0

    def handle(record: ConsumerRecord[bytes | None, str]) -> None:
        if record.offset == 5:
            raise ValueError("no such order")
        if record.offset == 6:
            raise SkipRecord("old")
        handled.add(record)

    processor = Processor(
        handle,
        topics=[topic],
        value_deserializer=bytes.decode,
        retry=Retry(attempts=2, backoff=0.01),
        dead_letters=letters,
    )
    with processor.running(**settings(kafka, group)) as running:
        handled.wait_for(7)
        until(lambda: running.tally().dead_lettered == 2)
    assert [offset for _, offset in handled.records] == [0, 1, 3, 4, 7, 8, 9], "in the order of their key"
    assert committed(kafka, group, *tps(topic, 0)) == {0: 10}
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest") as reader:
        reader.assign(tps(letters, 0))
        found: list[ConsumerRecord] = []
        until(lambda: found.extend(reader.poll(timeout=0.1)) or len(found) == 2)  # type: ignore[func-returns-value]
    told = [dict(each.headers) for each in found]
    assert [(each.key, each.value) for each in found] == [(b"k", b"\xff"), (b"k", b"5")]
    assert [(each["h"], each["instride.offset"], each["instride.attempts"]) for each in told] == [
        (b"1", b"2", b"1"),
        (b"1", b"5", b"2"),
    ]
    assert told[1]["instride.error"] == b"builtins.ValueError"
    assert told[1]["instride.topic"] == topic.encode()


def test_a_dead_letter_topic_that_does_not_exist_is_told_until_it_does(
    kafka: LocalKafka, kafka_topic: Callable[..., str], group: str
) -> None:
    topic = kafka_topic(1)
    letters = f"{topic}-letters"
    fill(kafka, topic, {0: 1})

    def handle(record: ConsumerRecord) -> None:
        raise ValueError("bad")

    with Processor(handle, topics=[topic], dead_letters=letters).running(**settings(kafka, group)) as running:
        until(lambda: running.health().unwritten_letters)
        (unwritten,) = running.health().unwritten_letters
        assert str(unwritten.error) == f"{letters}: the cluster has no such topic, or hides it from this user"
        kafka.create_topic(letters, partitions=1)
        until(lambda: running.tally().dead_lettered == 1)
    assert committed(kafka, group, *tps(topic, 0)) == {0: 1}


@pytest.mark.parametrize("form", [in_threads, in_asyncio])
def test_a_record_that_fails_for_good_ends_the_processor_with_its_error(
    kafka: LocalKafka, kafka_topic: Callable[..., str], group: str, form: Any
) -> None:
    topic, handled = kafka_topic(1), Handled()
    fill(kafka, topic, {0: 20})
    plain = form(handled)

    def bad(record: ConsumerRecord) -> Any:
        if record.offset == 10:
            raise ValueError("no such order")
        return plain(record)

    async def bad_too(record: ConsumerRecord) -> None:
        await bad(record)

    handler: Any = bad_too if form is in_asyncio else bad
    processor = Processor(handler, topics=[topic], order="partition")
    with pytest.raises(ValueError, match="no such order") as raised:
        processor.run(**settings(kafka, group))
    assert raised.value.__notes__ == [f"while handling {topic}-0 at offset 10, attempt 1"]
    assert committed(kafka, group, *tps(topic, 0)) == {0: 10}


def test_a_coroutine_handler_runs_on_the_loop_that_entered_and_has_a_time_out(
    kafka: LocalKafka, kafka_topic: Callable[..., str], group: str
) -> None:
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 3})

    async def main() -> None:
        loop, seen, done = asyncio.get_running_loop(), Counter[int](), asyncio.Event()

        async def handle(record: ConsumerRecord) -> None:
            assert asyncio.get_running_loop() is loop
            seen[record.offset] += 1
            if record.offset == 1 and seen[1] == 1:
                await asyncio.sleep(2 * PATIENCE)
            if len(seen) == 3:
                done.set()

        processor = Processor(
            handle, topics=[topic], order="partition", timeout=0.2, retry=Retry(attempts=2, backoff=0)
        )
        async with processor.running(**settings(kafka, group)):
            await asyncio.wait_for(done.wait(), PATIENCE)
        assert seen == {0: 1, 1: 2, 2: 1}

    asyncio.run(main())
    assert committed(kafka, group, *tps(topic, 0)) == {0: 3}


def test_a_cancel_waits_for_no_handler_and_an_async_one_is_cancelled(
    kafka: LocalKafka, kafka_topic: Callable[..., str], group: str
) -> None:
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 2})
    begun, cancelled = threading.Event(), threading.Event()

    async def handle(record: ConsumerRecord) -> None:
        begun.set()
        try:
            await asyncio.sleep(2 * PATIENCE)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with Processor(handle, topics=[topic], order="partition").running(**settings(kafka, group)) as running:
        assert begun.wait(PATIENCE)
        running.cancel()
        assert running.wait(PATIENCE)
    assert cancelled.wait(PATIENCE)
    assert running.tally().abandoned == 1
    assert committed(kafka, group, *tps(topic, 0)) == {0: 0}, "where it began"


@pytest.mark.rule("18")
def test_where_a_partition_without_records_begins_is_committed(
    kafka: LocalKafka, kafka_topic: Callable[..., str], group: str
) -> None:
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 5})
    processor = Processor(print, topics=[topic])
    with (
        processor.running(**settings(kafka, group, auto_offset_reset="latest")),
        Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=group) as reader,
    ):
        (partition,) = tps(topic, 0)
        until(lambda: reader.committed(partition)[partition] is not None)
        found = reader.committed(partition)[partition]
        assert found is not None
        assert found.offset == 5


def test_an_error_that_is_none_of_a_record_is_logged_and_the_rest_goes_on(
    kafka: LocalKafka, kafka_topic: Callable[..., str], group: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic, handled = kafka_topic(1), Handled()
    fill(kafka, topic, {0: 3})
    processor = Processor(handled.add, topics=[topic, f"{topic}-that-is-not-there"])
    with processor.running(**settings(kafka, group)):
        handled.wait_for(3)
        until(lambda: "UnknownTopicOrPartitionError" in caplog.text)


def test_its_health_says_what_is_stuck_and_its_metrics_count(
    kafka: LocalKafka, kafka_topic: Callable[..., str], group: str
) -> None:
    topic, go = kafka_topic(1), threading.Event()
    fill(kafka, topic, {0: 5})

    def handle(record: ConsumerRecord) -> None:
        assert record.offset or go.wait(PATIENCE)

    processor = Processor(handle, topics=[topic], stuck_after=0.0)
    running = processor.running(**settings(kafka, group))
    assert not running.health().ready
    with running:
        until(lambda: running.health().stalled and running.metrics()["records-finished-total"] == 4)
        health = running.health()
        assert (health.ready, health.live) == (True, True)
        assert [(each.partition, each.offset, each.attempt) for each in health.stuck] == [(*tps(topic, 0), 0, 1)]
        assert running.metrics()[f"stuck-offset.{topic}-0"] == 0
        blocker = running.holdings()[tps(topic, 0)[0]].blocker
        assert blocker is not None
        assert blocker.offset == 0
        go.set()
        until(lambda: running.metrics()["records-finished-total"] == 5)
        assert not running.health().stalled
        assert running.metrics()["records-in-progress"] == 0
    ended = running.health()
    assert (ended.ready, ended.live, ended.ended) == (False, False, None)


@pytest.mark.parametrize("is_async", [False, True])
def test_batches_of_a_real_log(kafka: LocalKafka, kafka_topic: Callable[..., str], group: str, is_async: bool) -> None:
    topic, handled = kafka_topic(PARTITIONS), Handled()
    written = fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 205))
    sizes = Counter[int]()

    def handle(records: list[ConsumerRecord]) -> None:
        assert len({each.partition for each in records}) == 1
        sizes[len(records)] += 1
        for each in records:
            handled.add(each)

    async def handle_async(records: list[ConsumerRecord]) -> None:
        handle(records)

    handler = handle_async if is_async else handle
    processor = Processor(handler, topics=[topic], order="partition", max_batch=50, max_wait=0.5)
    with processor.running(**settings(kafka, group)) as running:
        handled.wait_for(len(written))
    assert sorted(handled.records) == sorted(written)
    assert max(sizes) <= 50
    assert running.tally().attempts == sizes.total()
    assert committed(kafka, group, *tps(topic, *range(PARTITIONS))) == dict.fromkeys(range(PARTITIONS), 205)


def test_processes_share_the_work_of_one_member_and_one_that_is_killed_is_replaced(
    kafka: LocalKafka, kafka_topic: Callable[..., str], group: str
) -> None:
    topic, outputs = kafka_topic(PARTITIONS), Handled()
    written = fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 100))

    def produce(output: OutputRecord) -> None:
        partition, offset, process = map(int, (output.value or b"").split())
        outputs.add(ConsumerRecord(topic, partition, offset))
        if offset == 50 and partition == 0:
            os.kill(process, signal.SIGKILL)  # it has been blamed for this one

    processor = Processor(tell, topics=[topic], processes=2, order="none", output="outputs", produce=produce)
    with processor.running(**settings(kafka, group)) as running:
        outputs.wait_for(len(written))
        until(lambda: running.tally().finished == len(written))
    assert sorted(outputs.records) == sorted(written)
    assert committed(kafka, group, *tps(topic, *range(PARTITIONS))) == dict.fromkeys(range(PARTITIONS), 100)


def tell(record: ConsumerRecord) -> OutputRecord:
    return OutputRecord(value=f"{record.partition} {record.offset} {os.getpid()}".encode())


def test_coroutines_write_to_a_database_once_over_two_runs(
    kafka: LocalKafka, kafka_topic: Callable[..., str], group: str, postgres_database: str
) -> None:
    """The first ends by an error in the middle of a batch; the second goes on from the row."""
    import psycopg

    topic = kafka_topic(1)
    fill(kafka, topic, {0: 20})
    with psycopg.connect(postgres_database) as database:
        database.execute("CREATE TABLE bills (record BIGINT)")
    store = AsyncDatabaseStore(lambda: psycopg.AsyncConnection.connect(postgres_database))
    fails = True

    async def bill(record: ConsumerRecord[Any, Any]) -> None:
        await store.connection.execute("INSERT INTO bills VALUES (%s)", (record.offset,))
        if fails and record.offset == 7:
            raise ValueError("in the middle")

    processor = Processor(bill, topics=[topic], store=store)
    with pytest.raises(ValueError, match="middle"), processor.running(**settings(kafka, group)) as running:
        running.wait(PATIENCE)
    fails = False
    with processor.running(**settings(kafka, group)) as running:
        until(lambda: running.tally().finished == 13 or running.tally().failed)
    with psycopg.connect(postgres_database) as database:
        found = database.execute("SELECT record FROM bills ORDER BY record").fetchall()
    assert [offset for (offset,) in found] == list(range(20))
