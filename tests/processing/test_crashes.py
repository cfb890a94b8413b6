"""Records that kill their process: found out by commits alone, tried so often as others are, and then left.

A process here is an engine that is dropped in the middle; what outlives it is what the group has committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from engine_help import TOPIC_ID, Bench, keyed
from processing_help import P0, commit, tp

from instride import DeadLetterRecord, OffsetAndMetadata, RetryRecord, TopicPartition
from instride._processing.commit_metadata import Mark, decode
from instride._processing.engine import Batch, Engine, EnginePlan, Job, Task
from instride._processing.retries import Failures, Retry
from instride.errors import HandlerDiedError

Place = tuple[TopicPartition, int]


class Group:
    """What outlives a process: the log, and the group's offsets. handled, given_up: what finished so, by whichever."""

    def __init__(self, logs: dict[TopicPartition, str], **plan: Any) -> None:
        self.logs = {partition: keyed(partition, keys) for partition, keys in logs.items()}
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.handled: Counter[Place] = Counter()
        self.given_up: dict[Place, int] = {}
        self.errors: dict[Place, BaseException | None] = {}
        self._plan = plan

    def process(self, later: Sequence[TopicPartition] = ()) -> Process:
        return Process(self, later, **self._plan)

    def mark(self, partition: TopicPartition) -> Mark:
        told = self.committed[partition]
        memory = decode(told.metadata, told.offset, TOPIC_ID)
        return Mark() if memory is None else memory.mark

    def offset(self, partition: TopicPartition) -> int:
        return self.committed[partition].offset


class Process:
    """One life of an engine that owns all partitions. later: those that `assign` brings."""

    def __init__(
        self,
        group: Group,
        later: Sequence[TopicPartition],
        *,
        after: Any = "dead-letter",
        attempts: int = 3,
        backoff: float = 0.0,
        **plan: Any,
    ) -> None:
        self.now = 0.0
        retry = Retry(attempts=attempts, backoff=backoff, jitter=0.0)
        failures = Failures(retry=retry, after=after, has_dead_letters=after == "dead-letter")
        self.engine = Engine(EnginePlan(failures=failures, window=4, **plan), lambda _: 1)
        self.commits = 0
        self._group = group
        self.unassigned = list(later)
        for partition in group.logs:
            if partition not in later:
                self.assign(partition)

    def assign(self, partition: TopicPartition) -> None:
        told = self._group.committed.get(partition)
        start = 0 if told is None else told.offset
        self.engine.submit([each for each in self._group.logs[partition] if each.offset >= start])
        self.engine.locate(partition, told, TOPIC_ID)

    def commit(self, refused: Sequence[TopicPartition] = ()) -> bool:
        """The broker takes it, but of `refused`. Whether there was something to commit."""
        snapshot = self.engine.committable()
        self.commits += bool(snapshot)
        self._group.committed |= {partition: told for partition, told in snapshot.items() if partition not in refused}
        for partition, entry in snapshot.entries.items():
            snapshot.settle(partition, entry, committed=partition not in refused, refused=partition in refused)
        return bool(snapshot)

    def take(self) -> Job | None:
        return self.engine.take(self.now)

    def takes(self) -> list[int]:
        """All that may be started now, without another commit."""
        found = []
        while (job := self.take()) is not None:
            assert isinstance(job, Task)
            found.append(job.offset)
        return found

    def end(self, job: Job, error: BaseException | None = None, *, is_acknowledged: bool = True) -> None:
        if isinstance(job, Task) and job.writes_dead_letter:
            self._group.given_up[_place(job)] = job.attempts
            self._group.errors[_place(job)] = job.error
            self.engine.wrote(job, None, self.now, 0.5)
            return
        if error is None:
            self._group.handled.update(map(_place, job.tasks if isinstance(job, Batch) else [job]))
        self.engine.end(job, error, self.now, 0.5)
        if is_acknowledged and isinstance(job, Task) and job.writes_dead_letter:
            self.end(job)

    def stop(self) -> None:
        self.engine.stop()
        self.engine.give_up()
        self.commit()


def _place(task: Task) -> Place:
    return task.record.topic_partition, task.offset


