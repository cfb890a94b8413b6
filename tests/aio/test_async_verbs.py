"""`AsyncConsumer`: each verb waits without a thread, and does what its namesake does."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from aio_help import Scene, VirtualLoop, epochs, tp

from instride import AsyncConsumer, AsyncRebalanceListener, Consumer, RebalanceListener, TopicPartition
from instride._core.events import (
    CallCompleted,
    Close,
    Commit,
    CompleteRevoke,
    FetchCommitted,
    FetchMetadata,
    FetchOffsets,
    Lost,
    PartitionsRevoked,
    Positioned,
    RevocationRequested,
    Unsubscribe,
)
from instride.errors import (
    CommitFailedError,
    ConcurrentUseError,
    ConfigError,
    ConsumerClosedError,
    ForkedConsumerError,
    IllegalStateError,
    KafkaTimeoutError,
    NetworkThreadDiedError,
    WakeupError,
)
from instride.observers import Observer
from instride.records import OffsetAndMetadata, OffsetAndTimestamp, PartitionInfo


def verbs(kind: type) -> dict[str, Any]:
    return {name: verb for name, verb in inspect.getmembers(kind, callable) if not name.startswith("_")}


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """No verb takes a thread: neither one of its own, nor one of the event loop's pool."""

    def refuse(*_: Any) -> None:
        raise AssertionError("a verb started a thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


def test_it_has_the_same_verbs_with_the_same_arguments() -> None:
    ours, theirs = verbs(AsyncConsumer), verbs(Consumer)
    assert ours.keys() == theirs.keys()
    for name, verb in ours.items():
        mine, other = (inspect.signature(each).parameters for each in (verb, theirs[name]))
        shown = [[(each.name, each.kind, each.default) for each in found.values()] for found in (mine, other)]
        assert shown[0] == shown[1], name


def test_what_may_wait_is_awaited_and_nothing_else() -> None:
    awaited = {name for name, verb in verbs(AsyncConsumer).items() if inspect.iscoroutinefunction(verb)}
    with_timeout = {name for name, verb in verbs(Consumer).items() if "timeout" in inspect.signature(verb).parameters}
    assert awaited == with_timeout


@pytest.mark.usefixtures("no_threads")
def test_a_poll_returns_as_soon_as_something_is_there_and_else_at_its_timeout(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = Scene()
        scene.consumer.assign([tp(0)])
        scene.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=0))
        assert not await scene.consumer.poll(timeout=5.0)
        assert loop.at == 1005.0
        loop.call_later(2.0, scene.fetched, 0, 0, 3)
        records = await scene.consumer.poll()
        assert ([each.offset for each in records], loop.at) == ([0, 1, 2], 1007.0)

    loop.play(story())


def test_tasks_go_on_while_polls_find_records_at_once(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = Scene()
        scene.consumer.assign([tp(0)])
        scene.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=0))
        scene.fetched(0, 0, 10)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        for _ in range(10):
            assert len(await scene.consumer.poll(max_records=1)) == 1
        assert turns >= 9
        task.cancel()

    loop.play(story())


@pytest.mark.usefixtures("no_threads")
def test_records_one_by_one(loop: VirtualLoop) -> None:
    """Whatever ends the loop, the next goes on behind the last record, and a commit covers that and no more."""

    async def story() -> None:
        scene = Scene()
        scene.consumer.assign([tp(0)])
        scene.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=0))
        scene.fetched(0, 0, 5)
        got = []
        async for record in scene.consumer:
            got.append(record.offset)
            if len(got) == 2:
                break
        await scene.consumer.commit()
        assert [entry.offset for each in scene.network.of(Commit) for entry in each.entries.values()] == [2]
        async for record in scene.consumer:
            got.append(record.offset)
            if len(got) == 5:
                break
        assert got == [0, 1, 2, 3, 4]

    loop.play(story())


def test_a_poll_that_returns_nothing_ends_no_loop_over_records(loop: VirtualLoop) -> None:
    """As at a newly requested revoke: who loops gets the next record."""

    async def story() -> None:
        scene = Scene()
        scene.consumer.subscribe(["t"])
        scene.assigned(0, 1)
        await scene.consumer.poll(timeout=0)
        following = asyncio.create_task(anext(scene.consumer))
        await asyncio.sleep(1)
        scene.up(RevocationRequested(partitions=epochs(0), deadline=2000.0))
        await asyncio.sleep(1)
        assert scene.consumer.assignment() == {tp(1)}, "one poll has returned, and the next has revoked"
        assert not following.done()
        scene.fetched(1, 0, 5)
        record = await following
        assert (record.partition, record.offset) == (1, 0)

    loop.play(story())


