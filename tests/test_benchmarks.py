"""The benchmarks, as far as neither a broker nor a measurement is needed."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from unittest import mock

import pytest

from benchmarks import canned, groups, throughput
from benchmarks.raw_drain import shared

Run = dict[str, float]

SHOW: dict[str, Callable[[list[Run]], None]] = {
    "canned": lambda runs: canned.show({"arrow": runs}),
    "throughput": lambda runs: throughput.show("100 B", {"Java": runs}),
    "groups": lambda runs: groups.show({"latency": {"instride": runs}}),
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


def _run(seconds: float, foreign: float) -> Run:
    names = ("cpu", "faults", "without a fetch")
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


def test_a_raw_drain_whose_runs_are_void_is_not_the_best() -> None:
    runs = {"raw drain, 1 fetch": [_run(1.0, 0.0)], "raw drain, 3 fetches": [_run(0.5, 0.06)]}
    assert throughput.best_raw(runs) == 1.0
    del runs["raw drain, 1 fetch"]
    assert throughput.best_raw(runs) == 2.0, "there is no other"
