"""`AsyncConsumer` in simulated groups, cancelled at any turn of its event loop: judged by the one checker."""

from __future__ import annotations

from collections import Counter
from contextlib import closing

import pytest
from simulated_async import Group, play

from instride.testing import SimulatedCluster
from instride.testing.simulation import check, plan_for, transcript


@pytest.mark.rule("13")
@pytest.mark.parametrize("cancels", [0.02, 0.2])
def test_histories_are_good_whatever_is_cancelled(cancels: float) -> None:
    """No record is lost, none comes twice without a loss, and nothing of a consumer that was closed is in use."""
    cancelled: Counter[str] = Counter()
    for seed in range(12):
        group = Group(cancels=cancels, slow_listeners=seed % 2 == 1)
        cluster = SimulatedCluster(plan_for(seed), loop=group.loop)
        with closing(group), play(cluster):
            history = cluster.run()
            found = check(history)
            assert not found, transcript(history, found)
        assert group.left == [], seed
        cancelled += group.cancelled
    assert cancelled["poll"] > 100
    assert cancelled["close"] > 10 * cancels
