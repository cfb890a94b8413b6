"""What a member does whose topic was recreated; and each bug in that is caught by `--groups recreations`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from instride._core.network.assigned_partitions import AssignedPartition
from instride._core.network.assignment import MemberAssignment
from instride._core.network.cluster import Cluster
from instride._core.network.positions import Positions
from instride._wire import api
from instride.errors import NoOffsetForPartitionError, TopicRecreatedError, UnknownTopicOrPartitionError
from instride.ledger import OffsetLedger
from instride.records import ConsumerRecord, TopicPartition
from instride.testing import SimulatedCluster
from instride.testing._simulation.plan import LoopKind
from instride.testing._simulation.planning_groups import with_groups
from instride.testing._simulation.verbs import SimulatedConsumer
from instride.testing.simulation import Event, Member, MemberPlan, Plan, UserLoop, check, plan_for, run

MOST = 60


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


BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    name.removeprefix("_").replace("_", " "): seed
    for name, seed in list(globals().items())
    if getattr(seed, "__annotations__", {}).get("patch") == "pytest.MonkeyPatch"
}


@pytest.mark.parametrize("bug", BUGS)
def test_it_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)
    for seed in range(MOST):
        if found := check(run(with_groups(seed, plan_for(seed), frozenset({"recreations"})))):
            print(f"{bug}: seed {seed}: {found[0]}")  # shown by pytest -s
            return
    pytest.fail(f"{MOST} histories did not show it")


PLAN = Plan(
    members=(MemberPlan(name="A"),),
    nodes=2,
    partitions=1,
    produced=((0.0, 0, 10), (2.5, 0, 4)),
    recreations=((2.0, 0, 0.3),),
    quiet_after=4.0,
)
PLACES = ("recreated", "created", "out of range", "seek", "positioned")
P = TopicPartition("t", 0)


def told(history: list[Event]) -> list[str]:
    """Where it was recreated, told, and read on; what polls returned and was committed: offsets, and leader epochs."""
    found: list[str] = []
    for each in history:
        if each.what == "poll":
            found += [f"poll {first}-{last} of {epoch}" for *_, first, last, epoch in each.detail[0]]
        elif each.what == "commit":
            found += [f"commit {offset}" for _, offset, code in each.detail[1] if not code]
        elif each.what in PLACES:
            found.append(" ".join([each.what, *map(str, each.detail[1:])]))
    return found


def test_it_is_told_where_a_member_goes_on() -> None:
    history = SimulatedCluster(PLAN).run()
    assert check(history) == []
    assert told(list(history)) == [
        *["positioned 1 0", "poll 0-9 of 0", "commit 10", "recreated 1000000", "created", "out of range"],
        *["positioned 1 0", "poll 0-3 of 1000000", "commit 4"],
    ]


def seeks(member: Member) -> UserLoop:
    """Without a policy. Who is told that his topic was recreated reads the new one from its beginning."""
    consumer = member.consumer
    consumer.subscribe(member.topics)
    while not member.stopping:
        try:
            records = yield from consumer.poll(timeout=0.3)
        except (NoOffsetForPartitionError, TopicRecreatedError):
            consumer.seek(P, 0)
            continue
        for record in records:
            yield from member.handle(record)
        if records:
            yield from consumer.commit()
    yield from consumer.close(timeout=5.0)


def test_without_a_policy_the_user_is_told_and_seeks() -> None:
    history = SimulatedCluster(PLAN, loop=seeks, settings={"auto_offset_reset": "none"}).run()
    assert check(history) == []
    assert told(list(history)) == [
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
