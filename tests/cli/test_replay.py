"""`instride dead-letters replay` sends each letter once, also those that are written while it runs, and others beside
one that is refused. Its reader has of the settings what concerns a reader."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import fields
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from typer.testing import CliRunner, Result

from instride import ConsumerConfig, ConsumerRecord, OffsetAndMetadata, PartitionInfo, TopicPartition
from instride._cli import dead_letters
from instride._processing.commit_metadata import Remembered, encode
from instride._processing.dead_letters import dead_letter
from instride.errors import KafkaTimeoutError, OffsetMetadataTooLargeError, RecordTooLargeError

Letter = ConsumerRecord[Any, Any]
PARTITIONS = [TopicPartition("dlq", number) for number in range(2)]


class Topic:
    """Two partitions of letters, and the offsets of the group that replays them. comes: letters that are written as
    soon as a reader knows where the topic ends. at_once: records of a partition in one poll. most_metadata: characters
    that the broker takes. sent: what was acknowledged, by the offsets of its records. refused: those that are not.
    too_large_together: those that are not at first, since their batch is too large. interrupts: the one whose response
    does not come before an interrupt. interrupt: what comes then, if not a Ctrl-C. silent: the one whose response does
    not come. slow: whose response comes after so many seconds of the clock, which goes on with each wait. commits: how
    many the broker takes before it refuses."""

    def __init__(self, *counts: int) -> None:
        self.logs: dict[TopicPartition, list[Letter]] = {each: [] for each in PARTITIONS}
        self.group: dict[TopicPartition, OffsetAndMetadata] = {}
        self.comes: list[TopicPartition] = []
        self.at_once = 500
        self.most_metadata = 4096
        self.topic_id: UUID | None = UUID(int=1)
        self.sent: list[str] = []
        self.refused: set[str] = set()
        self.too_large_together: set[str] = set()
        self.interrupts = self.silent = ""
        self.interrupt: Callable[[], object] = _press_ctrl_c
        self.slow: dict[str, float] = {}
        self.clock: Clock | None = None
        self.commits = 1000
        for partition, count in zip(PARTITIONS, counts, strict=True):
            for _ in range(count):
                self.write(partition)

    def write(self, partition: TopicPartition) -> None:
        log = self.logs[partition]
        value = b"%d:%d" % (partition.partition, len(log))
        record: Letter = ConsumerRecord("orders", partition.partition, len(log), key=b"k", value=value)
        letter = dead_letter("dlq", record, ValueError("no such order"), 1, "billing")
        log.append(ConsumerRecord(*partition, len(log), key=letter.key, value=letter.value, headers=letter.headers))


class Offsets(dict[TopicPartition, OffsetAndMetadata]):
    """A group's, with each commit."""

    def __init__(self, before: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        super().__init__(before)
        self.commits: list[dict[TopicPartition, OffsetAndMetadata]] = []

    def update(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:  # type: ignore[override]
        super().update(offsets)
        self.commits.append(dict(offsets))


class Reader:
    """A consumer of it."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._positions: dict[TopicPartition, int] = {}

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None: ...

    def partitions_for(self, topic: str, **_: Any) -> list[PartitionInfo]:
        return [
            PartitionInfo(topic=topic, partition=each.partition, leader=None, topic_id=self._topic.topic_id)
            for each in PARTITIONS
        ]

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._positions = dict.fromkeys(partitions, 0)

    def assignment(self) -> set[TopicPartition]:
        return set(self._positions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        self._positions.update((each, len(self._topic.logs[each])) for each in partitions)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        self._positions.update(dict.fromkeys(partitions, 0))
        while self._topic.comes:
            self._topic.write(self._topic.comes.pop())

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._positions[partition] = offset

    def committed(self, *partitions: TopicPartition, **_: Any) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return {each: self._topic.group.get(each) for each in partitions}

    def position(self, partition: TopicPartition, **_: Any) -> int:
        return self._positions[partition]

    def poll(self, **_: Any) -> list[Letter]:
        found: list[Letter] = []
        for partition, position in self._positions.items():
            some = self._topic.logs[partition][position : position + self._topic.at_once]
            self._positions[partition] += len(some)
            found += some
        return found

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], **_: Any) -> None:
        if self._topic.commits <= 0:
            raise KafkaTimeoutError("no coordinator")
        self._topic.commits -= 1
        if any(len(each.metadata) > self._topic.most_metadata for each in offsets.values()):
            raise OffsetMetadataTooLargeError("it is too large")
        self._topic.group.update(offsets)


class Clock:
    """A wait takes no time but this one's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.due: list[tuple[float, Future[None]]] = []
        monkeypatch.setattr(dead_letters, "time", SimpleNamespace(monotonic=lambda: self.now))

    def advance(self, until: float) -> None:
        """To the next response, if one comes before that."""
        coming = [each for each in sorted(self.due, key=itemgetter(0)) if not each[1].done()]
        self.now = min(until, coming[0][0] if coming else until)
        for at, response in coming:
            if at <= self.now:
                response.set_result(None)


class Slow(Future[None]):
    """Its response comes while somebody waits for it, or for another one."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def exception(self, timeout: float | None = None) -> BaseException | None:
        until = self._clock.now + (timeout or 0.0)
        while not self.done() and self._clock.now < until:
            self._clock.advance(until)
        return super().exception(0)


def _press_ctrl_c() -> None:
    raise KeyboardInterrupt


class Interrupted(Future[None]):
    def __init__(self, interrupt: Callable[[], object]) -> None:
        super().__init__()
        self._interrupt = interrupt

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._interrupt()
        return None


class Produce:
    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def __call__(self, record: Any) -> Future[None]:
        where = record.value.decode()
        if where in ("raises", ""):
            raise ValueError(where and "it does not even take it")
        interrupts = where == self._topic.interrupts
        acknowledged: Future[None] = Interrupted(self._topic.interrupt) if interrupts else Future()
        if where in self._topic.slow:
            assert self._topic.clock is not None
            acknowledged = Slow(self._topic.clock)
            self._topic.clock.due.append((self._topic.slow[where], acknowledged))
            return acknowledged
        if where in self._topic.too_large_together:
            self._topic.too_large_together.remove(where)
            acknowledged.set_exception(RecordTooLargeError("it is too large"))
        elif where in (self._topic.interrupts, self._topic.silent):
            pass
        elif where in self._topic.refused:
            acknowledged.set_exception(ConnectionError("orders\x1b: no such topic"))
        else:
            self._topic.sent.append(where)
            acknowledged.set_result(None)
        return acknowledged

    def close(self) -> None: ...


def command(topic: Topic, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    monkeypatch.setattr(dead_letters, "Consumer", lambda **_: Reader(topic))
    monkeypatch.setattr(dead_letters, "ConfluentProduce", lambda _: Produce(topic))
    first = [] if topic.group or "--at" in arguments else ["--from-beginning"]
    return CliRunner().invoke(dead_letters.app, ["replay", "dlq", "--bootstrap-servers", "b:1", *first, *arguments])


def replay(topic: Topic, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[str]:
    done = command(topic, monkeypatch, *arguments)
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def test_letters_that_are_written_during_a_replay_are_sent_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(2, 0)
    topic.comes = PARTITIONS.copy()
    assert replay(topic, monkeypatch) == ["0:0  sent", "0:1  sent"]
    assert replay(topic, monkeypatch) == ["0:2  sent", "1:0  sent"]
    assert replay(topic, monkeypatch) == []


@pytest.mark.parametrize("at_once", [1, 2, 500])
def test_beside_a_refused_letter_the_others_are_sent_once(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    topic = Topic(6, 2)
    topic.at_once, topic.refused = at_once, {"0:2", "0:4"}
    done = command(topic, monkeypatch)
    assert done.exit_code == 1
    assert sorted(topic.sent) == ["0:0", "0:1", "0:3", "0:5", "1:0", "1:1"]
    assert sorted(done.stdout.splitlines()) == [f"{each}  sent" for each in sorted(topic.sent)]
    assert done.stderr.splitlines() == [
        "0:2  refused: orders\\x1b: no such topic",
        "0:4  refused: orders\\x1b: no such topic",
        "instride dead-letters: 2 letters were refused. The first is dlq-0@2: orders\\x1b: no such topic. The next "
        "replay tries again; with --skip 0:2 it leaves this one out",
    ]
    assert {each: found.offset for each, found in topic.group.items()} == {PARTITIONS[0]: 2, PARTITIONS[1]: 2}
    for _ in range(2):
        assert command(topic, monkeypatch).exit_code == 1
    assert len(topic.sent) == 6, "none is sent again"
    topic.refused = set()
    assert replay(topic, monkeypatch) == ["0:2  sent", "0:4  sent"]
    assert replay(topic, monkeypatch) == []


@pytest.mark.parametrize("at_once", [1, 2, 500])
def test_a_refused_letter_is_left_out_for_ever_when_that_is_said(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    topic = Topic(6, 0)
    topic.at_once, topic.refused = at_once, {"0:1", "0:3"}
    assert command(topic, monkeypatch).exit_code == 1
    done = command(topic, monkeypatch, "--skip", "0:1")
    assert done.exit_code == 1
    assert "0:1  left out: --skip" in done.stderr
    assert "1 letter was refused. The first is dlq-0@3" in done.stderr
    assert replay(topic, monkeypatch, "--skip", "0:3", "--skip", "0:1") == []
    topic.refused = set()
    assert replay(topic, monkeypatch) == []
    assert topic.sent == ["0:0", "0:2", "0:4", "0:5"]
    assert topic.group[PARTITIONS[0]] == all_sent(6)


def test_letters_are_not_refused_for_the_size_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker measures batches: each letter of one that is too large is sent once more, by itself."""
    topic = Topic(4, 0)
    topic.refused, topic.too_large_together = {"0:1"}, {"0:0", "0:1", "0:2"}
    done = command(topic, monkeypatch)
    assert done.exit_code == 1
    assert "1 letter was refused. The first is dlq-0@1" in done.stderr
    assert sorted(topic.sent) == ["0:0", "0:2", "0:3"]


@pytest.mark.parametrize(("value", "why"), [(b"raises", "it does not even take it"), (b"", "ValueError")])
def test_a_letter_that_the_producer_does_not_even_take_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: bytes, why: str
) -> None:
    topic = Topic(2, 0)
    letter = topic.logs[PARTITIONS[0]][0]
    topic.logs[PARTITIONS[0]][0] = ConsumerRecord(
        letter.topic, letter.partition, letter.offset, value=value, headers=letter.headers
    )
    done = command(topic, monkeypatch)
    assert done.exit_code == 1
    assert f"dlq-0@0: {why}. The" in done.stderr
    assert topic.sent == ["0:1"]


def test_letters_of_a_topic_made_again_are_sent_whatever_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(3, 0)
    topic.refused = {"0:0"}
    assert command(topic, monkeypatch).exit_code == 1
    topic.topic_id, topic.refused = UUID(int=2), set()
    assert replay(topic, monkeypatch, "--from-beginning") == ["0:0  sent", "0:1  sent", "0:2  sent"]


def test_a_replay_ends_early_where_too_many_letters_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(400, 0)
    topic.at_once, topic.refused = 50, {f"0:{number}" for number in range(400)} - {"0:7"}
    done = command(topic, monkeypatch)
    assert done.exit_code == 1
    assert "149 letters were refused, and the replay ended early. The first is dlq-0@0" in done.stderr
    assert command(topic, monkeypatch).exit_code == 1
    assert topic.sent == ["0:7"]


def test_a_replay_ends_early_where_a_commit_cannot_remember_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(6, 0)
    topic.at_once, topic.refused, topic.most_metadata = 3, {"0:1"}, 0
    done = command(topic, monkeypatch)
    assert done.exit_code == 1
    assert "1 letter was refused, and the replay ended early. The first is dlq-0@1" in done.stderr
    assert "others are sent again too" in done.stderr
    assert topic.sent == ["0:0", "0:2"]
    assert topic.group[PARTITIONS[0]] == OffsetAndMetadata(offset=1)


def test_a_single_letter_that_is_refused_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(3, 0)
    topic.refused = {"0:1"}
    done = command(topic, monkeypatch, "--at", "0:1", "--at", "0:2")
    assert done.exit_code == 1
    assert done.stdout.splitlines() == ["0:2  sent"]
    assert "1 letter was refused. The first is dlq-0@1: orders\\x1b: no such topic\n" in done.stderr
    assert topic.group == {}


@pytest.mark.parametrize(
    "arguments", [["--at", "0:1", "--skip", "0:2"], ["--at", "0:1", "--from-beginning"], ["--skip", "0"]]
)
def test_a_skip_that_means_nothing_is_refused(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    topic = Topic(3, 0)
    assert command(topic, monkeypatch, *arguments).exit_code == 2
    assert topic.sent == []


# -- whatever ends it


def test_what_was_sent_before_a_pipe_was_closed_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """`replay ... | head -1`: the second line finds nobody who reads it."""
    topic = Topic(5, 0)
    topic.refused = {"0:1"}
    with monkeypatch.context() as patch:

        def echo(text: str, **_: Any) -> None:
            raise BrokenPipeError(text)

        patch.setattr("instride._cli.dead_letters.typer.echo", echo)
        assert command(topic, monkeypatch).exit_code == 1
    topic.refused = set()
    assert replay(topic, monkeypatch) == ["0:1  sent"]
    assert topic.sent == ["0:0", "0:2", "0:3", "0:4", "0:1"]


def test_what_was_acknowledged_before_an_interrupt_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(4, 0)
    topic.interrupts = "0:2"
    assert command(topic, monkeypatch).exit_code != 0
    assert topic.sent == ["0:0", "0:1", "0:3"]
    topic.interrupts = ""
    assert replay(topic, monkeypatch) == ["0:2  sent"]


@contextmanager
def default_action(number: signal.Signals) -> Iterator[None]:
    before = signal.signal(number, signal.SIG_DFL)
    try:
        yield
        assert signal.getsignal(number) is signal.SIG_DFL, "put back"
    finally:
        signal.signal(number, before)


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("second", SIGNALS)
@pytest.mark.parametrize("number", SIGNALS[1:])
def test_what_was_acknowledged_before_a_signal_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, second: signal.Signals
) -> None:
    """A container stops, a terminal is closed. A second one (of an init, or a Ctrl-C) does not end the commit."""
    topic = Topic(4, 0)
    topic.interrupts = "0:2"

    def comes() -> None:
        assert signal.getsignal(number) is not signal.SIG_DFL, "it would end Python"
        signal.raise_signal(number)

    topic.interrupt = comes

    class Group(dict[TopicPartition, OffsetAndMetadata]):
        def update(self, *offsets: Any) -> None:
            if topic.sent:
                signal.raise_signal(second)
            super().update(*offsets)

    topic.group = Group()
    with default_action(signal.SIGTERM), default_action(signal.SIGHUP):
        done = command(topic, monkeypatch)
    assert done.exit_code == 128 + number
    assert done.stdout.splitlines() == ["0:0  sent", "0:1  sent", "0:3  sent"]
    topic.interrupts, topic.group = "", dict(topic.group)
    assert replay(topic, monkeypatch) == ["0:2  sent"]


@pytest.mark.parametrize("second", SIGNALS)
def test_a_second_signal_does_not_cut_off_the_commit_after_a_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, second: signal.Signals
) -> None:
    topic = Topic(4, 0)
    topic.interrupts = "0:2"

    class Group(dict[TopicPartition, OffsetAndMetadata]):
        def update(self, *offsets: Any) -> None:
            if topic.sent:
                signal.raise_signal(second)
            super().update(*offsets)

    topic.group = Group()
    with default_action(signal.SIGTERM), default_action(signal.SIGHUP):
        assert command(topic, monkeypatch).exit_code != 0
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "put back"
    topic.interrupts, topic.group = "", dict(topic.group)
    assert replay(topic, monkeypatch) == ["0:2  sent"]


