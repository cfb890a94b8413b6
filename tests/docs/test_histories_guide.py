"""docs/histories.md tells how a group is recorded and judged: its example is run as it stands, on a real Kafka."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from instride.testing import LocalKafka
from instride.testing._check.command import main

PAGE = Path(__file__).parents[2] / "docs" / "histories.md"
RECORDS = 60
PATIENCE = 60.0


def example() -> str:
    (code,) = [each for each in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "def judge" in each]
    return str(code)


def write(kafka: LocalKafka, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(topic, value=str(number).encode(), partition=number % 4)
    assert producer.flush(30) == 0


class Service:
    """The page's two functions, with what a service has besides: two processes (here threads), and their handler."""

    def __init__(self, code: str) -> None:
        self._lock = threading.Lock()
        self._handled = 0
        self._given_up = threading.Event()
        self._names: dict[str, Any] = {"handle": self._handle, "running": self._running}
        exec(compile(code, "docs/histories.md", "exec"), self._names)

    def _handle(self, record: object) -> None:
        with self._lock:
            self._handled += 1

    def _running(self) -> bool:
        return self._handled < RECORDS and not self._given_up.is_set()

    def run(self, folder: Path) -> list[str]:
        folder.mkdir()
        timer = threading.Timer(PATIENCE, self._given_up.set)
        timer.start()
        with ThreadPoolExecutor(2) as pool:
            done = [pool.submit(self._names["work"], f"worker-{number}", folder) for number in range(2)]
        timer.cancel()
        for each in done:
            each.result()
        judge: Callable[[Path], list[str]] = self._names["judge"]
        return judge(folder)


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_a_group_is_recorded_and_judged_as_the_page_says(
    kafka: LocalKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = "histories-guide"
    kafka.create_topic(topic, partitions=4)
    code = example().replace("localhost:9092", kafka.bootstrap_servers).replace('"flights"', repr(topic))
    for place in ("first", "second"):  # the second group begins where the first one stood
        write(kafka, topic)
        assert Service(code).run(tmp_path / place) == []
        assert main([str(each) for each in sorted((tmp_path / place).glob("*.jsonl"))]) == 0
    output = capsys.readouterr().out
    for number in ("S1", "S4", "S9", "S10", "L3", "L4", "R1"):
        assert re.search(rf"Judged: .*\b{number}\b", output), f"{number}: {output}"

    wrong = code.replace("member.done(record)", "pass").replace("my-group", "a-group-that-is-wrong")
    assert any("S4" in each for each in Service(wrong).run(tmp_path / "third"))
