"""The loops that users write, as generators; first of all the flagship loop, that of docs/ledger.md.

Laws
1. A loop uses `SimulatedConsumer` and `OffsetLedger` as a user uses `Consumer` and `OffsetLedger`.
2. Between any two verbs time may pass (`breath`), so the network thread's work may come between.
3. A loop ends by stopping: its workers finish, the last commit is sent, the consumer is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from instride._core.application.calls import Wait
from instride.consumer_records import ConsumerRecords
from instride.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    TransportError,
    WakeupError,
)
from instride.ledger import OffsetLedger
from instride.listeners import RebalanceListener
from instride.records import ConsumerRecord, TopicPartition
from instride.testing._simulation.chunk import finished
from instride.testing._simulation.executing import rounds
from instride.testing._simulation.plan import LoopKind, MemberPlan
from instride.testing._simulation.process import Process, Sleep, UserLoop
from instride.testing._simulation.unruly import unruly
from instride.testing._simulation.user_behaviour import UserBehaviour
from instride.testing._simulation.verbs import SimulatedConsumer
from instride.testing._simulation.workers import HandlerError, SimulatedFuture, WorkerPool

__all__ = ["LOOPS", "Loop", "Member"]

_Errors = tuple[type[Exception], ...]
# What a careful user expects of a poll: it was woken, or no broker has been reached yet.
_POLL_ERRORS: _Errors = (WakeupError, TransportError)
_COMMIT_ERRORS: _Errors = (CommitFailedError, KafkaTimeoutError, RebalanceInProgressError)
Verb = Generator[Wait | Sleep, float, None]
_UNSUBSCRIBE = 5.0
"""Seconds that it may take."""


@dataclass(slots=True, kw_only=True)
class Member:
    """What a loop works with.

    consumer: its verbs. topics: what it is to read now. stopping: whether it is to leave the group. duration: seconds
    that the next handler takes. submit: handle a record in a pool of `plan.workers`; handle: in the loop itself.
    did: write something down that `check` is to know.

    by_hand: what it assigns, where it does not subscribe. expects: errors of its polls and commits, beside the usual
    ones.
    behaviour: what its user does besides the loop.

    For the loops below: subscribed: what it reads. resubscribes: "", or how: "resubscribe", or "resubscribe in haste".
    hold: seconds that its next breath takes longer. owes: its last commit failed: it commits again, also where no
    record comes.
    """

    plan: MemberPlan
    process: Process
    consumer: SimulatedConsumer
    pool: WorkerPool
    duration: Callable[[], float]
    topics: tuple[str, ...]
    behaviour: UserBehaviour
    by_hand: tuple[TopicPartition, ...] = ()
    expects: _Errors = ()
    subscribed: tuple[str, ...] = ()
    resubscribes: str = ""
    hold: float = 0.0
    owes: bool = False
    stopping: bool = False
    futures: dict[tuple[TopicPartition, int, int], SimulatedFuture] = field(default_factory=dict)

    @property
    def poll_errors(self) -> _Errors:
        return (*_POLL_ERRORS, *self.expects)

    @property
    def commit_errors(self) -> _Errors:
        return (*_COMMIT_ERRORS, *self.expects)

    def breath(self) -> Sleep:
        """A moment that passes between two verbs of a loop, and a pause that a fault asks for."""
        pause, self.hold = self.hold, 0.0
        return Sleep(pause + self.process.scheduler.jitter(0.002))

    def follow(self, listener: RebalanceListener | None = None) -> None:
        """Subscribe to what is wanted now."""
        if self.subscribed != self.topics:
            self.subscribed = self.topics
            self.consumer.subscribe(self.topics, listener=listener)

    def handle(self, record: ConsumerRecord) -> Verb:
        """`yield from member.handle(record)`: the time that it takes, and then it is done."""
        yield Sleep(self.duration())
        self.did("done", *finished(record))

    def submit(self, record: ConsumerRecord) -> SimulatedFuture:
        """Handle it in the pool. The future is one for `OffsetLedger.watch`."""
        future = self.pool.submit(record)
        self.futures[record.topic_partition, record.epoch, record.offset] = future
        return future

    def cancel(self, record: ConsumerRecord) -> None:
        """Do not begin with it, where that has not happened."""
        tp = record.topic_partition
        if self.futures[tp, record.epoch, record.offset].cancel():
            self.process.history.add(self.process.name, "cancelled", tp, record.offset, record.epoch)

    def did(self, what: str, *detail: Any) -> None:
        """Write down what the loop did, for `check`."""
        self.process.history.add(self.process.name, what, *detail)


def _flagship(member: Member) -> UserLoop:
    consumer, ledger = member.consumer, OffsetLedger()
    while not member.stopping:
        member.follow()
        try:
            records = yield from consumer.poll(timeout=member.plan.poll_timeout)
        except member.poll_errors:
            if member.plan.gives_up_round:
                continue
            records = ConsumerRecords()  # the round goes on: a poll that raised is continued by the next
        yield member.breath()
        for record in ledger.forget(sorted(consumer.lost_partitions())):
            member.cancel(record)
        for record in ledger.track(records):
            ledger.watch(record, member.submit(record))
        yield member.breath()
        consumer.commit_async(ledger.committable())
        yield member.breath()
        consumer.delay_revoke(ledger.uncommitted(consumer.to_be_revoked_partitions()), reason=ledger.oldest)
        yield from _retry_failures(member, ledger)
        _press_back(member, ledger)
        member.behaviour.after_a_round(records)
        yield from _resubscribe(member, ledger)
    yield from _stop(member, ledger)


def _changes(member: Member) -> UserLoop:
    """With variant 1 of KIP-983: everything in one value. Delays what the poll before listed as well (rule 6)."""
    consumer, ledger = member.consumer, OffsetLedger()
    requested: frozenset[TopicPartition] = frozenset()
    while not member.stopping:
        member.follow()
        try:
            changes = yield from consumer.poll_changes(timeout=member.plan.poll_timeout)
        except member.poll_errors:
            continue
        for record in ledger.forget(sorted(changes.lost)):
            member.cancel(record)
        yield member.breath()
        for record in ledger.track(changes.records):
            ledger.watch(record, member.submit(record))
        yield member.breath()
        consumer.commit_async(ledger.committable())
        consumer.delay_revoke(ledger.uncommitted(changes.to_be_revoked | requested), reason=ledger.oldest)
        yield member.breath()
        consumer.delay_revoke(ledger.uncommitted(changes.to_be_revoked | requested))  # to say so twice changes nothing
        requested = frozenset() if member.resubscribes else changes.to_be_revoked
        yield member.breath()
        yield from _retry_failures(member, ledger)
        member.behaviour.after_a_round(changes.records)
        yield from _resubscribe(member, ledger)
    yield from _stop(member, ledger)


def _wait(member: Member) -> UserLoop:
    """KIP-983's other choice (rule 7): not to poll until the work on what is to be revoked is committed."""
    consumer, ledger = member.consumer, OffsetLedger()
    while not member.stopping:
        member.follow()
        try:
            records = yield from consumer.poll(timeout=member.plan.poll_timeout)
        except member.poll_errors:
            continue
        for record in ledger.forget(sorted(consumer.lost_partitions())):
            member.cancel(record)
        for record in ledger.track(records):
            ledger.watch(record, member.submit(record))
        yield member.breath()
        consumer.commit_async(ledger.committable())
        while any(_in_time(consumer, tp) for tp in ledger.uncommitted(consumer.to_be_revoked_partitions())):
            yield Sleep(0.02)
            yield from _retry_failures(member, ledger)
            consumer.commit_async(ledger.committable())
        if late := ledger.uncommitted(consumer.to_be_revoked_partitions()):
            member.did("gave up", tuple(sorted(late)))
        yield from _retry_failures(member, ledger)
        member.behaviour.after_a_round(records)
        yield from _resubscribe(member, ledger)
    yield from _stop(member, ledger)


