"""What a member does whose log was truncated; and each bug in that is caught by `--groups truncations`."""

from __future__ import annotations

import pytest
from seeded_bugs import bugs_of, must_show, seeks, told

from instride._core.network.assigned_partitions import AssignedPartition, Phase
from instride._core.network.positions import Positions
from instride.testing.simulation import MemberPlan, Plan


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


BUGS = bugs_of(globals())


@pytest.mark.parametrize("bug", BUGS)
def test_it_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)
    must_show(bug, 60, "truncations")


PLAN = Plan(
    members=(MemberPlan(name="A"),),
    nodes=2,
    partitions=1,
    produced=((0.0, 0, 10), (3.0, 0, 4)),
    truncations=((2.0, 0, 4),),
    quiet_after=4.0,
)
PLACES = ("truncated", "out of range", "seek", "positioned")


def test_it_is_told_where_a_member_goes_on() -> None:
    assert told(PLAN, *PLACES) == [
        *["positioned 1 0", "poll 0-9 of 0", "truncated 6 1", "out of range", "positioned 1 6", "poll 6-9 of 1"],
    ]


def test_without_a_policy_the_user_is_told_and_seeks() -> None:
    assert told(PLAN, *PLACES, loop=seeks, settings={"auto_offset_reset": "none"}) == [
        *["seek", "positioned 1 0", "poll 0-9 of 0", "truncated 6 1", "out of range", "seek", "positioned 1 6"],
        "poll 6-9 of 1",
    ]