def test_a_replay_whose_end_a_finalizer_swallowed_ends_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    topic, swallowed = Topic(4, 0), list[Any]()
    topic.interrupts = "0:2"

    class Thing:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    def comes() -> None:
        Thing()
        assert [each.exc_type for each in swallowed] == [SystemExit]
        signal.raise_signal(signal.SIGTERM)

    topic.interrupt = comes
    monkeypatch.setattr("sys.unraisablehook", swallowed.append)
    with default_action(signal.SIGTERM):
        assert command(topic, monkeypatch).exit_code == 128 + signal.SIGTERM


def test_a_signal_that_is_ignored_stays_so_during_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """By nohup, say."""
    topic = Topic(4, 0)
    topic.interrupts = "0:2"
    topic.interrupt = lambda: signal.raise_signal(signal.SIGHUP)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert command(topic, monkeypatch).exit_code == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_replay_in_another_thread_leaves_signals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    topic, lines = Topic(1, 0), list[str]()
    with default_action(signal.SIGTERM):
        thread = threading.Thread(target=lambda: lines.extend(replay(topic, monkeypatch)))
        thread.start()
        thread.join()
    assert lines == ["0:0  sent"]


def test_a_leader_that_does_not_respond_ends_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(4, 0)
    topic.silent = "0:2"
    done = command(topic, monkeypatch, "--timeout", "0.1")
    assert done.exit_code == 1
    assert done.stderr == "instride dead-letters: not acknowledged in 0.1 s (--timeout): 1 record (0:2)\n"
    assert topic.sent == ["0:0", "0:1", "0:3"]
    assert done.stdout.splitlines() == ["0:0  sent", "0:1  sent", "0:3  sent"], "what is over is told all the same"
    topic.silent = ""
    assert replay(topic, monkeypatch) == ["0:2  sent"]


