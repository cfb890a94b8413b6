"""The count of a network thread's requests: each, but the commits that the application handed over."""

from __future__ import annotations

from instride._core.events import Commit
from instride._wire.api import Heartbeat, OffsetCommit
from instride.testing._simulation.busiest import Busiest

COMMIT = OffsetCommit(group_id="g", generation=1, member_id="a", offsets={})
HEARTBEAT = Heartbeat(group_id="g", generation=1, member_id="a")
HANDED_OVER = Commit(call=1, deadline=9.0, entries={})


def test_commits_that_were_handed_over_do_not_count_and_repeats_of_them_do() -> None:
    busiest = Busiest()
    busiest.turn(7.0)
    for _ in range(3):
        busiest.took(HANDED_OVER)
        busiest.sent(COMMIT)
    busiest.sent(HEARTBEAT)
    assert busiest.take() == (1, 1)
    busiest.sent(COMMIT)
    assert busiest.take() == (1, 2)


def test_what_was_handed_over_and_not_sent_hides_no_other_request() -> None:
    busiest = Busiest()
    busiest.turn(7.0)
    busiest.took(HANDED_OVER)
    busiest.sent(HEARTBEAT)
    assert busiest.take() == (1, 1)


def test_a_commit_that_was_handed_over_in_another_second_counts() -> None:
    busiest = Busiest()
    busiest.turn(7.9)
    busiest.took(HANDED_OVER)
    busiest.turn(8.0)
    busiest.sent(COMMIT)
    assert busiest.take() == (1, 1)