@pytest.mark.usefixtures("no_threads")
def test_requests_and_their_responses(loop: VirtualLoop) -> None:
    info = PartitionInfo(topic="t", partition=0, leader=None)
    responses: dict[type, Any] = {
        FetchCommitted: {tp(0): OffsetAndMetadata(offset=7)},
        FetchOffsets: {tp(0): OffsetAndTimestamp(offset=9, timestamp=1)},
        FetchMetadata: {"t": (info,)},
    }

    async def story() -> None:
        scene = Scene()
        consumer, network = scene.consumer, scene.network
        before = network._respond

        def respond(event: Any) -> None:
            if type(event) in responses:
                network.up(CallCompleted(call=event.call, result=responses[type(event)]))
            else:
                before(event)

        network._respond = respond  # type: ignore[method-assign]
        assert await consumer.committed(tp(0)) == responses[FetchCommitted]
        assert await consumer.beginning_offsets([tp(0)]) == {tp(0): 9}
        assert await consumer.end_offsets([tp(0)]) == {tp(0): 9}
        assert await consumer.offsets_for_times({tp(0): 1}) == responses[FetchOffsets]
        assert await consumer.partitions_for("t") == [info]
        assert await consumer.list_topics() == {"t": [info]}
        consumer.assign([tp(0)])
        loop.call_later(1.0, scene.up, Positioned(partition=tp(0), epoch=1, seek_number=0, offset=4))
        assert await consumer.position(tp(0)) == 4
        assert consumer.assignment() == {tp(0)}

    loop.play(story())


