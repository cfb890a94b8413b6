"""A broker with an authorizer: a topic that a Processor may not write is named, and its records wait until it may."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from security_help import PATIENCE

from instride import ConsumerRecord, Processor
from instride._net.clock import now
from instride.testing import LocalKafka

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalKafka]:
    """Everyone may do everything with a topic that has no rule."""
    properties: dict[str, str | bool] = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": True,
    }
    with LocalKafka(properties=properties) as kafka:
        yield kafka


def everyone_may_describe(topic: str) -> AclBinding:
    """Who has a rule for one thing may do nothing else."""
    allowed = (AclOperation.DESCRIBE, AclPermissionType.ALLOW)
    return AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:*", "*", *allowed)


def until(what: Callable[[], object]) -> None:
    deadline = now() + PATIENCE
    while not what():
        assert now() < deadline, "it did not come to be"
        time.sleep(0.01)


def test_a_dead_letter_topic_that_may_not_be_written_is_named_until_it_may(broker: LocalKafka) -> None:
    topic, letters = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("orders", "letters"))
    broker.create_topic(topic)
    broker.create_topic(letters)
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    rule = everyone_may_describe(letters)
    client.create_acls([rule])[rule].result(PATIENCE)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, b"bad")
    assert producer.flush(PATIENCE) == 0

    def handle(record: ConsumerRecord) -> None:
        raise ValueError("no such order")

    processor = Processor(handle, topics=[topic], dead_letters=letters)
    with processor.running(
        bootstrap_servers=broker.bootstrap_servers, group_id=topic, auto_offset_reset="earliest"
    ) as running:
        until(lambda: running.health().unwritten_letters)
        (unwritten,) = running.health().unwritten_letters
        assert str(unwritten.error).startswith(f"{letters}: the broker did not take the record: ")
        assert "TOPIC_AUTHORIZATION_FAILED" in str(unwritten.error)
        assert running.tally().dead_lettered == 0
        removed = AclBindingFilter(
            ResourceType.TOPIC,
            letters,
            ResourcePatternType.LITERAL,
            "User:*",
            "*",
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        client.delete_acls([removed])[removed].result(PATIENCE)
        until(lambda: running.tally().dead_lettered == 1)
