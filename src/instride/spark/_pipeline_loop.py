"""One run of a pipeline: KIP-983's loop, in which the records are ranges and to process one is to run a Spark job.

    poll -> note the lists -> take in what jobs and sink told -> commit -> delay -> plan and start

Laws
1. All state is this loop's and changes on its thread only. Other threads put messages into a queue and wake the poll.
2. A range goes: planned and tracked -> in a job -> reported -> in the sink (compare-and-set) -> done in the ledger ->
   committed to the group. Only success takes a step; the sink always comes before the group.
3. The first failure that cannot be mended stops the run. From then on nothing new is begun; what is under way ends and
   is committed, within the stop's time-out. Then the failure is raised.
4. With targets (available-now) a partition gets no new offsets once it has reached its own, and the run stops when each
   partition that is ours has, and the sink has what was read of it. What is gone meanwhile, a topic or the end of a
   log, is not awaited (see `_targets`).
5. Polls go on until the group is left, so that partitions are handed over and kept also while the run stops.
6. A partition's ranges follow each other without a gap, from the sink's position on. Where the log does not have what
   comes next, the consumer resets the position, and the run stops: no sink can go back, and the offsets of a topic that
   was made again mean other records. Only where the reset leads forward in the same topic, and fail_on_data_loss is
   False, the run goes on, and the consumer goes back to where it was: the next range must begin where the sink is, and
   its task passes over what is gone.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, assert_never

from instride._processing.dead_letters import text_of
from instride.commits import CommitResult
from instride.consumer import RangeConsumer
from instride.errors import (
    KafkaError,
    NetworkThreadDiedError,
    OffsetsGoneError,
    RangeFailedError,
    UnknownTopicOrPartitionError,
    WakeupError,
    WrongTopicError,
)
from instride.errors._quoting import counted
from instride.ledger import OffsetLedger
from instride.records import OffsetAndMetadata, OffsetRange, TopicPartition
from instride.spark._committing import Committed, Committer, Failed
from instride.spark._events import JobFinished, JobStarted, PipelineEvent, RangeCommitted, RangeDropped, RangeFailed
from instride.spark._membership import Membership, OwnershipObserver
from instride.spark._planning import Limits, Planner
from instride.spark._report import JobEnded, JobMessage, RangePart, RangeProblem, Reported, problem_of
from instride.spark._resets import ResetObserver
from instride.spark._running_jobs import Job, RunningJob, output_range
from instride.spark._starting import Started, Starts
from instride.spark._targets import Ends, Looked, Targets
from instride.spark._task import RangeTask
from instride.spark.sink import CommitStatus, Sink, new_job_id
from instride.telemetry import PositionReset, ResetCause

if TYPE_CHECKING:
    from instride.spark._connect_jobs import ConnectJobRunner
    from instride.spark._jobs import JobRunner

__all__ = ["PipelineLoop", "LoopSettings"]

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.1
# A job that is just being submitted Spark does not know yet: a cancellation may miss it. At the end of a run jobs have
# as long to end, before those that are left are cancelled again.
_CANCEL_AGAIN_SECONDS: Final = 1.0
_LEAVE_SECONDS: Final = 10.0

Message = JobMessage | Committed | Failed | Started | Looked


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """stop_timeout: seconds that work under way has to end in once the run stops. fail_on_data_loss: see law 6."""

    topics: Sequence[str]
    limits: Limits
    stop_timeout: float
    fail_on_data_loss: bool


class PipelineLoop:
    """task: a template, to be given each job's name. inbox: what the runner tells comes through it. topic_id: gives
    Kafka's id of a topic; it is called on other threads, as is ends. targets: see law 4; None: it goes on until it is
    stopped.
    """

    def __init__(
        self,
        settings: LoopSettings,
        *,
        consumer: RangeConsumer,
        sink: Sink,
        runner: JobRunner | ConnectJobRunner,
        inbox: queue.SimpleQueue[Message],
        task: RangeTask,
        topic_id: Callable[[str], str],
        ends: Ends,
        on_event: Callable[[PipelineEvent], None],
        targets: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        self._settings = settings
        self._consumer = consumer
        self._runner = runner
        self._inbox = inbox
        self._task = task
        self._emit = on_event
        self._ledger = OffsetLedger()
        self._planner = Planner(settings.limits)
        tell = inbox_dispatcher(inbox, consumer)
        self._committer = Committer(sink, tell)
        self._starts = Starts(consumer, sink, topic_id=topic_id, tell=tell, fail=self._fail)
        self._targets = (
            None if targets is None else Targets(targets, ends=ends, sink=sink, tell=tell, aside=self._starts.aside)
        )
        self._membership = Membership(consumer, self._starts, forget=self._forget)
        self._ownership = OwnershipObserver(on_event)
        consumer.observe(self._ownership)
        self._resets = ResetObserver()
        consumer.observe(self._resets)
        # Of each partition that has begun, where its next range begins (law 6).
        self._next: dict[TopicPartition, int] = {}
        self._jobs: dict[str, Job] = {}
        self._running_jobs: dict[TopicPartition, RunningJob] = {}
        self._tracked: dict[TopicPartition, OffsetRange] = {}
        self._commit_call: Future[CommitResult] | None = None
        self._handed_over: dict[TopicPartition, OffsetAndMetadata] = {}
        self._failure: BaseException | None = None
        self._stop_at: float | None = None

    # -- the loop

    def run(self, stopping: Callable[[], bool]) -> None:
        """Until `stopping` says so, or a failure, which is raised."""
        try:
            self._consumer.subscribe(self._settings.topics, listener=self._membership)
            while not self._is_over(stopping() or self._have_all()):
                self._step()
            # What `on_event` raised in the last step: the next one would have raised it.
            self._ownership.check()
        except BaseException as error:  # noqa: BLE001 - raised below, once the run has ended
            self._fail(error)
        finally:
            self._end()
        if self._failure is not None:
            raise self._failure

    def _is_over(self, stopping: bool) -> bool:  # noqa: FBT001
        now = time.monotonic()
        if self._stop_at is None and (stopping or self._failure is not None):
            self._stop_at = now + self._settings.stop_timeout
        if self._stop_at is None:
            return False
        if now >= self._stop_at and self._running_jobs:
            _log.warning(
                "the pipeline stops and cancels what is still under way: %s", counted(len(self._running_jobs), "range")
            )
        return now >= self._stop_at or not (self._running_jobs or self._is_one_ending())

    def _is_one_ending(self) -> bool:
        """Whether a job has told of all its ranges: Spark is about to say that it has ended."""
        return any(not job.ended and not job.unreported for job in self._jobs.values())

    def _have_all(self) -> bool:
        """Law 4."""
        return self._targets is not None and self._targets.are_reached(self._membership.owned)

    def _step(self) -> None:
        ranges = self._following(self._poll())
        self._ownership.check()
        self._planner.offer(ranges, time.monotonic())
        if self._targets is not None:
            self._consumer.pause(
                [each.topic_partition for each in ranges if each.end >= self._target(each.topic_partition)]
            )
            self._targets.look(self._membership.owned, works=bool(self._running_jobs))
        self._membership.look()
        self._starts.look()
        # Before `_commit`: what the sink has told by now goes with this one.
        self._take_messages()
        self._commit()
        # Before `delay`, which would keep a partition for a range that nobody works on.
        self._give_up_retries()
        self._membership.delay(self._ledger.uncommitted, self._waits_for)
        self._cancel_again(time.monotonic())
        if self._goes_on:
            self._plan(time.monotonic())

    @property
    def _goes_on(self) -> bool:
        """Law 3. Whether anything new is begun."""
        return self._stop_at is None and self._failure is None

    def _target(self, partition: TopicPartition) -> int:
        return self._targets.of(partition) if self._targets is not None else 0

    def _reached(self, partition: TopicPartition, position: int) -> None:
        """The sink is there."""
        if self._targets is not None:
            self._targets.reached(partition, position)

    def _looked(self, message: Looked) -> None:
        """Law 4."""
        assert self._targets is not None
        if message.error is not None:
            self._fail(message.error)
        for partition, short in self._targets.take(message).items():
            told = short.told(partition, self._targets.of(partition))
            if short.end is None:
                self._fail(UnknownTopicOrPartitionError(told))
            elif short.position > short.end:
                self._fail(
                    OffsetsGoneError(
                        f"{told}, and the sink is at {short.position}. No sink can go back, fail_on_data_loss or not"
                    )
                )
            elif self._settings.fail_on_data_loss:
                self._fail(OffsetsGoneError(f"{told}. fail_on_data_loss=False goes on without what is gone"))
            else:
                _log.warning("%s", told)
                self._targets.lower(partition, short.end)

    def _waits_for(self, partition: TopicPartition) -> str:
        """Why a partition that is to be revoked is kept."""
        running_job = self._running_jobs.get(partition)
        if running_job is None:
            return "the commit of what its last job finished"
        return f"job {running_job.job.name} on offsets {running_job.range.start} to {running_job.range.end - 1}"

    def _poll(self) -> list[OffsetRange]:
        try:
            return self._consumer.poll(timeout=_POLL_SECONDS)
        except WakeupError:
            return []
        except NetworkThreadDiedError:
            # No later poll would succeed, so nothing under way could be kept or handed over.
            raise
        except KafkaError as error:
            # The loop goes on, to finish what is under way.
            self._fail(error)
            return []

    def _following(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Law 6. What a poll returned, without that of partitions that go back after a reset: it comes again."""
        # Before the ranges are noted: they may be of after the reset.
        again = {event.partition for event in self._resets.take() if self._goes_on_after(event)}
        following = [each for each in ranges if each.topic_partition not in again]
        self._next.update((each.topic_partition, each.end) for each in following)
        return following

    def _goes_on_after(self, event: PositionReset) -> bool:
        """Law 6. True: the consumer went back, and what it found elsewhere is dropped. False: the run stops, or the
        reset is none of its concern."""
        partition = event.partition
        # Else the reset is of before a seek of ours, or of a partition that has not begun or that has gone.
        if self._next.get(partition) != event.from_offset:
            return False
        if event.cause is ResetCause.RECREATED or event.count < 0 or self._settings.fail_on_data_loss:
            self._fail(_lost(event))
            return False
        if partition not in self._consumer.assignment():
            return False
        _log.warning("%s is read on from offset %d, without what is gone", partition, event.from_offset)
        self._consumer.seek(partition, event.from_offset)
        return True

    def _fail(self, error: BaseException, told: str = "") -> None:
        """told: what the log says of it, in place of its text."""
        if self._failure is None:
            self._failure = error
            _log.error("the pipeline stops: %s", told or problem_of(error, text_of(error)).told)

    def _commit(self) -> None:
        """Hand over what is in the sink, unless that very thing is on its way."""
        snapshot = self._ledger.committable()
        on_its_way = self._commit_call is not None and not self._commit_call.done()
        if snapshot and not (on_its_way and snapshot.items() <= self._handed_over.items()):
            self._handed_over = dict(snapshot)
            self._commit_call = self._consumer.commit_async(snapshot)

    def _take_messages(self) -> None:
        while True:
            try:
                message = self._inbox.get_nowait()
            except queue.Empty:
                return
            self._take(message)

    def _take(self, message: Message) -> None:
        match message:
            case Reported():
                self._reported(message)
            case JobEnded():
                self._job_ended(message)
            case Committed():
                self._committed(message)
            case Failed():
                self._failed(message.running_job, message.problem)
            case Started():
                self._started(message)
            case Looked():
                self._looked(message)
            case _:
                assert_never(message)

    def _started(self, message: Started) -> None:
        self._starts.take(message)
        if message.position is not None and not message.start.forgotten:
            self._next[message.start.partition] = message.position
            self._reached(message.start.partition, message.position)

    # -- starting work

    def _plan(self, now: float) -> None:
        # Those that Spark runs: one that has ended may wait for the sink for as long as a commit hangs.
        jobs = sum(not job.ended for job in self._jobs.values())
        tasks = self._planner.plan(now, jobs=jobs, cores=self._runner.cores, blocked=self._membership.blocked)
        if not tasks:
            return
        job = Job(name=new_job_id())
        ranges = tuple(each for ranges in tasks for each in ranges)
        for each in ranges:
            partition = each.topic_partition
            # One that is tried again was tracked by its first try, and the ledger takes no offsets twice.
            if self._tracked.get(partition) != each:
                self._ledger.track([each])
                self._tracked[partition] = each
            self._running_jobs[partition] = job.add(each, self._planner.parts(partition))
        self._jobs[job.name] = job
        self._emit(JobStarted(job=job.name, ranges=ranges))
        # A range that has failed is alone in its job (law 6 of the planner): what holds for one holds for all.
        last_try = self._planner.is_last_try(ranges[0].topic_partition)
        task = replace(self._task, job=job.name, last_try=last_try)
        self._runner.start(task, [work for ranges in tasks for work in self._work(job, ranges)])

    def _work(self, job: Job, ranges: Sequence[OffsetRange]) -> list[list[RangePart]]:
        """Of one task of the plan: as it is, or, where a range is shared, a task for each part."""
        topic_ids = self._starts.topic_ids
        work = [job.running_jobs[each.topic_partition].work(topic_ids.get(each.topic, "")) for each in ranges]
        if len(work) == 1:
            return [[part] for part in work[0]]
        return [[part for parts in work for part in parts]]

    # -- what came of it

    def _reported(self, message: Reported) -> None:
        job = self._jobs.get(message.report.job)
        running_job = job.running_jobs.get(message.report.range.topic_partition) if job is not None else None
        report = running_job.take(message.report) if running_job is not None and not running_job.reported else None
        if running_job is None or report is None:
            return
        running_job.job.reported(running_job)
        self._cancel_if_lost(running_job.job, time.monotonic())
        if running_job.cancelled:
            self._settle(running_job, None)
            return
        # Of a range that failed, its parts have not told all their seconds.
        records = report.records if report.written is not None else 0
        self._planner.told(running_job.range, seconds=report.seconds, records=records, nbytes=report.nbytes)
        if report.written is not None:
            self._committer.commit(running_job, report, report.written)
        else:
            self._committer.look(
                running_job, report.problem or RangeProblem(kind="Unknown", message="nothing was reported")
            )

    def _job_ended(self, message: JobEnded) -> None:
        job = self._jobs[message.job]
        job.ended = True
        # Of a job that succeeded each report has come by now, as its result if not before. What lacks one has failed.
        problem = RangeProblem(kind="SparkJobFailed", message=message.reason or "the job told nothing of the range")
        for running_job in list(job.unreported.values()):
            job.reported(running_job)
            if running_job.cancelled:
                self._settle(running_job, None)
            else:
                self._planner.told(running_job.range)
                self._committer.look(running_job, problem)
        self._drop_if_finished(job)

    def _committed(self, message: Committed) -> None:
        running_job, outcome = message.running_job, message.outcome
        if outcome.status is CommitStatus.CONFLICT:
            self._conflict(running_job, outcome.position)
            return
        report = message.report
        rows = report.written.rows if report is not None and report.written is not None else 0
        letters = report.dead_letters if report is not None else 0
        delay = 0.0
        if letters:
            _log.warning("dead letters: %s of %s", counted(letters, "record"), output_range(running_job.range))
        if not running_job.cancelled:
            delay = self._planner.delay(running_job.range, time.monotonic())
            self._ledger.done(running_job.range)
            self._reached(running_job.partition, running_job.range.end)
            self._tracked.pop(running_job.partition, None)
            self._planner.succeeded(
                running_job.range, records=report.records if report else 0, nbytes=report.nbytes if report else 0
            )
        behind = self._planner.behind(running_job.partition)
        event = RangeCommitted(
            job=running_job.job.name,
            range=running_job.range,
            rows=rows,
            behind=behind,
            delay=delay,
            dead_letters=letters,
        )
        self._settle(running_job, event)

    def _conflict(self, running_job: RunningJob, position: int) -> None:
        """Another has moved the sink: go on from where it is."""
        _log.info("%s is dropped: the sink is at %d", running_job.range, position)
        if not running_job.cancelled:
            self._forget_partition(running_job.partition)
            if running_job.partition in self._consumer.assignment():
                self._next[running_job.partition] = position
                self._consumer.seek(running_job.partition, position)
                self._reached(running_job.partition, position)
                # It was paused when it had read up to its target, and the sink is not as far.
                if position < self._target(running_job.partition):
                    self._consumer.resume(running_job.partition)
        self._settle(running_job, RangeDropped(job=running_job.job.name, range=running_job.range, position=position))

    def _failed(self, running_job: RunningJob, problem: RangeProblem) -> None:
        if running_job.cancelled:
            self._settle(running_job, RangeDropped(job=running_job.job.name, range=running_job.range))
            return
        # In this order, since the planner must hear of it in any case.
        may_pass = self._planner.failed(running_job.range, time.monotonic()) and not problem.fatal
        again = may_pass and self._goes_on
        where = output_range(running_job.range)
        stops = ", and the next start tries it again" if may_pass else " for good"
        then = ", it is tried again" if again else stops
        _log.warning("work on %s failed%s: %s", where, then, problem.told)
        # What fails for good is raised with it; before that it would only be the same lines again and again.
        _log.debug("%s; in the task:\n%s", problem, problem.traceback)
        self._settle(
            running_job,
            RangeFailed(job=running_job.job.name, range=running_job.range, reason=str(problem), again=again),
        )
        if not may_pass:
            text = (
                f"work on {where} failed for good. It and what follows it are not committed: "
                "the next start begins there."
            )
            error = RangeFailedError(f"{text} {problem}")
            if problem.traceback:
                error.add_note(f"in the task:\n{problem.traceback}")
            self._fail(error, f"{text} {problem.told}")

    def _settle(self, running_job: RunningJob, event: PipelineEvent | None) -> None:
        running_job.job.settled(running_job)
        # Lost and assigned anew, the partition may have another one by now.
        if self._running_jobs.get(running_job.partition) is running_job:
            del self._running_jobs[running_job.partition]
        if event is not None:
            self._emit(event)
        self._drop_if_finished(running_job.job)

    def _drop_if_finished(self, job: Job) -> None:
        if job.finished and self._jobs.pop(job.name, None) is not None:
            self._emit(JobFinished(job=job.name))

    # -- letting go

    def _give_up_retries(self) -> None:
        """What failed is not kept for another try while its revocation is requested: the next owner tries it."""
        for partition in self._membership.blocked:
            if self._planner.is_waiting_to_retry(partition):
                self._planner.withdraw(partition)
                self._ledger.forget([partition])
                self._tracked.pop(partition, None)

    def _forget(self, partitions: Sequence[TopicPartition], lost: bool) -> None:  # noqa: FBT001
        """They are not ours any more."""
        jobs: dict[str, Job] = {}
        dropped: list[RangeDropped] = []
        for partition in partitions:
            self._forget_partition(partition)
            if self._targets is not None:
                self._targets.forget(partition)
            running_job = self._running_jobs.pop(partition, None)
            if running_job is None:
                continue
            told = running_job.cancelled  # by `_drop_the_rest`
            running_job.cancelled = True
            if not (running_job.reported or told):
                dropped.append(RangeDropped(job=running_job.job.name, range=running_job.range))
                if lost:
                    jobs[running_job.job.name] = running_job.job
        # After all are marked. What is raised here is raised once the poll has ended, which would take it for its own.
        for event in dropped:
            self._ownership.tell(event)
        for job in jobs.values():
            self._cancel_if_lost(job, time.monotonic())

    def _forget_partition(self, partition: TopicPartition) -> None:
        self._next.pop(partition, None)
        self._planner.reset(partition)
        self._ledger.forget([partition])
        self._tracked.pop(partition, None)

    def _cancel_if_lost(self, job: Job, now: float) -> None:
        """Others' work in the job goes on to its end: it is cancelled when nothing is left in it but what was lost."""
        left = job.unreported.values()
        if left and not job.ended and job.cancel_again_at is None and all(each.cancelled for each in left):
            self._cancel(job, now)

    def _cancel(self, job: Job, now: float) -> None:
        job.cancel_again_at = now + _CANCEL_AGAIN_SECONDS
        self._runner.cancel(job.name)

    def _cancel_again(self, now: float) -> None:
        for job in self._jobs.values():
            if not job.ended and job.cancel_again_at is not None and job.cancel_again_at <= now:
                self._cancel(job, now)

    # -- the end

    def _end(self) -> None:
        """Commit what is finished, cancel what is not, leave the group. Raises only interrupts, and what `on_event`
        raised that is no Exception; before that it leaves the group.
        """
        try:
            self._drop_the_rest()
            self._quietly(lambda: self._consumer.commit(self._ledger.committable(), timeout=_LEAVE_SECONDS))
        finally:
            self._leave()

    def _drop_the_rest(self) -> None:
        for running_job in self._running_jobs.values():
            running_job.cancelled = True  # first: after an interrupt it would be told once more, by `_forget`
            if not running_job.reported:
                self._ownership.tell(RangeDropped(job=running_job.job.name, range=running_job.range))
        self._committer.close()
        self._starts.close()
        self._cancel_all()

    def _leave(self) -> None:
        try:
            self._quietly(lambda: self._consumer.close(timeout=_LEAVE_SECONDS))
            self._hear_of_ends()
        finally:
            # Again: an interrupt may have come before, in `_drop_the_rest`.
            self._committer.close()
            self._starts.close()
            self._cancel_all()
            self._quietly(self._runner.close)
            self._quietly(self._ownership.check)

    def _cancel_all(self) -> None:
        for job in [each for each in self._jobs.values() if not each.ended]:
            self._quietly(lambda job=job: self._runner.cancel(job.name))  # type: ignore[misc]

    def _hear_of_ends(self) -> None:
        """Of the jobs that were cancelled. What else is told by now is taken, too."""
        deadline = time.monotonic() + _CANCEL_AGAIN_SECONDS
        while not all(job.ended for job in self._jobs.values()):
            try:
                message = self._inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return
            self._quietly(lambda message=message: self._take(message))  # type: ignore[misc]

    def _quietly(self, work: Callable[[], object]) -> None:
        try:
            try:
                work()
            # A late message has woken it, and not what it waits for: the second call does what the first began.
            except WakeupError:
                work()
        except Exception as error:  # noqa: BLE001 - the run has its outcome already; the sink has the truth
            _log.warning("while the pipeline stopped: %s", error)


