"""Each sink under a real Spark and Kafka: two applications share a topic, the function fails, and a driver is killed or
stopped between the data and the commit. `make sink-attack` does it 50 times for each sink.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from app_help import App
from pipeline_help import wait_for
from table_help import READERS, ready

from filled_topics import fill_values
from instride.testing import LocalKafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

Topic = Callable[..., str]


class Apps:
    """A and B. Whoever was killed is started anew."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._by_name: dict[str, App] = {}
        self.both()

    def both(self) -> tuple[App, App]:
        new = [name for name in "AB" if name not in self._by_name or self._by_name[name].process.poll() is not None]
        for name in new:
            self._by_name[name] = App(name, self._folder)
            self._stack.callback(self._by_name[name].end)
        for name in new:
            self._by_name[name].wait_ready()
        return self._by_name["A"], self._by_name["B"]


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apps]:
    with ExitStack() as stack:
        yield Apps(tmp_path_factory.mktemp("apps"), stack)


def values_in(kind: str, out: Path) -> Counter[str]:
    table = READERS[kind](out)
    return Counter(each.decode() for each in table["value"].to_pylist()) if table.num_rows else Counter()


def attack(apps: Apps, kafka: LocalKafka, topic: str, out: Path, kind: str, fault: str, commit: int) -> None:
    a, b = apps.both()
    values = Counter(fill_values(kafka, topic, dict.fromkeys(range(4), 700)))
    a.run(kafka, topic, out, sink=kind, fault=fault, commit=commit, bad="2:650")
    if fault == "SIGSTOP":
        os.waitid(os.P_PID, a.process.pid, os.WSTOPPED)
    else:
        a.process.wait()
        a.kill()  # and its pipe
    b.run(kafka, topic, out, sink=kind, bad="2:650")
    b.wait(lambda: values_in(kind, out) == values, f"to take over all of {sum(values.values())} rows")
    if fault == "SIGSTOP":
        a.process.send_signal(signal.SIGCONT)
        outcome = (out.parent / "gate").with_suffix(".outcome")
        wait_for(lambda: outcome.exists() and outcome.read_text(), "the zombie's commit")
        assert outcome.read_text() == "conflict"
    values += Counter(fill_values(kafka, topic, dict.fromkeys(range(4), 100), start=700))
    b.wait(lambda: values_in(kind, out).total() >= values.total(), "the rows that came later")
    b.leave()
    if fault == "SIGSTOP":
        a.leave()
    there = values_in(kind, out)
    assert there == values, f"missing {list(values - there)[:5]}, too many {list(there - values)[:5]}"
    assert (out.parent / "gate").with_suffix(".failed").exists(), "the function never failed"
    assert_long(out)


def assert_long(out: Path) -> None:
    """With SINK_LONG=1 some range was read as a long one."""
    assert not os.environ.get("SINK_LONG") or (out.parent / "gate").with_suffix(".long").exists()


@pytest.mark.drawn(1)
# The one that is killed comes last: else its Spark would have to be started again. A driver that is stopped within a
# transaction of SQLite, Iceberg's catalogue here, locks the catalogue for the others: there the driver is killed.
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "fault"), [("postgresql", "SIGSTOP"), ("iceberg", "SIGKILL")])
def test_two_drivers_one_of_which_is_gone_between_data_and_commit(
    apps: Apps,
    kafka: LocalKafka,
    kafka_topic: Topic,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: str,
    fault: str,
) -> None:
    ready(kind, request, tmp_path)
    attack(apps, kafka, kafka_topic(4), tmp_path / "out", kind, fault, commit=3)
