"""Scripts by chance: what three members might do in a group, as the model responds.

Laws
1. The same seed gives the same script. Which step comes next depends on what the model responded so far.
2. No step leaves anything to the broker's choice: the leader does not leave two others behind, who of them would lead
   is not determined; and no time-out ends.
"""

from __future__ import annotations

import random
from typing import Final

from raw_places import ModelPlace
from raw_script import Stage

__all__ = ["random_script"]

_NAMES: Final = ("A", "B", "C")
_STEPS: Final = 60
_OWNED: Final = ("", "owned=0", "owned=1", "owned=0,1")


def random_script(seed: int) -> str:
    """With its outcomes."""
    writer = _Writer(random.Random(seed))
    for _ in range(_STEPS):
        writer.step(writer.random.choice(_NAMES))
    return "\n".join(writer.lines) + "\n"


class _Writer:
    def __init__(self, rng: random.Random) -> None:
        self.random = rng
        self._place = ModelPlace()
        self._stage = Stage(self._place)
        self._owned = dict.fromkeys(_NAMES, "")
        self.lines = [self._stage.line(f"{name} is session=600 rebalance=600") for name in _NAMES]

    def step(self, name: str) -> None:
        member = self._stage.members[name]
        if "join" in member.pending:
            command = self._either("joined soon", self._other_connection())
        elif "sync" in member.pending:
            command = self._either("synced soon", self._other_connection())
        elif not member.id:
            command = f"join soon {self._owned[name]}"
        else:
            command = self._free(name)
        self.lines.append(self._stage.line(f"{name} {command}".rstrip()))

    def _either(self, one: str, other: str) -> str:
        return one if self.random.random() < 0.4 else other

    def _free(self, name: str) -> str:
        """Nothing waits: it may do anything."""
        member, group, chance = self._stage.members[name], self._place.brokers.group, self.random.random()
        if member.id not in group.members and chance < 0.8:
            return "forgets" if chance < 0.2 else f"join soon {self._owned[name]}"
        if chance < (0.5 if group.state == "PreparingRebalance" else 0.15):
            if self.random.random() < 0.3:
                self._owned[name] = self.random.choice(_OWNED)
            return f"join soon {self._owned[name]}"
        if chance < (0.6 if group.state == "CompletingRebalance" else 0.25):
            return f"sync soon {self._assignments()}"
        if chance > 0.95 and (len(group.members) <= 2 or not self._leads(name)):
            return "leave"
        return self._other_connection()

    def _leads(self, name: str) -> bool:
        return self._stage.members[name].id == self._place.brokers.group._leader

    def _assignments(self) -> str:
        there = [name for name in _NAMES if self._stage.members[name].id and self.random.random() < 0.8]
        return " ".join(f"{name}={number}" for number, name in enumerate(there))

    def _other_connection(self) -> str:
        chance = self.random.random()
        if chance < 0.2:
            return "offsets 0 1"
        generation = self._place.brokers.group.generation + self.random.choice((0, 0, 1, -1))
        said = f" gen={max(-1, generation)}" if self.random.random() < 0.4 else ""
        if chance < 0.6:
            return f"heartbeat{said}"
        return f"commit {self.random.randrange(2)}={self.random.randrange(100)}{said}"
