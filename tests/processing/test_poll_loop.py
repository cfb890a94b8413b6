"""`Rounds`: what the loop does about errors of a consumer's verbs, verb by verb."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from engine_help import desk_of, keyed
from processing_help import P0, P1, tp

from instride import OffsetAndMetadata, TopicPartition
from instride._core.session_lease import Lease, Standing
from instride._processing.engine import Engine, EnginePlan, Task
from instride._processing.poll_loop import Drains, Pace, Rounds, Verb
from instride._processing.retries import NO_RETRY, Failures, SkipRecord
from instride._processing.store_positions import StorePositions
from instride.commits import CommitResult
from instride.consumer_records import ConsumerRecords
from instride.errors import (
    ConsumerClosedError,
    CorruptRecordError,
    DeadLettersUnwrittenError,
    DrainTimeoutError,
    GroupAuthorizationFailedError,
    KafkaError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    NotLeaderOrFollowerError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    WakeupError,
)

LETTERS = Failures(retry=NO_RETRY, after="dead-letter", has_dead_letters=True)


class Nobody:
    """An executor without work."""

    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    def cancel(self, tasks: Sequence[Task]) -> None: ...


class Script:
    """Gives verbs their results; what is in `results` first. An error is raised, a function is called with its verb.

    started: offsets that were committed without records.
    """

    def __init__(
        self, *, pace: Pace | None = None, plan: EnginePlan | None = None, has_store: bool = False, **results: list[Any]
    ) -> None:
        self.now = 0.0
        self.results = results
        self.verbs: list[Verb] = []
        self.committed: list[OffsetAndMetadata] = []
        self.started: dict[TopicPartition, int] = {}
        self.said: list[str] = []
        self.engine = Engine(plan or EnginePlan(), lambda _: 1)
        self.executor = Nobody()
        self.rounds = Rounds(
            self.engine,
            self.executor,
            pace=pace or Pace(),
            guard=nullcontext(),
            clock=lambda: self.now,
            has_store=has_store,
        )

    def play(self, until: Callable[[], bool] = lambda: False) -> None:
        verbs = self.rounds.run(["t"])
        verb = next(verbs)
        try:
            while not until():
                result = self._result(verb)
                verb = verbs.throw(result) if isinstance(result, BaseException) else verbs.send(result)
        except StopIteration:
            pass

    def bring(self, partition: TopicPartition, keys: str) -> None:
        """Records, and where the partition begins."""
        self.engine.submit(keyed(partition, keys))
        self.engine.locate(partition, OffsetAndMetadata(offset=0))

    def take(self) -> Task:
        task = self.engine.take(0.0)
        assert isinstance(task, Task)
        return task

    def _result(self, verb: Verb) -> Any:
        self.said.append(verb.name)
        self.verbs.append(verb)
        if verb.name == "commit":
            self.committed += verb.args[0].values()
        if verb.name == "commit_async" and isinstance(verb.args[0], dict):
            self.started |= {partition: each.offset for partition, each in verb.args[0].items()}
        assert len(self.said) < 2_000
        waiting = self.results.get(verb.name)
        if waiting:
            found = waiting.pop(0)
            return found(verb) if callable(found) else found
        return ConsumerRecords() if verb.name == "poll" else set()


def test_an_error_of_a_partition_is_noted_and_polls_go_on(caplog: pytest.LogCaptureFixture) -> None:
    script = Script(
        poll=[CorruptRecordError("t-0 at offset 7", topic="t", partition=0, offset=7), WakeupError("woken")]
    )
    script.play(until=lambda: script.said.count("poll") == 4)
    assert script.rounds.error is None
    assert "t-0 at offset 7" in caplog.text
    assert "woken" not in caplog.text


@pytest.mark.parametrize("fails", [True, False])
def test_what_ends_before_the_first_poll_joins_no_group(fails: bool) -> None:
    """A set-up that failed, or was stopped, would cause a rebalance for nothing."""
    script = Script()
    if fails:
        script.engine.failure = LookupError("no database")
    else:
        script.rounds.stop()
    script.play()
    assert "subscribe" not in script.said
    assert script.said[-1] == "close"
    assert isinstance(script.rounds.error, LookupError) == fails


def test_errors_of_many_partitions_hold_up_no_poll_and_nothing_that_is_due() -> None:
    """Each is raised once by a poll of its own; the same one again would make the loop spin."""
    many = [TopicAuthorizationFailedError(f"t-{number}: READ was revoked") for number in range(5)]
    script = Script(poll=[*many, many[4], ConsumerRecords(), many[4]])
    script.play(until=lambda: script.said.count("poll") == 9)
    assert [each for each in script.said if each in ("poll", "sleep")] == [*["poll"] * 6, "sleep", *["poll"] * 3]
    assert script.executor.woken == 8, "after each poll, also after one that raised"


def test_an_error_that_each_partition_of_a_topic_raises_holds_up_no_poll() -> None:
    """It names the topic alone, as where READ was revoked. More often than each partition could, and it spins."""
    errors = [TopicAuthorizationFailedError("not authorised to read topic 't': it needs Read") for _ in range(7)]
    script = Script(poll=[*errors], committed=[KafkaTimeoutError("not yet")] * 99)
    script.rounds.on_partitions_assigned([tp(number) for number in range(6)])
    script.rounds.on_partitions_revoked([tp(5)])
    script.play(until=lambda: script.said.count("poll") == 8)
    assert "".join(each[0] for each in script.said if each in ("poll", "sleep")) == "ppppppspsp"


@pytest.mark.parametrize("error", [GroupAuthorizationFailedError("no"), ConsumerClosedError("by somebody")])
def test_an_error_that_ends_the_consumer_ends_the_rounds(error: KafkaError) -> None:
    script = Script(poll=[error], lost_partitions=[ConsumerClosedError("by somebody, too")])
    script.play()
    assert script.rounds.error is error
    assert script.rounds.is_ended
    assert script.said[-1] == "close"


@pytest.mark.parametrize("error", [ValueError("nobody expects it"), SystemExit(3)])
def test_by_whatever_a_round_ends_its_end_is_in_order(error: BaseException) -> None:
    """What is finished is committed, what is at work given up, and nothing more started."""
    script = Script(poll=[error])
    engine = script.engine
    script.bring(P0, "---")
    first, second = script.take(), script.take()
    engine.end(first, None, 0.0, 0.5)
    script.play()
    assert script.rounds.error is error
    assert script.rounds.is_ended
    assert script.said == ["subscribe", "poll", "commit", "close"]
    assert [each.offset for each in script.committed] == [1]
    assert second.over
    assert engine.take(0.0) is None


@pytest.mark.parametrize("cancels_in_time", [False, True])
def test_a_second_before_the_deadline_what_is_at_work_is_given_up_by_name(
    cancels_in_time: bool, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script(
        pace=Pace(cancels_in_time=cancels_in_time),
        to_be_revoked_partitions=[{P0}, {P0}, {P0}],
        revoke_deadline=[7.0, 0.9],
    )
    script.bring(P0, "--")
    task = script.take()
    script.play(until=lambda: script.said.count("poll") == 2)
    assert not task.over
    script.play(until=lambda: script.said.count("poll") == 4)
    assert task.over == cancels_in_time
    assert (
        "the deadline of its hand-over: abandoned while in progress: t-0 at offset 0" in caplog.text
    ) == cancels_in_time


@pytest.mark.rule("completing")
def test_a_commit_that_is_refused_for_good_delays_its_hand_over_for_one_round() -> None:
    error = TopicAuthorizationFailedError("t: READ was revoked")

    def refuse(verb: Verb) -> Future[CommitResult]:
        (snapshot,), future = verb.args, Future[CommitResult]()
        for partition, entry in snapshot.entries.items():
            snapshot.settle(partition, entry, committed=False, refused=True)
        future.set_exception(error)
        return future

    script = Script(commit_async=[refuse] * 9, to_be_revoked_partitions=[{P0}] * 9)
    script.bring(P0, "-")
    task = script.take()
    script.engine.end(task, None, 0.0, 0.5)
    script.play(until=lambda: script.said.count("poll") == 5)
    assert (script.said.count("commit_async"), script.said.count("delay_revoke")) == (1, 1)
    assert script.rounds.error is None


@pytest.mark.rule("16")
def test_after_a_suspension_nothing_is_started_before_a_poll_has_told_what_was_lost() -> None:
    """Neither while the lease of the poll is over, nor under the one of the next membership."""
    lease = Lease()
    script = Script(poll=[ConsumerRecords((), Standing(lease, 0)), ConsumerRecords((), Standing(lease, 1))])
    engine, rounds = script.engine, script.rounds
    desk = desk_of(engine, may_start=rounds.may_start)
    script.bring(P0, "--")
    script.play(until=lambda: script.said.count("poll") == 2)
    lease.expires = -1.0
    assert desk.next_task() is None
    lease.number, lease.expires = 1, 30.0
    assert desk.next_task() is None
    script.play(until=lambda: script.said.count("poll") == 4)
    assert desk.next_task() is not None


@pytest.mark.rule("1")
@pytest.mark.parametrize("error", [WakeupError("woken"), KafkaTimeoutError("-"), GroupAuthorizationFailedError("no")])
def test_no_verb_names_what_a_poll_lost_before_it_raised(error: KafkaError) -> None:
    """It was paused, and its queue is empty: to resume what is not ours would end the run."""
    script = Script(plan=EnginePlan(order="none", max_records=12))
    script.bring(P0, "aaaa")
    script.play(until=lambda: script.said[-1:] == ["pause"])
    tasks = [script.engine.take(0.0) for _ in range(4)]
    script.results |= {"poll": [error], "lost_partitions": [{P0}], "resume": [ValueError("t-0 is not assigned")]}
    script.play(until=lambda: script.said.count("poll") == 3)
    assert script.rounds.error is (error if error.fatal else None)
    assert "resume" not in script.said
    assert [task.over for task in tasks if task is not None] == [True] * 4


def test_a_wakeup_that_comes_late_spoils_no_close() -> None:
    """Nor does it give it more time."""

    def woken(_: Verb) -> WakeupError:
        script.now += 20.0
        return WakeupError("late")

    script = Script(pace=Pace(close_timeout=30.0), close=[woken])
    script.rounds.stop()
    script.play()
    assert script.said[-2:] == ["close", "close"]
    assert [each.kwargs["timeout"] for each in script.verbs[-2:]] == [30.0, 10.0]
    assert script.rounds.error is None


def test_where_partitions_begin_is_asked_again_until_it_is_known() -> None:
    script = Script(
        committed=[KafkaTimeoutError("no coordinator"), WakeupError("woken"), {}], topic_ids=[{}], position=[5]
    )
    script.rounds.on_partitions_assigned([P0])
    script.play(until=lambda: script.said.count("poll") == 5)
    assert script.said.count("committed") == 3


@pytest.mark.rule("17")
@pytest.mark.parametrize("refuses", ["committed", "topic_ids"])
def test_a_topic_that_is_refused_keeps_no_other_from_starting(refuses: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is asked about once a second, and the log says so once, until it is refused no more."""
    forbidden = TopicPartition("u", 0)
    is_refused = [True]

    def answer(verb: Verb) -> Any:
        names = {each if isinstance(each, str) else each.topic for each in verb.args}
        return TopicAuthorizationFailedError("u: no") if is_refused[0] and "u" in names else {P0: None}

    def asked() -> int:
        return sum(any(each in ("u", forbidden) for each in verb.args) for verb in script.verbs if verb.name == refuses)

    def poll(_: Verb) -> ConsumerRecords:
        script.now += 0.1
        return ConsumerRecords()

    script = Script(position=[7] * 9, poll=[poll] * 99, committed=[{}] * 99, topic_ids=[{}] * 99)
    script.results[refuses] = [answer] * 99
    script.rounds.on_partitions_assigned([P0, forbidden])
    script.play(until=lambda: script.said.count("poll") == 2)
    assert script.started == {P0: 7}
    assert asked() == 2, "with the other one, and alone"
    script.play(until=lambda: script.now > 4.0)
    assert asked() in (5, 6)
    assert len([each for each in caplog.messages if "partitions of u begin" in each]) == 1
    is_refused[0] = False
    script.play(until=lambda: forbidden in script.started)
    script.rounds.on_partitions_assigned([forbidden])
    is_refused[0] = True
    script.play(until=lambda: len([each for each in caplog.messages if "partitions of u begin" in each]) == 2)