def test_the_first_record_needs_a_commit_that_says_how_far_later_ones_none() -> None:
    group = Group({P0: "-" * 20}, order="none")
    process = group.process()
    assert process.takes() == []
    process.commit()
    assert group.mark(P0).reach == 4
    jobs = [process.take() for _ in range(4)]
    assert process.takes() == [], "the reach is committed, and no more"
    for job in jobs:
        assert job is not None
        process.end(job)
    process.commit()
    assert (group.offset(P0), group.mark(P0)) == (4, Mark())
    assert process.takes() == list(range(4, 20)), "no commit is between them"
    assert process.commits == 2


def test_a_slow_first_record_holds_nothing_up_but_a_commit_now_and_then() -> None:
    group = Group({P0: "-" * 100}, order="none")
    process = group.process()
    process.commit()
    slow = process.take()
    for _ in range(200):
        job = process.take()
        if job is not None:
            process.end(job)
        elif not process.commit():
            break
    assert slow is not None
    assert sum(group.handled.values()) == 99
    assert process.commits < 10, "the reach is doubled each time"


def test_a_clean_end_takes_the_mark_back_and_a_hand_over_too() -> None:
    group = Group({P0: "--"}, order="none")
    process = group.process()
    process.commit()
    assert group.mark(P0)
    process.stop()
    assert not group.mark(P0)
    process = group.process()
    process.commit()
    assert group.mark(P0)
    assert process.engine.hold([P0]) == {P0}, "it waits for the commit"
    assert process.engine.is_urgent()
    process.commit()
    assert process.engine.hold([P0]) == set()
    assert not group.mark(P0)


def test_a_hand_over_that_is_taken_back_begins_again() -> None:
    group = Group({P0: "-"}, order="none")
    process = group.process()
    process.commit()
    process.engine.hold([P0])
    process.commit()
    process.engine.hold([])
    assert process.takes() == []
    process.commit()
    assert process.takes() == [0]


def test_after_a_death_suspects_are_started_one_by_one_named_by_a_commit() -> None:
    group = Group({P0: "-" * 6}, order="none")
    process = group.process()
    process.commit()
    assert process.takes() == [0, 1, 2, 3]
    process = group.process()
    for offset in range(4):
        assert process.takes() == []
        process.commit()
        assert group.mark(P0) == Mark(reach=4, named=offset, is_at_work=True)
        job = process.take()
        assert job is not None
        assert (job.offset, process.takes()) == (offset, [])
        process.end(job)
    process.commit()
    assert process.takes() == [4, 5], "these were not at work when it died"


def test_a_record_under_which_processes_die_is_dead_lettered() -> None:
    group = Group({P0: "----"}, order="none")
    died = []
    for _ in range(20):
        process = group.process()
        killed = run(process, Random(1), {(P0, 2)})
        if killed is None:
            break
        died.append(killed)
    assert died == [(P0, 2)] * 4
    assert group.given_up == {(P0, 2): 3}
    assert isinstance(group.errors[P0, 2], HandlerDiedError)
    assert set(group.handled) == {(P0, 0), (P0, 1), (P0, 3)}
    assert (group.offset(P0), group.mark(P0)) == (4, Mark())


@pytest.mark.parametrize("after", ["skip", "stop"])
def test_or_it_is_skipped_or_ends_the_processor(after: Any) -> None:
    group = Group({P0: "---"}, order="partition", after=after, attempts=1)
    process = group.process()
    while run(process, Random(1), {(P0, 1)}) is not None:
        process = group.process()
    if after == "skip":
        assert process.engine.tally.skipped == 1
        assert group.offset(P0) == 3
    else:
        assert isinstance(process.engine.failure, HandlerDiedError)
        assert group.offset(P0) == 1


def test_a_record_that_was_at_work_by_chance_keeps_its_attempts() -> None:
    """A second process dies, by another partition's record, while it is named."""
    group = Group({P0: "-"}, order="none")
    for _ in range(2):
        process = group.process()
        process.commit()
        assert process.takes() == [0]
    process = group.process()
    process.commit()
    assert group.mark(P0) == Mark(reach=4, named=0, deaths=1, is_at_work=True)
    job = process.take()
    assert job is not None
    assert job.attempts == 0
    process.end(job, ValueError())
    job = process.take()
    assert job is not None
    assert job.attempts == 1


