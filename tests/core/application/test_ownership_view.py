"""What the application side tells of ownership: every change in order, who waits for what, what would be repeated."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from application_script import Script, epochs, tp

from instride._core.application.ownership_view import CHANGES, blocker_of
from instride._core.events import (
    Assigned,
    BackgroundEvent,
    CallCompleted,
    Commit,
    DelayExplained,
    FetchesBegan,
    Lost,
    Noticed,
    PartlyCommitted,
    RevocationRequested,
    Revoked,
)
from instride._core.ownership import TRANSITIONS, RebalanceProtocol
from instride.errors import KafkaError
from instride.records import OffsetRange
from instride.telemetry import (
    Blocker,
    DelayAtRisk,
    FetchBegan,
    HandedOver,
    OwnershipChange,
    OwnershipChanged,
    PartitionStalled,
    RebalanceEnded,
    RebalanceOutcome,
    StallCause,
    TelemetryEvent,
)


def told(script: Script) -> list[Any]:
    """Changes as (text, partition numbers), everything else as it is."""
    return [_short(event) for event in script.machine.telemetry()]


def _short(event: TelemetryEvent) -> Any:
    if isinstance(event, OwnershipChanged):
        return event.change.value, [each.partition for each in event.partitions]
    return event


@pytest.fixture
def script() -> Script:
    made = Script()
    made.subscribe()
    made.assigned(0, 1, 2)
    made.poll()
    assert told(made) == [("assigned", [0, 1, 2])]
    return made


def test_every_move_between_states_is_told_or_meant_to_be_silent() -> None:
    """Silent: what stays as it is, and a delay that goes on."""
    moves = {(before, after) for (before, _), after in TRANSITIONS[RebalanceProtocol.COOPERATIVE].items()}
    silent = {(before.name, after.name) for before, after in moves - CHANGES.keys() if before is not after}
    assert silent == {("REVOKE_THEREAFTER", "REVOKE_NEXT")}


@pytest.mark.requirement("surface/hand-overs")
def test_a_delayed_hand_over_is_told_with_its_phases_and_its_blocker(script: Script) -> None:
    script.fetched(0, 0, 10)
    script.poll()
    script.up(RevocationRequested(partitions=epochs(0), deadline=400.0, at=99.0))
    script.poll()
    assert told(script) == [("revoke_requested", [0])]
    script.now = 102.0
    assert script.machine.delay_revoke([tp(0)], reason=lambda partition: OffsetLike(7), now=script.now)
    assert told(script) == [("delayed", [0])]
    script.now = 103.0
    script.poll()
    script.delay(0)
    script.poll()
    assert told(script) == [], "a delay that goes on is told once"
    script.now = 105.0
    script.poll()
    assert told(script) == [("completing", [0])]
    script.up(Revoked(partitions=epochs(0), at=105.5))
    script.now = 106.0
    script.poll()
    revoked, handed_over = told(script)
    assert revoked == ("revoked", [0])
    assert handed_over == HandedOver(
        at=105.5,
        partition=tp(0),
        epoch=1,
        how=OwnershipChange.REVOKED,
        since=100.0,
        requested_at=99.0,
        noticed_at=100.0,
        delayed_at=102.0,
        polls_delayed=2,
        completing_at=105.0,
        blocker=Blocker(text="the record at offset 7", offset=7),
        abandoned=10,
    )
    assert handed_over.seconds == 6.5
    assert handed_over.phases == {"waiting for a poll": 1.0, "kept": 5.0, "completing": 0.5}


@pytest.mark.requirement("surface/hand-overs")
@pytest.mark.parametrize("requested_at", [99.0, 100.2, 101.2])
@pytest.mark.parametrize("released_at", [100.1, 100.9, 101.1, 103.0])
def test_the_phases_sum_up_to_the_hand_over_on_both_sides_clocks(
    script: Script, requested_at: float, released_at: float
) -> None:
    """A poll has the time of its beginning: the network side may have told it of what came a moment later."""
    script.up(RevocationRequested(partitions=epochs(0), deadline=400.0, at=requested_at))
    script.poll()
    script.now = 101.0
    script.poll()
    script.up(Revoked(partitions=epochs(0), at=released_at))
    script.now = 102.0
    script.poll()
    handed_over = told(script)[-1]
    assert (handed_over.requested_at, handed_over.at) == (requested_at, released_at)
    assert sum(handed_over.phases.values()) == pytest.approx(handed_over.seconds)
    assert set(handed_over.phases) == {"waiting for a poll", "kept", "completing"}


class OffsetLike:
    def __init__(self, offset: int) -> None:
        self.offset = offset


@pytest.mark.requirement("surface/abandoned")
def test_a_loss_tells_what_may_be_repeated(script: Script) -> None:
    script.fetched(1, 0, 8)
    script.poll()
    commit(script, 1, 5)
    script.fetched(1, 8, 10)
    script.poll()
    script.up(Lost(partitions=epochs(1), at=100.5))
    script.now = 101.0
    script.poll()
    lost, handed_over = told(script)
    assert lost == ("lost", [1])
    assert handed_over.abandoned == 5, "0 to 4 are committed, 5 to 9 are not"
    assert (handed_over.at, handed_over.requested_at, handed_over.phases, handed_over.seconds) == (100.5, None, {}, 0.0)


def commit(script: Script, partition: int, offset: int, *, error: KafkaError | None = None) -> None:
    script.machine.commit_async(script.now, {tp(partition): offset})
    (sent,) = script.take_posted(Commit)
    script.up(CallCompleted(call=sent.call, committed={tp(partition): error}))
    script.machine.assignment()  # takes it


def uncommitted(script: Script, partition: int) -> int:
    return script.machine.holdings()[tp(partition)].uncommitted


@pytest.mark.requirement("surface/abandoned")
def test_only_what_the_broker_took_is_committed(script: Script) -> None:
    script.fetched(0, 0, 8)
    script.poll()
    commit(script, 0, 8, error=KafkaError("refused"))
    assert uncommitted(script, 0) == 8
    commit(script, 0, 8)
    assert uncommitted(script, 0) == 0


@pytest.mark.requirement("surface/abandoned")
def test_what_the_broker_took_is_committed_while_another_partition_waits(script: Script) -> None:
    for partition in (0, 1):
        script.fetched(partition, 0, 8)
    script.poll()
    script.machine.commit_async(script.now, {tp(0): 8, tp(1): 8})
    (sent,) = script.take_posted(Commit)
    script.up(PartlyCommitted(calls=(CallCompleted(call=sent.call, committed={tp(0): None}),)))
    script.machine.assignment()  # takes it
    assert (uncommitted(script, 0), uncommitted(script, 1)) == (0, 8)
    script.up(CallCompleted(call=sent.call, committed={tp(0): None, tp(1): None}))
    script.machine.assignment()
    assert (uncommitted(script, 0), uncommitted(script, 1)) == (0, 0)


def test_a_commit_after_a_seek_back_may_bring_everything_again(script: Script) -> None:
    script.fetched(0, 0, 8)
    script.poll()
    commit(script, 0, 8)
    script.machine.seek(tp(0), 3)
    assert uncommitted(script, 0) == 0
    commit(script, 0, 3)
    assert uncommitted(script, 0) == 5, "the next owner begins at 3"


def test_records_that_were_returned_twice_are_counted_once_they_are_uncommitted(script: Script) -> None:
    script.fetched(0, 0, 8)
    script.poll()
    script.machine.seek(tp(0), 0)
    script.fetched(0, 0, 8, fetch_number=1)
    script.poll()
    assert uncommitted(script, 0) == 16, "the bound is never too low"
    commit(script, 0, 6)
    assert uncommitted(script, 0) == 2


def test_auto_commits_count(script: Script) -> None:
    script = Script(enable_auto_commit=True, auto_commit_interval=1.0)
    script.subscribe()
    script.assigned(0)
    script.fetched(0, 0, 4)
    script.poll()
    script.now += 2
    script.poll()
    sent = script.take_posted(Commit)[-1]
    assert uncommitted(script, 0) == 4
    script.up(CallCompleted(call=sent.call, committed={tp(0): None}))
    script.poll()
    assert uncommitted(script, 0) == 0


def test_reassigned_forgets_the_request(script: Script) -> None:
    script.revocation_requested(0, 1)
    script.poll()
    script.machine.delay_revoke([tp(0)], reason="the weather")
    script.reassigned(0, 1)
    script.poll()
    assert told(script) == [("revoke_requested", [0, 1]), ("delayed", [0]), ("completing", [1]), ("reassigned", [0])]
    hold = script.machine.holdings()[tp(0)]
    assert (hold.state, hold.blocker, hold.requested_at, hold.deadline) == (
        OwnershipChange.REASSIGNED,
        None,
        None,
        None,
    )
    assert script.machine.holdings()[tp(1)].state is OwnershipChange.COMPLETING


def test_a_request_that_was_taken_back_before_a_poll_is_no_part_of_a_loss(script: Script) -> None:
    script.up(RevocationRequested(partitions=epochs(0), deadline=400.0, at=99.0))
    script.reassigned(0)
    script.up(Lost(partitions=epochs(0), at=110.0))
    script.now = 111.0
    script.poll()
    assert told(script)[-1].requested_at is None


def test_what_is_completed_counts_from_the_request_that_it_completes(script: Script) -> None:
    """The poll that releases it takes what came since only then: seed 77 of the histories."""
    script.up(RevocationRequested(partitions=epochs(0), deadline=400.0, at=99.0))
    script.poll()
    script.reassigned(0)
    script.up(RevocationRequested(partitions=epochs(0), deadline=500.0, at=120.0))
    script.up(Revoked(partitions=epochs(0), at=121.0))
    script.now = 122.0
    script.poll()
    assert told(script)[-1].requested_at == 99.0


def test_a_second_request_has_a_time_of_its_own(script: Script) -> None:
    script.up(RevocationRequested(partitions=epochs(0), deadline=400.0, at=99.0))
    script.poll()
    script.machine.delay_revoke([tp(0)])
    script.reassigned(0)
    script.poll()
    script.up(RevocationRequested(partitions=epochs(0), deadline=500.0, at=120.0))
    script.now = 121.0
    script.poll()
    hold = script.machine.holdings()[tp(0)]
    assert (hold.requested_at, hold.deadline, hold.since, hold.generation) == (120.0, 500.0, 100.0, 1)


@pytest.mark.requirement("surface/holders")
def test_holdings_say_what_a_delay_waits_for(script: Script) -> None:
    script.revocation_requested(0, 1, 2)
    script.poll()
    script.machine.delay_revoke([tp(0), tp(1)], reason=lambda partition: f"job {partition.partition}")
    holds = script.machine.holdings()
    assert [str(holds[tp(number)].blocker) for number in range(3)] == ["job 0", "job 1", "None"]
    (explained,) = script.take_posted(DelayExplained)
    assert explained == DelayExplained(
        partitions=epochs(0, 1), blockers={tp(0): Blocker(text="job 0"), tp(1): Blocker(text="job 1")}
    )


def test_the_network_side_is_told_of_news_only(script: Script) -> None:
    script.revocation_requested(0)
    for text in ("one", "one", "two"):
        script.poll()
        script.machine.delay_revoke([tp(0)], reason=text)
    assert [event.blockers[tp(0)].text for event in script.take_posted(DelayExplained)] == ["one", "two"]
    script.machine.delay_revoke([tp(0)])
    assert script.machine.holdings()[tp(0)].blocker == Blocker(text="two"), "no reason takes none away"


def test_what_is_not_delayed_has_no_blocker(script: Script) -> None:
    script.revocation_requested(0)
    script.poll()
    script.poll()
    assert not script.machine.delay_revoke([tp(0)], reason="too late")
    assert script.machine.holdings()[tp(0)].blocker is None
    assert script.take_posted(DelayExplained) == []


@pytest.mark.requirement("surface/holders")
@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (None, None),
        ("a text", Blocker(text="a text")),
        (lambda partition: None, None),
        (lambda partition: 17, Blocker(text="17")),
        (lambda partition: OffsetLike(3), Blocker(text="the record at offset 3", offset=3)),
        (
            lambda partition: OffsetRange(topic="t", partition=0, start=5, end=9, epoch=1, seek_number=0),
            Blocker(text="offsets 5 to 8", offset=5),
        ),
        (lambda partition: 1 / 0, Blocker(text="unknown: the reason given raised ZeroDivisionError")),
    ],
)
def test_blockers(reason: Any, expected: Blocker | None) -> None:
    assert blocker_of(reason, tp(0)) == expected


def test_close_asks_and_lets_go_of_everything_at_once(script: Script) -> None:
    call = script.machine.close(script.now, 5.0, leave=True)
    next(call)
    script.up(Revoked(partitions=epochs(0, 1), at=100.2))
    script.now = 101.0
    call.send(script.now)
    told_now = told(script)
    assert told_now[:3] == [("revoke_requested", [0, 1, 2]), ("completing", [0, 1, 2]), ("revoked", [0, 1])]
    assert [(each.partition, each.at, each.requested_at) for each in told_now[3:]] == [
        (tp(0), 100.2, 100.0),
        (tp(1), 100.2, 100.0),
    ]


def test_what_a_close_could_not_complete_is_told_as_lost(script: Script) -> None:
    call = script.machine.close(script.now, 1.0, leave=True)
    script.run(call)
    last = told(script)[-2:]
    assert last[0].how is last[1].how is OwnershipChange.LOST
    assert script.machine.holdings() == {}


def test_partitions_by_assign_come_and_go_without_a_hand_over() -> None:
    script = Script()
    script.machine.assign([tp(0), tp(1)], now=1.0)
    script.machine.assign([tp(1)], now=2.0)
    assert told(script) == [("assigned", [0, 1]), ("revoked", [0])]
    assert script.machine.holdings()[tp(1)].generation == -1
    script.run(script.machine.close(3.0, 0.0, leave=True))
    assert told(script) == [("revoked", [1])]


def test_a_partition_that_comes_back_at_once_is_handed_over_first(script: Script) -> None:
    script.revocation_requested(0)
    script.poll()
    script.poll()
    told(script)
    script.up(Revoked(partitions=epochs(0), at=100.0), Assigned(generation=2, partitions=epochs(0, epoch=4)))
    script.poll()
    kinds = [each if isinstance(each, tuple) else each.epoch for each in told(script)]
    assert kinds == [("revoked", [0]), 1, ("assigned", [0])]


def test_changes_of_one_moment_are_told_in_their_order(script: Script) -> None:
    script.revocation_requested(0, 1)
    script.reassigned(0)
    script.revocation_requested(0)
    script.poll()
    assert told(script) == [("revoke_requested", [0, 1]), ("reassigned", [0]), ("revoke_requested", [0])]


def test_a_request_counts_from_its_first_word(script: Script) -> None:
    for at in (99.0, 99.5):
        script.up(RevocationRequested(partitions=epochs(0), deadline=400.0, at=at))
    script.poll()
    assert script.machine.holdings()[tp(0)].requested_at == 99.0


@pytest.mark.requirement("surface/rebalances-told")
def test_a_rebalance_is_summed_up_with_what_it_brought(script: Script) -> None:
    script.up(
        Noticed(
            event=RebalanceEnded(
                at=101.0, started_at=99.0, generation=1, reason="r", outcome=RebalanceOutcome.TAKEN, joins=1
            )
        )
    )
    script.poll()
    (first,) = told(script)
    assert (first.assigned, first.revocation_requested, first.delayed) == ((tp(0), tp(1), tp(2)), (), ())
    script.revocation_requested(0, 2)
    script.poll()
    script.delay(2)
    script.up(
        Noticed(
            event=RebalanceEnded(
                at=102.0, started_at=101.0, generation=2, reason="r", outcome=RebalanceOutcome.TAKEN, joins=1
            )
        )
    )
    script.poll()
    (second,) = [each for each in told(script) if isinstance(each, RebalanceEnded)]
    assert (second.assigned, second.revocation_requested, second.delayed) == ((), (tp(0), tp(2)), (tp(2),))


def test_a_risk_of_what_is_ours_no_more_is_not_told(script: Script) -> None:
    risk = DelayAtRisk(at=100.0, partition=tp(0), epoch=1, seconds_left=5.0)
    script.up(Noticed(event=risk), Noticed(event=DelayAtRisk(at=100.0, partition=tp(0), epoch=9, seconds_left=5.0)))
    script.up(Noticed(event=DelayAtRisk(at=100.0, partition=tp(7), epoch=1, seconds_left=5.0)))
    script.poll()
    assert told(script) == [risk]


def test_what_only_the_network_side_sees_is_passed_on_in_its_place(script: Script) -> None:
    stalled = PartitionStalled(
        at=100.0, partition=tp(0), epoch=1, seconds=60.0, cause=StallCause.NO_LEADER, offset=3, end=9, waiting=0
    )
    script.revocation_requested(1)
    script.poll()
    script.up(Noticed(event=stalled))
    script.poll()
    assert told(script) == [("revoke_requested", [1]), stalled, ("completing", [1])]


def test_first_fetches_are_passed_on_in_their_place(script: Script) -> None:
    began = tuple(FetchBegan(at=100.0, partition=tp(p), epoch=1, assigned_at=99.0) for p in range(3))
    script.revocation_requested(1)
    script.poll()
    script.up(FetchesBegan(began=began))
    script.poll()
    assert told(script) == [("revoke_requested", [1]), *began, ("completing", [1])]


class TakenOnce(deque[BackgroundEvent]):
    """Where the first event is taken off something happens: an interrupt, or a handler of a signal."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: list[Callable[[], object]] = []

    def popleft(self) -> BackgroundEvent:
        if self.meanwhile:
            self.meanwhile.pop()()
        return super().popleft()


