"""A member of the demo's group with instride's `Processor`, whose handler does what the other members in threads do.

Laws
1. A call of the handler writes one Parquet file of one partition's records; only then are they committed.
2. In a hand-over it waits for the calls that are in progress on that partition, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from demo.confluent_member import MOST_MESSAGES, THREADS, write
from demo.member import Member, Plan, WorkNotes, main
from instride import ConsumerRecord, Processor
from instride.records import OffsetRange
from instride.testing import Recorder


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
def member(plan: Plan, app: str, history: Recorder) -> Iterator[Member]:
    def handle(records: list[ConsumerRecord]) -> None:
        work = _range(records)
        notes.began(work)
        write(plan, work.partition, work.start, [record.value or b"" for record in records])
        notes.recorded.done(work)

    running = Processor(
        handle,
        topics=[plan.topic],
        order="partition",
        concurrency=THREADS,
        max_batch=MOST_MESSAGES,
        max_wait=0.25,
        max_records=MOST_MESSAGES * THREADS,
        commit_interval=0.5,
    ).running(
        bootstrap_servers=plan.bootstrap_servers,
        group_id=f"demo-{plan.kind}",
        client_id=app,
        auto_offset_reset="earliest",
        session_timeout=10.0,
    )
    notes = WorkNotes(history, running.consumer, app)

    def run() -> None:
        with running:
            running.wait()

    yield Member(run, running.stop)


if __name__ == "__main__":
    main(member)
