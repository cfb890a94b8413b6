"""A wrong history becomes a short one that is wrong in the same way; a plan's text is that plan again."""

from __future__ import annotations

import pytest

from instride._core.network.commits import Commits
from instride.testing._simulation.corpus import decode, encode
from instride.testing._simulation.plan import Fault, MemberPlan
from instride.testing._simulation.shrinking import shrink
from instride.testing.check import Violation
from instride.testing.simulation import Plan, check, plan_for, run


@pytest.mark.drawn(1, "wrong histories")
def test_what_a_bug_makes_of_a_large_plan_it_makes_of_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Commits, "outstanding", lambda commits, partition: False)
    plan = next(plan for plan in map(plan_for, range(100)) if len(plan.members) > 2 and check(run(plan)))
    found = check(run(plan))[0]
    short = shrink(plan)
    assert found.number in {each.number for each in check(run(short))}
    assert len(short.members) <= 2
    assert len(short.produced) < len(plan.produced) / 2
    assert len(short.faults) <= len(plan.faults)
    assert len(run(short)) < len(run(plan)) / 2
    assert shrink(plan) == short, "the same plan shrinks to the same one"


def test_it_ends_when_it_may_try_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Commits, "outstanding", lambda commits, partition: False)
    plan = next(plan for plan in map(plan_for, range(100)) if check(run(plan)))
    tried: list[Plan] = []

    def judge(each: Plan) -> list[Violation]:
        tried.append(each)
        return check(run(each))

    shrink(plan, most=5, judge=judge)
    assert len(tried) <= 5 + 2


def test_what_is_right_cannot_be_shrunk() -> None:
    with pytest.raises(ValueError, match="nothing is wrong"):
        shrink(Plan(members=(MemberPlan(name="A"),)))


@pytest.mark.slow
def test_faults_of_the_members_that_stay_are_still_theirs() -> None:
    """A law that speaks of one member: what befalls it is kept, though others before it are dropped."""
    plan = Plan(
        members=tuple(MemberPlan(name=name, joins_at=0.2 * place) for place, name in enumerate("ABC")),
        produced=tuple((0.1 * at, at % 4, 1) for at in range(20)),
        faults=(
            Fault(time=1.0, kind="pause", member=0, seconds=0.5),
            Fault(time=2.0, kind="crash", member=2),
            Fault(time=2.5, kind="move leader", member=3),
        ),
    )

    def judge(each: Plan) -> list[Violation]:
        crashed = [event for event in run(each) if event.what == "crashed" and event.who == "C"]
        return [Violation(number="X1", law="C lives", time=event.time, text="", lines=()) for event in crashed]

    short = shrink(plan, judge=judge)
    assert [each.name for each in short.members] == ["C"]
    assert [(each.kind, each.member) for each in short.faults] == [("crash", 0)]
    assert short.produced == ()


@pytest.mark.parametrize("seed", [3, 4, 99, 100, 134, 199])
def test_a_plans_text_is_that_plan_again(seed: int) -> None:
    assert decode(encode(plan_for(seed))) == plan_for(seed)


def test_a_text_that_is_no_plan_is_refused() -> None:
    for text in ('{"members": [{"name": "A"}], "colour": "blue"}', '{"members": [{"size": 3}]}', "{}"):
        with pytest.raises((TypeError, KeyError)):
            decode(text)