def test_who_is_put_back_without_a_call_of_its_handler_stays_accused() -> None:
    """The system had no thread or process for it, say: that says nothing of the record."""
    group = Group({P0: "-"}, order="none")
    for _ in range(2):
        process = group.process()
        process.commit()
        assert process.takes() == [0]
    process = group.process()
    process.commit()
    job = process.take()
    assert job is not None
    process.engine.put_back(job)
    assert process.commit(), "it is at work no more: whoever dies now does not die under it"
    assert group.mark(P0) == Mark(reach=4, named=0, deaths=1)
    assert process.takes() == []
    process.commit()
    assert group.mark(P0) == Mark(reach=4, named=0, deaths=1, is_at_work=True)
    assert process.takes() == [0]


def test_who_is_put_back_while_a_commit_says_so_waits_for_another_commit() -> None:
    """Else it would be at work while the group names nobody."""
    group = Group({P0: "-"}, order="none")
    for _ in range(2):
        process = group.process()
        process.commit()
        assert process.takes() == [0]
    process = group.process()
    process.commit()
    job = process.take()
    assert job is not None
    process.engine.put_back(job)
    under_way = process.engine.committable()
    assert process.takes() == []
    commit(under_way)
    assert process.takes() == []
    process.commit()
    assert group.mark(P0) == Mark(reach=4, named=0, deaths=1, is_at_work=True)
    assert process.takes() == [0]


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_a_clean_end_between_deaths_neither_takes_attempts_nor_gives_them(attempts: int) -> None:
    group = Group({P0: "-"}, order="none", attempts=attempts)
    for _ in range(3):
        process = group.process()
        process.commit()
        assert process.takes() == [0]
    process = group.process()
    process.commit()
    process.stop()
    process = group.process()
    process.commit()
    job = process.take()
    assert job is not None
    assert not job.writes_dead_letter, "two deaths are two attempts, and it has three"
    letter = group.process().take()
    assert letter is not None
    assert (letter.writes_dead_letter, letter.attempts) == (True, 3)


def test_what_was_tried_goes_on_when_a_suspect_behind_it_was_given_up() -> None:
    """At the deadline of a hand-over, after which the group lets us keep the partition."""
    group = Group({P0: "ab"}, order="key")
    process = group.process()
    process.commit()
    assert process.takes() == [0, 1]
    process = group.process()
    process.commit()
    first = process.take()
    assert first is not None
    process.end(first, RetryRecord(after=9.0))
    assert process.takes() == []
    process.commit()
    assert process.takes() == [1]
    reassign(process, P0, [])
    process.now = 9.0
    first = process.take()
    assert first is not None
    assert first.offset == 0
    process.end(first)
    assert process.takes() == [1]


def test_an_accused_record_is_at_work_alone_in_its_process() -> None:
    group = Group({tp(0): "--", tp(1): "--", tp(2): "-"}, order="none")
    process = group.process()
    process.commit()
    assert len(process.takes()) == 5
    process = group.process()
    process.take()
    process.commit()
    assert process.takes() == [0, 0, 0]
    process = group.process()
    accused: list[tuple[int, int]] = []
    while len(accused) < 3:
        process.commit()
        job = process.take()
        if job is not None:
            assert process.takes() == []
            accused.append((job.lane.partition.partition, job.offset))
            process.end(job)
            assert process.takes() == [], "it is named until a commit says otherwise"
    assert sorted(accused) == [(0, 0), (1, 0), (2, 0)]


def failed(process: Process) -> Job:
    """The next record, of which nobody acknowledges the dead letter."""
    job = process.take()
    assert job is not None
    process.end(job, DeadLetterRecord("bad"), is_acknowledged=False)
    return job


def test_an_accused_record_waits_for_no_letter_that_is_in_flight() -> None:
    """For up to two minutes nothing else would go on."""
    group = Group({P0: "-", tp(1): "-", tp(2): "--"}, order="none")
    for _ in range(2):
        process = group.process(later=[tp(1), tp(2)])
        process.commit()
        assert process.takes() == [0]
    process = group.process(later=[P0, tp(2)])
    process.commit()
    at_work = process.take()
    assert at_work is not None
    process.assign(P0)
    assert process.takes() == []
    process.commit()
    assert process.takes() == [], "a handler runs"
    process.end(at_work, DeadLetterRecord("bad"), is_acknowledged=False)
    assert process.takes() == []
    process.commit()
    accused = process.take()
    assert accused is not None
    assert accused.lane.partition == P0
    process.assign(tp(2))
    process.commit()
    assert process.takes() == []
    process.end(accused, DeadLetterRecord("bad"), is_acknowledged=False)
    process.commit()
    assert process.takes() == [0, 1], "nor do others wait for the letter of one that was accused"
    process.end(at_work)
    process.end(accused)
    assert (process.engine.started, process.engine.tally.dead_lettered) == (2, 2)


