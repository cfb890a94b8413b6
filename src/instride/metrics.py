"""The numbers that `Consumer.metrics` returns: their names, which are the Java client's where it has them, and units.

Laws
1. A name of Java's means what it means there, in Java's unit: most times are milliseconds. `MetricName.unit` says so.
2. Averages, greatest values and rates speak of the last 30 to 60 seconds; totals of the consumer's whole life. Those of
   a topic that is not ours any more, and had no record for an hour, are dropped when others come, and begin anew.
3. NaN is "nothing was recorded yet"; -1 of a time ago is "never".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

__all__ = ["DESCRIPTIONS", "Description", "MetricName"]

GENERAL: Final = "consumer-metrics"
COORDINATOR: Final = "consumer-coordinator-metrics"
FETCH: Final = "consumer-fetch-manager-metrics"
HANDOVER: Final = "consumer-handover-metrics"

Unit = Literal["", "ms", "ns", "s", "bytes", "records", "1/s", "1/h", "bytes/s", "records/s", "ratio"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """kind: a counter only rises. java: the Java client has it, by this group and name. tags: what tells several of the
    name apart, besides client-id."""

    unit: Unit
    kind: Literal["gauge", "counter"]
    text: str
    java: bool = True
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MetricName:
    """Which number. tags: pairs of name and value, sorted; "client-id" always, "topic" and "partition" of some."""

    group: str
    name: str
    tags: tuple[tuple[str, str], ...] = ()

    @cached_property
    def description(self) -> Description:
        """What is known of every metric of this group and name."""
        per = tuple(name for name, _ in self.tags if name != "client-id")
        return DESCRIPTIONS[self.group, self.name, per]

    @property
    def unit(self) -> str:
        """Of the value: "ms", "bytes/s", ...; "" of a plain number."""
        return self.description.unit

    def __str__(self) -> str:
        return f"{self.group}:{self.name}" + "".join(f",{name}={value}" for name, value in self.tags)


def _over_time(name: str, unit: Unit, what: str) -> dict[str, tuple[Unit, str]]:
    return {f"{name}-avg": (unit, f"{what}, on average"), f"{name}-max": (unit, f"{what}, at most")}


_GAUGES: Final[dict[str, dict[str, tuple[Unit, str]]]] = {
    GENERAL: {
        "connection-count": ("", "connections that are open"),
        "connection-creation-rate": ("1/s", "connections opened"),
        "connection-close-rate": ("1/s", "connections closed"),
        "request-rate": ("1/s", "requests sent"),
        "response-rate": ("1/s", "responses received"),
        **_over_time("request-latency", "ms", "time from a request to its response"),
        "failed-authentication-rate": ("1/s", "connections refused for our credentials"),
        "last-poll-seconds-ago": ("s", "time since poll was called"),
        **_over_time("time-between-poll", "ms", "from one call of poll to the next"),
        "poll-idle-ratio-avg": ("ratio", "the part of the time that is spent inside poll"),
    },
    COORDINATOR: {
        "assigned-partitions": ("", "partitions that are owned"),
        **_over_time("commit-latency", "ms", "time from a commit to its response"),
        "commit-rate": ("1/s", "commit responses received"),
        "heartbeat-rate": ("1/s", "heartbeat responses received"),
        "heartbeat-response-time-max": ("ms", "time from a heartbeat to its response, at most"),
        "last-heartbeat-seconds-ago": ("s", "time since a heartbeat was sent"),
        **_over_time("join-time", "ms", "time from a JoinGroup that succeeds to its response"),
        "join-rate": ("1/s", "JoinGroup responses received, those with an error excepted"),
        **_over_time("sync-time", "ms", "time from a SyncGroup that succeeds to its response"),
        "sync-rate": ("1/s", "SyncGroup responses received, those with an error excepted"),
        **_over_time("rebalance-latency", "ms", "time from the first join to the poll that took the assignment"),
        "rebalance-rate-per-hour": ("1/h", "rebalances that ended well"),
        "last-rebalance-seconds-ago": ("s", "time since a rebalance ended well"),
        "failed-rebalance-rate-per-hour": ("1/h", "rebalances during which the membership ended"),
    },
    FETCH: {
        **_over_time("fetch-latency", "ms", "time from a fetch to its response, the broker's waiting included"),
        "fetch-rate": ("1/s", "fetch responses received"),
        **_over_time(
            "fetch-throttle-time", "ms", "time for which a response throttles this client, because a quota is used up"
        ),
        **_over_time("fetch-size", "bytes", "memory of the records of a response that has some"),
        "records-per-request-avg": ("records", "records of a response that has some, on average"),
        "bytes-consumed-rate": ("bytes/s", "memory of the records that polls returned"),
        "records-consumed-rate": ("records/s", "records that polls returned"),
        "position-reset-rate": ("1/s", "positions that were reset because the log does not have them"),
        "records-lag-max": ("records", "the greatest lag of any partition"),
        "failed-partitions": ("", "partitions that an error has stopped"),
        "buffered-bytes": ("bytes", "memory of the records that were fetched and that no poll has returned yet"),
        "buffered-bytes-limit": (
            "bytes",
            "a loose bound: fetch_buffer_bytes, and max_partition_fetch_bytes for each owned partition; one batch that "
            "is larger passes alone",
        ),
    },
    HANDOVER: {
        "partitions-to-be-revoked": ("", "owned partitions whose revocation the group requested"),
        "partitions-delayed": ("", "those of them that are delayed"),
        "oldest-request-seconds-ago": ("s", "time since the earliest request for one of these revocations"),
        "records-uncommitted": ("records", "records that polls returned and of which no commit is known"),
        **_over_time("handover-time", "ms", "time from the request to the release of a partition"),
    },
}

_COUNTERS: Final[dict[str, dict[str, tuple[Unit, str]]]] = {
    GENERAL: {
        "connection-creation-total": ("", "connections opened"),
        "connection-close-total": ("", "connections closed"),
        "request-total": ("", "requests sent"),
        "response-total": ("", "responses received"),
        "failed-authentication-total": ("", "connections refused for our credentials"),
        "commit-sync-time-ns-total": ("ns", "time spent inside commit"),
        "committed-time-ns-total": ("ns", "time spent inside committed"),
    },
    COORDINATOR: {
        "commit-total": ("", "commit responses received"),
        "heartbeat-total": ("", "heartbeat responses received"),
        "join-total": ("", "JoinGroup responses received, those with an error excepted"),
        "sync-total": ("", "SyncGroup responses received, those with an error excepted"),
        "rebalance-latency-total": ("ms", "time of all rebalances that ended well"),
        "rebalance-total": ("", "rebalances that ended well"),
        "failed-rebalance-total": ("", "rebalances during which the membership ended"),
    },
    FETCH: {
        "fetch-total": ("", "fetch responses received"),
        "position-reset-total": ("", "positions that were reset because the log does not have them"),
        "offsets-skipped-total": ("", "offsets that these resets skipped"),
        "bytes-consumed-total": ("bytes", "memory of the records that polls returned"),
        "records-consumed-total": ("records", "records that polls returned"),
    },
    HANDOVER: {
        "partitions-handed-over-total": ("", "partitions whose revocation is complete"),
        "partitions-lost-total": ("", "partitions that were lost, without a hand-over"),
        "records-abandoned-total": (
            "records",
            "records that polls had returned, without a known commit when their partition was lost or released",
        ),
    },
}

_NOT_JAVAS: Final = frozenset(
    {
        "request-latency-avg",
        "request-latency-max",
        "buffered-bytes",
        "buffered-bytes-limit",
        "failed-partitions",
        "offsets-skipped-total",
        "position-reset-rate",
        "position-reset-total",
    }
)
"""Java has the first two of each node, in another group."""

_PER_TOPIC: Final = (
    "bytes-consumed-rate",
    "bytes-consumed-total",
    "records-consumed-rate",
    "records-consumed-total",
)

_PER_PARTITION: Final[dict[tuple[str, str], tuple[Unit, str]]] = {
    (FETCH, "records-lag"): ("records", "records between the position and the log's end, as far as it is known"),
    (FETCH, "preferred-read-replica"): (
        "",
        "the node of the follower that the last response came from (KIP-392); -1: it came from the leader",
    ),
    (HANDOVER, "released-at"): (
        "s",
        "the time, since 1970, when this consumer last released it, or learnt that it had lost it",
    ),
    (HANDOVER, "first-fetch-at"): ("s", "the time, since 1970, of the first fetch of it in its newest assignment"),
}


def _descriptions() -> dict[tuple[str, str, tuple[str, ...]], Description]:
    found: dict[tuple[str, str, tuple[str, ...]], Description] = {}
    kinds: tuple[tuple[Literal["gauge", "counter"], dict[str, dict[str, tuple[Unit, str]]]], ...] = (
        ("gauge", _GAUGES),
        ("counter", _COUNTERS),
    )
    for kind, groups in kinds:
        for group, names in groups.items():
            for name, (unit, text) in names.items():
                java = group != HANDOVER and name not in _NOT_JAVAS
                found[group, name, ()] = Description(unit=unit, kind=kind, text=text, java=java)
                if name in _PER_TOPIC:
                    found[group, name, ("topic",)] = Description(
                        unit=unit, kind=kind, text=f"{text}, of the topic", tags=("topic",)
                    )
    for (group, name), (unit, text) in _PER_PARTITION.items():
        tags = ("partition", "topic")
        found[group, name, tags] = Description(unit=unit, kind="gauge", text=text, tags=tags, java=group != HANDOVER)
    return found


DESCRIPTIONS: Final = _descriptions()
"""Of every metric, by group, name and what tells several of the name apart. docs/metrics.md is made of it."""
