"""The thread on which a leader's assignor runs: heartbeats go on beside it, and a consumer closes without it."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing

import pytest

from attack.broker import Broker, Request
from instride import Consumer
from instride.assignors import Assignment, ClusterView, MemberSubscription, RebalanceProtocol
from instride.errors import TransportError
from instride.records import TopicPartition

HEARTBEAT = 12
PATIENCE = 30.0


class Leading(Broker):
    def join(self, request: Request) -> bytes:
        return self.leads(request)


class Patient:
    """Everything to every member, once it may. threads: on which its methods ran."""

    name = "patient"
    version = 0
    protocols = frozenset({RebalanceProtocol.EAGER})

    def __init__(self) -> None:
        self.threads: dict[str, threading.Thread] = {}
        self.may_end = threading.Event()

    def subscription_userdata(
        self, topics: Collection[str], *, owned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        self.threads["userdata"] = threading.current_thread()
        return None

    def assign(self, cluster: ClusterView, members: Iterable[MemberSubscription]) -> Assignment:
        self.threads["assign"] = threading.current_thread()
        assert self.may_end.wait(PATIENCE)
        return {member.member_id: tuple(cluster.of_topic("t")) for member in members}

    def on_assignment(self, assignment: Sequence[TopicPartition], generation: int) -> None:
        self.threads["on_assignment"] = threading.current_thread()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with closing(Leading()) as broker:
        yield broker


def member(broker: Broker, assignor: Patient) -> Consumer:
    consumer = Consumer(
        bootstrap_servers=f"127.0.0.1:{broker.port}",
        group_id="g",
        auto_offset_reset="earliest",
        assignors=[assignor],
        heartbeat_interval=0.05,
    )
    consumer.subscribe(["t"])
    return consumer


def test_heartbeats_go_on_beside_an_assignor_that_takes_its_time(broker: Broker) -> None:
    assignor = Patient()
    with member(broker, assignor) as consumer:
        began = time.monotonic()
        while broker.requested[HEARTBEAT] < 5:
            assert not consumer.poll(timeout=0.01)
            assert time.monotonic() - began < PATIENCE, f"{broker.requested[HEARTBEAT]} heartbeats"
        assert assignor.threads["assign"].is_alive()
        assignor.may_end.set()
        while not consumer.poll(timeout=0.1):
            assert time.monotonic() - began < PATIENCE
        assert consumer.assignment() == {TopicPartition("t", number) for number in range(3)}
    assert assignor.threads["assign"] is not assignor.threads["userdata"]
    assert assignor.threads["on_assignment"] is assignor.threads["userdata"]


def test_a_consumer_closes_without_an_assignor_that_does_not_end(broker: Broker) -> None:
    assignor = Patient()
    consumer = member(broker, assignor)
    began = time.monotonic()
    while "assign" not in assignor.threads:
        consumer.poll(timeout=0.01)
        assert time.monotonic() - began < PATIENCE
    consumer.close(timeout=PATIENCE)
    assert assignor.threads["assign"].is_alive()
    assignor.may_end.set()
    assignor.threads["assign"].join(PATIENCE)
    assert not assignor.threads["assign"].is_alive(), "its outcome is of no use, and does no harm"


def test_without_a_thread_to_assign_on_the_group_is_joined_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, assignor = threading.Thread.start, Patient()
    assignor.may_end.set()

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith("instride-assign"):
            raise RuntimeError("can't start new thread")
        started(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with member(broker, assignor) as consumer:
        with pytest.raises(TransportError, match="cannot assign partitions: no thread can be started"):
            consumer.poll(timeout=PATIENCE)
        monkeypatch.undo()
        assert consumer.poll(timeout=PATIENCE)
