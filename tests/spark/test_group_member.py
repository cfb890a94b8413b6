"""The thread of a query in group mode: what it does between two polls, in lock-step with a scripted consumer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from member_help import PATIENCE, Commit, Scripted, done, records

from instride.errors import (
    CommitFailedError,
    CommitOvertakenError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    OffsetsGoneError,
    WakeupError,
)
from instride.errors.broker import GroupAuthorizationFailedError, UnknownTopicOrPartitionError
from instride.records import OffsetRange, TopicPartition
from instride.spark._data_source import group_member
from instride.spark._data_source.group_member import GroupMember, _settle
from instride.spark._data_source.group_table import Committed, GroupTable
from instride.spark._data_source.offsets import BatchPlan, GroupMark, Span
from instride.spark._data_source.options import Topics
from instride.spark._data_source.planning import LossReport
from instride.telemetry import PartitionFlows, ResetCause

P0, P1 = (TopicPartition("t", number) for number in range(2))
U0 = TopicPartition("u", 0)
NOTHING = BatchPlan()


class Group:
    """A member that runs, with its consumer and its table."""

    def __init__(
        self, consumer: Scripted, *, earliest: bool = True, topics: Topics | None = None, fail: bool = True
    ) -> None:
        self.consumer = consumer
        self.table = GroupTable()
        topics, loss = topics or Topics(subscribe=("t",)), LossReport(fail=fail)
        self.member = GroupMember(cast("Any", consumer), self.table, topics, earliest=earliest, loss=loss)
        self.member.start()

    def turn(self, *ranges: OffsetRange) -> None:
        self.consumer.turn(lambda: ranges)

    def turns(self, number: int) -> None:
        for _ in range(number):
            self.turn()

    def fails(self, error: BaseException) -> None:
        """A poll raises this, and the thread goes on."""

        def play() -> Iterable[OffsetRange]:
            raise error

        self.consumer.turn(play)

    def assigned(self, *partitions: TopicPartition) -> None:
        def play() -> Iterable[OffsetRange]:
            self.consumer.listener.on_partitions_assigned(partitions)
            return ()

        self.consumer.turn(play)

    def led(self, partition: TopicPartition, start: int, to: int, cause: ResetCause = ResetCause.OUT_OF_RANGE) -> None:
        """The consumer goes on there by itself, and says so in a poll that brings what it finds there."""

        def play() -> Iterable[OffsetRange]:
            self.consumer.leads(partition, start, to, cause)
            return [records(partition, to, to + 1)]

        self.consumer.turn(play)

    def asked(self, request: Callable[[], Any]) -> Any:
        return self.member.ask(request, timeout=PATIENCE)

    def planned(self) -> BatchPlan:
        """What Spark is given next: all that is free."""
        made = self.asked(lambda: self.table.plan(NOTHING, lambda free: BatchPlan(free, {**self.member.topic_ids})))
        assert isinstance(made, BatchPlan)
        return made

    def confirmed(self, batch: BatchPlan) -> None:
        """Spark asks what follows it; what that has the member do is done."""

        def confirm() -> bool:
            self.table.confirm(batch)
            return True

        self.asked(confirm)
        self.turn()


@pytest.fixture(autouse=True)
def again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is looked up again in the next turn, however long this machine lets the thread wait."""
    monkeypatch.setattr(group_member, "_AGAIN", 0.0)
    monkeypatch.setattr(group_member, "_LONG", float("inf"))


@pytest.fixture
def consumer() -> Scripted:
    return Scripted()


@pytest.fixture
def group(consumer: Scripted) -> Iterator[Group]:
    made = Group(consumer)
    yield made
    made.member.close()


def owning(group: Group) -> Group:
    """It has both partitions, of ten records each, of which the group has none yet."""
    group.consumer.group_has = {P0: 0, P1: 0}
    group.assigned(P0, P1)
    group.turn(records(P0, 0, 10), records(P1, 0, 10))
    return group


@pytest.fixture
def owner(group: Group) -> Group:
    return owning(group)


@pytest.fixture
def lenient(consumer: Scripted) -> Iterator[Group]:
    """Such a one, with failOnDataLoss=false, at the end of both partitions."""
    made = owning(Group(consumer, fail=False))
    made.confirmed(made.planned())
    done(consumer.commits[-1])
    made.turn()
    yield made
    made.member.close()


# -- where a partition begins


def test_a_partition_is_paused_until_it_is_known_where_the_group_has_it_begin(group: Group) -> None:
    group.consumer.group_has = {P0: 7}
    assert group.asked(lambda: group.member.joined or "not yet") == "not yet"
    group.assigned(P0)
    assert group.consumer.calls == [("subscribe", ("t",)), ("pause", P0), ("seek", P0, 7), ("resume", P0)]
    assert group.asked(lambda: group.member.joined)
    assert group.member.topic_ids == {"t": "id"}
    assert not group.consumer.commits


@pytest.mark.parametrize(("earliest", "start"), [(True, 3), (False, 9)])
def test_the_start_of_what_the_group_knows_nothing_of_is_committed_first(
    consumer: Scripted, earliest: bool, start: int
) -> None:
    group = Group(consumer, earliest=earliest)
    group.assigned(P0)
    assert ("seek", P0, start) in consumer.calls
    (commit,) = consumer.commits
    assert commit[0] == {P0: start}
    group.turn(records(P0, start, 20))
    assert group.asked(group.table.free) == {}, "nothing is planned while the start is not committed"
    done(commit)
    group.turn()
    assert group.asked(group.table.free)
    group.member.close()


def read_before(consumer: Scripted, batch: BatchPlan, *, earliest: bool = False, fail: bool = True) -> Group:
    """Its checkpoint has that batch last; of the topic's three partitions it is assigned two."""
    group = Group(consumer, earliest=earliest, fail=fail)
    group.table.confirm(batch)
    group.assigned(P0, P1)
    return group


READ_P0 = BatchPlan({P0: Span(10, 20)}, {"t": "id"}, GroupMark(group="g", subscribed="t", run="earlier"))
READ_NOTHING = BatchPlan({}, {"t": "id"}, READ_P0.mark)


