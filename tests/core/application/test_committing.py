"""What a commit may speak of: the present epoch and seek number, what is owned, and never backwards."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from application_script import RecordingListener, Script, epochs, tp

from instride._core.application.machine import ApplicationMachine
from instride._core.events import (
    EARLIEST,
    ApplicationEvent,
    Assign,
    Assigned,
    BackgroundEvent,
    CallCompleted,
    CallsCompleted,
    Commit,
    CommitsSettled,
    PartlyCommitted,
    Positioned,
    Wakeup,
)
from instride._core.ownership import RebalanceProtocol
from instride._core.session_lease import Lease
from instride.commits import CommitEntry, CommitOutcome, CommitResult, CommitSnapshot
from instride.config import ConsumerConfig
from instride.errors import (
    CommitFailedError,
    ConfigError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    WakeupError,
)
from instride.errors.broker import error_for_code
from instride.records import OffsetAndMetadata


@pytest.fixture
def owner(script: Script) -> Script:
    script.assigned(0, 1)
    script.fetched(0, 0, 10)
    script.poll()
    script.posted.clear()
    return script


class Settled:
    """A snapshot that notes what became of it."""

    def __init__(self, **entries: CommitEntry) -> None:
        self.outcomes: dict[int, CommitOutcome] = {}
        self.snapshot = CommitSnapshot({tp(int(name[1:])): each for name, each in entries.items()}, self._settled)

    def _settled(self, partition: Any, entry: CommitEntry, outcome: CommitOutcome) -> None:
        assert partition.partition not in self.outcomes, "once"
        self.outcomes[partition.partition] = outcome


def entry(offset: int, *, epoch: int = 1, seek_number: int = 0) -> CommitEntry:
    return CommitEntry(offset=offset, epoch=epoch, seek_number=seek_number)


def hand_over(script: Script, offsets: Any) -> Commit:
    script.machine.commit_async(script.now, offsets)
    return script.take_posted(Commit)[-1]


# --- offsets by hand ----------------------------------------------------------------------------------------


@pytest.mark.requirement("KIP-41/6")
@pytest.mark.rule("full-speed")
def test_without_arguments_it_is_what_the_last_poll_returned(owner: Script) -> None:
    commit = hand_over(owner, None)
    assert {each.partition: said.offset for each, said in commit.entries.items()} == {0: 10, 1: 0}
    owner.fetched(0, 10, 20)
    assert hand_over(owner, None).entries[tp(0)].offset == 10, "what is only buffered was not returned"


def test_without_arguments_it_is_where_a_seek_led_and_of_paused_partitions_too(owner: Script) -> None:
    owner.machine.pause([tp(1)])
    owner.machine.seek(tp(0), 5)
    commit = hand_over(owner, None)
    assert {each.partition: said.offset for each, said in commit.entries.items()} == {0: 5, 1: 0}


def test_without_arguments_a_partition_whose_position_is_not_known_is_left_out(owner: Script) -> None:
    owner.machine.seek(tp(0), EARLIEST)
    assert [each.partition for each in hand_over(owner, None).entries] == [1]


def test_offsets_by_hand_are_stamped_with_the_present_assignment(owner: Script) -> None:
    commit = hand_over(owner, {tp(0): 4, tp(1): OffsetAndMetadata(offset=7, metadata="m", leader_epoch=2)})
    assert commit.entries[tp(0)] == CommitEntry(offset=4, epoch=1, seek_number=0)
    assert commit.entries[tp(1)] == CommitEntry(offset=7, epoch=1, seek_number=0, metadata="m", leader_epoch=2)
    assert commit.carry_over


def test_what_is_not_owned_is_refused_and_nothing_is_sent(owner: Script) -> None:
    with pytest.raises(CommitFailedError, match="t-2"):
        owner.machine.commit_async(owner.now, {tp(0): 4, tp(2): 1})
    assert owner.take_posted(Commit) == []


def test_a_negative_offset_is_refused(owner: Script) -> None:
    with pytest.raises(ValueError, match="negative"):
        owner.machine.commit_async(owner.now, {tp(0): -1})


@pytest.mark.rule("15")
def test_whether_an_offset_goes_back_is_for_the_network_side_to_say(owner: Script) -> None:
    hand_over(owner, {tp(0): 8})
    again = hand_over(owner, {tp(0): 7})
    assert (again.entries[tp(0)].offset, again.by_hand, again.allow_rewind) == (7, True, False)
    owner.machine.commit_async(owner.now, {tp(0): 6}, allow_rewind=True)
    assert owner.take_posted(Commit)[-1].allow_rewind
    assert not hand_over(owner, None).by_hand, "what the last poll returned was named by nobody"
    owner.machine.seek(tp(0), 2)
    assert hand_over(owner, {tp(0): 3}).entries[tp(0)].seek_number == 1


def test_without_a_group_there_is_nothing_to_commit_to() -> None:
    machine = ApplicationMachine(
        ConsumerConfig(bootstrap_servers="b:1"),
        protocol=RebalanceProtocol.COOPERATIVE,
        queue=deque(),
        post=lambda _event: None,
        lease=Lease(),
    )
    with pytest.raises(IllegalStateError, match="group_id"):
        machine.commit_async(100.0, {})
    with pytest.raises(IllegalStateError, match="group_id"):
        next(machine.committed(100.0, [tp(0)], 1.0))
    with pytest.raises(ConfigError, match="group_id"):
        machine.subscribe(["t"], None)


# --- snapshots ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("KIP-983/15")
@pytest.mark.rule("full-speed")
@pytest.mark.parametrize("stale", [entry(4, epoch=0), entry(4, epoch=2), entry(4, seek_number=1)])
def test_what_was_finished_in_another_epoch_or_seek_never_reaches_a_commit(owner: Script, stale: CommitEntry) -> None:
    made = Settled(p0=stale, p1=entry(3))
    commit = hand_over(owner, made.snapshot)
    assert set(commit.entries) == {tp(1)}
    assert made.outcomes == {0: CommitOutcome.STALE}


@pytest.mark.rule("full-speed")
def test_lost_and_assigned_again_within_one_poll_is_another_epoch(owner: Script) -> None:
    made = Settled(p0=entry(4))
    owner.lost(0, 1)
    owner.poll()
    owner.assigned(0, epoch=2)
    owner.poll()
    owner.machine.commit_async(owner.now, made.snapshot)
    assert [each.entries for each in owner.take_posted(Commit)] in ([], [{}])
    assert made.outcomes == {0: CommitOutcome.STALE}


@pytest.mark.parametrize("error", [None, RebalanceInProgressError("later")])
def test_each_entry_is_settled_by_its_own_response(owner: Script, error: KafkaError | None) -> None:
    made = Settled(p0=entry(4), p1=entry(3))
    call = owner.machine.commit_async(owner.now, made.snapshot)
    assert made.outcomes == {}
    owner.up(CallCompleted(call=call, committed={tp(0): None, tp(1): error}))
    owner.poll()
    assert made.outcomes == {
        0: CommitOutcome.COMMITTED,
        1: CommitOutcome.COMMITTED if error is None else CommitOutcome.FAILED,
    }


def partly(call: int, *partitions: int) -> PartlyCommitted:
    return PartlyCommitted(calls=(CallCompleted(call=call, committed=dict.fromkeys(map(tp, partitions))),))


@pytest.mark.rule("17")
def test_an_entry_is_settled_while_its_commit_waits_for_another(owner: Script) -> None:
    """Else the ledger would delay the hand-over of a partition whose commit was accepted."""
    made = Settled(p0=entry(4), p1=entry(3))
    call = owner.machine.commit_async(owner.now, made.snapshot)
    owner.up(partly(call, 0))
    owner.poll()
    assert made.outcomes == {0: CommitOutcome.COMMITTED}
    assert owner.heard_commits == [], "an interceptor hears of a whole commit"
    owner.up(CallCompleted(call=call, committed={tp(0): None, tp(1): None}))
    owner.poll()
    assert made.outcomes == {0: CommitOutcome.COMMITTED, 1: CommitOutcome.COMMITTED}
    assert owner.heard_commits == [{0: 4, 1: 3}]


def test_a_commit_that_the_close_ends_is_settled_as_to_what_it_waited_for(owner: Script) -> None:
    made = Settled(p0=entry(4), p1=entry(3))
    owner.up(partly(owner.machine.commit_async(owner.now, made.snapshot), 0))
    owner.run(owner.machine.close(owner.now, 0.0, leave=True))
    assert made.outcomes == {0: CommitOutcome.COMMITTED, 1: CommitOutcome.FAILED}


def test_what_a_handler_settles_within_a_settlement_is_settled_once(owner: Script) -> None:
    """A handler of a signal may drain at any line: here it takes the response to the whole commit."""
    settled: list[int] = []

    def drains(partition: Any, entry: CommitEntry, outcome: CommitOutcome) -> None:
        settled.append(partition.partition)
        owner.machine.commit_async(owner.now, {})

    call = owner.machine.commit_async(owner.now, CommitSnapshot({tp(0): entry(4), tp(1): entry(3)}, drains))
    owner.up(partly(call, 0, 1), CallCompleted(call=call, committed={tp(0): None, tp(1): None}))
    owner.poll()
    assert settled == [0, 1]


@pytest.mark.rule("completing")
@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (UnknownTopicOrPartitionError("gone"), True),
        (TopicAuthorizationFailedError("READ was revoked"), True),
        (CommitFailedError("no member"), False),
        (OffsetMetadataTooLargeError("too long"), False),
        (error_for_code(-1), False),  # a request with too many partitions, say
        (error_for_code(28), False),
        (KafkaTimeoutError("late"), False),
        (RebalanceInProgressError("later"), False),
    ],
)
def test_what_no_retry_mends_is_settled_as_refused(owner: Script, error: KafkaError, refused: bool) -> None:
    made = Settled(p0=entry(4), p1=entry(3))
    call = owner.machine.commit_async(owner.now, made.snapshot)
    owner.up(CallCompleted(call=call, error=error, committed={tp(0): None, tp(1): error}))
    owner.poll()
    assert made.outcomes == {
        0: CommitOutcome.COMMITTED,
        1: CommitOutcome.REFUSED if refused else CommitOutcome.FAILED,
    }


def test_a_response_that_is_an_error_as_a_whole_settles_all_as_failed(owner: Script) -> None:
    made = Settled(p0=entry(4), p1=entry(3))
    call = owner.machine.commit_async(owner.now, made.snapshot)
    owner.up(CallCompleted(call=call, error=KafkaTimeoutError("late")))
    owner.poll()
    assert set(made.outcomes.values()) == {CommitOutcome.FAILED}


@pytest.mark.rule("13")
def test_responses_that_came_as_one_are_settled_each_and_an_interrupt_loses_none(owner: Script) -> None:
    def interrupted(partition: Any, entry: CommitEntry, outcome: CommitOutcome) -> None:
        raise KeyboardInterrupt

    made = [Settled(p0=entry(4)), Settled(p0=entry(5)), Settled(p1=entry(3))]
    made[0].snapshot = CommitSnapshot({tp(0): entry(4)}, interrupted)
    calls = [owner.machine.commit_async(owner.now, each.snapshot) for each in made]
    completed = (CallCompleted(call=call, committed={tp(0): None, tp(1): None}) for call in calls)
    owner.up(CallsCompleted(calls=tuple(completed)))
    with pytest.raises(KeyboardInterrupt):
        owner.poll()
    assert made[1].outcomes == {}
    owner.poll()
    committed = CommitOutcome.COMMITTED
    assert [each.outcomes for each in made] == [{}, {0: committed}, {1: committed}]


@pytest.mark.requirement("KIP-983/6")
@pytest.mark.rule("completing")
def test_a_completing_partition_takes_commits_only_while_its_listener_runs() -> None:
    script = Script()
    heard: list[str] = []

    class Committing(RecordingListener):
        def on_partitions_revoked(self, partitions: Any) -> None:
            super().on_partitions_revoked(partitions)
            heard.extend(str(each) for each in hand_over(script, {tp(0): 4}).entries)

    script.subscribe(Committing())
    script.assigned(0, 1)
    script.poll()
    script.revocation_requested(0)
    script.poll()
    script.poll()
    posted = hand_over(script, {tp(0): 4, tp(1): 2})
    assert (set(posted.entries), set(posted.dropped)) == ({tp(1)}, {tp(0)}), "one keeps no other from being committed"
    assert isinstance(posted.dropped[tp(0)], CommitFailedError)
    assert "completing" in str(posted.dropped[tp(0)])
    made = Settled(p0=entry(4), p1=entry(1))
    assert set(hand_over(script, made.snapshot).entries) == {tp(1)}
    assert made.outcomes == {0: CommitOutcome.FAILED}
    script.up(CommitsSettled(partitions=epochs(0)))
    script.poll()
    assert heard == ["t-0"]
    assert script.assignment() == {1}


# --- waiting ------------------------------------------------------------------------------------------------


def committing(owner: Script, timeout: float = 10.0, **options: Any) -> tuple[Any, Commit]:
    options.setdefault("carry_over", True)
    call = owner.machine.commit(owner.now, {tp(0): 4}, timeout, **options)
    owner.start(call)
    return call, owner.take_posted(Commit)[-1]


@pytest.mark.requirement("threading/4")
def test_a_blocking_commit_ends_with_its_response(owner: Script) -> None:
    call, commit = committing(owner)
    result = CommitResult(committed={tp(0): OffsetAndMetadata(offset=4)})
    owner.up(CallCompleted(call=commit.call, result=result, committed={tp(0): None}))
    with pytest.raises(StopIteration) as end:
        call.send(owner.now)
    assert end.value.value is result


def test_a_blocking_commit_ends_with_the_last_of_its_partitions(owner: Script) -> None:
    call = owner.machine.commit(owner.now, {tp(0): 4, tp(1): 3}, 10.0, carry_over=True)
    next(call)
    (sent,) = owner.take_posted(Commit)
    owner.up(partly(sent.call, 0))
    call.send(owner.now)
    owner.up(CallCompleted(call=sent.call, result=CommitResult()))
    with pytest.raises(StopIteration):
        call.send(owner.now)


def test_a_blocking_commit_raises_the_error_of_its_response(owner: Script) -> None:
    call, commit = committing(owner)
    gone = CommitFailedError("gone")
    owner.up(CallCompleted(call=commit.call, error=gone, committed={tp(0): gone}))
    with pytest.raises(CommitFailedError, match="gone"):
        call.send(owner.now)


def test_another_calls_response_does_not_end_it(owner: Script) -> None:
    call, commit = committing(owner)
    owner.up(CallCompleted(call=commit.call + 100))
    assert call.send(owner.now).until == pytest.approx(owner.now + 10.5)


@pytest.mark.requirement("threading/4")
@pytest.mark.rule("T")
def test_a_blocking_commit_whose_response_never_comes_ends_soon_after_its_timeout(owner: Script) -> None:
    call, _ = committing(owner, timeout=10.0)
    with pytest.raises(KafkaTimeoutError):
        owner.run(call_rest(call, owner))
    assert owner.now == pytest.approx(110.5)


def call_rest(call: Any, owner: Script) -> Any:
    """The rest of a call that waits already."""
    wait = call.send(owner.now)
    while True:
        now = yield wait
        wait = call.send(now)


@pytest.mark.requirement("threading/23")
def test_a_wakeup_ends_a_blocking_commit_once(owner: Script) -> None:
    call, _ = committing(owner)
    owner.up(Wakeup())
    with pytest.raises(WakeupError):
        call.send(owner.now)
    assert owner.poll() == []


@pytest.mark.requirement("KIP-429/16")
def test_a_commit_that_may_not_wait_says_so(owner: Script) -> None:
    _, commit = committing(owner, carry_over=False)
    assert not commit.carry_over
    assert commit.deadline == owner.now + 10.0


# --- auto-commit --------------------------------------------------------------------------------------------


@pytest.mark.requirement("KIP-983/5")
@pytest.mark.vector(70)
@pytest.mark.vector(71)
def test_auto_commit_is_of_what_earlier_polls_returned_each_interval() -> None:
    script = Script(enable_auto_commit=True, auto_commit_interval=5.0)
    script.subscribe()
    script.assigned(0)
    script.fetched(0, 0, 10)
    script.poll()
    assert script.take_posted(Commit) == [], "nothing was returned before that poll"
    script.fetched(0, 10, 20)
    script.now += 5.0
    assert script.poll() == [(0, 10, 20)]
    (commit,) = script.take_posted(Commit)
    assert commit.entries[tp(0)].offset == 10
    script.now += 4.9
    script.poll()
    assert script.take_posted(Commit) == []


@pytest.mark.requirement("threading/17")
@pytest.mark.requirement("threading/26")
@pytest.mark.rule("completing")
def test_auto_commit_speaks_for_a_partition_before_its_revoke_completes() -> None:
    script = Script(enable_auto_commit=True, auto_commit_interval=3600.0)
    script.subscribe()
    script.assigned(0, 1)
    script.fetched(1, 0, 10)
    script.poll()
    script.revocation_requested(1)
    script.poll()
    script.posted.clear()
    script.poll()
    kinds = [type(event).__name__ for event in script.posted]
    assert kinds.index("Commit") < kinds.index("CompleteRevoke")
    assert script.take_posted(Commit)[0].entries.keys() == {tp(1)}


# --- who hears of it ----------------------------------------------------------------------------------------


def test_what_was_committed_is_told_and_what_failed_is_not(owner: Script) -> None:
    commit = hand_over(owner, {tp(0): 5, tp(1): 6})
    owner.up(CallCompleted(call=commit.call, committed={tp(0): None, tp(1): RebalanceInProgressError("later")}))
    failed = hand_over(owner, {tp(1): 7})
    owner.up(CallCompleted(call=failed.call, error=KafkaTimeoutError("late")))
    owner.poll()
    assert owner.heard_commits == [{0: 5}]


def test_an_auto_commit_is_told_as_well() -> None:
    script = Script(enable_auto_commit=True)
    script.subscribe()
    script.assigned(0)
    script.fetched(0, 0, 10)
    script.poll()
    script.now += 5.0
    script.poll()
    (commit,) = script.take_posted(Commit)
    script.up(CallCompleted(call=commit.call, committed={tp(0): None}))
    script.poll()
    assert script.heard_commits == [{0: 10}]


def test_the_number_of_the_response_is_known_before_anything_is_sent(owner: Script) -> None:
    heard: list[tuple[int, int]] = []
    call = owner.machine.commit_async(
        owner.now, {tp(0): 4}, on_call=lambda number: heard.append((number, len(owner.take_posted(Commit))))
    )
    assert heard == [(call, 0)]
    (sent,) = owner.take_posted(Commit)
    assert sent.call == call
    owner.machine.commit_async(owner.now, {}, on_call=lambda number: heard.append((number, -1)))
    assert heard == [(call, 0)], "of an empty commit nothing is sent"


def test_without_an_interceptor_a_commit_by_hand_is_sent_and_returns_as_ever() -> None:
    queue: deque[BackgroundEvent] = deque()
    posted: list[ApplicationEvent] = []
    config = ConsumerConfig(bootstrap_servers="b:1", group_id="g")
    machine = ApplicationMachine(
        config, protocol=RebalanceProtocol.COOPERATIVE, queue=queue, post=posted.append, lease=Lease()
    )
    machine.subscribe(["t"], None)
    queue.append(Assigned(generation=1, partitions=epochs(0)))
    with pytest.raises(StopIteration):
        next(machine.poll(100.0, 0.0, immediate=False, limit=-1))
    call = machine.commit(100.0, {tp(0): 4}, 10.0, carry_over=True)
    next(call)
    (sent,) = (each for each in posted if isinstance(each, Commit))
    queue.append(CallCompleted(call=sent.call, committed={tp(0): None}))
    with pytest.raises(StopIteration):
        call.send(100.0)


def test_auto_commit_speaks_for_what_another_assign_lets_go_of() -> None:
    """No revoke and no later poll will."""
    script = Script(enable_auto_commit=True)
    script.machine.assign([tp(0), tp(1)])
    script.poll()
    for number in (0, 1):
        script.up(Positioned(partition=tp(number), epoch=number + 1, seek_number=0, offset=0))
    script.fetched(0, 0, 4)
    script.poll()
    script.posted.clear()
    script.machine.assign([tp(1)])
    commit, assign = script.posted
    assert isinstance(commit, Commit)
    assert {each.partition: entry.offset for each, entry in commit.entries.items()} == {0: 4}
    assert isinstance(assign, Assign), "the commit comes first"