@pytest.mark.parametrize("letter", ["given up", "written"])
def test_a_letter_that_was_given_up_makes_no_room_beside_an_accused_record(letter: str) -> None:
    group = Group({P0: "-", tp(1): "-", tp(2): "-"}, order="none")
    for _ in range(2):
        process = group.process(later=[tp(1), tp(2)])
        process.commit()
        assert process.takes() == [0]
    process = group.process(later=[P0, tp(2)])
    process.commit()
    job = failed(process)
    if letter == "given up":
        process.engine.submit([], [tp(1)])
    else:
        process.end(job)
    process.assign(tp(2))
    process.commit()
    assert process.takes() == [0], "a handler runs"
    process.assign(P0)
    assert process.takes() == []
    process.commit()
    assert process.takes() == []


def test_a_suspect_waits_for_no_letter_of_its_partition() -> None:
    group = Group({P0: "--"}, order="none")
    process = group.process()
    process.commit()
    assert process.takes() == [0, 1]
    process = group.process()
    process.commit()
    failed(process)
    assert process.takes() == []
    process.commit()
    assert process.takes() == [1]


@pytest.mark.parametrize("by", ["hold", "refusal"])
def test_an_accused_that_is_not_started_keeps_nobody_while_a_letter_is_in_flight(by: str) -> None:
    group = Group({P0: "--"}, order="none", backoff=9.0)
    process = group.process()
    process.commit()
    assert process.takes() == [0, 1]
    process = group.process()
    process.commit()
    first = process.take()
    assert first is not None
    process.end(first, ValueError("it is tried again"))
    assert process.takes() == []
    process.commit()
    assert process.takes() == [1]
    group.logs[tp(1)] = keyed(tp(1), "--")
    process = group.process(later=[tp(1)])
    process.commit()
    failed(process)
    assert process.takes() == []
    process.assign(tp(1))
    if by == "hold":
        assert process.engine.hold([P0]) == {P0}
    process.commit(refused=[P0] if by == "refusal" else [])
    assert process.takes() == [0, 1]


def test_an_accused_record_whose_commits_are_refused_keeps_no_other_partition() -> None:
    """READ of its topic was revoked. Nor is it blamed for what the others do meanwhile."""
    group = Group({P0: "-"}, order="none")
    for _ in range(2):
        process = group.process()
        process.commit()
        assert process.takes() == [0]
    group.logs[tp(1)] = keyed(tp(1), "--", start=7)
    process = group.process()
    assert process.takes() == []
    process.commit(refused=[P0])
    others = [process.take(), process.take()]
    assert [job and job.lane.partition for job in others] == [tp(1), tp(1)]
    process.commit()
    assert group.mark(P0) == Mark(reach=4, named=0, deaths=1)
    for job in others:
        assert job is not None
        assert process.takes() == []
        process.end(job)
    assert process.takes() == []
    process.commit()
    assert group.mark(P0) == Mark(reach=4, named=0, deaths=1, is_at_work=True)
    assert process.takes() == [0]


def test_an_accused_whose_commit_is_refused_afterwards_keeps_no_other_partition() -> None:
    """It is named until a commit says otherwise, and none does before the permission to commit is granted again."""
    group = accused_by(2)
    process = group.process(later=[tp(1)])
    process.commit()
    accused = process.take()
    assert accused is not None
    process.assign(tp(1))
    assert process.takes() == []
    process.commit(refused=[P0])
    assert process.takes() == [], "it is at work"
    process.end(accused)
    assert process.takes() == []
    process.commit(refused=[P0])
    process.commit(refused=[P0])
    assert process.takes() == [0, 1]


def accused_by(deaths: int) -> Group:
    """Of P0 the record that was at work when the last process died; P1 has two."""
    group = Group({P0: "-"}, order="none")
    for _ in range(deaths):
        process = group.process()
        process.commit()
        assert process.takes() == [0]
    group.logs[tp(1)] = keyed(tp(1), "--")
    return group


