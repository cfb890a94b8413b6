"""What a recorded consumer does that is right is judged as right, also where exceptions leave its calls.

The consumer is real; the test plays the network thread, and is told first what that would deliver.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import instride
from contained import contained
from drawn_by_commit import WHOLE, commit
from instride import Consumer, ConsumerInterceptor, ConsumerRecords, OffsetAndMetadata, OffsetRange, TopicPartition
from instride._core.events import (
    ApplicationEvent,
    Assigned,
    BackgroundEvent,
    CallCompleted,
    Commit,
    Fetched,
    Lost,
    PartitionFailed,
    Positioned,
)
from instride._core.network.assigned_partitions import BufferedPiece
from instride._core.network.machine import NetworkMachine
from instride._wire import api
from instride.errors import IllegalStateError, OffsetOutOfRangeError
from instride.observers import Observer, Polled
from instride.testing import Recorder
from instride.testing._check import vocabulary
from instride.testing._check.events import read_histories
from instride.testing._recording.observer import Recording
from instride.testing._simulation.chunk import SimulatedChunk

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
STRIDE = 1 if WHOLE else 29
OURS = str(Path(instride.__file__).parent)


class Network:
    """Stands for the network thread; it takes events when the test says so."""

    def __init__(self, events: deque[ApplicationEvent]) -> None:
        self.events = events
        self.begun = False
        self.alive = True
        self.is_current = False
        self.number = 0

    def start(self) -> None:
        self.begun = True

    def wake(self) -> None: ...

    def future(self, call: int) -> Future[None]:
        return Future()


class Scene:
    """One recorded member, "a", that the group has assigned t-0, which begins at 0; or, by hand, nothing yet."""

    def __init__(
        self, path: Path, *, by_hand: bool = False, holes: bool = False, group_id: str | None = "g", **settings: Any
    ) -> None:
        self.recorder = Recorder(path, reset="earliest", holes=holes)
        self.consumer = Consumer(bootstrap_servers="127.0.0.1:1", group_id=group_id, **settings)
        driver = self.consumer._driver
        self.network = Network(driver._thread.events)
        self.responses: deque[tuple[int, api.Response]] = deque()
        self.granted: deque[BackgroundEvent] = deque()
        driver._thread = self.network  # type: ignore[assignment]
        self.member = self.recorder.watch(self.consumer, "a")
        (self.observer,) = self.consumer._observers
        if not by_hand:
            self.consumer.subscribe(["t"])
            self.up(Assigned(generation=1, partitions={P: 1}))
            self.looked_up(None)
            self.up(Positioned(partition=P, epoch=1, seek_number=0, offset=0))
            assert len(self.consumer.poll(timeout=0)) == 0

    def up(self, *events: BackgroundEvent) -> None:
        for each in events:
            self.observer.on_background_event(each, 0.0)
        self.consumer._driver._mailbox.queue.extend(events)

    def requests(self, request: api.Request, response: api.Response) -> None:
        self.network.number += 1
        self.observer.on_request("a connection", self.network.number, request, 0.0)
        self.responses.append((self.network.number, response))

    def answer(self) -> None:
        while self.responses:
            self.observer.on_response(*self.responses.popleft(), 0.0)
        while self.granted:
            self.up(self.granted.popleft())

    def looked_up(self, offset: int | None) -> None:
        found = api.CommittedOffset(offset=-1 if offset is None else offset)
        where = (P.topic, P.partition)
        request = api.OffsetFetch(group_id="g", partitions=(where,))
        self.requests(request, api.OffsetFetchResponse(offsets={where: found}))
        self.answer()

    def takes(self, *, answers: bool = True) -> None:
        """The network thread takes what is there; it grants each commit. answers: now, else with the next that are."""
        while self.network.events:
            event = self.network.events.popleft()
            self.observer.on_application_event(event, 0.0)
            if isinstance(event, Commit):
                offsets = {
                    (tp.topic, tp.partition): api.OffsetToCommit(offset=each.offset, leader_epoch=each.leader_epoch)
                    for tp, each in event.entries.items()
                }
                request = api.OffsetCommit(group_id="g", generation=1, member_id="m", offsets=offsets)
                self.requests(request, api.OffsetCommitResponse(errors=dict.fromkeys(offsets, 0)))
                self.granted.append(CallCompleted(call=event.call, committed=dict.fromkeys(event.entries)))
        if answers:
            self.answer()

    def fetched(self, start: int, end: int) -> None:
        owned = self.consumer._application._state.lists.owned[P]
        chunk = SimulatedChunk(topic="t", partition=0, first_offset=start, next_offset=end)
        fence = (owned.epoch, owned.fetch_number)
        self.up(Fetched(partition=P, epoch=fence[0], fetch_number=fence[1], start=start, chunk=chunk, next_offset=end))

    def poll(self) -> list[int]:
        records = list(self.consumer.poll(timeout=0))
        for each in records:
            self.member.done(each)
        return [each.offset for each in records]

    def wrong(self) -> list[str]:
        return [str(each) for each in self.recorder.check()]

    def told(self, *kinds: str) -> list[tuple[str, tuple[Any, ...]]]:
        self.recorder.close()
        events = [each.event for each in read_histories([self.recorder.path]) if each.event.who == "a"]
        return [(each.what, each.detail) for each in events if each.what in kinds]


Scenes = Callable[..., Scene]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Scenes]:
    """A new scene, of a file of its own."""
    with ExitStack() as stack:

        def make(**settings: Any) -> Scene:
            made = Scene(tmp_path / "history.jsonl", **settings)
            stack.callback(made.recorder.close)
            return made

        yield make


# -- polls that an exception leaves


class Interrupts(ConsumerInterceptor):
    """Ctrl-C comes in the middle of it, at that poll with records."""

    def __init__(self, at: int) -> None:
        self.left = at

    def on_consume(self, records: ConsumerRecords) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("holes", [False, True])
def test_a_poll_that_an_exception_leaves_at_its_end_is_not_told(begin: Scenes, holes: bool) -> None:
    """The next one returns the same records: they were told twice, and S1 and S3 reported the consumer."""
    scene = begin(interceptors=[Interrupts(1)], holes=holes)
    scene.fetched(0, 3)
    with pytest.raises(KeyboardInterrupt):
        scene.consumer.poll(timeout=0)
    assert scene.poll() == [0, 1, 2]
    scene.consumer.commit_async()
    scene.takes()
    assert scene.wrong() == []
    polls = [detail[0] for _, detail in scene.told("poll") if detail[0]]
    assert polls == [((P, 1, 0, 0, 2, 0),)]


def test_holes_of_a_poll_that_an_exception_leaves_are_told_with_the_next(begin: Scenes) -> None:
    scene = begin(interceptors=[Interrupts(2)], holes=True)
    scene.fetched(0, 2)
    assert scene.poll() == [0, 1]
    chunk = SimulatedChunk(topic="t", partition=0, first_offset=2, next_offset=9, offsets=(4, 5, 8))
    scene.up(Fetched(partition=P, epoch=1, fetch_number=0, start=2, chunk=chunk, next_offset=9))
    with pytest.raises(KeyboardInterrupt):
        scene.consumer.poll(timeout=0)
    assert scene.poll() == [4, 5, 8]
    assert scene.wrong() == []
    assert [detail for _, detail in scene.told("hole")] == [(P, 2, 3), (P, 6, 7)]


def test_holes_that_auto_commit_passes_are_told_before_it_is_sent(
    begin: Scenes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were told with the next poll, behind the commit that speaks of them: S4 reported the consumer."""
    scene = begin(holes=True, enable_auto_commit=True)
    chunk = SimulatedChunk(topic="t", partition=0, first_offset=0, next_offset=5, offsets=(0, 1, 2))
    scene.up(Fetched(partition=P, epoch=1, fetch_number=0, start=0, chunk=chunk, next_offset=5))
    assert scene.poll() == [0, 1, 2]
    scene.consumer._application._state.next_auto_commit = 0.0
    monkeypatch.setattr(scene.network, "wake", scene.takes)
    assert scene.poll() == []
    assert scene.wrong() == []
    assert scene.told("hole", "sends commit")[:2] == [("hole", (P, 3, 4)), ("sends commit", (2, ((P, 5, 0),)))]


