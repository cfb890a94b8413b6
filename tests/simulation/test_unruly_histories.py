"""Unruly users: each means is played, and really befalls the consumer. `--unruly` plays more of them."""

from __future__ import annotations

from collections import Counter
from itertools import chain, repeat

import pytest

from instride.records import TopicPartition
from instride.testing import SimulatedCluster
from instride.testing._simulation.interrupts import Interrupter, in_steps
from instride.testing._simulation.planning_unruly import MEANS, with_unruly_users
from instride.testing.check import Event, Parameters
from instride.testing.simulation import History, Member, MemberPlan, Plan, UserLoop, check, plan_for, run

TRACES = {
    "verbs": {"pauses", "resumes", "seek", "own offsets"},
    "listeners": {"on assigned"},
    "ends": {"unsubscribes"},
    "pairs": {"delay", "lost"},
    "interrupts": {"interrupted"},
    "lines": {"interrupted"},
    "modes": {"listener raises", "on revoked"},
    "looks": {"looks"},
    "signals": {"signal", "signal over", "handles"},
    "rewinds": {"allows rewind"},
    "hand": {"assigned by hand", "commit by hand", "revoked", "gave up", "unsubscribes"},
}
"""What a history tells where the means was played."""


EVERY_VERB = {"poll", "commit", "pause", "resume", "seek", "delay", "subscribe", "unsubscribe", "close"}


def trace(event: Event) -> str:
    """Its kind; a member of a group has a generation."""
    by_hand = event.what in ("assigned", "commit") and event.detail[0] in (None, -1)
    return f"{event.what} by hand" if by_hand else event.what


def played(means: str, traces: set[str]) -> Counter[str]:
    """Of six seeds, and of further ones until each trace is left: an end, say, comes in one of ten."""
    seen: Counter[str] = Counter()
    for seed in range(60):
        plan = with_unruly_users(seed, plan_for(seed), frozenset({means}))
        unruly = {each.name for each in plan.members if each.loop == "unruly"}
        history: History = run(plan)
        found = check(history)
        assert not found, f"--unruly {means} --seed {seed}: {found[0]}"
        seen.update(trace(event) for event in history if event.who in unruly)
        if seed >= 5 and seen.keys() >= traces:
            break
    return seen


def test_all_means_together_have_a_plan() -> None:
    """Seed 1 is by hand, and nobody of it brings about pairs."""
    for seed in range(100):
        assert with_unruly_users(seed, plan_for(seed)).members


@pytest.mark.drawn(3)
@pytest.mark.parametrize("means", MEANS)
def test_each_means_is_played_and_leaves_its_trace(means: str) -> None:
    """A means that does nothing finds nothing, and nobody would know."""
    seen = played(means, TRACES[means])
    assert all(seen[each] for each in TRACES[means]), seen


@pytest.mark.slow
def test_every_verb_is_interrupted_at_its_lines() -> None:
    """In between polls and in listeners; each is then told as what it was, and the judge finds nothing."""
    means = frozenset({"verbs", "listeners", "ends", "lines"})
    seen: Counter[str] = Counter()
    seed = 4000
    while not seen.keys() >= EVERY_VERB:
        history: History = run(with_unruly_users(seed, plan_for(seed), means))
        found = check(history)
        assert not found, f"--unruly {','.join(sorted(means))} --seed {seed}: {found[0]}"
        seen.update(event.detail[0] for event in history if event.what == "interrupted")
        seed += 1
        assert seed < 4060, f"never interrupted: {EVERY_VERB - seen.keys()}"


OF_THE_COORDINATOR = {"commit", "group", "evicted", "blind"}


def as_members_see_it(history: History) -> list[Event]:
    """Without what only the coordinator knows: so it is what recorders would have written."""
    first, *others = history
    clients = Parameters.of(first.detail)._replace(view="clients", kind="faults", gap=None, rebalance=None, delay=None)
    return [first._replace(detail=tuple(clients)), *(each for each in others if each.what not in OF_THE_COORDINATOR)]


@pytest.mark.drawn(3)
@pytest.mark.parametrize("seed", range(8))
def test_what_only_the_members_see_of_right_histories_is_judged_as_right(seed: int) -> None:
    """A response comes later than its commit is taken: the checker took a user's next leave to go back for used up."""
    means = frozenset({"verbs", "rewinds"})
    history = run(with_unruly_users(seed, plan_for(seed), means))
    assert check(history) == []
    assert check(as_members_see_it(history)) == []


def commits_back_twice(member: Member) -> UserLoop:
    """A signal comes while a commit begins: its handler goes back, too, and that commit is accepted first."""
    consumer, partition = member.consumer, TopicPartition("t", 0)

    def handle() -> None:
        consumer.commit_async({partition: 3}, allow_rewind=True)
        member.process.work(0.2)

    consumer.subscribe(member.topics)
    while consumer.owned().get(partition) != 5:
        for record in (yield from consumer.poll(timeout=0.3)):
            member.did("done", record.topic_partition, record.offset, record.epoch)
    yield from consumer.commit()
    signal = chain([Interrupter(0, handle)], repeat(Interrupter(1_000_000)))
    member.did("own offsets", ((partition, 2), (partition, 3)))
    yield from in_steps(consumer.commit({partition: 2}, allow_rewind=True), lambda: next(signal))
    yield from consumer.commit()
    yield from consumer.close()


def test_commits_that_may_go_back_are_told_in_the_order_of_their_hand_over() -> None:
    """The outer one was told first: the checker took its leave for used up by the handler's."""
    plan = Plan(members=(MemberPlan(name="A"),), produced=((0.0, 0, 5),), latency=(0.01, 0.01))
    history = SimulatedCluster(plan, loop=commits_back_twice).run()
    assert check(history) == []
    assert [event.detail[0][0][1] for event in history if event.what == "allows rewind"] == [3, 2]


def test_a_member_that_comes_for_pairs_of_verbs_has_a_name_of_its_own() -> None:
    """A visitor of static members is called V0, and so was another one, who came for pairs like a member named V."""
    names = [each.name for each in with_unruly_users(902878, plan_for(902878), frozenset({"pairs"})).members]
    assert len(set(names)) == len(names)