@pytest.mark.parametrize("stops", [False, True])
def test_topics_that_are_asked_about_one_by_one_hold_no_poll_up(*, stops: bool) -> None:
    """One is refused, and the coordinator is slow."""
    partitions = [TopicPartition(f"t{number}", 0) for number in range(9)]
    polled_at: list[float] = []

    def answer(verb: Verb) -> Any:
        if len(verb.args) > 1 and partitions[0] in verb.args:
            return TopicAuthorizationFailedError("t0: no")
        script.now += 0.7
        if stops:
            script.rounds.stop()
        return TopicAuthorizationFailedError("t0: no") if partitions[0] in verb.args else {}

    def poll(_: Verb) -> ConsumerRecords:
        polled_at.append(script.now)
        return ConsumerRecords()

    script = Script(position=[7] * 9, poll=[poll] * 99, committed=[answer] * 99, topic_ids=[{}] * 99)
    script.rounds.on_partitions_assigned(partitions)
    if stops:
        script.play()
        assert script.said.count("committed") == 2, "about all together, and about one"
        return
    script.play(until=lambda: set(partitions[1:]) <= set(script.started))
    assert max(later - before for before, later in pairwise(polled_at)) < 2.0


@pytest.mark.rule("17")
def test_of_topics_that_are_asked_about_one_by_one_a_slow_one_is_not_always_first() -> None:
    """One is refused."""
    slow, refused, other = (TopicPartition(name, 0) for name in "abc")

    def answer(verb: Verb) -> Any:
        if refused in verb.args:
            return TopicAuthorizationFailedError("b: no")
        script.now += 1.0
        return KafkaTimeoutError("no coordinator") if slow in verb.args else {}

    script = Script(position=[7], committed=[answer] * 99, topic_ids=[{}] * 99)
    script.rounds.on_partitions_assigned([slow, refused, other])
    script.play(until=lambda: other in script.started or script.now > 20.0)
    assert script.started == {other: 7}


@pytest.mark.rule("17")
def test_a_topic_that_is_refused_again_after_a_revocation_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    script = Script(committed=[TopicAuthorizationFailedError("t: no")] * 9)
    for _ in range(2):
        script.said.clear()
        script.rounds.on_partitions_assigned([P0])
        script.play(until=lambda: script.said[-2:] == ["committed", "poll"])
        script.rounds.on_partitions_lost([P0])
    assert len([each for each in caplog.messages if "partitions of t begin" in each]) == 2


@pytest.mark.rule("18")
def test_partitions_without_a_leader_hold_no_poll_up() -> None:
    """Fifty of which nobody knows where they begin, and one of which it is known."""
    partitions = [tp(number) for number in range(51)]
    script = Script(committed=[{}] * 9, topic_ids=[{}] * 9)

    def position(verb: Verb) -> int | KafkaError:
        if verb.args == (partitions[-1],):
            return 7
        script.now += verb.kwargs["timeout"]
        return KafkaTimeoutError("no leader")

    script.results["position"] = [position] * 1_000
    script.rounds.on_partitions_assigned(partitions)
    script.play(until=lambda: script.said.count("poll") == 3)
    assert script.now < 0.1
    assert script.started == {partitions[-1]: 7}
    assert script.said.count("committed") == 1, "that the group has nothing is known"