def test_what_was_sent_is_told_though_its_commit_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(2, 0)
    topic.commits = 1  # that of the beginning
    done = command(topic, monkeypatch)
    assert done.exit_code == 1
    assert done.stdout.splitlines() == ["0:0  sent", "0:1  sent"], "they will be sent again, and it is known that"
    assert done.stderr == "instride dead-letters: b:1 did not respond in 15 s (--timeout): no coordinator\n"


def test_a_commit_that_fails_hides_neither_the_cause_nor_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(3, 0)
    topic.silent, topic.commits = "0:1", 1
    done = command(topic, monkeypatch, "--timeout", "0.1")
    assert done.exit_code == 1
    assert done.stdout.splitlines() == ["0:0  sent", "0:2  sent"]
    assert done.stderr.splitlines() == [
        "instride dead-letters: not acknowledged in 0.1 s (--timeout): 1 record (0:1)",
        "instride dead-letters: b:1 did not respond in 0.1 s (--timeout): no coordinator",
    ]


def test_of_single_letters_too_what_is_over_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(4, 0)
    topic.silent, topic.refused = "0:0", {"0:1"}
    done = command(topic, monkeypatch, "--timeout", "0.1", "--at", "0:0", "--at", "0:1", "--at", "0:2")
    assert done.exit_code == 1
    assert done.stdout.splitlines() == ["0:2  sent"]
    assert done.stderr.splitlines() == [
        "0:1  refused: orders\\x1b: no such topic",
        "instride dead-letters: not acknowledged in 0.1 s (--timeout): 1 record (0:0)",
    ]
    assert topic.group == {}


