"""Records that a pipeline's function cannot take: found one by one, and written to a topic before their range's commit.

Laws
1. It is done in a range's last try alone: what may pass has had its tries.
2. A batch at which the function raises is halved, until single records are left at which it raises.
3. The range is reported as written when every letter of it is acknowledged; so its commit comes after them. A range
   that runs again writes its letters again: they are there at least once.
4. A letter that is too large for its topic is written in a smaller form, as a processor's is. It counts once.
5. More than `most` of a range are no bad records but an outage of what the function needs: the range fails, and nothing
   of it is committed.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from instride._processing.dead_letters import ConfluentProduce, DeadLetter, dead_letter, smaller, text_of
from instride.errors import ConfigError, KafkaTimeoutError, PipelineError, RecordTooLargeError
from instride.records import ConsumerRecord
from instride.spark._functions import unpickled
from instride.spark.sink import OutputRange

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DeadLetters", "Sieve"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """Picklable. topic: to which they go. group, attempts: told in their headers. most: of one range.

    produce: the user's, pickled, or None for confluent-kafka, with `settings`, which may hold secrets. timeout: seconds
    after the range's last record in which all its letters must be acknowledged, together.
    """

    topic: str
    group: str
    attempts: int
    most: int
    timeout: float
    produce: bytes | None = None
    settings: tuple[tuple[str, Any], ...] = field(default=(), repr=False)

    def producer(self) -> Callable[[Any], Any]:
        """Raises ConfigError where confluent-kafka is missing or cannot be told of the settings."""
        return ConfluentProduce(dict(self.settings)) if self.produce is None else unpickled(self.produce)


class Sieve:
    """Of one try of one range. count: how many letters were written. clock: gives seconds."""

    def __init__(self, letters: DeadLetters, wanted: OutputRange, clock: Callable[[], float] = time.monotonic) -> None:
        self.count = 0
        self._letters = letters
        self._wanted = wanted
        self._clock = clock
        self._produce: Callable[[Any], Any] | None = None
        self._unacknowledged: list[tuple[DeadLetter, Future[Any]]] = []

    def passed(self, batch: pa.RecordBatch, work: Callable[[pa.RecordBatch], list[Any]]) -> list[Any]:
        """What `work` gives for the records at which it does not raise. batch: with all columns."""
        try:
            return work(batch)
        except Exception as error:  # noqa: BLE001 - the user's function may raise anything
            if batch.num_rows == 1:
                self._write(_record(batch), error)
                return []
        half = batch.num_rows // 2
        return self.passed(batch.slice(0, half), work) + self.passed(batch.slice(half), work)

    def finish(self) -> None:
        """Law 3, within `timeout` of this call. Raises what producing raised, KafkaTimeoutError."""
        deadline = self._clock() + self._letters.timeout
        # What was too large comes back into the list, in a smaller form.
        while self._unacknowledged:
            self._await(*self._unacknowledged.pop(0), deadline)

    def _await(self, letter: DeadLetter, acknowledged: Future[Any], deadline: float) -> None:
        try:
            acknowledged.result(max(0.0, deadline - self._clock()))
        except RecordTooLargeError as error:
            self._produced(smaller(letter, error))
        except TimeoutError as error:
            if not acknowledged.done():
                raise KafkaTimeoutError(
                    f"dead letters of {self._wanted} were not acknowledged within {self._letters.timeout:g} s"
                ) from error
            # The letter's own: it was refused with that.
            if acknowledged.exception() is error:
                raise
            # It came just after the time was over.
            self._await(letter, acknowledged, deadline)

    def close(self) -> None:
        if isinstance(self._produce, ConfluentProduce):
            self._produce.close()

    def _write(self, record: ConsumerRecord[Any, Any], error: Exception) -> None:
        letters = self._letters
        self.count += 1
        if self.count > letters.most:
            raise PipelineError(
                f"more than {letters.most} records of {self._wanted} cannot be worked on (max_dead_letters): that is "
                f"taken for an outage, not for bad records. The last one: {type(error).__name__}: {text_of(error)}"
            )
        self._produced(dead_letter(letters.topic, record, error, letters.attempts, letters.group))

    def _produced(self, letter: DeadLetter) -> None:
        """Law 4. A function of the user's may refuse a letter at once."""
        if self._produce is None:
            self._produce = self._letters.producer()
        try:
            result = self._produce(letter)
        except RecordTooLargeError as error:
            self._produced(smaller(letter, error))
            return
        if isinstance(result, Future):
            self._unacknowledged.append((letter, result))
        elif result is not None:
            # Of anything else it is not known what becomes of the letter: another client's future, or a coroutine.
            if inspect.iscoroutine(result):
                result.close()
            raise ConfigError(
                f"produce must return None or a concurrent.futures.Future, not a {type(result).__name__}: without that "
                "nobody knows whether the letter is acknowledged"
            )


def _record(batch: pa.RecordBatch) -> ConsumerRecord[Any, Any]:
    import pyarrow as pa  # noqa: PLC0415 - an extra

    row = {name: batch.column(name)[0].as_py() for name in ("topic", "partition", "offset", "key", "value", "headers")}
    timestamp = batch.column("timestamp").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())[0].as_py()
    headers = tuple((each["key"], each["value"]) for each in row.pop("headers") or ())
    return ConsumerRecord(**row, timestamp=-1 if timestamp is None else timestamp, headers=headers)
