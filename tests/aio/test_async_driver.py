"""What lies below the asynchronous verbs: who is woken when, what a closed loop leaves, and that nothing is left."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from threading import Thread
from typing import Any

import pytest
from aio_help import Scene, VirtualLoop, epochs, tp

from instride import AsyncConsumer, TopicPartition
from instride._core.application.calls import Call, Wait
from instride._core.events import (
    BackgroundEvent,
    CallCompleted,
    Close,
    Commit,
    CompleteRevoke,
    Lost,
    Noticed,
    Positioned,
    Unsubscribe,
    Wakeup,
)
from instride._net.loop_mailbox import LoopMailbox
from instride.commits import CommitResult
from instride.errors import (
    CommitFailedError,
    ConsumerClosedError,
    IllegalStateError,
    NetworkThreadDiedError,
    TransportError,
    WakeupError,
)
from instride.observers import Observer
from instride.telemetry import DelayAtRisk, OwnershipChange, OwnershipChanged


def reading() -> Scene:
    """A consumer with one partition, at offset 0."""
    scene = Scene()
    scene.consumer.assign([tp(0)])
    scene.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=0))
    return scene


# --- the mailbox ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["event", "death", "end"])
def test_what_comes_between_the_look_and_the_wait_is_not_missed(
    loop: VirtualLoop, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailbox = LoopMailbox()
    mailbox.bind(loop)
    wait = mailbox.until_ended if what == "end" else partial(mailbox.pause, before=mailbox.notified)
    come: dict[str, Callable[[], object]] = {
        "event": lambda: mailbox.deliver([Wakeup()]),
        "death": lambda: mailbox.network_died(LookupError("a bug")),
        "end": mailbox.network_ended,
    }
    set_timer: Any = loop.call_later

    def late(*arguments: Any) -> Any:
        come[what]()
        return set_timer(*arguments)

    monkeypatch.setattr(loop, "call_later", late)
    loop.play(wait(1060.0))
    assert loop.at == 1000.0


@pytest.mark.parametrize("look", [1, 2])
def test_what_comes_after_any_look_is_not_missed(loop: VirtualLoop, look: int) -> None:
    mailbox = LoopMailbox()
    mailbox.bind(loop)

    class Late(deque[BackgroundEvent]):
        looks = 0

        def __bool__(self) -> bool:
            self.looks += 1
            found = len(self) > 0
            if self.looks == look:
                mailbox.deliver([Wakeup()])
            return found

    mailbox.queue = Late()
    loop.play(mailbox.pause(1060.0, mailbox.notified))
    assert loop.at == 1000.0


def test_a_wait_looks_at_the_clock_once_a_minute_at_least(loop: VirtualLoop) -> None:
    """The loop's time stands still while the machine is suspended, and the clock goes on."""
    mailbox = LoopMailbox()
    mailbox.bind(loop)
    loop.play(mailbox.look_again(4600.0))
    assert loop.at == 1060.0


def test_a_delivery_wakes_all_who_wait(loop: VirtualLoop) -> None:
    async def story() -> None:
        mailbox = LoopMailbox()
        mailbox.bind(loop)
        waits = [asyncio.create_task(mailbox.look_again(1060.0)) for _ in range(5)]
        await asyncio.sleep(1)
        mailbox.deliver([Wakeup()])
        await asyncio.gather(*waits)
        assert loop.at == 1001.0

    loop.play(story())


def test_a_delivery_that_a_closed_loop_never_heard_keeps_no_other_asleep(loop: VirtualLoop) -> None:
    mailbox, first = LoopMailbox(), VirtualLoop()
    mailbox.bind(first)
    stuck = first.create_task(mailbox.look_again(1060.0))
    first.run_until_complete(asyncio.sleep(0))
    mailbox.deliver([Wakeup()])
    stuck.cancel()
    first.run_until_complete(asyncio.gather(stuck, return_exceptions=True))
    first.close()
    mailbox._noted = True  # as if the loop had been closed before it heard
    mailbox.bind(loop)
    loop.call_later(1.0, lambda: mailbox.deliver([Wakeup()]))
    loop.play(mailbox.look_again(1060.0))
    assert loop.at == 1001.0


