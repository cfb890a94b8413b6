"""Rule 14: verbs in any order, with events of the network undrained between them, skip and repeat nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from verb_pairs import Pair

pytestmark = pytest.mark.rule("14")

VERBS: Final[dict[str, Callable[[Pair], None]]] = {
    "poll": Pair.poll,
    "pause": Pair.pause,
    "resume": Pair.resume,
    "seek": Pair.seek,
    "seek back": Pair.seek_back,
    "to beginning": Pair.seek_to_beginning,
    "to end": Pair.seek_to_end,
    "commit": Pair.commit,
    "position": Pair.position,
    "rebalance": Pair.rebalance,
    "delay": Pair.delay,
    "lie": Pair.lie,
    "recreate": Pair.recreate,
}


def assigned_undrained(pair: Pair) -> None:
    pair.poll()
    pair.all_down()
    while "OffsetFetch" not in pair.brokers.waits():
        pair.broker()
    pair.all_up()


def positioned_undrained(pair: Pair) -> None:
    assigned_undrained(pair)
    pair.poll()
    while "Fetch" not in pair.brokers.waits():
        pair.broker()


def fetched_undrained(pair: Pair) -> None:
    positioned_undrained(pair)
    pair.broker()
    pair.broker()


def reading(pair: Pair) -> None:
    """Records are buffered, more wait in the queue, more are in flight."""
    fetched_undrained(pair)
    pair.all_up()
    pair.poll()
    pair.work_of_the_network()


MOMENTS: Final = [assigned_undrained, positioned_undrained, fetched_undrained, reading]


def joined(policy: str = "earliest") -> Pair:
    pair = Pair(auto_offset_reset=policy)
    pair.all_down()
    return pair


@pytest.mark.drawn(16)
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: str(moment.__name__))
@pytest.mark.parametrize("first", VERBS)
def test_every_pair_of_verbs_in_every_moment(moment: Callable[[Pair], None], first: str) -> None:
    for second in VERBS:
        for meanwhile in (None, Pair.work_of_the_network):
            pair = joined()
            moment(pair)
            VERBS[first](pair)
            if meanwhile is not None:
                meanwhile(pair)
            VERBS[second](pair)
            pair.finish()


@pytest.mark.drawn(4)
@pytest.mark.parametrize("first", [each for each in VERBS if each != "poll"])
def test_every_pair_of_verbs_in_a_listener(first: str) -> None:
    """In a listener nothing is drained but what verbs drain; the network goes on while it works."""
    for second, works in itertools.product((each for each in VERBS if each != "poll"), (False, True)):
        pair = joined()
        assigned_undrained(pair)

        def work(pair: Pair = pair, second: str = second, works: bool = works) -> None:
            VERBS[first](pair)
            if works:
                pair.work_of_the_network()
                pair.all_up()
            VERBS[second](pair)

        pair.listener.work = work
        pair.poll()
        pair.finish()


@pytest.mark.rule("8")
@pytest.mark.parametrize("hears", [False, True], ids=["before it is given back", "while it is to be revoked"])
def test_a_topic_made_again_during_a_revocation_is_not_read_on(hears: bool) -> None:
    pair = joined()
    reading(pair)
    pair.rebalance()
    pair.work_of_the_network()
    pair.all_up()
    pair.poll()
    assert pair.machine.to_be_revoked()
    pair.delay()
    pair.recreate()
    if hears:
        pair.all_up()
        pair.poll()
        pair.delay()
    pair.rebalance()
    pair.finish()


class AnyOrder(RuleBasedStateMachine):
    """Each of the two queues, the broker, the clock and the user move in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = joined()

    @initialize(policy=st.sampled_from(["earliest", "latest"]))
    def begins(self, policy: str) -> None:
        self.pair = joined(policy)

    @rule(verb=st.sampled_from(sorted(VERBS)))
    def uses(self, verb: str) -> None:
        VERBS[verb](self.pair)

    @rule(limit=st.integers(1, 9))
    def polls(self, limit: int) -> None:
        self.pair.poll(limit)

    @rule(first=st.sampled_from(sorted(VERBS)), second=st.sampled_from(sorted(VERBS)))
    @precondition(lambda self: self.pair.listener.work is None)
    def will_work_in_a_listener(self, first: str, second: str) -> None:
        if "poll" in (first, second):
            return

        def work() -> None:
            VERBS[first](self.pair)
            self.pair.work_of_the_network()
            VERBS[second](self.pair)

        self.pair.listener.work = work

    @rule()
    def network_takes_one(self) -> None:
        self.pair.let_down()

    @rule()
    def network_takes_all(self) -> None:
        self.pair.all_down()

    @rule()
    def one_arrives(self) -> None:
        self.pair.let_up()

    @rule()
    def all_arrives(self) -> None:
        self.pair.all_up()

    @rule()
    def the_broker_responds(self) -> None:
        self.pair.broker()

    @rule()
    def time_passes(self) -> None:
        self.pair.time()

    @rule()
    def more_is_written(self) -> None:
        self.pair.produce()

    def teardown(self) -> None:
        self.pair.finish()


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(
    max_examples=60, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
