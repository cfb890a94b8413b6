"""Telemetry on a real Kafka: a delayed hand-over, who waited for what, and a loss that abandons records."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import pytest
from kafka_help import Member, drive, tps

from filled_topics import fill
from instride import TopicPartition
from instride.telemetry import (
    DelayAtRisk,
    HandedOver,
    OwnershipChange,
    OwnershipChanged,
    RebalanceEnded,
    RebalanceOutcome,
    TelemetryEvent,
)
from instride.testing import LocalKafka

Topic = Callable[..., str]
Join = Callable[..., Member]
E = TypeVar("E")


def of(heard: list[TelemetryEvent], kind: type[E]) -> list[E]:
    return [event for event in heard if isinstance(event, kind)]


def changes(heard: list[TelemetryEvent], partition: TopicPartition) -> list[str]:
    return [event.change.value for event in of(heard, OwnershipChanged) if partition in event.partitions]


@pytest.mark.requirement("surface/hand-overs")
@pytest.mark.requirement("surface/holders")
def test_a_delayed_hand_over_is_told_from_its_request_to_its_end(
    kafka: LocalKafka, kafka_topic: Topic, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="instride")
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 10, 1: 10})
    of_a: list[TelemetryEvent] = []
    of_b: list[TelemetryEvent] = []
    a = join("a", topic, telemetry=of_a.append)
    drive(a, until=lambda: len(a.records) == 20)
    a.holding = set(a.owned)
    b = join("b", topic, telemetry=of_b.append)
    drive(a, b, until=lambda: a.revocation_requested)
    (moving,) = a.revocation_requested
    assert a.consumer.delay_revoke([moving], reason="the oldest of its jobs")
    hold = a.consumer.holdings()[moving]
    assert (hold.state, str(hold.blocker)) == (OwnershipChange.DELAYED, "the oldest of its jobs")
    assert hold.deadline is not None
    assert hold.requested_at is not None
    assert hold.deadline > hold.requested_at
    a.holding = set()
    drive(a, b, until=lambda: len(b.owned) == 1)

    assert changes(of_a, moving) == ["assigned", "revoke_requested", "delayed", "completing", "revoked"]
    assert changes(of_b, moving) == ["assigned"]
    (handed_over,) = of(of_a, HandedOver)
    assert (handed_over.partition, handed_over.how) == (moving, OwnershipChange.REVOKED)
    assert handed_over.abandoned == 0, "everything was committed"
    assert str(handed_over.blocker) == "the oldest of its jobs"
    assert sum(handed_over.phases.values()) == pytest.approx(handed_over.seconds)
    taken_by_b = next(event.at for event in of(of_b, OwnershipChanged) if moving in event.partitions)
    assert handed_over.at <= taken_by_b, "one clock for the processes of a machine"
    assert f"{moving} was revoked" in caplog.text
    assert "it waited for the oldest of its jobs" in caplog.text


@pytest.mark.requirement("surface/rebalances-told")
def test_each_rebalance_is_summed_up(kafka: LocalKafka, kafka_topic: Topic, join: Join) -> None:
    topic = kafka_topic(3)
    heard: list[TelemetryEvent] = []
    a = join("a", topic, telemetry=heard.append)
    drive(a, until=lambda: of(heard, RebalanceEnded))
    ended = of(heard, RebalanceEnded)[0]
    assert (ended.outcome, ended.generation) == (RebalanceOutcome.TAKEN, 1)
    assert ended.assigned == tuple(tps(topic, 0, 1, 2))
    assert ended.joining is not None
    assert ended.syncing is not None
    assert ended.taking is not None
    assert ended.joining + ended.syncing + ended.taking == pytest.approx(ended.seconds)


@pytest.mark.requirement("surface/abandoned")
def test_a_delay_past_its_deadline_is_warned_of_and_abandons_its_records(
    kafka: LocalKafka, kafka_topic: Topic, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 10, 1: 10})
    heard: list[TelemetryEvent] = []
    a = join("a", topic, telemetry=heard.append, commits=False, max_poll_interval=8.0)
    drive(a, until=lambda: len(a.records) == 20)
    a.holding = set(a.owned)
    b = join("b", topic)
    drive(a, b, until=lambda: a.lost and of(heard, HandedOver))
    (handed_over,) = of(heard, HandedOver)
    (risk,) = of(heard, DelayAtRisk)
    assert risk.partition == handed_over.partition
    assert 0 < risk.seconds_left <= 4.0
    assert handed_over.how is OwnershipChange.LOST
    assert handed_over.abandoned == 10
    drive(a, b, until=lambda: len(b.records) == 10)  # what was abandoned is repeated
    assert "half of the time for the revocation of" in caplog.text
    assert "10 of its records" in caplog.text