@pytest.mark.parametrize("batch", [READ_P0, READ_NOTHING], ids=["a partition", "nothing"])
@pytest.mark.parametrize("fail", [True, False])
def test_that_the_group_has_forgotten_its_offsets_is_data_loss(
    consumer: Scripted, caplog: pytest.LogCaptureFixture, batch: BatchPlan, *, fail: bool
) -> None:
    """What the last batch did not read was passed over up to the end of the log, and nobody told of it."""
    group = read_before(consumer, batch, fail=fail)
    if fail:
        with pytest.raises(OffsetsGoneError, match=r"forgotten its offsets of topic t, .* t-1: some data may be lost"):
            group.asked(lambda: True)
        assert not consumer.commits
    else:
        assert group.asked(lambda: group.table.placed) == [P0, P1]
        (warning,) = told(caplog)
        assert "t-1: some data may be lost" in warning
        assert consumer.commits[0][0] == {P0: 10 if batch.spans else 9, P1: 9}
    group.member.close()


@pytest.mark.parametrize("has", [{P0: 20}, {TopicPartition("t", 2): 5}], ids=["ours", "another's"])
def test_a_partition_that_was_added_to_a_topic_is_no_loss(consumer: Scripted, has: dict[TopicPartition, int]) -> None:
    """The group has an offset of another one. Of a topic that is new to the checkpoint that is not asked."""
    consumer.group_has = has
    group = read_before(consumer, READ_NOTHING)
    assert group.asked(lambda: group.table.placed) == [P0, P1]
    group.member.close()
    assert consumer.looked_up == [{P0, P1}, {TopicPartition("t", 2)}]


@pytest.mark.parametrize("ends", [9, 0])
def test_an_offset_that_this_run_committed_hides_no_loss(consumer: Scripted, ends: int) -> None:
    """Another application had the second partition, and left. But a partition that never had a record lacks none."""
    group = Group(consumer, earliest=False, fail=True)
    group.table.confirm(READ_P0)
    group.assigned(P0)
    assert group.asked(lambda: group.table.placed) == [P0]
    consumer.group_has, consumer.ends = {P0: 10}, ends
    group.assigned(P1)
    if ends:
        with pytest.raises(OffsetsGoneError, match=r"forgotten its offsets of topic t, .* t-1: some data may be lost"):
            group.asked(lambda: True)
    else:
        assert group.asked(lambda: group.table.placed) == [P0, P1]
    group.member.close()


def test_whether_what_is_lost_had_records_is_asked_again(consumer: Scripted) -> None:
    """Until then nothing of the topic begins."""
    consumer.raises["end_offsets"] = [KafkaTimeoutError("late")]
    consumer.ends = 0
    group = read_before(consumer, READ_P0)
    assert not group.table.placed
    group.turn()
    assert group.asked(lambda: group.table.placed) == [P0, P1]
    group.member.close()


def test_where_the_logs_end_of_which_offsets_are_forgotten_is_asked_once(consumer: Scripted) -> None:
    """They had no record by the first response, which was no loss, and began at the end of the second: what had come
    in between was in no batch, and nobody told of it."""
    asked: list[set[TopicPartition]] = []

    def end_offsets(partitions: Sequence[TopicPartition], *, timeout: float) -> dict[TopicPartition, int]:
        asked.append(set(partitions))
        return dict.fromkeys(partitions, 0 if len(asked) == 1 else 5)

    consumer.end_offsets = end_offsets  # type: ignore[method-assign]
    group = read_before(consumer, READ_NOTHING)
    assert group.asked(lambda: consumer.commits[0][0]) == {P0: 0, P1: 0}
    assert asked == [{P0, P1}]
    group.member.close()


def test_what_the_last_batch_read_goes_on_there_though_the_group_has_forgotten_it(consumer: Scripted) -> None:
    both = BatchPlan({P0: Span(10, 20), P1: Span(5, 6)}, READ_P0.topic_ids, READ_P0.mark)
    group = read_before(consumer, both)
    assert group.asked(lambda: consumer.commits[0][0]) == {P0: 10, P1: 5}
    group.member.close()


