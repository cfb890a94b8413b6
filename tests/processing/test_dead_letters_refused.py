"""A dead letter that the broker does not take: a smaller form where it is too large, else it is tried again."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import queue
import sys
import threading
import weakref
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from engine_help import Bench, desk_of, keyed
from processing_help import P0, refuse_threads

from instride import ConsumerRecord, UnwrittenLetter
from instride._processing import dead_letters, outputs
from instride._processing.coroutine_workers import LoopWorkers
from instride._processing.dead_letters import (
    ConfluentProduce,
    DeadLetter,
    LetterWriter,
    NotTakenError,
    _Life,
    _refused,
    write_letter_async,
)
from instride._processing.engine import Task
from instride._processing.health import metrics, unwritten_letters
from instride._processing.lifespan import AsyncLifespan
from instride._processing.origin import DeadLetterOrigin, replay_of
from instride._processing.outputs import OutputRecord
from instride._processing.poll_loop import Drains
from instride.errors import IllegalStateError, RecordTooLargeError

_LOCK = threading.RLock()
PATIENCE = 60.0
LARGE = b"v" * 5_000


class Topic:
    """Takes so many bytes of key, value and the record's own headers."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.taken: list[DeadLetter] = []

    def __call__(self, letter: DeadLetter) -> None:
        theirs = sum(len(value or b"") for name, value in letter.headers if not name.startswith("instride."))
        if len(letter.key or b"") + len(letter.value or b"") + theirs > self._most:
            raise RecordTooLargeError("too large")
        self.taken.append(letter)

    async def awaited(self, letter: DeadLetter) -> None:
        self(letter)


class Silent:
    """Never acknowledges anything."""

    def __call__(self, letter: DeadLetter) -> Future[Any]:
        return Future()

    async def awaited(self, letter: DeadLetter) -> None:
        await asyncio.Event().wait()


class Exits:
    """No Exception, but what ends a process."""

    def __call__(self, letter: DeadLetter) -> None:
        raise SystemExit(3)

    async def awaited(self, letter: DeadLetter) -> None:
        raise SystemExit(3)


class Quotes:
    """A user's producer, whose error has what it was given."""

    def __init__(self, kind: type[Exception]) -> None:
        self._kind = kind

    def __call__(self, letter: DeadLetter) -> None:
        raise self._kind(f"cannot encode {letter.record.value!r}")

    async def awaited(self, letter: DeadLetter) -> None:
        self(letter)


def failed(form: str, topic: Topic | Silent | Exits | Quotes) -> Bench:
    """One record, that is to become a dead letter, in this form of workers."""
    bench = Bench(after="dead-letter")
    headers = (("h", b"h" * 500),)
    bench.submit([ConsumerRecord("t", 0, 0, epoch=1, key=b"k" * 50, value=LARGE, headers=headers)])
    if form == "plain":
        task = bench.take()
        bench.end(task, ValueError("bad"))
        writer = LetterWriter(desk_of(bench.engine, _LOCK, dead_letters="dlq"), topic)
        writer.write(task)
        writer.look()
        return bench

    async def handle(record: Any) -> None:
        raise ValueError("bad")

    loop = asyncio.new_event_loop()
    desk = desk_of(bench.engine, _LOCK, dead_letters="dlq")
    LoopWorkers(desk, handle, topic.awaited, 1, loop, None, AsyncLifespan(desk.fail)).wake()
    for _ in range(10):
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    return bench


def read(letter: DeadLetter) -> ConsumerRecord[Any, Any]:
    return ConsumerRecord("dlq", 0, 7, key=letter.key, value=letter.value, headers=letter.headers)


@pytest.mark.parametrize("form", ["plain", "coroutine"])
@pytest.mark.parametrize(
    ("most", "key", "left_out"),
    [(10_000, b"k" * 50, ""), (1_000, b"k" * 50, "value (5000 bytes)"), (0, None, "key, value and headers")],
)
def test_what_is_too_large_is_written_without_what_makes_it_so(
    form: str, most: int, key: bytes | None, left_out: str
) -> None:
    topic = Topic(most)
    bench = failed(form, topic)
    (letter,) = topic.taken
    assert bench.engine.tally.dead_lettered == 1
    assert (letter.key, letter.value, letter.left_out) == (key, b"" if left_out else LARGE, left_out)
    origin = DeadLetterOrigin.of(read(letter))
    assert origin is not None
    assert (origin.topic, origin.offset, origin.message, origin.left_out) == ("t", 0, "bad", left_out)
    if left_out:
        with pytest.raises(ValueError, match="t-0 at offset 0"):
            replay_of(read(letter))


