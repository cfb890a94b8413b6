"""Statistics over two windows, and what is measured where."""

from __future__ import annotations

import math
import random

import pytest

from instride._core.metrics.meters import WINDOW, ApplicationMeter, NetworkMeter, Stat
from instride._core.metrics.snapshot import metrics
from instride._core.network.ranges import RangeChunk
from instride._wire import api
from instride.errors import AuthenticationError, ErrorCode, TransportError
from instride.records import TopicPartition
from instride.telemetry import HandedOver, OwnershipChange, RebalanceEnded, RebalanceOutcome

TP = TopicPartition("t", 0)


def test_nothing_was_recorded() -> None:
    stat = Stat()
    assert math.isnan(stat.average(1.0))
    assert math.isnan(stat.most(1.0))
    assert (stat.rate(1.0), stat.frequency(1.0), stat.number, stat.total) == (0.0, 0.0, 0, 0.0)


def test_average_most_and_rates() -> None:
    stat = Stat()
    for at, value in ((0.0, 3.0), (1.0, 9.0), (2.0, 6.0)):
        stat.record(value, at)
    assert (stat.average(2.0), stat.most(2.0), stat.number, stat.total) == (6.0, 9.0, 3, 18.0)
    assert stat.rate(2.0) == 18.0 / WINDOW, "a window at least"
    assert stat.frequency(2.0) == 3 / WINDOW


def test_what_is_old_counts_no_more_but_in_the_total() -> None:
    stat = Stat()
    stat.record(100.0, 0.0)
    stat.record(1.0, WINDOW)
    assert stat.most(WINDOW) == 100.0, "the window before counts"
    stat.record(2.0, 2 * WINDOW)
    assert (stat.average(2 * WINDOW), stat.most(2 * WINDOW)) == (1.5, 2.0)
    assert stat.rate(2 * WINDOW) == 3.0 / WINDOW
    assert math.isnan(stat.average(9 * WINDOW)), "reading rolls on as well"
    assert stat.frequency(9 * WINDOW) == 0.0
    assert (stat.number, stat.total) == (3, 103.0)


@pytest.mark.parametrize("seed", range(20))
def test_a_stat_speaks_of_what_is_newer_than_two_windows_and_of_all_in_the_last(seed: int) -> None:
    """Against a list of everything."""
    rng, stat, now = random.Random(seed), Stat(), 0.0
    values: list[tuple[float, float]] = []
    for _ in range(200):
        now += rng.expovariate(0.2)
        values.append((now, rng.random()))
        stat.record(values[-1][1], now)
        newest = [value for at, value in values if now - at < 2 * WINDOW]
        assert stat.most(now) in newest
        assert min(newest) <= stat.average(now) <= max(newest)
        assert stat.rate(now) <= sum(newest) / WINDOW + 1e-9
    assert stat.number == 200
    assert stat.total == pytest.approx(sum(value for _, value in values))


def named(network: NetworkMeter, application: ApplicationMeter, now: float) -> dict[str, float]:
    found = metrics(network, application, client_id="me", holds={}, lags={}, now=now)
    return {name.name: value for name, value in found.items() if len(name.tags) == 1}


@pytest.mark.rule("19")
def test_both_halves_of_a_hand_over_are_told_by_partition() -> None:
    meter = NetworkMeter()
    meter.released(TP, 1_700_000_000.5)
    meter.fetch_began(TP, 1_700_000_002.0)
    found = metrics(meter, ApplicationMeter(), client_id="me", holds={}, lags={}, now=3.0)
    tags = (("client-id", "me"), ("partition", str(TP.partition)), ("topic", TP.topic))
    assert {name.name: value for name, value in found.items() if name.tags == tags} == {
        "released-at": 1_700_000_000.5,
        "first-fetch-at": 1_700_000_002.0,
    }


def test_requests_are_timed_by_kind() -> None:
    meter = NetworkMeter()
    beat = api.Heartbeat(group_id="g", generation=1, member_id="m")
    for sent_at, took in ((1.0, 0.25), (2.0, 0.75)):
        meter.request_sent(beat, sent_at)
        meter.response_received(beat, api.HeartbeatResponse(error=0), sent_at, sent_at + took)
    meter.request_sent(beat, 4.0)
    meter.response_received(beat, TransportError("broke"), 4.0, 9.0)
    values = named(meter, ApplicationMeter(), 10.0)
    assert values["heartbeat-total"] == 2
    assert values["heartbeat-response-time-max"] == 750.0
    assert values["request-total"] == 3
    assert values["response-total"] == 2
    assert (values["request-latency-avg"], values["request-latency-max"]) == (500.0, 750.0)
    assert values["last-heartbeat-seconds-ago"] == 6.0
    assert values["join-total"] == 0