def behind_others(others: int = 1, **plan: Any) -> Group:
    """The accused record of P0: so many before it are suspects. P1 is empty so far."""
    group = Group({P0: "-" * (others + 1)}, order="none", backoff=9.0, **plan)
    process = group.process()
    process.commit()
    process.takes()
    process = group.process()
    process.commit()
    for _ in range(others):
        job = process.take()
        assert job is not None
        process.end(job, ValueError("it is tried again"))
        assert process.takes() == []
        process.commit()
    assert process.takes() == [others]
    group.logs[tp(1)] = keyed(tp(1), "--")
    return group


def with_a_letter_in_flight(**plan: Any) -> tuple[Group, Process]:
    """Before the accused record 1 of P0."""
    group = behind_others(**plan)
    process = group.process(later=[tp(1)])
    process.commit()
    failed(process)
    return group, process


def beside_a_steady_partition() -> tuple[Group, Process]:
    """The same, and of P1 one record is finished, and the other needs no commit. The accused one is named."""
    group = behind_others()
    process = group.process()
    process.commit()
    jobs = {job.lane.partition: job for job in (process.take(), process.take()) if job is not None}
    process.end(jobs[tp(1)])
    process.commit()
    process.end(jobs[P0], DeadLetterRecord("bad"), is_acknowledged=False)
    assert process.takes() == []
    process.commit()
    assert group.mark(P0) == Mark(reach=4, named=1, deaths=1, is_at_work=True)
    return group, process


@pytest.mark.parametrize("outcome", ["committed", "refused", "failed"])
def test_others_wait_until_a_commit_takes_back_that_an_accused_is_at_work(outcome: str) -> None:
    """What they do would be blamed on it. Unless nobody knows for how long: the broker does not take that commit."""
    group, process = beside_a_steady_partition()
    assert process.engine.hold([P0]) == {P0}
    assert process.takes() == []
    assert process.engine.hold([P0]) == {P0}, "as in each round"
    assert process.takes() == []
    assert process.engine.has_starts(), "soon"
    snapshot = process.engine.committable()
    for partition, entry in snapshot.entries.items():
        snapshot.settle(partition, entry, committed=outcome == "committed", refused=outcome == "refused")
    assert process.takes() == [1]
    assert group.mark(P0).is_at_work


def test_others_wait_until_a_commit_takes_back_that_what_was_given_up_is_at_work() -> None:
    """At the deadline of its hand-over: the group's mark still says so, and what others do would be blamed on it."""
    group = accused_by(2)
    process = group.process(later=[tp(1)])
    assert process.takes() == []
    process.commit()
    assert process.takes() == [0]
    process.assign(tp(1))
    process.commit()
    process.engine.hold([P0])
    process.engine.give_up_of(P0)
    assert process.takes() == []
    assert process.engine.has_starts(), "soon"
    process.engine.hold([P0])
    assert process.takes() == []
    assert group.mark(P0).is_at_work
    process.commit()
    assert not group.mark(P0).is_at_work
    process.commit()
    assert process.takes() == [0, 1]


def test_others_wait_for_no_commit_of_a_partition_that_is_gone() -> None:
    _, process = beside_a_steady_partition()
    process.engine.hold([P0])
    process.engine.submit([], [P0])
    assert process.takes() == [1]


@pytest.mark.parametrize("committed", [True, False])
def test_an_accused_that_is_named_anew_while_its_mark_is_taken_back_is_waited_for(*, committed: bool) -> None:
    """Its hand-over does not take place, and a commit that was sent before, or failed, says nothing of that."""
    _, process = beside_a_steady_partition()
    process.engine.hold([P0])
    snapshot = process.engine.committable()
    process.engine.hold([])
    assert process.takes() == []
    for partition, entry in snapshot.entries.items():
        snapshot.settle(partition, entry, committed=committed)
    assert process.takes() == []
    process.commit()
    assert [job.lane.partition for job in [process.take()] if job is not None] == [P0]


def named_anew(group: Group) -> list[TopicPartition]:
    """By a process that knows that one has died under it."""
    return [each for each in (P0, tp(1)) if group.mark(each).is_at_work and group.mark(each).deaths]


