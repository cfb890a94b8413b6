"""A group that shares no assignor with us: the error says what it uses, and what to do; which then works."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka_help import PATIENCE, Member, drive, each_once
from peer_help import Peer

from filled_topics import fill
from instride import Consumer
from instride.errors import InconsistentGroupProtocolError
from instride.testing import LocalKafka

Topic = Callable[..., str]


def test_a_mismatch_is_told_with_what_the_group_uses_and_a_list_with_it_joins(
    kafka: LocalKafka,
    kafka_topic: Topic,
    open_consumer: Callable[..., Consumer],
    join: Callable[..., Member],
    start_peer: Callable[..., Peer],
    group: str,
) -> None:
    """librdkafka, on the first of its default list."""
    topic = kafka_topic(4)
    written = fill(kafka, topic, dict.fromkeys(range(4), 10))
    theirs = start_peer("confluent", "theirs", topic, assignor="range")
    drive(theirs, until=lambda: len(theirs.seen) == 40)
    stranger = open_consumer(group_id=group)
    stranger.subscribe([topic])
    said = r"offers cooperative-sticky\. The group \(members: theirs\) uses 'range': set assignors to a list with it"
    with pytest.raises(InconsistentGroupProtocolError, match=said):
        stranger.poll(timeout=PATIENCE)
    stranger.close()

    ours = join("ours", topic, assignors=["cooperative-sticky", "range", "roundrobin"])
    drive(ours, theirs, until=lambda: len(ours.owned) == len(theirs.owned) == 2)
    written += fill(kafka, topic, dict.fromkeys(range(4), 10), start=10)
    drive(ours, theirs, until=lambda: len(ours.seen) + len(theirs.seen) == 80)
    each_once(written, ours, theirs)
