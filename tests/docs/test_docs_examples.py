"""The examples of README.md, the consumer's pages and docs/telemetry.md are run as they stand, against a real Kafka."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
from confluent_kafka import Producer

from instride import Consumer, ConsumerConfig, ConsumerRecord, OffsetAndMetadata, Processor, TopicPartition
from instride._wire import api
from instride.telemetry import Hold, OwnershipChange, TelemetryEvent
from instride.testing import LocalKafka
from instride.testing.check import BROKER, Event, Parameters, write

ROOT = Path(__file__).parents[2]
RECORDS = 60
PAGES = {"docs/consumer.md": 4, "docs/errors.md": 1, "docs/ranges.md": 1}
"""How many examples each of the consumer's pages has."""


def examples(path: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(), re.DOTALL)


def run(code: str, servers: str, topic: str, *, fails_at: int | None = None) -> list[object]:
    """Run an example until it has handled every record; what it handled. fails_at: the offset that no handler likes."""
    handled: list[object] = []
    lock = threading.Lock()

    def handle(value: Any) -> None:
        if fails_at is not None and value.offset == fails_at:
            raise ValueError(f"record {fails_at}")
        with lock:
            handled.extend(value.to_pylist() if hasattr(value, "to_pylist") else [value.value])
            if len(handled) >= RECORDS:
                end()

    def end() -> None:
        names["running"] = False
        if "stop" in names:
            names["stop"].set()

    names: dict[str, Any] = {"running": True, "handle": handle, "cancel": lambda record: None}
    code = code.replace("def handle(", "def handle_of_the_page(")
    code = code.replace("localhost:9092", servers).replace('"flights"', repr(topic))
    if "auto_offset_reset" not in code:
        code = code.replace("group_id=", 'auto_offset_reset="earliest", group_id=')
    timer = threading.Timer(60, end)
    timer.start()
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        exec(compile(code, "example", "exec"), names)
    finally:
        timer.cancel()
        signal.signal(signal.SIGTERM, terminate)
    return handled


@pytest.fixture
def flights(kafka: LocalKafka, request: pytest.FixtureRequest) -> str:
    topic = re.sub(r"[^A-Za-z0-9]", "-", request.node.name)
    kafka.create_topic(topic, partitions=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(topic, value=str(number).encode())
    assert producer.flush(30) == 0
    return topic


@pytest.mark.kafka
@pytest.mark.parametrize(("page", "number"), [(page, number) for page, many in PAGES.items() for number in range(many)])
def test_the_examples_of_the_consumers_pages(kafka: LocalKafka, flights: str, page: str, number: int) -> None:
    code = examples(page)
    assert len(code) == PAGES[page]
    handled = run(code[number], kafka.bootstrap_servers, flights)
    as_json = "json.loads" in code[number]
    assert handled == [each if as_json else str(each).encode() for each in range(RECORDS)]


@pytest.mark.requirement("KIP-983/3")
@pytest.mark.requirement("KIP-983/19")
@pytest.mark.kafka
def test_the_readmes_loop(kafka: LocalKafka, flights: str) -> None:
    code = examples("README.md")[1]
    handled = run(code, kafka.bootstrap_servers, flights)
    assert sorted(handled, key=lambda value: int(str(value, "ascii"))) == [  # type: ignore[call-overload]
        str(each).encode() for each in range(RECORDS)
    ]


@pytest.mark.kafka
def test_the_readmes_loop_commits_what_was_finished_when_a_handler_fails(kafka: LocalKafka, flights: str) -> None:
    code = examples("README.md")[1]
    with pytest.raises(ValueError, match="record 7"):
        run(code, kafka.bootstrap_servers, flights, fails_at=7)
    partition = TopicPartition(flights, 0)
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=flights) as consumer:
        assert consumer.committed(partition)[partition] == OffsetAndMetadata(offset=7, leader_epoch=0)


