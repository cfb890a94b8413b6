"""Brokers that refuse for a while: each means is played, and really befalls the group. `--harsh` plays more of them."""

from __future__ import annotations

from collections import Counter

import pytest

from instride.testing._simulation.corpus import decode, encode
from instride.testing._simulation.planning_harsh import with_harsh_brokers
from instride.testing.simulation import check, plan_for, run


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("means", "count"), [("leaves", 25), ("commits", 6), ("errors", 25), ("many", 1), ("batches", 40)]
)
def test_every_harsh_history_keeps_every_promise(means: str, count: int) -> None:
    for seed in range(count):
        found = check(run(with_harsh_brokers(seed, plan_for(seed), frozenset({means}))))
        assert not found, f"--harsh {means} --seed {seed}: {found[0]}"


@pytest.mark.slow
def test_what_is_planned_befalls_the_group() -> None:
    seen: Counter[str] = Counter()
    for seed in range(12):
        seen.update(
            event.what for event in run(with_harsh_brokers(seed, plan_for(seed), frozenset({"errors", "leaves"})))
        )
    refusals = ("refuse leaves", "refuse group", "refuse joins", "refuse partition", "refuse topic")
    assert all(seen[each] for each in refusals), seen


def test_a_harsh_plan_is_a_value_that_can_be_kept() -> None:
    plan = with_harsh_brokers(7, plan_for(7))
    assert decode(encode(plan)) == plan == with_harsh_brokers(7, plan_for(7))
