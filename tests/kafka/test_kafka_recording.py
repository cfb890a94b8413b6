"""An application on a real Kafka is recorded, and what it does wrong is found."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_help import QUICK, poll_until, ranges_until, tps

from filled_topics import fill
from instride import Consumer, RangeConsumer
from instride._core.network.positions import Positions
from instride.errors import IllegalStateError
from instride.testing import LocalKafka, Recorder
from instride.testing._check.events import read_histories

Open = Callable[..., Consumer]
Topic = Callable[..., str]


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path / "recorded.jsonl", source="a test", kind="calm", reset="earliest")


def whats(recorder: Recorder, who: str = "a") -> list[str]:
    return [each.event.what for each in read_histories([recorder.path]) if each.event.who == who]


def test_what_an_application_does_is_recorded_and_right(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str, recorder: Recorder
) -> None:
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 10, 1: 10})
    for tp in tps(topic, 0, 1):
        recorder.produced(tp, 10)
    consumer = open_consumer(group_id=group)
    member = recorder.watch(consumer, "a")
    consumer.subscribe([topic])
    for record in poll_until(consumer, 20):
        member.done(record)
    consumer.commit()
    member.sample()
    consumer.close()
    with open_consumer(group_id=group) as other:
        recorder.stored({tp: each.offset for tp, each in other.committed(*tps(topic, 0, 1)).items() if each})
    recorder.end(drained=True)
    assert recorder.check() == []
    assert {"assigned", "looked up", "positioned", "poll", "done", "sends commit", "commit response"} <= set(
        whats(recorder)
    )
    assert {"alive", "sample", "closed"} <= set(whats(recorder))


def test_a_commit_of_what_is_not_done_is_found(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str, recorder: Recorder
) -> None:
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 10})
    consumer = open_consumer(group_id=group)
    member = recorder.watch(consumer, "a")
    consumer.subscribe([topic])
    for record in poll_until(consumer, 10)[:5]:
        member.done(record)
    consumer.commit()
    recorder.end(drained=False)
    assert [each.number for each in recorder.check()] == ["S4"]


def test_a_client_that_begins_elsewhere_is_found(
    kafka: LocalKafka,
    kafka_topic: Topic,
    open_consumer: Open,
    group: str,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 10})
    found: Any = Positions._found

    def elsewhere(self: Positions, assigned: Any, offset: int, *rest: Any, **named: Any) -> None:
        found(self, assigned, offset + 3, *rest, **named)

    monkeypatch.setattr(Positions, "_found", elsewhere)
    consumer = open_consumer(group_id=group)
    recorder.watch(consumer, "a", finishes="delivered")
    consumer.subscribe([topic])
    poll_until(consumer, 7)
    recorder.end(drained=False)
    assert {each.number for each in recorder.check()} == {"S3"}


def test_seeks_numbers_of_ones_own_and_partitions_by_hand(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str, recorder: Recorder
) -> None:
    topic = kafka_topic(2)
    one, other = tps(topic, 0, 1)
    fill(kafka, topic, {0: 10, 1: 10})
    consumer = open_consumer(group_id=group)
    recorder.watch(consumer, "a", finishes="delivered")
    consumer.assign([one])
    poll_until(consumer, 10)
    consumer.commit({one: 10})
    consumer.seek(one, 4)
    poll_until(consumer, 6)
    consumer.commit({one: 7})
    consumer.assign([other])
    poll_until(consumer, 10)
    consumer.seek_to_beginning(other)
    poll_until(consumer, 10)
    consumer.commit()
    consumer.close()
    recorder.end(drained=False)
    assert [str(each) for each in recorder.check()] == []
    assert {"seek", "own offsets", "assigned", "revoked"} <= set(whats(recorder))


def test_control_records_are_holes_where_the_log_may_have_some(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str, tmp_path: Path
) -> None:
    from confluent_kafka import Producer

    topic = kafka_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for batch in range(3):
        producer.begin_transaction()
        for number in range(4):
            producer.produce(topic, f"{batch} {number}".encode(), partition=0)
        producer.commit_transaction()
    numbers = []
    for holes in (True, False):
        recorder = Recorder(tmp_path / f"{holes}.jsonl", reset="earliest", holes=holes)
        consumer = open_consumer(group_id=f"{group}-{holes}")
        recorder.watch(consumer, "a", finishes="delivered")
        consumer.subscribe([topic])
        count = 0
        while count < 12:
            count += len(consumer.poll(timeout=0.2))
        consumer.commit()
        consumer.close()
        recorder.end(drained=False)
        numbers.append({each.number for each in recorder.check()})
    assert numbers[0] == set()
    assert "S3" in numbers[1]


def test_ranges_are_recorded(kafka: LocalKafka, kafka_topic: Topic, group: str, recorder: Recorder) -> None:
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 30})
    with RangeConsumer(bootstrap_servers=kafka.bootstrap_servers, group_id=group, **QUICK) as consumer:
        member = recorder.watch(consumer, "a")
        consumer.subscribe([topic])
        for each in ranges_until(consumer, {tps(topic, 0)[0]: 30}):
            member.done(each)
        consumer.commit()
    recorder.end(drained=False)
    assert recorder.check() == []
    assert "range done" in whats(recorder)


def test_a_consumer_that_was_used_before_is_refused(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str, recorder: Recorder
) -> None:
    consumer = open_consumer(group_id=group)
    consumer.subscribe([kafka_topic(1)])
    consumer.poll(timeout=0.0)
    with pytest.raises(IllegalStateError, match="before its first use"):
        recorder.watch(consumer, "a")
    recorder.close()


def test_the_example_of_the_page_runs(kafka: LocalKafka, kafka_topic: Topic, group: str, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "histories.md").read_text(encoding="utf-8")
    (example,) = [
        each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if 'Recorder("history.jsonl"' in each
    ]
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 20, 1: 20})
    handled: list[object] = []
    names: dict[str, Any] = {"handle": handled.append, "running": lambda: len(handled) < 40}
    code = example.replace("localhost:9092", kafka.bootstrap_servers).replace('"flights"', repr(topic))
    code = code.replace('"history.jsonl"', repr(str(tmp_path / "example.jsonl"))).replace('"my-group"', repr(group))
    exec(compile(code, "docs/histories.md", "exec"), names)
    assert len(handled) == 40