def _executor(member: Member) -> UserLoop:
    """What is queued and was not begun holds no partition (rule 16). It never leaves the group to come back."""
    ledger = yield from rounds(member)
    yield from _stop(member, ledger)


def _synchronous(member: Member, listener: RebalanceListener | None = None, *, commits: bool = True) -> UserLoop:
    """One record after the other, and a blocking commit of what the poll returned."""
    consumer = member.consumer
    while not member.stopping:
        member.follow(listener)
        try:
            records = yield from consumer.poll(timeout=member.plan.poll_timeout)
        except member.poll_errors:
            continue
        yield from _handle(member, records)
        if commits:
            yield from _commit_round(member, records)
        member.behaviour.after_a_round(records)
        yield from _resubscribe(member)
    yield from _close(member)


def _auto_commit(member: Member) -> UserLoop:
    """One record after the other; enable_auto_commit does the rest."""
    return _synchronous(member, commits=False)


class _Listener(RebalanceListener):
    def __init__(self, member: Member) -> None:
        self._member = member

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._member.did("on assigned", tuple(partitions))

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._member.did("on revoked", tuple(partitions))

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._member.did("on lost", tuple(partitions))


def _immediate(member: Member) -> UserLoop:
    """As before the KIP: revoke_mode="immediate", a listener, one record after the other."""
    return _synchronous(member, _Listener(member))