def test_of_two_accused_one_is_named_though_a_hand_over_is_taken_back() -> None:
    """The commit says that the partition is let go. Else the other one would be started beside it, and blame it."""
    group = Group({P0: "-", tp(1): "-"}, order="none")
    for _ in range(2):
        process = group.process()
        process.commit()
        assert process.takes() == [0, 0]
    process = group.process()
    process.commit()
    assert named_anew(group) == [P0]
    assert process.engine.hold([P0]) == {P0}
    snapshot = process.engine.committable()
    assert process.engine.hold([]) == set()
    assert process.takes() == []
    group.committed |= snapshot
    commit(snapshot)
    process.commit()
    assert named_anew(group) == [P0]
    assert [job.lane.partition for job in (process.take(), process.take()) if job is not None] == [P0]


@pytest.mark.parametrize("is_named", [True, False])
def test_due_letters_that_fill_a_partition_keep_its_accused_but_no_other_partition(*, is_named: bool) -> None:
    """The topic of letters is away for long: of two one is in flight, and the other one comes before the accused."""
    group = behind_others(2, per_partition=1)
    process = group.process(later=[tp(1)])
    process.commit()
    for number in range(2):
        job = process.take()
        assert isinstance(job, Task)
        assert job.offset == number
        process.end(job, DeadLetterRecord("bad"), is_acknowledged=False)
        if number == 0:
            process.engine.wrote(job, ConnectionError(), process.now, 0.5)
            process.takes()
            process.commit()
    process.assign(tp(1))
    assert process.takes() == [], "while the accused waits for nothing but its commit"
    if is_named:
        process.commit()
    process.now = 100.0
    process.engine.has_next(process.now)
    for _ in range(3):
        process.commit()
    assert [(job.lane.partition, job.offset) for job in [process.take()] if job is not None] == [(tp(1), 0)]
    assert not group.mark(P0).is_at_work


@pytest.mark.parametrize("when", ["before", "while", "after"])
def test_a_hand_over_names_no_accused_at_work_while_a_letter_is_in_flight(when: str) -> None:
    """Others are at work meanwhile: what they do would be blamed on it. when: the commit that names it is sent."""
    group, process = with_a_letter_in_flight()
    assert process.takes() == []
    snapshot = process.engine.committable()
    if when == "before":
        process.commit()
        assert group.mark(P0) == Mark(reach=4, named=1, deaths=1, is_at_work=True)
    assert process.engine.hold([P0]) == {P0}
    if when == "while":
        group.committed |= snapshot
        commit(snapshot)
        assert group.mark(P0).is_at_work
        assert process.engine.hold([P0]) == {P0}
    assert process.engine.has_starts(), "soon, whenever the letter is acknowledged"
    process.commit()
    assert group.mark(P0) == Mark(named=1, deaths=1)
    assert process.engine.hold([P0]) == {P0}
    assert not process.commit(), "once is enough"
    process.assign(tp(1))
    process.commit()
    assert process.takes() == [0, 1]


def test_an_accused_given_up_by_a_hand_over_is_named_anew_when_it_is_taken_back() -> None:
    """Not by a commit that comes before anybody has looked at it."""
    group, process = with_a_letter_in_flight()
    assert process.takes() == []
    assert process.engine.hold([P0]) == {P0}
    process.assign(tp(1))
    process.commit()
    assert process.takes() == [0, 1]
    assert process.engine.hold([]) == set()
    process.end(next(process.engine.at_work()))
    assert process.commit()
    assert (group.offset(P0), group.mark(P0).is_at_work) == (1, False), "others are at work"


@pytest.mark.parametrize("when", ["before", "while", "after"])
def test_a_stop_takes_a_mark_back_while_a_letter_is_in_flight(when: str) -> None:
    """when: the commit that names the accused record is accepted."""
    group, process = with_a_letter_in_flight()
    assert process.takes() == []
    snapshot = process.engine.committable()
    if when == "before":
        process.commit()
    process.engine.stop()
    if when == "while":
        group.committed |= snapshot
        commit(snapshot)
        assert group.mark(P0).is_at_work
    assert process.engine.has_starts(), "it may be killed before the letter is acknowledged"
    process.commit()
    assert group.mark(P0) == Mark(named=1, deaths=1)
    assert not process.engine.has_starts()
    assert not process.commit(), "once is enough"


def test_a_stop_takes_the_mark_of_a_suspect_back_that_a_commit_on_its_way_names() -> None:
    group = Group({P0: "--"}, order="none")
    process = group.process()
    process.commit()
    assert process.takes() == [0, 1]
    process = group.process()
    process.commit()
    failed(process)
    assert process.takes() == []
    snapshot = process.engine.committable()
    process.engine.stop()
    group.committed |= snapshot
    commit(snapshot)
    assert group.mark(P0) == Mark(reach=4, named=1, is_at_work=True)
    assert process.engine.has_starts(), "it may be killed before the letter of the other one is acknowledged"
    process.commit()
    assert group.mark(P0) == Mark()