@pytest.mark.rule("18")
@pytest.mark.parametrize("error", [WakeupError("woken"), KafkaTimeoutError("no leader"), NotLeaderOrFollowerError("-")])
def test_a_start_that_is_not_known_at_first_is_committed_later(error: KafkaError) -> None:
    script = Script(committed=[{}], topic_ids=[{}], position=[error, 7])
    script.rounds.on_partitions_assigned([P0])
    script.play(until=lambda: script.said.count("poll") == 5)
    assert script.started == {P0: 7}
    assert (script.said.count("position"), script.rounds.error) == (2, None)


@pytest.mark.rule("18")
@pytest.mark.parametrize("end", [ValueError("not assigned"), NoOffsetForPartitionError("none"), "revoked", "records"])
def test_of_what_has_no_start_to_commit_any_more_none_is_asked_for(end: Any) -> None:
    """It is not ours; or it waits for a seek; or records have come, and the engine commits where it begins."""
    script = Script(committed=[{}] * 5, topic_ids=[{}] * 5, position=[KafkaTimeoutError("no leader")] * 5)
    if isinstance(end, Exception):
        script.results["position"] = [end]
    script.rounds.on_partitions_assigned([P0])
    script.play(until=lambda: script.said[-2:-1] == ["position"])
    if end == "revoked":
        script.rounds.on_partitions_revoked([P0])
    if end == "records":
        script.engine.submit(keyed(P0, "--"))
        script.results["commit_async"] = [Future()]
    script.play(until=lambda: script.said.count("poll") == 6)
    assert script.said.count("position") == 1


@pytest.mark.rule("18")
def test_an_error_that_ends_the_consumer_is_heard_while_it_is_asked_where_it_begins() -> None:
    """It is told once, to whoever asks first."""
    error = GroupAuthorizationFailedError("no")
    script = Script(committed=[{}], topic_ids=[{}], position=[error])
    script.rounds.on_partitions_assigned([P0])
    script.play()
    assert script.rounds.error is error


def test_no_poll_is_late_before_the_loop_begins() -> None:
    """A set-up may take longer than max_poll_interval."""
    script = Script()
    script.now = 1e6
    assert script.now - script.rounds.polled_at < 1
    seen = []

    def poll(_: Verb) -> ConsumerRecords:
        seen.append(script.rounds.polled_at)
        return ConsumerRecords()

    script.results["poll"] = [poll]
    script.play(until=lambda: bool(seen))
    assert seen == [1e6]


def test_a_stop_asks_nobody_where_partitions_begin() -> None:
    script = Script(committed=[{}] * 5, topic_ids=[{}] * 5, position=[KafkaTimeoutError("no leader")] * 5)
    script.rounds.on_partitions_assigned([P0])
    script.rounds.stop()
    script.play()
    assert not {"committed", "position"} & set(script.said)


def test_a_stop_ends_the_questions_where_partitions_begin() -> None:
    script = Script(committed=[{}], topic_ids=[{}])

    def position(_: Verb) -> KafkaError:
        script.rounds.stop()
        return WakeupError("woken by the stop")

    script.results["position"] = [position] * 2
    script.rounds.on_partitions_assigned([P0, P1])
    script.play()
    assert script.said.count("position") == 1


def test_where_the_database_says_otherwise_it_seeks_and_resumes() -> None:
    """What came from where the group says filled its share, so that it was paused."""
    script = Script(
        plan=EnginePlan(max_records=12),
        has_store=True,
        committed=[KafkaTimeoutError("not yet"), {P0: OffsetAndMetadata(offset=0)}],
        topic_ids=[{}],
        stored=[{P0: 5}],
    )
    script.rounds.on_partitions_assigned([P0])
    script.engine.submit(keyed(P0, "a" * 8))
    script.play(until=lambda: script.said.count("committed") == 2 and script.said[-1] == "poll")
    told = [verb for verb in script.verbs if verb.name in ("pause", "seek", "resume")]
    assert told == [Verb("pause", (P0,)), Verb("seek", (P0, 5)), Verb("resume", (P0,))]
    assert script.engine.records == 0
    script.engine.submit([record for record in keyed(P0, "a" * 8, epoch=2) if record.offset >= 5])
    assert script.engine.queued == 3, "it is known where it begins"


@pytest.mark.rule("18")
def test_where_the_log_has_lost_the_row_it_is_read_from_its_beginning(caplog: pytest.LogCaptureFixture) -> None:
    """A reset would lead to an end behind what the group has begun with; and the database lacks what the log has."""

    def poll(_: Verb) -> ConsumerRecords:
        script.now += 0.5
        return ConsumerRecords()

    script = Script(
        has_store=True,
        poll=[poll] * 99,
        committed=[{P0: OffsetAndMetadata(offset=200)}] * 9,
        topic_ids=[{}] * 9,
        stored=[{P0: 5}] * 9,
        beginning_offsets=[KafkaTimeoutError("no leader"), {P0: 100}],
    )
    script.rounds.on_partitions_assigned([P0])
    script.play(until=lambda: script.started != {})
    assert [verb.args for verb in script.verbs if verb.name == "seek"] == [(P0, 100)]
    assert script.started == {P0: 100}
    assert "t-0: its row in the database is at 5, and its log begins at 100" in caplog.text


A, B = UUID(int=1), UUID(int=2)


def silent(*, seconds: float = 0.5, hangs: bool = False, **results: list[Any]) -> tuple[Script, list[Future[Any]]]:
    """A database that answers by and by, and its answers to come; a round of so many seconds. Its group has nothing.
    hangs: nobody can cancel what it is asked."""
    answers: list[Future[Any]] = []

    def poll(_: Verb) -> ConsumerRecords:
        script.now += seconds
        return ConsumerRecords()

    def ask(_: Verb) -> Future[Any]:
        answers.append(Future())
        if hangs:
            answers[-1].set_running_or_notify_cancel()
        return answers[-1]

    script = Script(has_store=True, poll=[poll] * 99, stored=[ask] * 99, position=[7] * 99)
    script.results |= {"committed": [{}] * 99, "topic_ids": [{}] * 99, **results}
    return script, answers


def asked_of(script: Script) -> list[dict[TopicPartition, UUID | None]]:
    return [verb.args[0] for verb in script.verbs if verb.name == "stored"]


def polls(script: Script, number: int) -> Callable[[], bool]:
    """So many more."""
    end = script.said.count("poll") + number
    return lambda: script.said.count("poll") == end


def test_a_silent_database_holds_up_no_poll_and_is_asked_once(caplog: pytest.LogCaptureFixture) -> None:
    """And where it waits the group is not asked in each round. An answer that came has priority over the group's."""
    script, answers = silent()
    script.rounds.on_partitions_assigned([P0, P1])
    script.play(until=polls(script, 2))
    assert caplog.text == ""
    script.play(until=polls(script, 6))
    assert asked_of(script) == [{P0: None, P1: None}]
    assert script.said.count("committed") == 1
    assert caplog.messages == ["the database has not said yet where partitions begin, so they wait"]
    answers[0].set_result({P1: 5})
    script.play(until=lambda: len(script.started) == 2)
    assert script.started == {P0: 7, P1: 5}, "of P0 it has no row"
    assert len(answers) == 1


def test_a_question_that_nobody_answers_is_asked_anew_after_a_long_patience(caplog: pytest.LogCaptureFixture) -> None:
    """After a failover nobody serves the connection any more, and the database is back. Each time it has longer."""
    script, answers = silent(seconds=20.0, hangs=True)
    asked_at: list[float] = []
    ask = script.results["stored"][0]

    def stored(verb: Verb) -> Future[Any]:
        asked_at.append(script.now)
        found: Future[Any] = ask(verb)
        return found

    script.results["stored"] = [stored] * 9
    script.rounds.on_partitions_assigned([P0])
    script.play(until=lambda: len(answers) == 4)
    assert asked_at == [20.0, 80.0, 200.0, 440.0]
    assert caplog.messages == ["the database has not said yet where partitions begin, so they wait"] * 3
    answers[0].set_result({P0: 1})
    answers[3].set_result({P0: 5})
    script.play(until=lambda: script.started != {})
    assert script.started == {P0: 5}, "what was dropped says nothing"
    script.rounds.on_partitions_assigned([P1])
    script.play(until=lambda: len(answers) == 6)
    assert asked_at[5] == asked_at[4] + 60.0