@pytest.mark.parametrize(("pause", "sent"), [(14.0, 4), (16.0, 0)])
def test_a_replay_waits_for_as_long_as_any_record_is_acknowledged(
    monkeypatch: pytest.MonkeyPatch, pause: float, sent: int
) -> None:
    """One partition has no leader for a while: the others go on, and the record that is waited for comes last."""
    topic = Topic(4, 0)
    topic.clock = Clock(monkeypatch)
    topic.slow = {f"0:{number}": (4 - number) * pause for number in range(4)}
    done = command(topic, monkeypatch)
    assert done.exit_code == (0 if sent else 1)
    assert len(done.stdout.splitlines()) == sent
    assert sent or "not acknowledged in 15 s (--timeout): 4 records (0:0, 0:1, 0:2, ...)" in done.stderr


def test_of_two_replays_at_once_the_one_that_commits_later_says_so_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not put back what the other has committed."""
    topic = Topic(4, 1)
    topic.at_once, topic.interrupts = 2, "0:1"
    theirs = OffsetAndMetadata(offset=4)
    topic.interrupt = lambda: topic.group.update({PARTITIONS[0]: theirs})
    done = command(topic, monkeypatch)
    assert (done.exit_code, topic.group[PARTITIONS[0]]) == (1, theirs)
    assert "0:0  sent" in done.stdout.splitlines(), "what was sent is told"
    assert done.stderr == (
        "instride dead-letters: the group's offsets have changed meanwhile (another replay?), and the same letters "
        "were sent twice perhaps: this one ends\n"
    )
    assert "0:2" not in topic.sent


# -- what the brokers have forgotten


def test_where_no_offset_is_left_nothing_is_sent_unless_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers forget a group's offsets: what an earlier replay sent, or left out, would be sent again unasked."""
    topic = Topic(3, 0)
    topic.refused = {"0:1"}
    assert command(topic, monkeypatch, "--skip", "0:1").exit_code == 0
    assert topic.sent == ["0:0", "0:2"]
    topic.group.clear()
    monkeypatch.setattr(dead_letters, "Consumer", lambda **_: Reader(topic))
    done = CliRunner().invoke(dead_letters.app, ["replay", "dlq", "--bootstrap-servers", "b:1"])
    assert (done.exit_code, topic.sent, topic.group) == (1, ["0:0", "0:2"], {})
    assert "the group instride-replay-dlq has no offset of dlq" in done.stderr
    assert "Say --from-beginning to send all" in done.stderr
    topic.refused = set()
    assert replay(topic, monkeypatch, "--from-beginning") == ["0:0  sent", "0:1  sent", "0:2  sent"]


