"""A member of the demo's group with instride's `Processor`, whose handler does what the other members in threads do.

Laws
1. A call of the handler writes one Parquet file of one partition's records; only then are they committed.
2. In a hand-over it waits for the calls that are at work on that partition, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from demo.confluent_member import MOST_MESSAGES, THREADS, parquet_name, write
from demo.history import Note
from demo.member import Plan, main
from instride import ConsumerRecord, Processor
from instride.records import OffsetRange, TopicPartition
from instride.telemetry import OwnershipChange, OwnershipChanged, TelemetryEvent
from instride.testing import Recorder


class ProcessorMember:
    """One run of a processor, and what its consumer cannot tell the history: its work."""

    def __init__(self, plan: Plan, app: str, history: Recorder) -> None:
        self._plan = plan
        self._begun: dict[TopicPartition, int] = {}
        processor = Processor(
            self._handle,
            topics=[plan.topic],
            order="partition",
            concurrency=THREADS,
            max_batch=MOST_MESSAGES,
            max_wait=0.5,
            max_records=MOST_MESSAGES * THREADS,
            commit_interval=0.5,
        )
        self._running = processor.running(
            bootstrap_servers=plan.bootstrap_servers,
            group_id=f"demo-{plan.kind}",
            client_id=app,
            auto_offset_reset="earliest",
            session_timeout=10.0,
            telemetry=self._hear,
        )
        self._recorded = history.watch(self._running.consumer, app)

    def stop(self) -> None:
        self._running.stop()

    def run(self) -> None:
        with self._running:
            self._running.wait()

    def _handle(self, records: list[ConsumerRecord]) -> None:
        work = _range(records)
        self._begun[work.topic_partition] = work.end
        self._recorded.note(Note.WORK_BEGAN, work.partition, work.start, work.end)
        name = parquet_name(work.partition, work.start)
        write(self._plan, name, [record.value or b"" for record in records])
        self._recorded.done(work)

    def _hear(self, event: TelemetryEvent) -> None:
        if isinstance(event, OwnershipChanged) and event.change is OwnershipChange.COMPLETING:
            for each in event.partitions:
                self._recorded.not_begun(each, self._begun.get(each, 0))


def _range(records: list[ConsumerRecord]) -> OffsetRange:
    first = records[0]
    return OffsetRange(
        topic=first.topic,
        partition=first.partition,
        start=first.offset,
        end=records[-1].offset + 1,
        epoch=first.epoch,
        seek_number=first.seek_number,
    )


@contextmanager
def member(plan: Plan, app: str, history: Recorder) -> Iterator[ProcessorMember]:
    plan.output.mkdir(parents=True, exist_ok=True)
    yield ProcessorMember(plan, app, history)


if __name__ == "__main__":
    main(member)
