"""Dead letters: a record as it was fetched, with headers that tell where it is from and why it is here; their writing.

Laws
1. Key, value and headers are those of the record, byte by byte; headers of ours are added behind them.
2. Whoever produces it says when it is acknowledged: by returning, or by a future or an awaitable that ends. A letter
   that could not be written is written again after a back-off (`wrote` in `engine.py`), and so is one of which nobody
   says it.
3. It is acknowledged before its record is finished. Once it is, it is not written again while a database is to be told.
   Who tells that is of the engine's (law 10 there).
4. The producer gives up each letter before we do, and all that it has when it is closed: what it still has would be
   written beside what we, or the next run, hand over again.
5. After a fatal error librdkafka's producer takes nothing any more, for ever. It gives up what it has not sent, with
   that error as the reason, and waits for the answers to the rest, which the broker may have. The next letter makes
   another one: not before `_PACE`, since it may be refused as fast, and ever later while none is acknowledged.
6. While a letter is not acknowledged it holds no place of a handler, so that other records go on. How many there may be
   of one partition its bound of records in progress says (`per_partition` in `engine.py`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from instride._processing.outputs import (
    ACKNOWLEDGED,
    OutputRecord,
    error_of,
    not_acknowledged,
    produce_all_async,
    refuse_awaitable,
)
from instride.errors import ConfigError, KafkaTimeoutError, RecordTooLargeError, StorePositionError
from instride.errors._quoting import counted

if TYPE_CHECKING:
    from instride._processing.attempts import Desk
    from instride._processing.engine import Task
    from instride._wire.decoder import ConsumerRecord

__all__ = [
    "LEFT_OUT",
    "ConfluentProduce",
    "DeadLetter",
    "LetterWriter",
    "NotTakenError",
    "Produce",
    "confluent_settings",
    "dead_letter",
    "smaller",
    "text_of",
    "told",
    "with_authorities",
    "write_letter_async",
]

_logger = logging.getLogger("instride.processing")

_ACKNOWLEDGED = ACKNOWLEDGED
"""Seconds in which a dead letter must be acknowledged; then it is tried again."""
_TOLD = 120.0
"""Seconds in which a coroutine must tell a store of one; then that is rolled back, and tried again."""
_CANCELLED: Final = "it was cancelled"
_LONGEST_TEXT: Final = 1_000
_OURS: Final = 8
"""Headers of ours at the end of a letter."""
LEFT_OUT: Final = "instride.left-out"
"""A header before these, of a letter in a reduced form: what of the record is not in it."""
_LARGEST: Final = 100_000_000
"""Bytes: the broker says what it takes; its default for a whole request is little more."""
_BATCH: Final = 16_384
"""Bytes, as Java's: what is larger goes alone, so that none is refused for its neighbours' size."""
_UNKNOWN_TOPIC_MS: Final = 5_000
"""Until librdkafka says that a topic does not exist. Its default is 30 s: nobody would be told why for so long."""
_MESSAGE_TIMEOUT_MS: Final = 100_000
"""Law 4. Its default is 5 minutes: after an outage of 4 each copy that we had handed over would be written."""
_ROOM = 10.0
"""Seconds to wait for a place in librdkafka's queue. With `_MESSAGE_TIMEOUT_MS` it is less than we wait."""
_PACE = 1.0
"""Seconds from one producer's making to the next one's, at least. Who comes before waits, as for room."""
_SLOWEST: Final = 60.0
"""The same, after some that had no acknowledgement."""
_POLL: Final = 0.1
"""Seconds. Below 0.2: what takes longer confluent-kafka does in steps, and goes on after a fatal error. `flush` does so
too, with the error pending: reports are lost then, or the reason."""
_LOOK: Final = 0.02
"""Seconds between two looks for room."""
_CLOSING: Final = 1.0
"""Seconds to wait for the end of the producer's thread. What keeps librdkafka longer (a name that is looked up, say)
keeps it from writing, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """What is to be produced. record: where it is from, its key and value as bytes. error: of the last attempt.

    headers: those of the record, then "instride.topic", "instride.partition", "instride.offset", "instride.timestamp",
    "instride.group", "instride.attempts", "instride.error" (the class) and "instride.message", all as UTF-8 text.
    left_out: what of the record is not in it, where all of it was larger than the broker takes; then the header
    "instride.left-out" says so, before these.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    record: ConsumerRecord = field(repr=False)
    error: BaseException | None
    attempts: int
    left_out: str = ""

    def reduced(self) -> DeadLetter | None:
        """A smaller form: without its value; then also without its key and the record's headers; then there is none."""
        record = self.record
        if not self.left_out:
            return _without(
                self, f"value ({counted(len(record.value or b''), 'byte')})", key=self.key, headers=record.headers
            )
        if self.left_out.startswith("value"):
            return _without(self, "key, value and headers", key=None, headers=())
        return None


