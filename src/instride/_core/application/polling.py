"""One poll (docs/rebalance.md, rules 1 to 5, 9 and 10).

Laws
1. In this order: wakeup and queued errors; losses leave the lists; the step; the other events with the listeners
   they call; records. When a wakeup or error is raised at the start, nothing else was taken.
2. A poll that raises after its step is continued by the next one: the lists do not move again; requests and
   losses add up.
3. It returns as soon as there is a record, a newly requested revoke or a loss; otherwise at its time-out.
4. State is changed before a listener runs, and what the listener's end must tell the network side is told even
   when it raises (`listener_calls`).
5. Completions are taken before changes. In immediate mode a requested revoke is completed before any later change.
6. Without a lease nothing is returned. It is read *before* what has come is taken: who read it afterwards could find
   the lease of a new membership, and return what the old one lost in between. For the same reason a poll looks again
   at the lease, the clock and the queue when its listener has run, which may take long, or a handler of a signal that
   has drained the queue. A handler that runs after the poll's last look is the one exception. Nothing is returned that
   the last look finds lost, or behind the end of a log that was truncated.
7. Where records are deserialized, that is the last step. What failed (that, or a partition on the network side) is
   raised once for each time that it fails, in a poll that has nothing to return or at the start of the next.
8. A poll that waits long tells the network side now and then that the application is alive, and commits each
   auto_commit_interval what earlier polls returned.
9. What an exception (Ctrl-C, say) leaves behind, wherever it comes (rule 13): records are taken aside, and count once
   the result's `aside` was set to None. An event, what it changes and what is told of it are one write; the listener's
   call that it asks for is in a queue, and whatever interrupts the poll, the next one calls it.
10. The network side is told in sums, since each word costs it a turn: of polls at most some twenty times a second, and
    of what they took once a partition has nothing left, or it is enough to fetch more. Of a batch that is larger than
    half of fetch_buffer_bytes the next poll tells: until then the application has it, and the network side decodes no
    second one beside it.
11. A small poll costs little: where nothing but records is due, it takes a part of the turn that is under way, and
    looks at no list and no other partition. What it leaves out would change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import assert_never

from instride._core.application.background_events import apply_early, take
from instride._core.application.calls import Call, Wait, Write, at_once
from instride._core.application.committing import (
    auto_commit_due,
    auto_commit_is_due,
    commit_before_release,
    next_auto_commit,
    speaks_of,
)
from instride._core.application.deserializing import Read, next_retry, read_taken, retry_unreadable
from instride._core.application.inbox import Change, Completion
from instride._core.application.listener_calls import Callback, completed, run_callbacks
from instride._core.application.partition import Delivery, OwnedPartition, PollResult
from instride._core.application.revoke_lists import RevokeLists
from instride._core.application.seeking import drop_due, reset_due, restarted
from instride._core.application.state import ApplicationState
from instride._core.events import (
    Assigned,
    CommitsSettled,
    CompleteRevoke,
    Consumed,
    PartitionsAssigned,
    Polled,
    Reassigned,
    RevocationRequested,
    UnreadablePartitions,
)
from instride._core.session_lease import Standing
from instride.errors import LogTruncationError, WakeupError
from instride.records import TopicPartition

__all__ = ["Poller"]

# Law 10: seconds between two words of a poll; of fetch_buffer_bytes, the part that is told at once.
_POLLED_APART = 0.05
_SUMS = 64


class Poller:
    """The state of polling that outlives one poll."""

    def __init__(self, state: ApplicationState) -> None:
        self._state = state
        self._stepped = False
        self._news = False
        # Partitions whose loss this poll took: none of their later events is taken by it (rule 5).
        self._deferred: frozenset[TopicPartition] = frozenset()
        # Law 10: about how much polls took that is not told yet.
        self._untold_bytes = 0
        self._returned_large = False
        self._polled_at = float("-inf")
        # Of which a record cannot be deserialized, as the network side was told.
        self._unreadable: dict[TopicPartition, int] = {}
        # Immediate mode: revokes that this poll waits for.
        self._awaited: dict[TopicPartition, int] = {}

    def forget(self) -> None:
        """Everything was given up: nothing of it is continued or awaited."""
        self._stepped = self._news = False
        self._deferred = frozenset()
        self._awaited = {}
        self._polled_at = float("-inf")

    def poll(
        self, now: float, timeout: float, *, immediate: bool, limit: int, read: Read | None = None
    ) -> Call[PollResult]:
        """read: deserializes each record that is returned. Whoever runs this completes the result (law 9)."""
        state = self._state
        deadline = now + timeout
        result = self._open()
        holds = self._look(now)
        self._tell_polled(now)
        if holds and read is None and self._is_quiet(now) and self._go_on(result, limit):
            may_return = True
            if not state.looked:
                now = yield Wait(until=now, in_hand=True)
                holds, may_return = self._look_again(result, now)
            if may_return:
                self._tell_part(result.deliveries)
                return result
            result = self._open()  # what was taken goes on where it was (law 2)
        self._raise_due()
        heard = yield from self._begin(now)
        alive = now + state.config.max_poll_interval / 3
        while True:
            heard |= yield from self._take_events(now, immediate=immediate)
            if holds and not heard and not self._awaited:
                self._collect(result, limit, read, now)
                if result.deliveries and not (read is None and state.looked):
                    now = yield Wait(until=now, in_hand=True)
                    holds, may_return = self._look_again(result, now)
                    if not may_return:
                        result = self._open()  # what was taken goes on where it was (law 2)
                        continue
                if result.deliveries:
                    self._tell_taken(result.deliveries)
            if not heard and (result.deliveries or self._news or now >= deadline):
                return result
            then = min(deadline, alive, self._next_look(holds=holds))
            # A deserializer that was tried again may have called the consumer, which drained the queue: those events
            # wake nobody any more.
            now = yield Wait(until=now if heard or not state.looked else then)
            holds = self._look(now)
            if now >= alive:  # law 8; however often something woke it meanwhile
                alive = now + state.config.max_poll_interval / 3
                state.post(Polled(at=now))
            self._raise_due()
            # A loss that came while this poll waited is in its own result, and before what was assigned after it.
            heard = yield from self._take_losses()
            if now >= next_auto_commit(state):
                auto_commit_due(state, now)

    def _look_again(self, result: PollResult, now: float) -> tuple[bool, bool]:
        """Whether the lease holds, and whether the poll may return what it has: nothing of it was lost since, or is
        behind the end of a log that was truncated, and no listener of telemetry or handler of a signal has let go of,
        sought or paused a partition of it. If it may not, what this look has taken is raised: nothing else may come
        that wakes the poll."""
        holds = self._look(now)
        found = ((each, self._state.lists.owned.get(each.partition)) for each in result.deliveries)
        is_whole = all(
            owned is not None and not owned.paused and speaks_of(each, owned) and not _is_cut(each, owned)
            for each, owned in found
        )
        may_return = holds and not self._state.inbox.losses and is_whole
        if not may_return:
            self._raise_told()
        return holds, may_return

    def _is_quiet(self, now: float) -> bool:
        """Law 11."""
        state = self._state
        return (
            state.inbox.is_quiet()
            and state.lists.are_quiet()
            and not (self._stepped or state.gone or self._deferred or self._awaited or self._unreadable)
            and not (state.callbacks or state.owed)
            and not auto_commit_is_due(state, now)
        )

    def _go_on(self, result: PollResult, limit: int) -> bool:
        """Law 11. Whether it returns something."""
        deliveries = self._state.fairness.go_on(self._state.lists.owned, limit)
        if deliveries:
            assert result.aside is not None, "it is under way"
            result.aside.deliveries = deliveries
        return bool(deliveries)

    def _tell_polled(self, now: float) -> None:
        """Law 10."""
        since = now - self._polled_at
        # A twentieth, since where the interval is short 0.05 s may be much of it.
        if not 0 <= since < _POLLED_APART or since >= self._state.config.max_poll_interval / 20:
            # First: where it fails, the next poll says it again.
            self._state.post(Polled(at=now))
            self._polled_at = now

    def _open(self) -> PollResult:
        """Law 2: what the last poll reported is over, if it was completed; else this one continues it."""
        polls = self._state.lists.polls
        if polls.current.aside is None:
            self._stepped = self._news = False
            if self._returned_large:
                self._state.write_computed(self._telling_large)
        else:
            for each in self._state.lists.failing.those():
                each.forget_unreached(polls.current)
        polls.current = PollResult()
        return polls.current

    def _telling_large(self) -> list[Write]:
        return [*self._telling_consumed(), (setattr, self, "_returned_large", False)]

    def _next_look(self, *, holds: bool) -> float:
        """When to look again without an event. holds: the lease does; else, as nothing may be collected, nothing is
        tried again: woken when that is due, the poll would spin."""
        collects = holds and not self._awaited
        retry = next_retry(self._state.lists.failing.those()) if collects else float("inf")
        return min(next_auto_commit(self._state), retry)

    def _look(self, now: float) -> bool:
        """At the lease, then at the queue (law 6): the losses of all memberships before it are in that. Whether the
        lease holds."""
        state = self._state
        state.looked = True  # first: of a handler of a signal that comes from here on, this poll is to know
        if state.lease.number != state.standing.number:
            state.standing = Standing(state.lease, state.lease.number)
        holds = state.lease.holds(now)
        state.ownership_view.now = now
        take(state)
        # Renewed since it was read: the event that says so was taken just now, and wakes nobody any more.
        return holds or (state.lease.holds(now) and self._look(now))

    def _raise_due(self) -> None:
        self._raise_told()
        self._raise_failure()

    def _raise_told(self) -> None:
        inbox = self._state.inbox
        if inbox.woken:
            inbox.woken = False
            raise WakeupError("wakeup() was called")
        if inbox.errors:
            raise inbox.errors.popleft()

    def _raise_failure(self) -> None:
        for owned in self._state.lists.failing.those():
            error = owned.due_error()
            if error is not None:
                raise error

    def _begin(self, now: float) -> Call[bool]:
        """Rules 1 and 2: losses leave the lists, the step, then the list of lost. Whether a listener heard of it."""
        state = self._state
        heard = yield from run_callbacks(state)  # of a poll that was interrupted before it called the listener
        self._drop_lost()  # leave the lists before the step, so that what was lost is not completed
        if self._stepped:
            return (yield from self._tell_lost()) or heard
        auto_commit_due(state, now)
        # Where a handler of a signal delays some, the step is another one.
        state.write_computed(partial(self._stepping, now))
        return (yield from run_callbacks(state)) or heard

    def _stepping(self, now: float) -> list[Write]:
        state = self._state
        completing, writes = state.lists.step(state.gone)
        if completing:
            # Posted before the release: the network side completes the revoke at the commit's response.
            commit_before_release(state, now, completing)
            writes.append((state.send, CompleteRevoke(partitions=completing)))
        return [*writes, *self._telling_lost(), (setattr, self, "_stepped", True)]

    # -- losses

    def _take_losses(self) -> Call[bool]:
        """Whether a listener heard of them."""
        self._drop_lost()
        return (yield from self._tell_lost())

    def _drop_lost(self) -> None:
        state = self._state
        losses = tuple(state.inbox.losses)
        if not losses:
            return
        newest = dict(sorted(part for loss in losses for part in loss.partitions.items()))
        gone, writes = state.lists.losing(losses)
        awaited = {tp: epoch for tp, epoch in self._awaited.items() if tp not in newest}
        state.write(
            [
                *writes,
                *state.inbox.forgetting(newest),
                *[(state.inbox.losses.popleft,) for _ in losses],
                (setattr, self, "_awaited", awaited),
                (setattr, state, "gone", state.gone | gone),
            ]
        )

    def _telling_lost(self) -> list[Write]:
        """The list of lost itself is not in it, since the step begins that anew."""
        gone, listener = self._state.gone, self._state.listener
        deferred = self._deferred if self._stepped else frozenset()
        writes: list[Write] = [
            (setattr, self, "_deferred", deferred | gone),
            (setattr, self._state, "gone", frozenset()),
            (setattr, self, "_news", self._news or bool(gone)),
        ]
        if gone and listener is not None:
            callback = Callback(call=partial(listener.on_partitions_lost, sorted(gone)))
            writes.append((self._state.callbacks.append, callback))
        return writes

    def _tell_lost(self) -> Call[bool]:
        state = self._state
        if state.gone:
            state.write([state.lists.adding_lost(state.gone), *self._telling_lost()])
        return (yield from run_callbacks(state))

    # -- the other events

    def _take_events(self, now: float, *, immediate: bool) -> Call[bool]:
        """Whether a listener may have heard of one. A verb that a listener calls may drain a loss. The loss is taken
        first: an assignment of the same partition that came after it would take its place."""
        inbox = self._state.inbox
        took = False
        while True:
            if inbox.losses:
                took |= yield from self._take_losses()
            if inbox.completions and self._awaited_are_settled():
                self._take_completion(inbox.completions[0])
            elif not self._awaited and (found := inbox.next_change(self._deferred)) is not None:
                self._take_change(*found, now, immediate=immediate)
            else:
                return took and self._state.listener is not None
            took = True
            yield from run_callbacks(self._state)

    def _take_change(self, change: Change, taken: Sequence[Write], now: float, *, immediate: bool) -> None:
        match change:
            case RevocationRequested():
                self._revocation_requested(change, taken, now, immediate=immediate)
            case Reassigned():
                self._state.write_computed(partial(self._reassigned, change, taken))
            case Assigned():
                self._assigned(change, taken, immediate=immediate)
            case _:
                assert_never(change)

    def _reassigned(self, change: Reassigned, taken: Sequence[Write]) -> list[Write]:
        state = self._state
        back, writes = state.lists.reassigned(change.partitions)
        return [*taken, *writes, *[restarted(state, owned) for owned in back]]

    def _revocation_requested(
        self, change: RevocationRequested, taken: Sequence[Write], now: float, *, immediate: bool
    ) -> None:
        state, requested = self._state, frozenset[TopicPartition]()

        def requesting() -> list[Write]:
            nonlocal requested
            requested, writes = state.lists.revocation_requested(change.partitions, change.deadline)
            if requested and not immediate:
                writes.append((setattr, self, "_news", True))
            if immediate and not change.partitions and state.listener is not None:
                # Eager, and nothing is owned (C).
                call = partial(state.listener.on_partitions_revoked, [])
                writes.append((state.callbacks.append, Callback(call=call)))
            # What is dropped counts as consumed: else it would take the others' capacity for ever.
            told = {each: state.lists.owned[each].all_told() for each in sorted(requested)}
            dropped = {each: left for each, left in told.items() if left[2]}
            sent: list[Write] = [(state.send, Consumed(partitions=dropped))] if dropped else []
            return [*taken, *sent, *writes]

        state.write_computed(requesting)
        if requested and immediate:
            state.write_computed(partial(self._completing_now, requested, now))

    def _completing_now(self, requested: frozenset[TopicPartition], now: float) -> list[Write]:
        state = self._state
        completing, writes = state.lists.release(requested)
        commit_before_release(state, now, completing)
        awaited = (setattr, self, "_awaited", {**self._awaited, **completing})
        return [*writes, (state.send, CompleteRevoke(partitions=completing)), awaited]

    def _assigned(self, change: Assigned, taken: Sequence[Write], *, immediate: bool) -> None:
        state = self._state
        told: Write = (state.send, PartitionsAssigned(generation=change.generation))
        if state.listener is not None and (change.partitions or immediate):
            call = partial(state.listener.on_partitions_assigned, sorted(change.partitions))
            # The network side hears that the assignment was taken when the listener has run.
            told = (state.callbacks.append, Callback(call=call, ends=[told]))
        generation = (setattr, state, "generation", change.generation)
        member_id = (setattr, state, "member_id", change.member_id)
        state.write([*taken, *state.lists.assigned(change.partitions), generation, member_id, told])
        apply_early(state, change.partitions)

    def _awaited_are_settled(self) -> bool:
        """Immediate mode: what was requested together is told to the listener in one call, as C does."""
        if not self._awaited:
            return True
        completions = self._state.inbox.completions
        known = tuple(completions)
        if not self._awaited.keys() <= {tp for event in known for tp in event.partitions}:
            return False
        settled = [event for event in known if isinstance(event, CommitsSettled)]
        together = {tp: epoch for event in settled for tp, epoch in event.partitions.items()}
        others: list[Completion] = [event for event in known if not isinstance(event, CommitsSettled)]
        first = [CommitsSettled(partitions=together), *others] if together else others
        taken = [(completions.popleft,) for _ in known]
        # All of them are taken before anything else.
        at_once([*taken, (completions.extendleft, first[::-1]), (setattr, self, "_awaited", {})])
        return True

    def _take_completion(self, event: Completion) -> None:
        self._state.write(completed(self._state, event))

    # -- records

    def _collect(self, result: PollResult, limit: int, read: Read | None, now: float) -> None:
        """Takes aside what the poll returns. What failed is raised where it returns nothing (law 7)."""
        state = self._state
        drop_due(state)
        reset_due(state)
        retry_unreadable(read, state.lists.failing.those(), now)
        taken = state.fairness.collect({each.partition: each for each in state.lists.filled.those()}, limit)
        assert result.aside is not None, "it is under way"
        deliveries = taken if read is None else read_taken(read, state.lists, taken, now)
        result.aside.deliveries = deliveries
        if read is not None or self._unreadable:
            self._tell_unreadable()
        if not deliveries:
            self._raise_failure()

    def _tell_unreadable(self) -> None:
        failing = self._state.lists.failing.those()
        unreadable = {each.partition: each.epoch for each in failing if each.unreadable and not each.unreadable.awaited}
        if unreadable != self._unreadable:
            event = UnreadablePartitions(partitions=unreadable)
            self._state.write([(self._state.send, event), (setattr, self, "_unreadable", unreadable)])

    def _tell_taken(self, deliveries: Sequence[Delivery]) -> None:
        """Law 10."""
        state, view = self._state, self._state.ownership_view
        found = {each.partition: state.lists.owned.get(each.partition) for each in deliveries}
        # But for what a handler of a signal, by assign, has just let go of.
        owned = {tp: each for tp, each in found.items() if each is not None}
        view.returned(deliveries)
        metered = {tp: each.unmetered()[0] for tp, each in owned.items()}
        # Computed anew where a handler of a signal seeks meanwhile, which has noted all that it drops, or assigns.
        state.write_computed(partial(_metering, state.lists, owned.values()))
        view.meter.returned(metered, view.now)
        self._untold_bytes += sum(nbytes for _, nbytes in metered.values())
        self._tell_when_due(deliveries, emptied=any(each.buffered == 0 for each in owned.values()))

    def _tell_part(self, deliveries: Sequence[Delivery]) -> None:
        """The same with less work (law 11): all are of one partition, of which more is left."""
        state, view, partition = self._state, self._state.ownership_view, deliveries[0].partition
        unchanged, owned = state.lists.polls.unchanged(), state.lists.owned.get(partition)
        if owned is None:  # as above
            return
        (records, nbytes), noted = owned.unmetered()
        try:
            at_once((unchanged, noted, state.lists.untold.marking(owned)))
        except ValueError:
            state.write_computed(partial(_metering, state.lists, (owned,)))
        view.returned(deliveries)
        view.meter.returned_of(partition.topic, records, nbytes, view.now)
        self._untold_bytes += nbytes
        self._tell_when_due(deliveries, emptied=False)

    def _tell_when_due(self, deliveries: Sequence[Delivery], *, emptied: bool) -> None:
        config = self._state.config
        self._returned_large = False
        for each in deliveries:
            if 2 * each.chunk.lets_go_of > config.fetch_buffer_bytes:
                self._returned_large = True
        due = emptied or config.prefetch != "bytes" or self._untold_bytes >= config.fetch_buffer_bytes // _SUMS
        if due and not self._returned_large:
            self._state.write_computed(self._telling_consumed)

    def _telling_consumed(self) -> list[Write]:
        untold = {each: each.untold() for each in self._state.lists.untold.those()}
        return [
            (self._state.send, Consumed(partitions={each.partition: event for each, (event, _) in untold.items()})),
            *[told for _, told in untold.values()],
            *self._state.lists.untold.clearing(),
            (setattr, self, "_untold_bytes", 0),
        ]


def _is_cut(delivery: Delivery, owned: OwnedPartition) -> bool:
    """Whether some of it was behind the end of a log that was truncated: it has left the buffer."""
    # Else nothing may be asked: `fetch_end` puts what this poll took back into the buffer.
    end = owned.fetch_end() if isinstance(owned.error, LogTruncationError) else None
    return end is not None and delivery.chunk.last_offset >= end


def _metering(lists: RevokeLists, taken: Iterable[OwnedPartition]) -> list[Write]:
    """What has left since is not marked: it would be kept until the next poll that takes something."""
    owned = [each for each in taken if lists.owned.get(each.partition) is each]
    return [write for each in owned for write in (each.unmetered()[1], lists.untold.marking(each))]
