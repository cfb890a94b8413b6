"""Bugs that are put into the product's own code, the histories that must show them, and plays of a plan by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pytest

from instride.errors import LogTruncationError, NoOffsetForPartitionError, TopicRecreatedError
from instride.records import TopicPartition
from instride.testing import SimulatedCluster
from instride.testing._simulation.planning_groups import with_groups
from instride.testing.simulation import Member, Plan, UserLoop, check, plan_for, run

__all__ = ["Bug", "bugs_of", "must_show", "seeks", "told"]

Bug: TypeAlias = Callable[[pytest.MonkeyPatch], None]


def bugs_of(names: Mapping[str, Any]) -> dict[str, Bug]:
    """A module's functions of a `patch`, by their names in words."""
    return {
        name.removeprefix("_").replace("_", " "): bug
        for name, bug in names.items()
        if getattr(bug, "__annotations__", {}).get("patch") == "pytest.MonkeyPatch"
    }


def must_show(bug: str, most: int, *groups: str, first: int = 0) -> None:
    """One of so many histories with these `--groups`. first: the one that showed it the last time, which saves a minute
    of others."""
    assert first < most
    for seed in (first, *range(most)):
        if found := check(run(with_groups(seed, plan_for(seed), frozenset(groups)))):
            print(f"{bug}: seed {seed}: {found[0]}")  # shown by pytest -s
            return
    pytest.fail(f"{most} histories did not show it")


def told(plan: Plan, *places: str, **options: Any) -> list[str]:
    """Where a play without a violation came to one of these places; and what polls returned: offsets and their leader
    epoch. With "commit", what was committed."""
    history = SimulatedCluster(plan, **options).run()
    assert check(history) == []
    found: list[str] = []
    for each in history:
        if each.what == "poll":
            found += [f"poll {first}-{last} of {epoch}" for *_, first, last, epoch in each.detail[0]]
        elif each.what in places and each.what == "commit":
            found += [f"commit {offset}" for _, offset, code in each.detail[1] if not code]
        elif each.what in places:
            found.append(" ".join([each.what, *map(str, each.detail[1:])]))
    return found


def seeks(member: Member) -> UserLoop:
    """Without a policy. Who is told that his log was truncated goes on where that was; else he begins anew."""
    consumer = member.consumer
    consumer.subscribe(member.topics)
    while not member.stopping:
        try:
            records = yield from consumer.poll(timeout=0.3)
        except (NoOffsetForPartitionError, TopicRecreatedError):
            consumer.seek(TopicPartition("t", 0), 0)
            continue
        except LogTruncationError as error:
            consumer.seek(TopicPartition("t", 0), error.divergent_offset or 0)
            continue
        for record in records:
            yield from member.handle(record)
        if records:
            yield from consumer.commit()
    yield from consumer.close(timeout=5.0)
