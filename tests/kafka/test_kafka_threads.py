"""Threads, forks and signals around one consumer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread, Timer

import pytest
from kafka_help import Member, drive, ids, poll_until, tps

from filled_topics import fill
from instride import Consumer
from instride.errors import (
    ConcurrentUseError,
    ConsumerClosedError,
    ForkedConsumerError,
    NetworkThreadDiedError,
    WakeupError,
)
from instride.testing import LocalKafka

Open = Callable[..., Consumer]
Topic = Callable[..., str]
Join = Callable[..., Member]


@pytest.fixture
def idle(kafka_topic: Topic, open_consumer: Open, group: str) -> Consumer:
    """A consumer of an empty topic, whose partition's position is known."""
    consumer = open_consumer(group_id=group)
    consumer.assign(tps(kafka_topic(), 0))
    consumer.position(*consumer.assignment())
    return consumer


@pytest.fixture
def in_poll(idle: Consumer) -> Iterator[tuple[Consumer, Thread, list[BaseException]]]:
    """A consumer that another thread is inside of, in a poll without end; what that poll raises."""
    raised: list[BaseException] = []

    def poll() -> None:
        try:
            idle.poll()
        except BaseException as error:
            raised.append(error)

    thread = Thread(target=poll)
    thread.start()
    while True:  # until the other thread is inside
        try:
            idle.assignment()
        except ConcurrentUseError:
            break
    yield idle, thread, raised
    idle.wakeup()
    thread.join()


@pytest.mark.requirement("threading/23")
def test_wakeup_ends_a_poll_of_another_thread(in_poll: tuple[Consumer, Thread, list[BaseException]]) -> None:
    consumer, thread, raised = in_poll
    consumer.wakeup()
    thread.join(30)
    assert [type(each) for each in raised] == [WakeupError]
    assert not consumer.poll(timeout=0), "it wakes one call"


@pytest.mark.requirement("threading/14")
@pytest.mark.requirement("threading/23")
def test_wakeup_before_a_poll_ends_the_next_one(idle: Consumer) -> None:
    idle.wakeup()
    with pytest.raises(WakeupError):
        idle.poll()
    assert not idle.poll(timeout=0)


@pytest.mark.requirement("surface/concurrent-use")
def test_two_calls_at_once_are_refused_and_the_first_goes_on(
    in_poll: tuple[Consumer, Thread, list[BaseException]],
) -> None:
    consumer, thread, raised = in_poll
    for call in (consumer.poll, consumer.assignment, consumer.close, consumer.commit):
        with pytest.raises(ConcurrentUseError, match="only one at a time"):
            call()
    assert thread.is_alive()
    assert raised == []


@pytest.mark.requirement("KIP-983/20")
def test_a_consumer_moves_from_thread_to_thread(kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open) -> None:
    topic = kafka_topic()
    written = fill(kafka, topic, {0: 40})
    consumer = open_consumer(max_poll_records=10)
    consumer.assign(tps(topic, 0))
    seen: list[tuple[int, int]] = []
    for _ in range(4):
        with ThreadPoolExecutor(1) as one:
            seen += ids(one.submit(poll_until, consumer, 10).result())
    assert seen == written


@pytest.mark.requirement("surface/fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_use_after_a_fork_is_refused_in_the_child_and_goes_on_in_the_parent(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open
) -> None:
    topic = kafka_topic()
    written = fill(kafka, topic, {0: 10})
    consumer = open_consumer(max_poll_records=5)
    consumer.assign(tps(topic, 0))
    first = poll_until(consumer, 5)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            consumer.poll(timeout=1)
        except ForkedConsumerError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ids(first + poll_until(consumer, 5)) == written


def test_ctrl_c_ends_a_poll_and_the_with_block_leaves_the_group(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, join: Join, group: str
) -> None:
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 5, 1: 5})
    with open_consumer(group_id=group) as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, 10)
        consumer.commit()
        Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            consumer.poll()
    other = join("other", topic)
    drive(other, until=lambda: len(other.owned) == 2)
    assert other.records == []