def test_where_many_questions_hang_there_is_one_more_an_hour() -> None:
    """Each is a thread; but the database may be back. Partitions come and go, so that no question has long patience."""
    script, answers = silent(seconds=300.0, hangs=True)
    asked_at: list[float] = []
    ask = script.results["stored"][0]

    def stored(verb: Verb) -> Future[Any]:
        asked_at.append(script.now)
        found: Future[Any] = ask(verb)
        return found

    script.results["stored"] = [stored] * 99
    for _ in range(25):
        script.rounds.on_partitions_assigned([P0])
        script.play(until=polls(script, 2))
        script.rounds.on_partitions_revoked([P0])
    first = asked_at[0]
    assert [each - first for each in asked_at] == [*(600.0 * number for number in range(8)), 7800.0, 11_400.0]
    script.rounds.on_partitions_assigned([P0])
    script.play(until=lambda: len(answers) == 11)
    answers[10].set_result({P0: 5})
    script.play(until=lambda: script.started != {})
    assert script.started == {P0: 5}
    script.rounds.on_partitions_assigned([P1])
    script.play(until=polls(script, 2))
    assert len(answers) == 12, "it answers again: whatever hangs on, it is asked at once"


def test_where_many_questions_hang_a_dropped_one_that_is_answered_ends_the_hour() -> None:
    """Its partition was revoked meanwhile. But whoever comes next need not wait: the database is back."""
    positions, now = StorePositions(), 0.0
    for number in range(9):
        answer = Future[Mapping[TopicPartition, int]]()
        answer.set_running_or_notify_cancel()
        assert positions.missing({P0: None}, now) == {P0: None}, number
        positions.asked({P0: None}, answer, now)
        positions.forget([P0])
        assert positions.is_awaited(now)
        now += 3600.0 if number < 8 else 1.0
    answer.set_result({P0: 5})
    assert not positions.is_awaited(now)
    assert positions.missing({P1: None}, now) == {P1: None}


def test_a_rebalance_asks_no_database_beside_a_question_that_hangs() -> None:
    script, answers = silent(hangs=True)
    for _ in range(5):
        script.rounds.on_partitions_assigned([P0])
        script.play(until=polls(script, 2))
        script.rounds.on_partitions_revoked([P0])
    assert len(answers) == 1
    script.rounds.on_partitions_assigned([P1])
    answers[0].set_result({P0: 1})
    script.play(until=polls(script, 2))
    assert asked_of(script)[1:] == [{P1: None}]


def test_while_only_a_database_is_awaited_polls_take_their_time() -> None:
    script, answers = silent()
    script.rounds.on_partitions_assigned([P0])
    script.engine.submit(keyed(P0, "a"))
    script.play(until=polls(script, 4))
    assert len(answers) == 1
    timeouts = [verb.kwargs["timeout"] for verb in script.verbs if verb.name == "poll"]
    assert timeouts[0] == 0.02
    assert timeouts[1:] == [0.1] * 3


def test_an_answer_of_an_earlier_assignment_counts_no_more() -> None:
    script, answers = silent()
    script.rounds.on_partitions_assigned([P0, P1])
    script.play(until=polls(script, 2))
    script.rounds.on_partitions_revoked([P0])
    script.rounds.on_partitions_assigned([P0])
    script.play(until=polls(script, 2))
    assert len(answers) == 1, "one at a time"
    answers[0].set_result({P0: 5, P1: 5})
    script.play(until=polls(script, 2))
    assert script.started == {P1: 5}
    assert asked_of(script)[1:] == [{P0: None}]
    answers[1].set_result({P0: 9})
    script.play(until=polls(script, 2))
    assert script.started == {P0: 9, P1: 5}


def test_where_all_was_lost_that_a_database_was_asked_about_it_is_asked_anew() -> None:
    """The connection by which it was asked may be silent for an hour."""
    script, answers = silent()
    script.rounds.on_partitions_assigned([P0])
    script.play(until=polls(script, 2))
    script.rounds.on_partitions_revoked([P0])
    assert answers[0].cancelled()
    script.rounds.on_partitions_assigned([P1])
    script.play(until=polls(script, 2))
    assert asked_of(script) == [{P0: None}, {P1: None}]


def test_an_answer_about_a_topic_that_was_made_again_counts_no_more() -> None:
    script, answers = silent(topic_ids=[{"t": A}, *[{"t": B}] * 99])
    script.rounds.on_partitions_assigned([P0])
    script.play(until=polls(script, 2))
    answers[0].set_result({P0: 5})
    script.play(until=polls(script, 2))
    assert asked_of(script) == [{P0: A}, {P0: B}]
    answers[1].set_result({})
    script.play(until=lambda: script.started != {})
    assert script.started == {P0: 7}


def test_a_late_error_of_a_database_is_told_and_it_is_asked_again_a_second_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script, answers = silent()
    script.rounds.on_partitions_assigned([P0])
    script.play(until=polls(script, 2))
    answers[0].set_exception(OSError("the server is starting"))
    failed_at = script.now
    script.play(until=lambda: len(answers) == 2)
    assert script.now >= failed_at + 1.0
    assert caplog.messages == ["the database does not say where partitions begin: OSError: the server is starting"]


def test_a_stop_drops_what_a_database_was_asked() -> None:
    script, answers = silent()
    script.rounds.on_partitions_assigned([P0])
    script.play(until=polls(script, 2))
    script.rounds.stop()
    script.play()
    assert script.rounds.is_ended
    assert answers[0].cancelled()


def test_of_a_slow_database_no_answer_is_lost_where_a_topic_is_asked_about_alone() -> None:
    """The group refuses a third one. The first comes when the answer about the second is on its way."""
    first, second, third = (TopicPartition(topic, 0) for topic in "tuv")

    def committed(verb: Verb) -> Any:
        if "v" in [each.topic for each in verb.args]:
            return TopicAuthorizationFailedError("v: it needs Describe")
        return {}

    script, answers = silent(committed=[committed] * 99)
    script.rounds.on_partitions_assigned([second, third])
    script.play(until=polls(script, 2))
    script.rounds.on_partitions_assigned([first])
    answers[0].set_result({second: 5})
    script.play(until=polls(script, 2))
    assert script.started == {second: 5}
    answers[1].set_result({first: 5})
    script.play(until=polls(script, 2))
    assert script.started == {first: 5, second: 5}
    assert len(answers) == 2


def test_many_rows_whose_log_is_unknown_cost_one_wait_of_a_poll(caplog: pytest.LogCaptureFixture) -> None:
    """Their leaders are silent. What is in the log is said once. A wake-up says nothing."""
    partitions = [TopicPartition("t", number) for number in range(300)]
    polled_at: list[float] = []

    def poll(_: Verb) -> ConsumerRecords:
        polled_at.append(script.now)
        script.now += 0.5
        return ConsumerRecords()

    def ask(verb: Verb) -> Any:
        if script.now > 5.0:
            return dict.fromkeys(verb.args[0], 100)
        script.now += verb.kwargs["timeout"]
        return KafkaTimeoutError("no leader")

    script = Script(
        has_store=True,
        poll=[poll] * 99,
        committed=[dict.fromkeys(partitions, OffsetAndMetadata(offset=200))] * 99,
        topic_ids=[{}] * 99,
        stored=[dict.fromkeys(partitions, 5)] * 99,
        beginning_offsets=[WakeupError("woken"), *[ask] * 999],
    )
    script.rounds.on_partitions_assigned(partitions)
    script.play(until=lambda: len(polled_at) > 1)
    assert "begin" not in caplog.text
    script.play(until=lambda: len(script.started) == 300)
    assert script.started == dict.fromkeys(partitions, 100)
    assert caplog.text.count("nobody tells where the partitions of t begin") == 1
    assert max(later - before for before, later in pairwise(polled_at)) < 1.6


