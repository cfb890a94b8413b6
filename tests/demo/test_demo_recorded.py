"""The histories that the demo's processes write are one, and it is judged with what the source sent."""

from __future__ import annotations

from pathlib import Path

from demo.recorded import finish, ownerless, recorder
from instride import TopicPartition

P = TopicPartition("flights", 0)


def test_what_all_processes_wrote_is_judged_as_one(tmp_path: Path) -> None:
    for name, first in (("A", 0), ("B", 5)):
        with recorder(tmp_path, "flights", name) as history:
            member = history.peer(name, finishes="told", commits=True)
            member.turn({P: range(first, first + 5)}, [P])
            member.done(P, first, first + 4)
            member.committed({P: first + 5})
            member.turn({}, [])
            member.closed()
    assert finish(tmp_path, "flights", {0: 10}) == []
    assert [each.number for each in finish(tmp_path, "flights", {0: 11})] == ["L3"]


def test_the_time_without_an_owner_is_between_what_two_processes_wrote(tmp_path: Path) -> None:
    with recorder(tmp_path, "flights", "A") as history:
        a = history.peer("A", finishes="told", commits=True)
        a.turn({P: range(5)}, [P])
        a.turn({}, [])
    with recorder(tmp_path, "flights", "B") as history:
        history.peer("B", finishes="told", commits=True).turn({P: range(5, 10)}, [P])
    (found,) = ownerless(tmp_path)
    assert (found.partition, found.released_by, found.taken_by) == (P, "A", "B")
