"""Liveness under damaged bytes, in virtual time: beside the damage, and once it has ended."""

from __future__ import annotations

import os
import random

import pytest

from attack.proxy import DAMAGES
from attack.virtual import Damaged

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
