"""What a `Processor` refuses, and what it is: a value."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from engine_help import keyed
from processing_help import P0

from instride import (
    Attempt,
    CircuitBreaker,
    ConsumerRecord,
    DatabaseStore,
    DeadLetterRecord,
    Processor,
    Retry,
    RetryRecord,
    SkipRecord,
    current_attempt,
)
from instride._processing.retries import Failures, Step
from instride.errors import ConfigError, DeserializationError, IllegalStateError

SETTINGS = {"bootstrap_servers": "localhost:9092", "sasl_password": "hunter2"}
URI = "postgresql://billing:hunter2@localhost/billing"


def handle(record: ConsumerRecord[Any, Any]) -> None: ...


async def handle_async(record: ConsumerRecord[Any, Any]) -> None: ...


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"topics": "orders"}, TypeError, r'topics=\["orders"\]'),
        ({"topics": []}, ConfigError, "topics is empty"),
        ({"topics": [b"orders"]}, TypeError, "decode"),
        ({"dead_letters": "orders"}, ConfigError, "dead_letters is one of its topics: orders"),
        ({"output": "orders"}, ConfigError, "output is one of its topics: orders; .* Name another topic"),
        ({"order": "keys"}, ConfigError, "partition, key, none"),
        ({"concurrency": 0}, ValueError, "concurrency"),
        ({"concurrency_per_partition": -1}, ValueError, "concurrency_per_partition"),
        ({"retry": 5}, TypeError, r"Retry\(attempts=5\)"),
        ({"on_failure": "dead-letter"}, ConfigError, "dead_letters="),
        ({"on_deadline": "stop"}, ConfigError, "wait, cancel"),
        ({"on_failure": "ignore"}, ConfigError, "stop, skip, dead-letter"),
        ({"produce": handle}, ConfigError, "dead_letters"),
        ({"produce": Retry(), "dead_letters": "letters"}, TypeError, "produce must be a function.* not Retry$"),
        ({"produce": handle_async, "output": "bills"}, ConfigError, "produce .*plain function"),
        ({"store": DatabaseStore}, TypeError, r"such as DatabaseStore\(connect\), not type$"),
        ({"commit_records": 0}, ValueError, "commit_records"),
        ({"timeout": -5.0}, ValueError, "timeout"),
        ({"timeout": 0}, ConfigError, "timeout must be above 0"),
        ({"dead_letters": ""}, ValueError, "dead_letters is empty"),
        ({"dead_letters": ["letters"]}, TypeError, "dead_letters must be a text"),
        ({"output": ""}, ValueError, "output is empty"),
        ({"concurrency": -1}, ValueError, "concurrency must be 1 or more; it is -1$"),
        ({"concurrency": 0}, ValueError, "concurrency must be 1 or more; it is 0$"),
        ({"max_metadata": 32_768}, ValueError, "max_metadata must be 32767 or less"),
        ({"max_wait": 1.0}, ConfigError, "max_batch"),
        ({"max_batch": 0}, ValueError, "max_batch"),
        ({"max_batch": "100"}, TypeError, "max_batch must be a whole number, not '100'"),
        ({"max_batch": None}, TypeError, "max_batch must be a whole number, not None"),
        ({"max_batch": 100, "max_records": 50}, ConfigError, "max_records"),
        ({"batch_format": "arrow"}, ConfigError, "max_batch"),
        ({"batch_format": "pandas", "max_batch": 5}, ConfigError, "list"),
        ({"batch_format": "arrow", "max_batch": 5, "value_deserializer": int}, ConfigError, "deserializers"),
        ({"group_id": "g"}, TypeError, "run or running"),
        ({"value_deserializer": 5}, ConfigError, "callable"),
    ],
)
def test_a_wrong_definition_is_refused(options: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        Processor(handle, **{"topics": ["orders"], **options})


def test_topics_may_be_a_generator() -> None:
    processor = Processor(handle, topics=(each for each in ["orders"]), dead_letters="letters")
    assert repr(processor) == "Processor(handle, topics=['orders'], order='key')"


def test_what_is_no_function_is_refused() -> None:
    handler: Any = "handle"
    with pytest.raises(TypeError, match="a function of one record"):
        Processor(handler, topics=["orders"])
    nothing: Any = None
    with closing(handle_async(nothing)) as called, pytest.raises(TypeError, match=r"not coroutine$"):
        Processor(called, topics=["orders"])  # type: ignore[call-overload]
    topic: Any = "orders"
    with pytest.raises(TypeError, match=r"topics=\['orders'\]"):
        Processor(handle, topic, topics=["orders"])


def test_a_coroutine_function_may_have_either_kind_of_produce() -> None:
    for produce in (handle, handle_async):
        Processor(handle_async, topics=["orders"], output="bills", produce=produce)


def needs_a_place(record: ConsumerRecord[Any, Any], place: str, uri: str = "") -> None: ...


def around(record: ConsumerRecord[Any, Any], following: Any, uri: str) -> None: ...


@pytest.mark.parametrize(
    ("handler", "misplaced", "options"),
    [
        (SETTINGS, [], {}),
        (handle, [SETTINGS], {}),
        (handle, [URI], {}),
        (partial(needs_a_place, uri=URI), [], {}),
        (handle, [], {"store": URI}),
        (handle, [], {"lifespan": URI}),
        (handle, [], {"worker_lifespan": SETTINGS}),
        (handle, [], {"middleware": partial(around, uri=URI)}),
        (handle, [], {"middleware": [SETTINGS]}),
        (handle, [], {"retry": SETTINGS}),
        (handle_async, [], {"middleware": [partial(around, uri=URI)]}),
        (handle, [], {"produce": SETTINGS, "output": "bills"}),
    ],
)
def test_what_is_refused_shows_no_secret(handler: Any, misplaced: list[Any], options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ConfigError)) as refused:
        Processor(handler, *misplaced, **{"topics": ["orders"], **options})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"enable_auto_commit": True}, "commits what is finished"),
        ({"revoke_mode": "immediate"}, "two steps"),
        ({"value_deserializer": bytes.decode}, "give it to the Processor"),
        ({"group_id": None}, "needs a group"),
        ({"session_timeout": 45_000}, "session_timeout"),
    ],
)
def test_settings_that_a_processor_decides_are_refused(settings: dict[str, Any], told: str) -> None:
    before = threading.active_count()
    with pytest.raises(ConfigError, match=told):
        Processor(handle, topics=["orders"]).running(
            **{"bootstrap_servers": "localhost:9092", "group_id": "g", **settings}
        )
    assert threading.active_count() == before


def test_it_is_immutable_and_does_nothing_by_itself() -> None:
    before = threading.active_count()
    processor = Processor(handle_async, topics=["orders"], timeout=5.0)
    processor.running(bootstrap_servers="localhost:9092", group_id="g")
    assert threading.active_count() == before
    assert repr(processor) == "Processor(handle_async, topics=['orders'], order='key')"
    with pytest.raises(AttributeError, match="immutable"):
        processor.topics = ["others"]


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"attempts": 0}, ValueError),
        ({"attempts": "5"}, TypeError),
        ({"on": "OSError"}, TypeError),
        ({"backoff": -1}, ValueError),
        ({"jitter": 2}, ValueError),
        ({"backoff": 61}, ValueError),
    ],
)
def test_a_wrong_retry_is_refused(values: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        Retry(**values)
    with pytest.raises(ValueError, match="after"):
        RetryRecord(after=-1)


def test_back_off_doubles_up_to_its_bound_with_jitter() -> None:
    retry = Retry(backoff=1.0, backoff_max=5.0, jitter=0.5)
    assert [retry.delay(number, 0.5) for number in (1, 2, 3, 4, 5000)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert (retry.delay(1, 0.0), retry.delay(1, 1.0)) == (0.5, 1.5)
    assert not Retry(attempts=None).is_last(1_000_000)


def test_errors_are_chosen_by_class_or_by_a_function() -> None:
    assert Retry(on=(OSError, ValueError)).covers(ConnectionError())
    assert not Retry(on=OSError).covers(ValueError())
    assert Retry(on=lambda error: "busy" in str(error)).covers(ValueError("busy"))


def test_only_its_own_class_names_an_error_of_deserializing() -> None:
    error = DeserializationError("no", part="value", record=keyed(P0, "a")[0])
    assert not Retry().covers(error)
    assert not Retry(on=(ValueError, Exception)).covers(error)
    assert Retry(on=(OSError, DeserializationError)).covers(error)


@dataclass(frozen=True)
class FrozenError(Exception):
    """It takes no notes."""


class NoTextError(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("no text")


class StrangeRequestError(RetryRecord):
    """It says no seconds, and takes no notes."""

    after: Any = "soon"

    def __init__(self) -> None:
        Exception.__init__(self)

    def add_note(self, note: str, /) -> None:
        raise RuntimeError("no notes")


@pytest.mark.parametrize("error", [FrozenError(), ValueError()])
def test_a_function_that_cannot_choose_names_no_error_whatever_class_that_is(error: Exception) -> None:
    def fails(_: Exception) -> bool:
        raise NoTextError

    assert not Retry(on=fails).covers(error)


def test_a_request_that_says_no_seconds_is_tried_again_after_the_back_off() -> None:
    assert Failures(retry=Retry(attempts=2)).decide(StrangeRequestError(), 1, 0.5) == (Step.RETRY, 0.5)


def test_a_group_of_errors_is_chosen_by_class_if_all_in_it_are() -> None:
    """What an `asyncio.TaskGroup` of a handler raises."""
    away, slow, wrong = ConnectionError(), TimeoutError(), ValueError()
    nested = ExceptionGroup("", [away, ExceptionGroup("", [slow])])
    assert Retry(on=OSError).covers(nested)
    assert CircuitBreaker(on=(ConnectionError, TimeoutError)).chooses(nested)
    assert not Retry(on=ConnectionError).covers(nested)
    assert not CircuitBreaker(on=OSError).chooses(ExceptionGroup("", [away, wrong]))
    assert Retry(on=ExceptionGroup).covers(ExceptionGroup("", [wrong]))


def test_a_request_that_is_alone_in_a_group_is_heard() -> None:
    failures = Failures(retry=Retry(attempts=2), has_dead_letters=True)

    def becomes(*errors: Exception) -> tuple[Step, float]:
        return failures.decide(ExceptionGroup("", [ExceptionGroup("", errors)]), 1, 0.5)

    assert becomes(SkipRecord()) == (Step.SKIP, 0.0)
    assert becomes(DeadLetterRecord()) == (Step.DEAD_LETTER, 0.0)
    assert becomes(RetryRecord(after=7.0)) == (Step.RETRY, 7.0)
    assert becomes(SkipRecord(), ValueError()) == (Step.RETRY, 0.5)
    assert not CircuitBreaker(on=Exception).chooses(ExceptionGroup("", [SkipRecord()]))


def test_outside_a_handler_there_is_no_attempt() -> None:
    with pytest.raises(IllegalStateError, match="handlers"):
        current_attempt()


def test_a_record_says_of_what_type_its_key_and_value_are() -> None:
    (record,) = keyed(P0, "a")
    assert ConsumerRecord[str, int] is not None
    assert isinstance(record, ConsumerRecord)
    assert asyncio.iscoroutinefunction(handle_async)
    assert Attempt.__doc__


def yields(record: ConsumerRecord) -> Iterator[ConsumerRecord]:
    yield record


async def yields_async(record: ConsumerRecord) -> AsyncIterator[ConsumerRecord]:
    yield record


@pytest.mark.parametrize("handler", [yields, yields_async])
def test_a_handler_that_yields_is_refused_since_nobody_would_run_it(handler: Any) -> None:
    with pytest.raises(TypeError, match="must not yield"):
        Processor(handler, topics=["t"])


def nothing() -> None: ...


async def nothing_async() -> None: ...


def two(record: ConsumerRecord[Any, Any], client: object) -> None: ...


def named(*, record: ConsumerRecord[Any, Any]) -> None: ...


@pytest.mark.parametrize("wrong", [nothing, nothing_async, two, named, lambda: None])
def test_a_handler_that_cannot_take_a_record_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"called with one argument.* def handle\(record\)"):
        Processor(wrong, topics=["orders"])


@pytest.mark.parametrize("right", [partial(two, client=1), print, max, dict.fromkeys, lambda *records: None])
def test_whatever_takes_a_record_is_a_handler(right: Any) -> None:
    Processor(right, topics=["orders"])
