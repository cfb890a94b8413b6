"""What a member does whose log was truncated; and each bug in that is caught by `--groups truncations`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from instride._core.network.assigned_partitions import AssignedPartition, Phase
from instride._core.network.positions import Positions
from instride.errors import LogTruncationError, NoOffsetForPartitionError
from instride.records import TopicPartition
from instride.testing import SimulatedCluster
from instride.testing._simulation.planning_groups import with_groups
from instride.testing.simulation import Event, Member, MemberPlan, Plan, UserLoop, check, plan_for, run

MOST = 60


def _no_position_is_validated(patch: pytest.MonkeyPatch) -> None:
    compare = Positions._compare_with_metadata

    def trusting(positions: Positions, assigned: AssignedPartition) -> None:
        compare(positions, assigned)
        leader = positions._cluster.leader(assigned.partition)
        if assigned.phase is Phase.VALIDATE and leader is not None:
            positions._valid(assigned, leader[1])

    patch.setattr(Positions, "_compare_with_metadata", trusting)


def _what_was_read_is_read_on_from_though_it_is_lost(patch: pytest.MonkeyPatch) -> None:
    def valid(positions: Positions, assigned: AssignedPartition, _cut: object) -> None:
        leader = positions._cluster.leader(assigned.partition)
        assert leader is not None
        positions._valid(assigned, leader[1])

    patch.setattr(Positions, "_truncated", valid)


def _a_reset_does_not_look_where_the_log_was_truncated(patch: pytest.MonkeyPatch) -> None:
    truncated = Positions._truncated

    def by_policy(positions: Positions, assigned: AssignedPartition, _cut: object) -> None:
        truncated(positions, assigned, None)

    patch.setattr(Positions, "_truncated", by_policy)


BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    name.removeprefix("_").replace("_", " "): seed
    for name, seed in list(globals().items())
    if getattr(seed, "__annotations__", {}).get("patch") == "pytest.MonkeyPatch"
}


@pytest.mark.parametrize("bug", BUGS)
def test_it_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)
    for seed in range(MOST):
        if found := check(run(with_groups(seed, plan_for(seed), frozenset({"truncations"})))):
            print(f"{bug}: seed {seed}: {found[0]}")  # shown by pytest -s
            return
    pytest.fail(f"{MOST} histories did not show it")


PLAN = Plan(
    members=(MemberPlan(name="A"),),
    nodes=2,
    partitions=1,
    produced=((0.0, 0, 10), (3.0, 0, 4)),
    truncations=((2.0, 0, 4),),
    quiet_after=4.0,
)
PLACES = ("truncated", "out of range", "seek", "positioned", "poll")
P = TopicPartition("t", 0)


def told(history: list[Event]) -> list[str]:
    """Where it was truncated, told, and read on; and what polls returned: offsets, and the leader epoch."""
    found: list[str] = []
    for each in history:
        if each.what == "poll":
            found += [f"poll {first}-{last} of {epoch}" for *_, first, last, epoch in each.detail[0]]
        elif each.what in PLACES:
            found.append(" ".join([each.what, *map(str, each.detail[1:])]))
    return found


def test_it_is_told_where_a_member_goes_on() -> None:
    history = SimulatedCluster(PLAN).run()
    assert check(history) == []
    assert told(list(history)) == [
        *["positioned 1 0", "poll 0-9 of 0", "truncated 6 1", "out of range", "positioned 1 6", "poll 6-9 of 1"],
    ]


def seeks(member: Member) -> UserLoop:
    """Without a policy. Who is told that his log was truncated goes on where that was."""
    consumer = member.consumer
    consumer.subscribe(member.topics)
    while not member.stopping:
        try:
            records = yield from consumer.poll(timeout=0.3)
        except NoOffsetForPartitionError:
            consumer.seek(P, 0)
            continue
        except LogTruncationError as error:
            consumer.seek(P, error.divergent_offset or 0)
            continue
        for record in records:
            yield from member.handle(record)
        yield from consumer.commit()
    yield from consumer.close(timeout=5.0)


def test_without_a_policy_the_user_is_told_and_seeks() -> None:
    history = SimulatedCluster(PLAN, loop=seeks, settings={"auto_offset_reset": "none"}).run()
    assert check(history) == []
    assert told(list(history)) == [
        *["seek", "positioned 1 0", "poll 0-9 of 0", "truncated 6 1", "out of range", "seek", "positioned 1 6"],
        "poll 6-9 of 1",
    ]
