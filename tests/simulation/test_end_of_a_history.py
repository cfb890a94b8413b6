"""A simulated group ends when all of it is done: nobody is asked to leave before."""

from __future__ import annotations

from instride.records import TopicPartition
from instride.testing import SimulatedCluster
from instride.testing.simulation import Fault, History, Member, MemberPlan, Plan, Sleep, UserLoop, check, transcript

P = TopicPartition("t", 0)
RESET = Plan(
    members=(MemberPlan(name="A"),),
    partitions=1,
    reset="latest",
    produced=((0.0, 0, 5), (3.0, 0, 5), (6.0, 0, 2), (8.0, 0, 3)),
    retentions=((3.5, 0, 0),),
    faults=(Fault(time=2.2, kind="suspend", member=0, seconds=2.0),),
    session_timeout=6.0,
    quiet_after=8.0,
)
"""While its member is suspended the log loses what it is to read next. It goes on from the end, and commits again."""


def drops_what_it_has_when_it_is_to_leave(member: Member) -> UserLoop:
    consumer = member.consumer
    consumer.subscribe(member.topics)
    while not member.stopping:
        records = yield from consumer.poll(timeout=0.1)
        for record in records:
            yield Sleep(0.2)
            if not member.stopping:
                yield from member.handle(record)
        if not member.stopping:
            yield from consumer.commit()
    yield from consumer.close()


def offsets_of(history: History, what: str) -> list[int]:
    return [each.detail[2] for each in history if each.what == what and each.detail[0] == P]


def test_who_was_reset_and_has_committed_since_may_finish_his_work() -> None:
    """Where the group has a place that the log has, only a commit ends the work; not a position at the log's end."""
    history = SimulatedCluster(RESET, loop=drops_what_it_has_when_it_is_to_leave).run()
    assert offsets_of(history, "positioned") == [5, 10]
    assert [each for each in history if each.what == "out of range"] != []
    found = check(history)
    assert not found, transcript(history, found)
