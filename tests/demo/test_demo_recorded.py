"""The histories that the demo's processes write are one, and it is judged with what the source sent."""

from __future__ import annotations

from pathlib import Path

from instride import TopicPartition
from instride.demo.recorded import finish, recorder

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