def test_holes_that_a_users_own_number_passes_are_none(begin: Scenes) -> None:
    scene = begin(holes=True)
    scene.fetched(0, 5)
    assert scene.poll() == [0, 1, 2, 3, 4]
    scene.consumer.commit_async({P: 9})
    scene.takes()
    assert scene.told("hole") == []


@pytest.mark.parametrize("how", ["assigned anew", "sought"])
def test_of_each_partition_only_the_newest_place_is_kept(begin: Scenes, how: str) -> None:
    """With each assignment and each seek the recorder needed more memory, for ever."""
    scene = begin(holes=True)
    for turn in range(1, 5):
        if how == "sought":
            scene.consumer.seek(P, 0)
            scene.takes()
        elif turn > 1:
            scene.up(Lost(partitions={P: turn - 1}), Assigned(generation=turn, partitions={P: turn}))
            scene.looked_up(None)
            scene.up(Positioned(partition=P, epoch=turn, seek_number=0, offset=0))
            assert [scene.poll() for _ in range(2)] == [[], []]
        scene.fetched(0, 3)
        assert scene.poll() == [0, 1, 2]
    assert scene.poll() == []
    assert isinstance(scene.observer, Recording)
    assert [due for *_, due in scene.observer._next.values()] == [3]
    assert scene.wrong() == []


