"""poll_changes (KIP-983, variant 1): records, what is to be revoked and what was lost, in one value."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka_help import Member, drive, ids

from filled_topics import fill
from instride import Changes, Consumer
from instride.testing import LocalKafka

Topic = Callable[..., str]
Join = Callable[..., Member]


class Changing(Member):
    """Polls with poll_changes, and delays all that is to be revoked for as long as it may."""

    def __init__(self, name: str, consumer: Consumer) -> None:
        super().__init__(name, consumer)
        self.seen_changes: list[Changes] = []

    def turn(self) -> None:  # type: ignore[override]  # nobody looks at its records
        changes = self.consumer.poll_changes(timeout=0.02)
        assert changes.to_be_revoked == self.consumer.to_be_revoked_partitions()
        assert changes.lost == self.consumer.lost_partitions()
        self.seen_changes.append(changes)
        self.records += changes.records
        self.lost += sorted(changes.lost)
        delayed = self.consumer.delay_revoke(changes.to_be_revoked)
        left = [self.consumer.revoke_deadline(each) for each in changes.to_be_revoked]
        assert delayed or 0.0 in left, "it is refused at the deadline only"


@pytest.mark.requirement("KIP-983/28")
@pytest.mark.requirement("KIP-983/29")
@pytest.mark.rule("9")
@pytest.mark.parametrize("mode", ["two-step", "immediate"])
def test_records_requests_and_losses_come_in_one_value(
    kafka: LocalKafka, kafka_topic: Topic, join: Join, mode: str
) -> None:
    """It is two-step in both modes, whatever `poll` is."""
    topic = kafka_topic(2)
    written = fill(kafka, topic, {0: 10, 1: 10})
    a = Changing("a", join("a", topic, revoke_mode=mode, max_poll_interval=4.0, commit_budget=1.0).consumer)
    drive(a, until=lambda: len(a.records) == 20)
    assert sorted(ids(a.records)) == written
    b = join("b", topic)
    drive(a, b, until=lambda: a.lost)
    requested = [each.to_be_revoked for each in a.seen_changes if each.to_be_revoked]
    (lost,) = [each.lost for each in a.seen_changes if each.lost]
    assert len(lost) == 1
    assert set(requested) == {lost}, "requested once, delayed poll by poll, then lost"
    assert len(requested) > 1
    assert a.seen_changes[-1].to_be_revoked == frozenset()
    polls = len(a.seen_changes)
    drive(a, b, until=lambda: b.owned == lost and len(a.seen_changes) > polls)
    assert a.seen_changes[-1].lost == frozenset(), "lost is what the last poll lost"
