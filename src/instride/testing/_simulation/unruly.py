"""A user who calls any verb at any moment: several in a row, in listeners too, and where a signal's handler runs.

Calls of his are interrupted.

Laws
1. Each record is done when the poll that returned it has: so each way of committing is his right, and what is missing
   afterwards is the consumer's fault.
2. Between two verbs no time passes, or some: then the background queue fills. In a listener time passes for all others.
   The same before he looks at positions within a poll, and in a signal's handler: more records have come by then.
3. From the quiet time on he calls nothing but poll and commit, resumes what he paused, and is not interrupted.
4. An interrupted close ends his loop, or he closes again; after any other interrupt he goes on.
5. Chance alone hardly ever finds two certain verbs in a state that passes with the next poll. So he also has a pair of
   verbs and a state in mind, brings that state about, calls the two, and then thinks of others.
6. What a poll has in hand when a signal's handler runs, it may return whatever the handler does. The history says since
   when, and until when: the poll returns, raises, or waits with nothing in hand.
7. By hand he assigns any part of his share. What he lets go of he has committed, or he gives it up: he waits for no
   commit of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, TypeVar

from instride._core.application.calls import Wait
from instride.errors import FencedInstanceIdError, IllegalStateError, KafkaError, WakeupError
from instride.ledger import OffsetLedger
from instride.listeners import RebalanceListener
from instride.records import TopicPartition
from instride.testing._simulation.chunk import finished
from instride.testing._simulation.interrupts import COMPUTING, Interrupter, at_line, at_wait, in_steps
from instride.testing._simulation.process import Sleep, UserLoop
from instride.testing._simulation.verb_pairs import FIRST, SECOND, STATES

if TYPE_CHECKING:
    from instride.records import ConsumerRecord
    from instride.testing._simulation.member import Member
    from instride.testing._simulation.verbs import Offsets

__all__ = ["unruly"]

T = TypeVar("T")
Verb = Generator[Wait | Sleep, float, None]
_LINES: Final = 400
"""Of a call, so many at most; a poll that has something to do has some hundred."""
_LINES_OF_COMPUTING: Final = 40
"""Of those, so many where a handler may do harm."""
_FEW_LINES: Final = 60
"""Of a verb that does not wait."""
_VERBS: Final = ("pause", "resume", "seek", "commit", "delay", "subscribe")
_ENDS: Final = ("unsubscribe", "close")
_HANDLED: Final = ("seek", "seek", "seek", "pause", "resume", "resume", "commit", "delay", "look", "wakeup")
"""What a signal's handler calls."""


class _ListenerError(Exception):
    """His listener's own."""


class _EndedError(Exception):
    """His loop ends: he has closed, or was interrupted in it."""