def traced(verb: Callable[[], object], at: int | None) -> int:
    """Raises KeyboardInterrupt at that line of the consumer's code. How many it ran."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        name = frame.f_code.co_filename
        is_ours = name.startswith(OURS) and not ("testing" in name or _is_of_the_recorder(frame))
        if not is_ours or _is_over(frame):
            return trace if event == "call" and is_ours else None
        if event == "line":
            count += 1
            if count - 1 == at:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        contained(verb)
    finally:
        sys.settrace(before)
    return count


def _is_of_the_recorder(frame: FrameType) -> bool:
    """It writes by a function of the core."""
    return frame.f_back is not None and "testing" in frame.f_back.f_code.co_filename


def _is_over(frame: FrameType) -> bool:
    """The poll is completed and returns: Python runs no handler between these two steps."""
    return frame.f_code.co_name == "poll" and getattr(frame.f_locals.get("result"), "aside", 1) is None


def test_a_poll_that_is_left_at_any_of_its_lines_is_told_rightly(begin: Scenes) -> None:
    def scene(at: int | None) -> int:
        made = begin()
        made.fetched(0, 3)
        count, returned = 0, list[ConsumerRecords[Any, Any]]()
        with suppress(KeyboardInterrupt):
            count = traced(lambda: returned.append(made.consumer.poll(timeout=0)), at)
        for record in (each for records in returned for each in records):
            made.member.done(record)
        assert at is None or made.poll() == [0, 1, 2], at
        made.consumer.commit_async()
        made.takes()
        assert made.wrong() == [], at
        made.recorder.close()
        return count

    lines = scene(None)
    assert lines > STRIDE
    for at in range(int(commit(), 16) % STRIDE, lines, STRIDE):
        scene(at)


class Held(Observer):
    """Looks at a file while a poll is about to return."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: list[str] = []

    def on_poll(self, polled: Polled) -> None:
        self.seen.append(self.path.read_text())
        assert not polled.completed()


def test_a_poll_is_in_the_file_with_whatever_anybody_tells_next(begin: Scenes) -> None:
    scene = begin()
    held = Held(scene.recorder.path)
    scene.consumer._observers.append(held)
    scene.fetched(0, 3)
    scene.consumer.poll(timeout=0)
    scene.recorder.produced(P, 3)
    *_, poll, produced = [each.event for each in read_histories([scene.recorder.path])]
    assert (poll.what, produced.what) == ("poll", "produced")
    assert poll.detail[0] == ((P, 1, 0, 0, 2, 0),)
    assert poll.time <= produced.time
    assert poll.what not in held.seen[-1]


