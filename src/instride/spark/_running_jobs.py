"""The work that is under way: jobs, and the ranges in them.

Laws
1. A range of a job is settled once: committed, dropped or failed. A job is finished when it has ended and all its
   ranges are settled.
2. Who is left is kept by name: to settle one range costs the same, however many share its job.
3. `cancelled` is set on one thread and read on others: from then on nothing of the range is committed by us. What
   was on its way to the sink just then is what the sink's compare-and-set is for.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from instride.records import OffsetRange, TopicPartition
from instride.spark._data_source.splitting import cut
from instride.spark._report import RangePart, RangeReport, whole
from instride.spark.sink import OutputRange

__all__ = ["RunningJob", "Job", "output_range"]


@dataclass(slots=True, eq=False)
class RunningJob:
    """A range in a job. parts: how many tasks share it."""

    job: Job
    range: OffsetRange
    parts: int = 1
    cancelled: bool = False
    told: dict[int, RangeReport] = field(default_factory=dict)

    @property
    def reported(self) -> bool:
        """Its tasks, or its job's end, have told of it."""
        return self.partition not in self.job.unreported

    def take(self, report: RangeReport) -> RangeReport | None:
        """What one part says; the whole range's report once all have said theirs."""
        self.told[report.part] = report
        return whole([self.told[number] for number in sorted(self.told)]) if len(self.told) == self.parts else None

    def work(self, topic_id: str) -> list[RangePart]:
        """For its tasks, one each."""
        output = output_range(self.range, topic_id)
        return [RangePart(range=output, offsets=each, number=n) for n, each in enumerate(cut(output, self.parts))]

    @property
    def partition(self) -> TopicPartition:
        return self.range.topic_partition


@dataclass(slots=True, eq=False)
class Job:
    """ended: Spark is done with it. cancel_again_at: None where it is not to be cancelled.

    unreported, unsettled: of its ranges, those that nothing was told of yet, and those of law 1.
    """

    name: str
    running_jobs: dict[TopicPartition, RunningJob] = field(default_factory=dict)
    unreported: dict[TopicPartition, RunningJob] = field(default_factory=dict)
    unsettled: set[TopicPartition] = field(default_factory=set)
    ended: bool = False
    cancel_again_at: float | None = None

    @property
    def finished(self) -> bool:
        return self.ended and not self.unsettled

    def add(self, wanted: OffsetRange, parts: int) -> RunningJob:
        partition = wanted.topic_partition
        added = self.running_jobs[partition] = self.unreported[partition] = RunningJob(
            job=self, range=wanted, parts=parts
        )
        self.unsettled.add(partition)
        return added

    def reported(self, running_job: RunningJob) -> None:
        self.unreported.pop(running_job.partition, None)

    def settled(self, running_job: RunningJob) -> None:
        self.unsettled.discard(running_job.partition)


def output_range(wanted: OffsetRange, topic_id: str = "") -> OutputRange:
    return OutputRange(
        topic=wanted.topic, partition=wanted.partition, start=wanted.start, end=wanted.end, topic_id=topic_id
    )