def _without(letter: DeadLetter, what: str, *, key: bytes | None, headers: tuple[Any, ...]) -> DeadLetter:
    """An empty value, not None, which would be a tombstone where the topic is compacted."""
    told = (LEFT_OUT, what.encode())
    return replace(letter, left_out=what, key=key, value=b"", headers=(*headers, told, *letter.headers[-_OURS:]))


def smaller(letter: DeadLetter, error: RecordTooLargeError) -> DeadLetter:
    """What is written in its place, said in the log. Raises the error where there is no smaller form."""
    found = letter.reduced()
    if found is None:
        raise error
    where, offset, what = letter.record.topic_partition, letter.record.offset, found.left_out
    _logger.warning("%s at offset %d: too large for %s, dead letter without its %s", where, offset, letter.topic, what)
    return found


Produce: TypeAlias = "Callable[[Any], Future[Any] | Awaitable[Any] | None]"
"""Writes a DeadLetter or an OutputRecord. Acknowledged when it returns None, or when what it returns, ends."""


def dead_letter(
    topic: str, record: ConsumerRecord, error: BaseException | None, attempts: int, group: str
) -> DeadLetter:
    told = {
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "timestamp": str(record.timestamp),
        "group": group,
        "attempts": str(attempts),
        "error": "" if error is None else f"{type(error).__module__}.{type(error).__qualname__}",
        "message": text_of(error)[:_LONGEST_TEXT],
    }
    ours = tuple((f"instride.{name}", text.encode("utf-8", "replace")) for name, text in told.items())
    return DeadLetter(
        topic=topic,
        key=record.key,
        value=record.value,
        headers=(*record.headers, *ours),
        record=record,
        error=error,
        attempts=attempts,
    )


def text_of(error: BaseException | None) -> str:
    """Of a user's class, which may do anything."""
    if error is None:
        return "the attempts were used up by an earlier owner"
    try:
        return str(error)
    except Exception as failed:  # noqa: BLE001 - its dead letter is worth more
        return f"its text cannot be had: {type(failed).__name__}"


def told(error: BaseException | None) -> str:
    """The text of a handler's error may have a record's content; that of a refused output has not."""
    if error is None:
        return "its attempts were used up by an earlier owner"
    return str(error) if isinstance(error, NotTakenError) else type(error).__name__


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _HandedOver:
    """A letter that is not acknowledged. context: in which a smaller one is produced."""

    task: Task
    letter: DeadLetter
    context: Context


