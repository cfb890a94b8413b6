"""The source's options, checked: names and meaning are those of Spark's own Kafka connector.

Laws
1. Everything wrong is found here, before a broker is asked: the error names the option and says what to write.
2. Names are compared without regard to case, as Spark does; what has no meaning for batch or for streaming is refused
   there, except for the trigger's limits, which the connector passes over in batch.
3. What the connector has and cannot be kept here is refused by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from instride._unknown_settings import config_from_settings
from instride.errors import ConfigError
from instride.records import TopicPartition
from instride.spark._data_source.security import consumer_settings, member_settings

__all__ = ["EARLIEST", "LATEST", "Bound", "Options", "Topics", "parse_options"]

EARLIEST: Final = -2
LATEST: Final = -1
_MOST: Final = 2**63 - 1
"""As Java's longs."""
COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")

_TAKEN: Final = {
    name.lower(): name
    for name in (
        "assign",
        "subscribe",
        "subscribePattern",
        "startingOffsets",
        "startingOffsetsByTimestamp",
        "startingTimestamp",
        "startingOffsetsByTimestampStrategy",
        "endingOffsets",
        "endingOffsetsByTimestamp",
        "endingTimestamp",
        "failOnDataLoss",
        "maxOffsetsPerTrigger",
        "maxBytesPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "minPartitions",
        "maxPartitions",
        "maxRecordsPerPartition",
        "includeHeaders",
        "columns",
        "commitOffsetsToGroup",
        "consumerGroup",
        "statelessQuery",
        "pushFilters",
        "kafkaConsumer.pollTimeoutMs",
        # These change nothing here: readers belong to no group, and time-outs bound what is asked of brokers.
        "groupIdPrefix",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
    )
}
_ENDING: Final = ("endingoffsets", "endingoffsetsbytimestamp", "endingtimestamp")
_STREAMING: Final = ("commitoffsetstogroup", "statelessquery")
_NOT_IN_GROUPS: Final = {
    "assign": "the group assigns the partitions; subscribe to the topics",
    "commitOffsetsToGroup": "the offsets are committed to consumerGroup",
    **dict.fromkeys(
        ("startingOffsetsByTimestamp", "startingTimestamp"),
        "the group's committed offsets say where to go on; kafka-consumer-groups --reset-offsets moves them",
    ),
}
_DURATION: Final = re.compile(r"\s*(\d{1,19})\s*(ms|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)?\s*", re.I)
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

Mode = Literal["batch", "stream"] | None
"""None: it is not known yet, as when Spark asks for the schema. Then nothing is refused that holds for one only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """What is read: one of the three."""

    assign: tuple[TopicPartition, ...] = ()
    subscribe: tuple[str, ...] = ()
    pattern: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Where reading begins, or ends: one of these.

    every: EARLIEST or LATEST for all partitions. offsets: of each, or one of the two. timestamp, timestamps: in
    milliseconds, for all or each. group: the offsets that this Kafka group has committed.
    """

    every: int | None = None
    offsets: tuple[tuple[TopicPartition, int], ...] = ()
    timestamp: int | None = None
    timestamps: tuple[tuple[TopicPartition, int], ...] = ()
    group: str | None = None
    unmatched: Literal["error", "latest"] = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """See docs/spark-source.md. consumer: the consumer's settings, which may hold secrets: in no repr.

    group: of group mode. member: the settings that only a member of a group has.
    """

    topics: Topics
    starting: Bound
    ending: Bound
    fail_on_data_loss: bool
    max_offsets: int | None
    max_bytes: int | None
    min_offsets: int | None
    max_delay: float
    min_partitions: int | None
    max_partitions: int | None
    max_records: int | None
    columns: tuple[str, ...]
    commit_group: str | None
    group: str | None
    stateless: bool
    push_filters: bool
    read_timeout: float
    consumer: tuple[tuple[str, Any], ...] = field(repr=False)
    member: tuple[tuple[str, Any], ...] = ()


def parse_options(given: Mapping[str, str], mode: Mode) -> Options:
    """Raises ConfigError."""
    plain = {name.lower(): str(value) for name, value in given.items()}
    kafka = {name.removeprefix("kafka."): value for name, value in plain.items() if name.startswith("kafka.")}
    _check_names({name for name in plain if not name.startswith("kafka.")}, mode)
    low, high = _count(plain, "minOffsetsPerTrigger"), _count(plain, "maxOffsetsPerTrigger")
    if low is not None and high is not None and low > high:
        raise ConfigError(f"minOffsetsPerTrigger ({low}) is more than maxOffsetsPerTrigger ({high})")
    least, most = _count(plain, "minPartitions"), _count(plain, "maxPartitions")
    if least is not None and most is not None and least > most:
        raise ConfigError(f"minPartitions ({least}) is more than maxPartitions ({most})")
    group = _group(plain, kafka, mode)
    return Options(
        topics=_topics(plain),
        starting=_starting(plain, kafka, mode),
        ending=_ending(plain),
        fail_on_data_loss=_flag(plain, "failOnDataLoss", default=True),
        max_offsets=high,
        max_bytes=_count(plain, "maxBytesPerTrigger"),
        min_offsets=low,
        # Spark's default, as for pollTimeoutMs below.
        max_delay=_duration(plain, "maxTriggerDelay", 900.0),
        min_partitions=least,
        max_partitions=most,
        max_records=_count(plain, "maxRecordsPerPartition"),
        columns=_columns(plain),
        commit_group=_named(plain, "commitOffsetsToGroup"),
        group=group,
        stateless=_flag(plain, "statelessQuery", default=False),
        push_filters=_flag(plain, "pushFilters", default=False),
        read_timeout=(_count(plain, "kafkaConsumer.pollTimeoutMs") or 120_000) / 1000,
        consumer=_consumer(kafka),
        member=_member(kafka) if group is not None else (),
    )


