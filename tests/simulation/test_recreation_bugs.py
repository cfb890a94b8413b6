"""What a member does whose topic was recreated; and each bug in that is caught by `--groups recreations`."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from seeded_bugs import bugs_of, must_show, seeks, told

from instride._core.network.assigned_partitions import AssignedPartition
from instride._core.network.assignment import MemberAssignment
from instride._core.network.cluster import Cluster
from instride._core.network.positions import Positions
from instride._wire import api
from instride.errors import UnknownTopicOrPartitionError
from instride.ledger import OffsetLedger
from instride.records import ConsumerRecord, TopicPartition
from instride.testing._simulation.plan import LoopKind
from instride.testing._simulation.verbs import SimulatedConsumer
from instride.testing.simulation import MemberPlan, Plan, run


def _an_offset_is_taken_to_the_topic_of_the_same_name(patch: pytest.MonkeyPatch) -> None:
    def taken(_positions: Positions, assigned: AssignedPartition, new: UUID) -> None:
        assigned.topic_id = new

    patch.setattr(Positions, "_topic_recreated", taken)


def _topics_are_known_by_their_names(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cluster, "topic_id", lambda _cluster, _topic: api.NO_TOPIC_ID)


def _commits_of_the_deleted_topic_are_of_the_next_one(patch: pytest.MonkeyPatch) -> None:
    def holds(assignment: MemberAssignment, partition: TopicPartition, epoch: int, _seek_number: int) -> bool:
        return assignment.get(partition, epoch) is not None

    patch.setattr(MemberAssignment, "holds", holds)


def _a_ledger_takes_work_on_the_deleted_topic_for_work_on_the_next_one(patch: pytest.MonkeyPatch) -> None:
    mark = OffsetLedger._mark

    def of_any_log(ledger: OffsetLedger, record: ConsumerRecord, *args: Any) -> Any:
        run_ = ledger._runs.get(record.topic_partition)
        if run_ is None or record.epoch != run_.epoch:
            return mark(ledger, record, *args)
        same = ConsumerRecord(
            record.topic, record.partition, record.offset, epoch=record.epoch, seek_number=run_.seek_number
        )
        return mark(ledger, same, *args)

    patch.setattr(OffsetLedger, "_mark", of_any_log)


BUGS = bugs_of(globals())


@pytest.mark.parametrize("bug", BUGS)
def test_it_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)
    must_show(bug, 60, "recreations")


PLAN = Plan(
    members=(MemberPlan(name="A"),),
    nodes=2,
    partitions=1,
    produced=((0.0, 0, 10), (2.5, 0, 4)),
    recreations=((2.0, 0, 0.3),),
    quiet_after=4.0,
)
PLACES = ("recreated", "created", "out of range", "seek", "positioned", "commit")


def test_it_is_told_where_a_member_goes_on() -> None:
    assert told(PLAN, *PLACES) == [
        *["positioned 1 0", "poll 0-9 of 0", "commit 10", "recreated 1000000", "created", "out of range"],
        *["positioned 1 0", "poll 0-3 of 1000000", "commit 4"],
    ]


def test_without_a_policy_the_user_is_told_and_seeks() -> None:
    assert told(PLAN, *PLACES, loop=seeks, settings={"auto_offset_reset": "none"}) == [
        *["seek", "positioned 1 0", "poll 0-9 of 0", "commit 10", "recreated 1000000", "created", "out of range"],
        *["seek", "positioned 1 0", "poll 0-3 of 1000000", "commit 4"],
    ]


@pytest.mark.parametrize(
    ("loop", "verb"),
    [
        *[("flagship", "poll"), ("changes", "poll_changes"), ("wait", "poll"), ("executor", "poll")],
        *[("synchronous", "poll"), ("auto-commit", "poll"), ("immediate", "poll"), ("synchronous", "commit")],
    ],
)
def test_users_expect_a_topic_to_be_away_only_where_one_is(
    loop: LoopKind, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_the_consumer, raised = getattr(SimulatedConsumer, verb), list[str]()

    def once(consumer: SimulatedConsumer, *args: Any, **options: Any) -> Generator[Any, Any, Any]:
        if not raised:
            raised.append(verb)
            raise UnknownTopicOrPartitionError("t is away")
        return (yield from of_the_consumer(consumer, *args, **options))

    monkeypatch.setattr(SimulatedConsumer, verb, once)
    plan = replace(PLAN, members=(MemberPlan(name="A", loop=loop),))
    assert [each for each in run(plan) if each.what == "died"] == []
    assert raised == [verb]
    raised.clear()
    (died,) = [each for each in run(replace(plan, recreations=())) if each.what == "died"]
    assert died.detail[1] == "UnknownTopicOrPartitionError: t is away"
