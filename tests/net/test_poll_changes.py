"""The poll of KIP-983's variant 1, through the consumer itself."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from instride import Consumer, TopicPartition
from instride._core.events import Assigned, BackgroundEvent, Lost, RevocationRequested


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    """Its broker takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        made = Consumer(bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}", group_id="g")
        made.subscribe(["t"])
        yield made
        made.close(timeout=0.1)


@pytest.mark.requirement("KIP-983/28")
def test_one_value_has_records_what_is_to_be_revoked_and_what_was_lost(consumer: Consumer) -> None:
    def heard(*events: BackgroundEvent) -> None:
        consumer._driver._mailbox.deliver(list(events))

    heard(Assigned(generation=1, partitions={tp(0): 1, tp(1): 2}))
    consumer.poll_changes(timeout=0)
    heard(RevocationRequested(partitions={tp(0): 1}, deadline=1e9), Lost(partitions={tp(1): 2}))
    changes = consumer.poll_changes(timeout=0)
    assert (changes.to_be_revoked, changes.lost) == (frozenset({tp(0)}), frozenset({tp(1)}))
    assert list(changes.records) == []