@pytest.mark.rule("17")
@pytest.mark.parametrize("is_woken", [False, True])
@pytest.mark.parametrize("is_left", [False, True])
def test_a_silent_leader_keeps_no_partition_of_another_from_starting(*, is_left: bool, is_woken: bool) -> None:
    """All of one topic are asked about in one call. is_left: by a reset, not by a row below the group's offset."""
    partitions = [TopicPartition("t", number) for number in range(9)]
    silent, plain = partitions[0], TopicPartition("u", 0)

    def ask(verb: Verb) -> Any:
        if silent not in verb.args[0]:
            return dict.fromkeys(verb.args[0], 100)
        script.now += verb.kwargs["timeout"]
        return WakeupError("woken") if is_woken else KafkaTimeoutError("no leader")

    group = dict.fromkeys(partitions, OffsetAndMetadata(offset=100 if is_left else 200))
    script = Script(
        has_store=True,
        committed=[group] * 9,
        topic_ids=[{}] * 9,
        stored=[{} if is_left else dict.fromkeys(partitions, 5)] * 9,
        position=[7] * 9,
        beginning_offsets=[ask] * 99,
    )
    engine = script.engine
    for each in partitions if is_left else ():
        script.bring(each, "--")
        engine.submit(keyed(each, "--", start=101, seek=1))
    script.rounds.on_partitions_assigned([plain] if is_left else [*partitions, plain])
    script.play(until=lambda: script.said.count("poll") == 2)
    assert plain in script.started, "it needs no beginning"
    script.play(until=lambda: script.said.count("poll") == 6)
    if not is_left:
        assert {*script.started} == {*partitions[1:], plain}
        return
    assert engine.unlocated() == ([silent] if is_woken else [])
    for task in [engine.take(0.0) for _ in range(4 * len(partitions) - 4 * is_woken)]:
        assert task is not None
        if task.offset == 102:
            engine.end(task, None, 0.0, 0.5)
    told = {partition: entry.offset for partition, entry in engine.committable().items()}
    assert told == {**dict.fromkeys(partitions[1:], 101), **({} if is_woken else {silent: 0})}


def test_wakeups_do_not_keep_what_a_reset_left_waiting_for_ever() -> None:
    """Its leader is silent, and each question is woken up."""

    def ask(_: Verb) -> KafkaError:
        script.now += 0.9
        return WakeupError("woken")

    group = {P0: OffsetAndMetadata(offset=0)}
    script = Script(committed=[group] * 99, topic_ids=[{}] * 99, beginning_offsets=[ask] * 99)
    script.bring(P0, "--")
    script.engine.submit(keyed(P0, "--", start=50, seek=1))
    script.play(until=lambda: not script.engine.unlocated() or script.now > 60.0)
    assert script.engine.unlocated() == []


def test_while_a_hand_over_waits_no_leader_holds_the_loop_up() -> None:
    """What is at work is cancelled a second before its deadline, which is looked at between rounds."""

    def ask(verb: Verb) -> KafkaError:
        script.now += verb.kwargs["timeout"]
        return KafkaTimeoutError("no leader")

    group = {each: OffsetAndMetadata(offset=0) for each in (P0, P1)}
    script = Script(
        committed=[group] * 99,
        topic_ids=[{}] * 99,
        to_be_revoked_partitions=[{P1}] * 99,
        beginning_offsets=[ask, ask, lambda _: {P0: 50}],
    )
    engine = script.engine
    for each in (P0, P1):
        script.bring(each, "--")
    assert engine.take(0.0) is not None
    assert engine.take(0.0) is not None
    engine.submit(keyed(P0, "--", start=50, seek=1))
    script.play(until=lambda: not engine.unlocated())
    assert [verb.kwargs["timeout"] for verb in script.verbs if verb.name == "beginning_offsets"] == [
        pytest.approx(0.2)
    ] * 3, "a leader that is slow for so short a time is asked again"