# -- seeks


def test_a_seek_of_what_was_assigned_by_hand_a_moment_before_is_told(begin: Scenes) -> None:
    """The network thread tells of the assignment, when it takes it: the seek came first, and the checker dropped it."""
    scene = begin(by_hand=True)
    scene.consumer.assign([P])
    scene.consumer.seek(P, 7)
    scene.consumer.seek(P, 3)
    scene.takes()
    scene.fetched(3, 6)
    assert scene.poll() == [3, 4, 5]
    scene.consumer.seek(P, 1)
    scene.takes()
    scene.fetched(1, 6)
    assert scene.poll() == [1, 2, 3, 4, 5]
    assert scene.wrong() == []
    told = [("assigned", (None, ((P, 1),))), ("seek", (P,)), ("seek", (P,))]
    assert scene.told("assigned", "seek") == told


def test_a_place_without_a_group_is_a_reset_where_nothing_is_committed(begin: Scenes) -> None:
    """No coordinator is asked there: S9 reported that no good response had come."""
    scene = begin(by_hand=True, group_id=None)
    scene.consumer.assign([P])
    scene.takes()
    epoch = scene.consumer._application._state.lists.owned[P].epoch
    scene.up(Positioned(partition=P, epoch=epoch, seek_number=0, offset=0))
    scene.fetched(0, 3)
    assert scene.poll() == [0, 1, 2]
    scene.consumer.assign([P, Q])
    scene.takes()
    assert scene.wrong() == []
    assert scene.told("looked up") == [("looked up", (each, None, 0)) for each in (P, Q)]


def test_a_failure_that_a_seek_has_overtaken_is_not_told(begin: Scenes) -> None:
    """The application drops it; the checker took it for a reset, after which nothing may come again."""
    scene = begin()
    scene.fetched(0, 6)
    assert scene.poll() == [0, 1, 2, 3, 4, 5]
    scene.consumer.seek(P, 3)
    scene.up(PartitionFailed(partition=P, epoch=1, fetch_number=0, error=OffsetOutOfRangeError("6 is gone")))
    scene.fetched(3, 6)
    assert scene.poll() == [3, 4, 5]
    assert scene.wrong() == []


def test_a_failure_of_where_it_reads_is_told(begin: Scenes) -> None:
    scene = begin()
    scene.up(PartitionFailed(partition=P, epoch=1, fetch_number=0, error=OffsetOutOfRangeError("0 is gone")))
    assert scene.told("out of range") == [("out of range", (P,))]


def test_a_place_that_a_seek_has_overtaken_is_not_told(begin: Scenes) -> None:
    scene = begin()
    scene.consumer.seek(P, 3)
    scene.up(Positioned(partition=P, epoch=1, seek_number=0, offset=0))
    scene.fetched(3, 6)
    assert scene.poll() == [3, 4, 5]
    assert scene.wrong() == []


def test_a_network_thread_that_died_before_a_close_is_told(begin: Scenes) -> None:
    scene = begin()
    scene.consumer._driver._mailbox.network_died(LookupError("a bug"))
    scene.network.alive = False
    scene.consumer.close()
    assert [each.law for each in scene.recorder.check()] == ["nothing dies"]


# -- commits of what is let go of


@pytest.mark.parametrize("takes", ["before", "after"])
def test_a_commit_of_what_is_unassigned_by_hand_at_once_is_right(begin: Scenes, takes: str) -> None:
    """It is sent all the same, and S7 reported that: nobody waits for what is assigned by hand."""
    scene = begin(by_hand=True)
    scene.consumer.assign([P])
    scene.consumer.seek(P, 0)
    scene.takes()
    scene.fetched(0, 6)
    assert scene.poll() == [0, 1, 2, 3, 4, 5]
    scene.consumer.commit_async({P: 6})
    commit = scene.network.events.pop()
    scene.consumer.assign([Q])
    scene.network.events.insert(0 if takes == "before" else len(scene.network.events), commit)
    scene.takes(answers=False)
    scene.answer()
    assert scene.wrong() == []
    kinds = [each for each, _ in scene.told("sends commit", "revoked", "commit response")]
    assert sorted(kinds) == ["commit response", "revoked", "sends commit"]