def test_a_stop_takes_a_mark_back_when_the_last_handler_ends_by_a_letter() -> None:
    """It ran at the stop: the process may be killed before the letter is acknowledged."""
    group = Group({P0: "--"}, order="none")
    process = group.process()
    process.commit()
    job = process.take()
    assert job is not None
    process.engine.stop()
    assert not process.engine.has_starts(), "its handler runs"
    process.end(job, DeadLetterRecord("bad"), is_acknowledged=False)
    assert process.engine.has_starts()
    process.commit()
    assert group.mark(P0) == Mark()
    assert not process.commit(), "once is enough"


def test_an_accused_record_waits_for_no_outputs_that_are_handed_over() -> None:
    group = accused_by(2)
    process = group.process(later=[P0])
    process.commit()
    jobs = [process.take(), process.take()]
    process.assign(P0)
    process.commit()
    assert process.takes() == [], "handlers run"
    for job in jobs:
        assert job is not None
        process.engine.handed_over(job)
    process.commit()
    assert process.takes() == [0]
    assert group.mark(P0).is_at_work


def test_a_stop_takes_a_mark_back_beside_outputs_that_are_handed_over() -> None:
    group = Group({P0: "-"}, order="none")
    process = group.process()
    process.commit()
    job = process.take()
    assert job is not None
    process.engine.stop()
    process.engine.handed_over(job)
    assert process.engine.has_starts(), "soon"
    process.commit()
    assert (group.offset(P0), group.mark(P0)) == (0, Mark())


@pytest.mark.parametrize("how", ["well", "by a retry", "put back"])
def test_a_stop_takes_a_mark_back_however_the_last_handler_ends_beside_a_letter(how: str) -> None:
    """It ran at the stop: the process may be killed before the letter is acknowledged."""
    group = Group({P0: "--"}, order="none")
    process = group.process()
    process.commit()
    failed(process)
    job = process.take()
    assert job is not None
    process.engine.stop()
    assert not process.engine.has_starts(), "its handler runs"
    if how == "put back":
        process.engine.put_back(job)
    else:
        process.end(job, None if how == "well" else ValueError())
    assert process.engine.has_starts(), "soon"
    process.commit()
    assert group.mark(P0) == Mark()
    assert not process.commit(), "once is enough"


def test_letters_that_fill_a_partition_keep_its_accused_from_no_trial() -> None:
    """Nobody may acknowledge them for long, and all other partitions may wait for its trial."""
    _, process = with_a_letter_in_flight(per_partition=1)
    process.assign(tp(1))
    assert process.takes() == []
    process.commit()
    accused = process.take()
    assert accused is not None
    assert (accused.lane.partition, accused.offset) == (P0, 1)
    assert process.takes() == []
    process.end(accused)
    for _ in range(2):
        process.commit()
    assert process.takes() == [0], "of the other partition one at a time"


def test_where_a_handler_fills_its_partition_nobody_waits_for_its_accused() -> None:
    group = Group({P0: "--"}, order="none", per_partition=1, backoff=9.0)
    process = group.process()
    process.commit()
    process.takes()
    process = group.process()
    process.commit()
    first = process.take()
    assert first is not None
    process.end(first, ValueError("it is tried again"))
    assert process.takes() == []
    process.commit()
    assert process.takes() == [1]
    group.logs[tp(1)] = keyed(tp(1), "-")
    process = group.process(later=[tp(1)])
    process.commit()
    assert process.takes() == [0], "a suspect, which is at work for long"
    process.assign(tp(1))
    assert process.takes() == []
    process.commit()
    assert process.takes() == [0]


def test_a_broker_that_takes_no_metadata_is_not_waited_for() -> None:
    group = Group({P0: "--"}, order="none")
    process = group.process()
    while process.engine.shrink_metadata():
        pass
    process.commit()
    assert not group.mark(P0)
    assert process.takes() == [0, 1]


def test_a_stale_commit_asks_for_no_other() -> None:
    bench = Bench(order="none", window=4)
    bench.submit(keyed(P0, "-"))
    assert bench.takes() == []
    snapshot = bench.engine.committable()
    snapshot.settle(P0, snapshot.entries[P0], committed=False, stale=True)
    assert bench.engine.hold([P0]) == set()
    assert not bench.engine.is_beginning()