def all_sent(offset: int, topic_id: int = 1) -> OffsetAndMetadata:
    """What a replay commits that has sent all before, and none beyond."""
    what = Remembered(finished=[(offset, offset)])
    return OffsetAndMetadata(offset=offset, metadata=encode(offset, what, topic_id=UUID(int=topic_id), limit=4_000))


SENT_BEFORE = encode(1, Remembered(finished=[(2, 3)]), topic_id=UUID(int=9), limit=4_000)
"""What a replay of the topic with another id remembers."""


@pytest.mark.parametrize(
    "committed",
    [
        OffsetAndMetadata(offset=17),
        OffsetAndMetadata(offset=1, metadata=SENT_BEFORE),
        all_sent(2, 9),
        all_sent(3, 9),
    ],
)
def test_letters_of_a_topic_made_again_are_not_passed_over_in_silence(
    monkeypatch: pytest.MonkeyPatch, committed: OffsetAndMetadata
) -> None:
    topic = Topic(3, 0)
    topic.group = {PARTITIONS[0]: committed, PARTITIONS[1]: OffsetAndMetadata(offset=0)}
    before = dict(topic.group)
    done = command(topic, monkeypatch)
    assert (done.exit_code, topic.sent, topic.group) == (1, [], before)
    assert done.stderr == (
        "instride dead-letters: what the group instride-replay-dlq has committed of dlq-0 does not fit what is there "
        "now: the topic was made again, or lost its end, or a transaction is still open there (then wait for its end). "
        "Say --from-beginning to send all letters there\n"
    )
    assert replay(topic, monkeypatch, "--from-beginning") == ["0:0  sent", "0:1  sent", "0:2  sent"]
    assert replay(topic, monkeypatch) == []


