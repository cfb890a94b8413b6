"""Fixtures of the tests on a real Kafka: the one broker of the run, in topics and groups of their own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from draining import Course, drain
from kafka_help import QUICK, Member
from peer_help import Peer, start

from filled_topics import told_of_writes
from instride import Consumer, TopicPartition
from instride.testing import LocalKafka, Recorder
from instride.testing.check import Judge, read_histories


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/kafka/" in item.path.as_posix():
            item.add_marker(pytest.mark.kafka)


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def course() -> Course:
    return Course()


@pytest.fixture
def history(tmp_path: Path, request: pytest.FixtureRequest, course: Course) -> Iterator[Recorder]:
    """What the group of this test did, as JSON lines; the one checker judges it when the test has ended.

    `@pytest.mark.history("calm")` says how strictly; without it a member may be late, but nothing fails. With
    `judges="L1 L2"` the history must be one that these invariants are judged by. With `breaks="L4"` the test itself
    breaks that one on purpose, and it must be found.
    """
    marker = request.node.get_closest_marker("history")
    kind = marker.args[0] if marker and marker.args else "slow"
    recorder = Recorder(tmp_path / "history.jsonl", source=request.node.name, kind=kind, reset="earliest")

    def wrote(partition: TopicPartition, end: int) -> None:
        course.ends[partition] = end
        recorder.produced(partition, end)

    failed = request.session.testsfailed
    with told_of_writes(wrote):
        yield recorder
    recorder.end(drained=course.drained)
    judge = Judge()
    for each in read_histories([recorder.path]):
        judge.take(each.event)
    violations = judge.end()
    broken = set(marker.kwargs.get("breaks", "").split()) if marker else set()
    assert {each.number for each in violations} == broken, "\n".join(map(str, violations))
    wanted = set(marker.kwargs.get("judges", "").split()) if marker else set()
    if request.session.testsfailed > failed:
        return  # it did not come so far
    assert wanted <= set(judge.judged), f"it tells nothing of {sorted(wanted - set(judge.judged))}"


@pytest.fixture
def open_consumer(kafka: LocalKafka, history: Recorder, course: Course) -> Iterator[Callable[..., Consumer]]:
    """``open_consumer(**settings)``: a consumer on the run's broker, closed when the test ends."""
    with ExitStack() as stack:

        def build(**settings: Any) -> Consumer:
            merged: dict[str, Any] = {"bootstrap_servers": kafka.bootstrap_servers, **QUICK, **settings}
            consumer = Consumer(**merged)
            stack.callback(consumer.close, timeout=5.0)
            course.consumers += 1
            return consumer

        yield build


@pytest.fixture
def join(
    open_consumer: Callable[..., Consumer],
    group: str,
    history: Recorder,
    course: Course,
    request: pytest.FixtureRequest,
) -> Iterator[Callable[..., Member]]:
    """``join("a", topic, **settings)``: a member of this test's group. When the test was good, the group is drained."""

    def build(name: str, topic: str, *, listener: Any = None, commits: bool = True, **settings: Any) -> Member:
        consumer = open_consumer(group_id=group, client_id=name, **settings)
        history.watch(consumer, name, finishes="delivered")
        consumer.subscribe([topic], listener=listener)
        course.members.append(Member(name, consumer, commits=commits))
        return course.members[-1]

    failed = request.session.testsfailed
    yield build
    if request.session.testsfailed == failed:
        drain(course, history)


@pytest.fixture
def start_peer(
    kafka: LocalKafka, group: str, tmp_path: Path, history: Recorder, course: Course
) -> Iterator[Callable[..., Peer]]:
    """``start_peer("java", "b", topic)``: a member of this test's group in a process of its own."""
    with ExitStack() as stack:

        def begin(kind: str, name: str, topic: str, **settings: Any) -> Peer:
            peer = start(kind, kafka, group, topic, name, tmp_path, settings)
            peer.recorded = history.peer(name)
            course.peers.append(peer)
            stack.callback(peer.end)
            return peer

        yield begin