@pytest.mark.requirement("surface/telemetry-events")
@pytest.mark.kafka
def test_the_example_of_the_telemetry_page(kafka: LocalKafka, flights: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = examples("docs/telemetry.md")
    assert len(code) == 3
    handled = run(code[0], kafka.bootstrap_servers, flights)
    assert len(handled) == RECORDS
    told = capsys.readouterr().out
    assert "generation 1 after" in told
    assert f"{flights}-0 revoked" in told
    assert " records abandoned" in told


def test_the_report_of_the_telemetry_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tp, path = TopicPartition("t", 0), tmp_path / "history.jsonl"
    released, taken = Event(2.0, "a", "revoked", (((tp, 1),),)), Event(2.5, "b", "first fetch", (tp, 1))
    with path.open("w", encoding="utf-8") as file:
        write([Event(0.0, BROKER, "history", Parameters(source="a test")), released, taken], file)
    names: dict[str, Any] = {}
    exec(examples("docs/telemetry.md")[1], names)
    names["report"](path)
    assert capsys.readouterr().out == "1 hand-overs, 95 of 100 within 0.50 s\n"


def test_the_observer_of_the_telemetry_page_counts_requests() -> None:
    names: dict[str, Any] = {}
    exec(examples("docs/telemetry.md")[2], names)
    counting = names["Requests"]()
    for number in range(2):
        counting.on_request(None, number, api.FindCoordinator(group_id="g"), 0.0)
    assert counting.sent == {"FindCoordinator": 2}
    names["consumer"].close()


@pytest.mark.kafka
def test_the_first_example_of_the_metrics_page(
    kafka: LocalKafka, flights: str, capsys: pytest.CaptureFixture[str]
) -> None:
    handled = run(examples("docs/metrics.md")[0], kafka.bootstrap_servers, flights)
    assert len(handled) == RECORDS
    told = capsys.readouterr().out
    assert re.search(rf"records-consumed-total,client-id=instride {RECORDS}\.0 records", told)
    assert re.search(r"records-lag-max,client-id=instride 0\.0 records", told)


def test_every_event_of_telemetry_is_told_of() -> None:
    page = (ROOT / "docs/telemetry.md").read_text()
    names = [kind.__name__ for kind in get_args(TelemetryEvent)] + [f"`{change.name}`" for change in OwnershipChange]
    names += [f"`{field.name}`" for field in fields(Hold)]
    assert [name for name in names if name not in page] == []


@pytest.mark.kafka
@pytest.mark.parametrize(("page", "number"), [("README.md", 0), ("README.md", 1), ("docs/processor.md", 0)])
def test_the_first_programs_run_as_they_stand_and_end_on_sigterm(
    kafka: LocalKafka, flights: str, tmp_path: Path, page: str, number: int
) -> None:
    """In a process of its own; it is told only where its broker is, which topic, and to begin at the beginning."""
    code = examples(page)[number]
    code = code.replace("localhost:9092", kafka.bootstrap_servers).replace('"flights"', repr(flights))
    program = tmp_path / "program.py"
    program.write_text(code.replace("group_id=", 'auto_offset_reset="earliest", group_id='))
    command = [sys.executable, "-u", "-W", "error", str(program)]
    told, expected = b"", sorted(str(each).encode() for each in range(RECORDS))
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as process:
        try:
            assert process.stdout is not None
            # Lines may be mixed: they come from many threads.
            while len(found := re.findall(rb"sigterm-\S+-0 (\d+)", told)) < RECORDS and (
                more := process.stdout.read(65536)
            ):
                told += more
            assert sorted(found) == expected
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
    partition = TopicPartition(flights, 0)
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=flights) as consumer:
        assert consumer.committed(partition)[partition] == OffsetAndMetadata(offset=RECORDS, leader_epoch=0)


def processed(servers: str, topic: str) -> list[int]:
    """The offsets that a Processor handles until it has handled every record once."""
    offsets: list[int] = []
    complete = threading.Event()

    def handle(record: ConsumerRecord[Any, Any]) -> None:
        offsets.append(record.offset)
        if len(offsets) == RECORDS:
            complete.set()

    processor = Processor(handle, topics=[topic], order="partition")
    with processor.running(bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest"):
        assert complete.wait(60)
    return offsets


@pytest.mark.kafka
def test_a_program_sets_a_groups_offsets_back_as_the_page_of_offsets_says(kafka: LocalKafka, flights: str) -> None:
    """And a Processor then handles all again."""
    servers, partition = kafka.bootstrap_servers, TopicPartition(flights, 0)
    assert processed(servers, flights) == list(range(RECORDS))
    with Consumer(bootstrap_servers=servers, group_id=flights) as consumer:
        consumer.assign([partition])
        found = consumer.offsets_for_times({partition: 0})[partition]
        assert found is not None
        assert consumer.commit({partition: found.offset})
    assert processed(servers, flights) == list(range(RECORDS))


@pytest.mark.kafka
def test_the_loop_of_the_ledgers_page(kafka: LocalKafka, flights: str) -> None:
    handled = run(examples("docs/ledger.md")[0], kafka.bootstrap_servers, flights)
    assert sorted(map(str, handled)) == sorted(str(str(each).encode()) for each in range(RECORDS))


def test_the_executors_page_has_the_readmes_loop() -> None:
    assert examples("docs/partition-executor.md") == examples("README.md")[1:]


def test_the_first_example_of_the_assignors_page() -> None:
    code = examples("docs/assignors.md")[0]
    exec(compile(code, "docs/assignors.md", "exec"), {"Consumer": Consumer})


def test_the_first_example_of_the_histories_page(tmp_path: Path) -> None:
    code = examples("docs/histories.md")[0]
    (history,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs/histories.md").read_text(), re.DOTALL)
    (tmp_path / "history.jsonl").write_text(history)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/histories.md", "exec"), names)
    names["test_nothing_is_violated"](tmp_path / "history.jsonl")


def test_every_setting_is_told_of() -> None:
    page = (ROOT / "docs/settings.md").read_text()
    table = "\n".join(line for line in page.splitlines() if line.startswith("| `"))
    missing = [field.name for field in fields(ConsumerConfig) if f"`{field.name}`" not in table]
    assert missing == []
