"""The benchmarks, as far as neither a broker nor a measurement is needed."""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any
from unittest import mock

import pytest

from benchmarks import assignors, canned, clients, decoder, groups, members, processors, spark_page, throughput
from benchmarks.load import FOREIGN_MOST
from benchmarks.raw_drain import shared
from benchmarks.spark_batches import Query
from benchmarks.spark_cost import Cost

Run = dict[str, float]

TASK = clients.Task(
    servers="broker:9092", topic="t", warm_rows=1, warm_seconds=0.0, most_rows=4, most_seconds=0.0, partitions=12
)
SHOW: dict[str, Callable[[list[Run]], None]] = {
    "canned": lambda runs: canned.show({"arrow": runs}),
    "throughput": lambda runs: throughput.show("100 B", {"Java": runs}),
    "groups": lambda runs: groups.show({"latency": {"instride": runs}}),
    "processors": lambda runs: processors.show({"backlog, sleep": {"instride, threads": _without_foreign(runs)}}),
    "spark": lambda runs: spark_page.show(*_of_spark(runs), foreign=0.0),
}


@pytest.mark.parametrize("case", throughput.CASES)
def test_clients_are_told_how_many_partitions_there_are(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setattr(throughput, "fill", lambda *_: 1000)
    kafka = mock.Mock(bootstrap_servers="broker:9092")
    task = throughput.prepare(kafka, throughput.CASES[case], argparse.Namespace(gigabytes=1.0, seconds=1.0))
    assert task.partitions == kafka.create_topic.call_args.kwargs["partitions"]


@pytest.mark.parametrize("partitions", [1, 2, 12])
@pytest.mark.parametrize(("connections", "outstanding"), [(1, 1), (1, 3), (2, 1), (2, 3)])
def test_the_raw_drain_fetches_each_partition_once(partitions: int, connections: int, outstanding: int) -> None:
    groups = [group for mine in shared(partitions, connections, outstanding) for group in mine]
    assert all(groups), "a fetch without partitions"
    assert sorted(each for group in groups for each in group) == list(range(partitions))


def test_the_raw_drain_has_each_of_six_ways_to_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    drain = mock.Mock()
    monkeypatch.setattr("benchmarks.raw_drain.drain", drain)
    for name in throughput.RAW:
        clients.CLIENTS[name](TASK)
    ways = [(each.kwargs["connections"], each.kwargs["outstanding"]) for each in drain.call_args_list]
    assert sorted(ways) == list(product((1, 2), (1, 2, 3)))


class Record:
    """Notes which of its fields are read."""

    def __init__(self, read: list[str]) -> None:
        self._read = read

    def __getattr__(self, name: str) -> bytes:
        self._read.append(name)
        return b""


class Consumer:
    """As much of each client as is called. Each poll returns two records."""

    read: list[str]

    def __init__(self, **_: Any) -> None:
        self._records = [Record(self.read), Record(self.read)]

    async def start(self) -> None:
        pass

    def assign(self, _: object) -> None:
        pass

    def poll(self, *, timeout: float = 0.0, timeout_ms: int = 0) -> Any:
        return {"t-0": self._records} if timeout_ms else self._records

    async def getmany(self, *, timeout_ms: int) -> Any:
        return self.poll(timeout_ms=timeout_ms)


@pytest.mark.filterwarnings("ignore:.*Use files.. instead:DeprecationWarning")  # kafka-python's own
@pytest.mark.parametrize(
    ("name", "consumer"),
    [
        ("kafka-python", "kafka.KafkaConsumer"),
        ("aiokafka", "aiokafka.AIOKafkaConsumer"),
        ("instride, records", "instride.Consumer"),
        ("instride, handler of 5 us", "instride.Consumer"),
    ],
)
def test_each_records_key_and_value_are_read(monkeypatch: pytest.MonkeyPatch, name: str, consumer: str) -> None:
    monkeypatch.setattr(Consumer, "read", [], raising=False)
    monkeypatch.setattr(consumer, Consumer)
    found = clients.read(name, TASK)
    assert found["rows"] == 2, "of the second poll: the first is warm-up"
    assert Consumer.read == ["key", "value"] * 4


def test_the_start_up_ends_with_the_first_poll_that_has_records(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = mock.Mock()
    monkeypatch.setattr("benchmarks.clients.time", clock)
    window = clients.Window(TASK)
    found = None
    for at, rows in ((10.0, 0), (11.0, 2), (12.0, 2)):
        clock.time.return_value, clock.process_time.return_value = at, at / 10
        assert found is None
        found = window.read(rows)
    assert found is not None
    assert (found["first at"], found["start-up cpu"]) == (11.0, 1.1)


def _without_foreign(runs: list[Run]) -> list[Run]:
    return [{"records/s": run["seconds"], "foreign": run["foreign"]} for run in runs]


def _of_spark(runs: list[Run]) -> tuple[spark_page.Rates, spark_page.Batches]:
    costs = [Cost(run["seconds"], 1.0, 1.0, run["foreign"]) for run in runs]
    queries = [Query([run["seconds"]], run["foreign"]) for run in runs]
    rates = {"connector": [Cost(1.0, 1.0, 1.0, 0.0)], "instride, value only": costs}
    return {1000: (1_000_000, rates)}, {12: {"connector": [Query([1.0], 0.0)], "instride": queries}}


def _run(seconds: float, foreign: float) -> Run:
    names = ("cpu", "faults", "peak_mb", "without a fetch", "start-up", "start-up cpu")
    return {**dict.fromkeys(names, seconds), "rows": 1e6, "seconds": seconds, "foreign": foreign}


@pytest.mark.parametrize("benchmark", SHOW)
def test_void_runs_are_left_out_of_the_medians(capsys: pytest.CaptureFixture[str], benchmark: str) -> None:
    counted = [_run(1.0, 0.01), _run(1.0, 0.05)]
    SHOW[benchmark](counted)
    alone = capsys.readouterr().out
    SHOW[benchmark]([*counted, *(_run(9.0, 0.06) for _ in range(3))])
    beside, remark = capsys.readouterr().out, "  3 of 5 runs are void and left out"
    assert remark in beside
    assert beside.replace(remark, "") == alone


@pytest.mark.parametrize("benchmark", SHOW)
def test_the_table_says_that_all_runs_are_void(capsys: pytest.CaptureFixture[str], benchmark: str) -> None:
    SHOW[benchmark]([_run(1.0, 0.06), _run(1.0, 0.07)])
    out = capsys.readouterr().out
    assert "VOID: other work beside each run" in out
    assert "left out" not in out


@pytest.mark.parametrize(
    ("foreign", "mark"),
    [
        ((0.01, 0.05), ""),
        ((0.01, 0.06), " (1 of 2 runs are void and left out)"),
        ((0.06, 0.07), " **VOID: other work beside each run**"),
    ],
)
def test_the_pages_sections_mark_void_runs(foreign: tuple[float, float], mark: str) -> None:
    runs = [_run(2.0 if each > FOREIGN_MOST else 1.0, each) for each in foreign]
    handled = processors._section({"backlog, sleep": {"instride, threads": _without_foreign(runs)}}, "")
    assert f"| instride, threads{mark} | {2 if 'VOID' in mark else 1} |" in handled
    assert f"Of 2 runs {sum(each > FOREIGN_MOST for each in foreign)} were void" in handled
    rates, batches = _of_spark(runs)
    read = spark_page._section(rates, batches, 0.0, "").splitlines()
    assert [line.split(" | ")[0] for line in read if line.startswith("| instride")] == [
        f"| instride, value only, 1000 B{mark}",
        f"| instride, half of the micro-batches, partitions: 12{mark}",
    ]


def test_a_raw_drain_whose_runs_are_void_is_not_the_best() -> None:
    runs = {"raw drain, 1 fetch": [_run(1.0, 0.0)], "raw drain, 3 fetches": [_run(0.5, 0.06)]}
    assert throughput.best_raw(runs) == 1.0
    del runs["raw drain, 1 fetch"]
    assert throughput.best_raw(runs) == 2.0, "there is no other"


def test_crc_checks_by_default_and_by_all_are_shown_in_one_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    consumer = mock.Mock()
    consumer.return_value.consume.return_value = [mock.Mock()]
    monkeypatch.setattr("confluent_kafka.Consumer", consumer)
    for name in (each for pair in throughput.CHECKING.items() for each in pair):
        clients.read(name, TASK)
    assert [each.args[0]["check.crcs"] for each in consumer.call_args_list] == [False, True] * 2
    names = ["raw drain, 1 fetch", "Java", "Java, without CRC", *throughput.CHECKING, *throughput.CHECKING.values()]
    throughput.show("100 B", {name: [_run(2.0 if "too" in name else 1.0, 0.0)] for name in names})
    table = capsys.readouterr().out.split("CRC checks", 1)[1].split("\n\n", 1)[0]
    shown = {line[:40].strip(): line[40:].split() for line in table.splitlines()[2:]}
    assert shown == {
        "Java": ["1.00", "1.000", "1.00", "1.000"],
        **{name: ["1.00", "1.000", "0.50", "2.000"] for name in throughput.CHECKING},
    }


@pytest.mark.parametrize(
    ("options", "left_out"),
    [
        ([], throughput.OTHERWISE),
        (["--crc"], []),
        (["--quick"], [*throughput.OTHERWISE, *throughput.CHECKING.values()]),
    ],
)
def test_which_clients_are_measured(monkeypatch: pytest.MonkeyPatch, options: list[str], left_out: list[str]) -> None:
    readers = mock.Mock(return_value={})
    monkeypatch.setattr(throughput, "readers", readers)
    throughput.main([*options, "--case"])
    assert sorted(readers.call_args.args[0]) == sorted(set(throughput.NAMES) - set(throughput.BUSY) - set(left_out))


def test_every_client_holds_and_each_part_has_five_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instride.testing.LocalKafka", mock.MagicMock())
    monkeypatch.setattr(groups, "compile_java", mock.Mock())
    monkeypatch.setattr(groups, "show", mock.Mock())
    measure = mock.Mock(side_effect=lambda *_: {"longest": 1.0})
    monkeypatch.setattr(groups, "MEASURES", dict.fromkeys(groups.PARTS, measure))
    found = groups.main([])
    settings: Any = found.pop("settings")
    assert settings["rounds"] == 5
    assert {part: {name: len(runs) for name, runs in rows.items()} for part, rows in found.items()} == {  # type: ignore[attr-defined]
        part: dict.fromkeys(names, 5) for part, names in groups.CLIENTS.items()
    }
    assert groups.CLIENTS["hold"] == groups.CLIENTS["busy hold"] == groups.HELD
    assert [*groups.main(["--clients", "Java"])] == ["settings", "hold", "busy hold"], "it has no other part"
    assert {*groups.HELD} == {*members.CLIENTS, groups.JAVA}


@pytest.mark.parametrize(("part", "judged"), [(0.981, "reached"), (0.979, "missed")])
def test_a_sentence_compares_the_storm_with_what_was_before_it(
    capsys: pytest.CaptureFixture[str], part: float, judged: str
) -> None:
    groups.show({"storm": {"instride": [{"storm / steady": part, "foreign": 0.0}]}})
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"instride: the storm returned {part} of what was returned a second before it; "
        f"the goal is 0.98 or more: {judged}"
    )


def test_storm_and_steady_are_compared_by_records_a_second() -> None:
    one, other = members.Seen(latencies=[0.1] * 6, seconds=2.0), members.Seen(latencies=[0.1] * 4, seconds=2.1)
    assert groups._returned_a_second(one, other) == 5.0


def test_a_client_that_returns_nothing_before_the_storm_misses_the_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = members.Seen(latencies=[], seconds=2.0)
    member = mock.Mock(report=lambda: nothing)
    monkeypatch.setattr(groups, "group", lambda *_: contextlib.nullcontext((member, member)))
    monkeypatch.setattr(groups, "time", mock.Mock(monotonic=lambda: 0.0))
    row = groups.storm(None, "a client", mock.Mock(seconds=0.0))
    assert (row["storm / steady"], row["returned %"]) == (0.0, 0.0)
    assert math.isnan(row["p99 s"])
    assert math.isnan(row["longest s"])


class Polls:
    """Polls that take a second each, and return ten rows; the first returns none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(canned, "time", mock.Mock(perf_counter=lambda: self.now))
        monkeypatch.setattr(canned, "Meter", lambda: self.meter(self.now))

    def meter(self, began: float) -> mock.Mock:
        return mock.Mock(read=lambda rows: {"rows": rows, "seconds": self.now - began})

    def __iter__(self) -> Iterator[int]:
        for number in range(1000):
            self.now += 1.0
            yield 10 if number else 0


def test_a_canned_run_counts_so_many_seconds_after_a_fifth_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    polls = Polls(monkeypatch)
    assert canned._read(iter(polls), 0, 10.0) == {"rows": 100, "seconds": 10.0}
    assert polls.now == 100.0 + 1 + 1 + 2 + 10, "a poll without records, one with, the warm-up"


def test_a_canned_run_counts_so_many_rows_where_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    polls = Polls(monkeypatch)
    assert canned._read(iter(polls), 100, 10.0) == {"rows": 100, "seconds": 10.0}
    assert polls.now == 100.0 + 1 + 2 + 10


@pytest.mark.parametrize(
    ("arguments", "seconds", "names"),
    [
        ([], 10.0, list(canned.CASES)),
        (["--seconds", "3", "raw"], 3.0, ["raw"]),
        (["--quick"], 1.0, list(canned.QUICK)),
    ],
)
def test_the_canned_result_says_how_long_runs_count(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], seconds: float, names: list[str]
) -> None:
    run = mock.Mock(return_value=_run(seconds, 0.0))
    monkeypatch.setattr(canned, "_run_case", run)
    found = canned.main(arguments)
    assert [*found] == ["settings", *names]
    assert found["settings"]["seconds"] == seconds  # type: ignore[index]
    assert {each.args[1:] for each in run.call_args_list} == {(0, seconds)}


def test_what_headers_cost_is_in_the_canned_cases() -> None:
    assert {canned.CASES[f"{form}, headers"][0].header for form in ("arrow", "records")} == {True}


def test_the_decoders_figures_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "seconds", lambda _: 0.5)
    found = decoder.main(["--codec", "none", "lz4"])
    assert [*found] == ["none", "lz4"]
    assert all([*rows] == [*decoder.SHAPES] for rows in found.values())
    forms = {"checksums only", "columns", "Arrow", "records", "foreign"}
    assert all(row.keys() == forms for row in found["none"].values())
    assert all(row.keys() == forms | {"of the least"} for row in found["lz4"].values())


def test_the_assignors_figures_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignors, "MEMBERS", 4)
    monkeypatch.setattr(assignors, "PARTITIONS", 100)
    monkeypatch.setattr(assignors, "of_java", lambda: {"range": [1.0, 2.0, 3.0, 4.0]})
    found = assignors.main([])
    assert list(found) == ["range", "range, Java's", *assignors.NAMES[1:]]
    assert [found["range, Java's"][each] for each in assignors.COLUMNS] == [1.0, 2.0, 3.0, 4.0]
    assert all(row.keys() == {*assignors.COLUMNS, "foreign"} for row in found.values())