def test_a_topic_made_again_after_all_letters_were_sent_is_known_by_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(2, 0)
    assert replay(topic, monkeypatch) == ["0:0  sent", "0:1  sent"]
    topic.topic_id = UUID(int=2)
    topic.write(PARTITIONS[0])
    done = command(topic, monkeypatch)
    assert (done.exit_code, topic.sent) == (1, ["0:0", "0:1"])
    assert "has committed of dlq-0 does not fit what is there now: the topic was made again" in done.stderr
    assert replay(topic, monkeypatch, "--from-beginning") == ["0:0  sent", "0:1  sent", "0:2  sent"]


def test_of_a_topic_made_again_no_partitions_offset_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the metadata of a partition say nothing."""
    topic = Topic(3, 2)
    topic.group = {PARTITIONS[0]: all_sent(0, 9), PARTITIONS[1]: OffsetAndMetadata(offset=1)}
    done = command(topic, monkeypatch)
    assert (done.exit_code, topic.sent) == (1, [])
    assert "has committed of dlq-0, dlq-1 does not fit what is there now" in done.stderr
    assert len(replay(topic, monkeypatch, "--from-beginning")) == 5


def test_beyond_the_end_of_a_partition_the_others_offsets_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(3, 2)
    topic.group = {PARTITIONS[0]: OffsetAndMetadata(offset=17), PARTITIONS[1]: OffsetAndMetadata(offset=1)}
    assert replay(topic, monkeypatch, "--from-beginning") == ["0:0  sent", "0:1  sent", "0:2  sent", "1:1  sent"]


def test_the_commits_of_older_versions_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """They name no topic id where nothing is sent beyond the offset."""
    topic = Topic(3, 1)
    remembered = encode(0, Remembered(finished=[(1, 2)]), topic_id=topic.topic_id, limit=4_000)
    topic.group = {
        PARTITIONS[0]: OffsetAndMetadata(offset=0, metadata=remembered),
        PARTITIONS[1]: OffsetAndMetadata(offset=1),
    }
    assert replay(topic, monkeypatch) == ["0:0  sent", "0:2  sent"]
    assert topic.group == {PARTITIONS[0]: all_sent(3), PARTITIONS[1]: all_sent(1)}


def test_an_offset_of_a_topic_made_again_without_letters_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(0, 0)
    topic.group = {PARTITIONS[0]: OffsetAndMetadata(offset=17), PARTITIONS[1]: OffsetAndMetadata(offset=0)}
    assert replay(topic, monkeypatch) == []
    assert topic.group[PARTITIONS[0]] == all_sent(0)


def test_a_partition_that_is_new_is_sent_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(1, 0)
    assert replay(topic, monkeypatch) == ["0:0  sent"]
    del topic.group[PARTITIONS[1]]
    topic.write(PARTITIONS[1])
    assert replay(topic, monkeypatch) == ["1:0  sent"]


def test_a_replay_that_finds_nothing_commits_so_that_nothing_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(4, 0)
    topic.refused = {"0:1"}
    assert command(topic, monkeypatch).exit_code == 1
    before, topic.group = topic.group, Offsets(topic.group)
    topic.refused = set()
    assert replay(topic, monkeypatch) == ["0:1  sent"]
    commits = topic.group.commits
    assert commits[0] == before, "as it was before, also what is remembered beyond it"
    assert replay(topic, monkeypatch) == []
    assert commits[2:] == [{PARTITIONS[0]: all_sent(4), PARTITIONS[1]: all_sent(0)}]


def test_a_topic_that_never_had_a_letter_is_replayed_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(0, 0)
    monkeypatch.setattr(dead_letters, "Consumer", lambda **_: Reader(topic))
    monkeypatch.setattr(dead_letters, "ConfluentProduce", lambda _: Produce(topic))
    done = CliRunner().invoke(dead_letters.app, ["replay", "dlq", "--bootstrap-servers", "b:1"])
    assert (done.exit_code, done.output) == (0, "")
    topic.write(PARTITIONS[0])
    assert replay(topic, monkeypatch) == ["0:0  sent"]


# -- of a consumer's settings, what concerns a reader

KEPT = {
    "bootstrap_servers",
    "client_dns_lookup",
    "client_id",
    "client_rack",
    "connection_setup_timeout",
    "default_api_timeout",
    "fetch_buffer_bytes",
    "fetch_fairness",
    "fetch_max_bytes",
    "fetch_max_wait",
    "fetch_min_bytes",
    "isolation_level",
    "max_decompressed_bytes",
    "max_frame_bytes",
    "max_partition_fetch_bytes",
    "metadata_max_age",
    "prefetch",
    "reconnect_backoff",
    "reconnect_backoff_max",
    "request_timeout",
    "retry_backoff",
    "retry_backoff_max",
}
OURS = {"group_id", "enable_auto_commit", "auto_offset_reset"}


def test_each_setting_is_a_readers_or_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new setting must be put into one of the two lists."""
    names = {each.name for each in fields(ConsumerConfig)}
    given = {name: object() for name in names}
    got: dict[str, Any] = {}

    def consumer(**settings: Any) -> Reader:
        got.update(settings)
        return Reader(Topic(0, 0))

    monkeypatch.setattr(dead_letters, "Consumer", consumer)
    monkeypatch.setattr(dead_letters, "settings_of", lambda *_: given)
    done = CliRunner().invoke(dead_letters.app, ["list", "dlq"])
    assert done.exit_code == 0, done.output
    security = {name for name in names if name.startswith(("ssl_", "sasl_", "security_"))}
    assert {name for name, value in got.items() if value is given[name]} == KEPT | security
    assert got.keys() - KEPT - security == OURS
    assert names - KEPT - security - OURS == dead_letters.NOT_A_READERS


