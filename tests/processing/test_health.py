"""What a probe and a dashboard are told of a record that is stuck: which one it is, and nothing of the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_help import Bench, keyed
from processing_help import P0, P1, tp

from instride import Processor
from instride._processing.health import holdings, metrics
from instride._processing.poll_loop import Drains
from instride.errors import ConfigError
from instride.telemetry import (
    Blocker,
    Hold,
    OwnershipChange,
    PartitionFlows,
    PartitionStalled,
    StallCause,
    TelemetryEvent,
)


def hold(number: int) -> Hold:
    return Hold(partition=tp(number), epoch=1, generation=1, state=OwnershipChange.ASSIGNED, since=0.0)


def test_a_stuck_record_is_named_by_the_metrics_and_the_holdings() -> None:
    bench = Bench(order="none")
    bench.submit(keyed(P0, "ab") + keyed(P1, "a"))
    tasks = bench.takes()
    stuck = [task for task in tasks if task.lane.partition == P0]
    found = metrics(bench.engine, Drains(), 61.4, stuck)
    assert (found["records-stuck"], found["oldest-in-progress-age"]) == (2, 61.4)
    assert {name: value for name, value in found.items() if "stuck-offset" in name} == {"stuck-offset.t-0": 0}
    holds = {each: hold(each.partition) for each in (P0, P1)}
    blocker = Blocker(text="the record at offset 0, which has been in progress for 61 s", offset=0)
    assert holdings(holds, stuck, 61.4) == {**holds, P0: replace(holds[P0], blocker=blocker)}


def test_what_a_hand_over_waits_for_stays_its_blocker_and_what_is_gone_has_none() -> None:
    bench = Bench(order="none")
    bench.submit(keyed(P0, "a") + keyed(P1, "a"))
    stuck = bench.takes()
    delayed = replace(hold(0), blocker=Blocker(text="the commit"))
    assert holdings({P0: delayed}, stuck, 61.4) == {P0: delayed}


def test_where_nothing_is_stuck_no_metric_names_a_record() -> None:
    bench = Bench(order="none")
    bench.submit(keyed(P0, "a"))
    bench.takes()
    found = metrics(bench.engine, Drains(), 1.0)
    assert found["records-stuck"] == 0
    assert not [name for name in found if name.startswith("stuck-offset")]


def test_a_partition_that_is_behind_and_brings_nothing_is_stalled_until_it_flows() -> None:
    """The consumer's telemetry says so; the user's listener hears it too."""
    heard: list[TelemetryEvent] = []
    running = Processor(print, topics=["t"]).running(bootstrap_servers="h:1", group_id="g", telemetry=heard.append)
    told = running.consumer._config.telemetry
    assert told is not None
    stalls = PartitionStalled(at=60.0, partition=P1, epoch=1, seconds=60.0, cause=StallCause.NO_LEADER)
    flows = PartitionFlows(at=70.0, partition=P1, epoch=1, seconds=70.0)
    assert not running.health().stalled
    told(stalls)
    assert running.health().stalled
    assert running.health().stalled_partitions == (P1,)
    told(flows)
    assert not running.health().stalled
    assert heard == [stalls, flows]


def test_a_listener_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="telemetry must be callable"):
        Processor(print, topics=["t"]).running(bootstrap_servers="h:1", group_id="g", telemetry=5)  # type: ignore[arg-type]