@pytest.mark.parametrize("form", ["plain", "coroutine"])
def test_what_has_no_smaller_form_is_tried_again_and_told(form: str) -> None:
    bench = failed(form, Topic(-1))
    (found,) = unwritten_letters(bench.engine)
    assert (found.partition, found.offset, type(found.error)) == (P0, 0, RecordTooLargeError)
    assert bench.engine.tally.dead_lettered == 0
    assert bench.commit()[P0][0] == 0


@pytest.mark.parametrize("form", ["plain", "coroutine"])
def test_a_letter_that_is_not_acknowledged_in_time_says_so(
    form: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dead_letters, "_ACKNOWLEDGED", 0.0)
    bench = failed(form, Silent())
    (found,) = unwritten_letters(bench.engine)
    assert isinstance(found.error, TimeoutError)
    assert str(found.error) == "dlq: not acknowledged in 0 s"
    assert caplog.messages[-1].endswith("s: TimeoutError: dlq: not acknowledged in 0 s")


@pytest.mark.parametrize("form", ["plain", "coroutine"])
@pytest.mark.parametrize("kind", [ValueError, RecordTooLargeError])
def test_the_log_has_nothing_that_a_users_producer_quotes(
    form: str, kind: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    bench = failed(form, Quotes(kind))
    (found,) = unwritten_letters(bench.engine)
    assert "vvv" in str(found.error)
    assert caplog.messages[-1].endswith(f"s: {kind.__name__}")


class Away:
    """A database that is there again after so many calls."""

    def __init__(self, calls: int) -> None:
        self._left = calls

    def __call__(self, task: Task) -> None:
        self._left -= 1
        if self._left >= 0:
            raise OSError("no route")

    async def awaited(self, task: Task) -> None:
        self(task)


@pytest.mark.parametrize("form", ["plain", "coroutine"])
def test_a_letter_is_written_once_while_the_store_is_away(form: str, caplog: pytest.LogCaptureFixture) -> None:
    bench, topic, store = Bench(after="dead-letter", has_store=True), Topic(10), Away(2)
    bench.submit(keyed(P0, "a"))
    task = bench.take()
    bench.end(task, ValueError("bad"))
    desk = desk_of(bench.engine, _LOCK, dead_letters="dlq")
    for number in range(2):
        if form == "plain":
            LetterWriter(replace(desk, pass_over=store), topic).write(task)
        else:
            if number == 0:
                asyncio.run(write_letter_async(replace(desk, pass_over=store.awaited), topic.awaited, task))
                assert desk.next_task() is task
            asyncio.run(write_letter_async(replace(desk, pass_over=store.awaited), topic.awaited, task))
        assert "its dead letter was written, but the store could not be told" in caplog.messages[-1]
        assert list(unwritten_letters(bench.engine)) == []
        assert bench.engine.tally.dead_lettered == 0
        bench.now += 100
        assert bench.take() is task
    assert task.copy().letter_written, "nor if its partition is given back meanwhile"
    LetterWriter(replace(desk, pass_over=store), topic).write(task)
    assert (len(topic.taken), bench.engine.tally.dead_lettered) == (1, 1)
    assert bench.commit()[P0][0] == 1


def test_a_coroutine_that_cannot_tell_the_store_in_time_tries_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It holds a handler's place, and another transaction may have a lock on the row for long."""
    monkeypatch.setattr(dead_letters, "_TOLD", 0.0)
    bench = Bench(after="skip", has_store=True)
    bench.submit(keyed(P0, "a"))
    task = bench.take()
    bench.end(task, ValueError("bad"))

    async def is_locked(_: Task) -> None:
        await asyncio.Event().wait()

    writing = write_letter_async(replace(desk_of(bench.engine), pass_over=is_locked), None, task)
    asyncio.run(asyncio.wait_for(writing, PATIENCE))
    assert caplog.messages[-1].startswith("t-0 at offset 0: skipped, but the store could not be told, tried again in")
    assert caplog.messages[-1].endswith("s: TimeoutError")
    assert (bench.engine.started, bench.engine.queued) == (0, 1)


@pytest.mark.parametrize("form", ["plain", "coroutine"])
def test_a_producer_that_exits_ends_the_run_and_its_letter_is_unwritten(
    form: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = failed(form, Exits())
    assert caplog.messages[-1].endswith("was not written, the processor stops: SystemExit")
    assert isinstance(bench.engine.failure, SystemExit)
    (found,) = unwritten_letters(bench.engine)
    assert isinstance(found.error, SystemExit)
    assert bench.commit()[P0][0] == 0


def test_a_letter_whose_event_loop_is_closed_ends_the_run_and_is_due_still() -> None:
    """The user's loop: then its tasks are thrown away where they wait."""
    bench = Bench(after="dead-letter")
    bench.submit(keyed(P0, "a"))

    async def handle(record: Any) -> None:
        raise ValueError("bad")

    with closing(asyncio.new_event_loop()) as loop:
        desk = desk_of(bench.engine, _LOCK, dead_letters="dlq")
        workers = LoopWorkers(desk, handle, Silent().awaited, 1, loop, None, AsyncLifespan(desk.fail))
        workers.wake()
        for _ in range(10):
            loop.run_until_complete(asyncio.sleep(0))
        (server,) = workers._attempts
        coroutine: Any = server.get_coro()
        coroutine.close()
        server.cancel()
        with pytest.raises(RuntimeError, match="cannot reuse"):
            loop.run_until_complete(server)
    assert isinstance(bench.engine.failure, IllegalStateError)
    assert (bench.engine.started, bench.engine.queued) == (0, 1)
    assert bench.commit()[P0] == (0, (), {0: 1}), "its letter is due"


def test_a_letter_that_is_refused_is_told_until_it_is_written() -> None:
    bench = Bench(after="dead-letter")
    bench.submit(keyed(P0, "ab"))
    task, other = bench.take(), bench.take()
    bench.end(task, ValueError())
    bench.end(other, None)
    error = PermissionError("the topic may not be written")
    for _ in range(3):
        after = bench.engine.wrote(task, error, bench.now, 0.5)
        told = [UnwrittenLetter(partition=P0, offset=0, error=error)]
        assert after is not None
        assert list(unwritten_letters(bench.engine)) == told
        assert metrics(bench.engine, Drains(), bench.now)["dead-letters-unwritten"] == 1
        bench.now += after
        assert bench.engine.has_next(bench.now)
        assert list(unwritten_letters(bench.engine)) == told, "also while it is due"
        assert bench.take() is task
        assert list(unwritten_letters(bench.engine)) == told, "also while it is tried"
    assert bench.commit()[P0][0] == 0
    bench.engine.wrote(task, None, bench.now, 0.5)
    assert list(unwritten_letters(bench.engine)) == []
    assert bench.commit()[P0][0] == 2


def test_a_lost_partition_has_no_letters() -> None:
    bench = Bench(after="dead-letter")
    bench.submit(keyed(P0, "a"))
    task = bench.take()
    bench.end(task, ValueError())
    bench.engine.wrote(task, ConnectionError(), bench.now, 0.5)
    bench.engine.submit([], [P0])
    assert list(unwritten_letters(bench.engine)) == []


@pytest.mark.parametrize(
    ("code", "kind", "told"),
    [
        (KafkaError._UNKNOWN_TOPIC, ConnectionError, "has no such topic"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ConnectionError, "TOPIC_AUTHORIZATION_FAILED"),
        (KafkaError._MSG_TIMED_OUT, ConnectionError, "_MSG_TIMED_OUT"),
        (KafkaError.MSG_SIZE_TOO_LARGE, RecordTooLargeError, "max.message.bytes"),
    ],
)
def test_what_the_broker_refuses_names_the_topic(code: int, kind: type[Exception], told: str) -> None:
    error = _refused(OutputRecord(value=b"v", topic="invoices"), KafkaError(code))
    assert isinstance(error, kind)
    assert str(error).startswith("invoices: ")
    assert told in str(error)


class Reporting:
    """A producer that reports each record as delivered when it is told to. refuses: what it raises first."""

    refuses: tuple[Exception, ...] = ()

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.reports: list[Any] = []
        self._refuses = list(self.refuses)

    def produce(self, *_: Any, on_delivery: Any, **__: Any) -> None:
        if self._refuses:
            raise self._refuses.pop()
        self.reports.append(on_delivery)

    def poll(self, wait: float) -> None:
        """Nothing is served by the thread: the test does."""

    def purge(self, *, in_flight: bool = True) -> None: ...

    def __len__(self) -> int:
        return 0


def test_a_report_of_what_nobody_waits_for_any_more_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt's time is out, and with it the wait for its record: the report that comes later must not raise."""
    monkeypatch.setattr("confluent_kafka.Producer", Reporting)
    produce = ConfluentProduce({"bootstrap_servers": "b:1"})
    acknowledged = [produce(OutputRecord(value=b"v", topic="t")) for _ in range(2)]

    async def give_up() -> None:
        for each in acknowledged:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await asyncio.wrap_future(each)

    asyncio.run(give_up())
    delivered, refused = client_of(produce).reports
    delivered(None, None)
    refused(KafkaError(KafkaError._MSG_TIMED_OUT), None)
    assert acknowledged[0].result(0) is None
    assert acknowledged[1].exception(0) is not None
    produce.close()


def client_of(produce: ConfluentProduce) -> Any:
    """What it has of librdkafka."""
    assert produce._producer is not None
    return produce._producer


def producing(monkeypatch: pytest.MonkeyPatch, *refuses: Exception) -> ConfluentProduce:
    monkeypatch.setattr(Reporting, "refuses", refuses)
    monkeypatch.setattr("confluent_kafka.Producer", Reporting)
    return ConfluentProduce({"bootstrap_servers": "b:1"})


OUTPUT = OutputRecord(value=b"v", topic="t")


def test_the_producer_gives_up_before_we_hand_it_over_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it sends, when the broker is back, what we gave up and each copy of it."""
    produce = producing(monkeypatch)
    produce(OUTPUT)
    tries = client_of(produce).settings["message.timeout.ms"] / 1000
    assert tries + dead_letters._ROOM < min(outputs.ACKNOWLEDGED, dead_letters._ACKNOWLEDGED)
    produce.close()


def test_what_finds_a_full_queue_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    produce = producing(monkeypatch, *[BufferError("Local: Queue full")] * 3)
    acknowledged = produce(OUTPUT)
    (delivered,) = client_of(produce).reports
    delivered(None, None)
    assert acknowledged.result(0) is None
    produce.close()


def test_a_queue_that_stays_full_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "_ROOM", 0.0)
    produce = producing(monkeypatch, *[BufferError("Local: Queue full")] * 2)
    with pytest.raises(NotTakenError, match="t: the producer's queue stays full"):
        produce(OUTPUT)
    produce.close()


def test_a_close_ends_the_wait_for_room_and_nothing_is_handed_over_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "_ROOM", PATIENCE)
    produce, is_full = producing(monkeypatch), threading.Event()

    def full(*_: Any, **__: Any) -> None:
        is_full.set()
        raise BufferError("Local: Queue full")

    def close() -> None:
        assert is_full.wait(PATIENCE)
        produce.close(0.0)

    monkeypatch.setattr(Reporting, "produce", full)
    closer = threading.Thread(target=close)
    closer.start()
    with pytest.raises(NotTakenError, match="t: the producer is closed"):
        produce(OUTPUT)
    closer.join()
    is_full.clear()
    with pytest.raises(NotTakenError, match="t: the producer is closed"):
        produce(OUTPUT)
    produce.close(PATIENCE)  # its thread would call what the next tests patch
    assert not is_full.is_set()


def test_what_is_handed_over_while_it_closes_is_given_up_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was looked whether the producer is closed, and the record is not handed over yet."""
    purged: list[int] = []
    produce = producing(monkeypatch)
    produce(OUTPUT)
    report = Reporting.produce

    def slow(*arguments: Any, **options: Any) -> None:
        produce._closed.set()  # as `close` does before it waits for the lock
        produce._servers[0].join(0.2)  # if it does not wait for us, it has purged then
        report(*arguments, **options)

    monkeypatch.setattr(Reporting, "produce", slow)
    monkeypatch.setattr(Reporting, "purge", lambda self: purged.append(len(self.reports)))
    produce(OUTPUT)
    produce.close(PATIENCE)
    assert purged == [2]


def test_what_a_closed_producer_gives_up_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka may give it up by threads of its own, a moment after `purge` has returned."""
    produce = producing(monkeypatch)
    acknowledged = [produce(OUTPUT) for _ in range(2)]

    def purge(producer: Reporting) -> None:
        monkeypatch.setattr(Reporting, "poll", polls)

    def polls(producer: Reporting, _: float) -> None:
        producer.reports.pop()(KafkaError(KafkaError._PURGE_QUEUE), None)

    monkeypatch.setattr(Reporting, "purge", purge)
    monkeypatch.setattr(Reporting, "__len__", lambda producer: len(producer.reports))
    produce.close(PATIENCE)
    assert all(isinstance(each.exception(0), NotTakenError) for each in acknowledged)


def test_what_a_closed_producer_still_has_is_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka itself, whose broker is away: it would write it late, beside what the next run hands over again."""
    monkeypatch.setattr(dead_letters, "_CLOSING", PATIENCE)  # its threads may have no processor for a while
    produce = ConfluentProduce({"bootstrap_servers": "127.0.0.1:1"})
    acknowledged = produce(OUTPUT)
    produce.close(PATIENCE)
    assert isinstance(acknowledged.exception(0), NotTakenError)
    assert produce._producer is None, "nor is librdkafka kept"


def test_a_thread_for_acknowledgements_that_the_system_refuses_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else nobody would hear of any acknowledgement, and each record be written again and again."""
    is_served = threading.Event()
    monkeypatch.setattr(Reporting, "poll", lambda *_: is_served.set())
    produce = producing(monkeypatch)
    threads_left = refuse_threads(monkeypatch)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        produce(OUTPUT)
    threads_left[0] = 1
    produce(OUTPUT)
    assert is_served.wait(PATIENCE)
    assert len(client_of(produce).reports) == 1, "and what was refused was not handed over"
    produce.close()


def test_a_producer_without_a_thread_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    produce = producing(monkeypatch)
    refuse_threads(monkeypatch)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        produce(OUTPUT)
    produce.close()


def test_what_the_producer_refuses_at_once_is_told_as_what_the_broker_does(monkeypatch: pytest.MonkeyPatch) -> None:
    large, gone = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), KafkaError(KafkaError._UNKNOWN_TOPIC)
    produce = producing(monkeypatch, KafkaException(gone), KafkaException(large))
    with pytest.raises(RecordTooLargeError):
        produce(OUTPUT)
    with pytest.raises(NotTakenError, match="has no such topic"):
        produce(OUTPUT)
    produce.close()


DESYNCHRONIZED = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "sequence number desynchronization", True)
"""Of librdkafka's texts, that after an unclean election."""


class Mortal(Reporting):
    """A producer that a fatal error may end: `poll` raises it once, and it takes nothing from then on.

    unanswered: records that are sent: a purge of what is queued only leaves them. dropped: by which threads it was.
    """

    made: ClassVar[list[weakref.ref[Mortal]]] = []
    unanswered: ClassVar[int] = 0
    dropped: ClassVar[queue.SimpleQueue[str]] = queue.SimpleQueue()

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self.errors: queue.SimpleQueue[KafkaError] = queue.SimpleQueue()
        self.is_dead = False
        self.purged: list[tuple[KafkaError, Any]] = []
        self.made.append(weakref.ref(self))

    def die(self) -> None:
        self.is_dead = True
        self.errors.put(DESYNCHRONIZED)

    def produce(self, *content: Any, on_delivery: Any, **options: Any) -> None:
        if self.is_dead:
            raise KafkaException(KafkaError(KafkaError._FATAL))
        super().produce(*content, on_delivery=on_delivery, **options)

    def poll(self, wait: float) -> None:
        for error, report in self.purged:
            report(error, None)
        self.purged.clear()
        with contextlib.suppress(queue.Empty):
            raise KafkaException(self.errors.get(timeout=wait))

    def purge(self, *, in_flight: bool = True) -> None:
        error = KafkaError(KafkaError._PURGE_QUEUE)
        while len(self.reports) > (0 if in_flight else self.unanswered):
            self.purged.append((error, self.reports.pop()))

    def __len__(self) -> int:
        return len(self.reports) + len(self.purged)

    def __del__(self) -> None:
        self.dropped.put(threading.current_thread().name)


def mortal(monkeypatch: pytest.MonkeyPatch, pace: float = 0.0) -> ConfluentProduce:
    monkeypatch.setattr(dead_letters, "_PACE", pace)
    for patience in ("_ROOM", "_CLOSING"):  # its threads may have no processor for a while
        monkeypatch.setattr(dead_letters, patience, PATIENCE)
    monkeypatch.setattr(Mortal, "made", [])
    monkeypatch.setattr(Mortal, "dropped", queue.SimpleQueue())
    monkeypatch.setattr("confluent_kafka.Producer", Mortal)
    return ConfluentProduce({"bootstrap_servers": "b:1"})


def test_a_fatal_error_ends_what_is_in_flight_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    produce = mortal(monkeypatch)
    acknowledged = produce(OUTPUT)
    client_of(produce).die()
    error = acknowledged.exception(PATIENCE)
    assert isinstance(error, NotTakenError)
    assert "sequence number desynchronization" in str(error)
    assert [each.levelname for each in caplog.records if "sequence number desynchronization" in each.message] == [
        "ERROR"
    ]
    produce.close()


def test_after_a_fatal_error_another_producer_takes_the_next_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    produce = mortal(monkeypatch)
    refused = produce(OUTPUT)
    first = client_of(produce)
    first.die()
    acknowledged = produce(OUTPUT)
    assert client_of(produce) is not first
    client_of(produce).reports.pop()(None, None)
    assert acknowledged.result(0) is None
    assert isinstance(refused.exception(PATIENCE), NotTakenError)
    produce.close()


def test_what_is_sent_before_a_fatal_error_is_not_given_up_while_an_answer_may_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker has it: given up, it would be written again."""
    monkeypatch.setattr(Mortal, "unanswered", 1)
    produce = mortal(monkeypatch)
    sent, queued = produce(OUTPUT), produce(OUTPUT)
    first = client_of(produce)
    first.die()
    assert isinstance(queued.exception(PATIENCE), NotTakenError)
    first.purged.append((None, first.reports.pop()))
    assert sent.result(PATIENCE) is None
    produce.close()


def test_what_is_sent_before_a_fatal_error_is_given_up_by_the_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another producer has taken the place of that."""
    monkeypatch.setattr(Mortal, "unanswered", 1)
    produce = mortal(monkeypatch)
    sent, queued = produce(OUTPUT), produce(OUTPUT)
    client_of(produce).die()
    assert isinstance(queued.exception(PATIENCE), NotTakenError)
    produce(OUTPUT)
    produce.close(PATIENCE)
    assert isinstance(sent.exception(0), NotTakenError)


def test_no_lock_is_held_while_a_producer_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka joins its threads then, one of which may look up a name: nobody else could hand over a record."""
    produce = mortal(monkeypatch)
    produce(OUTPUT)
    client_of(produce).is_dead = True
    errors = client_of(produce).errors
    server = produce._servers[0]
    errors.put(DESYNCHRONIZED)  # while this thread has no reference
    produce(OUTPUT)
    assert Mortal.dropped.get(timeout=PATIENCE) == "instride-producer", "by its own thread"
    server.join(PATIENCE)  # it clears weak references after `__del__`
    assert Mortal.made[0]() is None
    produce.close()


def test_producers_are_not_made_as_fast_as_they_die(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that refuses each one at once would be asked by each letter of thousands, as fast as they come."""
    produce = mortal(monkeypatch, pace=3600.0)
    acknowledged = produce(OUTPUT)
    client_of(produce).die()
    assert isinstance(acknowledged.exception(PATIENCE), NotTakenError)
    monkeypatch.setattr(produce._closed, "wait", lambda _: pytest.fail("it waits, in a handler's place"))
    with pytest.raises(NotTakenError, match=r"is lost, .* too early for another: .*desynchronization"):
        produce(OUTPUT)
    assert len(Mortal.made) == 1
    produce.close()


def test_the_pace_slows_until_a_record_is_acknowledged() -> None:
    life, paces = _Life(pause=1.0), []
    for _ in range(8):
        paces.append(life.pause)
        life = life.next_one()
    assert paces == [1, 2, 4, 8, 16, 32, 60, 60]
    life.has_acknowledged.set()
    assert life.next_one().pause == 1
    assert life.next_one().next_one().pause == 2


def test_a_producer_knows_whether_it_had_an_acknowledgement(monkeypatch: pytest.MonkeyPatch) -> None:
    produce = mortal(monkeypatch)
    for error in (KafkaError(KafkaError._MSG_TIMED_OUT), None):
        produce(OUTPUT)
        client_of(produce).reports.pop()(error, None)
        assert produce._life.has_acknowledged.is_set() is (error is None)
    produce.close()


def test_a_fatal_error_of_which_nobody_hears_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    produce = mortal(monkeypatch)
    monkeypatch.setattr(dead_letters, "_ROOM", 0.0)
    produce(OUTPUT)
    client_of(produce).is_dead = True
    with pytest.raises(NotTakenError, match=r"did not take the record: .*_FATAL"):
        produce(OUTPUT)
    produce.close()


def test_a_fatal_error_at_the_close_promises_no_other_producer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    produce, is_closed = mortal(monkeypatch), threading.Event()
    poll = Mortal.poll

    def late(producer: Mortal, wait: float) -> None:
        assert is_closed.wait(PATIENCE)
        producer.die()
        poll(producer, wait)

    monkeypatch.setattr(Mortal, "poll", late)
    acknowledged = produce(OUTPUT)
    produce.close(0.0)
    is_closed.set()
    assert isinstance(acknowledged.exception(PATIENCE), NotTakenError)
    produce.close(PATIENCE)
    assert not caplog.records


class Mock:
    """librdkafka's own, with a broker within it; by ctypes what confluent-kafka does not offer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self._of_python = confluent_kafka.Producer
        self._options = {"test.mock.num.brokers": 1, "log_level": 0, **options}
        with Path("/proc/self/maps").open() as lines:
            path = next(line.split()[-1] for line in lines if "rdkafka" in line)
        self._library = ctypes.CDLL(path)
        self._library.rd_kafka_handle_mock_cluster.restype = ctypes.c_void_p
        monkeypatch.setattr("confluent_kafka.Producer", self._make)

    def _make(self, settings: dict[str, Any]) -> Any:
        return self._of_python({**settings, **self._options})

    def answers_after(self, producer: Any, milliseconds: int) -> None:
        cluster = ctypes.c_void_p(self._library.rd_kafka_handle_mock_cluster(_handle(producer)))
        self._library.rd_kafka_mock_broker_set_rtt(cluster, 1, ctypes.c_int(milliseconds))

    def die(self, producer: Any) -> None:
        self._library.rd_kafka_test_fatal_error(_handle(producer), ctypes.c_int(45), b"the reason")


def _handle(producer: Any) -> ctypes.c_void_p:
    """The rd_kafka_t of confluent-kafka's object."""
    return ctypes.c_void_p.from_address(id(producer) + object.__basicsize__)


@pytest.mark.skipif(sys.platform != "linux", reason="librdkafka's library is found by /proc")
def test_librdkafka_itself_loses_no_report_after_a_fatal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in flight is answered by an acknowledgement: given up, it would be written again."""
    mock = Mock(monkeypatch)
    produce = ConfluentProduce({"bootstrap_servers": "b:1"})
    assert produce(OUTPUT).result(PATIENCE) is None
    first = client_of(produce)
    mock.answers_after(first, 500)
    waiting = [produce(OUTPUT) for _ in range(3)]
    mock.die(first)
    reasons = [each.exception(PATIENCE) for each in waiting]
    assert all(reason is None or "the reason" in str(reason) for reason in reasons)
    produce.close(PATIENCE)


@pytest.mark.skipif(sys.platform != "linux", reason="librdkafka's library is found by /proc")
def test_librdkafka_itself_loses_no_report_at_a_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fatal error comes while it is heard what the close has given up."""
    monkeypatch.setattr(dead_letters, "_CLOSING", PATIENCE)
    mock = Mock(monkeypatch)
    produce = ConfluentProduce({"bootstrap_servers": "b:1"})
    assert produce(OUTPUT).result(PATIENCE) is None
    first = client_of(produce)
    mock.answers_after(first, 500)
    waiting = [produce(OUTPUT) for _ in range(5)]
    drain = ConfluentProduce._drain

    def dies(*arguments: Any) -> None:
        mock.die(first)
        drain(*arguments)

    monkeypatch.setattr(ConfluentProduce, "_drain", dies)
    produce.close(PATIENCE)
    assert all(each.done() for each in waiting)