def test_a_call_that_looks_again_and_again_leaves_other_tasks_their_turn(loop: VirtualLoop) -> None:
    async def story() -> None:
        driver = reading().consumer._driver
        turns: list[int] = []

        async def other() -> None:
            while True:
                turns.append(len(turns))
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        for _ in range(3):
            await driver._wait(Wait(until=loop.at - 1.0), driver._mailbox.notified)
        beside.cancel()
        assert len(turns) >= 3

    loop.play(story())


def test_polls_that_are_over_leave_no_timer_and_no_waiter(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = reading()
        for offset in range(10):
            loop.call_later(0.5, scene.fetched, 0, offset, offset + 1)
            assert await scene.consumer.poll(timeout=60.0)
        await asyncio.sleep(1)  # in which the network has its turn
        left: Any = loop
        assert [timer for timer in left._scheduled if not timer.cancelled()] == []
        assert scene.network.mailbox._waiters == set()

    loop.play(story())


# --- futures of commits -------------------------------------------------------------------------------------


def test_a_future_ends_in_its_loop_whichever_thread_has_the_response(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = reading()
        scene.network.silent |= {Commit}
        future = scene.consumer.commit_async({tp(0): 3})
        (source,) = scene.network._futures.values()
        network = Thread(target=source.set_result, args=(CommitResult(),))
        network.start()
        network.join()
        assert not future.done()
        assert await future == CommitResult()

    loop.play(story())


def test_an_error_that_nobody_asks_for_is_not_logged(loop: VirtualLoop) -> None:
    complaints: list[Any] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))

    async def story() -> None:
        scene = reading()
        scene.network.silent |= {Commit}
        scene.consumer.commit_async({tp(0): 3})
        (source,) = scene.network._futures.values()
        source.set_exception(CommitFailedError("no"))
        scene.network._futures.clear()

    loop.run_until_complete(story())
    loop.run_until_complete(asyncio.sleep(1))
    gc.collect()
    assert complaints == []


def test_a_response_after_the_loop_was_closed_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    scene, first = reading(), VirtualLoop()
    scene.network.silent |= {Commit}

    async def story() -> None:
        scene.consumer.commit_async({tp(0): 3})

    first.run_until_complete(story())
    first.close()
    (source,) = scene.network._futures.values()
    with caplog.at_level(logging.ERROR):
        source.set_result(CommitResult())
    assert caplog.records == []


# --- closing -------------------------------------------------------------------------------------------------