@pytest.mark.parametrize(
    "verb", [["list", "dlq"], ["replay", "dlq", "--from-beginning"], ["replay", "dlq", "--at", "0:0"]]
)
def test_the_settings_of_a_static_member_with_deserializers_suit_a_reader(
    monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:
    settings = {"bootstrap_servers": "b:1", "group_id": "billing", "group_instance_id": "billing-0"}
    more = {"value_deserializer": int, "interceptors": [object()], "session_timeout": 400.0}
    topic = Topic(1, 0)

    def consumer(**given: Any) -> Reader:
        config = ConsumerConfig(**given)
        assert (config.group_instance_id, config.value_deserializer, config.interceptors) == (None, None, ())
        return Reader(topic)

    monkeypatch.setattr(dead_letters, "Consumer", consumer)
    monkeypatch.setattr(dead_letters, "ConfluentProduce", lambda _: Produce(topic))
    monkeypatch.setattr(dead_letters, "settings_of", lambda *_: {**settings, **more})
    done = CliRunner().invoke(dead_letters.app, verb)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("verb", [["list", "dlq"], ["show", "dlq", "0:0"], ["replay", "dlq"]])
def test_settings_that_are_not_found_are_told_in_a_line(verb: list[str]) -> None:
    done = CliRunner().invoke(dead_letters.app, [*verb, "--settings", "nosuch:x"])
    assert done.exit_code == 1
    assert done.stderr.startswith("instride dead-letters: 'nosuch:x': there is no module 'nosuch'")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("1 / 0", "'theirs:settings': the module 'theirs' was not imported"),
        ("def settings(): 1 / 0", "--settings theirs:settings: the function raised an error"),
    ],
)
def test_settings_whose_code_raises_are_told_with_their_place(
    text: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("theirs.py").write_text(text)
    done = CliRunner().invoke(dead_letters.app, ["list", "dlq", "--settings", "theirs:settings"])
    sys.modules.pop("theirs", None)
    assert done.exit_code == 1
    first, _, place, *_, last = done.stderr.splitlines()
    assert first == f"instride dead-letters: {what}:"
    assert place.startswith(f'  File "{tmp_path / "theirs.py"}", line 1, in ')
    assert last == "ZeroDivisionError: division by zero"