def _check_names(names: set[str], mode: Mode) -> None:
    for name in sorted(names):
        if name not in _TAKEN:
            raise ConfigError(f"the source has no option {name!r}; docs/spark-source.md lists its options")
        if mode == "stream" and name in _ENDING:
            raise ConfigError(f"{_TAKEN[name]} is not for streaming: a streaming query has no end")
        if mode == "stream" and name == "pushfilters":
            raise ConfigError("pushFilters is not for streaming: Spark pushes no filter into a streaming query")
        if mode == "batch" and name in _STREAMING:
            raise ConfigError(f"{_TAKEN[name]} is for streaming: a batch query commits no offsets, and keeps no state")


def _consumer(kafka: Mapping[str, str]) -> tuple[tuple[str, Any], ...]:
    if not kafka.get("bootstrap.servers"):
        raise ConfigError('the option "kafka.bootstrap.servers" is missing')
    settings = consumer_settings(kafka)
    # Only to be checked: law 1.
    config_from_settings(settings)
    return tuple(sorted(settings.items()))


def _group(plain: Mapping[str, str], kafka: Mapping[str, str], mode: Mode) -> str | None:
    """Of group mode, with which some options do not go."""
    group = _named(plain, "consumerGroup")
    if group is None:
        return None
    if mode == "batch":
        raise ConfigError("consumerGroup is for streaming: a batch query is no member of a group")
    for name, reason in _NOT_IN_GROUPS.items():
        if name.lower() in plain:
            raise ConfigError(f"{name} does not go with consumerGroup: {reason}")
    if plain.get("startingoffsets", "latest").strip().lower() not in ("earliest", "latest"):
        raise ConfigError(
            "startingOffsets must be earliest or latest with consumerGroup: it counts where the group has committed "
            "nothing. kafka-consumer-groups --reset-offsets moves a group elsewhere"
        )
    if kafka.get("group.id", group) != group:
        raise ConfigError("kafka.group.id names another group than consumerGroup: leave it out")
    return group


def _named(plain: Mapping[str, str], name: str) -> str | None:
    """A group."""
    group = plain.get(name.lower())
    if group is not None and not group.strip():
        raise ConfigError(f"{name} is empty: name the group")
    return group


def _member(kafka: Mapping[str, str]) -> tuple[tuple[str, Any], ...]:
    settings = member_settings(kafka)
    config_from_settings(consumer_settings(kafka) | settings)
    return tuple(sorted(settings.items()))


def _topics(plain: Mapping[str, str]) -> Topics:
    chosen = [_TAKEN[name] for name in ("assign", "subscribe", "subscribepattern") if name in plain]
    if len(chosen) != 1:
        raise ConfigError(
            f"give one of the options assign, subscribe and subscribePattern; there are {chosen or 'none'}"
        )
    value = plain[chosen[0].lower()].strip()
    if not value:
        raise ConfigError(f"{chosen[0]} is empty")
    if chosen[0] == "assign":
        parts = _json("assign", value)
        if not parts or not all(isinstance(numbers, list) for numbers in parts.values()):
            raise ConfigError('assign must be JSON such as {"topic": [0, 1]}')
        found = [TopicPartition(topic, _whole("assign", n)) for topic, numbers in parts.items() for n in numbers]
        if not found:
            raise ConfigError('assign names no partition; write JSON such as {"topic": [0, 1]}')
        return Topics(assign=tuple(sorted(found)))
    if chosen[0] == "subscribe":
        names = {name.strip() for name in value.split(",") if name.strip()}
        if not names:
            raise ConfigError(f"subscribe names no topic; it is {value!r}")
        return Topics(subscribe=tuple(sorted(names)))
    try:
        re.compile(value)
    except re.error as error:
        raise ConfigError(f"subscribePattern is no regular expression: {error}") from None
    return Topics(pattern=value)