@pytest.mark.parametrize(
    ("begins", "held_at"),
    [({P0: 50}, 50), ({P0: 0}, 0), (KafkaTimeoutError("no leader"), 0), (WakeupError("woken"), 50)],
)
def test_after_a_reset_it_asks_where_the_log_begins(
    begins: Any, held_at: int, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script(
        plan=EnginePlan(order="none"),
        committed=[{P0: OffsetAndMetadata(offset=0)}] * 2,
        topic_ids=[{}] * 2,
        beginning_offsets=[begins, {P0: 50}],
    )
    engine = script.engine
    script.bring(P0, "--")
    engine.submit(keyed(P0, "--", start=50, seek=1))
    script.play(until=lambda: not engine.unlocated() and engine.has_next(0.0))
    assert caplog.text == ""
    tasks = [engine.take(0.0) for _ in range(4)]
    assert tasks[3] is not None
    engine.end(tasks[3], None, 0.0, 0.5)
    assert engine.committable()[P0].offset == held_at
    script.rounds.cancel()
    script.play()
    lost = "t-0: 2 records at offsets 0 to 1, from before a reset, not handled here: the log has lost them"
    assert caplog.text.count(lost) == (held_at == 50)


def test_where_the_log_has_the_row_it_is_read_from_there() -> None:
    """Though the group has a later offset: the database was restored."""
    script = Script(
        has_store=True,
        committed=[{P0: OffsetAndMetadata(offset=200)}],
        topic_ids=[{}],
        stored=[{P0: 150}],
        beginning_offsets=[{P0: 100}],
    )
    script.rounds.on_partitions_assigned([P0])
    script.play(until=lambda: script.started != {})
    assert script.started == {P0: 150}


def test_a_paused_partition_whose_queue_was_taken_wakes_the_poll_once() -> None:
    script = Script(plan=EnginePlan(order="none", max_records=12))
    script.bring(P0, "aaaa")
    script.play(until=lambda: script.said[-1:] == ["pause"])
    assert script.verbs[-1] == Verb("pause", (P0,))
    assert script.engine.take(0.0) is not None
    assert not script.rounds.wants_attention(), "three are queued, and there is space for eight"
    assert script.engine.take(0.0) is not None
    assert script.rounds.wants_attention()
    assert not script.rounds.wants_attention(), "it is on its way"
    script.results["poll"] = [WakeupError("woken")]
    script.play(until=lambda: script.said[-1:] == ["resume"])
    assert script.verbs[-1] == Verb("resume", (P0,))


def test_a_broker_that_takes_less_metadata_halves_the_bound_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whether it refuses a partition of the commit, or the call fails by it. The commit is sent again."""
    refused, failed = Future[CommitResult](), Future[CommitResult]()
    error = OffsetMetadataTooLargeError("4096 are the most")
    refused.set_result(CommitResult(not_committed={P0: error}))
    failed.set_exception(error)
    script = Script(pace=Pace(commit_interval=0.0), commit_async=[refused, failed, Future()])
    engine = script.engine
    script.bring(P0, "--")
    engine.take(0.0)
    task = script.take()
    engine.end(task, None, 0.0, 0.5)
    script.play(until=lambda: script.said.count("poll") == 6)
    assert script.said.count("commit_async") == 3
    assert engine.plan.metadata_limit == 1000
    told = "the broker takes less metadata of a commit; from now on {} characters"
    assert [each for each in caplog.messages if "metadata" in each] == [told.format(2000), told.format(1000)]


def at_work(script: Script) -> dict[tuple[TopicPartition, int], Task]:
    """Three records of each of two partitions."""
    for partition in (P0, P1):
        script.bring(partition, "---")
    taken = [script.engine.take(0.0) for _ in range(6)]
    return {(task.lane.partition, task.offset): task for task in taken if isinstance(task, Task)}


def committing(
    commits: int, *, interval: float = 0.0
) -> tuple[Script, list[Future[CommitResult]], dict[tuple[TopicPartition, int], Task]]:
    """With so many responses to come."""
    calls = [Future[CommitResult]() for _ in range(commits)]
    script = Script(pace=Pace(commit_interval=interval), commit_async=[*calls])
    return script, calls, at_work(script)


def rounds(script: Script) -> None:
    """A few."""
    polls = script.said.count("poll") + 3
    script.play(until=lambda: script.said.count("poll") == polls)


def handed_over(script: Script) -> list[dict[TopicPartition, int]]:
    """The offsets of each commit."""
    commits = [verb.args[0] for verb in script.verbs if verb.name == "commit_async"]
    return [{partition: each.offset for partition, each in offsets.items()} for offsets in commits]


def settle(script: Script, commit: int, partition: TopicPartition, *, committed: bool) -> None:
    """A response to that commit."""
    snapshot = [verb.args[0] for verb in script.verbs if verb.name == "commit_async"][commit]
    snapshot.settle(partition, snapshot.entries[partition], committed=committed)


@pytest.mark.rule("17")
def test_a_commit_that_waits_for_one_partition_keeps_no_other_back() -> None:
    """Its topic is away, say. Of that partition nothing more is sent meanwhile: it would say the same."""
    script, calls, tasks = committing(4)
    script.engine.end(tasks[P0, 0], None, 0.0, 0.5)
    script.engine.end(tasks[P1, 0], None, 0.0, 0.5)
    rounds(script)
    script.engine.end(tasks[P0, 1], None, 0.0, 0.5)
    rounds(script)
    assert handed_over(script) == [{P0: 1, P1: 1}], "most often a response comes soon, and the next one says more"
    settle(script, 0, P0, committed=True)
    script.engine.end(tasks[P1, 1], None, 0.0, 0.5)
    rounds(script)
    assert handed_over(script)[1:] == [{P0: 2}]
    settle(script, 1, P0, committed=True)
    calls[1].set_result(CommitResult())
    rounds(script)
    assert len(handed_over(script)) == 2
    script.engine.end(tasks[P0, 2], None, 0.0, 0.5)
    rounds(script)
    assert handed_over(script)[2:] == [{P0: 3}], "no commit of it is under way"
    settle(script, 0, P1, committed=False)
    calls[0].set_exception(UnknownTopicOrPartitionError("it is gone"))
    rounds(script)
    assert handed_over(script)[3:] == [{P1: 2}]


@pytest.mark.rule("17")
def test_a_commit_that_waits_for_long_keeps_no_other_partition_back() -> None:
    """It is of a topic that is away alone: no response says so."""
    script, _, tasks = committing(2)
    script.engine.end(tasks[P1, 0], None, 0.0, 0.5)
    rounds(script)
    script.engine.end(tasks[P0, 0], None, 0.0, 0.5)
    script.now = 0.9
    rounds(script)
    assert handed_over(script) == [{P1: 1}]
    script.now = 1.1
    script.engine.end(tasks[P1, 1], None, 0.0, 0.5)
    rounds(script)
    assert handed_over(script)[1:] == [{P0: 1}]
    script.now = 5.0
    rounds(script)
    assert len(handed_over(script)) == 2


@pytest.mark.rule("17")
def test_a_look_that_sends_nothing_keeps_no_other_partition_back() -> None:
    """A commit has waited for long, and there was nothing else to commit."""
    script, _, tasks = committing(2)
    script.engine.end(tasks[P1, 0], None, 0.0, 0.5)
    rounds(script)
    script.now = 1.1
    rounds(script)
    script.now = 1.2
    script.engine.end(tasks[P0, 0], None, 0.0, 0.5)
    rounds(script)
    assert handed_over(script)[1:] == [{P0: 1}]


@pytest.mark.rule("completing")
def test_a_hand_over_waits_for_no_commit_of_others() -> None:
    """Its deadline may be near. While its own commit is on its way, nothing is sent for it."""
    script = Script(commit_async=[Future() for _ in range(3)], to_be_revoked_partitions=[{P0}] * 99)
    tasks = at_work(script)
    script.engine.end(tasks[P1, 0], None, 0.0, 0.5)
    script.now = 1.0
    rounds(script)
    script.now = 1.1
    script.engine.end(tasks[P1, 1], None, 0.0, 0.5)
    for offset in range(3):
        script.engine.end(tasks[P0, offset], None, 0.0, 0.5)
    rounds(script)
    assert handed_over(script) == [{P1: 1}, {P0: 3}]
    settle(script, 0, P1, committed=True)
    rounds(script)
    assert len(handed_over(script)) == 2


@pytest.mark.rule("17")
def test_what_a_commit_that_failed_has_waited_for_waits_for_no_interval_more() -> None:
    """Another one was sent meanwhile. Nor is it sent before the interval is over."""
    script, calls, tasks = committing(4, interval=1.0)
    script.engine.end(tasks[P0, 0], None, 0.0, 0.5)
    script.engine.end(tasks[P1, 0], None, 0.0, 0.5)
    script.now = 1.0
    rounds(script)
    settle(script, 0, P0, committed=True)
    script.engine.end(tasks[P0, 1], None, 0.0, 0.5)
    script.now = 2.0
    rounds(script)
    assert handed_over(script) == [{P0: 1, P1: 1}, {P0: 2}]
    script.now = 2.1
    settle(script, 0, P1, committed=False)
    calls[0].set_exception(UnknownTopicOrPartitionError("it is gone"))
    rounds(script)
    assert handed_over(script)[2:] == [{P1: 1}]
    settle(script, 2, P1, committed=False)
    calls[2].set_exception(UnknownTopicOrPartitionError("it is gone"))
    rounds(script)
    assert len(handed_over(script)) == 3


@pytest.mark.rule("17")
@pytest.mark.parametrize("error", [KafkaTimeoutError("no response"), RebalanceInProgressError("it did not end")])
def test_after_a_commit_that_nobody_answered_none_follows_before_it_ends(
    error: KafkaError, caplog: pytest.LogCaptureFixture
) -> None:
    """The coordinator is away: commits of a few partitions each would pile up for as long. And the log says it once."""
    script, calls, tasks = committing(7)

    def fail(commit: int, partition: TopicPartition) -> None:
        settle(script, commit, partition, committed=False)
        calls[commit].set_exception(error)
        rounds(script)

    def finish(at: float, partition: TopicPartition, offset: int) -> None:
        script.now = at
        script.engine.end(tasks[partition, offset], None, 0.0, 0.5)
        rounds(script)

    finish(0.0, P0, 0)
    finish(1.1, P1, 0)
    assert handed_over(script) == [{P0: 1}, {P1: 1}]
    script.now = 60.0
    fail(0, P0)
    assert len(handed_over(script)) == 2
    script.now = 61.1
    fail(1, P1)
    assert handed_over(script)[2:] == [{P0: 1, P1: 1}]
    script.now = 121.1
    settle(script, 2, P0, committed=False)
    fail(2, P1)
    assert handed_over(script)[3:] == [{P0: 1, P1: 1}]
    settle(script, 3, P0, committed=True)
    finish(125.0, P0, 1)
    assert handed_over(script)[4:] == [{P0: 2}], "it is back"
    settle(script, 4, P0, committed=True)
    finish(126.1, P0, 2)
    assert handed_over(script)[5:] == [{P0: 3}], "no commit keeps others waiting for longer than before"
    calls[4].set_result(CommitResult())
    rounds(script)
    assert len([each for each in caplog.messages if "a commit failed" in each]) == 1
    fail(3, P1)
    assert len([each for each in caplog.messages if "a commit failed" in each]) == 2, "one has succeeded"


@pytest.mark.rule("17")
def test_a_commit_of_which_a_part_was_answered_is_no_sign_of_an_outage() -> None:
    """What is left of it has no response, and its time is out."""
    script, calls, tasks = committing(3)
    script.engine.end(tasks[P0, 0], None, 0.0, 0.5)
    script.engine.end(tasks[P1, 0], None, 0.0, 0.5)
    rounds(script)
    script.now = 60.0
    settle(script, 0, P0, committed=True)
    settle(script, 0, P1, committed=False)
    calls[0].set_exception(KafkaTimeoutError("no response"))
    rounds(script)
    script.now = 61.1
    script.engine.end(tasks[P0, 1], None, 0.0, 0.5)
    rounds(script)
    assert handed_over(script)[1:] == [{P1: 1}, {P0: 2}]


@pytest.mark.rule("17")
@pytest.mark.parametrize("why", ["start", "hand-over"])
def test_what_is_on_its_way_makes_no_commit_of_others_due(why: str) -> None:
    """A start, or a hand-over, whose topic is away: the others are committed once in each interval all the same."""
    calls = [Future[CommitResult]() for _ in range(9)]
    revoked = [{P1}] * 99 if why == "hand-over" else [set[TopicPartition]()] * 99
    script = Script(commit_async=[*calls], to_be_revoked_partitions=revoked)
    script.engine.submit(keyed(P0, "---"))
    script.engine.submit(keyed(P1, "-"))
    script.engine.locate(P0, OffsetAndMetadata(offset=0))
    script.engine.locate(P1, None if why == "start" else OffsetAndMetadata(offset=0))
    taken = [script.engine.take(0.0) for _ in range(4)]
    tasks = {(task.lane.partition, task.offset): task for task in taken if isinstance(task, Task)}
    if why == "hand-over":
        script.engine.end(tasks[P1, 0], None, 0.0, 0.5)
    script.now = 1.0
    rounds(script)
    assert [set(each) for each in handed_over(script)] == [{P1}]
    script.now = 2.1
    for offset in range(3):
        script.engine.end(tasks[P0, offset], None, script.now, 0.5)
        rounds(script)
        if not calls[1].done():
            settle(script, 1, P0, committed=True)
            calls[1].set_result(CommitResult())
    assert [each[P0] for each in handed_over(script)[1:]] == [1]
    script.now = 3.2
    rounds(script)
    assert [each[P0] for each in handed_over(script)[1:]] == [1, 3]


@pytest.mark.rule("17")
def test_what_reached_the_bound_while_on_its_way_is_committed_after_the_response() -> None:
    """A look that came meanwhile had nothing to send."""
    calls = [Future[CommitResult]() for _ in range(3)]
    script = Script(pace=Pace(commit_interval=30.0, commit_records=1), commit_async=[*calls])
    tasks = at_work(script)
    script.engine.end(tasks[P0, 0], None, 0.0, 0.5)
    rounds(script)
    script.engine.end(tasks[P0, 1], None, 0.0, 0.5)
    script.now = 1.1
    rounds(script)
    assert handed_over(script) == [{P0: 1}]
    script.now = 1.5
    settle(script, 0, P0, committed=True)
    calls[0].set_result(CommitResult())
    rounds(script)
    assert handed_over(script)[1:] == [{P0: 2}]


@pytest.mark.rule("17")
def test_after_a_commit_that_nobody_answered_one_of_others_may_follow() -> None:
    """Its topic may be away alone: the response to the other says so. Without one, none follows."""
    script, calls, tasks = committing(4)
    script.engine.end(tasks[P1, 0], None, 0.0, 0.5)
    rounds(script)
    script.now = 60.0
    settle(script, 0, P1, committed=False)
    calls[0].set_exception(KafkaTimeoutError("no response"))
    rounds(script)
    script.engine.end(tasks[P0, 0], None, 0.0, 0.5)
    rounds(script)
    assert handed_over(script)[1:] == [{P1: 1}, {P0: 1}]
    script.bring(tp(2), "-")
    task = script.take()
    script.engine.end(task, None, 0.0, 0.5)
    script.now = 70.0
    rounds(script)
    assert len(handed_over(script)) == 3
    settle(script, 2, P0, committed=True)
    calls[2].set_result(CommitResult())
    rounds(script)
    assert handed_over(script)[3:] == [{tp(2): 1}]


def test_of_commits_that_one_limit_made_the_first_refusal_alone_halves_the_bound() -> None:
    """The second one is sent while the first waits for another partition."""
    script, calls, tasks = committing(3)
    script.engine.end(tasks[P0, 0], None, 0.0, 0.5)
    script.engine.end(tasks[P1, 0], None, 0.0, 0.5)
    rounds(script)
    settle(script, 0, P0, committed=False)
    rounds(script)
    assert handed_over(script) == [{P0: 1, P1: 1}, {P0: 1}]
    settle(script, 1, P0, committed=False)
    calls[1].set_exception(OffsetMetadataTooLargeError("4096 are the most"))
    rounds(script)
    settle(script, 0, P1, committed=True)
    calls[0].set_exception(OffsetMetadataTooLargeError("4096 are the most"))
    rounds(script)
    assert script.engine.plan.metadata_limit == 2000


@pytest.mark.parametrize(
    ("errors", "commits"),
    [
        ([OffsetMetadataTooLargeError("-")], 2),
        ([OffsetMetadataTooLargeError("-"), WakeupError("late"), OffsetMetadataTooLargeError("-")], 4),
        ([OffsetMetadataTooLargeError("-")] * 99, 7),
    ],
)
def test_the_last_commit_is_sent_again_with_less_metadata(errors: list[KafkaError], commits: int) -> None:
    """Until nothing more can be left out: what it covers would be handled again."""
    script = Script(commit=errors)
    engine = script.engine
    script.bring(P0, "--")
    task = script.take()
    engine.end(task, None, 0.0, 0.5)
    script.rounds.stop()
    script.play()
    assert [each.offset for each in script.committed] == [1] * commits
    assert script.said[-1] == "close"
    assert script.rounds.error is None


def test_without_an_interval_between_commits_polls_wait_all_the_same() -> None:
    script = Script(pace=Pace(commit_interval=0.0))
    script.play(until=lambda: script.said.count("poll") == 3)
    assert [verb.kwargs["timeout"] for verb in script.verbs if verb.name == "poll"] == [0.02] * 3


@pytest.mark.parametrize("is_tried", [False, True])
def test_a_stop_that_leaves_dead_letters_unwritten_fails(caplog: pytest.LogCaptureFixture, *, is_tried: bool) -> None:
    """Whether one waits for its next try, or is tried at this moment. And the last commit is before its record."""
    script = Script(pace=Pace(drain_timeout=0.0), plan=EnginePlan(failures=LETTERS))
    engine = script.engine
    script.bring(P0, "--")
    task, other = script.take(), script.take()
    engine.end(task, ValueError("bad"), 0.0, 0.5)
    engine.end(other, None, 0.0, 0.5)
    engine.wrote(task, ConnectionError("away"), 0.0, 0.5)
    if is_tried:
        assert engine.take(1e6) is task
    script.rounds.stop()
    script.play()
    with pytest.raises(DeadLettersUnwrittenError, match="t-0 at offset 0") as raised:
        raise script.rounds.error or AssertionError
    assert isinstance(raised.value.__cause__, ConnectionError)
    assert "t-0 at offset 0: its dead letter is still not written (ConnectionError)" in caplog.text
    assert [each.offset for each in script.committed] == [0]


@pytest.mark.parametrize("is_tried", [False, True])
def test_a_stop_that_leaves_a_store_untold_of_a_letter_fails(
    caplog: pytest.LogCaptureFixture, *, is_tried: bool
) -> None:
    """The letter is written, and no commit covers its record: the next run may write it a second time."""
    script = Script(pace=Pace(drain_timeout=0.0), plan=EnginePlan(failures=LETTERS, has_store=True))
    engine = script.engine
    script.bring(P0, "-")
    task = script.take()
    engine.end(task, ValueError("bad"), 0.0, 0.5)
    task.letter_written = True
    engine.wrote(task, ConnectionError("away"), 0.0, 0.5)
    assert engine.unwritten() == []
    if is_tried:
        assert engine.take(1e6) is task
    script.rounds.stop()
    script.play()
    with pytest.raises(DeadLettersUnwrittenError, match="1 dead letter written of which the store could not") as raised:
        raise script.rounds.error or AssertionError
    assert "t-0 at offset 0" in str(raised.value)
    assert isinstance(raised.value.__cause__, ConnectionError)
    told = "t-0 at offset 0: its dead letter is written, but the store could not be told (ConnectionError)"
    assert told in caplog.text


@pytest.mark.parametrize("located", [False, True])
def test_a_stop_after_a_reset_knows_of_dead_letters_before_it(*, located: bool) -> None:
    """Also where it is not known yet where the partition begins, so that nothing is queued."""
    script = Script(pace=Pace(drain_timeout=0.0), plan=EnginePlan(order="none", failures=LETTERS))
    engine = script.engine
    script.bring(P0, "--")
    task = script.take()
    engine.end(task, ValueError("bad"), 0.0, 0.5)
    engine.wrote(task, ConnectionError("away"), 0.0, 0.5)
    engine.submit(keyed(P0, "-", start=50, seek=1))
    if located:
        engine.locate(P0, OffsetAndMetadata(offset=0))
    script.rounds.stop()
    script.play()
    with pytest.raises(DeadLettersUnwrittenError, match="t-0 at offset 0"):
        raise script.rounds.error or AssertionError


def test_a_stop_names_what_a_reset_left_and_nobody_has_looked_for(caplog: pytest.LogCaptureFixture) -> None:
    script = Script()
    script.bring(P0, "--")
    script.engine.submit(keyed(P0, "-", start=50, seek=1))
    script.engine.submit(keyed(P0, "-", start=60, seek=2))
    script.rounds.stop()
    script.play()
    assert "t-0: 3 records at offsets 0 to 50, from before a reset, not handled here" in caplog.text
    assert caplog.text.count("from before a reset") == 1


def test_a_stop_whose_store_was_told_of_a_letter_or_not_of_a_skip_is_a_success() -> None:
    """What is skipped is skipped by the next run too: nothing is done twice."""
    script = Script(pace=Pace(drain_timeout=0.0), plan=EnginePlan(failures=LETTERS, has_store=True))
    engine = script.engine
    script.bring(P0, "--")
    letter, skip = script.take(), script.take()
    engine.end(letter, ValueError("bad"), 0.0, 0.5)
    letter.letter_written = True
    engine.wrote(letter, ConnectionError("away"), 0.0, 0.5)
    assert engine.take(1e6) is letter
    engine.wrote(letter, None, 0.0, 0.5)
    engine.end(skip, SkipRecord("no"), 0.0, 0.5)
    engine.wrote(skip, ConnectionError("away"), 0.0, 0.5)
    script.rounds.stop()
    script.play()
    assert script.rounds.error is None


def test_the_last_commit_has_one_time_out_however_often_it_is_sent() -> None:
    def refuse(_: Verb) -> KafkaError:
        script.now += 4.0
        return OffsetMetadataTooLargeError("-")

    script = Script(commit=[refuse] * 99)
    script.bring(P0, "--")
    task = script.take()
    script.engine.end(task, None, 0.0, 0.5)
    script.rounds.stop()
    script.play()
    patience = [verb.kwargs["timeout"] for verb in script.verbs if verb.name == "commit"]
    assert patience[:4] == [10.0, 6.0, 2.0, 0.0]
    assert not any(patience[4:])


def test_a_letter_that_is_being_written_is_not_stuck_while_it_may_be_acknowledged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In an outage of its topic. A handler, a skip of which a database does not hear, and a letter for ever are."""
    script = Script(plan=EnginePlan(failures=LETTERS, has_store=True, order="none"))
    engine = script.engine
    script.bring(P0, "---")
    letter, skip, handled = (engine.take(0.0) for _ in range(3))
    assert letter is not None
    assert skip is not None
    engine.end(letter, ValueError("bad"), 1.0, 0.5)
    engine.end(skip, SkipRecord("no"), 1.0, 0.5)
    script.now = 119.0
    assert script.rounds.stuck() == [skip, handled]
    script.rounds._tell_of_stuck()
    assert [each for each in caplog.messages if "offset 0" in each] == []
    script.now = 180.0
    assert script.rounds.stuck() == [letter, skip, handled], "its producer never returns"


def test_outputs_that_are_handed_over_are_not_stuck_while_they_may_be_acknowledged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Else an outage of their topic is a line in the log for each of them."""
    script = Script(plan=EnginePlan(order="none", per_partition=3))
    engine = script.engine
    script.bring(P0, "---")
    first, second, handled = (engine.take(0.0) for _ in range(3))
    assert first is not None
    assert second is not None
    engine.handed_over(first)
    engine.handed_over(second)
    engine.taken_back(second)
    script.now = 119.0
    assert script.rounds.stuck() == [second, handled]
    script.rounds._tell_of_stuck()
    assert [each for each in caplog.messages if "offset 0" in each] == []
    script.now = 180.0
    assert script.rounds.stuck() == [first, second, handled], "nobody has given them up"


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_stop_that_leaves_records_at_work_fails_unless_it_was_cancelled(*, is_cancelled: bool) -> None:
    script = Script(pace=Pace(drain_timeout=0.0))
    engine = script.engine
    script.bring(P0, "--")
    assert engine.take(0.0) is not None
    script.rounds.stop()
    if is_cancelled:
        script.rounds.cancel()
    script.play()
    assert isinstance(script.rounds.error, DrainTimeoutError) == (not is_cancelled)
    assert script.said[-1] == "close"


def test_the_drain_time_is_that_of_hand_overs_and_not_of_what_is_lost() -> None:
    drains = Drains()
    drains.follow({P0, P1}, (), 1.0)
    drains.follow({P0, P1}, (), 2.0)
    assert (drains.count, drains.age(2.5)) == (0, 1.5)
    drains.follow({P0}, {P1}, 3.0)
    assert (drains.count, drains.age(3.0)) == (0, 2.0)
    drains.follow((), (), 4.0)
    drains.stop(5.0)
    drains.stop(6.0)
    drains.end(15.0)
    assert (drains.count, drains.total, drains.longest, drains.age(20.0)) == (2, 13.0, 10.0, 0.0)


def test_a_hand_over_and_a_stop_begin_and_end_a_drain() -> None:
    script = Script(pace=Pace(drain_timeout=0.0), to_be_revoked_partitions=[{P0}])
    drains = script.rounds.drains
    script.bring(P0, "-")
    script.take()
    script.play(until=lambda: script.said.count("poll") == 2)
    script.now = 7.0
    assert drains.age(script.now) == 7.0
    script.rounds.stop()
    script.play()
    assert drains.longest == 7.0
    assert drains.count == 2
    assert drains.age(9.0) == 0.0


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_record_that_fails_for_good_in_the_last_moment_ends_the_run(*, is_cancelled: bool) -> None:
    """A worker has the lock between the look at what failed and the look at what is at work."""
    script, error = Script(), LookupError("for good")
    engine = script.engine
    script.bring(P0, "-")
    task = script.take()
    if is_cancelled:
        script.rounds.cancel()
    begin = script.rounds._begin_to_drain

    def begin_and_fail() -> None:
        begin()
        if engine.failure is None:
            engine.end(task, error, 0.0, 0.5)

    script.rounds._begin_to_drain = begin_and_fail  # type: ignore[method-assign]
    script.rounds.stop()
    script.play()
    assert script.rounds.error is error
    assert script.said[-1] == "close"


def test_a_stop_that_leaves_records_only_queued_is_a_success() -> None:
    script = Script(pace=Pace(drain_timeout=0.0))
    script.bring(P0, "--")
    script.rounds.stop()
    script.play()
    assert script.rounds.error is None
