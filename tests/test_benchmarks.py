"""The benchmarks at a real broker, as far as no broker is needed."""

from __future__ import annotations

import argparse
from unittest import mock

import pytest

from benchmarks import throughput
from benchmarks.raw_drain import shared


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
