"""Events, and the JSON lines that they are written as (docs/histories.md).

    {"t":1.25,"who":"A","what":"done","partition":["flights",0],"offset":7,"epoch":3}

Laws
1. An event never changes. Equal histories have equal lines, byte for byte.
2. In one file times do not fall. Files of one history are merged by time; what is of one time keeps the files' order.
3. A line that is no event is an error that names its file, its number and what is wrong. Nothing is skipped but half a
   line at a file's end, which a killed process leaves: one without its end that is no JSON either.
4. Times are seconds, virtual or of a monotonic clock that all writers share. They are rounded to microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from heapq import merge
from operator import attrgetter
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from instride.errors import HistoryError
from instride.testing._check.vocabulary import KINDS, VERSION, note, stretch

__all__ = ["BROKER", "Event", "Read", "decode", "encode", "read_histories", "write"]

BROKER: Final = "broker"
"""Who speaks where no member does."""
_STRETCHES: Final = {"hole": (1, 2), "range done": (1, 2)}
"""Where these have their first and last offset."""
_BASE = ("t", "who", "what")
_LATEST: Final = 1e15


class Event(NamedTuple):
    """time: seconds. who: a member's name, or BROKER. what: a kind (`vocabulary.KINDS`), or any other word: a note."""

    time: float
    who: str
    what: str
    detail: tuple[Any, ...]

    def line(self) -> str:
        """As one line of text."""
        return encode(self)


class Read(NamedTuple):
    """An event that was read. file, number: where its line is, the first being 1."""

    event: Event
    file: str
    number: int


def encode(event: Event) -> str:
    """One line of JSON, without its end."""
    named: dict[str, Any] = {"t": round(event.time, 6), "who": event.who, "what": event.what}
    fields = KINDS.get(event.what)
    if fields is None:
        named["detail"] = event.detail
    else:
        told = [each.name for at, each in enumerate(fields) if at < len(event.detail) or not each.optional]
        named.update(zip(told, event.detail, strict=True))
    return json.dumps(named, separators=(",", ":"), allow_nan=False)


def decode(line: str) -> Event:
    """The event of a line. HistoryError says what is wrong with it."""
    try:
        named = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _NotJsonError(f"not JSON: {error}") from None
    if not isinstance(named, dict):
        raise HistoryError("not a JSON object")
    try:
        return _event(named)
    except RecursionError:
        raise HistoryError("its lists are too deep") from None


class _NotJsonError(HistoryError):
    """It may be half a line."""


def _event(named: dict[str, Any]) -> Event:
    time, who, what = (named.pop(name, None) for name in _BASE)
    if not _is_time(time):
        raise HistoryError(f'"t" must be a number of seconds, not {time!r}')
    if not isinstance(who, str) or not isinstance(what, str):
        raise HistoryError('"who" and "what" must be texts')
    return Event(float(time), who, what, _detail(what, named))


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LATEST


def _detail(what: str, named: dict[str, Any]) -> tuple[Any, ...]:
    fields = KINDS.get(what)
    if fields is None:
        if named.keys() != {"detail"} or not isinstance(named["detail"], list):
            raise HistoryError(f'there is no kind of event {what!r}; a note has the one field "detail", a list')
        return tuple(note(each) for each in named["detail"])
    told = [each for each in fields if each.name in named or not each.optional]
    if named.keys() != {each.name for each in told}:
        wanted = ", ".join(each.name for each in told) or "none"
        raise HistoryError(f"the fields of {what!r} are {wanted}; not {', '.join(named) or 'none'}")
    values = []
    for name, read, _ in told:
        try:
            values.append(read(named[name]))
        except (TypeError, ValueError, OverflowError) as error:
            raise HistoryError(f"{name!r} of {what!r} must be {error}; it is {_short(named[name])}") from None
    if what in _STRETCHES:
        first, last = _STRETCHES[what]
        try:
            stretch(values[first], values[last])
        except ValueError as error:
            raise HistoryError(f"{what!r} must be {error}; it is {values[first]} to {values[last]}") from None
    if what == "history" and values[0] != VERSION:
        raise HistoryError(f"its version is {values[0]}; this checker knows version {VERSION}")
    return tuple(values)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def write(events: Iterable[Event], file: IO[str]) -> None:
    """Append the events' lines."""
    for event in events:
        file.write(encode(event) + "\n")


def read_histories(paths: Iterable[Path]) -> Iterator[Read]:
    """The events of these files, which are of one history, in the order of time. HistoryError; OSError.

    A file that is named twice is read once.
    """
    files = {path.resolve(): path for path in paths}
    return merge(*(_read(path) for path in files.values()), key=attrgetter("event.time"))


def _read(path: Path) -> Iterator[Read]:
    last = float("-inf")
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                event = decode(line.decode("utf-8"))
                if event.time < last:
                    raise HistoryError(f"its time is {event.time}, and the line before has {last}")
            except (HistoryError, UnicodeDecodeError) as error:
                if not line.endswith(b"\n") and isinstance(error, _NotJsonError | UnicodeDecodeError):
                    return  # law 3
                raise HistoryError(f"{path}, line {number}: {error}") from None
            last = event.time
            yield Read(event, str(path), number)