def test_a_commit_of_what_is_assigned_by_hand_again_meanwhile_is_right(begin: Scenes) -> None:
    """Its response came in the new assignment, and S6 took the commit for one of the old."""
    scene = begin(by_hand=True)
    scene.consumer.assign([P])
    scene.consumer.seek(P, 0)
    scene.takes()
    scene.fetched(0, 6)
    assert scene.poll() == [0, 1, 2, 3, 4, 5]
    scene.consumer.commit_async({P: 6})
    scene.takes(answers=False)
    for partition in (Q, P):
        scene.consumer.assign([partition])
    scene.takes()
    assert scene.wrong() == []


def test_a_commit_by_hand_that_may_go_back_at_once_is_right(begin: Scenes) -> None:
    """The permission was told before the assignment, which ended it: S6 reported the commit."""
    scene = begin(by_hand=True)
    scene.consumer.assign([P])
    scene.consumer.commit_async({P: 0}, allow_rewind=True)
    scene.takes()
    assert scene.wrong() == []
    assert [each for each, _ in scene.told("allows rewind", "assigned", "sends commit")] == [
        *("allows rewind", "assigned", "sends commit")
    ]


# -- what a user lets go of


def test_what_was_not_begun_is_of_the_present_assignment(begin: Scenes) -> None:
    """It was told of the last one that had returned something: of that the records might come again then."""
    scene = begin()
    scene.fetched(0, 3)
    assert scene.poll() == [0, 1, 2]
    scene.member.not_begun(P, 3)
    scene.up(Lost(partitions={P: 1}), Assigned(generation=2, partitions={P: 2}))
    assert [scene.poll() for _ in range(2)] == [[], []]  # one tells of the loss, the next takes what comes after it
    scene.member.not_begun(P, 0)
    assert scene.told("not begun") == [("not begun", (P, 1, 3)), ("not begun", (P, 2, 0))]


def test_what_was_not_begun_by_hand_is_of_what_the_history_knows(begin: Scenes) -> None:
    """It named an assignment that the network thread had not told: no history, the checker said."""
    scene = begin(by_hand=True)
    scene.consumer.assign([P])
    scene.consumer.seek(P, 0)
    scene.takes()
    scene.fetched(0, 3)
    assert scene.poll() == [0, 1, 2]
    scene.member.not_begun(P, 1)
    for partition in (Q, P):
        scene.consumer.assign([partition])
    scene.member.not_begun(P, 0)
    scene.takes()
    scene.member.not_begun(P, 0)
    assert scene.wrong() == []
    epoch = scene.consumer._application._state.lists.owned[P].epoch
    assert scene.told("not begun") == [("not begun", (P, 1, 1)), ("not begun", (P, epoch, 0))]


# -- commits that go back


@pytest.mark.parametrize("how", ["a number", "an offset with its epoch", "the position"])
def test_a_commit_that_may_go_back_is_told_as_one(begin: Scenes, how: str) -> None:
    scene = begin()
    scene.fetched(0, 6)
    scene.poll()
    scene.consumer.commit_async({P: 6})
    scene.takes()
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = {P: 2}
    if how == "an offset with its epoch":
        offsets = {P: OffsetAndMetadata(offset=2, leader_epoch=0)}
    if how == "the position":
        offsets = None
    scene.consumer.commit_async(offsets, allow_rewind=True)
    scene.takes()
    wanted = 6 if offsets is None else 2
    assert scene.wrong() == []
    assert scene.told("allows rewind") == [("allows rewind", (((P, wanted),),))]


# -- what is long


@pytest.fixture
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "_LONGEST", 10)