class LetterWriter:
    """Of plain handlers: a thread hands letters over, and waits for none (law 6).

    go_on: called when others may go on, since a letter was acknowledged or refused. In whatever thread that is; without
    the lock.
    """

    def __init__(self, desk: Desk, produce: Produce | None, go_on: Callable[[], object] = lambda: None) -> None:
        self._desk = desk
        self._produce = produce
        self._go_on = go_on
        # Under the lock: until when each is waited for; the oldest is first.
        self._waiting: dict[_HandedOver, float] = {}

    def write(self, task: Task) -> None:
        """Of a record that is skipped, only a database is told. What fails is tried again. Raises nothing."""
        error: BaseException | None = None
        try:
            if not (task.is_skipped or task.letter_written):
                if not self._is_acknowledged(task, self._desk.letter(task)):
                    return
                task.letter_written = True
            self._desk.pass_over(task)
        except BaseException as caught:  # noqa: BLE001 - it is tried again, or ends the run
            error = caught
        self._end(task, error)

    def look(self) -> None:
        """What nobody has acknowledged in time is tried again. To be called now and then."""
        late: list[_HandedOver] = []
        with self._desk.lock:
            # One time-out for all: the order of the dict is that of the deadlines.
            while self._waiting and self._desk.clock() >= next(iter(self._waiting.values())):
                late.append(next(iter(self._waiting)))
                del self._waiting[late[-1]]
        for each in late:
            self._end(each.task, TimeoutError(not_acknowledged(each.letter.topic, _ACKNOWLEDGED)))

    def _is_acknowledged(self, task: Task, letter: DeadLetter) -> bool:
        """False: `_has_ended` is told when it is. Raises what keeps it from being handed over."""
        assert self._produce is not None
        while True:
            try:
                found = self._produce(letter)
            except RecordTooLargeError as error:
                letter = smaller(letter, error)
            else:
                break
        if found is None:
            return True
        future = refuse_awaitable(found)
        each = _HandedOver(task=task, letter=letter, context=copy_context())
        with self._desk.lock:
            self._waiting[each] = self._desk.clock() + _ACKNOWLEDGED
        future.add_done_callback(partial(self._has_ended, each))
        return False

    def _has_ended(self, each: _HandedOver, future: Future[Any]) -> None:
        """In any thread. Of what was given up no smaller one is written; whoever does it anew knows that it was."""
        task = each.task
        error = error_of(future)
        with self._desk.lock:
            if self._waiting.pop(each, None) is None:
                return
            task.letter_written = error is None
            if task.over:
                return
        if isinstance(error, RecordTooLargeError):
            error = self._write_smaller(each, error)
            if error is None:
                return
        self._end_elsewhere(task, error)

    def _end_elsewhere(self, task: Task, error: BaseException | None) -> None:
        """In a thread that may have no connection to the store: of that it tells nothing."""
        with self._desk.lock:
            is_left = error is None and self._desk.engine.acknowledged(task)
        if not is_left:
            self._end(task, error)
        self._go_on()

    def _write_smaller(self, each: _HandedOver, error: RecordTooLargeError) -> BaseException | None:
        """What keeps it from that. Not in this thread: it may be the one by which the producer's queue has room."""
        try:
            arguments = self._write_this, each.task, smaller(each.letter, error)
            threading.Thread(target=each.context.run, args=arguments, name="instride-letter", daemon=True).start()
        except (RecordTooLargeError, RuntimeError) as failed:  # or the system has no thread left
            return failed
        return None

    def _write_this(self, task: Task, letter: DeadLetter) -> None:
        error: BaseException | None = None
        try:
            if not self._is_acknowledged(task, letter):
                return
        except BaseException as caught:  # noqa: BLE001 - as in `write`
            error = caught
        self._end_elsewhere(task, error)

    def _end(self, task: Task, error: BaseException | None) -> None:
        try:
            if _wrote(self._desk, task, error):
                self._desk.attention()
        except BaseException as broken:  # noqa: BLE001 - nobody is there to hear of it: its record were in progress for ever
            self._desk.fail(broken)


async def write_letter_async(
    desk: Desk,
    produce: Produce | None,
    task: Task,
    handed_over: Callable[[], object] = lambda: None,
) -> None:
    """For coroutine handlers, and returns when that has ended. handed_over: as of `produce_all_async`."""
    error: BaseException | None = None
    try:
        if not (task.is_skipped or task.letter_written):
            await _produce_letter_async(produce, desk.letter(task), handed_over)
            with desk.lock:
                if desk.engine.acknowledged(task):
                    return
        if (passed := desk.pass_over(task)) is not None:
            async with asyncio.timeout(_TOLD):  # it holds a handler's place
                await passed
    # CancelledError is no Exception, by which the run would end (`_wrote`): the letter is tried again.
    except asyncio.CancelledError:
        error = KafkaTimeoutError(_CANCELLED)
    except GeneratorExit:
        raise  # it is thrown away where it waited, of which `LoopWorkers` tells
    except BaseException as caught:  # noqa: BLE001 - it is tried again, or ends the run
        error = caught
    if _wrote(desk, task, error):
        desk.attention()


async def _produce_letter_async(produce: Produce | None, letter: DeadLetter, handed_over: Callable[[], object]) -> None:
    while True:
        try:
            await produce_all_async(produce, [letter], _ACKNOWLEDGED, handed_over)
        except RecordTooLargeError as error:
            letter = smaller(letter, error)
        else:
            return


def _wrote(desk: Desk, task: Task, error: BaseException | None) -> bool:
    """Takes the lock. A dead letter was acknowledged, or was not; whether the loop is to be woken."""
    # Before the engine is told: it would only see to it that the letter is tried again.
    ends = error is not None and _ends_run(task, error)
    if error is not None and ends:
        desk.fail(error)
    with desk.lock:
        after = desk.engine.wrote(task, error, desk.clock(), desk.chance())
        attention = desk.wants_attention()
    name = f"{task.lane.partition} at offset {task.offset}"
    if error is not None and (ends or after is not None):
        then = "the processor stops" if ends else f"tried again in {after:.1f} s"
        _logger.error(_not_done(task), name, then, _why(desk, error))
    elif not (task.over or task.is_skipped):
        _logger.warning(
            "%s: dead letter written after %s: %s", name, counted(task.attempts, "attempt"), told(task.error)
        )
    return attention