def test_what_has_no_response_ends_at_its_timeout(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = Scene()
        scene.consumer.assign([tp(0)])
        scene.network.silent |= {Commit}
        with pytest.raises(KafkaTimeoutError):
            await scene.consumer.commit({tp(0): 3}, timeout=2.0)
        assert loop.at == 1002.5, "half a second after its timeout"
        with pytest.raises(KafkaTimeoutError):
            await scene.consumer.position(tp(0), timeout=1.0)

    loop.play(story())


@pytest.mark.usefixtures("no_threads")
def test_commits_end_with_or_without_waiting(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = Scene()
        scene.consumer.assign([tp(0)])
        handed = scene.consumer.commit_async({tp(0): 3})
        assert not handed.done()
        await scene.consumer.commit({tp(0): 4})
        await handed
        await scene.consumer.commit_async()
        with pytest.raises(CommitFailedError):
            await scene.consumer.commit({tp(9): 4})
        assert [entry.offset for each in scene.network.of(Commit) for entry in each.entries.values()] == [3, 4]

    loop.play(story())


def test_an_unread_error_is_not_logged_and_a_cancelled_future_harms_nobody(loop: VirtualLoop) -> None:
    complaints: list[Any] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))

    async def story() -> None:
        scene = Scene()
        scene.consumer.assign([tp(0)])
        scene.network.silent |= {Commit}
        first, second = (scene.consumer.commit_async({tp(0): 3 + more}) for more in (0, 1))
        second.cancel()
        for future in list(scene.network._futures.values()):
            future.set_exception(CommitFailedError("no"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert isinstance(first.exception(), CommitFailedError)
        del first, second

    loop.play(story())
    assert complaints == []


@pytest.mark.rule("13")
def test_a_poll_that_is_cancelled_took_nothing(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = Scene()
        scene.consumer.assign([tp(0)])
        scene.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=0))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(scene.consumer.poll(), 1.0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await scene.consumer.poll()
        scene.fetched(0, 0, 3)
        task = asyncio.create_task(scene.consumer.poll())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [each.offset for each in await scene.consumer.poll()] == [0, 1, 2]

    loop.play(story())


# --- listeners ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_threads")
def test_a_listener_is_awaited_and_may_await_the_consumer(loop: VirtualLoop) -> None:
    """A partition takes its last commit while its listener runs, and is let go of after it."""

    async def story() -> None:
        scene = Scene()
        consumer, listener = scene.consumer, scene.listener
        consumer.subscribe(["t"], listener=listener)
        scene.assigned(0, 1)
        scene.fetched(0, 0, 3)
        assert len(await consumer.poll()) == 3
        assert (listener.heard, listener.ended) == ([("assigned", (0, 1))], 1)
        scene.up(RevocationRequested(partitions=epochs(0), deadline=float("inf")))
        await consumer.poll()
        assert consumer.to_be_revoked_partitions() == {tp(0)}

        async def last_words() -> None:
            assert not scene.network.of(PartitionsRevoked)
            await consumer.commit({tp(0): 3})

        listener.meanwhile = last_words
        await consumer.poll(timeout=1.0)
        listener.meanwhile = None
        assert listener.heard[1:] == [("revoked", (0,))]
        assert scene.network.of(PartitionsRevoked) == [PartitionsRevoked(partitions=epochs(0))]
        scene.up(Lost(partitions=epochs(1)))
        await consumer.poll()
        assert listener.heard[2:] == [("lost", (1,))]
        assert consumer.lost_partitions() == {tp(1)}

    loop.play(story())


@pytest.mark.usefixtures("no_threads")
def test_a_plain_listener_will_do(loop: VirtualLoop) -> None:
    heard: list[list[TopicPartition]] = []

    class Plain(RebalanceListener):
        def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            heard.append(list(partitions))

    async def story() -> None:
        scene = Scene()
        scene.consumer.subscribe(["t"], listener=Plain())
        scene.assigned(0)
        await scene.consumer.poll(timeout=0)
        assert heard == [[tp(0)]]

    loop.play(story())


def test_what_a_listener_raises_is_raised_by_its_call(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = Scene()
        scene.consumer.subscribe(["t"], listener=scene.listener)

        async def fails() -> None:
            raise LookupError("the user's bug")

        scene.listener.meanwhile = fails
        scene.assigned(0)
        with pytest.raises(LookupError):
            await scene.consumer.poll()
        scene.listener.meanwhile = None
        await scene.consumer.poll(timeout=0)
        assert scene.listener.heard == [("assigned", (0,))], "not twice"

    loop.play(story())


@pytest.mark.rule("13")
def test_a_listener_that_is_cancelled_with_its_poll_is_not_called_again(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = Scene()
        scene.consumer.subscribe(["t"], listener=scene.listener)
        scene.assigned(0)
        scene.fetched(0, 0, 3)
        task = asyncio.create_task(scene.consumer.poll())
        await asyncio.sleep(0.02)
        assert scene.listener.heard
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(await scene.consumer.poll()) == 3
        assert (scene.listener.heard, scene.listener.ended) == ([("assigned", (0,))], 0)

    loop.play(story())


def test_a_blocking_consumer_refuses_an_asynchronous_listener() -> None:
    class Mixed(RebalanceListener):
        async def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:  # type: ignore[override]
            ...

    consumer = Consumer(bootstrap_servers="127.0.0.1:1", group_id="g")
    with pytest.raises(TypeError, match="on_partitions_lost"):
        consumer.subscribe(["t"], listener=Mixed())
    with pytest.raises(TypeError, match="must be an object"):
        AsyncConsumer(bootstrap_servers="127.0.0.1:1", group_id="g").subscribe(["t"], listener=AsyncRebalanceListener)  # type: ignore[arg-type]


# --- several tasks, other loops and threads ----------------------------------------------------------------


@pytest.mark.requirement("surface/concurrent-use")
def test_two_polls_at_once_are_refused_and_the_first_goes_on(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = Scene()
        scene.consumer.assign([tp(0)])
        scene.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=0))
        task = asyncio.create_task(scene.consumer.poll())
        await asyncio.sleep(1)
        for verb in (scene.consumer.poll, scene.consumer.poll_changes, scene.consumer.unsubscribe):
            with pytest.raises(ConcurrentUseError, match="inside poll"):
                await verb()
        scene.fetched(0, 0, 3)
        assert len(await task) == 3

    loop.play(story())


def test_other_tasks_may_use_the_other_verbs_while_one_polls(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = Scene()
        consumer = scene.consumer
        consumer.assign([tp(0)])
        scene.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=0))
        consumer.pause(tp(0))
        scene.fetched(0, 0, 3)
        task = asyncio.create_task(consumer.poll())
        await asyncio.sleep(1)
        await consumer.commit({tp(0): 0})
        await consumer.commit_async({tp(0): 0})
        assert not task.done()
        assert consumer.paused() == {tp(0)}
        consumer.resume(tp(0))
        assert len(await task) == 3
        assert loop.at < 1002, "what another task did wakes the one that polls"

    loop.play(story())


def test_what_belongs_to_no_listener_is_refused_in_one(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = Scene()
        scene.consumer.subscribe(["t"], listener=scene.listener)
        raised = []

        async def calls() -> None:
            for verb in (scene.consumer.poll, scene.consumer.unsubscribe):
                with pytest.raises(IllegalStateError, match="listener"):
                    await verb()
                raised.append(verb)

        scene.listener.meanwhile = calls
        scene.assigned(0)
        await scene.consumer.poll(timeout=0)
        assert len(raised) == 2

    loop.play(story())


@pytest.mark.requirement("surface/concurrent-use")
def test_another_loop_is_refused() -> None:
    scene = Scene()

    async def poll() -> None:
        with pytest.raises(ConcurrentUseError, match="another event loop"):
            await scene.consumer.poll(timeout=0)

    def elsewhere() -> None:
        with pytest.raises(ConcurrentUseError, match="another event loop"):
            scene.consumer.assignment()
        asyncio.run(poll())
        scene.consumer.wakeup()
        scene.consumer.metrics()

    async def story() -> None:
        scene.consumer.assign([tp(0)])
        await scene.consumer.poll(timeout=0)
        await asyncio.to_thread(elsewhere)
        with pytest.raises(WakeupError):
            await scene.consumer.poll()

    asyncio.run(story())


@pytest.mark.requirement("surface/fork")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_an_open_consumer_is_refused_in_a_child(loop: VirtualLoop) -> None:
    scene = Scene()
    scene.consumer.assign([tp(0)])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            scene.consumer.assignment()
        except ForkedConsumerError:
            code = 0
        finally:  # not on to the rest of the tests
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert scene.consumer.assignment() == {tp(0)}


def test_between_two_runs_of_its_loop_local_verbs_go_on(loop: VirtualLoop) -> None:
    scene = Scene()
    scene.consumer.assign([tp(0)])
    loop.run_until_complete(scene.consumer.poll(timeout=0))
    assert scene.consumer.assignment() == {tp(0)}
    with pytest.raises(IllegalStateError, match="running event loop"):
        scene.consumer.commit_async()


def test_once_its_loop_is_closed_only_close_is_left(loop: VirtualLoop) -> None:
    scene = Scene()
    scene.consumer.assign([tp(0)])
    first = VirtualLoop()
    stuck = first.create_task(scene.consumer.poll())
    first.run_until_complete(asyncio.sleep(1))
    first.close()
    scene.fetched(0, 0, 3)  # the network thread does not die of it
    with pytest.raises(IllegalStateError, match="is closed"):
        scene.consumer.assignment()

    async def story() -> None:
        with pytest.raises(IllegalStateError, match="is closed"):
            await scene.consumer.poll()
        await scene.consumer.close()

    loop.run_until_complete(story())
    assert len(scene.network.of(Close)) == 1
    stuck.get_coro().close()
    stuck._log_destroy_pending = False  # type: ignore[attr-defined]


# --- the end -----------------------------------------------------------------------------------------------


def test_after_close_every_use_is_refused_but_close(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = Scene()
        async with scene.consumer as consumer:
            consumer.assign([tp(0)])
        assert len(scene.network.of(Close)) == 1
        await consumer.close()
        with pytest.raises(ConsumerClosedError):
            await consumer.poll()
        with pytest.raises(ConsumerClosedError):
            consumer.commit_async()

    loop.play(story())


def test_a_consumer_that_was_never_used_closes_without_a_thread(loop: VirtualLoop) -> None:
    async def story() -> None:
        consumer = AsyncConsumer(bootstrap_servers="127.0.0.1:1", group_id="g")
        await consumer.close()
        assert not consumer._driver.started

    loop.play(story())


def test_a_close_ends_what_other_tasks_wait_for(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = Scene()
        scene.consumer.assign([tp(0)])
        scene.network.silent |= {Commit}
        poll = asyncio.create_task(scene.consumer.poll())
        commit = asyncio.create_task(scene.consumer.commit({tp(0): 3}))
        await asyncio.sleep(1)
        first = asyncio.create_task(scene.consumer.close())
        second = asyncio.create_task(scene.consumer.close())
        await asyncio.gather(first, second)
        for task in (poll, commit):
            with pytest.raises(ConsumerClosedError):
                await task
        assert len(scene.network.of(Close)) == 1

    loop.play(story())


@pytest.mark.rule("13")
def test_a_close_that_was_cancelled_is_waited_for_by_the_next(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = Scene()
        scene.consumer.assign([tp(0)])
        scene.network.silent |= {Close}
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(scene.consumer.close(), 1.0)
        (event,) = scene.network.of(Close)
        loop.call_later(3.0, scene.network._respond, event)
        await scene.consumer.close()
        assert (loop.at, scene.network.alive) == (1004.0, False)

    loop.play(story())


@pytest.mark.usefixtures("no_threads")
@pytest.mark.rule("12")
def test_a_close_completes_the_revokes_first(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = Scene()
        scene.consumer.subscribe(["t"], listener=scene.listener)
        scene.assigned(0, 1)
        await scene.consumer.poll(timeout=0)
        await scene.consumer.close(timeout=5.0)
        assert scene.listener.heard[1:] == [("revoked", (0, 1))]
        assert scene.listener.ended == 2

    loop.play(story())


@pytest.mark.parametrize("error", [TimeoutError("the database"), KafkaTimeoutError("no response"), ValueError("x")])
def test_what_a_listener_raises_in_a_close_is_raised_by_it(loop: VirtualLoop, error: Exception) -> None:
    """As the blocking consumer's close does; a time-out of the listener's is not the one of the close."""

    async def fail() -> None:
        raise error

    async def story() -> None:
        scene = Scene()
        scene.consumer.subscribe(["t"], listener=scene.listener)
        scene.assigned(0)
        await scene.consumer.poll(timeout=0)
        scene.listener.meanwhile = fail
        with pytest.raises(type(error)) as raised:
            await scene.consumer.close(timeout=5.0)
        assert raised.value is error
        assert len(scene.network.of(Close)) == 1

    loop.play(story())


@pytest.mark.parametrize("where", ["close", "poll"])
def test_a_listener_that_never_ends_does_not_keep_a_close(loop: VirtualLoop, where: str) -> None:
    async def story() -> None:
        scene = Scene()
        scene.consumer.subscribe(["t"], listener=scene.listener)
        if where == "poll":
            scene.listener.meanwhile = asyncio.Event().wait
        scene.assigned(0)
        poll = asyncio.create_task(scene.consumer.poll(timeout=0))
        await asyncio.sleep(1.0)
        scene.listener.meanwhile = asyncio.Event().wait
        await scene.consumer.close(timeout=5.0)
        assert loop.at <= 1010.0
        assert len(scene.network.of(Close)) == 1
        assert poll.done() is (where == "close")
        poll.cancel()
        await asyncio.wait([poll])

    loop.play(story())


def test_a_close_in_a_listener_comes_when_its_call_ends(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = Scene()
        scene.consumer.subscribe(["t"], listener=scene.listener)
        scene.listener.meanwhile = scene.consumer.close
        scene.assigned(0)
        poll = asyncio.create_task(scene.consumer.poll())
        with pytest.raises(WakeupError):
            await poll
        assert len(scene.network.of(Close)) == 1
        with pytest.raises(ConsumerClosedError):
            scene.consumer.assignment()

    loop.play(story())


@pytest.mark.usefixtures("no_threads")
@pytest.mark.rule("13")
def test_an_unsubscribe_that_is_cancelled_leaves_the_group(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = Scene()
        scene.consumer.subscribe(["t"], listener=scene.listener)
        scene.assigned(0)
        await scene.consumer.poll(timeout=0)
        task = asyncio.create_task(scene.consumer.unsubscribe())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(1)
        assert len(scene.network.of(Unsubscribe)) == 1
        scene.consumer.subscribe(["t"])

    loop.play(story())


def test_an_unsubscribe_that_takes_its_whole_timeout_is_told_to_observers(loop: VirtualLoop) -> None:
    class Heard(Observer):
        timed_out: tuple[str, ...] = ()
        done: tuple[bool, ...] = ()

        def on_timed_out(self, verb: str) -> None:
            self.timed_out += (verb,)

        def on_unsubscribe(self, *, done: bool) -> None:
            self.done += (done,)

    async def story() -> None:
        for silent in (set(), {CompleteRevoke, PartitionsRevoked}):
            scene, heard = Scene(), Heard()
            scene.consumer.observe(heard)
            scene.consumer.subscribe(["t"])
            scene.assigned(0)
            await scene.consumer.poll(timeout=0)
            scene.network.silent |= silent
            await scene.consumer.unsubscribe(timeout=3.0)
            assert heard.timed_out == (("unsubscribe",) if silent else ())
            assert heard.done == (False, True)

    loop.play(story())


def test_the_death_of_the_network_thread_is_raised(loop: VirtualLoop) -> None:
    async def story() -> None:
        scene = Scene()
        scene.consumer.assign([tp(0)])
        loop.call_later(1.0, scene.network.mailbox.network_died, LookupError("a bug"))
        with pytest.raises(NetworkThreadDiedError):
            await scene.consumer.poll()
        await scene.consumer.close()

    loop.play(story())


def test_wrong_settings_and_arguments_are_refused() -> None:
    with pytest.raises(ConfigError):
        AsyncConsumer(bootstrap_servers="127.0.0.1:1", group="g")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="by name"):
        AsyncConsumer("t")  # type: ignore[arg-type, call-arg]
