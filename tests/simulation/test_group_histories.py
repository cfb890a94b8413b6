"""Groups of another kind: users with a queue for each partition, a beginning at the end of the logs, logs that lose
what is old, logs that unclean leader elections truncate, and topics that are recreated. `--groups` plays more of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from uuid import UUID

import pytest

from instride._core.network.assigned_partitions import AssignedPartition
from instride._core.network.positions import Positions
from instride.errors.codes import ErrorCode
from instride.testing._simulation.campaign import planned
from instride.testing._simulation.corpus import decode, encode
from instride.testing._simulation.planning_groups import with_groups
from instride.testing.simulation import check, plan_for, run


@pytest.mark.rule("16")
@pytest.mark.parametrize("seed", range(40))
def test_work_that_was_not_begun_delays_no_hand_over(seed: int) -> None:
    found = check(run(with_groups(seed, plan_for(seed), frozenset({"executors"}))))
    assert not found, f"--groups executors --seed {seed}: {found[0]}"


@pytest.mark.rule("18")
@pytest.mark.parametrize("seed", range(40))
def test_a_start_at_the_latest_moves_with_its_partition(seed: int) -> None:
    found = check(run(with_groups(seed, plan_for(seed), frozenset({"latest"}))))
    assert not found, f"--groups latest --seed {seed}: {found[0]}"


@pytest.mark.rule("18")
@pytest.mark.parametrize("means", [frozenset({"retention"}), frozenset({"latest", "retention"})], ids=sorted)
@pytest.mark.parametrize("seed", range(0, 120, 6))
def test_logs_that_lose_what_is_old_lose_nothing_else(seed: int, means: frozenset[str]) -> None:
    found = check(run(with_groups(seed, plan_for(seed), means)))
    assert not found, f"--groups {','.join(sorted(means))} --seed {seed}: {found[0]}"


@pytest.mark.parametrize("means", [frozenset({"truncations"}), frozenset({"retention", "truncations"})], ids=sorted)
@pytest.mark.parametrize("seed", range(0, 120, 6))
def test_logs_that_are_truncated_are_read_on_where_they_were(seed: int, means: frozenset[str]) -> None:
    found = check(run(with_groups(seed, plan_for(seed), means)))
    assert not found, f"--groups {','.join(sorted(means))} --seed {seed}: {found[0]}"


@pytest.mark.rule("16")
@pytest.mark.parametrize("seed", range(1, 122, 12))
def test_what_was_queued_of_a_truncated_log_is_dropped(seed: int) -> None:
    found = check(run(with_groups(seed, plan_for(seed), frozenset({"executors", "truncations"}))))
    assert not found, f"--groups executors,truncations --seed {seed}: {found[0]}"


@pytest.mark.parametrize(
    "means",
    [frozenset({"recreations"}), frozenset({"latest", "recreations"}), frozenset({"executors", "recreations"})],
    ids=sorted,
)
@pytest.mark.parametrize("seed", range(2, 122, 6))
def test_no_offset_of_a_deleted_topic_counts_in_the_next_one(seed: int, means: frozenset[str]) -> None:
    found = check(run(with_groups(seed, plan_for(seed), means)))
    assert not found, f"--groups {','.join(sorted(means))} --seed {seed}: {found[0]}"


@pytest.mark.parametrize("groups", ["recreations", "truncations"])
@pytest.mark.parametrize("seed", range(4, 124, 12))
def test_unruly_users_read_on_where_logs_were_truncated_or_recreated(seed: int, groups: str) -> None:
    plan = planned(seed, frozenset({"verbs", "listeners", "modes", "looks", "signals", groups}))
    found = check(run(plan))
    assert not found, f"--unruly verbs,listeners,modes,looks,signals --groups {groups} --seed {seed}: {found[0]}"


@pytest.mark.parametrize("groups", ["recreations", "truncations"])
def test_unruly_users_of_such_logs_name_no_place(groups: str) -> None:
    """It would have no leader epoch, and be of no topic. All else that they do befalls these logs."""
    seen: Counter[str] = Counter()
    for seed in range(4, 64, 6):
        plan = planned(seed, frozenset({"verbs", "listeners", "signals", "rewinds", groups}))
        seen.update(event.what for event in run(plan))
    assert all(seen[each] > 10 for each in ("pauses", "signal", "out of range")), seen
    assert not [each for each in ("seek", "own offsets", "allows rewind") if seen[each]], seen


def _takes_the_offset_along(_positions: Positions, assigned: AssignedPartition, new: UUID) -> None:
    assigned.topic_id = new


def _believes_that_nothing_was_lost(positions: Positions, assigned: AssignedPartition, _cut: object) -> None:
    leader = positions._cluster.leader(assigned.partition)
    assert leader is not None
    positions._valid(assigned, leader[1])


@pytest.mark.parametrize(
    ("groups", "name", "bug"),
    [
        ("recreations", "_topic_recreated", _takes_the_offset_along),
        ("truncations", "_truncated", _believes_that_nothing_was_lost),
    ],
)
def test_what_unruly_users_do_hides_no_bug(
    groups: str, name: str, bug: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Positions, name, bug)
    means = frozenset({"verbs", "listeners", "modes", "looks", "signals", groups})
    assert any(check(run(planned(seed, means))) for seed in range(8))


def test_what_is_planned_befalls_the_group() -> None:
    """The histories above would be good if nothing were queued, delayed or reset."""
    seen: Counter[str] = Counter()
    for seed in range(30):
        history = run(with_groups(seed, plan_for(seed), frozenset({"executors", "latest"})))
        seen.update(event.what for event in history)
        seen["reset"] += sum(event.what == "looked up" and event.detail[1] is None for event in history)
    assert all(seen[each] > 10 for each in ("begins", "not begun", "delay", "revoked", "reset")), seen


def test_retention_befalls_positions_too() -> None:
    seen: Counter[str] = Counter()
    for seed in range(0, 120, 6):
        plan = with_groups(seed, plan_for(seed), frozenset({"retention"}))
        seen.update(event.what for event in run(plan))
    assert seen["log starts"] > 20, seen
    assert seen["out of range"] > 5, seen


def test_truncations_befall_positions_and_what_is_committed() -> None:
    seen: Counter[str] = Counter()
    for seed in range(0, 120, 6):
        history = run(with_groups(seed, plan_for(seed), frozenset({"truncations"})))
        seen.update(event.what for event in history)
        cuts = {(event.detail[0], event.detail[1]) for event in history if event.what == "truncated"}
        seen["reset to one"] += sum(event.detail[::2] in cuts for event in history if event.what == "positioned")
    assert seen["truncated"] > 20, seen
    assert seen["reset to one"] > 10, seen


def test_recreations_befall_positions_and_commits() -> None:
    seen: Counter[str] = Counter()
    for seed in range(2, 122, 6):
        history = run(with_groups(seed, plan_for(seed), frozenset({"recreations"})))
        seen.update(event.what for event in history)
        codes = [code for event in history if event.what == "commit response" for _, _, code in event.detail[1]]
        seen["refused by its id"] += codes.count(ErrorCode.UNKNOWN_TOPIC_ID)
    assert seen["recreated"] > 60, seen
    assert seen["out of range"] > 40, seen
    assert seen["refused by its id"] > 5, seen


def test_a_plan_of_another_group_is_a_value_that_can_be_kept() -> None:
    plan = with_groups(7, plan_for(7))
    assert decode(encode(plan)) == plan == with_groups(7, plan_for(7))
