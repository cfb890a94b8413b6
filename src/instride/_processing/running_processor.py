"""A `Processor` that runs: the thread of its consumer, its workers, signals, and its end.

Laws
1. The consumer is driven by one thread of ours. Threads of handlers and that one share one lock around the engine.
2. `run` alone touches signals, and puts back what it found; so does a child that a handler forks, once it is sent one.
   A second signal cancels, except in a worker of `instride run`, to which only its supervisor says so
   (`_cli/worker.py`, law 3).
3. What ended it is raised once it has ended: by `run`, by `wait`, and at the end of the context.
4. A stop waits for the set-up as it waits for handlers, for drain_timeout; a cancel does not. A coroutine is cancelled
   then. What does not end even so is left behind in its thread, which keeps no process alive.
5. A stop waits for the tear-down as long as for handlers (`_tear_down_patience`), and for no query of the store. What
   does not end is left behind as in law 4, and named.
6. No bare CancelledError is raised but to a caller who was cancelled: others would take it for their own cancellation.
7. A coroutine that raises what is no Exception (SystemExit, say) ends the run. The event loop that the processor made
   goes on until the tear-down has ended; what a coroutine raises after that nobody hears. The user's own event loop
   (`async with`) ends as asyncio ends it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from types import FrameType, TracebackType
from typing import Any, Final, Self, TypeVar
from uuid import UUID

from instride._net.clock import now as lease_clock
from instride._processing.async_store import AsyncDatabaseStore
from instride._processing.attempts import Desk
from instride._processing.coroutine_workers import LoopWorkers
from instride._processing.dead_letters import ConfluentProduce, Produce
from instride._processing.definition import Definition
from instride._processing.engine import Engine, Tally, Task
from instride._processing.event_loop import be_punctual, going_on, new_event_loop, result_of
from instride._processing.health import Health, Stalls, holdings, metrics, stuck_record, unwritten_letters
from instride._processing.lifespan import AsyncLifespan, SyncLifespan
from instride._processing.poll_loop import Rounds, Verb, Verbs
from instride._processing.process_child import Spec
from instride._processing.process_workers import ProcessWorkers, pickled
from instride._processing.store import DatabaseStore
from instride._processing.thread_workers import ThreadWorkers
from instride._setting_parsing import POLL_RECORDS
from instride._wire.decoder import ConsumerRecord
from instride.consumer import Consumer
from instride.errors import ConfigError, DrainTimeoutError, ForkedConsumerError, IllegalStateError, KafkaTimeoutError
from instride.records import TopicPartition
from instride.telemetry import Hold

__all__ = ["RunningProcessor", "run_with_signals"]

T = TypeVar("T")
_logger = logging.getLogger("instride.processing")

_PULSE: Final = 0.25
"""Seconds."""
_AT_ONCE: Final = 0.02
"""Seconds that the loop waits for the database of a store before it polls again."""

_OURS: Final = {
    "enable_auto_commit": "the processor commits what is finished",
    "revoke_mode": "the processor hands over in two steps",
    "key_deserializer": "give it to the Processor, whose handlers are called with what it returns",
    "value_deserializer": "give it to the Processor, whose handlers are called with what it returns",
    "commit_start_offsets": "the processor commits where a partition begins",
}


class RunningProcessor:
    """One run of a `Processor`, as a context: `with processor.running(...)`, or `async with`.

    It starts when the context is entered. When the context is left, it stops: what is in progress is finished, what is
    finished is committed, and the member leaves the group. In `async with`, coroutine handlers run on the event loop
    that entered it; in `with`, on one in a thread of its own. Any thread may call its methods.
    """

    def __init__(self, what: Definition, settings: Mapping[str, Any]) -> None:
        """Raises ConfigError for a setting that is wrong, or that a processor decides itself; and in a process that
        only imports the main module.
        """
        # So multiprocessing itself finds who starts a process there. Each would be a member of the group.
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise ConfigError(
                "this process only imports the program's main module, which must not run the Processor then: "
                'write if __name__ == "__main__": before that call'
            )
        _check_settings(settings)
        self._what = what
        bound = what.bound(settings["group_id"])
        self._handler = bound.handler
        # What may be refused comes before the consumer is made: then there is nothing to close.
        self._spec = _spec(what, self._handler) if what.processes else None
        self._produce: Produce | None = what.produce
        if what.produce is None and (what.dead_letters is not None or what.output is not None):
            self._produce = ConfluentProduce(settings)
        self._stalls = Stalls(settings.get("telemetry"))
        self._consumer = Consumer(**{**settings, "commit_start_offsets": True, "telemetry": self._stalls})
        self._max_poll_interval = settings.get("max_poll_interval", 300.0)
        self._lock = threading.RLock()
        self._engine = Engine(what.plan, _payload)
        self._workers = _Workers()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_over: asyncio.Future[None] | None = None
        self._loop_thread: threading.Thread | None = None
        self._rounds = Rounds(
            self._engine,
            self._workers,
            pace=what.pace,
            guard=self._lock,
            clock=time.monotonic,
            lease_clock=lease_clock,
            has_store=what.store is not None,
            most_records=_most_records(settings),
        )
        self._desk = Desk(
            engine=self._engine,
            lock=self._lock,
            reader=what.reader,
            clock=time.monotonic,
            chance=random.random,
            attention=self._consumer.wakeup,
            wants_attention=self._rounds.wants_attention,
            may_start=self._rounds.may_start,
            dead_letters=what.dead_letters,
            output=what.output,
            group=settings["group_id"],
            pass_over=bound.pass_over,
        )
        self._thread = threading.Thread(target=self._run, name=f"instride-processor-{what.name}", daemon=True)
        self._setting_up: Future[None] | None = None
        # The process that entered it.
        self._pid: int | None = None
        self._is_set_up = threading.Event()
        self._gave_up_set_up = False
        self._gave_up_tear_down = False
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._on_ended: list[Callable[[], object]] = []
        # Behind the tear-down, also of a set-up that was given up: until then the event loop is needed.
        self._has_run: Future[None] = Future()

    # -- what a user calls

    def stop(self) -> None:
        """Start nothing more; finish what is in progress (for at most drain_timeout), commit, leave. Does not block."""
        # In this order: the loop that is woken must find it stopped.
        self._rounds.stop()
        self._consumer.wakeup()

    def cancel(self) -> None:
        """Stop, and wait for nothing: what is in progress is given up, and handled again by whoever comes next."""
        self._rounds.cancel()
        self._consumer.wakeup()

    def wait(self, timeout: float | None = None) -> bool:
        """Until it has ended, or the time-out (seconds): whether it has. Raises what ended it, if it failed; and
        ForkedConsumerError in a child of the process that entered it."""
        self._is_forked()
        ended = self._wait(timeout)
        if ended and self._error is not None:
            raise self._error
        return ended

    def _wait(self, timeout: float | None) -> bool:
        """In pulses: a signal that comes just before the main thread falls asleep does not wake it (nor does one that
        another thread was given): its handler is called at the next waking."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        while not self._ended.wait(max(0.0, min(_PULSE, until - time.monotonic()))):
            if time.monotonic() >= until:
                return False
        return True

    def health(self) -> Health:
        """For the probes of a container: ready, live, stalled."""
        now, rounds, ended = time.monotonic(), self._rounds, self._ended.is_set()
        with self._lock:
            unwritten = tuple(unwritten_letters(self._engine))
        return Health(
            ready=rounds.is_joined and not ended and not rounds.is_stopping,
            live=not ended and now - rounds.polled_at < self._max_poll_interval,
            stuck=tuple(stuck_record(task, now) for task in rounds.stuck()),
            # A copy, which is one step: the thread that polls may change the dict while it is looked through.
            stalled_partitions=tuple(sorted({*rounds.stalled(), *self._stalls.partitions.copy()})),
            unwritten_letters=unwritten,
            outage=None if self._engine.breaker is None else self._engine.breaker.error,
            ended=self._error,
        )

    def metrics(self) -> dict[str, float]:
        """What the processor counts, by name. The consumer's own: `consumer.metrics()`."""
        stuck = self._rounds.stuck()
        with self._lock:
            return metrics(self._engine, self._rounds.drains, time.monotonic(), stuck)

    def holdings(self) -> dict[TopicPartition, Hold]:
        """The consumer's holdings; besides, a stuck record is the blocker of its partition, whether or not the group
        requests its revocation."""
        return holdings(self._consumer.holdings(), self._rounds.stuck(), time.monotonic())

    def tally(self) -> Tally:
        """How many records were handled, tried again, skipped and so on, up to now."""
        with self._lock:
            return replace(self._engine.tally)

    @property
    def consumer(self) -> Consumer:
        """For what any thread may ask of it: `holdings`, `metrics`."""
        return self._consumer

    def __enter__(self) -> Self:
        self._enter()
        with self._letting_go():
            if self._what.is_async:
                self._start_loop()
            self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops. Raises what ended the processing, unless the context ends by an error anyway; and ForkedConsumerError
        in a child of the process that entered it, which stops nothing."""
        if self._is_forked(error):
            return
        # Only a signal's exception is raised (Ctrl-C, say): a second wish to end, which waits for nothing.
        with self._letting_go():
            self.stop()
            self._wait(None)
        self._finish_with(error)

    def _finish_with(self, error: BaseException | None) -> None:
        """error: by which the context ends, and which is raised anyway."""
        self._finish()
        if self._error is not None and error is None:
            raise self._error

    async def __aenter__(self) -> Self:
        self._enter()
        self._loop = asyncio.get_running_loop()
        with self._letting_go():
            self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops, as leaving `with` does, without blocking the event loop. Cancelled, it cancels and still waits, as it
        does when it is cancelled again.
        """
        if self._is_forked(error):
            return
        self.stop()
        ended, cancelled = self._end_event(), None
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError as again:
                # Once: each wakes a verb of the consumer, the last commit perhaps.
                if cancelled is None:
                    self.cancel()
                cancelled = again
        if cancelled is not None:
            self._finish()
            raise cancelled
        self._finish_with(error)

    def _end_event(self) -> asyncio.Event:
        """Is set on the running loop when it has ended."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            # Under the lock of `_end`: an end before this is seen here, one after it finds the function.
            self._on_ended.append(lambda: loop.call_soon_threadsafe(ended.set))
            if self._ended.is_set():
                ended.set()
        return ended

    @contextmanager
    def _letting_go(self) -> Iterator[None]:
        """By whatever this ends, nobody comes back to leave the context: then the run ends by itself."""
        try:
            yield
        except BaseException:
            try:
                self.cancel()
                self._give_up_set_up(None)
            finally:
                if self._thread.ident is None:  # it has not begun, and if it does, it sets nothing up
                    self._release()
                else:
                    self._has_run.add_done_callback(lambda _: self._release())
            raise

    # -- threads

    def _enter(self) -> None:
        with self._lock:
            if self._pid is not None:
                raise IllegalStateError("a RunningProcessor runs once: make another one by processor.running(...)")
            self._pid = os.getpid()

    def _is_forked(self, error: BaseException | None = None) -> bool:
        """Whether this is a child of the process that runs it: no thread of it is here that could end. error: what ends
        the context, and is raised anyway."""
        if self._pid in (None, os.getpid()):
            return False
        if error is None:
            raise ForkedConsumerError("this RunningProcessor was entered before the process forked: its parent has it")
        return True

    def _start(self) -> None:
        # The watch first: where the system has one thread left, and not two, no set-up has begun.
        threading.Thread(target=self._watch_set_up, name="instride-set-up", daemon=True).start()
        self._thread.start()

    def _watch_set_up(self) -> None:
        """Law 4, in pulses: a stop may come by a signal's handler, which must wake nobody by a lock."""
        until = math.inf
        while not self._is_set_up.wait(_PULSE):
            if self._rounds.is_cancelled:
                self._give_up_set_up(None)
            elif self._rounds.is_stopping:
                patience = self._what.pace.drain_timeout
                until = min(until, time.monotonic() + patience)
                if time.monotonic() >= until:
                    self._give_up_set_up(DrainTimeoutError(f"stopped, and the set-up did not end in {patience:g} s"))

    def _give_up_set_up(self, error: BaseException | None) -> None:
        with self._lock:
            if self._is_set_up.is_set():
                return
            self._gave_up_set_up, self._error = True, error
            self._is_set_up.set()
        _logger.warning("the set-up is given up")
        if self._setting_up is not None:
            self._setting_up.cancel()
        self._consumer.close(timeout=1.0)
        # Law 4: the thread of `_run` may hang in the set-up for ever, so it is not the one that tells of the end.
        self._end()

    def _ends_set_up(self) -> bool:
        """The set-up is over. False: it was given up before."""
        with self._lock:
            self._is_set_up.set()
            return not self._gave_up_set_up

    def _set_up(self) -> Callable[[], None]:
        """Of the run; then its workers may begin. What tears it down. Raises what the set-up raises."""
        what, loop = self._what, self._loop
        if isinstance(what.store, AsyncDatabaseStore):
            assert loop is not None
            self._awaited(what.store.database.prepare(), loop)
        elif what.store is not None:
            what.store.database.prepare()
        if not what.is_async:
            lifespan = SyncLifespan()
            lifespan.enter(what.lifespan)
            self._workers.made = self._plain_workers(lifespan)
            return lifespan.leave
        assert loop is not None
        around = AsyncLifespan(self._desk.fail)
        self._awaited(around.enter(what.lifespan), loop)
        self._workers.made = LoopWorkers(
            self._desk, self._handler, self._produce, what.concurrency, loop, what.timeout, around
        )
        return lambda: result_of(asyncio.run_coroutine_threadsafe(around.leave(), loop))

    def _awaited(self, what: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> None:
        self._setting_up = asyncio.run_coroutine_threadsafe(what, loop)
        if self._gave_up_set_up:  # in this moment: whoever did so may have found nothing to cancel
            self._setting_up.cancel()
        result_of(self._setting_up)

    def _plain_workers(self, lifespan: SyncLifespan) -> ThreadWorkers | ProcessWorkers:
        what = self._what
        if self._spec is not None:
            at_once = what.concurrency // what.processes
            return ProcessWorkers(self._desk, self._spec, self._produce, what.processes, at_once, what.timeout)
        return ThreadWorkers(
            self._desk, self._handler, self._produce, what.concurrency, lifespan, what.worker_lifespan, what.timeout
        )

    def _tear_down(self, leave: Callable[[], None]) -> None:
        """Handlers have ended, or were given up. What the tear-down raises ends the run, if nothing else has."""
        try:
            # First the handlers end, then what the lifespan has given them is taken away, whatever their end raises.
            try:
                self._workers.close(self._what.pace.close_timeout)
            finally:
                self._leave(leave)
        except BaseException as error:  # noqa: BLE001 - `wait` raises it
            if not self._ended.is_set():
                _logger.error("the tear-down failed: %s: %s", type(error).__name__, error)
                self._error = error if self._error is None else self._error

    def _leave(self, leave: Callable[[], None]) -> None:
        """A watch beside it, since what is torn down may belong to this thread (a connection of sqlite3, say)."""
        watch = threading.Timer(self._tear_down_patience, self._give_up_tear_down)
        watch.daemon = True
        with suppress(RuntimeError):  # no thread is left: nobody watches
            watch.start()
        try:
            leave()
        finally:
            watch.cancel()

    @property
    def _tear_down_patience(self) -> float:
        """Seconds. What is torn down may have as much to finish as a handler."""
        return max(self._what.pace.close_timeout, self._what.pace.drain_timeout)

    def _give_up_tear_down(self) -> None:
        """Law 5. Where there is nothing to tear down, only the event loop hangs, and nothing is left undone."""
        what = "the tear-down of its lifespan" if self._what.lifespan is not None else "the last turn of its event loop"
        hint = ". Does a call in a handler block the event loop (time.sleep, say)?" if self._loop is not None else ""
        seconds = self._tear_down_patience
        error = KafkaTimeoutError(f"stopped, and {what} did not end in {seconds:g} s{hint}")
        _logger.warning("%s", error)
        with self._lock:
            if not self._ended.is_set():
                self._gave_up_tear_down = True
                if self._what.lifespan is not None:
                    self._error = error if self._error is None else self._error
        self._end()

    def _start_loop(self) -> None:
        self._loop = new_event_loop()
        self._loop_over = self._loop.create_future()
        loop = (self._loop, self._loop_over)
        self._loop_thread = threading.Thread(target=self._run_loop, args=loop, name="instride-event-loop", daemon=True)
        try:
            self._loop_thread.start()
        except RuntimeError:  # the system has no thread left: nobody else closes it
            self._loop.close()
            raise

    def _run_loop(self, loop: asyncio.AbstractEventLoop, over: asyncio.Future[None]) -> None:
        be_punctual()
        # Outside of a running loop `gather` of no tasks takes the thread's.
        asyncio.set_event_loop(loop)
        try:
            going_on(loop, over, self._desk.fail)
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            ended = asyncio.gather(*left, return_exceptions=True)
            going_on(loop, ended, self._desk.fail)
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def _run(self) -> None:
        leave: Callable[[], None] | None = None
        try:
            if not self._gave_up_set_up:  # before it began
                leave = self._set_up()
            if self._ends_set_up():
                self._workers.begin(lambda: self._rounds.is_stopping)
                _drive(self._rounds.run(self._what.topics), self._call)
                self._error = self._rounds.error
        except BaseException as error:  # `wait` raises it
            if self._ends_set_up():
                _logger.exception("the processor ended by an error of its own")
                self._error = error
                self._consumer.close(timeout=1.0)
        finally:
            try:
                if leave is not None:
                    self._tear_down(leave)
                if not self._gave_up_set_up:
                    self._end()
            finally:
                self._has_run.set_result(None)

    def _end(self) -> None:
        with self._lock:
            if self._ended.is_set():
                return
            self._error = _named(self._error)
            self._ended.set()
            for tell in self._on_ended:
                tell()

    def _call(self, verb: Verb) -> Any:
        if verb.name == "stored":
            return self._positions(*verb.args)
        return _call(self._consumer, verb)

    def _positions(self, partitions: Mapping[TopicPartition, UUID | None]) -> Future[dict[TopicPartition, int]]:
        """The polls go on meanwhile. A database that answers at once costs no round more."""
        asked = self._ask_store(partitions)
        wait([asked], _AT_ONCE)
        return asked

    def _ask_store(self, partitions: Mapping[TopicPartition, UUID | None]) -> Future[dict[TopicPartition, int]]:
        store, group = self._what.store, self._desk.group
        assert store is not None
        if isinstance(store, DatabaseStore):
            return _in_thread(partial(store.database.positions, group, partitions))
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(store.database.positions(group, partitions), self._loop)

    def _finish(self) -> None:
        """After the end: nothing of ours is left."""
        self._release()
        if self._loop_thread is not None:
            self._loop_thread.join(0.0 if self._gave_up_tear_down else self._what.pace.close_timeout)
        if isinstance(self._produce, ConfluentProduce):
            self._produce.close()

    def _release(self) -> None:
        """After the end, without waiting: all of ours ends."""
        self._workers.close()
        if self._loop_over is not None and not (loop := self._loop_over.get_loop()).is_closed():
            loop.call_soon_threadsafe(self._loop_over.set_result, None)
        if isinstance(self._produce, ConfluentProduce):
            self._produce.close(0.0)

    def __repr__(self) -> str:
        with self._lock:
            engine = self._engine
            return f"RunningProcessor({self._what.name}: {engine.started} in progress, {engine.queued} queued)"


class _Workers:
    """Made when it starts, since only then the event loop is known."""

    __slots__ = ("made",)

    def __init__(self) -> None:
        self.made: ThreadWorkers | ProcessWorkers | LoopWorkers | None = None

    def begin(self, stops: Callable[[], bool]) -> None:
        """What takes long to begin, before the member joins its group."""
        if isinstance(self.made, ProcessWorkers):
            self.made.begin(stops)

    def wake(self) -> None:
        assert self.made is not None
        self.made.wake()

    def cancel(self, tasks: Sequence[Task]) -> None:
        assert self.made is not None
        self.made.cancel(tasks)

    def close(self, patience: float = 0.0) -> None:
        if self.made is not None:
            self.made.close(patience)


def _named(error: BaseException | None) -> BaseException | None:
    """Law 6."""
    if not isinstance(error, asyncio.CancelledError | CancelledError):
        return error
    named = IllegalStateError("somebody else cancelled a task of the processor, or what its lifespan awaited")
    named.__cause__ = error
    return named


def _in_thread(call: Callable[[], T]) -> Future[T]:
    """A daemon: what never returns keeps no process alive."""
    future: Future[T] = Future()
    # It cannot be cancelled, so that its result may come at any time.
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - whoever awaits the result raises it
            future.set_exception(error)

    threading.Thread(target=run, name="instride-store", daemon=True).start()
    return future


def _check_settings(settings: Mapping[str, Any]) -> None:
    for name, why in _OURS.items():
        if name in settings:
            raise ConfigError(f"{name}: {why}")
    if not settings.get("group_id"):
        raise ConfigError('a Processor needs a group: group_id="billing"')


def _most_records(settings: Mapping[str, Any]) -> int:
    most: int = settings.get("max_poll_records") or POLL_RECORDS
    return sys.maxsize if most < 0 else most


def _spec(what: Definition, handler: Callable[[Any], Any]) -> bytes:
    return pickled(Spec(handler=handler, reader=what.reader, around=what.worker_lifespan, output=what.output))


def run_with_signals(running: RunningProcessor, *, second_cancels: bool = True) -> None:
    """Until it ends. SIGTERM and SIGINT stop it, a second one cancels (if it may). In the main thread only those are
    heard."""

    def heard(number: int, _: FrameType | None) -> None:
        if received and second_cancels:
            running.cancel()
        else:
            running.stop()
        received.append(number)

    received: list[int] = []
    with _handling(heard), running:
        running.wait()


@contextmanager
def _handling(heard: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    # Python lets no other thread set a signal's handler.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    me = os.getpid()

    def heard_here(number: int, frame: FrameType | None) -> None:
        if os.getpid() == me:
            heard(number, frame)
            return
        # Law 2: a child that a handler forked. multiprocessing ends its workers by SIGTERM, and waits for their end.
        signal.signal(number, before[number])
        os.kill(os.getpid(), number)

    # None: a program in C has set one, which Python cannot put back.
    numbers: tuple[int, ...] = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) or signal.SIG_DFL for number in numbers}
    try:
        for number in numbers:
            signal.signal(number, heard_here)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _drive(verbs: Verbs, call: Callable[[Verb], Any]) -> None:
    """Law 1 of the rounds."""
    result: Any = None
    error: BaseException | None = None
    while True:
        try:
            verb = verbs.send(result) if error is None else verbs.throw(error)
        except StopIteration:
            return
        result = error = None
        try:
            result = call(verb)
        except BaseException as caught:  # noqa: BLE001 - the rounds decide
            error = caught


def _call(consumer: Consumer, verb: Verb) -> Any:
    if verb.name == "sleep":
        time.sleep(*verb.args)
        return None
    if verb.name == "topic_ids":
        return {topic: _topic_id(consumer, topic) for topic in verb.args}
    if verb.name == "poll":
        # Whoever handles a record deserializes it (law 2 of `attempts`): else one bad record would fail a poll.
        return consumer.poll(**verb.kwargs, deserialize=False)
    return getattr(consumer, verb.name)(*verb.args, **verb.kwargs)


def _topic_id(consumer: Consumer, topic: str) -> UUID | None:
    partitions = consumer.partitions_for(topic, timeout=1.0)
    return partitions[0].topic_id if partitions else None


def _payload(record: ConsumerRecord) -> int:
    """As fetched, key and value are bytes."""
    return len(record.key or b"") + len(record.value or b"")
