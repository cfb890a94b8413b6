"""docs/metrics.md: its table is the code's, its examples run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from instride import Consumer
from instride._core.metrics.meters import ApplicationMeter, NetworkMeter
from instride._core.metrics.snapshot import metrics
from instride.metrics import DESCRIPTIONS, HANDOVER, MetricName
from instride.records import TopicPartition

PAGE = Path(__file__).parents[2] / "docs/metrics.md"


def table() -> str:
    """What the page's last part must be. Print it to make the page anew."""
    rows = ["| group | name | by | unit | kind | what |", "|---|---|---|---|---|---|"]
    for (group, name, tags), about in DESCRIPTIONS.items():
        unit = about.unit or "-"
        rows.append(f"| {group} | `{name}` | {', '.join(tags)} | {unit} | {about.kind} | {about.text} |")
    return "\n".join(rows) + "\n"


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


class Snapshot:
    """A consumer of which only the metrics are asked."""

    def __init__(self, client_id: str = "me") -> None:
        self.client_id, self.taken = client_id, 0
        self.application = ApplicationMeter()
        self.application.poll_began(1.0)
        self.application.returned({TopicPartition("flights", 3): (10, 1000)}, 1.0)

    def metrics(self) -> dict[MetricName, float]:
        self.taken += 1
        lags = {TopicPartition("flights", 3): 7}
        network = NetworkMeter()
        network.released(TopicPartition("flights", 2), 1.0)
        network.fetch_began(TopicPartition("flights", 3), 1.0)
        return metrics(network, self.application, client_id=self.client_id, holds={}, lags=lags, now=2.0)


@pytest.mark.requirement("surface/metrics")
def test_the_table_is_the_codes() -> None:
    assert PAGE.read_text().endswith("## All of them\n\n" + table())


@pytest.mark.requirement("surface/metrics")
def test_a_snapshot_has_every_name_and_no_other() -> None:
    found = {(each.group, each.name, tuple(tag for tag, _ in each.tags if tag != "client-id")) for each in snapshot()}
    assert found == set(DESCRIPTIONS)


def snapshot() -> dict[MetricName, float]:
    return Snapshot().metrics()


def test_every_name_knows_its_unit() -> None:
    units = {each.name: each.unit for each in snapshot()}
    assert units["records-lag"] == "records"
    assert units["fetch-latency-avg"] == "ms"
    assert {about.java for (group, _, _), about in DESCRIPTIONS.items() if group == HANDOVER} == {False}


def test_a_consumer_that_does_nothing_has_metrics_too() -> None:
    consumer = Consumer(bootstrap_servers="127.0.0.1:1", client_id="idle")
    values = {str(name): value for name, value in consumer.metrics().items()}
    assert values["consumer-metrics:connection-count,client-id=idle"] == 0
    assert values["consumer-metrics:last-poll-seconds-ago,client-id=idle"] == -1
    consumer.close()
    assert consumer.metrics()


def test_the_prometheus_example() -> None:
    names: dict[str, Any] = {}
    exec(compile(examples()[1], "example", "exec"), names)
    text: str = names["prometheus_text"](Snapshot())
    assert text.endswith("\n")
    assert 'consumer_fetch_manager_metrics_records_lag{client_id="me",partition="3",topic="flights"} 7.0' in text
    assert "# TYPE consumer_fetch_manager_metrics_records_consumed_total counter" in text
    assert 'consumer_fetch_manager_metrics_records_consumed_total{client_id="me",topic="flights"} 10.0' in text
    assert "nan" not in text
    kinds = re.findall(r"# TYPE (\S+)", text)
    assert len(kinds) == len(set(kinds)), "each family once"
    line = re.compile(r'^(# TYPE \w+ (gauge|counter)|\w+\{(\w+="[^"]*",?)+\} \S+)$')
    assert [each for each in text.splitlines() if not line.match(each)] == []


def test_the_prometheus_example_counts_no_record_twice_and_escapes() -> None:
    names: dict[str, Any] = {}
    exec(compile(examples()[1], "example", "exec"), names)
    text: str = names["prometheus_text"](Snapshot(client_id='a"b\\c\nd'))
    consumed = re.findall(r"^\w+_(?:records|bytes)_consumed_total\{.*\} (\S+)$", text, re.MULTILINE)
    assert [float(each) for each in consumed] == [10.0, 1000.0], "what sum() adds up"
    assert r'client_id="a\"b\\c\nd"' in text
    quoted = re.compile(r'\w+\{(\w+="([^"\\\n]|\\["\\n])*",?)+\} \S+')
    assert [each for each in text.splitlines() if not each.startswith("#") and not quoted.fullmatch(each)] == []


class Observation(NamedTuple):
    value: float
    attributes: dict[str, str]


class Meter:
    """What the example asks of OpenTelemetry's."""

    def __init__(self) -> None:
        self.made: dict[str, tuple[str, str, Callable[[object], Iterable[Observation]]]] = {}

    def _create(self, kind: str, name: str, callbacks: list[Any], unit: str, description: str) -> None:
        assert name not in self.made
        assert description
        self.made[name] = (kind, unit, callbacks[0])

    def create_observable_counter(self, name: str, **rest: Any) -> None:
        self._create("counter", name, **rest)

    def create_observable_gauge(self, name: str, **rest: Any) -> None:
        self._create("gauge", name, **rest)

    def collect(self, name: str) -> Iterator[Observation]:
        yield from self.made[name][2](None)


def test_the_opentelemetry_example() -> None:
    names: dict[str, Any] = {}
    exec(compile(examples()[2], "example", "exec"), names)
    meter = Meter()
    names["observe"](Snapshot(), meter, Observation)
    assert len(meter.made) == len(DESCRIPTIONS)
    assert meter.made["consumer-fetch-manager-metrics.records-consumed-total"][:2] == ("counter", "records")
    (lag,) = meter.collect("consumer-fetch-manager-metrics.records-lag.by-partition.by-topic")
    assert lag == Observation(7.0, {"client-id": "me", "partition": "3", "topic": "flights"})
    assert list(meter.collect("consumer-metrics.request-latency-avg")) == [], "NaN is not told"


def test_the_opentelemetry_example_takes_one_snapshot_in_each_collection() -> None:
    names: dict[str, Any] = {}
    exec(compile(examples()[2], "example", "exec"), names)
    meter, consumer = Meter(), Snapshot()
    names["observe"](consumer, meter, Observation)
    for collections in (1, 2, 3):
        told = sum(len(list(meter.collect(name))) for name in meter.made)
        assert consumer.taken == collections
        consumer.application.returned({TopicPartition("flights", 3): (1, 100)}, 1.0)
        assert told > 50
    (consumed,) = meter.collect("consumer-fetch-manager-metrics.records-consumed-total")
    assert consumed.value == 13.0, "the next collection has begun"
