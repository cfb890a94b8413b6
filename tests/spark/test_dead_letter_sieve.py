"""How long a range waits for its dead letters, on a clock that goes on while they are awaited."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, NoReturn

import pyarrow as pa
import pytest

from instride.errors import KafkaTimeoutError, RecordTooLargeError
from instride.spark import _dead_letters
from instride.spark._dead_letters import DeadLetters, Sieve
from instride.spark.sink import OutputRange

TIMEOUT = 10.0
BATCH = pa.RecordBatch.from_pylist(
    [
        {"topic": "t", "partition": 0, "offset": offset, "key": b"k", "value": b"v", "headers": [], "timestamp": None}
        for offset in range(4)
    ],
    schema=pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
            ("timestamp", pa.timestamp("us")),
        ]
    ),
)


class Slow(Future[None]):
    """Acknowledged so many seconds after it is awaited, or refused then as too large."""

    def __init__(self, broker: Broker, seconds: float, *, is_too_large: bool) -> None:
        super().__init__()
        self._broker = broker
        self._seconds = seconds
        self._is_too_large = is_too_large

    def result(self, timeout: float | None = None) -> None:
        assert timeout is not None
        self._broker.now += min(self._seconds, timeout)
        if self._seconds > timeout:
            raise TimeoutError
        if self._is_too_large:
            raise RecordTooLargeError("1 byte")


class Broker:
    def __init__(self, seconds: float, *, too_large: int = 0) -> None:
        self.now = 1000.0
        self._seconds = seconds
        self._too_large = too_large

    def clock(self) -> float:
        return self.now

    def produce(self, _: Any) -> Slow:
        self._too_large -= 1
        return Slow(self, self._seconds, is_too_large=self._too_large >= 0)


class Refusing(Broker):
    """It fails at once, with an error of the kind that waiting for a response ends with."""

    def produce(self, _: Any) -> Any:
        refused: Future[None] = Future()
        refused.set_exception(TimeoutError("mine"))
        return refused


class Late(Broker):
    """It acknowledges just after the time is over."""

    def produce(self, _: Any) -> Any:
        class Acknowledged(Future[None]):
            def result(self, timeout: float | None = None) -> None:
                if not self.done():
                    self.set_result(None)
                    raise TimeoutError

        return Acknowledged()


def finish(broker: Broker) -> None:
    """Of a range with four letters."""
    letters = DeadLetters(topic="dlq", group="g", attempts=1, most=9, timeout=TIMEOUT, produce=b"here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_dead_letters, "unpickled", lambda _: broker.produce)
        sieve = Sieve(letters, OutputRange(topic="t", partition=0, start=0, end=4), broker.clock)
        sieve.passed(BATCH, bad)
        sieve.finish()
    sieve.close()


def bad(_: pa.RecordBatch) -> NoReturn:
    raise ValueError("no")


@pytest.mark.parametrize("too_large", [0, 2])
def test_all_letters_of_a_range_have_one_deadline(too_large: int) -> None:
    """Those that are written once more, in a smaller form, too."""
    broker = Broker(TIMEOUT / 2 - 0.1, too_large=too_large)
    with pytest.raises(KafkaTimeoutError, match="were not acknowledged within 10 s"):
        finish(broker)
    assert broker.now == 1000.0 + TIMEOUT
    finish(Broker(TIMEOUT / (4 + too_large) - 0.1, too_large=too_large))


def test_a_letter_that_fails_with_a_timeout_of_its_own_is_told_as_it_is() -> None:
    """It was told that it was not acknowledged within 10 s, after none."""
    with pytest.raises(TimeoutError, match=r"^mine$") as raised:
        finish(Refusing(0.0))
    assert not isinstance(raised.value, KafkaTimeoutError)


def test_a_letter_that_is_acknowledged_just_after_its_time_is_no_failure() -> None:
    """A bare TimeoutError was told, as if the letter had been refused with that."""
    finish(Late(0.0))
