"""A member of the demo's group with confluent-kafka's consumer: the best that it allows.

Laws
1. Each partition has a lane: at most one job at a time, on all that has arrived for it meanwhile. Lanes run
   beside each other.
2. A job writes one Parquet file; only then are its offsets committed. What was fetched and not begun is dropped
   on a revoke.
3. The revoke callback is all that this client offers: a partition is released when the callback returns. So
   it waits there for the jobs of the partitions that move, while the other lanes work on what was fetched
   before. Nothing new is fetched for any partition meanwhile, because nobody polls. That wait is what the
   demo shows.
4. In the kind of run that releases at once, the callback waits for nothing: it commits what is finished. The jobs in
   progress go on, and their partitions move: the next owners do the same records once more.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import sleep
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from pyarrow import parquet

from demo.history import Note
from demo.member import Member, Plan, main
from instride.errors import BrokerResponseError
from instride.records import TopicPartition as Partition
from instride.testing import Recorder

POLL_SECONDS: Final = 0.5
MOST_MESSAGES: Final = 20_000
LOOK_SECONDS: Final = 0.1
THREADS: Final = 12
SETTINGS: Final[dict[str, Any]] = {
    "log_level": 4,
    "partition.assignment.strategy": "cooperative-sticky",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "session.timeout.ms": 10_000,
}


@dataclass(slots=True)
class Lane:
    """What arrived and is not begun (offset and value), and the job in progress: on the offsets [first, end)."""

    partition: Partition
    arrived: list[tuple[int, bytes]] = field(default_factory=list)
    job: Future[None] | None = None
    first: int = 0
    end: int = 0


class ConfluentMember:
    """One consumer, its lanes, and its callbacks, which run on this thread inside `consume` and `close`."""

    def __init__(self, plan: Plan, app: str, history: Recorder, pool: ThreadPoolExecutor) -> None:
        self._plan = plan
        self._app = app
        self._history = history
        self._recorded = history.peer(app, finishes="told", commits=True)
        self._pool = pool
        self._lanes: dict[int, Lane] = {}
        self._stopped = False
        where = {"bootstrap.servers": plan.bootstrap_servers, "group.id": f"demo-{plan.kind}", "client.id": app}
        self._consumer = Consumer({**SETTINGS, **where})

    def stop(self) -> None:
        self._stopped = True

    def run(self) -> None:
        """Consume until asked to stop; then finish what is in progress and leave the group."""
        self._consumer.subscribe(
            [self._plan.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        try:
            while not self._stopped:
                self._take(self._consumer.consume(MOST_MESSAGES, POLL_SECONDS))
                self._advance()
        finally:
            self._consumer.close()
        self._recorded.closed()

    def _take(self, messages: Iterable[Message]) -> None:
        offsets: dict[Partition, list[int]] = {}
        for message in messages:
            if (error := message.error()) is not None:
                raise BrokerResponseError(f"consuming {self._plan.topic!r}: {error}", code=error.code())
            if (lane := self._lanes.get(message.partition() or 0)) is not None:
                lane.arrived.append((message.offset() or 0, message.value() or b""))
                offsets.setdefault(lane.partition, []).append(lane.arrived[-1][0])
        self._record(offsets)

    def _record(self, offsets: dict[Partition, list[int]] | None = None, lost: Iterable[Partition] = ()) -> None:
        """What was consumed, and who owns what now, into the history."""
        self._recorded.turn(offsets or {}, [lane.partition for lane in self._lanes.values()], lost)

    def _advance(self) -> None:
        """Commit what is finished, and begin jobs on what has arrived for the idle lanes."""
        self._commit_finished()
        for number, lane in self._lanes.items():
            if lane.job is None and lane.arrived:
                lane.first, lane.end = lane.arrived[0][0], lane.arrived[-1][0] + 1
                self._history.add(self._app, Note.WORK_BEGAN, number, lane.first, lane.end)
                values = [value for _, value in lane.arrived]
                lane.job = self._pool.submit(write, self._plan, number, lane.first, values)
                lane.arrived = []

    def _commit_finished(self) -> None:
        """One commit for every job that is done. Where it is refused they stay, for the next time: a moment later."""
        done = [lane for lane in self._lanes.values() if lane.job is not None and lane.job.done()]
        if not done:
            return
        for lane in done:
            lane.job.result()  # type: ignore[union-attr]
        offsets = [TopicPartition(*lane.partition, lane.end) for lane in done]
        try:
            responses = self._consumer.commit(offsets=offsets, asynchronous=False)
            is_refused = any(response.error for response in responses or ())
        except KafkaException:
            is_refused = True
        if is_refused:
            sleep(LOOK_SECONDS)
            return
        for lane in done:
            lane.job = None
            self._recorded.done(lane.partition, lane.first, lane.end - 1)
        self._recorded.committed({lane.partition: lane.end for lane in done})

    # --- callbacks

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._lanes[each.partition] = Lane(Partition(each.topic, each.partition))
        self._record()

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        moving = [self._lanes[each.partition] for each in partitions if each.partition in self._lanes]
        for lane in moving:
            if lane.arrived:
                self._recorded.not_begun(lane.partition, lane.arrived[0][0])
            lane.arrived = []
        self._before_release(moving)
        consumer.incremental_unassign(partitions)
        for lane in moving:
            del self._lanes[lane.partition.partition]
        self._record()

    def _before_release(self, moving: list[Lane]) -> None:
        """Law 3."""
        self._history.add(self._app, Note.REVOKE_WAITS, [lane.partition.partition for lane in moving])
        while jobs := [lane.job for lane in moving if lane.job is not None]:
            wait(jobs, timeout=LOOK_SECONDS)
            self._advance()

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gone = [lane for each in partitions if (lane := self._lanes.pop(each.partition, None)) is not None]
        self._record(lost=[lane.partition for lane in gone])


class ReleasingMember(ConfluentMember):
    """Law 4 makes the difference."""

    def _before_release(self, moving: list[Lane]) -> None:
        self._commit_finished()
        for lane in moving:
            if lane.job is not None:
                reason = "its partition went before it was committed"
                self._history.add(self._app, Note.WORK_FAILED, lane.partition.partition, lane.first, reason)


def write(plan: Plan, partition: int, first: int, values: list[bytes]) -> None:
    """Do the work and write its result. The file is read when every member has left: none is unfinished by then."""
    name = f"{partition:02d}-{first:09d}-{uuid.uuid4().hex[:8]}.parquet"
    plan.output.mkdir(parents=True, exist_ok=True)
    parquet.write_table(plan.work(values), plan.output / name)


@contextmanager
def member(plan: Plan, app: str, history: Recorder) -> Iterator[Member]:
    kind = ReleasingMember if plan.kind == "releasing_at_once" else ConfluentMember
    with ThreadPoolExecutor(THREADS) as pool:
        made = kind(plan, app, history, pool)
        yield Member(made.run, made.stop)


if __name__ == "__main__":
    main(member)