class _User(RebalanceListener):
    def __init__(self, member: Member) -> None:
        self._member = member
        self._consumer = member.consumer
        self._plan = member.plan
        self._random = member.process.scheduler.random
        self._ledger = OffsetLedger()
        self._first: dict[TopicPartition, int] = {}
        self._subscribed = False  # or assigned
        self._by_hand = member.plan.by_hand > 0
        self._only: frozenset[TopicPartition] = frozenset()  # of these he speaks now
        self._pair = self._any_pair()
        self._topics = member.topics
        self._narrowed_at = 0.0
        self._in_hand = False  # law 6

    # -- chance

    def _may(self, how_likely: float) -> bool:
        """Law 3. Chance is not asked where there is none."""
        return how_likely > 0 and not self._is_quiet() and self._random.random() < how_likely

    def _is_quiet(self) -> bool:
        return self._member.behaviour.is_quiet()

    def _some(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Some of them, one at least where there is one; often all, or of those in a rare state."""
        found = sorted(partitions)
        rare = sorted((self._only or self._rare()).intersection(found))
        if rare and (self._only or self._random.random() < 0.5):
            found = rare
        if self._random.random() < 0.4:
            return found
        return self._random.sample(found, self._random.randint(1, len(found))) if found else []

    def _rare(self) -> frozenset[TopicPartition]:
        """Those in a state that lasts for a moment: their revocation is requested, or their loss is not told yet."""
        return frozenset(tp for tp, state in self._consumer.states().items() if state != "OWNED")

    # -- his loop

    def run(self) -> UserLoop:
        try:
            while not self._member.stopping:
                yield from self._round()
            yield from self._end()
        except _EndedError:
            return

    def _round(self) -> UserLoop:
        self._follow()
        records = yield from self._poll()
        self._finish(records)
        if self._may(self._plan.pairs):
            yield from self._pursue_a_pair()
        if self._may(self._plan.by_hand):
            yield from self._choose()
        yield from self._calls(self._how_many())
        if not self._plan.verbs and self._plan.commits_back:
            yield from self._call("commit")
        if self._consumer.revoking():
            self._surely_commits()
        if self._is_quiet():
            yield from self._settle()

    def _how_many(self) -> int:
        if not self._may(self._plan.verbs):
            return 0
        return self._random.choice((2, 3, 5, 8) if self._rare() else (0, 1, 2, 2, 3, 5))

    def _settle(self) -> Verb:
        """Law 3."""
        if self._plan.pairs:
            self._member.topics = self._topics
        if self._by_hand and self._consumer.owned().keys() != set(self._member.by_hand):
            self._consumer.assign(self._member.by_hand)
        self._consumer.resume(*sorted(self._consumer.paused()))
        self._consumer.commit_async()
        yield Sleep(0.01)

    def _follow(self) -> None:
        if self._by_hand:
            if not self._subscribed:
                self._subscribed = True
                self._consumer.assign(self._member.by_hand)
        elif not self._subscribed or self._member.subscribed != self._member.topics:
            self._member.subscribed, self._subscribed = self._member.topics, True
            self._consumer.subscribe(self._member.topics, listener=self if self._plan.listens else None)

    def _poll(self) -> Generator[Wait | Sleep, float, Iterable[ConsumerRecord]]:
        timeout = self._random.choice((0.0, self._plan.poll_timeout))
        call = self._consumer.poll(timeout=timeout, read=self._reader(), listen=self._listener())
        try:
            return (yield from self._interrupted(call, self._handle_within_a_poll))
        except KeyboardInterrupt:
            self._member.did("interrupted", "poll", None)
        except FencedInstanceIdError:
            raise
        except (KafkaError, _ListenerError):
            yield Sleep(0.01)
        return ()

    def _reader(self) -> Callable[[ConsumerRecord], ConsumerRecord] | None:
        """A deserializer that looks, or in which the interrupt comes."""
        interrupted = self._may(self._plan.interrupts)
        if not interrupted and not self._may(self._plan.looks):
            return None
        number, read_yet = self._random.randrange(6), count()

        def read(record: ConsumerRecord) -> ConsumerRecord:
            if next(read_yet) == number:
                if interrupted:
                    raise KeyboardInterrupt
                self._look()
            return record

        return read

    def _listener(self) -> Callable[[], None] | None:
        """Of telemetry."""
        return self._look if self._may(self._plan.looks) else None

    def _look(self) -> None:
        self._member.process.work(self._random.choice((0.0, 0.001, 0.02, 0.3)))
        self._consumer.look()
        self._member.did("looks")

    def _interrupted(
        self, call: Generator[Wait, float, T], handler: Callable[[], None] | None = None
    ) -> Generator[Wait, float, T]:
        """As it is, or with a signal at one of its steps. handler: the one that returns."""
        if self._may(self._plan.line_interrupts):
            return at_line(call, self._random.randrange(_LINES))
        if self._may(self._plan.interrupts):
            return at_wait(call, self._random.randrange(3))
        if self._may(self._plan.signals):
            signal = partial(self._signal, handler or self._handle)
            return in_steps(call, signal, pauses=self._has_nothing_in_hand)
        return call

    # -- as a signal's handler

    def _signal(self, handler: Callable[[], None], lines: int = _LINES) -> Interrupter:
        if self._random.random() < 0.3:
            return Interrupter(self._random.randrange(lines), handler)
        return Interrupter(self._random.randrange(_LINES_OF_COMPUTING), handler, only=COMPUTING)

    def _handle_within_a_poll(self) -> None:
        """Law 6."""
        self._in_hand = True
        self._member.did("signal", self._consumer.seek_numbers())
        self._handle()

    def _handle(self) -> None:
        """It calls what does not wait, and returns."""
        self._member.did("handles")
        self._member.process.work(self._random.choice((0.0, 0.0, 0.001, 0.02)))
        for _ in range(self._random.choice((1, 1, 2, 3))):
            match self._random.choice(_HANDLED):
                case "look":
                    self._consumer.look()
                case "wakeup":
                    self._member.process.wakeup()
                case verb:
                    self._do(verb)

    def _has_nothing_in_hand(self) -> None:
        """Law 6."""
        if self._in_hand:
            self._in_hand = False
            self._member.did("signal over")

    def _finish(self, records: Iterable[ConsumerRecord]) -> None:
        for record in self._ledger.track(records):
            tp = record.topic_partition
            self._first.setdefault(tp, record.offset)
            self._member.did("done", *finished(record))
            self._ledger.done(record)
        if self._plan.immediate and not self._plan.auto_commits:
            self._surely_commits()  # the next poll may let go of it at once

    def _end(self) -> Verb:
        while True:
            try:
                yield from self._consumer.commit()
                break
            except WakeupError:
                continue
            except KafkaError as error:
                self._member.did("commit failed", type(error).__name__)
                break
        yield from self._close()

    # -- verbs, between polls

    def _calls(self, count: int) -> Verb:
        """Law 2."""
        for _ in range(count):
            if self._may(0.3):
                yield Sleep(self._random.choice((0.001, 0.02, 0.3)))
            yield from self._call(self._random.choice(_ENDS if self._may(self._plan.ends) else _VERBS))

    # -- a pair of verbs in a state (law 5)

    def _any_pair(self) -> tuple[str, str, str]:
        """Who may leave before the others does so once only: a close is what he has in mind more often."""
        second = "close" if self._leaves and self._random.random() < 0.3 else self._random.choice(SECOND[:-1])
        return self._random.choice(FIRST), second, self._random.choice(STATES)

    def _pursue_a_pair(self) -> Verb:
        first, second, state = self._pair
        yield from self._bring_about(state)
        self._only = frozenset(tp for tp, each in self._consumer.states().items() if each == state)
        if not self._only:
            return
        self._pair = self._any_pair()
        self._surely_commits()
        yield from self._call(first)
        yield from self._call(second) if second != "close" else self._close_now()
        self._only = frozenset()

    def _bring_about(self, state: str) -> Verb:
        """Now or soon: he is away for longer than he may, or subscribes to less than he reads, and delays."""
        states = self._consumer.states()
        requested = [tp for tp, each in states.items() if each == "REVOKE_NEXT"]
        if state == "LOST" and states:
            yield Sleep(self._consumer.max_poll_interval * self._random.uniform(1.0, 1.2))
        elif state == "REVOKE_THEREAFTER" and requested and not self._plan.auto_commits:
            self._consumer.delay_revoke(requested)
        elif state not in ("OWNED", *states.values()) and not requested and self._now > self._narrowed_at + 0.5:
            self._narrowed_at = self._now
            owned = sorted({tp.topic for tp in states})
            dropped = self._random.choice(owned) if owned else ""
            self._member.topics = tuple(each for each in self._topics if each != dropped)

    # -- by hand (law 7)

    def _choose(self) -> Verb:
        """Other partitions, or whether the group assigns them."""
        if self._plan.goes_over and self._may(0.3):
            yield from self._unsubscribe()
            self._by_hand = not self._by_hand
        elif self._by_hand and self._subscribed:
            yield from self._assign_others()

    def _assign_others(self) -> Verb:
        share = self._member.by_hand
        wanted = self._random.sample(share, self._random.randint(0, len(share)))
        if gone := self._consumer.owned().keys() - set(wanted):
            yield from self._let_go(gone)
        try:
            self._in_lines(partial(self._consumer.assign, wanted))
        except KeyboardInterrupt:
            self._member.did("interrupted", "assign", None)

    def _let_go(self, gone: Collection[TopicPartition]) -> Verb:
        if not self._may(self._plan.hasty):
            try:
                yield from self._interrupted(self._consumer.commit(timeout=2.0))
                return
            except KeyboardInterrupt:
                self._member.did("interrupted", "commit", None)
            except KafkaError as error:
                self._member.did("commit failed", type(error).__name__)
        self._member.did("gave up", tuple(sorted(gone)))

    def _call(self, name: str) -> Verb:
        if not self._subscribed and not self._only and self._random.random() < 0.5:
            self._follow()
        match name:
            case "subscribe" if self._by_hand:
                yield from self._choose()
            case "commit" if self._may(0.3):
                yield from self._commit_and_wait()
            case "unsubscribe":
                yield from self._unsubscribe()
            case "close" if self._leaves:
                yield from self._close()
            case _:
                try:
                    self._at_once(name)
                except KeyboardInterrupt:
                    self._member.did("interrupted", name, None)

    def _commit_and_wait(self) -> Verb:
        try:
            offsets, back = self._wanted()
            yield from self._interrupted(self._consumer.commit(offsets, allow_rewind=back, timeout=2.0))
        except KeyboardInterrupt:
            self._member.did("interrupted", "commit", None)
        except (KafkaError, ValueError) as error:
            self._member.did("commit failed", type(error).__name__)

    def _unsubscribe(self) -> Verb:
        self._member.did("unsubscribes", "resubscribe in haste")
        try:
            yield from self._interrupted(self._consumer.unsubscribe(timeout=2.0))
        except KeyboardInterrupt:
            if self._consumer.subscribed:  # before the call had any effect
                self._member.did("interrupted", "unsubscribe before it began", None)
            else:
                self._member.did("interrupted", "unsubscribe", round(self._now + 2.0, 6))
        except (KafkaError, _ListenerError):
            self._member.did("unsubscribed")
        else:
            self._member.did("unsubscribed")
        self._subscribed = False  # whatever his listener has subscribed to meanwhile

    def _close(self) -> Verb:
        """Law 4. What he has finished is committed before; another verb may come between."""
        self._surely_commits()
        if self._may(0.8):
            yield from self._call(self._random.choice((*_VERBS, "unsubscribe")))
        yield from self._close_now()

    def _close_now(self) -> Verb:
        while True:
            try:
                yield from self._interrupted(self._consumer.close(timeout=5.0))
            except KeyboardInterrupt:
                self._member.did("interrupted", "close", round(self._now + 5.0, 6))
                if self._may(0.5):
                    continue
            except _ListenerError:
                self._member.did("closed", False)
            raise _EndedError

    @property
    def _leaves(self) -> bool:
        """Before the others do."""
        return self._plan.leaves_at < float("inf")

    @property
    def _now(self) -> float:
        return self._member.process.scheduler.now

    # -- verbs that do not wait

    def _at_once(self, name: str) -> None:
        self._in_lines(partial(self._do, name))

    def _in_lines(self, verb: Callable[[], None]) -> None:
        """Raises KeyboardInterrupt: at one of its lines."""
        if self._may(self._plan.line_interrupts):
            Interrupter(self._random.randrange(_FEW_LINES)).run(verb)
        elif self._may(self._plan.signals / 2):
            self._signal(self._handle, _FEW_LINES).run(verb)
        else:
            verb()

    def _surely_commits(self) -> None:
        """Where he relies on it: again, where it is interrupted."""
        try:
            self._at_once("commit what is returned")
        except KeyboardInterrupt:
            self._member.did("interrupted", "commit", None)
            self._consumer.commit_async()

    def _do(self, name: str) -> None:
        consumer = self._consumer
        match name:
            case "pause":
                consumer.pause(*self._some(consumer.owned()))
            case "resume":
                consumer.resume(*self._some(consumer.owned()))
            case "seek":
                self._seek()
            case "commit":
                self._commit()
            case "commit what is returned":
                consumer.commit_async()
            case "delay":
                with suppress(ValueError, IllegalStateError):  # what completes, where he goes; or with auto-commit
                    consumer.delay_revoke(
                        self._some(consumer.owned() if self._only or self._may(0.1) else self._rare())
                    )
            case "subscribe":
                self._subscribed = False
                self._follow()

    def _seek(self) -> None:
        """To where a poll has begun to return records, or behind the last of them; or to where it is. Where he has
        nothing he is told so."""
        if self._plan.stays:
            return
        owned = {tp: at for tp, at in self._consumer.owned().items() if at is not None}
        for partition in self._some(owned)[:1]:
            last = owned[partition]
            low = self._first.get(partition, last)
            if low <= last:
                self._consumer.seek(partition, self._random.randint(max(low, last - 4), last))
        if not self._consumer.owned():
            for partition in self._some(self._first)[:1]:
                with suppress(ValueError):
                    self._consumer.seek(partition, self._first[partition])

    def _commit(self) -> None:
        with suppress(KafkaError, ValueError):  # by numbers of his own, of what is not his any more, or back
            offsets, back = self._wanted()
            self._consumer.commit_async(offsets, allow_rewind=back)

    def _wanted(self) -> tuple[Offsets | None, bool]:
        """What he commits, and whether it may go back: to any record that he was returned since he came first to its
        partition. `Process` writes into the history that it may."""
        if not self._may(self._plan.commits_back):
            return self._offsets(), False
        owned = {tp: at for tp, at in self._consumer.owned().items() if at is not None}
        lowest = {tp: min(self._first[tp], at) for tp, at in owned.items() if tp in self._first}
        chosen = {tp: self._random.randint(lowest[tp], owned[tp]) for tp in self._some(lowest)}
        self._member.did("own offsets", tuple(sorted(chosen.items())))
        return chosen, True

    def _offsets(self) -> Offsets | None:
        """What was returned last, what is finished, or single offsets by numbers of his own."""
        match self._random.randrange(2 if self._plan.stays else 3):
            case 0:
                return None
            case 1:
                return self._ledger.committable()
            case _:
                owned = {tp: at for tp, at in self._consumer.owned().items() if at is not None and tp in self._first}
                chosen = {tp: owned[tp] for tp in self._some(owned)}
                self._member.did("own offsets", tuple(sorted(chosen.items())))
                return chosen

    # -- as a listener

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._listen("on assigned", partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._listen("on revoked", partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._listen("on lost", partitions)

    def _listen(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        self._member.did(what, tuple(partitions))
        for _ in range(self._random.choice((0, 1, 2, 4)) if self._may(self._plan.verbs) else 0):
            if self._may(0.6):
                self._member.process.work(self._random.choice((0.001, 0.02, 0.3)))
            self._at_once(self._random.choice(_VERBS))
        if self._may(self._plan.interrupts):
            raise KeyboardInterrupt
        if self._may(self._plan.raises):
            self._member.did("listener raises")
            raise _ListenerError


def unruly(member: Member) -> UserLoop:
    """The loop."""
    return _User(member).run()
