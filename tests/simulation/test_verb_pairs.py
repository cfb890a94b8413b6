"""The table of pairs of verbs in a state of ownership is whole, and simulated users take all of it."""

from __future__ import annotations

import re

from instride._core.ownership import Ownership
from instride.testing._simulation.campaign import planned
from instride.testing._simulation.verb_pairs import FIRST, SECOND, STATES, VerbPairs, counted_verbs
from instride.testing._simulation.verbs import SimulatedConsumer
from instride.testing.simulation import check, run

MEANS = frozenset({"verbs", "listeners", "ends", "pairs", "interrupts"})
VERBS = {
    "pause": SimulatedConsumer.pause,
    "resume": SimulatedConsumer.resume,
    "seek": SimulatedConsumer.seek,
    "commit": SimulatedConsumer.commit_async,
    "delay": SimulatedConsumer.delay_revoke,
    "subscribe": SimulatedConsumer.subscribe,
    "unsubscribe": SimulatedConsumer.unsubscribe,
    "close": SimulatedConsumer.close,
}


def test_the_table_is_whole() -> None:
    """Each verb but a poll, after each but a close, in each state of a partition that a verb finds."""
    assert set(SECOND) == set(VERBS)
    assert set(FIRST) == set(VERBS) - {"close"}
    assert set(STATES) == {each.name for each in Ownership} - {"REVOKED"}
    assert len(VerbPairs().rows()) == len(FIRST) * len(SECOND) * len(STATES)


def test_users_who_have_pairs_in_mind_take_many_of_all_kinds_in_a_few_histories() -> None:
    """A run of thousands takes all of them, or has failed (`instride.testing.simulate`)."""
    with counted_verbs() as pairs:
        for seed in range(3000, 3008):
            assert check(run(planned(seed, MEANS))) == []
    taken = [re.split(", |: ", pair) for pair, times in pairs.rows().items() if times]
    first, second, states = (set(each) for each in zip(*taken, strict=True))
    assert first == set(FIRST)
    assert second == set(SECOND)
    assert states == set(STATES)
    assert len(taken) > 100