def test_only_joins_and_syncs_that_succeed_are_counted() -> None:
    """As in Java. The coordinator refuses each first join (KIP-394), which would halve the average."""
    meter = NetworkMeter()
    join = api.JoinGroup(
        group_id="g", session_timeout=45.0, rebalance_timeout=300.0, member_id="", protocols=(), reason=""
    )
    sync = api.SyncGroup(group_id="g", generation=1, member_id="m", assignments={})
    for error, took in ((ErrorCode.MEMBER_ID_REQUIRED, 0.25), (ErrorCode.NONE, 2.0)):
        meter.response_received(join, api.JoinGroupResponse(error=error), 1.0, 1.0 + took)
    for error, took in ((ErrorCode.REBALANCE_IN_PROGRESS, 0.25), (ErrorCode.NONE, 1.0)):
        meter.response_received(sync, api.SyncGroupResponse(error=error), 1.0, 1.0 + took)
    values = named(meter, ApplicationMeter(), 10.0)
    assert (values["join-total"], values["join-time-avg"], values["join-time-max"]) == (1, 2000.0, 2000.0)
    assert (values["sync-total"], values["sync-time-avg"], values["sync-time-max"]) == (1, 1000.0, 1000.0)
    assert values["response-total"] == 4


def test_fetches_count_records_and_bytes_of_responses_that_have_some() -> None:
    meter = NetworkMeter()
    fetch = api.Fetch(partitions=(), max_wait=0.5, min_bytes=1, max_bytes=1)
    chunk = RangeChunk(topic="t", partition=0, first_offset=0, next_offset=8, nbytes=800)
    full = api.FetchedPartition(chunk=chunk)  # type: ignore[arg-type]  # a chunk without record objects will do
    meter.response_received(fetch, api.FetchResponse(partitions={("t", 0): full, ("t", 1): full}), 1.0, 1.1)
    meter.response_received(fetch, api.FetchResponse(partitions={("t", 0): api.FetchedPartition()}), 2.0, 2.5)
    values = named(meter, ApplicationMeter(), 3.0)
    assert values["fetch-total"] == 2
    assert (values["fetch-size-avg"], values["records-per-request-avg"]) == (1600.0, 16.0)
    assert values["fetch-latency-max"] == pytest.approx(500.0)


def test_a_response_that_bids_us_wait() -> None:
    meter = NetworkMeter()
    fetch = api.Fetch(partitions=(), max_wait=0.5, min_bytes=1, max_bytes=1)
    for throttle_time in (0.0, 3.0):
        meter.response_received(fetch, api.FetchResponse(throttle_time=throttle_time), 1.0, 1.1)
    values = named(meter, ApplicationMeter(), 3.0)
    assert (values["fetch-throttle-time-avg"], values["fetch-throttle-time-max"]) == (1500.0, 3000.0)


def test_connections_that_are_open() -> None:
    meter = NetworkMeter()
    for _ in range(3):
        meter.connection_opened(1.0)
    meter.connection_closed(2.0, None, ready=True)
    meter.connection_closed(2.0, AuthenticationError("no"), ready=False)
    values = named(meter, ApplicationMeter(), 3.0)
    assert (values["connection-count"], values["connection-creation-total"], values["connection-close-total"]) == (
        2,
        3,
        1,
    )
    assert values["failed-authentication-total"] == 1


def test_rebalances_that_end_well_and_others() -> None:
    meter = NetworkMeter()
    outcomes = ((RebalanceOutcome.TAKEN, 5.0), (RebalanceOutcome.SUPERSEDED, 7.0), (RebalanceOutcome.FAILED, 9.0))
    for outcome, at in outcomes:
        meter.rebalanced(RebalanceEnded(at=at, started_at=3.0, generation=1, reason="r", outcome=outcome, joins=1))
    values = named(meter, ApplicationMeter(), 10.0)
    assert (values["rebalance-total"], values["failed-rebalance-total"]) == (1, 1)
    assert (values["rebalance-latency-avg"], values["rebalance-latency-total"]) == (2000.0, 2000.0)
    assert values["last-rebalance-seconds-ago"] == 5.0
    assert values["rebalance-rate-per-hour"] == 120.0, "one in a window of 30 seconds"


