"""A broker with an authorizer: a topic that a Processor may not write is named, and its records wait until it may."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from security_help import PATIENCE
from typer.testing import CliRunner

from instride import Consumer, ConsumerRecord, OutputRecord, Processor, Retry, TopicPartition
from instride._cli import dead_letters
from instride._net.clock import now
from instride.config import UntypedSettings
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


def everyone_may(operation: AclOperation, kind: ResourceType, name: str) -> AclBinding:
    """Who has a rule for one thing may do nothing else."""
    return AclBinding(kind, name, ResourcePatternType.LITERAL, "User:*", "*", operation, AclPermissionType.ALLOW)


def grant(broker: LocalKafka, *rules: AclBinding) -> None:
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for created in client.create_acls(list(rules)).values():
        created.result(PATIENCE)
    # The controller takes rules; the broker learns of them a moment later. It lists those that its own authorizer has.
    anything: Any = None  # which the stub does not know
    whose = (ResourceType.ANY, anything, ResourcePatternType.ANY, anything, anything)
    every = AclBindingFilter(*whose, AclOperation.ANY, AclPermissionType.ANY)
    until(lambda: set(rules) <= set(client.describe_acls(every).result(PATIENCE)))


def until(what: Callable[[], object]) -> None:
    deadline = now() + PATIENCE
    while not what():
        assert now() < deadline, "it did not come to be"
        time.sleep(0.01)


@contextmanager
def refused(broker: LocalKafka, topic: str) -> Iterator[Callable[[], None]]:
    """Nobody may write to this topic until what is yielded is called."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    grant(broker, everyone_may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic))
    whose = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:*", "*")
    removed = AclBindingFilter(*whose, AclOperation.ANY, AclPermissionType.ANY)
    yield lambda: client.delete_acls([removed])[removed].result(PATIENCE)


def topics(broker: LocalKafka, *names: str) -> list[str]:
    """New ones that are called so; the first has a record."""
    found = [f"{name}-{uuid.uuid4().hex[:8]}" for name in names]
    for topic in found:
        broker.create_topic(topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(found[0], b"bad")
    assert producer.flush(PATIENCE) == 0
    return found


@pytest.mark.slow
def test_a_dead_letter_topic_that_may_not_be_written_is_named_until_it_may(broker: LocalKafka) -> None:
    topic, letters = topics(broker, "orders", "letters")

    def handle(record: ConsumerRecord) -> None:
        raise ValueError("no such order")

    processor = Processor(handle, topics=[topic], dead_letters=letters)
    with (
        refused(broker, letters) as allow,
        processor.running(
            bootstrap_servers=broker.bootstrap_servers, group_id=topic, auto_offset_reset="earliest"
        ) as running,
    ):
        until(lambda: running.health().unwritten_letters)
        (unwritten,) = running.health().unwritten_letters
        assert str(unwritten.error).startswith(f"{letters}: the broker did not take the record: ")
        assert "TOPIC_AUTHORIZATION_FAILED" in str(unwritten.error)
        assert running.tally().dead_lettered == 0
        allow()
        until(lambda: running.tally().dead_lettered == 1)


def test_what_the_page_of_security_lists_is_enough_for_dead_letters_and_a_replay(broker: LocalKafka) -> None:
    topic, letters = topics(broker, "orders", "letters")
    group, replayer = f"{topic}-group", f"instride-replay-{letters}"
    grant(
        broker,
        everyone_may(AclOperation.READ, ResourceType.GROUP, group),
        everyone_may(AclOperation.READ, ResourceType.TOPIC, topic),
        everyone_may(AclOperation.WRITE, ResourceType.TOPIC, letters),
    )

    def handle(record: ConsumerRecord) -> None:
        raise ValueError("no such order")

    processor = Processor(handle, topics=[topic], dead_letters=letters)
    settings: UntypedSettings = {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": group,
        "auto_offset_reset": "earliest",
    }
    where = TopicPartition(topic, 0)
    with processor.running(**settings) as running:
        until(lambda: running.tally().dead_lettered == 1)
    with Consumer(**settings) as consumer:
        found = consumer.committed(where)[where]
    assert found is not None
    assert found.offset == 1

    servers = ["--bootstrap-servers", broker.bootstrap_servers]
    grant(broker, everyone_may(AclOperation.READ, ResourceType.TOPIC, letters))
    listed = CliRunner().invoke(dead_letters.app, ["list", letters, *servers])
    assert listed.exit_code == 0, listed.output
    grant(
        broker,
        everyone_may(AclOperation.READ, ResourceType.GROUP, replayer),
        everyone_may(AclOperation.WRITE, ResourceType.TOPIC, topic),
    )
    replayed = CliRunner().invoke(dead_letters.app, ["replay", letters, *servers, "--from-beginning"])
    assert replayed.exit_code == 0, replayed.output
    with Consumer(**settings) as consumer:
        assert consumer.end_offsets([where]) == {where: 2}


def test_an_output_topic_that_may_not_be_written_fails_each_attempt_until_it_may(
    broker: LocalKafka, caplog: pytest.LogCaptureFixture
) -> None:
    topic, bills = topics(broker, "orders", "bills")

    def handle(record: ConsumerRecord) -> OutputRecord:
        return OutputRecord(value=b"12.50")

    processor = Processor(handle, topics=[topic], output=bills, retry=Retry(attempts=None, backoff=0.1))
    with (
        refused(broker, bills) as allow,
        caplog.at_level("INFO", logger="instride"),
        processor.running(
            bootstrap_servers=broker.bootstrap_servers, group_id=topic, auto_offset_reset="earliest"
        ) as running,
    ):
        until(lambda: running.tally().retried)
        assert running.tally().finished == 0
        allow()
        until(lambda: running.tally().finished == 1)
    assert f"{bills}: the broker did not take the record: " in caplog.text
    assert "TOPIC_AUTHORIZATION_FAILED" in caplog.text
