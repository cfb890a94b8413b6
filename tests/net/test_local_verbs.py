"""Verbs that ask the consumer and no broker, as a user calls them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from uuid import UUID

import pytest

from instride import Consumer, GroupMetadata, TopicPartition
from instride._core.events import Assigned, BackgroundEvent, Fetched, Lost, PartitionFailed, Positioned
from instride.errors import TopicAuthorizationFailedError

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    """Subscribed; nobody responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        made = Consumer(bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}", group_id="g", client_id="c")
        made.subscribe(["t"])
        yield made
        made.close(timeout=0.1)


def up(consumer: Consumer, *events: BackgroundEvent) -> None:
    consumer._driver._mailbox.deliver(list(events))


def test_the_groups_metadata_is_of_the_assignment_that_the_last_poll_took(consumer: Consumer) -> None:
    assert consumer.group_metadata() == GroupMetadata("g", -1, "")
    up(consumer, Assigned(generation=4, partitions={TP: 1}, member_id="me"))
    consumer.poll(timeout=0)
    assert consumer.group_metadata() == GroupMetadata("g", 4, "me")


def test_a_partition_that_does_not_go_on_is_named_with_its_error(consumer: Consumer) -> None:
    up(consumer, Assigned(generation=1, partitions={TP: 1, OTHER: 1}))
    consumer.poll(timeout=0)
    assert consumer.failed_partitions() == {}
    error = TopicAuthorizationFailedError("not yours")
    up(consumer, PartitionFailed(partition=TP, epoch=1, fetch_number=0, error=error, tried_again=True))
    assert consumer.failed_partitions() == {TP: error}
    with pytest.raises(TopicAuthorizationFailedError):
        consumer.poll(timeout=0)
    assert consumer.failed_partitions() == {TP: error}, "it was raised, and is not over"
    up(consumer, Lost(partitions={TP: 1}))
    consumer.poll(timeout=0)
    assert consumer.failed_partitions() == {}


def test_which_topic_was_fetched_is_known_by_its_id(consumer: Consumer) -> None:
    up(consumer, Assigned(generation=1, partitions={TP: 1}), Positioned(partition=TP, epoch=1, seek_number=0, offset=0))
    consumer.poll(timeout=0)
    assert consumer.fetched_topic_id(TP) is None
    moved = Fetched(partition=TP, epoch=1, fetch_number=0, start=0, chunk=None, next_offset=3, topic_id=UUID(int=7))
    up(consumer, moved)
    consumer.poll(timeout=0)
    assert consumer.fetched_topic_id(TP) == UUID(int=7), "also where no record was among it"
    with pytest.raises(ValueError, match="t-1 is not assigned"):
        consumer.fetched_topic_id(OTHER)


def test_a_consumer_is_shown_with_its_names_and_how_much_it_has(consumer: Consumer) -> None:
    assert repr(consumer) == "Consumer(client_id='c', group_id='g', 0 partitions)"
    up(consumer, Assigned(generation=1, partitions={TP: 1}))
    waiting = consumer._driver._mailbox.queue
    assert (repr(consumer), len(waiting)) == ("Consumer(client_id='c', group_id='g', 0 partitions)", 1), (
        "it takes nothing: another thread may ask for it"
    )
    consumer.poll(timeout=0)
    assert repr(consumer) == "Consumer(client_id='c', group_id='g', 1 partition)"
    consumer.close(timeout=0.1)
    assert repr(consumer) == "Consumer(client_id='c', group_id='g', closed)"