def _resubscribe(member: Member, ledger: OffsetLedger | None = None) -> Verb:
    """Leave the group and come back, when the work is done or, in haste, before."""
    how, member.resubscribes = member.resubscribes, ""
    if not how:
        return
    if ledger is not None and how == "resubscribe":
        member.did("pauses", tuple(sorted(member.consumer.assignment())))  # it polls no more
        yield from _finish(member, ledger)
    member.did("unsubscribes", how)
    yield from member.consumer.unsubscribe(timeout=_UNSUBSCRIBE)
    member.did("unsubscribed")
    member.subscribed = ()


def _handle(member: Member, records: Iterable[ConsumerRecord]) -> Verb:
    for record in records:
        yield from member.handle(record)


def _commit_round(member: Member, records: ConsumerRecords) -> Verb:
    """What the poll returned; where that fails, back to what is committed, if the user is one of those."""
    if records or member.owes:
        member.owes = yield from _commit(member, None)
        if member.owes:
            yield from member.behaviour.rewind({record.topic_partition for record in records})


def _commit(member: Member, offsets: Any) -> Generator[Wait | Sleep, float, bool]:
    """A blocking commit, tried again after a wakeup. Returns whether it failed."""
    while True:
        try:
            yield from member.consumer.commit(offsets)
        except WakeupError:
            continue
        except member.commit_errors as error:
            member.did("commit failed", type(error).__name__)
            return True
        return False


def _in_time(consumer: SimulatedConsumer, partition: TopicPartition) -> bool:
    left = consumer.revoke_deadline(partition)
    return left is not None and left > 0


def _retry_failures(member: Member, ledger: OffsetLedger) -> Verb:
    """What `check` raises is this user's reason to try again, or to go back."""
    try:
        ledger.check()
    except HandlerError:
        if member.plan.rewinds:
            yield from member.behaviour.rewind({record.topic_partition for record, _ in ledger.failures()})
        for record, _ in ledger.failures():
            ledger.watch(record, member.submit(record))


def _press_back(member: Member, ledger: OffsetLedger) -> None:
    consumer = member.consumer
    if ledger.in_progress() > member.plan.most_in_flight:
        consumer.pause(*sorted(consumer.assignment()))
    elif consumer.paused() and not member.plan.pauses:
        consumer.resume(*sorted(consumer.paused()))
    elif member.process.scheduler.random.random() < member.plan.flickers:
        everything = sorted(consumer.assignment())
        consumer.pause(*everything)
        consumer.resume(*everything)


def _stop(member: Member, ledger: OffsetLedger) -> Verb:
    yield from _finish(member, ledger)
    yield from _close(member)


def _finish(member: Member, ledger: OffsetLedger) -> Verb:
    while member.pool.busy:
        yield Sleep(0.05)
    yield from _commit(member, ledger.committable())


def _close(member: Member) -> Verb:
    yield from member.consumer.close(timeout=5.0)


def _until_fenced(loop: Loop) -> Loop:
    """A static member whose place another one takes is told so, and closes."""

    def run(member: Member) -> UserLoop:
        try:
            yield from loop(member)
        except FencedInstanceIdError:
            member.did("fenced")
            yield from _close(member)

    return run


Loop = Callable[[Member], UserLoop]
"""A poll loop: it is given its member, and yields what it waits for."""

LOOPS: dict[LoopKind, Loop] = {
    "flagship": _until_fenced(_flagship),
    "changes": _until_fenced(_changes),
    "wait": _until_fenced(_wait),
    "synchronous": _until_fenced(_synchronous),
    "auto-commit": _until_fenced(_auto_commit),
    "immediate": _until_fenced(_immediate),
    "executor": _until_fenced(_executor),
    "unruly": _until_fenced(unruly),
}
