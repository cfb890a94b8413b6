"""What a handler returns for the output topic, and how that is written.

Laws
1. Nothing is written before the handler has returned. The attempt ends well when every output is acknowledged. One
   that is not fails the attempt, so that the handler is called again.
2. Whoever produces it says when it is acknowledged: by returning, or by a future or an awaitable that ends.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from instride._processing.event_loop import result_of
from instride.errors import ConfigError

if TYPE_CHECKING:
    from instride._processing.dead_letters import DeadLetter, Produce

__all__ = [
    "ACKNOWLEDGED",
    "OutputRecord",
    "Outputs",
    "not_acknowledged",
    "outputs_of",
    "produce_all",
    "produce_all_async",
    "refuse_awaitable",
]

ACKNOWLEDGED = 120.0
"""Seconds in which an output, or a dead letter, must be; then it is given up, and written again perhaps. Our producer
has given it up by then (`_MESSAGE_TIMEOUT_MS` of `dead_letters`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRecord:
    """What is to be produced. key and value: bytes, or None. topic: None is the processor's output topic. partition:
    None leaves it to the producer, which goes by the key."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic: str | None = None
    partition: int | None = None


Outputs = OutputRecord | Sequence[OutputRecord] | None
"""What a handler with an output topic returns."""


def outputs_of(returned: Any, topic: str) -> list[OutputRecord]:
    """With their topics. Raises TypeError for anything else."""
    found = [] if returned is None else [returned] if isinstance(returned, OutputRecord) else returned
    listed = found if isinstance(found, list | tuple) else [found]
    wrong = [type(each).__name__ for each in listed if not isinstance(each, OutputRecord)]
    if wrong:
        # Not its repr, which may have the record's content.
        raise TypeError(f"with output= a handler returns an OutputRecord, a list of them or None, not {wrong[0]}")
    return [_addressed(each, topic) for each in listed]


def _addressed(output: OutputRecord, topic: str) -> OutputRecord:
    return output if output.topic is not None else replace(output, topic=topic)


def produce_all(produce: Produce | None, records: Sequence[OutputRecord | DeadLetter]) -> None:
    """In their order, for plain handlers. Raises what kept one from being acknowledged."""
    if not records:
        return
    assert produce is not None
    # All are handed over before the first is waited for: the producer may put them into one batch.
    for found in [produce(each) for each in records]:
        if found is not None:
            future = refuse_awaitable(found)
            # Not `result(ACKNOWLEDGED)`, whose TimeoutError could be the producer's own.
            wait([future], ACKNOWLEDGED)
            if not future.done():
                raise TimeoutError(not_acknowledged(records[0].topic, ACKNOWLEDGED))
            result_of(future)


def refuse_awaitable(found: Future[Any] | Awaitable[Any]) -> Future[Any]:
    """What a producer has returned. Raises ConfigError."""
    if not isinstance(found, Future):
        raise ConfigError("produce returned an awaitable to a plain handler; return None or a concurrent Future")
    return found


async def produce_all_async(
    produce: Produce | None,
    records: Sequence[OutputRecord | DeadLetter],
    patience: float = ACKNOWLEDGED,
    handed_over: Callable[[], object] = lambda: None,
) -> None:
    """The same for coroutine handlers. handed_over: called when only acknowledgements are waited for."""
    limit = asyncio.timeout(patience)
    try:
        async with limit:
            await _until_acknowledged(produce, records, handed_over)
    except TimeoutError as error:
        # Else it is a TimeoutError of the producer's own, which says more.
        if limit.expired():
            raise TimeoutError(not_acknowledged(records[0].topic, patience)) from error
        raise


async def _until_acknowledged(
    produce: Any, records: Sequence[OutputRecord | DeadLetter], handed_over: Callable[[], object]
) -> None:
    # One after the other: coroutines that run beside each other would write in any order.
    if inspect.iscoroutinefunction(produce):
        handed_over()  # it takes no thread
        for each in records:
            await produce(each)
        return
    returned = await asyncio.to_thread(lambda: [produce(each) for each in records])  # it may block
    handed_over()
    for found in returned:
        if isinstance(found, Future):
            await asyncio.wrap_future(found)
        elif found is not None:
            await found


def not_acknowledged(topic: str | None, patience: float) -> str:
    """The text of our own time-out, which has no content of a record."""
    return f"{topic}: not acknowledged in {patience:g} s"