def test_a_close_wakes_who_polls_and_who_commits(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = reading()
        scene.network.silent |= {Commit}
        waits = [
            asyncio.create_task(scene.consumer.poll(timeout=20.0)),
            asyncio.create_task(scene.consumer.commit({tp(0): 3}, timeout=20.0)),
        ]
        await asyncio.sleep(1)
        await scene.consumer.close()
        assert loop.at < 1001.5
        for each in waits:
            with pytest.raises(ConsumerClosedError):
                await each
        assert loop.at < 1001.5

    loop.play(story())


def test_a_close_ends_a_poll_that_has_just_begun(loop: VirtualLoop) -> None:
    """It had given way to the other tasks, and then waited for as long as the close did, which ended unclean."""

    async def story() -> None:
        scene = reading()
        poll = asyncio.create_task(scene.consumer.poll())
        await asyncio.sleep(0)
        await scene.consumer.close()
        assert loop.at < 1001.5
        with pytest.raises(ConsumerClosedError):
            await poll

    loop.play(story())


@pytest.mark.parametrize("verb", ["poll", "unsubscribe"])
@pytest.mark.parametrize("error", [ValueError("the database"), KeyboardInterrupt()])
def test_what_a_listener_raises_is_raised_also_where_another_task_closes(
    loop: VirtualLoop, verb: str, error: BaseException
) -> None:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise error

    async def call(scene: Scene) -> BaseException | None:
        try:
            await getattr(scene.consumer, verb)()
        except (ValueError, KeyboardInterrupt) as caught:  # not out of the task: an interrupt would end the loop
            return caught
        return None

    async def story() -> None:
        scene = Scene()
        scene.consumer.subscribe(["t"], listener=scene.listener)
        scene.assigned(0)
        if verb == "unsubscribe":
            await scene.consumer.poll(timeout=0)
        scene.listener.meanwhile = fail
        task = asyncio.create_task(call(scene))
        await asyncio.sleep(0.2)
        scene.listener.meanwhile = None
        await scene.consumer.close()
        assert await task is error
        assert loop.at < 1003, "the close waits for it, and for nothing else"

    loop.play(story())


def test_an_unsubscribe_keeps_what_a_listener_raised_though_another_task_closes(loop: VirtualLoop) -> None:
    """It goes on after the error, to raise it at its end, which the close does not let come."""
    error = ValueError("the database")

    async def fail() -> None:
        await asyncio.sleep(1)
        raise error

    async def story() -> None:
        scene = Scene()
        scene.consumer.subscribe(["t"], listener=scene.listener)
        scene.assigned(0, 1)
        await scene.consumer.poll(timeout=0)
        scene.up(Lost(partitions=epochs(1)))
        scene.listener.meanwhile = fail
        scene.network.silent |= {CompleteRevoke}
        unsubscribe = asyncio.create_task(scene.consumer.unsubscribe())
        await asyncio.sleep(0.2)
        await scene.consumer.close()
        assert unsubscribe.exception() is error
        assert loop.at < 1003

    loop.play(story())


def test_a_poll_that_is_cancelled_while_another_task_closes_is_cancelled(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = Scene()
        scene.listener.meanwhile = asyncio.Event().wait
        scene.consumer.subscribe(["t"], listener=scene.listener)
        scene.assigned(0)
        poll = asyncio.create_task(scene.consumer.poll())
        await asyncio.sleep(0.2)
        scene.listener.meanwhile = None
        close = asyncio.create_task(scene.consumer.close())
        await asyncio.sleep(0.2)
        poll.cancel()
        await asyncio.wait([poll, close])
        assert poll.cancelled()

    loop.play(story())


@pytest.mark.parametrize("how", ["wait_for", "a task", "another consumer's listener"])
def test_a_close_by_a_child_task_of_a_listener_comes_when_its_call_ends(loop: VirtualLoop, how: str) -> None:
    """On Python 3.11 `wait_for` makes a task. It waited for the poll, which waited for the listener, which waited."""

    async def story() -> None:
        scene = Scene()
        close = scene.consumer.close

        async def within() -> None:
            await asyncio.create_task(close(timeout=5.0))

        async def by_another() -> None:
            other = Scene()
            other.listener.meanwhile = within
            other.consumer.subscribe(["t"], listener=other.listener)
            other.assigned(0)
            await other.consumer.poll(timeout=0)

        ways = {"wait_for": lambda: asyncio.wait_for(close(), 5.0), "a task": within}
        scene.listener.meanwhile = ways.get(how, by_another)
        scene.consumer.subscribe(["t"], listener=scene.listener)
        scene.assigned(0)
        with pytest.raises(WakeupError):
            await scene.consumer.poll()
        assert loop.at < 1001.5
        assert len(scene.network.of(Close)) == 1

    loop.play(story())


def test_a_task_that_outlives_the_listener_that_began_it_is_in_no_listener(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene, begun = Scene(), list[asyncio.Task[None]]()

        async def later() -> None:
            await asyncio.sleep(1)
            await scene.consumer.close()

        async def begin() -> None:
            begun.append(asyncio.create_task(later()))

        scene.listener.meanwhile = begin
        scene.consumer.subscribe(["t"], listener=scene.listener)
        scene.assigned(0)
        await scene.consumer.poll(timeout=0)
        scene.listener.meanwhile = None
        await begun[0]
        assert len(scene.network.of(Close)) == 1

    loop.play(story())


def test_while_it_is_being_closed_no_poll_begins(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = reading()
        scene.network.silent |= {Close}
        close = asyncio.create_task(scene.consumer.close())
        await asyncio.sleep(1)
        for verb in (scene.consumer.poll, scene.consumer.unsubscribe):
            with pytest.raises(ConsumerClosedError, match="is being closed"):
                await verb()
        scene.network._respond(scene.network.of(Close)[0])
        await close

    loop.play(story())


def test_a_close_begins_when_the_listener_of_a_poll_has_ended(loop: VirtualLoop) -> None:
    heard = []

    async def story() -> None:
        scene = Scene()

        class Slow(type(scene.listener)):  # type: ignore[misc]
            async def _hear(self, what: str, partitions: Sequence[TopicPartition]) -> None:
                heard.append(what)
                await asyncio.sleep(2.0)
                heard.append(f"{what} ended")

        scene.consumer.subscribe(["t"], listener=Slow())
        scene.assigned(0)
        poll = asyncio.create_task(scene.consumer.poll())
        await asyncio.sleep(1)
        await scene.consumer.close()
        with pytest.raises(ConsumerClosedError):
            await poll

    loop.play(story())
    assert heard == ["assigned", "assigned ended", "revoked", "revoked ended"]


def test_a_close_that_its_loop_did_not_end_is_done_in_the_next(loop: VirtualLoop) -> None:
    scene, first = Scene(), VirtualLoop()
    scene.listener.meanwhile = asyncio.Event().wait
    scene.consumer.subscribe(["t"], listener=scene.listener)

    async def begin() -> list[asyncio.Task[Any]]:
        scene.assigned(0)
        poll = asyncio.create_task(scene.consumer.poll())
        await asyncio.sleep(0.01)
        close = asyncio.create_task(scene.consumer.close())
        await asyncio.sleep(0.01)
        return [poll, close]

    stuck = first.run_until_complete(begin())
    first.close()
    assert scene.network.of(Close) == []
    scene.listener.meanwhile = None
    loop.run_until_complete(scene.consumer.close())
    assert len(scene.network.of(Close)) == 1
    assert loop.at < 1001, "nobody is inside any more: nobody is awaited"
    for task in stuck:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        task.get_coro().close()


def test_a_thread_that_does_not_end_keeps_a_close_for_a_second(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = reading()
        scene.network._respond = lambda event: (  # type: ignore[method-assign]
            scene.up(CallCompleted(call=event.call)) if isinstance(event, Close) else None
        )
        await scene.consumer.close()
        assert 1001.0 <= loop.at < 1001.5

    loop.play(story())


# --- a network thread that cannot start ----------------------------------------------------------------------


def test_polls_come_a_backoff_apart_while_no_thread_can_be_started(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that polls again at once took a whole core."""

    def refuse(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def story() -> None:
        consumer = AsyncConsumer(bootstrap_servers="127.0.0.1:1", group_id="g", retry_backoff=0.25)
        with monkeypatch.context() as patch:
            patch.setattr(Thread, "start", refuse)
            with pytest.raises(TransportError):
                consumer.subscribe(["t"])
            for number in (1, 2, 3):
                with pytest.raises(TransportError, match="cannot start the network thread"):
                    await consumer.poll()
                assert loop.at == 1000.0 + 0.25 * number
            poll = asyncio.create_task(consumer.poll())
            await asyncio.sleep(0.1)
            await consumer.close()
            with pytest.raises(ConsumerClosedError, match="closed meanwhile"):
                await poll
            assert loop.at == 1000.85, "a close ends the wait"

    loop.play(story())


def test_tasks_that_cannot_start_the_thread_do_not_wake_each_other(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one changes woke the other, which failed and woke the first: they span again."""
    starts: list[float] = []

    def refuse(_: Thread) -> None:
        starts.append(loop.at)
        raise RuntimeError("can't start new thread")

    async def again(verb: Callable[[], Awaitable[object]]) -> None:
        while loop.at < 1010.0 and len(starts) < 1000:
            with pytest.raises(TransportError, match="cannot start the network thread"):
                await verb()

    async def story() -> None:
        consumer = AsyncConsumer(bootstrap_servers="127.0.0.1:1", group_id="g", retry_backoff=0.25)
        with monkeypatch.context() as patch:
            patch.setattr(Thread, "start", refuse)
            with pytest.raises(TransportError):
                consumer.subscribe(["t"])
            await asyncio.gather(again(consumer.poll), again(lambda: consumer.committed([tp(0)])))
            await consumer.close()

    loop.play(story())
    assert len(starts) <= 2 * 10.0 / 0.25 + 3, "each task once a back-off"


def test_another_error_of_a_connection_is_raised_at_once(loop: VirtualLoop) -> None:
    """The thread runs: there is nothing to wait for."""

    def failing() -> Call[None]:
        raise TransportError("refused")
        yield  # type: ignore[unreachable]

    async def story() -> None:
        scene = reading()
        begun = loop.at
        with pytest.raises(TransportError, match="refused"):
            await scene.consumer._driver.run(failing())
        assert loop.at == begun

    loop.play(story())


# --- what is told --------------------------------------------------------------------------------------------


def test_telemetry_is_told_before_a_call_waits(loop: VirtualLoop) -> None:
    heard: list[object] = []

    async def story() -> None:
        scene = Scene(telemetry=heard.append)
        scene.consumer.subscribe(["t"])
        scene.assigned(0)
        poll = asyncio.create_task(scene.consumer.poll())
        await asyncio.sleep(1)
        assert heard
        poll.cancel()

    loop.play(story())


def test_what_a_close_that_is_cut_off_gives_up_is_told(loop: VirtualLoop) -> None:
    heard: list[object] = []

    async def story() -> None:
        scene = Scene(telemetry=heard.append)
        scene.consumer.subscribe(["t"], listener=scene.listener)
        scene.assigned(0)
        await scene.consumer.poll(timeout=0)
        scene.network.silent |= {CompleteRevoke, Close}
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(scene.consumer.close(), 1.0)

    loop.play(story())
    lost = [each for each in heard if isinstance(each, OwnershipChanged) and each.change is OwnershipChange.LOST]
    assert [each.partitions for each in lost] == [(tp(0),)]


class Heard(Observer):
    def __init__(self) -> None:
        self.died: list[Exception] = []

    def on_died(self, error: Exception) -> None:
        self.died.append(error)


def test_an_observer_hears_that_the_network_thread_died(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene, heard = Scene(), Heard()
        scene.consumer.observe(heard)
        scene.consumer.assign([tp(0)])
        scene.network.mailbox.network_died(LookupError("a bug"))
        with pytest.raises(NetworkThreadDiedError) as raised:
            await scene.consumer.poll()
        await scene.consumer.close()
        assert heard.died == [raised.value], "once"

    loop.play(story())


def test_an_observer_hears_from_close_of_a_death_that_no_poll_has_raised(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene, heard = Scene(), Heard()
        scene.consumer.observe(heard)
        scene.consumer.assign([tp(0)])
        scene.network.mailbox.network_died(LookupError("a bug"))
        await scene.consumer.close()
        assert [type(each) for each in heard.died] == [NetworkThreadDiedError]

    loop.play(story())


# --- a listener's verbs --------------------------------------------------------------------------------------


@pytest.mark.rule("21")
@pytest.mark.parametrize("what", ["records", "resumed", "a position", "a commit"])
def test_what_telemetrys_listener_takes_or_changes_ends_the_wait_of_its_task(loop: VirtualLoop, what: str) -> None:
    """It runs after the call's last look, and before the call waits."""
    within: list[Callable[[], object]] = []

    def listen(_: object) -> None:
        while within:
            within.pop()()

    def position(scene: Scene) -> None:
        scene.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=0))
        scene.consumer.assignment()

    def records(scene: Scene) -> None:
        scene.fetched(0, 0, 3)
        scene.consumer.lag(tp(0))

    def response(scene: Scene) -> None:
        (commit,) = (each for each in scene.network.events if isinstance(each, Commit))
        scene.up(CallCompleted(call=commit.call, committed={tp(0): None}))
        scene.consumer.assignment()

    async def story() -> None:
        scene = Scene(telemetry=listen)
        scene.network.silent |= {Commit}
        consumer = scene.consumer
        consumer.assign([tp(0)])
        if what != "a position":
            position(scene)
        if what == "resumed":
            consumer.pause(tp(0))
            scene.fetched(0, 0, 3)
            consumer.lag(tp(0))
        scene.up(Noticed(event=DelayAtRisk(at=loop.at, partition=tp(0), epoch=1, seconds_left=1.0)))
        verbs: dict[str, Callable[[], object]] = {
            "records": lambda: records(scene),
            "resumed": lambda: consumer.resume(tp(0)),
            "a position": lambda: position(scene),
            "a commit": lambda: response(scene),
        }
        within.append(verbs[what])
        if what == "a position":
            await consumer.position(tp(0))
        elif what == "a commit":
            await consumer.commit({tp(0): 1})
        else:
            assert len(await consumer.poll()) == 3
        assert loop.at < 1000.1
        assert not within

    loop.play(story())


def test_a_close_in_a_listener_comes_also_where_telemetrys_is_interrupted(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        scene = Scene()
        driver = scene.consumer._driver

        def interrupted() -> None:
            monkeypatch.undo()
            raise KeyboardInterrupt

        async def closes() -> None:
            await scene.consumer.close()
            monkeypatch.setattr(driver, "_tell", interrupted)

        scene.listener.meanwhile = closes
        scene.consumer.subscribe(["t"], listener=scene.listener)
        scene.assigned(0)
        with pytest.raises(KeyboardInterrupt):
            await scene.consumer.poll()
        assert driver.closed

    loop.play(story())


# --- subscribe and assign by another task while one unsubscribes -----------------------------------------------


def begins(consumer: AsyncConsumer) -> dict[str, Callable[[], None]]:
    return {"subscribe": lambda: consumer.subscribe(["u"]), "assign": lambda: consumer.assign([tp(7)])}


@pytest.mark.parametrize("verb", ["subscribe", "assign"])
def test_what_is_subscribed_while_the_group_is_left_stands(loop: VirtualLoop, verb: str) -> None:
    async def story() -> None:
        scene = Scene()
        consumer = scene.consumer
        consumer.subscribe(["t"])
        leaving = asyncio.create_task(consumer.unsubscribe())
        while not any(isinstance(each, Unsubscribe) for each in (*scene.network.events, *scene.network.log)):
            await asyncio.sleep(0)
        begins(consumer)[verb]()
        await leaving
        assert consumer.subscription() == ({"u"} if verb == "subscribe" else frozenset())
        assert consumer.assignment() == ({tp(7)} if verb == "assign" else frozenset())
        await consumer.poll(timeout=0)

    loop.play(story())


@pytest.mark.parametrize("verb", ["subscribe", "assign"])
def test_what_an_unsubscribe_would_undo_is_refused(loop: VirtualLoop, verb: str) -> None:
    async def story() -> None:
        scene = Scene()
        consumer = scene.consumer
        begin = begins(consumer)[verb]
        consumer.subscribe(["t"], listener=scene.listener)
        scene.assigned(0)
        await consumer.poll(timeout=0)
        leaving = asyncio.create_task(consumer.unsubscribe())
        await asyncio.sleep(0.03)  # in which the listener has begun
        with pytest.raises(IllegalStateError, match="unsubscribe is under way"):
            begin()
        await leaving
        begin()
        await consumer.poll(timeout=0)

    loop.play(story())


def test_an_unsubscribe_that_is_cancelled_undoes_nothing_that_came_after_it(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = Scene()
        scene.network.silent |= {Unsubscribe}
        scene.consumer.subscribe(["t"])
        leaving = asyncio.create_task(scene.consumer.unsubscribe())
        await asyncio.sleep(1)
        scene.consumer.subscribe(["u"])
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert scene.consumer.subscription() == {"u"}
        assert len(scene.network.of(Unsubscribe)) == 1

    loop.play(story())
