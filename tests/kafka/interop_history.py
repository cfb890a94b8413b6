"""Members in turns whose history is written down as they are seen from outside: records, partitions, losses.

Laws
1. It is written for `instride.testing.check`, which judges it; docs/histories.md says what a line means.
2. What happens within one turn of a member is told in the order assigned, returned, let go of.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from peer_help import Peer

from instride import TopicPartition
from instride.testing.check import BROKER, Event, Judge, write

__all__ = ["History", "Watched"]


class History:
    """kind: "calm" or "faults". starts: from which offset on the logs are looked at."""

    def __init__(self, kind: str, starts: Mapping[TopicPartition, int]) -> None:
        self.events: list[Event] = []
        self.say(BROKER, "history", 1, "a mixed group", kind, "clients", "earliest", *[None] * 5)
        for partition, offset in starts.items():
            self.say(BROKER, "log starts", partition, offset)

    def say(self, who: str, what: str, *detail: Any) -> None:
        self.events.append(Event(time.monotonic(), who, what, detail))

    def violations(self) -> list[str]:
        """What the checker finds; all that was produced is to be done by now."""
        judge = Judge()
        for event in [*self.events, Event(time.monotonic(), BROKER, "end", (True,))]:
            judge.take(event)
        return [f"{found.number}, {found.law}: {found.text}" for found in judge.end()]

    def save(self, path: Path) -> None:
        """For `python -m instride.testing.check`."""
        with path.open("w") as file:
            write([*self.events, Event(time.monotonic(), BROKER, "end", (True,))], file)


class Watched:
    """A peer, as `drive` takes it, whose turns are written down."""

    def __init__(self, peer: Peer, history: History) -> None:
        self.peer = peer
        self._history = history
        self._epochs: dict[TopicPartition, int] = {}
        self._epoch = 0
        self._lost_told = len(peer.lost)
        self._say("started", False, "delivered", False)
        self._assigned(peer.owned)

    @property
    def seen(self) -> list[tuple[int, int]]:
        return self.peer.seen

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self.peer.owned

    @property
    def in_turn(self) -> bool:
        return self.peer.in_turn

    def turn(self) -> None:
        self._polled(self.peer.turn())

    def take_turn(self) -> None:
        records = self.peer.take_turn()
        if records is not None:
            self._polled(records)

    def _polled(self, records: list[tuple[int, int]]) -> None:
        lost = set(self.peer.lost[self._lost_told :]) & set(self._epochs)
        self._lost_told = len(self.peer.lost)
        returned = {self.peer.partition(number) for number, _ in records}
        self._assigned((self.owned | returned) - set(self._epochs))
        self._say("poll", tuple(self._stretches(records)), (), ())
        gone = set(self._epochs) - self.owned
        self._end("revoked", gone - lost)
        if lost:
            self._end("lost", lost)
            self._say("poll", (), (), tuple(sorted(lost)))

    def close(self) -> None:
        self.peer.close()
        self._say("closed", True)

    def kill(self) -> None:
        self.peer.kill()
        self._say("crashed")

    def _assigned(self, partitions: Iterable[TopicPartition]) -> None:
        new = sorted(partitions)
        if new:
            self._epoch += 1
            self._epochs |= dict.fromkeys(new, self._epoch)
            self._say("assigned", None, tuple((partition, self._epoch) for partition in new))

    def _end(self, what: str, partitions: Iterable[TopicPartition]) -> None:
        ended = tuple((partition, self._epochs.pop(partition)) for partition in sorted(partitions))
        if ended:
            self._say(what, ended)

    def _stretches(self, records: Iterable[tuple[int, int]]) -> Iterator[tuple[Any, ...]]:
        for (number, _), stretch in groupby(enumerate(records), key=lambda each: (each[1][0], each[1][1] - each[0])):
            offsets = [offset for _, (_, offset) in stretch]
            partition = self.peer.partition(number)
            yield partition, self._epochs[partition], 0, offsets[0], offsets[-1], -1

    def _say(self, what: str, *detail: Any) -> None:
        self._history.say(self.peer.name, what, *detail)

    def __repr__(self) -> str:
        return repr(self.peer)
