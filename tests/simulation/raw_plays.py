"""Every script, and plays of it at both places.

    python tests/simulation/raw_plays.py [NAME ...]

plays the scripts at a real broker and writes down what it responded: for new scripts, and for a new Kafka. What that
changes is the finding.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Final

from raw_places import PARTITIONS, KafkaPlace, ModelPlace, Place
from raw_script import play

from instride.testing import LocalKafka

__all__ = [
    "DELAYED",
    "DELAYING",
    "INITIAL_DELAY",
    "LATE",
    "NAMES",
    "KafkaPlays",
    "play_at_the_model",
    "play_in_time",
    "script",
]

_FOLDER: Final = Path(__file__).with_name("scripts")
NAMES: Final = tuple(sorted(path.stem for path in _FOLDER.glob("*.txt")))
DELAYED: Final = tuple(name for name in NAMES if name.startswith("delay-"))
"""Those that play with an initial rebalance delay; all others without."""
INITIAL_DELAY: Final = 2.0
DELAYING: Final = {"group.initial.rebalance.delay.ms": round(1000 * INITIAL_DELAY)}
_TRIES: Final = 6
LATE: Final = 0.25
"""Seconds. A script responds the same if any of its lines is twice as late (a test tries each)."""


def _path(name: str) -> Path:
    return _FOLDER / f"{name}.txt"


def script(name: str) -> str:
    return _path(name).read_text(encoding="utf-8")


def play_at_the_model(name: str, times: list[float] | None = None) -> str:
    return play(script(name), ModelPlace(initial_delay=INITIAL_DELAY if name in DELAYED else 0.0), times)


def play_in_time(name: str, place: Callable[[], Place], tries: int = _TRIES) -> str:
    """What the place responds to a script: another response than the script's counts only if the play was in time.

    A busy machine makes the members or the broker late, and a member that is late is another story. So a play that
    differs and took longer than it takes at the model is played again.
    """
    model: list[float] = []
    play_at_the_model(name, model)
    for left in reversed(range(tries)):
        times: list[float] = []
        try:
            told = play(script(name), place(), times)
        except AssertionError:
            if not left or not _was_late(times, model):
                raise
        else:
            if told == script(name) or not left or not _was_late(times, model):
                return told
    raise AssertionError("unreachable")


def _was_late(times: list[float], model: list[float]) -> bool:
    took, takes = ([end - start for start, end in pairwise(each)] for each in (times, model))
    return sum(max(0.0, real - right) for real, right in zip(took, takes, strict=False)) > LATE


class KafkaPlays:
    """Plays at one broker, all at once, since most of their time is waiting. A context manager; `result` gives one."""

    def __init__(self, kafka: LocalKafka, names: Iterable[str]) -> None:
        self._kafka = kafka
        self._lock = Lock()
        names = tuple(names)
        self._pool = ThreadPoolExecutor(len(names))
        self._topics = {name: f"{name}-{uuid.uuid4().hex[:8]}" for name in names}
        kafka.create_topics(dict.fromkeys(self._topics.values(), PARTITIONS))
        self._plays: dict[str, Future[str]] = {name: self._pool.submit(self._play, name) for name in names}

    def result(self, name: str) -> str:
        return self._plays[name].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _play(self, name: str) -> str:
        with ExitStack() as places:
            return play_in_time(name, lambda: places.enter_context(closing(self._place(name))))

    def _place(self, name: str) -> KafkaPlace:
        topic = self._topics.pop(name, "") or self._another_topic(name)
        return KafkaPlace(self._kafka.bootstrap_servers, topic, f"group-{topic}")

    def _another_topic(self, name: str) -> str:
        topic = f"{name}-{uuid.uuid4().hex[:8]}"
        with self._lock:
            self._kafka.create_topic(topic, PARTITIONS)
        return topic


def _write_down(kafka: LocalKafka, names: Iterable[str]) -> None:
    with kafka:
        plays = KafkaPlays(kafka, names)
        for name in names:
            _path(name).write_text(plays.result(name), encoding="utf-8")
        plays.close()


def _main(names: Iterable[str]) -> None:
    if plain := [name for name in names if name not in DELAYED]:
        _write_down(LocalKafka(), plain)
    if delayed := [name for name in names if name in DELAYED]:
        _write_down(LocalKafka(properties=DELAYING), delayed)


if __name__ == "__main__":
    _main(sys.argv[1:] or NAMES)