@pytest.mark.requirement("surface/close-signal")
def test_close_from_a_signals_handler_ends_the_poll_commits_and_leaves(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, join: Join, group: str
) -> None:
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 5, 1: 5})
    consumer = open_consumer(group_id=group, session_timeout=600.0, heartbeat_interval=0.1, max_poll_interval=700.0)
    consumer.subscribe([topic])
    before = signal.signal(signal.SIGUSR1, lambda *_: consumer.close())
    try:
        poll_until(consumer, 10)
        handed_over = consumer.commit_async()
        Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(WakeupError):
            consumer.poll()
    finally:
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(ConsumerClosedError):
        consumer.poll()
    assert handed_over.result(0)
    other = join("other", topic)
    drive(other, until=lambda: len(other.owned) == 2)  # it left: nobody waits for its session
    assert other.records == []


def test_a_poll_that_was_interrupted_lost_nothing(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic()
    consumer = open_consumer(group_id=group)
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(timeout=0.1)
    Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        consumer.poll()
    written = fill(kafka, topic, {0: 5})
    assert ids(poll_until(consumer, 5)) == written


def test_a_callback_of_commit_async_runs_and_may_not_harm(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic()
    fill(kafka, topic, {0: 5})
    consumer = open_consumer(group_id=group)
    consumer.assign(tps(topic, 0))
    poll_until(consumer, 5)
    called = Event()
    future = consumer.commit_async()
    future.add_done_callback(lambda _: called.set())
    assert called.wait(30)
    consumer.commit()


def test_two_consumers_in_two_threads_share_a_group(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic(4)
    written = fill(kafka, topic, dict.fromkeys(range(4), 200))
    consumers = [open_consumer(group_id=group, client_id=name, max_poll_records=20) for name in "ab"]
    done, seen = Event(), [[], []]  # type: tuple[Event, list[list[tuple[int, int]]]]

    def work(number: int) -> None:
        consumer = consumers[number]
        consumer.subscribe([topic])
        while not done.is_set():
            records = consumer.poll(timeout=0.1)
            seen[number] += ids(records)
            consumer.commit()
            if len(seen[0]) + len(seen[1]) >= len(written):
                done.set()

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(work, number) for number in range(2)]:
            future.result()
    assert sorted(seen[0] + seen[1]) == written


@pytest.mark.requirement("surface/thread-death")
@pytest.mark.history("slow", breaks="L4")
def test_when_the_network_thread_dies_it_is_raised_and_another_member_takes_over(
    kafka: LocalKafka, kafka_topic: Topic, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug of ours, so it is made. Nothing that waits goes on waiting, and the group has the partitions again."""
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 5, 1: 5})
    a = join("a", topic, session_timeout=3.0, commits=False)
    drive(a, until=lambda: len(a.records) == 10)
    a.consumer.commit()

    def broken(now: float) -> object:
        raise LookupError("a bug")

    monkeypatch.setattr(a.consumer._driver._thread._machine, "tick", broken)
    with pytest.raises(NetworkThreadDiedError, match="LookupError"):
        a.consumer.poll()  # without a time-out of its own
    with pytest.raises(NetworkThreadDiedError):
        a.consumer.commit()
    a.consumer.close()
    b = join("b", topic)
    fill(kafka, topic, {0: 5, 1: 5}, start=5)
    drive(b, until=lambda: len(b.records) == 10)
    assert {each.offset for each in b.records} == {5, 6, 7, 8, 9}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("end", ["pass", "sys.exit(0)", "os._exit(0)", "consumer.close()", "del consumer"])
def test_a_program_that_forgets_to_close_ends_all_the_same_and_in_silence(
    kafka: LocalKafka, kafka_topic: Topic, group: str, end: str
) -> None:
    topic = kafka_topic()
    fill(kafka, topic, {0: 5})
    program = f"""
import os, sys
from instride import Consumer
consumer = Consumer(
    bootstrap_servers={kafka.bootstrap_servers!r}, group_id={group!r}, auto_offset_reset="earliest", session_timeout=6
)
consumer.subscribe([{topic!r}])
print(sum(len(consumer.poll(timeout=20)) for _ in range(1)), flush=True)
consumer.commit_async()
{end}
"""
    path = os.pathsep.join(each for each in sys.path if each)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "5\n", "")
