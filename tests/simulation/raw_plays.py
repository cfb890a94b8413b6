"""Every script, and plays of it at both places.

    python tests/simulation/raw_plays.py [NAME ...]

plays the scripts at a real broker and writes down what it responded: for new scripts, and for a new Kafka. What that
changes is the finding.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Final

from raw_places import PARTITIONS, KafkaPlace, ModelPlace, TooLateError
from raw_script import play

from instride.testing import LocalKafka

__all__ = ["DELAYED", "DELAYING", "INITIAL_DELAY", "NAMES", "KafkaPlays", "play_at_the_model", "script"]

_FOLDER: Final = Path(__file__).with_name("scripts")
NAMES: Final = tuple(sorted(path.stem for path in _FOLDER.glob("*.txt")))
DELAYED: Final = tuple(name for name in NAMES if name.startswith("delay-"))
"""Those that play with an initial rebalance delay; all others without."""
INITIAL_DELAY: Final = 2.0
DELAYING: Final = {"group.initial.rebalance.delay.ms": round(1000 * INITIAL_DELAY)}
_TRIES: Final = 3


def _path(name: str) -> Path:
    return _FOLDER / f"{name}.txt"


def script(name: str) -> str:
    return _path(name).read_text(encoding="utf-8")


def play_at_the_model(name: str) -> str:
    return play(script(name), ModelPlace(initial_delay=INITIAL_DELAY if name in DELAYED else 0.0))


class KafkaPlays:
    """Plays at one broker, all at once, since most of their time is waiting. A context manager; `result` gives one."""

    def __init__(self, kafka: LocalKafka, names: Iterable[str]) -> None:
        self._kafka = kafka
        self._lock = Lock()
        names = tuple(names)
        self._pool = ThreadPoolExecutor(len(names))
        topics = {name: f"{name}-{uuid.uuid4().hex[:8]}" for name in names}
        kafka.create_topics(dict.fromkeys(topics.values(), PARTITIONS))
        self._plays: dict[str, Future[str]] = {
            name: self._pool.submit(self._play, name, topic) for name, topic in topics.items()
        }

    def result(self, name: str) -> str:
        return self._plays[name].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _play(self, name: str, topic: str) -> str:
        for left in reversed(range(_TRIES)):
            place = KafkaPlace(self._kafka.bootstrap_servers, topic, f"group-{topic}")
            try:
                return play(script(name), place)
            except TooLateError:
                if not left:
                    raise
            finally:
                place.close()
            topic = f"{name}-{uuid.uuid4().hex[:8]}"
            with self._lock:
                self._kafka.create_topic(topic, PARTITIONS)
        raise AssertionError("unreachable")


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