def test_after_a_stale_commit_what_came_before_goes_on() -> None:
    """Its position was reset while it was full, and paused: no poll brings anything newer before some of it is done."""
    bench = Bench(order="none", window=4)
    bench.submit(keyed(P0, "-" * 9))
    assert bench.takes() == []
    bench.commit()
    jobs = bench.takes()
    assert len(jobs) == 4
    for job in jobs:
        bench.end(job)
    snapshot = bench.engine.committable()
    snapshot.settle(P0, snapshot.entries[P0], committed=False, stale=True)
    assert [task.offset for task in bench.takes()] == [4, 5, 6, 7, 8]


def reassign(process: Process, partition: TopicPartition, at_work: list[Job]) -> None:
    """Its revocation is requested, what is at work of it is given up, and then it is assigned again."""
    assert partition in process.engine.hold([partition])
    process.engine.give_up_of(partition)
    at_work[:] = [job for job in at_work if job.lane.partition != partition]
    process.engine.hold([])


STOPPED: Place = (tp(-1), -1)
"""In place of a record that kills: the process came to a clean end before it had nothing more to do."""


def run(process: Process, chance: Random, killers: set[Place], *, stops: float = 0.0) -> Place | None:
    """Until it has no more to do, or a record kills it: which. stops: how probable a clean end is, at each step."""
    at_work: list[Job] = []
    idle = 0
    while idle < 3 or process.unassigned:
        if stops and chance.random() < stops:
            process.stop()
            return STOPPED
        if process.unassigned and chance.random() < 0.1:
            process.assign(process.unassigned.pop())
            idle = 0
        elif chance.random() < 0.5 and len(at_work) < 6 and (job := process.take()) is not None:
            at_work.append(job)
            idle = 0
        elif at_work and chance.random() < 0.7:
            job = at_work.pop(chance.randrange(len(at_work)))
            tasks = job.tasks if isinstance(job, Batch) else [job]
            killing = [_place(each) for each in tasks if _place(each) in killers]
            if killing and not job.writes_dead_letter:
                return killing[0]
            writes = job.writes_dead_letter
            process.end(job, ValueError() if chance.random() < 0.05 else None, is_acknowledged=False)
            if job.writes_dead_letter and not writes:
                at_work.append(job)
        elif at_work and chance.random() < 0.1:
            reassign(process, chance.choice(at_work).lane.partition, at_work)
        elif chance.random() < 0.1 or not at_work:
            process.now += 1.0
            is_idle = not (process.commit() or at_work or process.engine.has_next(process.now))
            idle += is_idle and process.engine.next_due() is None
    return None


@pytest.mark.parametrize("seed", range(400))
def test_no_record_crash_loops_the_service_and_none_is_blamed_for_another(seed: int) -> None:
    """Attempts are bounded over crashes; all others are handled, whoever dies."""
    chance = Random(seed)
    logs = {tp(number): "".join(chance.choices("abc-.", k=30)) for number in range(chance.choice([1, 3]))}
    order = chance.choice(["partition", "key", "none"])
    group = Group(logs, order=order, max_batch=chance.choice([0, 0, 3]), attempts=chance.choice([1, 3, 5]), backoff=1.0)
    everything = {(each.topic_partition, each.offset) for log in group.logs.values() for each in log}
    killers = set(chance.sample(sorted(everything), chance.choice([1, 2])))
    deaths: Counter[Place] = Counter()
    stops = chance.choice([0.0, 0.03])
    while True:
        process = group.process(chance.sample(sorted(logs), len(logs) // 2))
        killed = run(process, chance, killers, stops=stops)
        if killed is None:
            break
        deaths[killed] += 1
        # A clean end before a record is named forgives one death.
        assert all(deaths[each] <= 12 + deaths[STOPPED] for each in killers), group.committed
    # The first death names nobody, and three are attempts; but of two, one may be named while the other kills.
    assert min(deaths[each] for each in killers) >= (4 if len(killers) == 1 else 2)
    assert killers <= set(group.given_up)
    assert {each for each, error in group.errors.items() if isinstance(error, HandlerDiedError)} <= killers
    assert everything - set(group.given_up) == set(group.handled) - set(group.given_up)
