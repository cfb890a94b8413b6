"""Liveness under damaged bytes and under lies, in virtual time: beside them, and once they have ended."""

from __future__ import annotations

import os
import random

import pytest

from attack.proxy import DAMAGES
from attack.virtual import Damaged, Lying

SEED = int(os.environ.get("ATTACK_SEED", "0"))
LASTS = 20.0
BOUND = 60.0
"""Virtual seconds, twice metadata_max_age: by then a session was named again, and a leader that denies is doubted."""
BYTES = sorted({*DAMAGES} - {"late"})


def history(seed: int) -> Damaged:
    dice = random.Random(seed)
    damages = tuple(sorted(dice.sample(BYTES, dice.choice((1, 2, 3)))))
    return Damaged(damages, seed, share=dice.choice((0.05, 0.1, 0.3)), until=LASTS, member=dice.random() < 0.5)


@pytest.mark.parametrize("seed", range(SEED, SEED + 12))
def test_all_is_read_within_a_bound_once_the_damage_has_ended(seed: int) -> None:
    world = history(seed)
    world.begin()
    world.read(LASTS + 1.0)
    world.begin_again()
    assert world.read(BOUND, world.all_read), (seed, world.now, world.errors)
    assert world.wrong == []


@pytest.mark.parametrize("damage", ["cut", "twice"])
@pytest.mark.parametrize("member", [False, True])
def test_records_flow_beside_a_damage_that_is_seen(damage: str, *, member: bool) -> None:
    """A tenth of all responses is cut off, or comes twice: what has arrived is exact, and goes on."""
    world = Damaged((damage,), SEED, share=0.1, until=float("inf"), member=member)
    world.begin()
    assert world.read(BOUND, world.all_read), (world.now, world.errors)


@pytest.mark.parametrize("seed", range(SEED, SEED + 8))
def test_all_is_read_within_a_bound_once_a_broker_has_ceased_to_lie(seed: int) -> None:
    """Values that their types may have and that are not so: in cluster metadata, coordinators, memberships, committed
    offsets, ends of logs, epochs, fetch sessions, throttle times, error codes."""
    dice = random.Random(seed)
    world = Lying(seed, share=dice.choice((0.02, 0.1, 0.3)), until=LASTS, member=dice.random() < 0.5)
    world.begin()
    world.read(LASTS + 1.0)
    assert sum(world.lied.values()) > 0
    world.begin_again()
    assert world.read(BOUND, world.all_read), (seed, world.now, world.errors, world.lied)
    assert world.wrong == []
    assert sum(world.broker.requested.values()) < 8000, "patience"
