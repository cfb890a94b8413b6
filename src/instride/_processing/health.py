"""What a probe and a dashboard ask of a processor that runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from instride._processing.engine import Engine, Task
from instride._processing.poll_loop import Drains
from instride._setting_parsing import check_telemetry
from instride.records import TopicPartition
from instride.telemetry import Blocker, Hold, PartitionFlows, PartitionStalled, TelemetryEvent, TelemetryListener

__all__ = [
    "Health",
    "Stalls",
    "StuckRecord",
    "UnwrittenLetter",
    "holdings",
    "metrics",
    "stuck_record",
    "unwritten_letters",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckRecord:
    """A record that has been in progress for longer than stuck_after. attempt: 1 for the first."""

    partition: TopicPartition
    offset: int
    seconds: float
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnwrittenLetter:
    """A record whose dead letter could not be written so far. It is tried again; no commit covers it before."""

    partition: TopicPartition
    offset: int
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """For probes: three booleans, and why.

    ready: it has joined its group, and does not stop. live: it polls (a poll has returned within max_poll_interval) and
    has not ended. stalled: something stands still while the others go on: stuck has the records that have been
    in progress for longer than stuck_after, stalled_partitions where records wait and none was finished for so long, or
    which are behind and bring no records (the consumer's setting stalled_after).
    unwritten_letters: whose dead letters the broker does not take now.
    outage: by which error its circuit breaker is open. ended: by what it ended, if it failed.
    """

    ready: bool
    live: bool
    stuck: tuple[StuckRecord, ...] = ()
    stalled_partitions: tuple[TopicPartition, ...] = ()
    unwritten_letters: tuple[UnwrittenLetter, ...] = ()
    outage: BaseException | None = None
    ended: BaseException | None = None

    @property
    def stalled(self) -> bool:
        """Whether a record is stuck, or a partition stands still."""
        return bool(self.stuck or self.stalled_partitions)


class Stalls:
    """Hears the consumer's telemetry, on the thread that polls, before the user's listener does.

    partitions: which of ours make no progress, as the consumer says. Any thread may read them.
    """

    def __init__(self, following: TelemetryListener | None) -> None:
        check_telemetry(following)
        self.partitions: dict[TopicPartition, PartitionStalled] = {}
        self._following = following

    def __call__(self, event: TelemetryEvent) -> None:
        if isinstance(event, PartitionStalled):
            self.partitions[event.partition] = event
        elif isinstance(event, PartitionFlows):
            self.partitions.pop(event.partition, None)
        if self._following is not None:
            self._following(event)


def stuck_record(task: Task, now: float) -> StuckRecord:
    return StuckRecord(
        partition=task.lane.partition, offset=task.offset, seconds=now - task.since, attempt=task.attempts + 1
    )


def unwritten_letters(engine: Engine) -> Iterator[UnwrittenLetter]:
    """Under the engine's lock."""
    for task in engine.unwritten():
        if task.letter_error is not None:
            yield UnwrittenLetter(partition=task.lane.partition, offset=task.offset, error=task.letter_error)


def holdings(holds: Mapping[TopicPartition, Hold], stuck: Sequence[Task], now: float) -> dict[TopicPartition, Hold]:
    """The consumer's, where a stuck record blocks its partition also while the group wants nothing of it."""
    found = dict(holds)
    for partition, task in _oldest(stuck).items():
        hold = found.get(partition)
        if hold is not None and hold.blocker is None:
            text = f"the record at offset {task.offset}, which has been in progress for {now - task.since:.0f} s"
            found[partition] = replace(hold, blocker=Blocker(text=text, offset=task.offset))
    return found


def _oldest(stuck: Sequence[Task]) -> dict[TopicPartition, Task]:
    """Of each partition. stuck: the oldest first."""
    # Backwards: of two entries of a dict the later one stays.
    return {task.lane.partition: task for task in reversed(stuck)}


def metrics(engine: Engine, drains: Drains, now: float, stuck: Sequence[Task] = ()) -> dict[str, float]:
    """docs/processor.md has them as a table. Under the engine's lock. stuck: the oldest first."""
    tally = engine.tally
    oldest = min((task.since for task in engine.at_work()), default=now)
    return {
        "records-in-progress": engine.started,
        "records-queued": engine.queued,
        "bytes-buffered": engine.bytes,
        "records-finished-total": tally.finished,
        "records-retried-total": tally.retried,
        "records-skipped-total": tally.skipped,
        "records-dead-lettered-total": tally.dead_lettered,
        "dead-letters-unwritten": len(engine.unwritten()),
        "records-remembered-total": tally.remembered,
        "records-abandoned-total": tally.abandoned,
        "attempts-total": tally.attempts,
        "attempt-time-avg": tally.seconds / tally.attempts if tally.attempts else 0.0,
        "attempt-time-max": tally.longest,
        "oldest-in-progress-age": now - oldest,
        "records-stuck": len(stuck),
        **{f"stuck-offset.{partition}": task.offset for partition, task in _oldest(stuck).items()},
        "drains-total": drains.count,
        "drain-time-avg": drains.total / drains.count if drains.count else 0.0,
        "drain-time-max": drains.longest,
        "drain-age": drains.age(now),
        "breaker-open": float(engine.breaker is not None and engine.breaker.open_until is not None),
        "breaker-trips-total": 0 if engine.breaker is None else engine.breaker.trips,
    }