def test_polls() -> None:
    meter = ApplicationMeter()
    for began, ended in ((1.0, 2.0), (5.0, 6.0), (8.0, 8.0)):
        meter.poll_began(began)
        meter.poll_ended(ended)
    values = named(NetworkMeter(), meter, 10.0)
    assert values["last-poll-seconds-ago"] == 2.0
    assert (values["time-between-poll-avg"], values["time-between-poll-max"]) == (3500.0, 4000.0)
    assert values["poll-idle-ratio-avg"] == 0.125, "1 of 4 seconds, and 0 of 2"


def test_records_are_counted_by_topic_and_in_all() -> None:
    meter = ApplicationMeter()
    meter.returned({TP: (5, 50), TopicPartition("t", 1): (5, 50), TopicPartition("u", 0): (1, 10)}, 1.0)
    meter.returned({TP: (2, 20)}, 2.0)
    found = metrics(NetworkMeter(), meter, client_id="me", holds={}, lags={TP: 4}, now=2.0)
    by_tags = {
        tuple(dict(name.tags).values()): value for name, value in found.items() if name.name == "records-consumed-total"
    }
    assert by_tags == {("me",): 13.0, ("me", "t"): 12.0, ("me", "u"): 1.0}
    assert named(NetworkMeter(), meter, 2.0)["bytes-consumed-rate"] == 130 / WINDOW


HOUR = 3600.0


def test_topics_that_are_gone_leave_the_metrics_and_stay_in_the_sums() -> None:
    owned = {"kept"}
    meter = ApplicationMeter(lambda: owned)
    meter.returned_of("kept", 1, 10, 0.0)
    for number in range(1000):
        meter.returned_of(f"t{number}", 1, 10, number * HOUR)
        assert len(meter.by_topic.topics) < 140
    now = 999 * HOUR
    assert {"kept", "t999", "t998"} <= meter.by_topic.topics.keys(), "what is owned, and what had records of late"
    values = named(NetworkMeter(), meter, now)
    assert (values["records-consumed-total"], values["bytes-consumed-total"]) == (1001, 10_010)
    owned.clear()
    for number in range(1000, 1200):
        meter.returned_of(f"t{number}", 1, 10, number * HOUR)
    assert "kept" not in meter.by_topic.topics


def test_partitions_that_were_released_an_hour_ago_leave_the_metrics() -> None:
    meter = NetworkMeter()
    for number in range(1000):
        tp, at = TopicPartition(f"t{number}", 0), number * 60.0
        meter.fetch_began(tp, at)
        meter.read_from(tp, 3)
        meter.released(tp, at + 30.0)
    newest = [f"t{number}" for number in range(939, 1000)]
    assert [tp.topic for tp in meter.released_at] == [tp.topic for tp in meter.first_fetch_at] == newest
    assert meter.replicas == {}


def test_the_metrics_are_pruned_on_when_the_clock_was_set_back() -> None:
    """What was released at a time that is to come again would be the first for as long as that, or for ever."""
    meter = NetworkMeter()
    for number in range(1000):
        tp, at = TopicPartition(f"t{number}", 0), number * 60.0 + (1000 * HOUR if number < 10 else 0.0)
        meter.fetch_began(tp, at)
        meter.released(tp, at + 30.0)
    newest = [f"t{number}" for number in range(939, 1000)]
    assert [tp.topic for tp in meter.released_at] == [tp.topic for tp in meter.first_fetch_at] == newest


def test_a_partition_that_came_back_keeps_its_first_fetch() -> None:
    meter = NetworkMeter()
    meter.fetch_began(TP, 0.0)
    meter.released(TP, 1.0)
    meter.fetch_began(TP, 2.0)
    meter.released(TopicPartition("t", 1), 2 * HOUR)
    assert (TP in meter.released_at, meter.first_fetch_at[TP]) == (False, 2.0)
    meter.released(TP, 3 * HOUR)
    assert list(meter.released_at) == [TopicPartition("t", 1), TP]


def test_hand_overs_and_losses() -> None:
    meter = ApplicationMeter()
    meter.handed(
        HandedOver(at=9.0, partition=TP, epoch=1, how=OwnershipChange.REVOKED, since=1.0, requested_at=7.0, abandoned=3)
    )
    meter.handed(HandedOver(at=9.0, partition=TP, epoch=2, how=OwnershipChange.LOST, since=1.0, abandoned=4))
    values = named(NetworkMeter(), meter, 10.0)
    assert (values["partitions-handed-over-total"], values["partitions-lost-total"]) == (1, 1)
    assert (values["handover-time-max"], values["records-abandoned-total"]) == (2000.0, 7.0)
