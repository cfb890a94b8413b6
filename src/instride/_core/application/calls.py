"""How a blocking call is written: a generator that says how long it would wait, and changes that happen as one.

Laws of a call (`Call`, `Wait`)
1. A call yields `Wait`; its driver resumes it with the time, when something came up or at `until`, if not sooner.
2. The driver alone knows clocks and threads: a thread's condition for `Consumer`, an event loop for `AsyncConsumer`,
   virtual time for simulations.
3. Where `awaited` is set the driver awaits that instead, in the task of the call, and throws what it raises into the
   call. A driver that cannot refuses it.
4. Who may call when is for the drivers to say (`_net/driver.py`, `_net/async_driver.py`): one call at a time, and no
   poll in a listener.
5. A wakeup ends a poll (`polling.py`), what waits for a response (`committing.py`) and `position` (`machine.py`).

Laws of a change (`Write`, `at_once`): many changes happen as one, whatever interrupts the thread
W1. Python runs a signal's handler between two steps of its own code, never inside a function that is written in C.
    `at_once` makes all its changes inside one such function. So an exception that a handler raises comes before the
    first change or after the last.
W2. Therefore each change is a call of something written in C that runs no Python code: `setattr` of a plain attribute,
    a method of a deque, dict or set whose keys are hashed and compared in C.
W3. A function of the user's follows the changes in the same step (`at_once_then`). It is none of them: they are taken
    from an iterator, for which a StopIteration is the ordinary end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import chain, compress, repeat, starmap
from operator import call
from typing import Any, TypeVar

__all__ = ["Call", "Wait", "Write", "at_once", "at_once_then", "first", "last"]

T = TypeVar("T")
E = TypeVar("E")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """until: by the machine's clock. awaited: what a method of the listener returned, where that is asynchronous.

    in_hand: whether a poll has taken records that it may return, and only looks at the clock again.
    """

    until: float
    awaited: Awaitable[object] | None = None
    in_hand: bool = False


Call = Generator[Wait, float, T]
"""A call under way: yields waits, is sent the time, returns T."""


Write = tuple[Any, ...]
"""A function and its positional arguments."""
# Its own type says too much to be an argument of itself.
_CALL: Any = call


def at_once(writes: Iterable[Write]) -> None:
    """All of them, or none."""
    # W1: a tuple first, since a generator of writes would run Python's code between two of them.
    deque(starmap(call, tuple(writes)), maxlen=0)


def at_once_then(writes: Iterable[Write], act: Callable[[], T]) -> T:
    """All of them and then `act`, with no step between, or none. Returns and raises what `act` does."""
    # What the writes return is left out, so `act` is all that comes: `reduce` makes `call(call, act)` of it.
    written = compress(starmap(call, tuple(writes)), repeat(False))
    steps: Iterator[Any] = chain(written, (act,))
    result: T = reduce(_CALL, steps, _CALL)
    return result


def first(queue: deque[E]) -> E | None:
    """In one step: who looks first whether there is one may find it gone, by a handler of a signal."""
    return _at(queue, 0)


def last(queue: deque[E]) -> E | None:
    """In one step too."""
    return _at(queue, -1)


def _at(queue: deque[E], place: int) -> E | None:
    try:
        return queue[place]
    except IndexError:
        return None