def _ends_run(task: Task, error: BaseException) -> bool:
    """What is no Exception (SystemExit, say), and a row that was set back: as where a handler raises it."""
    return not isinstance(error, Exception) or (isinstance(error, StorePositionError) and not task.over)


def _not_done(task: Task) -> str:
    if task.is_skipped or task.letter_written:
        what = "skipped" if task.is_skipped else "its dead letter was written"
        return f"%s: {what}, but the store could not be told, %s: %s"
    return "the dead letter of %s was not written, %s: %s"


def _why(desk: Desk, error: BaseException) -> str:
    """For the log. The text only of an error of ours: that of another may quote the record. A user's `produce` raises
    some of our classes too: RecordTooLargeError, where we ask for it."""
    kind, text = type(error).__name__, text_of(error)
    ours = (_CANCELLED, not_acknowledged(desk.dead_letters, _ACKNOWLEDGED))
    is_ours = isinstance(error, NotTakenError | ConfigError | StorePositionError) or text in ours
    return f"{kind}: {text}" if is_ours else kind


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Life:
    """Of a producer of librdkafka's. pause: seconds from its making to the next one's, if it dies (law 5).

    Its own thread alone polls it, so that `lost` is there before the reports of what the error has ended.
    """

    pause: float
    made: float = field(default_factory=time.monotonic)
    lost: Future[Any] = field(default_factory=Future)
    has_acknowledged: threading.Event = field(default_factory=threading.Event)

    def next_one(self) -> _Life:
        """Of the producer that takes its place."""
        return _Life(pause=_PACE if self.has_acknowledged.is_set() else min(2 * self.pause, _SLOWEST))

    def reason(self, error: Any) -> Any:
        """Why a record is not acknowledged: not that it was given up, but why it was (law 5)."""
        return self.lost.result() if self.lost.done() and error.name().startswith("_PURGE_") else error


