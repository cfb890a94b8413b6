"""LocalKafka as its users see it, each verb on real brokers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from instride.testing import LocalKafka

pytestmark = pytest.mark.kafka


def test_a_topic_is_ready_when_create_topic_returns(kafka: LocalKafka) -> None:
    kafka.create_topic("ready", 5, configs={"retention.ms": "60000"})
    assert kafka.topics()["ready"] == 5
    assert [kafka.leader("ready", partition) for partition in range(5)] == [1] * 5
    kafka.delete_topic("ready")
    assert "ready" not in kafka.topics()


def test_the_topic_fixture_makes_distinct_topics(kafka: LocalKafka, kafka_topic: Callable[..., str]) -> None:
    first, second = kafka_topic(), kafka_topic(3)
    assert first != second
    assert {name: kafka.topics()[name] for name in (first, second)} == {first: 1, second: 3}