def interrupt() -> None:
    raise KeyboardInterrupt


FIRST_FETCHES = tuple(FetchBegan(at=100.0, partition=tp(p), epoch=1, assigned_at=99.0) for p in range(3))
SEEN_BY_THE_NETWORK_SIDE = [
    (FetchesBegan(began=FIRST_FETCHES), list(FIRST_FETCHES)),
    (Noticed(event=FIRST_FETCHES[0]), [FIRST_FETCHES[0]]),
]


@pytest.mark.parametrize(("event", "expected"), SEEN_BY_THE_NETWORK_SIDE)
def test_what_the_network_side_saw_is_told_once_after_an_interrupt(
    event: BackgroundEvent, expected: list[FetchBegan]
) -> None:
    queue = TakenOnce()
    script = Script(queue=queue)
    script.up(event)
    queue.meanwhile.append(interrupt)
    with pytest.raises(KeyboardInterrupt):
        script.machine.assignment()
    script.machine.assignment()
    assert told(script) == expected


@pytest.mark.parametrize(("event", "expected"), SEEN_BY_THE_NETWORK_SIDE)
def test_what_the_network_side_saw_is_told_though_a_handler_takes_events(
    event: BackgroundEvent, expected: list[FetchBegan]
) -> None:
    queue, taken = TakenOnce(), list[TelemetryEvent]()
    script = Script(queue=queue)
    before = FetchBegan(at=99.0, partition=tp(7), epoch=1, assigned_at=98.0)
    script.up(Noticed(event=before))
    script.machine.assignment()
    script.up(event)
    queue.meanwhile.append(lambda: taken.extend(script.machine.telemetry()))
    script.machine.assignment()
    assert [*taken, *told(script)] == [before, *expected]