def test_what_is_read_again_since_the_group_has_forgotten_its_offset_is_told(
    consumer: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, however often it is tried where that is."""
    consumer.raises["beginning_offsets"] = [KafkaTimeoutError("late")]
    group = read_before(consumer, READ_P0, earliest=True)
    group.turn()
    group.turn()
    assert group.asked(lambda: group.table.placed) == [P0, P1]
    group.member.close()
    assert len([each for each in caplog.messages if "t-1 is read again from its first record" in each]) == 1


def test_whether_the_group_has_forgotten_is_asked_again(consumer: Scripted) -> None:
    """Until then nothing of the topic begins."""
    consumer.group_has = {TopicPartition("t", 2): 5}
    look, others = consumer.committed, [KafkaTimeoutError("late")]

    def committed(partitions: Sequence[TopicPartition], *, timeout: float) -> dict[TopicPartition, Any]:
        if P0 not in partitions and others:
            raise others.pop()
        return look(partitions, timeout=timeout)

    consumer.committed = committed  # type: ignore[method-assign]
    group = read_before(consumer, READ_NOTHING)
    assert not group.table.placed
    group.turn()
    assert group.asked(lambda: group.table.placed) == [P0, P1]
    group.member.close()


@pytest.mark.parametrize("error", [KafkaTimeoutError("late"), WakeupError("woken")])
def test_a_start_that_cannot_be_learnt_now_is_asked_again(group: Group, error: KafkaError) -> None:
    group.consumer.group_has = {P0: 7}
    group.consumer.raises["committed"] = [error]
    group.assigned(P0)
    assert not group.consumer.calls_of("resume")
    assert group.asked(lambda: True)  # the thread lives; after this poll it asks again
    assert ("seek", P0, 7) in group.consumer.calls


def test_a_start_that_may_not_be_learnt_is_told_to_who_asks(group: Group) -> None:
    group.consumer.raises["committed"] = [GroupAuthorizationFailedError("no")]
    group.assigned(P0)
    with pytest.raises(GroupAuthorizationFailedError):
        group.asked(lambda: True)
    assert group.member.leave().result(PATIENCE) is False


def test_a_commit_names_the_run_and_what_the_group_has_says_whose_it_is(consumer: Scripted) -> None:
    group = Group(consumer)
    group.table.begins("mine")
    consumer.group_has = {P0: 7, P1: 8}
    consumer.metadata = {P0: "instride run theirs", P1: "a note of somebody's"}
    group.assigned(P0)
    assert consumer.taken_over == [{P0: 7}]
    assert consumer.metadata[P0] == "instride run mine"
    found = group.asked(lambda: group.member.found([P0, P1, TopicPartition("t", 2)]))
    assert found == {P0: Committed(7, "mine"), P1: Committed(8, ""), TopicPartition("t", 2): None}
    group.member.close()


def test_requests_one_after_another_cut_no_look_up_short(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark asks each half a second: look-ups that took longer were begun anew for ever, and nothing was read."""
    consumer = group.consumer

    def slow(name: str) -> None:
        look = getattr(consumer, name)

        def looked_up(what: Any, *, timeout: float) -> Any:
            consumer.woken.clear()
            group.member.ask(lambda: None, timeout=0.0)
            if consumer.woken.is_set():
                raise WakeupError("woken")
            return look(what, timeout=timeout)

        monkeypatch.setattr(consumer, name, looked_up)

    for name in ("list_topics", "committed", "beginning_offsets"):
        slow(name)
    group.assigned(P0, U0, TopicPartition("v", 0))
    group.turns(20)
    assert group.table.unplaced == []


def test_a_commit_that_ends_cuts_no_look_up_short_and_is_heard_after_it(
    owner: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.confirmed(owner.planned())
    consumer, look = owner.consumer, owner.consumer.list_topics

    def looked_up(topics: Sequence[str], *, timeout: float) -> Any:
        consumer.woken.clear()
        done(consumer.commits[0])
        if consumer.woken.is_set():
            raise WakeupError("woken")
        return look(topics, timeout=timeout)

    monkeypatch.setattr(consumer, "list_topics", looked_up)
    owner.assigned(U0)
    assert owner.table.owed == {U0: 3}


@pytest.mark.parametrize("leader", [None, 2], ids=["none", "out of reach"])
def test_a_partition_without_a_leader_keeps_no_other_waiting(
    group: Group, leader: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says once what is missing, and who waits for the assignment hears it."""
    consumer = group.consumer
    consumer.leaders, consumer.unreachable = {P1: leader}, {None, 2}
    consumer.group_has = {U0: 7}
    group.assigned(P0, P1, U0)
    assert consumer.calls_of("seek") == [("seek", U0, 7), ("seek", P0, 3)]
    assert consumer.commits[0][0] == {P0: 3}
    group.turns(3)
    assert group.table.unplaced == [P1]
    assert str(group.member.obstacle) in ("no leader is known of t-1", "a leader did not respond")
    assert caplog.text.count("where some partitions begin is not known yet") == 1
    consumer.leaders = {}
    group.turn()
    assert ("seek", P1, 3) in consumer.calls
    group.turn()
    assert group.member.obstacle is None


@pytest.mark.rule("20")
def test_where_partitions_of_many_topics_begin_is_one_request_of_each_kind(group: Group) -> None:
    """Who leads them was a request a topic."""
    topics = [f"t{number:02}" for number in range(40)]
    group.assigned(*(TopicPartition(topic, 0) for topic in topics))
    assert group.table.unplaced == []
    assert group.consumer.described == [topics]
    assert len(group.consumer.looked_up) == 1


def test_a_topic_that_cannot_be_looked_up_keeps_no_other_waiting(group: Group) -> None:
    """But once: one response is of all topics, and is not used where one of them has an error."""
    group.consumer.raises["list_topics"] = [KafkaTimeoutError("later")] * 2
    group.assigned(P0, U0)
    assert group.consumer.calls_of("seek") == []
    group.turn()
    assert group.consumer.calls_of("seek") == [("seek", U0, 3)]
    group.turn()
    assert group.consumer.calls_of("seek") == [("seek", U0, 3), ("seek", P0, 3)]


def test_look_ups_that_time_out_leave_the_thread_half_of_its_time(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes ten seconds, in which nothing is planned, committed or released of all others."""
    monkeypatch.setattr(group_member, "_LONG", 1.0)
    clock, looks = [0.0], list[float]()

    def timed_out(topics: Sequence[str], *, timeout: float) -> Any:
        looks.append(clock[0])
        clock[0] += timeout
        raise KafkaTimeoutError("nobody responds")

    monkeypatch.setattr(group.consumer, "list_topics", timed_out)
    monkeypatch.setattr(group_member, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    group.assigned(P0)
    for clock[0] in (10.0, 19.0, 20.0, 39.0, 40.0):
        group.turn()
    assert looks == [0.0, 20.0, 40.0]
    group.assigned(P1)
    assert looks[3:] == [50.0], "what is newly assigned is looked up at once"


class Brokers:
    """Look-ups take no time, by the clock of the member, but those of what is `silent`: all that they may, in vain.

    asked: each look-up, and when it began.
    """

    def __init__(self, group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.silent, self.asked = 0.0, set[object](), list[tuple[float, str]]()
        for name in ("list_topics", "committed", "beginning_offsets"):
            monkeypatch.setattr(group.consumer, name, partial(self._looked_up, group.consumer, name))
        monkeypatch.setattr(group_member, "time", SimpleNamespace(monotonic=lambda: self.clock))

    def _looked_up(self, consumer: Scripted, name: str, what: Any, *, timeout: float) -> Any:
        look, what = getattr(Scripted, name), sorted(what)
        of = {consumer.leaders[what[0]]} if name == "beginning_offsets" else {*what}
        self.asked.append((self.clock, f"{name} {' '.join(map(str, what))}"))
        if of & self.silent:
            self.clock += timeout
            raise KafkaTimeoutError("nobody responds")
        return look(consumer, what, timeout=timeout)

    def asked_of(self, name: str) -> list[tuple[float, str]]:
        return [(at, what.removeprefix(f"{name} ")) for at, what in self.asked if what.startswith(name)]


@pytest.fixture
def brokers(group: Group, monkeypatch: pytest.MonkeyPatch) -> Brokers:
    group.consumer.leaders = dict.fromkeys([P0, P1, *(TopicPartition(topic, 0) for topic in "abcdu")], 1)
    return Brokers(group, monkeypatch)


def test_after_look_ups_that_time_out_comes_a_poll_and_then_the_other_topics(group: Group, brokers: Brokers) -> None:
    """With thirty of them the member did not poll for five minutes, and lost all its partitions."""
    brokers.silent = {"a", "b", "c"}
    group.assigned(*(TopicPartition(topic, 0) for topic in "abcd"))
    assert brokers.clock == 10.0
    group.turns(5)
    assert brokers.asked_of("list_topics") == [
        (0.0, "a b c d"), (10.0, "a"), (20.0, "b"), (30.0, "c"), (40.0, "d"), (40.0, "a"), (50.0, "b"),
    ]  # fmt: skip
    assert group.table.placed == [TopicPartition("d", 0)]
    brokers.silent = set()
    group.turn()
    assert group.table.unplaced == []


def test_what_is_known_of_a_topic_is_placed_before_another_one_times_out(group: Group, brokers: Brokers) -> None:
    """No look-up begins after ten seconds: what is described first of all, to be placed together, waits for a round."""
    brokers.silent = {"d"}
    group.assigned(*(TopicPartition(topic, 0) for topic in "abcd"))
    group.turn()
    assert group.table.unplaced == [TopicPartition("d", 0)]
    assert brokers.asked_of("committed") == [(10.0, "a-0"), (10.0, "b-0"), (10.0, "c-0")]


def test_a_leader_and_a_topic_that_time_out_keep_each_other_waiting_once(group: Group, brokers: Brokers) -> None:
    group.consumer.leaders |= {P0: 2, TopicPartition("u", 0): 2}
    brokers.silent = {"u", 2}
    group.assigned(P0, P1, U0)
    assert brokers.asked == [(0.0, "list_topics t u")]
    group.turn()
    assert brokers.asked_of("beginning_offsets") == [(10.0, "t-0")]
    group.turn()
    assert group.table.placed == [P1]
    assert brokers.asked_of("list_topics")[-1] == (20.0, "u")
    brokers.silent = {2}
    group.turn()
    assert brokers.asked_of("beginning_offsets")[-1] == (30.0, "t-0")
    group.turn()
    assert brokers.asked_of("list_topics")[-1] == (40.0, "u")
    assert brokers.asked_of("beginning_offsets")[-1] == (40.0, "t-0 u-0"), "one look-up, for all that it leads"
    group.consumer.leaders[U0] = 1
    group.turn()
    assert group.table.placed == [P1, U0]
    for name, what in (("list_topics", "t u"), ("committed", "t-0 u-0")):
        assert brokers.asked_of(name)[-1] == (50.0, what), "what responds again is asked for with all others"
    group.consumer.leaders[P0] = 1
    group.turn()
    assert group.table.unplaced == []


def test_a_partition_whose_offset_is_pending_keeps_no_other_topic_waiting(group: Group, brokers: Brokers) -> None:
    """In a transaction of another client, say. One call asks for the offsets of all, and fails for one of them."""
    topics = [TopicPartition(topic, 0) for topic in "abcd"]
    group.consumer.group_has, brokers.silent = dict.fromkeys(topics, 7), {topics[1]}
    group.assigned(*topics)
    assert group.table.placed == []
    group.turns(2)
    assert group.table.unplaced == [topics[1]]
    group.turn()
    assert brokers.asked_of("committed") == [
        (0.0, "a-0 b-0 c-0 d-0"),
        (10.0, "a-0"), (10.0, "b-0"),
        (20.0, "c-0"), (20.0, "d-0"), (20.0, "b-0"),
        (30.0, "b-0"),
    ]  # fmt: skip
    brokers.silent = set()
    group.turn()
    assert group.table.unplaced == []


def test_a_topic_that_timed_out_and_was_revoked_is_looked_up_no_more(group: Group, brokers: Brokers) -> None:
    brokers.silent = {"a", "b"}
    of_a, of_b = (TopicPartition(topic, 0) for topic in "ab")
    group.assigned(of_a, of_b)
    group.consumer.turn(lambda: group.consumer.listener.on_partitions_revoked([of_a]) or ())
    group.turn()
    assert brokers.asked_of("list_topics") == [(0.0, "a b"), (10.0, "b"), (20.0, "b")]


def test_look_ups_that_respond_slowly_place_some_partitions_between_two_polls(
    group: Group, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though no round has the time for all: else each would begin anew, for ever."""
    topics = [TopicPartition(topic, 0) for topic in "abcd"]
    group.consumer.leaders = {each: number for number, each in enumerate(topics)}

    def slow(name: str) -> Callable[..., Any]:
        look = getattr(group.consumer, name)

        def looked_up(what: Any, *, timeout: float) -> Any:
            brokers.clock += 3.0
            return look(what, timeout=timeout)

        return looked_up

    for name in ("list_topics", "committed", "beginning_offsets"):
        monkeypatch.setattr(group.consumer, name, slow(name))
    group.assigned(*topics)
    assert group.table.placed == topics[:2]
    assert group.member.obstacle is None
    group.turn()
    assert group.table.unplaced == []


def test_a_look_that_was_cut_short_forgets_no_obstacle(group: Group) -> None:
    group.consumer.raises["committed"] = [KafkaTimeoutError("later"), WakeupError("woken")]
    group.assigned(P0)
    group.turn()
    assert str(group.member.obstacle) == "later"
    group.turn()
    assert group.member.obstacle is None


def test_a_partition_that_no_broker_knows_yet_is_placed_once_one_does(group: Group) -> None:
    group.consumer.partitions = {"t": 1}
    group.consumer.group_has = {P1: 7}
    group.assigned(P0, P1)
    assert group.consumer.calls_of("seek") == [("seek", P0, 3)]
    assert str(group.member.obstacle) == "no broker knows t-1"
    group.consumer.partitions = {}
    group.turn()
    assert ("seek", P1, 7) in group.consumer.calls


def test_a_pattern_is_subscribed_to(consumer: Scripted) -> None:
    group = Group(consumer, topics=Topics(pattern="t.*"))
    group.turn()
    assert consumer.calls == [("subscribe", "t.*")]
    group.member.close()


# -- the consumer goes on elsewhere by itself


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each for each in caplog.messages if "some data may be lost" in each]


@pytest.mark.requirement("source/22")
@pytest.mark.parametrize("cause", [ResetCause.OUT_OF_RANGE, ResetCause.TRUNCATED])
@pytest.mark.parametrize("to", [7, 15])
def test_a_position_that_is_reset_is_data_loss(owner: Group, cause: ResetCause, to: int) -> None:
    """New records below it were passed over in silence. The group's offset stays: the next run fails so, too."""
    owner.led(P0, 10, to, cause)
    with pytest.raises(OffsetsGoneError, match=f"t-0 cannot go on at offset 10: {cause.value}: some data may be lost"):
        owner.asked(lambda: True)
    assert owner.member.leave().result(PATIENCE) is False
    assert owner.consumer.commits == []


@pytest.mark.requirement("source/22")
def test_where_loss_is_passed_over_it_goes_on_where_the_consumer_does(
    lenient: Group, caplog: pytest.LogCaptureFixture
) -> None:
    before = len(lenient.consumer.calls)
    lenient.led(P0, 10, 7)
    assert len(told(caplog)) == 1
    assert lenient.consumer.calls[before:] == [("pause", P0), ("seek", P0, 7), ("resume", P0)]
    assert lenient.consumer.commits[-1][0] == {P0: 7}, "the group's offset goes back before more is planned"
    assert lenient.asked(lenient.table.free) == {}
    done(lenient.consumer.commits[-1])
    lenient.turn(records(P0, 7, 9))
    assert lenient.asked(lenient.table.free) == {P0: Span(7, 9), P1: Span(10, 10)}
    assert lenient.table.short == {P0: 7}


@pytest.mark.requirement("source/22")
def test_behind_a_replay_the_consumer_is_sent_to_where_the_partition_goes_on(consumer: Scripted) -> None:
    """It stands at the end of a log that was cut, in range. New records up to the batch's end were lost in silence."""
    group = Group(consumer, fail=False)
    batch = BatchPlan({P0: Span(5, 10)}, {"t": "id"}, GroupMark(group="g", subscribed="t", run="earlier"))
    group.table.pending(batch)
    consumer.group_has, consumer.metadata = {P0: 5}, {P0: "instride run earlier"}
    group.assigned(P0)
    group.turn(records(P0, 5, 7))
    assert group.asked(lambda: group.table.replay(NOTHING, batch, {}))
    group.confirmed(batch)
    assert consumer.calls[-1] == ("seek", P0, 10)
    group.led(P0, 10, 7)
    assert consumer.commits[-1][0] == {P0: 10}, "on its way"
    done(consumer.commits[-1])
    group.turn()
    assert consumer.calls_of("seek")[-1] == ("seek", P0, 7)
    assert consumer.commits[-1][0] == {P0: 7}
    group.member.close()


@pytest.mark.requirement("source/20")
def test_a_topic_that_is_made_again_is_named_by_its_ids(owner: Group) -> None:
    owner.consumer.topic_ids = ["new"]
    owner.led(P0, 10, 3, ResetCause.RECREATED)
    with pytest.raises(OffsetsGoneError, match=r"topic t was deleted and made again \(its id was id, and is new\)"):
        owner.asked(lambda: True)
    assert owner.consumer.commits == []


@pytest.mark.requirement("source/20")
def test_each_partition_of_a_topic_that_is_made_again_begins_anew(
    lenient: Group, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the second one the consumer tells later. What fails in between is tried again, and told once."""
    consumer = lenient.consumer
    consumer.topic_ids = ["new"]
    consumer.raises["beginning_offsets"] = [KafkaTimeoutError("later")]
    lenient.led(P0, 10, 5, ResetCause.RECREATED)
    assert lenient.member.topic_ids == {"t": "id"}
    lenient.turn()
    assert lenient.member.topic_ids == {"t": "new"}
    assert ("seek", P0, 5) in consumer.calls
    assert ("seek", P1, 3) in consumer.calls
    assert consumer.commits[-1][0] == {P0: 5, P1: 3}
    lenient.led(P1, 10, 4, ResetCause.RECREATED)
    assert ("seek", P1, 4) not in consumer.calls
    assert len(told(caplog)) == 1


def test_a_broker_that_knows_the_topic_as_it_was_is_asked_again(lenient: Group) -> None:
    """Also much later: an id is never used twice."""
    lenient.consumer.topic_ids = ["id", "id", "new"]
    lenient.led(P0, 10, 5, ResetCause.RECREATED)
    lenient.turn()
    assert ("seek", P0, 5) not in lenient.consumer.calls
    lenient.turn()
    assert ("seek", P0, 5) in lenient.consumer.calls
    lenient.consumer.topic_ids = ["id", "new"]
    lenient.assigned(P1)
    assert lenient.member.topic_ids == {"t": "new"}
    resumed = len(lenient.consumer.calls_of("resume"))
    lenient.turn()
    assert len(lenient.consumer.calls_of("resume")) == resumed + 1


def test_so_is_one_that_knows_it_as_deleted_and_not_yet_as_made_again(lenient: Group) -> None:
    """Its partitions went on at the old topic's offsets."""
    lenient.consumer.topic_ids = [None, "new"]
    lenient.led(P0, 10, 5, ResetCause.RECREATED)
    assert ("seek", P0, 5) not in lenient.consumer.calls
    lenient.turn()
    assert lenient.member.topic_ids == {"t": "new"}
    assert lenient.consumer.calls_of("seek")[-2:] == [("seek", P0, 5), ("seek", P1, 3)]


def test_what_is_not_placed_yet_waits_for_the_id_of_a_topic_that_was_made_again(lenient: Group) -> None:
    """A broker that was behind was believed."""
    lenient.consumer.raises["committed"] = [KafkaTimeoutError("later")]
    lenient.assigned(P0)
    resumed = len(lenient.consumer.calls_of("resume"))
    lenient.consumer.topic_ids = ["id", "new"]
    lenient.led(P0, 10, 5, ResetCause.RECREATED)
    assert len(lenient.consumer.calls_of("resume")) == resumed
    lenient.turn()
    assert lenient.member.topic_ids == {"t": "new"}
    assert ("resume", P0) in lenient.consumer.calls_of("resume")[resumed:]


def test_a_topic_that_is_made_again_while_it_is_placed_is_noticed(
    lenient: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = lenient.consumer.committed

    def looked_up(partitions: Sequence[TopicPartition], *, timeout: float) -> dict[TopicPartition, Any]:
        lenient.consumer.topic_ids = ["id", "new"]
        lenient.consumer.leads(P0, 10, 5, ResetCause.RECREATED)
        monkeypatch.setattr(lenient.consumer, "committed", committed)
        return committed(partitions, timeout=timeout)

    monkeypatch.setattr(lenient.consumer, "committed", looked_up)
    lenient.assigned(P0)
    assert lenient.member.topic_ids == {"t": "id"}
    lenient.turn()
    lenient.turn()
    assert lenient.member.topic_ids == {"t": "new"}
    assert lenient.consumer.calls_of("seek")[-2:] == [("seek", P0, 5), ("seek", P1, 3)]


def test_a_topic_that_only_the_consumer_took_for_another_is_read_on(
    lenient: Group, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group_member, "_STALE", 0.0)
    lenient.led(P0, 10, 0, ResetCause.RECREATED)
    assert lenient.consumer.calls[-2:] == [("seek", P0, 10), ("resume", P0)]
    assert told(caplog) == []


def test_other_telemetry_is_no_loss(owner: Group) -> None:
    def flows() -> Iterable[OffsetRange]:
        for observer in owner.consumer.observers:
            observer.on_telemetry(PartitionFlows(at=0.0, partition=P0, epoch=1, seconds=1.0))
        return ()

    owner.consumer.turn(flows)
    assert set(owner.planned().spans) == {P0, P1}


def test_a_reset_of_what_is_not_placed_is_no_loss(group: Group) -> None:
    """Where it begins is looked up, and its seek comes after the reset."""
    group.consumer.group_has = {P0: 7}
    group.consumer.raises["committed"] = [KafkaTimeoutError("later")]
    group.assigned(P0)

    def leads() -> Iterable[OffsetRange]:
        for each in (P0, P1):
            group.consumer.leads(each, 30, 20)
        return ()

    group.consumer.turn(leads)
    assert ("seek", P0, 7) in group.consumer.calls
    group.turn(records(P0, 7, 9))
    assert group.asked(group.table.free) == {P0: Span(7, 9)}


def test_a_reset_that_is_told_before_its_seek_is_over_with_that(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = group.consumer.committed

    def looked_up(partitions: Sequence[TopicPartition], *, timeout: float) -> dict[TopicPartition, Any]:
        group.consumer.leads(P0, 30, 20)
        return committed(partitions, timeout=timeout)

    monkeypatch.setattr(group.consumer, "committed", looked_up)
    group.consumer.group_has = {P0: 7}
    group.assigned(P0)
    group.turn(records(P0, 7, 9))
    assert group.asked(group.table.free) == {P0: Span(7, 9)}


@pytest.mark.requirement("source/20")
def test_a_topic_that_was_made_again_while_others_owned_it_is_noticed(owner: Group) -> None:
    """Whatever the last batch has read: what the run has known once it knows."""

    def lost() -> Iterable[OffsetRange]:
        owner.consumer.listener.on_partitions_lost([P0, P1])
        return ()

    owner.consumer.turn(lost)
    owner.consumer.topic_ids = ["new"]
    owner.assigned(P0)
    with pytest.raises(OffsetsGoneError, match=r"its id was id, and is new"):
        owner.asked(lambda: True)


# -- requests


def test_a_request_without_a_response_is_sent_again_after_each_poll(group: Group) -> None:
    responses = [None, None, "at last"]
    asked: list[object] = []

    def request() -> str | None:
        asked.append(threading.current_thread())
        if len(asked) < 3:
            group.consumer.wakeup()  # another poll ends
        return responses[len(asked) - 1]

    assert group.asked(request) == "at last"
    assert len(asked) == 3
    assert {cast("Any", each).name for each in asked} == {"instride-member"}


def test_a_request_whose_time_is_over_is_asked_no_more(group: Group) -> None:
    asked: list[int] = []
    assert group.member.ask(lambda: asked.append(1), timeout=0.0) is None
    group.turn()
    so_far = len(asked)
    group.turn()
    assert len(asked) == so_far <= 1


def test_a_request_that_waits_long_wakes_the_thread_once(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wake-up cuts short what the thread asks the group, as long as that may take."""
    monkeypatch.setattr(group_member, "_LOOK", 0.0)
    wakes: list[int] = []
    looks: list[int] = []
    wakeup = group.consumer.wakeup

    def woken() -> None:
        wakes.append(len(looks))
        wakeup()

    def look() -> None:
        looks.append(len(wakes))
        if len(looks) == 3:
            group.turn()

    monkeypatch.setattr(group.consumer, "wakeup", woken)
    assert group.member.ask(lambda: len(looks) >= 3 or None, timeout=PATIENCE, each_second=look)
    assert wakes == [0]


def test_a_request_that_comes_while_another_is_asked_waits_for_no_poll(group: Group) -> None:
    """It woke nobody, since the thread was in no poll."""
    asked: list[threading.Thread] = []
    responses: list[object] = []

    def request() -> bool:
        asked.append(threading.Thread(target=lambda: responses.append(group.asked(lambda: "second"))))
        asked[0].start()
        while not group.member._requests:
            pass
        return True

    assert group.asked(request)
    asked[0].join(PATIENCE)
    assert responses == ["second"]


def test_what_a_request_raises_is_raised_to_who_asked_and_the_thread_goes_on(group: Group) -> None:
    def request() -> None:
        raise IllegalStateError("its own")

    with pytest.raises(IllegalStateError, match="its own"):
        group.asked(request)
    assert group.asked(lambda: "alive") == "alive"


def test_an_error_that_says_that_it_is_false_is_raised_too(group: Group) -> None:
    """It was taken for no response in time."""

    class FalsyError(IllegalStateError):
        def __bool__(self) -> bool:
            return False

    def request() -> None:
        raise FalsyError("its own")

    with pytest.raises(FalsyError, match="its own"):
        group.asked(request)


def test_a_poll_that_fails_for_now_ends_nothing(group: Group) -> None:
    group.fails(KafkaTimeoutError("later"))
    assert group.asked(lambda: "alive") == "alive"


def test_what_ends_the_thread_is_raised_by_every_request(group: Group) -> None:
    def request() -> None:
        group.consumer.then(fatal)

    def fatal() -> Iterable[OffsetRange]:
        raise GroupAuthorizationFailedError("no")

    for _ in range(2):
        with pytest.raises(GroupAuthorizationFailedError):
            group.asked(request)
    assert group.member.leave().result(PATIENCE) is False
    assert len(group.consumer.calls_of("close")) == 1


# -- commits


def test_one_commit_is_under_way_at_a_time(owner: Group) -> None:
    batch = owner.planned()
    assert not owner.consumer.commits, "what Spark has not confirmed is not committed"
    owner.confirmed(batch)
    owner.turn()
    (commit,) = owner.consumer.commits
    assert commit[0] == {P0: 10, P1: 10}
    done(commit)
    owner.turn()
    owner.turn()
    assert len(owner.consumer.commits) == 1
    assert owner.table.settled


@pytest.mark.parametrize("error", [KafkaTimeoutError("later"), CommitFailedError("fenced")])
def test_what_was_not_committed_is_sent_again(owner: Group, error: KafkaError) -> None:
    owner.confirmed(owner.planned())
    done(owner.consumer.commits[0], p1=error)
    owner.turn()
    assert owner.consumer.commits[1][0] == {P1: 10}
    owner.consumer.commits[1][1].set_exception(error)
    owner.turn()
    assert owner.consumer.commits[2][0] == {P1: 10}


def two_topics(consumer: Scripted, *, fail: bool) -> tuple[Group, Commit, Commit]:
    """A batch of both was confirmed: their commits are under way."""
    group = Group(consumer, topics=Topics(subscribe=("t", "u")), fail=fail)
    consumer.group_has = {P0: 0, U0: 0}
    group.assigned(P0, U0)
    group.turn(records(P0, 0, 5), records(U0, 0, 5))
    group.confirmed(group.planned())
    of_t, of_u = sorted(consumer.commits, key=lambda commit: min(commit[0]))
    assert (of_t[0], of_u[0]) == ({P0: 5}, {U0: 5})
    return group, of_t, of_u


def test_what_a_topics_commit_meets_keeps_no_other_topics_waiting(consumer: Scripted) -> None:
    group, of_t, of_u = two_topics(consumer, fail=True)
    of_u[1].set_exception(KafkaTimeoutError("later"))
    done(of_t)
    group.turn()
    assert group.table.owed == {U0: 5}
    assert [offsets for offsets, _ in consumer.commits[2:]] == [{U0: 5}]
    group.member.close()


def test_a_topic_that_was_deleted_holds_up_nothing_where_loss_is_passed_over(
    consumer: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing was planned of any topic, and the group waited for its release, until the member lost everything."""
    group, of_t, of_u = two_topics(consumer, fail=False)
    consumer.partitions, consumer.requested = {"u": 0}, {U0}
    done(of_t)
    of_u[1].set_exception(UnknownTopicOrPartitionError("offset 5 of u-0 was not committed"))
    group.turn(records(P0, 5, 9))
    assert [each for each in told(caplog) if "topic u is not there any more" in each]
    group.turns(3)
    assert group.asked(group.table.free) == {P0: Span(5, 9)}
    assert consumer.delayed[-1] == set()
    assert consumer.calls_of("resume") == [("resume", P0), ("resume", U0)], "it begins nowhere"
    consumer.turn(lambda: consumer.listener.on_partitions_revoked([U0]) or ())
    assert group.asked(lambda: group.member.joined)
    assert len(consumer.commits) == 2
    group.member.close()


def test_a_deleted_topic_that_is_made_again_begins_anew(consumer: Scripted) -> None:
    group, of_t, of_u = two_topics(consumer, fail=False)
    consumer.partitions = {"u": 0}
    done(of_t)
    of_u[1].set_exception(UnknownTopicOrPartitionError("offset 5 of u-0 was not committed"))
    group.turn()
    consumer.partitions, consumer.topic_ids = {}, ["new"]
    del consumer.group_has[U0]
    group.turn()
    assert consumer.calls_of("seek")[-1] == ("seek", U0, 3)
    assert consumer.commits[-1][0] == {U0: 3}
    assert group.member.topic_ids == {"t": "id", "u": "new"}
    group.member.close()


def test_that_a_topic_was_deleted_once_more_is_told(consumer: Scripted, caplog: pytest.LogCaptureFixture) -> None:
    group, of_t, of_u = two_topics(consumer, fail=False)
    consumer.partitions, gone = {"u": 0}, UnknownTopicOrPartitionError("offset 5 of u-0 was not committed")
    done(of_t)
    of_u[1].set_exception(gone)
    group.turn()
    consumer.partitions, consumer.topic_ids = {}, ["new"]
    del consumer.group_has[U0]
    group.turn()
    consumer.partitions = {"u": 0}
    consumer.commits[-1][1].set_exception(gone)
    group.turn()
    assert len([each for each in told(caplog) if "topic u is not there any more" in each]) == 2
    group.member.close()


def test_a_topic_that_was_deleted_is_data_loss(consumer: Scripted) -> None:
    group, _, of_u = two_topics(consumer, fail=True)
    of_u[1].set_exception(UnknownTopicOrPartitionError("offset 5 of u-0 was not committed"))
    with pytest.raises(OffsetsGoneError, match="topic u is not there any more: some data may be lost"):
        group.asked(lambda: None)


def test_of_a_deleted_topic_that_is_ours_no_more_nothing_is_told(consumer: Scripted) -> None:
    group, of_t, of_u = two_topics(consumer, fail=True)
    consumer.turn(lambda: consumer.listener.on_partitions_revoked([U0]) or ())
    done(of_t)
    of_u[1].set_exception(UnknownTopicOrPartitionError("offset 5 of u-0 was not committed"))
    group.turn()
    assert group.asked(lambda: group.table.placed) == [P0]
    group.member.close()


def test_a_commit_that_is_refused_at_once_is_sent_again(owner: Group) -> None:
    owner.consumer.raises["commit_async"] = [KafkaTimeoutError("later")]
    owner.confirmed(owner.planned())
    owner.turn()
    owner.turn()
    assert [offsets for offsets, _ in owner.consumer.commits] == [{P0: 10, P1: 10}]


def test_what_the_group_has_a_later_offset_of_is_settled(owner: Group) -> None:
    owner.confirmed(owner.planned())
    done(owner.consumer.commits[0], p0=CommitOvertakenError("later", offset=10, committed=12))
    owner.turn()
    assert owner.table.settled
    assert len(owner.consumer.commits) == 1


@pytest.mark.parametrize("whole", [True, False])
def test_a_commit_that_may_not_be_is_told_to_who_asks(owner: Group, whole: bool) -> None:
    owner.confirmed(owner.planned())
    commit, error = owner.consumer.commits[0], GroupAuthorizationFailedError("no")
    commit[1].set_exception(error) if whole else done(commit, p1=error)
    assert owner.member.leave().result(PATIENCE) is False
    with pytest.raises(GroupAuthorizationFailedError):
        owner.asked(lambda: True)


def test_an_error_in_a_commit_that_is_none_of_ours_is_told_to_who_asks(owner: Group) -> None:
    owner.confirmed(owner.planned())
    owner.consumer.commits[0][1].set_exception(ZeroDivisionError("a bug"))
    assert owner.member.leave().result(PATIENCE) is False
    with pytest.raises(ZeroDivisionError):
        owner.asked(lambda: True)


def test_a_request_whose_time_was_over_just_now_is_settled_by_nobody() -> None:
    for more in ({"found": 1}, {"error": KafkaTimeoutError("late")}):
        request: Future[object] = Future()
        assert request.cancel()
        _settle(request, **more)
        assert request.cancelled()


# -- revocation


def test_only_what_the_batch_in_flight_reads_is_delayed(owner: Group) -> None:
    owner.consumer.requested = {P1}
    owner.turn()
    assert owner.consumer.delayed[-1] == set()
    batch = owner.planned()
    assert set(batch.spans) == {P0}, "what is to be revoked is planned no more"
    owner.consumer.requested = {P0, P1}
    owner.turn()
    assert owner.consumer.delayed[-1] == {P0}
    owner.confirmed(batch)
    done(owner.consumer.commits[0])
    owner.turn()
    assert owner.consumer.delayed[-1] == set()


def test_a_revocation_that_is_taken_back_lets_the_partition_be_planned(owner: Group) -> None:
    owner.consumer.requested = {P1}
    owner.turn()
    owner.consumer.requested = set()
    owner.turn()
    assert set(owner.planned().spans) == {P0, P1}


def test_what_is_to_be_revoked_is_remembered_until_it_goes(owner: Group) -> None:
    """The consumer names it no more once it may go; until its revoke is told it is planned by nobody."""
    owner.consumer.requested = {P1}
    owner.turn()
    owner.consumer.expired = {P1}
    owner.turn()
    assert set(owner.planned().spans) == {P0}


def test_what_is_gone_is_committed_no_more(owner: Group) -> None:
    batch = owner.planned()

    def gone() -> Iterable[OffsetRange]:
        owner.consumer.listener.on_partitions_revoked([P0])
        return ()

    owner.consumer.turn(gone)
    owner.confirmed(batch)
    owner.turn()
    assert owner.consumer.commits[0][0] == {P1: 10}


def test_a_loss_is_told_of_what_was_being_read_alone(owner: Group, caplog: pytest.LogCaptureFixture) -> None:
    owner.consumer.requested = {P1}
    owner.turn()
    owner.planned()

    def lost() -> Iterable[OffsetRange]:
        owner.consumer.listener.on_partitions_lost([P0, P1])
        return ()

    owner.consumer.turn(lost)
    losses = [each.getMessage() for each in caplog.records if "was lost" in each.getMessage()]
    assert len(losses) == 1
    assert losses[0].startswith(f"{P0} was lost")
    assert owner.table.settled is False, "its batch is in flight still"
    assert owner.asked(owner.table.free) == {}


# -- leaving


def test_it_leaves_when_its_batch_is_confirmed_and_committed(owner: Group) -> None:
    batch = owner.planned()
    left = owner.member.leave()
    owner.turn()
    assert owner.member.leaves
    assert not left.done()
    owner.confirmed(batch)
    owner.turn()
    assert not left.done()
    done(owner.consumer.commits[0])
    owner.consumer.wakeup()  # as the commit's end does
    assert left.result(PATIENCE) is True
    assert len(owner.consumer.calls_of("close")) == 1
    with pytest.raises(IllegalStateError, match="has left its group"):
        owner.asked(lambda: True)


def test_a_close_leaves_at_once_with_a_batch_in_flight(owner: Group) -> None:
    owner.planned()
    owner.member.close()
    assert owner.consumer.calls_of("close")
    assert not owner.consumer.commits


def test_a_request_that_waits_when_the_member_ends_is_told(owner: Group) -> None:
    def request() -> None:
        owner.member._closing = True
        owner.consumer.wakeup()

    with pytest.raises(IllegalStateError, match="has left its group"):
        owner.asked(request)


def test_a_wakeup_that_was_meant_for_a_poll_does_not_keep_it_from_leaving(owner: Group) -> None:
    owner.consumer.raises["close"] = [WakeupError("woken")]
    owner.member.close()
    assert len(owner.consumer.calls_of("close")) == 2


def test_wakeups_without_end_do_not_keep_it(owner: Group) -> None:
    owner.consumer.raises["close"] = [WakeupError("woken")] * 5
    owner.member.close()
    assert len(owner.consumer.calls_of("close")) == 2
    assert owner.member.leave().result(0) is False


def test_a_leave_that_fails_is_told_in_the_log(owner: Group, caplog: pytest.LogCaptureFixture) -> None:
    owner.consumer.raises["close"] = [KafkaTimeoutError("nobody there")]
    owner.member.close()
    assert "nobody there" in caplog.text
    assert len(owner.consumer.calls_of("close")) == 1
    assert owner.member.leave().result(0) is False


def test_a_member_that_never_began_is_closed_at_once(consumer: Scripted) -> None:
    topics, loss = Topics(subscribe=("t",)), LossReport(fail=True)
    GroupMember(cast("Any", consumer), GroupTable(), topics, earliest=True, loss=loss).close()
    assert not consumer.calls
