"""What a handler returns for the output topic, and how that is written.

Laws
1. Nothing is written before the handler has returned. The attempt ends well when every output is acknowledged. One
   that is not fails the attempt, so that the handler is called again.
2. Whoever produces it says when it is acknowledged: by returning, or by a future or an awaitable that ends.
3. While an output is not acknowledged it holds no place of a handler, so that other records go on. Its record stays in
   progress: the next of its key, and the commit, wait for it. How many there may be of one partition its bound of
   records in progress says (`per_partition` in `engine.py`); of all together a multiple of the handlers (`Room`). What
   finds no room keeps its place until an earlier one has ended, or it has itself.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from instride._processing.event_loop import result_of
from instride.errors import ConfigError

if TYPE_CHECKING:
    from instride._processing.attempts import Desk
    from instride._processing.dead_letters import DeadLetter, Produce
    from instride._processing.engine import Job

__all__ = [
    "ACKNOWLEDGED",
    "OutputRecord",
    "OutputWriter",
    "Outputs",
    "Room",
    "error_of",
    "not_acknowledged",
    "outputs_of",
    "produce_all_async",
    "refuse_awaitable",
]

_T = TypeVar("_T")

_PER_PLACE: Final = 4
"""For each handler that may run, so many calls whose outputs are handed over and not acknowledged (law 3)."""

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _HandedOver:
    """Outputs of one attempt. left: those that are not acknowledged. place: of the handler. True: it was kept until the
    attempt ended well. False: it is given up."""

    job: Job
    topic: str | None
    left: set[Future[Any]]
    place: Future[bool] = field(default_factory=Future)


class Room(Generic[_T]):
    """For outputs that are in flight, of so many handlers. let_go: called with what gives its place up."""

    def __init__(self, handlers: int, let_go: Callable[[_T], object]) -> None:
        self._most: float = _PER_PLACE * handlers
        self._let_go = let_go
        self._in_flight: set[_T] = set()
        # In their order.
        self._held: dict[_T, None] = {}

    def enter(self, each: _T) -> None:
        self._held[each] = None
        self._go_on()

    def leave(self, each: _T) -> bool:
        """It has ended. Whether it had a place to the end; also of one that has not entered."""
        if each not in self._in_flight:
            self._held.pop(each, None)
            return True
        self._in_flight.remove(each)
        self._go_on()
        return False

    def open(self) -> None:
        """Without a bound from here on."""
        self._most = inf
        self._go_on()

    def _go_on(self) -> None:
        while self._held and len(self._in_flight) < self._most:
            each = next(iter(self._held))
            del self._held[each]
            self._in_flight.add(each)
            self._let_go(each)


class OutputWriter:
    """Of so many plain handlers: a thread hands outputs over, and waits for none where there is room (law 3).

    go_on: called when others may go on, since an attempt has ended. In whatever thread that is; under the lock.
    """

    def __init__(self, desk: Desk, produce: Produce | None, handlers: int, go_on: Callable[[], object]) -> None:
        self._desk = desk
        self._produce = produce
        self._go_on = go_on
        # Under the lock: until when each is waited for; the oldest is first.
        self._waiting: dict[_HandedOver, float] = {}
        self._room = Room(handlers, self._let_go)

    def hand_over(self, job: Job, outputs: Sequence[OutputRecord]) -> bool:
        """In their order. Whether all are acknowledged; else the attempt ends when they are, perhaps before this has
        returned: the job is the caller's no more. Raises what kept one from being handed over, or from being
        acknowledged while the handler had its place."""
        left = self._not_acknowledged(outputs)
        if not left:
            return True
        each = _HandedOver(job=job, topic=outputs[0].topic, left=left)
        with self._desk.lock:
            self._waiting[each] = self._desk.clock() + ACKNOWLEDGED
            self._room.enter(each)
        for future in list(left):
            future.add_done_callback(partial(self._is_acknowledged, each))
        return result_of(each.place)

    def close(self) -> None:
        """No thread waits for room any more: nobody looks from here on, and a producer may tell of no end. Under the
        lock."""
        self._room.open()

    def _let_go(self, each: _HandedOver) -> None:
        self._desk.engine.handed_over(each.job)
        each.place.set_result(False)

    def look(self) -> None:
        """What nobody has acknowledged in time has failed. To be called now and then."""
        with self._desk.lock:
            # One time-out for all: the order of the dict is that of the deadlines.
            now = self._desk.clock()
            late = [each for each, _ in takewhile(lambda found: now >= found[1], self._waiting.items())]
        for each in late:
            self._end(each, TimeoutError(not_acknowledged(each.topic, ACKNOWLEDGED)))

    def _not_acknowledged(self, outputs: Sequence[OutputRecord]) -> set[Future[Any]]:
        if not outputs:
            return set()
        assert self._produce is not None
        # All are handed over before one is looked at: the producer may put them into one batch.
        returned = [self._produce(each) for each in outputs]
        left: set[Future[Any]] = set()
        for future in [refuse_awaitable(found) for found in returned if found is not None]:
            if not future.done():
                left.add(future)
            elif (error := error_of(future)) is not None:
                raise error
        return left

    def _is_acknowledged(self, each: _HandedOver, future: Future[Any]) -> None:
        """Or refused: then the attempt has failed, whatever becomes of the others. In any thread."""
        self._end(each, error_of(future), future)

    def _end(self, each: _HandedOver, error: BaseException | None, future: Future[Any] | None = None) -> None:
        desk = self._desk
        try:
            with desk.lock:
                each.left.discard(future)
                if (each.left and error is None) or self._waiting.pop(each, None) is None:
                    return
                if self._room.leave(each):
                    each.place.set_result(True) if error is None else each.place.set_exception(error)
                    return
                verdict, attention = desk.end_handed_over(each.job, error)
                self._go_on()
            if verdict is not None:
                desk.note(each.job, verdict)
            if attention:
                desk.attention()
        except BaseException as broken:  # noqa: BLE001 - nobody is there to hear of it: its record were in progress for ever
            desk.fail(broken)


def error_of(future: Future[Any]) -> BaseException | None:
    """Waits for it."""
    try:
        result_of(future)
    except BaseException as error:  # noqa: BLE001 - whoever waits for it decides
        return error
    return None


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
    """The same for coroutine handlers. handed_over: called when only acknowledgements are waited for, if any are."""
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
        # It takes no thread. Where it does not wait at all, the loop has no turn for this.
        handle = asyncio.get_running_loop().call_soon(handed_over)
        try:
            for each in records:
                await produce(each)
        finally:
            handle.cancel()
        return
    returned = await asyncio.to_thread(lambda: [produce(each) for each in records])  # it may block
    awaited = [found for found in returned if found is not None]
    if not all(map(_is_done, awaited)):
        handed_over()
    for found in awaited:
        await (asyncio.wrap_future(found) if isinstance(found, Future) else found)


def _is_done(found: Any) -> bool:
    """Not of a coroutine."""
    return isinstance(found, Future | asyncio.Future) and found.done()


def not_acknowledged(topic: str | None, patience: float) -> str:
    """The text of our own time-out, which has no content of a record."""
    return f"{topic}: not acknowledged in {patience:g} s"
