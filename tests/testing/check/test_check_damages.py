"""The checker is attacked: what is right is damaged in each way that an invariant forbids; that one speaks, and no
other but those that the same damage breaks. Right are simulated histories, and what was recorded on a real Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path

import damages_progress
import damages_safety
import pytest
from damaging import DAMAGES, Damage

from instride.testing.check import INVARIANTS, Event, check, read_histories
from instride.testing.simulation import plan_for, run

_ALL = (damages_progress, damages_safety)
"""That they are imported is what fills DAMAGES."""
RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.jsonl"))
SEEDS = range(60)
ENOUGH = 3
"""Histories in which a damage must be found."""
TRIES = 40
"""Places in one history: not at every one it is a damage."""


@cache
def recorded(path: Path) -> tuple[Event, ...]:
    return tuple(each.event for each in read_histories([path]))


@cache
def simulated(seed: int) -> tuple[Event, ...]:
    return tuple(run(plan_for(seed)))


def histories() -> Iterator[tuple[str, list[Event]]]:
    for path in RECORDED:
        yield path.name, list(recorded(path))
    for seed in SEEDS:
        yield f"seed {seed}", list(simulated(seed))


def is_found(damage: Damage, name: str, history: list[Event]) -> bool:
    """Whether it can be done to this history so that its invariant speaks; no other one may, at any place."""
    for damaged in islice(damage.candidates(history), TRIES):
        numbers = {each.number for each in check(damaged)}
        assert numbers <= {damage.number, *damage.also}, f"{name}: {sorted(numbers)}"
        if damage.number in numbers:
            return True
    return False


@pytest.mark.drawn(12)
@pytest.mark.parametrize("damage", DAMAGES, ids=[f"{each.number} {each.name}" for each in DAMAGES])
def test_a_damage_is_found_by_its_number(damage: Damage) -> None:
    seen = 0
    for name, history in histories():
        seen += is_found(damage, name, history)
        if seen == ENOUGH:
            return
    pytest.fail(f"in {seen} histories only")


def test_every_invariant_is_attacked() -> None:
    assert {each.number for each in DAMAGES} == set(INVARIANTS)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_what_was_recorded_is_right(path: Path) -> None:
    assert [str(each) for each in check(recorded(path))] == []