class Ranges:
    """A consumer of which a test tells everything itself."""

    def __init__(self) -> None:
        self.observers: list[Observer] = []

    def observe(self, observer: Observer) -> None:
        self.observers.append(observer)

    def poll(self, *ranges: OffsetRange, positions: Mapping[TopicPartition, Any] | None = None) -> None:
        class Chunk:
            def records(self, *, epoch: int, seek_number: int) -> list[OffsetRange]:
                return list(ranges)

        class Delivery:
            chunk, epoch, seek_number = Chunk(), 1, 0

        nothing: frozenset[TopicPartition] = frozenset()
        deliveries: Any = [Delivery()] if ranges else []
        polled = Polled(
            to_be_revoked=nothing,
            lost=nothing,
            paused=nothing,
            positions=lambda: positions or {},
            deliveries=deliveries,
        )
        for each in self.observers:
            each.on_poll(polled)


@pytest.mark.usefixtures("short_stretches")
def test_what_is_longer_than_a_stretch_is_told_in_parts(tmp_path: Path) -> None:
    """A recorder wrote what its own checker refuses: a range of more than a million offsets."""
    consumer, recorder = Ranges(), Recorder(tmp_path / "history.jsonl", reset="earliest", holes=True)
    member = recorder.watch(consumer, "a")
    (observer,) = consumer.observers
    observer.on_background_event(Assigned(generation=1, partitions={P: 1}), 0.0)
    member.note("looked up", P, None, 0)
    observer.on_background_event(Positioned(partition=P, epoch=1, seek_number=0, offset=0), 0.0)
    for start, end in ((0, 25), (50, 61)):
        made = OffsetRange(topic="t", partition=0, start=start, end=end, epoch=1, seek_number=0, leader_epoch=0)
        consumer.poll(made)
        member.done(made)
    consumer.poll(positions={P: (1, 0, 95)})
    assert [str(each) for each in recorder.check()] == []
    recorder.close()
    events = [each.event for each in read_histories([recorder.path])]
    holes = [each.detail[1:] for each in events if each.what == "hole"]
    assert holes == [(25, 34), (35, 44), (45, 49), (61, 70), (71, 80), (81, 90), (91, 94)]


@pytest.mark.usefixtures("short_stretches")
def test_a_peers_long_turns_are_told_in_parts(tmp_path: Path) -> None:
    with Recorder(tmp_path / "history.jsonl", reset="earliest") as recorder:
        peer = recorder.peer("java", finishes="told")
        peer.turn({P: range(25)}, [P])
        peer.done(P, 0, 24)
        assert recorder.check() == []


# -- samples


class Buffering:
    """What a partition has in memory, as the network side counts it."""

    def __init__(self, *pieces: int) -> None:
        self.nbytes = sum(pieces)
        self.pieces = [BufferedPiece(records=1, nbytes=each) for each in pieces]


@pytest.mark.parametrize(
    ("pieces", "wrong"),
    [
        ((30_000_000,), False),
        ((60_000, 30_000_000), False),
        ((4_000_000,) * 5, True),
        ((12_000_000, 30_000_000), True),
    ],
)
def test_one_batch_may_pass_alone_however_large(
    begin: Scenes, monkeypatch: pytest.MonkeyPatch, pieces: tuple[int, ...], wrong: bool
) -> None:
    """It is there besides what the limit is of; nothing else is."""
    scene = begin(fetch_buffer_bytes=10_000_000, max_partition_fetch_bytes=1_000_000)
    monkeypatch.setattr(NetworkMachine, "_assigned_partitions", lambda _: {P: Buffering(*pieces)})
    scene.member.sample()
    assert ["R1, buffers keep their caps" in each for each in scene.wrong()] == [True] * wrong


# -- names


def test_the_name_of_a_member_that_was_refused_is_free(tmp_path: Path) -> None:
    class Used:
        def observe(self, observer: Observer) -> None:
            raise IllegalStateError("observe a consumer before its first use")

    with Recorder(tmp_path / "history.jsonl") as recorder:
        with pytest.raises(IllegalStateError):
            recorder.watch(Used(), "a")
        recorder.watch(Ranges(), "a")
