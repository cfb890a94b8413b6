"""Dead letters: a record as it was fetched, with headers that tell where it is from and why it is here; their writing.

Laws
1. Key, value and headers are those of the record, byte by byte; headers of ours are added behind them.
2. Whoever produces it says when it is acknowledged: by returning, or by a future or an awaitable that ends. A letter
   that could not be written is written again after a back-off (`wrote` in `engine.py`), and so is one of which nobody
   says it.
3. It is acknowledged before its record is finished.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from instride._processing.outputs import OutputRecord, produce_all, produce_all_async
from instride.errors import ConfigError, KafkaTimeoutError, RecordTooLargeError
from instride.errors._quoting import counted

if TYPE_CHECKING:
    from instride._processing.attempts import Desk
    from instride._processing.engine import Task
    from instride._wire.decoder import ConsumerRecord

__all__ = [
    "LEFT_OUT",
    "ConfluentProduce",
    "DeadLetter",
    "NotTakenError",
    "Produce",
    "confluent_settings",
    "dead_letter",
    "smaller",
    "text_of",
    "told",
    "write_letter",
    "write_letter_async",
]

_logger = logging.getLogger("instride.processing")

_ACKNOWLEDGED = 30.0
"""Seconds in which a dead letter must be acknowledged; then it is tried again."""
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
"""Until librdkafka says that a topic does not exist. Its default is 30 s, as long as we wait: nobody was told why."""


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


def write_letter(desk: Desk, produce: Produce | None, task: Task) -> None:
    """For plain handlers. Of a record that is skipped, only a database is told. What fails is tried again."""
    error: BaseException | None = None
    try:
        if not task.is_skipped:
            _produce_letter(produce, desk.letter(task))
        desk.pass_over(task)
    except BaseException as caught:  # noqa: BLE001 - it is tried again, or ends the run
        error = caught
    if _wrote(desk, task, error):
        desk.attention()


def _produce_letter(produce: Produce | None, letter: DeadLetter) -> None:
    while True:
        try:
            produce_all(produce, [letter], _ACKNOWLEDGED)
        except RecordTooLargeError as error:
            letter = smaller(letter, error)
        else:
            return


async def write_letter_async(desk: Desk, produce: Produce | None, task: Task) -> None:
    """The same for coroutine handlers."""
    error: BaseException | None = None
    try:
        if not task.is_skipped:
            await _produce_letter_async(produce, desk.letter(task))
        if (passed := desk.pass_over(task)) is not None:
            await passed
    # CancelledError is no Exception, by which the run would end (`_wrote`): the letter is tried again.
    except asyncio.CancelledError:
        error = KafkaTimeoutError("it was cancelled")
    except BaseException as caught:  # noqa: BLE001 - it is tried again, or ends the run
        error = caught
    if _wrote(desk, task, error):
        desk.attention()


async def _produce_letter_async(produce: Produce | None, letter: DeadLetter) -> None:
    while True:
        try:
            await produce_all_async(produce, [letter], _ACKNOWLEDGED)
        except RecordTooLargeError as error:
            letter = smaller(letter, error)
        else:
            return


def _wrote(desk: Desk, task: Task, error: BaseException | None) -> bool:
    """Takes the lock. A dead letter was acknowledged, or was not; whether the loop is to be woken.

    What is no Exception (SystemExit, say) ends the run, as it does where a handler raises it.
    """
    # Before the engine is told: it would only see to it that the letter is tried again.
    if error is not None and not isinstance(error, Exception):
        desk.fail(error)
    with desk.lock:
        after = desk.engine.wrote(task, error, desk.clock(), desk.chance())
        attention = desk.wants_attention()
    name = f"{task.lane.partition} at offset {task.offset}"
    if after is not None:
        why = f"{type(error).__name__}: {text_of(error)}"
        _logger.error("the dead letter of %s was not written, tried again in %.1f s: %s", name, after, why)
    elif not (task.over or task.is_skipped):
        _logger.warning(
            "%s: dead letter written after %s: %s", name, counted(task.attempts, "attempt"), told(task.error)
        )
    return attention


class ConfluentProduce:
    """Produces with confluent-kafka (the extra `instride[produce]`): idempotent, acknowledged by all replicas.

    Any thread may call it. A thread of its own serves the acknowledgements, from the first record to `close`.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """settings: a consumer's. Raises ConfigError where confluent-kafka is missing, or cannot be told of one."""
        try:
            from confluent_kafka import Producer  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ConfigError("to produce needs the extra instride[produce], or a produce= of your own") from error
        ours = {
            "enable.idempotence": True,
            "linger.ms": 5,
            "partitioner": "murmur2_random",  # Java's, for equal keys
            "message.max.bytes": _LARGEST,
            "batch.size": _BATCH,
            "topic.metadata.propagation.max.ms": _UNKNOWN_TOPIC_MS,
        }
        self._make = partial(Producer, {**confluent_settings(settings), **ours})
        self._producer: Any = None
        self._lock = threading.Lock()
        self._server: threading.Thread | None = None
        self._closed = False

    def __call__(self, letter: DeadLetter | OutputRecord) -> Future[Any]:
        acknowledged: Future[Any] = Future()
        # It cannot be cancelled: its report would raise then, in `_poll`, which nobody would start again.
        acknowledged.set_running_or_notify_cancel()

        def delivered(error: Any, _: Any) -> None:
            if error is None:
                acknowledged.set_result(None)
            else:
                acknowledged.set_exception(_refused(letter, error))

        # confluent-kafka takes no None for a partition.
        fixed = {} if isinstance(letter, DeadLetter) or letter.partition is None else {"partition": letter.partition}
        headers = list(letter.headers)
        self._serving().produce(letter.topic, letter.value, letter.key, headers=headers, on_delivery=delivered, **fixed)
        return acknowledged

    def _serving(self) -> Any:
        """It connects when the first record is written, since most runs have none."""
        with self._lock:
            if self._server is None:
                self._producer = self._make()
                self._server = threading.Thread(target=self._poll, name="instride-producer", daemon=True)
                self._server.start()
            return self._producer

    def _poll(self) -> None:
        while not self._closed:
            self._producer.poll(0.1)

    def close(self) -> None:
        """What is not acknowledged is given up: its records were not committed."""
        self._closed = True
        if self._server is not None:
            self._server.join()


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


def confluent_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """librdkafka's names for what concerns the connection."""
    for name in ("ssl_context", "sasl_oauth_token"):
        if settings.get(name) is not None:
            raise ConfigError(
                f"{name}: confluent-kafka cannot be told of it; give the Processor a produce= of your own"
            )
    servers = settings["bootstrap_servers"]
    found = {theirs: settings[ours] for ours, theirs in _SAME.items() if settings.get(ours) is not None}
    if settings.get("ssl_check_hostname") is False:
        found["ssl.endpoint.identification.algorithm"] = "none"
    return {**found, "bootstrap.servers": servers if isinstance(servers, str) else ",".join(servers)}