def test_what_a_rebalance_brought_is_told_after_an_interrupt() -> None:
    queue = TakenOnce()
    script = Script(queue=queue)
    script.subscribe()
    script.assigned(0, 1)
    script.poll()
    told(script)
    ended = RebalanceEnded(at=101.0, started_at=99.0, generation=1, reason="r", outcome=RebalanceOutcome.TAKEN, joins=1)
    script.up(Noticed(event=ended))
    queue.meanwhile.append(interrupt)
    with pytest.raises(KeyboardInterrupt):
        script.machine.assignment()
    script.machine.assignment()
    (summary,) = told(script)
    assert summary.assigned == (tp(0), tp(1))


def test_what_was_known_of_an_assignment_that_no_poll_took_is_not_said_of_the_next(script: Script) -> None:
    script.assigned(5, epoch=2)
    script.up(RevocationRequested(partitions={tp(5): 2}, deadline=400.0, at=99.0))
    script.lost(5, epoch=2)
    script.assigned(5, epoch=3)
    script.poll()
    assert script.machine.holdings()[tp(5)].requested_at is None
    assert told(script) == [("assigned", [5])]


def test_an_assignment_of_nothing_tells_nothing(script: Script) -> None:
    script.up(Assigned(generation=2, partitions={}))
    script.poll()
    assert told(script) == []
