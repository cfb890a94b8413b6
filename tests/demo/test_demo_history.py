"""Runs as short stories, and what is made of them: states, hand-overs with their causes, gaps."""

import pytest

from demo.events import (
    Change,
    Event,
    JobFailed,
    JobFinished,
    JobStarted,
    Ownership,
    Produced,
    Progress,
    Range,
)
from demo.gaps import longest_gap
from demo.history import History, State, history


def change(t: float, app: str, what: Change, *partitions: int) -> Event:
    return Ownership(t=t, app=app, change=what, partitions=partitions)


def progress(t: float, app: str, partition: int, end: int = 10) -> Event:
    return Progress(t=t, app=app, partition=partition, start=end - 10, end=end, rows=10)


def states(run: History, partition: int) -> list[tuple[str, State, float, float]]:
    return [(s.app, s.state, s.start, s.end) for s in run.spans if s.partition == partition]


MOVED = [
    change(0, "A", Change.ASSIGNED, 0, 1),
    JobStarted(t=1, app="A", job="job 1", ranges=(Range(1, 0, 50),)),
    JobStarted(t=1, app="A", job="job 2", ranges=(Range(0, 0, 70),)),
    change(2, "A", Change.REVOKE_REQUESTED, 1),
    change(3, "A", Change.DELAYED, 1),
    progress(4, "A", 0),
    change(8, "A", Change.COMPLETING, 1),
    JobFinished(t=8, app="A", job="job 1"),
    change(9, "A", Change.REVOKED, 1),
    JobFinished(t=9, app="A", job="job 2"),
    change(10, "B", Change.ASSIGNED, 1),
    progress(12, "B", 1),
    progress(15, "B", 1),
]


def test_a_delayed_partition_passes_through_its_states() -> None:
    assert states(history(MOVED), 1) == [
        ("A", State.OWNED, 0, 2),
        ("A", State.TO_BE_REVOKED, 2, 3),
        ("A", State.DELAYED, 3, 8),
        ("A", State.COMPLETING, 8, 9),
        ("B", State.OWNED, 10, 15),
    ]


@pytest.mark.requirement("surface/timeline")
def test_a_hand_over_says_how_long_it_was_delayed_and_by_which_job_of_its_own_partition() -> None:
    (handover,) = history(MOVED).handovers
    assert (handover.before, handover.after, handover.delay, handover.resumed) == ("A", "B", 7, 10)
    assert str(handover.cause) == "A's job 1 (partition 1 offsets 0-49)"


def test_partitions_that_go_only_together_have_the_last_job_among_them_as_their_cause() -> None:
    run = history(
        [
            change(0, "A", Change.ASSIGNED, 0, 1, 2),
            *(JobStarted(t=1, app="A", job=f"job {p}", ranges=(Range(p, 0, 9),)) for p in (0, 1, 2)),
            change(2, "A", Change.REVOKE_REQUESTED, 0, 1),
            JobFinished(t=3, app="A", job="job 0"),
            JobFinished(t=8, app="A", job="job 1"),
            JobFinished(t=8.5, app="A", job="job 2"),
            change(9, "A", Change.REVOKED, 0, 1),
            change(10, "B", Change.ASSIGNED, 0, 1),
        ]
    )
    assert [str(handover.cause) for handover in run.handovers] == ["A's job 1 (partition 1 offsets 0-8)"] * 2


def test_a_partition_that_goes_by_itself_is_not_blamed_on_one_that_is_still_held() -> None:
    run = history(
        [
            change(0, "A", Change.ASSIGNED, 0, 1),
            *(JobStarted(t=1, app="A", job=f"job {p}", ranges=(Range(p, 0, 9),)) for p in (0, 1)),
            change(2, "A", Change.REVOKE_REQUESTED, 0, 1),
            JobFinished(t=3, app="A", job="job 0"),
            change(4, "A", Change.REVOKED, 0),
            JobFinished(t=8, app="A", job="job 1"),
            change(9, "A", Change.REVOKED, 1),
        ]
    )
    assert [(str(handover.cause), handover.delay) for handover in run.handovers] == [
        ("A's job 0 (partition 0 offsets 0-8)", 2),
        ("A's job 1 (partition 1 offsets 0-8)", 7),
    ]