def inbox_dispatcher(inbox: queue.SimpleQueue[Message], consumer: RangeConsumer) -> Callable[[Message], None]:
    """Puts a message into the queue and wakes the poll. From any thread; never waits."""

    def tell(message: Message) -> None:
        inbox.put(message)
        consumer.wakeup()

    return tell


def _lost(event: PositionReset) -> KafkaError:
    """Law 6. Why the run stops, and what to do."""
    where = event.partition
    if event.cause is ResetCause.RECREATED:
        return WrongTopicError(
            f"{where}: the topic was deleted and made again, so its offsets mean other records. Nothing of the new one "
            "is written. Write it to another sink"
        )
    what = f"{where} was to be read on from offset {event.from_offset}, but {event.cause.value}. "
    if event.count >= 0:
        return OffsetsGoneError(
            f"{what}It would go on at offset {event.to_offset}. Nothing was skipped; fail_on_data_loss=False goes on "
            "without what is gone"
        )
    return OffsetsGoneError(
        f"{what}It would go on at offset {event.to_offset}, but a sink cannot go back, fail_on_data_loss or not. An "
        "unclean leader election loses the end of a log, and so does a cluster that is restored from an older copy. "
        "Nothing was read from there. Write to another sink, with another group: where this one is started again "
        "after the log has grown beyond the sink's position, it goes on there, and the records before that are not read"
    )
