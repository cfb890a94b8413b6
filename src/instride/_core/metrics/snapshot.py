"""All metrics of a consumer at one moment.

Laws
1. Any thread may make one, while both machines work: every number is read at once, though not all at the same instant.
2. Every name is in `instride.metrics.DESCRIPTIONS`, and everything there is in a snapshot, but for what has no topic or
   partition yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from instride._core.metrics.meters import (
    NOTHING,
    NOTHING_BUFFERED,
    ApplicationMeter,
    Buffered,
    ByTopic,
    NetworkMeter,
    Stat,
)
from instride.metrics import COORDINATOR, FETCH, GENERAL, HANDOVER, MetricName
from instride.records import TopicPartition
from instride.telemetry import Hold, OwnershipChange

__all__ = ["metrics"]

_HOUR = 3600.0
_LEADER = -1


class _Value(NamedTuple):
    group: str
    name: str
    value: float
    tags: tuple[tuple[str, str], ...] = ()


def metrics(
    network: NetworkMeter,
    application: ApplicationMeter,
    *,
    client_id: str,
    holds: Mapping[TopicPartition, Hold],
    lags: Mapping[TopicPartition, int],
    failed: int = 0,
    buffered: Buffered = NOTHING_BUFFERED,
    now: float,
) -> dict[MetricName, float]:
    """lags: of the partitions of which it is known. failed: how many partitions do not go on."""
    values = [
        *_general(network, application, now),
        *_coordinator(network, len(holds), now),
        *_fetch(network, application, lags, now),
        *_handover(application, holds, now),
        *_without_owner(network),
        _Value(FETCH, "failed-partitions", failed),
        _Value(FETCH, "buffered-bytes", buffered.nbytes),
        _Value(FETCH, "buffered-bytes-limit", buffered.limit),
    ]
    client = ("client-id", client_id)
    return {
        MetricName(group=each.group, name=each.name, tags=tuple(sorted((client, *each.tags)))): float(each.value)
        for each in values
    }


def _general(network: NetworkMeter, application: ApplicationMeter, now: float) -> Iterator[_Value]:
    yield _Value(GENERAL, "connection-count", network.opened.number - network.closed.number)
    for name, stat in (
        ("connection-creation", network.opened),
        ("connection-close", network.closed),
        ("request", network.sent),
        ("response", network.latency),
        ("failed-authentication", network.refused),
    ):
        yield from _how_often(GENERAL, name, stat, now)
    yield from _over_time(GENERAL, "request-latency", network.latency, now)
    yield _Value(GENERAL, "last-poll-seconds-ago", _ago(application.last_poll, now))
    yield from _over_time(GENERAL, "time-between-poll", application.between_polls, now)
    yield _Value(GENERAL, "poll-idle-ratio-avg", application.idle_ratio.average(now))
    yield _Value(GENERAL, "commit-sync-time-ns-total", application.commit_seconds * 1e9)
    yield _Value(GENERAL, "committed-time-ns-total", application.committed_seconds * 1e9)


def _coordinator(network: NetworkMeter, assigned: int, now: float) -> Iterator[_Value]:
    yield _Value(COORDINATOR, "assigned-partitions", assigned)
    kinds = network.by_kind
    for kind in ("commit", "heartbeat", "join", "sync"):
        yield from _how_often(COORDINATOR, kind, kinds[kind], now)
    yield from _over_time(COORDINATOR, "commit-latency", kinds["commit"], now)
    yield from _over_time(COORDINATOR, "join-time", kinds["join"], now)
    yield from _over_time(COORDINATOR, "sync-time", kinds["sync"], now)
    yield _Value(COORDINATOR, "heartbeat-response-time-max", kinds["heartbeat"].most(now))
    yield _Value(COORDINATOR, "last-heartbeat-seconds-ago", _ago(network.last_heartbeat, now))
    yield from _over_time(COORDINATOR, "rebalance-latency", network.rebalances, now)
    yield _Value(COORDINATOR, "rebalance-latency-total", network.rebalances.total)
    yield _Value(COORDINATOR, "last-rebalance-seconds-ago", _ago(network.last_rebalance, now))
    for name, stat in (("rebalance", network.rebalances), ("failed-rebalance", network.failed_rebalances)):
        yield _Value(COORDINATOR, f"{name}-total", stat.number)
        yield _Value(COORDINATOR, f"{name}-rate-per-hour", stat.frequency(now) * _HOUR)


def _fetch(
    network: NetworkMeter, application: ApplicationMeter, lags: Mapping[TopicPartition, int], now: float
) -> Iterator[_Value]:
    fetches = network.by_kind["fetch"]
    yield from _how_often(FETCH, "fetch", fetches, now)
    yield from _over_time(FETCH, "fetch-latency", fetches, now)
    yield from _over_time(FETCH, "fetch-size", network.fetch_bytes, now)
    yield from _over_time(FETCH, "fetch-throttle-time", network.throttled, now)
    yield from _how_often(FETCH, "position-reset", network.resets, now)
    yield _Value(FETCH, "offsets-skipped-total", network.resets.total)
    yield _Value(FETCH, "records-per-request-avg", network.fetch_records.average(now))
    by_topic = application.by_topic
    yield from _consumed(by_topic, (), now)
    for topic, meter in by_topic.topics.items():
        yield from _consumed(ByTopic({topic: meter}), (("topic", topic),), now)
    yield _Value(FETCH, "records-lag-max", max([*lags.values()], default=NOTHING))
    for tp, lag in lags.items():
        tags = (("partition", str(tp.partition)), ("topic", tp.topic))
        yield _Value(FETCH, "records-lag", lag, tags)
        yield _Value(FETCH, "preferred-read-replica", network.replicas.get(tp, _LEADER), tags)


def _consumed(by_topic: ByTopic, tags: tuple[tuple[str, str], ...], now: float) -> Iterator[_Value]:
    """Of these together: a poll counts what it returned of a topic once."""
    meters = by_topic.topics.values()
    for name, stats, gone in (
        ("records-consumed", [each.records for each in meters], by_topic.gone_records),
        ("bytes-consumed", [each.bytes for each in meters], by_topic.gone_bytes),
    ):
        yield _Value(FETCH, f"{name}-total", gone + sum(stat.total for stat in stats), tags)
        yield _Value(FETCH, f"{name}-rate", sum(stat.rate(now) for stat in stats), tags)


def _handover(application: ApplicationMeter, holds: Mapping[TopicPartition, Hold], now: float) -> Iterator[_Value]:
    requested = [hold.requested_at for hold in holds.values() if hold.requested_at is not None]
    delayed = sum(hold.state is OwnershipChange.DELAYED for hold in holds.values())
    yield _Value(HANDOVER, "partitions-to-be-revoked", len(requested))
    yield _Value(HANDOVER, "partitions-delayed", delayed)
    yield _Value(HANDOVER, "oldest-request-seconds-ago", _ago(min(requested, default=float("-inf")), now))
    yield _Value(HANDOVER, "records-uncommitted", sum(hold.uncommitted for hold in holds.values()))
    yield from _over_time(HANDOVER, "handover-time", application.handed_over, now)
    yield _Value(HANDOVER, "partitions-handed-over-total", application.handed_over.number)
    yield _Value(HANDOVER, "partitions-lost-total", application.lost.number)
    yield _Value(HANDOVER, "records-abandoned-total", application.abandoned.total)


def _without_owner(network: NetworkMeter) -> Iterator[_Value]:
    for name, times in (("released-at", network.released_at.copy()), ("first-fetch-at", network.first_fetch_at.copy())):
        for tp, at in times.items():
            yield _Value(HANDOVER, name, at, (("partition", str(tp.partition)), ("topic", tp.topic)))


def _over_time(group: str, name: str, stat: Stat, now: float) -> Iterator[_Value]:
    yield _Value(group, f"{name}-avg", stat.average(now))
    yield _Value(group, f"{name}-max", stat.most(now))


def _how_often(group: str, name: str, stat: Stat, now: float) -> Iterator[_Value]:
    yield _Value(group, f"{name}-total", stat.number)
    yield _Value(group, f"{name}-rate", stat.frequency(now))


def _ago(at: float, now: float) -> float:
    return -1.0 if at == float("-inf") else max(0.0, now - at)