class ConfluentProduce:
    """Produces with confluent-kafka (the extra `instride[produce]`): idempotent, acknowledged by all replicas.

    Any thread may call it. A thread of its own serves the acknowledgements, from the first record to `close`, or to a
    fatal error.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """settings: a consumer's. Raises ConfigError where confluent-kafka is missing, or does not take one."""
        try:
            from confluent_kafka import KafkaException, Producer  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ConfigError("to produce needs the extra instride[produce], or a produce= of your own") from error
        ours = {
            "enable.idempotence": True,
            "linger.ms": 5,
            "partitioner": "murmur2_random",  # Java's, for equal keys
            "message.max.bytes": _LARGEST,
            "batch.size": _BATCH,
            "message.timeout.ms": _MESSAGE_TIMEOUT_MS,
            "topic.metadata.propagation.max.ms": _UNKNOWN_TOPIC_MS,
        }
        connection = with_authorities(confluent_settings(settings))
        self._make = partial(Producer, {**connection, **ours})
        self._refusal: type[Exception] = KafkaException
        if connection.get("security.protocol", "PLAINTEXT") != "PLAINTEXT":
            self._try(settings, {name: value for name, value in connection.items() if name != "bootstrap.servers"})
        self._producer: Any = None
        self._life = _Life(pause=_PACE)
        self._lock = threading.Lock()
        self._servers: list[threading.Thread] = []
        self._closed = threading.Event()

    def _try(self, settings: Mapping[str, Any], connection: dict[str, Any]) -> None:
        """Makes a producer without a broker, and drops it: else the first letter would tell what is refused."""
        try:
            # Else one with Kerberos would log in, and wait for that.
            self._make.func({**connection, _RELOGIN: 0, "log_level": 0})
        except self._refusal as error:
            given = ", ".join(name for name in _SAME if name != "client_id" and settings.get(name) is not None)
            raise ConfigError(
                f"confluent-kafka, which writes dead letters and outputs, refuses {given}: {error.args[0].str()}; mend "
                "that, or give the Processor a produce= of your own"
            ) from None

    def __call__(self, letter: DeadLetter | OutputRecord) -> Future[Any]:
        """Waits while librdkafka's queue is full. Raises NotTakenError or RecordTooLargeError for what it refuses."""
        acknowledged: Future[Any] = Future()
        # It cannot be cancelled: its report would raise then, in `_serve`, which nobody would start again.
        acknowledged.set_running_or_notify_cancel()

        def delivered(life: _Life, error: Any, _: Any) -> None:
            if error is None:
                life.has_acknowledged.set()
                acknowledged.set_result(None)
            else:
                acknowledged.set_exception(_refused(letter, life.reason(error)))

        # confluent-kafka takes no None for a partition.
        partition = None if isinstance(letter, DeadLetter) else letter.partition
        fixed: dict[str, Any] = {} if partition is None else {"partition": partition}
        fixed["headers"] = list(letter.headers)
        try:
            self._hand_over(delivered, letter.topic, letter.value, letter.key, **fixed)
        except BufferError:
            raise NotTakenError(f"{letter.topic}: the producer's queue stays full") from None
        except self._refusal as error:
            raise _refused(letter, error.args[0]) from None
        return acknowledged

    def _hand_over(
        self, delivered: Callable[[_Life, Any, Any], None], topic: str | None, *content: bytes | None, **fixed: Any
    ) -> None:
        until = time.monotonic() + _ROOM
        while not self._is_taken(until, delivered, topic, *content, **fixed):
            self._closed.wait(_LOOK)

    def _is_taken(
        self,
        until: float,
        delivered: Callable[[_Life, Any, Any], None],
        topic: str | None,
        *content: bytes | None,
        **fixed: Any,
    ) -> bool:
        """Whether librdkafka has it. Raises what it is not taken for where it will not be until then."""
        is_late = time.monotonic() >= until
        # In one step with the look at `_closed`: what comes after `close` nobody would give up.
        with self._lock:
            if self._closed.is_set():
                raise NotTakenError(f"{topic}: the producer is closed")
            if not self._has_producer():
                # At once where the next one comes too late: who waits here has a handler's place.
                if is_late or self._life.made + self._life.pause > until:
                    lost = self._life.lost.result()
                    raise NotTakenError(f"{topic}: the producer is lost, and it is too early for another: {lost}")
                return False
            try:
                self._producer.produce(topic, *content, on_delivery=partial(delivered, self._life), **fixed)
            except BufferError:
                if is_late:
                    raise
                return False
            except self._refusal as error:
                # Its thread hears of it: then the next producer takes the record.
                if error.args[0].name() != "_FATAL" or is_late:
                    raise
                return False
        return True

    def _has_producer(self) -> bool:
        """Under the lock. It connects when the first record is written, since most runs have none."""
        if self._producer is None:
            life = self._life
            if life.lost.done():
                if time.monotonic() < life.made + life.pause:
                    return False
                life = life.next_one()
            producer = self._make()
            server = threading.Thread(target=self._serve, args=(producer, life), name="instride-producer", daemon=True)
            server.start()
            # Once it has started: where the system has no thread left, the next call tries again.
            self._producer, self._life = producer, life
            self._servers[:] = [*(each for each in self._servers if each.is_alive()), server]
        return True

    def _serve(self, producer: Any, life: _Life) -> None:
        """It has the last reference: librdkafka waits for its threads when it is dropped, which no lock is held for."""
        while not (self._closed.is_set() or life.lost.done()):
            self._poll(producer, life)
        # What is sent the broker may have, and say so: given up, it would be written again.
        if not self._closed.is_set():
            producer.purge(in_flight=False)
            self._drain(producer, life, _MESSAGE_TIMEOUT_MS / 1000, self._closed.is_set)
        # Behind whoever has found it open: else what that one hands over is given up by nobody.
        with self._lock:
            producer.purge()  # law 4
        # Librdkafka's threads give it up a moment later: to confluent-kafka `blocking=True` means not to wait for them.
        self._drain(producer, life, _CLOSING)

    def _drain(self, producer: Any, life: _Life, patience: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Hears of all that it still has."""
        until = time.monotonic() + patience
        while len(producer) and time.monotonic() < until and not is_over():
            self._poll(producer, life)

    def _poll(self, producer: Any, life: _Life) -> None:
        """Of all errors it raises only the fatal one, once."""
        try:
            producer.poll(_POLL)
        except self._refusal as error:
            self._lose(life, error.args[0])

    def _lose(self, life: _Life, error: Any) -> None:
        """Law 5."""
        with self._lock:
            if life.lost.done():
                return
            life.lost.set_result(error)
            if self._closed.is_set():
                return
            self._producer = None
        _logger.error("the producer of dead letters and outputs is given up, the next record makes another: %s", error)

    def close(self, patience: float = _CLOSING) -> None:
        """What is not acknowledged is given up: its records were not committed. patience: seconds. Before that it waits
        while a producer is made."""
        self._closed.set()  # before the lock, so that whoever waits for it makes no other producer
        with self._lock:
            self._producer = None
        until = time.monotonic() + patience
        for each in self._servers:
            each.join(max(0.0, until - time.monotonic()))


class NotTakenError(ConnectionError):
    """The broker did not acknowledge a record of ours. Its text has no content of a record, so a log may have it."""


def _refused(letter: DeadLetter | OutputRecord, error: Any) -> Exception:
    if error.name() in ("_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART"):
        return NotTakenError(f"{letter.topic}: the cluster has no such topic, or hides it from this user")
    if error.name() != "MSG_SIZE_TOO_LARGE":
        return NotTakenError(f"{letter.topic}: the broker did not take the record: {error}")
    size = len(letter.value or b"")
    return RecordTooLargeError(f"{letter.topic}: a value of {size} bytes is more than max.message.bytes allows")


_SAME: Final = {
    "client_id": "client.id",
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_username": "sasl.username",
    "sasl_password": "sasl.password",
    "ssl_ca_file": "ssl.ca.location",
    "ssl_cert_file": "ssl.certificate.location",
    "ssl_key_file": "ssl.key.location",
    "ssl_key_password": "ssl.key.password",
    "sasl_kerberos_service_name": "sasl.kerberos.service.name",
    "sasl_kerberos_principal": "sasl.kerberos.principal",
    "sasl_kerberos_keytab_file": "sasl.kerberos.keytab",
}
_RELOGIN: Final = "sasl.kerberos.min.time.before.relogin"
"""Milliseconds between two runs of kinit; 0: it runs none."""
_CERTIFICATE: Final = re.compile(r"-----BEGIN (X509 )?CERTIFICATE-----")
"""Which librdkafka reads. It refuses a text without any."""


def confluent_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """librdkafka's names for what concerns the connection."""
    for name in ("ssl_context", "sasl_oauth_token"):
        if settings.get(name) is not None:
            raise ConfigError(
                f"{name}: confluent-kafka cannot be told of it; give the Processor a produce= of your own"
            )
    servers = settings["bootstrap_servers"]
    found: dict[str, Any] = {theirs: settings[ours] for ours, theirs in _SAME.items() if settings.get(ours) is not None}
    # The consumer finds the key there, where no other file is named.
    if (own := found.get("ssl.certificate.location")) is not None:
        found.setdefault("ssl.key.location", own)
    # Without a keytab the tickets are there already, as for the consumer: kinit would only fail.
    if found.get("sasl.mechanism") == "GSSAPI" and "sasl.kerberos.keytab" not in found:
        found[_RELOGIN] = 0
    if settings.get("ssl_check_hostname") is False:
        found["ssl.endpoint.identification.algorithm"] = "none"
    return {**found, "bootstrap.servers": servers if isinstance(servers, str) else ",".join(servers)}


def with_authorities(settings: Mapping[str, Any]) -> dict[str, Any]:
    """librdkafka's settings, in which TLS without authorities trusts those of Python's `ssl`, as the consumer does.

    librdkafka's own defaults are others, without SSL_CERT_FILE and SSL_CERT_DIR. To be called where it connects.
    """
    found = dict(settings)
    if found.get("security.protocol") not in ("SSL", "SASL_SSL") or "ssl.ca.location" in found:
        return found
    paths = ssl.get_default_verify_paths()
    # OpenSSL takes a list. Python tells of a single one only.
    named = os.environ.get(paths.openssl_capath_env, paths.openssl_capath).split(os.pathsep)
    directories = [each for each in named if each and Path(each).is_dir()]
    if directories:
        found["ssl.ca.location"] = directories[0]
    if len(directories) > 1:
        name = paths.openssl_capath_env
        _logger.warning("%s: confluent-kafka takes one directory of authorities: %s", name, directories[0])
    if paths.cafile is not None:
        with suppress(OSError):  # as OpenSSL passes over it
            text = Path(paths.cafile).read_text("latin-1")
            if _CERTIFICATE.search(text):
                found["ssl.ca.pem"] = text
    return found
