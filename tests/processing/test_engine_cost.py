"""What one step of a processor costs does not grow with what the step does not touch: partitions that are idle, paused
or delayed, records that wait. Counted in instructions of ours, so that a walk over everything fails on any machine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any

import pytest
from engine_help import TOPIC_ID, Bench, desk_of, keyed
from processing_help import P0, commit, tp

from instride import CircuitBreaker, ConsumerRecord, Retry, TopicPartition
from instride._processing.engine import Job, Task
from instride._processing.health import metrics
from instride._processing.poll_loop import Pace, Rounds, Verb
from instride.commits import CommitResult
from instride.consumer_records import ConsumerRecords, Stretch
from step_counter import steps

ORDERS = ["key", "partition", "none"]
FEW, MANY, NOISE = 10, 200, 60
ROOMY = {"max_records": 1 << 30, "max_bytes": 1 << 40}
LATE = Retry(attempts=9, backoff=1_000.0, backoff_max=1_000.0, jitter=0.0)


class Nobody:
    """An executor without work."""

    def wake(self) -> None: ...

    def cancel(self, tasks: Sequence[Task]) -> None: ...


class Brought(list[ConsumerRecord]):
    """What a poll returned."""

    standing = None

    def stretches(self) -> list[Stretch]:
        return [Stretch(each.offset, each.offset + 1, 1) for each in self]


class World:
    """An engine, its loop before a poll, and the desk of its workers. P0 is where something happens."""

    def __init__(self, order: Any = "key", *, has_store: bool = False, **plan: Any) -> None:
        self.now = 0.0
        self.paused: list[tuple[TopicPartition, ...]] = []
        self.answers: dict[str, Any] = {"committed": {}, "topic_ids": {}}
        self.bench = Bench(order=order, **{**ROOMY, **plan})
        self.engine = self.bench.engine
        self.rounds = Rounds(
            self.engine,
            Nobody(),
            pace=Pace(commit_interval=0.0),
            guard=nullcontext(),
            clock=lambda: self.now,
            has_store=has_store,
        )
        self.desk = desk_of(self.engine, clock=lambda: self.now, wants_attention=self.rounds.wants_attention)
        self._verbs = self.rounds.run(["t"])
        self._verb = next(self._verbs)
        self.round()
        self.now = 50.0

    def round(self) -> None:
        """Until the next poll is due."""
        while True:
            answer = self._answer(self._verb)
            self._verb = self._verbs.throw(answer) if isinstance(answer, Exception) else self._verbs.send(answer)
            if self._verb.name == "poll":
                return

    def _answer(self, verb: Verb) -> Any:
        if verb.name == "pause":
            self.paused.append(verb.args)
        if verb.name == "commit_async" and verb.name not in self.answers:
            commit(verb.args[0])
            settled = Future[CommitResult]()
            settled.set_result(CommitResult())
            return settled
        return self.answers.get(verb.name, ConsumerRecords() if verb.name == "poll" else set())

    def start(self) -> Job:
        job = self.desk.next_task()
        assert job is not None
        return job

    def start_all(self) -> list[Job]:
        found = []
        while (job := self.desk.next_task()) is not None:
            found.append(job)
        return found

    def end(self, jobs: Iterable[Job], error: BaseException | None = None) -> None:
        for job in jobs:
            self.desk.end(job, error)

    def is_busy(self, keys: str = "abcdefgh") -> World:
        """P0 has records that may be started; what came of the others is told."""
        self.bench.submit(keyed(P0, keys))
        for _ in range(4):
            self.round()
        return self


def others(many: int) -> list[TopicPartition]:
    return [tp(number) for number in range(1, many + 1)]


def submit(world: World, partitions: Collection[TopicPartition], keys: str = "a") -> None:
    for partition in partitions:
        world.bench.submit(keyed(partition, keys))


def idle(many: int, order: Any) -> World:
    """All that came of the others is finished and committed."""
    world = World(order)
    submit(world, others(many))
    world.end(world.start_all())
    return world.is_busy()


def at_work(many: int, order: Any) -> World:
    """Each of the others has one record at work, and three that wait."""
    world = World(order, per_partition=1)
    submit(world, others(many), "aaaa")
    assert len(world.start_all()) == many
    return world.is_busy()


def tried_again(many: int, order: Any) -> World:
    """Each of the others has a record that waits for its next attempt, and one behind it."""
    world = World(order, retry=LATE)
    submit(world, others(many), "aa")
    world.end(world.start_all(), OSError())
    return world.is_busy()


def tried_again_of_one(many: int, order: Any) -> World:
    """So many keys of one partition wait for their next attempt."""
    world = World(order, retry=LATE, metadata_limit=1 << 20)
    keys = [record for at in range(many) for record in keyed(tp(1), chr(1_000 + at), start=at)]
    world.bench.submit(keys)
    world.end(world.start_all(), OSError())
    return world.is_busy()


def paused(many: int, order: Any) -> World:
    """Each of the others took its share, and what it has is at work or waits for that."""
    world = World(order, per_partition=1, max_records=4 * many)
    submit(world, others(many), "aaaa")
    world.round()
    world.start_all()
    return world.is_busy()


def delayed(many: int, order: Any) -> World:
    """The revocation of all others is requested, and a record of each is at work."""
    world = World(order)
    submit(world, others(many))
    world.start_all()
    world.engine.hold(others(many))
    world.bench.submit(keyed(P0, "abcdefgh"))
    return world


def batched(many: int, order: Any) -> World:
    """Each of the others waits for a batch to be full."""
    world = World(order, max_batch=3, max_wait=900.0)
    submit(world, others(many))
    assert world.start_all() == []
    return world.is_busy("abcdefghi")


def guarded(many: int, order: Any) -> World:
    """Law 11: a commit has said that records of the others are started, and that of P0 is to be moved."""
    world = World(order, window=100)
    submit(world, others(many))
    assert world.start_all() == []
    world.round()
    assert len(world.start_all()) == many
    return world.is_busy()


def outage(many: int, order: Any) -> World:
    """The next probe is due: the one record of P0, which was spared. Those of the others wait for long."""
    world = World(order, retry=LATE, breaker=CircuitBreaker(on=OSError, attempts=1, pause=5.0, pause_max=5.0))
    submit(world, others(many))
    world.end(world.start_all(), ValueError())
    world.bench.submit(keyed(P0, "a"))
    world.end([world.start()], OSError())
    world.round()
    world.round()
    world.now += 5.0
    return world


def unlocated(many: int, order: Any) -> World:
    """Where the others begin a database is to say, which does not respond."""
    world = World(order, has_store=True).is_busy()
    world.answers["stored"] = OSError()
    for partition in others(many):
        world.engine.submit(keyed(partition, "a"))
    world.round()
    return world


def beginning(many: int, order: Any) -> World:
    """Law 7: the others wait for the commit of where they begin, which is on its way."""
    world = World(order).is_busy()
    for partition in others(many):
        world.engine.submit(keyed(partition, "a"))
        world.engine.locate(partition, None, TOPIC_ID)
    world.answers["commit_async"] = Future[CommitResult]()
    world.round()
    return world


def a_record(world: World) -> Callable[[], object]:
    """From its start to its end."""
    return lambda: world.end([world.start()])


def a_failure(world: World) -> Callable[[], object]:
    return lambda: world.end([world.start()], OSError())


def a_round(world: World) -> Callable[[], object]:
    """Whose poll brings nothing."""
    return world.round


def a_round_that_brings(world: World) -> Callable[[], object]:
    """A record more of P0."""
    world.answers["poll"] = Brought(keyed(P0, "z", start=100))
    return world.round


def a_tick(world: World) -> Callable[[], object]:
    """What is looked at once a second."""
    world.now += 20.0  # the first look is after stuck_after; nothing is at work for so long
    return world.round


def a_commit(world: World) -> Callable[[], object]:
    """Of what was finished of one partition."""
    world.end([world.start()])
    return world.round


def a_scrape(world: World) -> Callable[[], object]:
    return lambda: metrics(world.engine, world.rounds.drains, world.now)


STEPS = [a_record, a_failure, a_round, a_round_that_brings, a_tick, a_commit]
WORLDS = {
    idle: STEPS,
    at_work: STEPS,
    tried_again: STEPS,
    tried_again_of_one: STEPS,
    paused: STEPS,
    batched: STEPS,
    guarded: STEPS,
    outage: [a_failure, a_round, a_round_that_brings],
    # Each poll delays anew, so a round is for all of them: see below.
    delayed: [a_record, a_failure],
    unlocated: [a_record, a_failure, a_round, a_round_that_brings],
    beginning: [a_record, a_failure, a_round, a_round_that_brings],
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("world", "step"), [(world, step) for world, found in WORLDS.items() for step in found])
def test_a_step_costs_nothing_for_what_it_does_not_touch(world: Any, step: Any, order: Any) -> None:
    few, many = (steps(step(world(each, order))) for each in (FEW, MANY))
    assert many <= few + NOISE, f"{few} steps with {FEW}, {many} with {MANY:,}"


@pytest.mark.drawn(3)
@pytest.mark.parametrize("step", [*STEPS, a_scrape])
def test_ten_thousand_idle_partitions_cost_a_step_nothing(step: Any) -> None:
    few, many = (steps(step(idle(each, "key"))) for each in (100, 10_000))
    assert many <= few + NOISE, f"{few} steps with 100, {many} with 10,000"


def test_a_round_of_a_hand_over_costs_twice_as_much_for_twice_the_partitions() -> None:
    """Each poll says anew what is delayed, so each round is for all of them."""

    def round_of(many: int) -> Callable[[], object]:
        world = delayed(many, "key")
        world.answers["to_be_revoked_partitions"] = set(others(many))
        world.round()
        return world.round

    few, many = steps(round_of(MANY)), steps(round_of(2 * MANY))
    assert many <= 2.1 * few, f"{few} steps with {MANY} partitions, {many} with twice as many"


def test_a_stop_pauses_all_once_and_again_what_a_rebalance_adds() -> None:
    world = World()
    submit(world, [P0])
    world.start()
    world.answers["assignment"] = {P0, tp(1)}
    world.rounds.stop()
    for _ in range(5):
        world.round()
    assert world.paused == [(P0, tp(1))], "a walk over all of them in each round, fifty a second"
    world.answers["assignment"] = {P0, tp(1), tp(2)}
    world.rounds.on_partitions_assigned([tp(2)])
    for _ in range(5):
        world.round()
    assert world.paused == [(P0, tp(1)), (P0, tp(1), tp(2))]


def test_where_the_metadata_is_full_no_range_costs_a_record_that_ends() -> None:
    def end_one(many: int) -> Callable[[], object]:
        """So much is finished out of order that its ranges fill the metadata: nothing more is started."""
        world = World("none", metadata_limit=8 * many)
        world.bench.submit(keyed(P0, "-" * 4 * many))
        held = []
        while (job := world.desk.next_task()) is not None:
            held.append(job)
            if (job := world.desk.next_task()) is not None:
                world.end([job])
        return lambda: world.end([held[2]])

    few, many = steps(end_one(FEW)), steps(end_one(MANY))
    assert many <= few + NOISE, f"{few} steps with room for {FEW} ranges, {many} for {MANY}"


def inherited(many: int) -> World:
    """An earlier owner had finished every second record, and tried the others. All of them came, and are finished."""
    first, heir = World("none", retry=LATE), World("none", located=False)
    first.bench.submit(keyed(P0, "-" * 2 * many))
    jobs = first.start_all()
    first.end(jobs[1::2])
    first.end(jobs[::2], OSError())
    heir.bench.submit(keyed(P0, "-" * 2 * many, epoch=2))
    heir.engine.locate(P0, first.engine.committable()[P0], TOPIC_ID)
    heir.end(heir.start_all())
    assert (heir.engine.tally.remembered, heir.engine.tally.finished) == (many, many)
    heir.bench.submit(keyed(P0, "--", start=2 * many, epoch=2))
    heir.round()
    heir.round()
    return heir


def bring(world: World) -> Callable[[], object]:
    return lambda: world.bench.submit(keyed(P0, "-", start=9_000, epoch=2))


@pytest.mark.parametrize("step", [bring, a_record, a_round, a_commit])
def test_what_an_earlier_owner_remembered_costs_nothing_once_it_has_come(step: Any) -> None:
    few, many = (steps(step(inherited(each))) for each in (FEW, MANY))
    assert many <= few + NOISE, f"{few} steps with {FEW} ranges remembered, {many} with {MANY}"