def test_a_hand_over_with_nothing_under_way_has_no_cause() -> None:
    run = history([change(0, "A", Change.ASSIGNED, 1), change(2, "A", Change.REVOKE_REQUESTED, 1)])
    (handover,) = run.handovers
    assert (handover.cause, handover.delay, handover.after) == (None, None, None)


def test_a_partition_moves_until_its_first_progress_with_the_next_owner() -> None:
    run = history(MOVED)
    assert run.moving == {1: ((2, 12),)}
    assert [run.was_moving(1, at) for at in (1.9, 5, 11.9, 12.1)] == [False, True, True, False]
    assert not run.was_moving(0, 5)


def test_given_back_ends_the_hand_over_where_it_began() -> None:
    run = history(
        [
            change(0, "A", Change.ASSIGNED, 1),
            change(2, "A", Change.REVOKE_REQUESTED, 1),
            change(5, "A", Change.REASSIGNED, 1),
            progress(6, "A", 1),
        ]
    )
    (handover,) = run.handovers
    assert (handover.reassigned, handover.after, handover.resumed) == (True, "A", 5)
    assert states(run, 1)[-1] == ("A", State.OWNED, 5, 6)


def test_lost_is_a_hand_over_and_a_state_until_the_next_owner() -> None:
    run = history(
        [
            change(0, "A", Change.ASSIGNED, 1),
            change(2, "A", Change.LOST, 1),
            change(5, "B", Change.ASSIGNED, 1),
            progress(6, "B", 1),
        ]
    )
    (handover,) = run.handovers
    assert (handover.lost, handover.delay, handover.after) == (True, 0, "B")
    assert states(run, 1)[1] == ("A", State.LOST, 2, 5)


def test_a_killed_owner_ends_with_the_next_assignment_and_its_late_words_change_nothing() -> None:
    run = history(
        [
            change(0, "A", Change.ASSIGNED, 1),
            change(5, "B", Change.ASSIGNED, 1),
            change(6, "A", Change.REVOKED, 1),
            progress(7, "B", 1),
        ]
    )
    assert states(run, 1) == [("A", State.OWNED, 0, 5), ("B", State.OWNED, 5, 7)]


def test_a_job_that_failed_keeps_its_reason_and_one_whose_process_died_has_no_end() -> None:
    run = history(
        [
            JobStarted(t=1, app="A", job="1", ranges=(Range(0, 0, 1),)),
            JobStarted(t=1, app="A", job="2", ranges=(Range(0, 0, 1),)),
            JobFailed(t=2, app="A", job="1", reason="no disk"),
        ]
    )
    assert [(job.name, job.end, job.failed) for job in run.jobs] == [("1", 2, "no disk"), ("2", None, None)]


def test_the_longest_gap_is_of_a_partition_that_was_not_moving() -> None:
    stalled = [progress(t, "A", 0) for t in (1, 2, 6.5, 7)]
    gap = longest_gap(history([*MOVED, *stalled]))
    assert gap is not None
    assert (gap.partition, gap.length) == (1, 3)  # 12 to 15, after its hand-over; its 0 to 12 is the hand-over's
    gap = longest_gap(history([*MOVED, progress(12.5, "B", 1), *(progress(t, "A", 0) for t in (20, 26))]))
    assert gap is not None
    assert (gap.partition, gap.start, gap.end) == (0, 4, 20)


def test_a_gap_says_how_much_of_it_was_its_own_work() -> None:
    gap = longest_gap(
        history(
            [
                progress(1, "A", 0),
                JobStarted(t=2, app="A", job="1", ranges=(Range(0, 0, 1),)),
                JobStarted(t=3, app="A", job="of another", ranges=(Range(9, 0, 1),)),
                JobFinished(t=6, app="A", job="1"),
                progress(9, "A", 0),
            ]
        )
    )
    assert gap is not None
    assert (gap.length, gap.own_work) == (8, 4)


def test_an_empty_run_has_an_empty_history() -> None:
    run = history([])
    assert (run.partitions, run.apps, run.handovers, longest_gap(run)) == ((), (), (), None)


def test_the_last_end_of_each_partition_is_kept() -> None:
    produced = [Produced(t=t, app="source", partition=p, end=end) for t, p, end in ((1, 0, 5), (2, 0, 9), (1, 1, 3))]
    assert history(produced).ends == {0: 9, 1: 3}


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_the_lines_does_not_matter_only_their_times(order: int) -> None:
    assert history(MOVED[::order]).moving == history(MOVED).moving