def _starting(plain: Mapping[str, str], kafka: Mapping[str, str], mode: Mode) -> Bound:
    strategy = plain.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise ConfigError(f'startingOffsetsByTimestampStrategy must be "error" or "latest"; it is {strategy!r}')
    unmatched: Literal["error", "latest"] = "latest" if strategy == "latest" else "error"
    timed = _timed(plain, "startingTimestamp", "startingOffsetsByTimestamp", unmatched)
    if timed is not None:
        return timed
    # Defaults of Spark's connector.
    value = plain.get("startingoffsets", "latest" if mode == "stream" else "earliest").strip()
    if value.lower() == "group":
        if not kafka.get("group.id"):
            raise ConfigError('startingOffsets is "group": name the group with the option kafka.group.id')
        return Bound(group=kafka["group.id"])
    bound = _bound("startingOffsets", value)
    if mode == "batch" and (bound.every == LATEST or LATEST in [offset for _, offset in bound.offsets]):
        raise ConfigError('startingOffsets must not be "latest" (-1) in a batch query: it would read nothing')
    return bound


def _ending(plain: Mapping[str, str]) -> Bound:
    timed = _timed(plain, "endingTimestamp", "endingOffsetsByTimestamp", "latest")
    if timed is not None:
        return timed
    bound = _bound("endingOffsets", plain.get("endingoffsets", "latest").strip())
    if bound.every == EARLIEST or EARLIEST in [offset for _, offset in bound.offsets]:
        raise ConfigError('endingOffsets must not be "earliest" (-2): it would read nothing')
    return bound


def _timed(plain: Mapping[str, str], whole: str, each: str, unmatched: Literal["error", "latest"]) -> Bound | None:
    if whole.lower() in plain:
        return Bound(timestamp=_count(plain, whole, least=0), unmatched=unmatched)
    if each.lower() in plain:
        found = _by_partition(each, plain[each.lower()])
        if any(time < 0 for _, time in found):
            raise ConfigError(f"{each} must hold times in milliseconds since 1970")
        return Bound(timestamps=found, unmatched=unmatched)
    return None


def _bound(name: str, value: str) -> Bound:
    if value.lower() in ("earliest", "latest"):
        return Bound(every=EARLIEST if value.lower() == "earliest" else LATEST)
    found = _by_partition(name, value)
    if any(offset < EARLIEST for _, offset in found):
        raise ConfigError(f"{name} must hold offsets, -2 (earliest) or -1 (latest)")
    return Bound(offsets=found)


def _by_partition(name: str, value: str) -> tuple[tuple[TopicPartition, int], ...]:
    found = []
    for topic, parts in _json(name, value).items():
        if not isinstance(parts, dict):
            raise ConfigError(f'{name} must be JSON such as {{"topic": {{"0": 23, "1": -2}}}}')
        found += [
            (TopicPartition(topic, _whole(name, number)), _whole(name, offset)) for number, offset in parts.items()
        ]
    if not found:
        raise ConfigError(f"{name} names no partition")
    return tuple(sorted(found))


def _json(name: str, value: str) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ConfigError(f"{name} must be a JSON object, or a word that docs/spark-source.md names; it is {value!r}")
    return parsed


def _whole(name: str, value: object) -> int:
    # JSON's `true` is an int for Python.
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ConfigError(f"{name} must hold whole numbers")
    try:
        number = int(value)
    except ValueError:
        raise ConfigError(f"{name} must hold whole numbers; it has {value!r}") from None
    if number > _MOST:
        raise ConfigError(f"{name} must hold whole numbers up to {_MOST}; it has {value!r}")
    return number


def _count(plain: Mapping[str, str], name: str, *, least: int = 1) -> int | None:
    value = plain.get(name.lower())
    if value is None:
        return None
    if not re.fullmatch(r"\s*\d{1,19}\s*", value) or not least <= int(value) <= _MOST:
        raise ConfigError(f"{name} must be a whole number from {least} to {_MOST}; it is {value!r}")
    return int(value)


def _flag(plain: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = plain.get(name.lower(), str(default)).strip().lower()
    if value not in ("true", "false"):
        raise ConfigError(f"{name} must be true or false; it is {value!r}")
    return value == "true"


def _duration(plain: Mapping[str, str], name: str, default: float) -> float:
    value = plain.get(name.lower())
    if value is None:
        return default
    match = _DURATION.fullmatch(value)
    if match is None:
        raise ConfigError(f'{name} must be a duration such as "30s", "15m" or "500ms"; it is {value!r}')
    unit = (match[2] or "ms").lower()  # as Spark reads a number without a unit
    return int(match[1]) * _UNITS["ms" if unit == "ms" else unit[0]]


def _columns(plain: Mapping[str, str]) -> tuple[str, ...]:
    headers = _flag(plain, "includeHeaders", default=False)
    every = (*COLUMNS, "headers") if headers else COLUMNS
    if "columns" not in plain:
        return every
    names = [name.strip() for name in plain["columns"].split(",") if name.strip()]
    known = {name.lower(): name for name in (*COLUMNS, "headers")}
    wrong = [name for name in names if name.lower() not in known]
    chosen = {known[name.lower()] for name in names if name.lower() in known}
    if wrong or not chosen:
        raise ConfigError(f"columns must name some of {', '.join(known.values())}; it has {', '.join(wrong) or 'none'}")
    return tuple(name for name in (*COLUMNS, "headers") if name in chosen)
