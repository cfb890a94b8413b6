"""A small group: one broker, topic t, members that are moved one step at a time; and what may happen to it next.

Laws
1. A move is a word. `World.moves` says which are possible; `do` does one. The same words make the same world.
2. What a poll returns is done at once, so that each way of committing is right. Members but the first ("A") that are
   not `manual` settle by themselves after each move: they take all that comes, and poll.
3. Time passes only when it is told to, to the next moment at which somebody wants to do something.
4. `finish` lets everything go on as it should: the call ends, what is paused is resumed, all is read and committed, the
   members close. So what a state is worth shows in the history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from instride._core.application.partition import OwnedPartition
from instride._core.ownership import Ownership
from instride.config import ConsumerConfig
from instride.errors import KafkaError
from instride.listeners import RebalanceListener
from instride.records import TopicPartition
from instride.testing._check.parameters import Parameters
from instride.testing._explore.party import Party
from instride.testing._simulation.broker_model import HOST, PORT, BrokerModel
from instride.testing._simulation.history import BROKER, History
from instride.testing._simulation.process import Process
from instride.testing._simulation.scheduler import Scheduler
from instride.testing._simulation.verbs import SimulatedConsumer
from instride.testing.check import Judge, Violation

__all__ = ["Scope", "World"]

FIRST: Final = TopicPartition("t", 0)
_ROUNDS: Final = 80
"""Of `finish`: of polls, each with all that it brings. A good world needs some ten."""
_RECORDS: Final = 4
_RECORD_LIMIT: Final = 3
_CLOSING: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """manual: members whose every step is a move. listener: what A's listener does when it hears something: words of
    `moves`, or "interrupt"; None: A has no listener."""

    manual: tuple[str, ...] = ("A",)
    listener: tuple[str, ...] | None = None


class World:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.scheduler = Scheduler(0)
        self.history = History(self.scheduler)
        self.brokers = BrokerModel(self.scheduler, self.history, nodes=1, topics={"t": 2}, initial_delay=0.0)
        self.judge = Judge()
        self._judged = 0
        self.members: dict[str, Member] = {}
        self.errors: list[str] = []
        parameters = Parameters(
            source="a small scope", kind="slow", view="broker", reset="earliest", session=45.5, beat=3.5
        )
        self.history.add(BROKER, "history", *parameters)
        for number in range(2):
            self.brokers.produce(TopicPartition("t", number), _RECORDS)
        self._join("A")

    def _join(self, name: str) -> None:
        self.members[name] = Member(self, name, manual=name in self.scope.manual)

    # -- moves

    def moves(self) -> list[str]:
        """Law 1."""
        found = [f"{name}.{move}" for name, each in self.members.items() if each.manual for move in each.moves()]
        found.append("time")
        if self.brokers.logs[FIRST].end < _RECORDS + 1:
            found.append("produce")
        if "B" not in self.members:
            found.append("B joins")
        elif not self.members["B"].manual and not self.members["B"].ended:
            found.append("B leaves")
        return found

    def do(self, move: str) -> None:
        name, _, word = move.partition(".")
        match move:
            case "time":
                self._pass_time()
            case "produce":
                self.brokers.produce(FIRST, 1)
            case "B joins":
                self._join("B")
            case "B leaves":
                self.members["B"].leave(early=True)
            case _:
                self.members[name].do(word)
        self.scheduler.run(self.scheduler.now, lambda: False)
        for each in self.members.values():
            if not each.manual:
                each.settle()
        self._judge()

    def _pass_time(self, most: float = float("inf")) -> None:
        """Law 3."""
        now = self.scheduler.now
        times = [each.wakes_at() for each in self.members.values()] + [step[0] for step in self.scheduler._steps[:1]]
        until = min(most, *(each for each in times if each > now), now + 10.0)
        self.scheduler.run(until, lambda: False)
        for each in self.members.values():
            if not each.party.stopped and each.party.machine.deadline() <= self.scheduler.now:
                each.party.tick()

    # -- the judge

    def _judge(self) -> None:
        while self._judged < len(self.history.events):
            self.judge.take(self.history.events[self._judged])
            self._judged += 1

    def violations(self) -> list[Violation]:
        """So far."""
        return list(self.judge._found)

    # -- the end

    def finish(self) -> list[Violation]:
        """Law 4."""
        self.scope = Scope(manual=self.scope.manual)
        for each in self.members.values():
            each.listens = False
            each.come_back()
        for _ in range(_ROUNDS):
            if self._all_done():
                break
            self._round()
        for each in self.members.values():
            each.leave()
        for _ in range(12):
            if self._all_gone():
                break
            self._pass_time(self.scheduler.now + 1.0)
            self._settle_all()
        self._judge()
        self.history.add(BROKER, "end", not self._is_empty())
        self._judge()
        return self.judge.end()

    def _is_empty(self) -> bool:
        """Whether there is nobody who could have read the rest."""
        return all(each.closed_before_the_end for each in self.members.values())

    def _all_gone(self) -> bool:
        return not self.brokers.group.members and all(each.party.stopped for each in self.members.values())

    def _round(self) -> None:
        for each in self.members.values():
            each.settle()
            each.read_on()
        if not self._all_done():
            self._pass_time(self.scheduler.now + 0.6)

    def _settle_all(self) -> None:
        for each in self.members.values():
            each.settle()
        for each in self.members.values():
            each.settle()

    def _all_done(self) -> bool:
        committed = self.brokers.group.committed
        return self._is_empty() or all(committed.next_offset(tp) == log.end for tp, log in self.brokers.logs.items())


class Member(RebalanceListener):
    """closed_before_the_end: by a move, so that it reads no more."""

    def __init__(self, world: World, name: str, *, manual: bool) -> None:
        config = ConsumerConfig(
            bootstrap_servers=(f"{HOST}:{PORT + 1}",),
            group_id="g",
            client_id=name,
            auto_offset_reset="earliest",
            max_poll_records=_RECORD_LIMIT,
            max_partition_fetch_bytes=200,
            fetch_buffer_bytes=1000,
            default_api_timeout=5.0,
        )
        self.world = world
        self.name = name
        self.manual = manual
        self.party = Party(name, config, world.scheduler, world.history, world.brokers)
        self.consumer = SimulatedConsumer(cast(Process, self.party), config)
        self.listens = manual and world.scope.listener is not None
        self.closed = self.closed_before_the_end = self.ended = False
        self._hearing = False
        self._calling = ""
        self._finishing = False
        self._returned = False
        self._only_closes = False  # since an exception left its close
        world.history.add(name, "started", False, "told", True)
        self._subscribe()

    # -- moves

    def moves(self) -> list[str]:
        party = self.party
        found = []
        if not party.stopped:
            found += ["take"] if party.events else []
            found += ["take all"] if len(party.events) > 1 else []
        found += [f"respond {key.role.value}" for key in party.waiting()]
        if self.closed:
            return found
        if party.call is not None:
            return [*found, "go on", "interrupt"]
        return [*found, *self._verbs()]

    def owned(self) -> dict[TopicPartition, OwnedPartition]:
        """What its application has, as it knows it now."""
        return self.party.application._state.lists.owned

    def _verbs(self) -> list[str]:
        if self._only_closes:
            return ["close"]
        owned = self.owned()
        found = ["poll", "wait", "commit", "commit and wait", "subscribe", "unsubscribe", "close"]
        mine = next(iter(owned), None)
        if mine is not None:
            found += ["resume" if owned[mine].paused else "pause", "seek"]
            found += ["pause and resume"] if not owned[mine].paused else []
        if any(each.state is not Ownership.OWNED for each in owned.values()):
            found.append("delay")
        return found

    def do(self, word: str) -> None:
        try:
            self._do(word)
        except KeyboardInterrupt:
            self._was_interrupted(self._calling)
        except (KafkaError, ValueError) as error:  # of what is not his any more, or back
            self.world.errors.append(f"{self.name}.{word}: {error!r}")
        except Exception as error:  # noqa: BLE001 - whatever it is
            self._dies(word, f"{type(error).__name__}: {error}")

    def _do(self, word: str) -> None:
        party, consumer = self.party, self.consumer
        self._calling = word
        match word:
            case "take":
                party.take()
            case "take all":
                party.take(len(party.events))
            case "go on":
                assert party.call is not None
                self._calling = party.call[0]
                self._ends(party.call[0], party.go_on())
            case "interrupt":
                self._was_interrupted(party.interrupt())
            case "poll" | "wait":
                self._call("poll", consumer.poll(timeout=0.0 if word == "poll" else 1.0))
            case "commit":
                consumer.commit_async()
            case "commit and wait":
                self._call("commit", consumer.commit(timeout=5.0))
            case "subscribe":
                self._subscribe()
            case "unsubscribe":
                self.world.history.add(self.name, "unsubscribes", "resubscribe in haste")
                self._call("unsubscribe", consumer.unsubscribe(timeout=_CLOSING))
            case "close":
                self._call("close", consumer.close(timeout=_CLOSING))
            case _ if word.startswith("respond "):
                party.response(next(key for key in party.waiting() if key.role.value == word[8:]))
            case _:
                self._on_a_partition(word)

    def _on_a_partition(self, word: str) -> None:
        owned = self.consumer.owned()
        mine = next(iter(owned), None)
        if mine is None:
            return
        match word:
            case "pause":
                self.consumer.pause(mine)
            case "resume":
                self.consumer.resume(mine)
            case "pause and resume":
                self.consumer.pause(mine)
                self.consumer.resume(mine)
            case "seek":
                self.consumer.seek(mine, 1)
            case "delay":
                self.consumer.delay_revoke(self.consumer.revoking())
            case _:
                raise LookupError(word)

    def _subscribe(self) -> None:
        self.ended = False
        self.consumer.subscribe(("t",), listener=self if self.listens else None)

    def _call(self, name: str, call: Any) -> None:
        self._ends(name, self.party.start(name, call))

    def _ends(self, name: str, result: Any) -> None:
        """Where the call has ended: what it means."""
        if self.party.call is not None:
            return
        match name:
            case "poll":
                self._returned |= bool(result)
                for record in result:
                    self.world.history.add(self.name, "done", record.topic_partition, record.offset, record.epoch)
                self._gives_up()
            case "unsubscribe":
                self.world.history.add(self.name, "unsubscribed")
                self.ended = True
            case "close":
                self.closed = self.ended = True
                self.closed_before_the_end = not self._finishing

    def _gives_up(self) -> None:
        """He is no careful user, who commits before the next poll: what he was told to release may come again."""
        owned = self.consumer.owned()
        if owned:
            self.world.history.add(self.name, "gave up", tuple(sorted(owned)))

    def _was_interrupted(self, name: str) -> None:
        name = {"wait": "poll", "commit and wait": "commit"}.get(name, name)
        ends = name in ("close", "unsubscribe")
        until = self.party.now + _CLOSING if ends else None
        self.world.history.add(self.name, "interrupted", name, until)
        self.ended |= ends
        self._only_closes |= name == "close"

    # -- its listener

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._listen("on assigned", partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._listen("on revoked", partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._listen("on lost", partitions)

    def _listen(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        """What it does it does once: a call in it may make it hear more."""
        self.world.history.add(self.name, what, tuple(partitions))
        if not self.listens or self._hearing:
            return
        self._hearing = True
        calling = self._calling
        try:
            for word in self.world.scope.listener or ():
                if word == "interrupt":
                    raise KeyboardInterrupt
                if word == "network":
                    self._take_what_comes()
                else:
                    self._do(word)
        finally:
            self._hearing = False
            self._calling = calling

    # -- by itself

    def wakes_at(self) -> float:
        party = self.party
        waits = party.call[2].until if party.call is not None else float("inf")
        return waits if party.stopped else min(waits, party.machine.deadline())

    def settle(self) -> None:
        """Law 2."""
        for _ in range(50):
            moved = self._take_what_comes()
            if self.party.call is not None:
                if not moved and not self.party.queue and self.party.now < self.party.call[2].until:
                    return
                self.do("go on")
            elif not self.closed and not self.ended and (self.party.queue or self._has_records()):
                self._poll_and_commit()
            elif not moved:
                return
        self._dies("network thread", "it spins: it goes on and on at one moment")

    def _poll_and_commit(self, *, always: bool = False) -> None:
        self._returned = always
        self.do("poll")
        if self.party.call is None and self._returned:
            self.do("commit")

    def _dies(self, what: str, why: str) -> None:
        """The checker calls it a violation."""
        self.world.history.add(self.name, "died", what, why)
        self.closed = self.party.stopped = self.closed_before_the_end = True
        self.party.call = None

    def _has_records(self) -> bool:
        return any(each.available() for each in self.owned().values())

    def _take_what_comes(self) -> bool:
        party, moved = self.party, False
        for _ in range(100):
            if party.stopped or not (party.events or party.waiting()):
                return moved
            moved = True
            if party.events:
                party.take(len(party.events))
            self.world.scheduler.run(party.now, lambda: False)
            for key in party.waiting():
                if key in party.channels and party.channels[key].responses:
                    party.response(key)
        return moved

    def read_on(self) -> None:
        """For the end: one poll more, and a commit of what it brings."""
        if self.party.call is None and not self.closed and not self.ended:
            self._poll_and_commit(always=True)
            self._take_what_comes()

    def come_back(self) -> None:
        """For the end: the call is over, nothing is paused, and who has left reads again."""
        self._until_the_call_is_over()
        if self._only_closes and not self.closed:
            self.do("close")
            self._until_the_call_is_over()
        if self.closed:
            return
        if self.ended:
            self._take_what_comes()
            self.do("subscribe")
        self.consumer.resume(*self.consumer.owned())

    def _until_the_call_is_over(self) -> None:
        for _ in range(30):
            if self.party.call is None:
                return
            self._take_what_comes()
            if not self.party.queue and self.party.now < self.party.call[2].until:
                self.world._pass_time(self.party.now + 1.0)
                self._take_what_comes()
            self.do("go on")

    def leave(self, *, early: bool = False) -> None:
        self._finishing = not early
        if not self.closed:
            self._until_the_call_is_over()
            self.world.history.add(self.name, "leaving")
            self.do("close")
            self._until_the_call_is_over()
