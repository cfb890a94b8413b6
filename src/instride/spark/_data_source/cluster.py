"""What the brokers say of topics and offsets: read by a consumer of no group, which reads nothing but samples."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from instride.consumer import Consumer
from instride.errors import ConfigError, UnknownTopicOrPartitionError
from instride.records import PartitionInfo, TopicPartition
from instride.spark._data_source.admission import Sample
from instride.spark._data_source.offsets import Found, Span
from instride.spark._data_source.options import EARLIEST, LATEST, Bound, Options, Topics
from instride.spark._data_source.sampling import Sampler

__all__ = ["Cluster", "absent", "not_there", "some"]

_NAMED: Final = 5
_COMMIT_SECONDS: Final = 2.0


class Cluster:
    """For one thread. Opened by the first request."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._consumer: Consumer | None = None
        self._sampler: Sampler | None = None
        self._groups: dict[str, Consumer] = {}

    def partitions(self, topics: Topics) -> Found:
        """Those that are there now. Of topics that are not there: nothing."""
        if topics.pattern is not None:
            pattern = re.compile(topics.pattern)
            listed = self._opened().list_topics()
            # The whole name, as in Java.
            return _ids(info for name, infos in listed.items() if pattern.fullmatch(name) for info in infos)
        names = topics.subscribe or sorted({partition.topic for partition in topics.assign})
        found = _ids(info for infos in self._opened().list_topics(names).values() for info in infos)
        return {each: found[each] for each in topics.assign if each in found} if topics.assign else found

    def require(self, topics: Topics) -> Found:
        """As `partitions`. Raises UnknownTopicOrPartitionError where a named one is not there."""
        found = self.partitions(topics)
        missing = absent(topics, found)
        if missing:
            raise not_there(missing)
        return found

    def earliest(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """timeout: seconds, else default_api_timeout."""
        chosen = list(partitions)
        return self._opened().beginning_offsets(chosen, timeout=timeout) if chosen else {}

    def latest(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Ends; with kafka.isolation.level=read_committed the last stable offsets."""
        chosen = list(partitions)
        return self._opened().end_offsets(chosen, timeout=timeout) if chosen else {}

    def resolve(
        self, bound: Bound, partitions: Iterable[TopicPartition], *, name: str, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset of each partition. name: the option, for errors. timeout: seconds for each request, else
        default_api_timeout. Raises ConfigError."""
        chosen = sorted(partitions)
        if bound.group is not None:
            return self._committed(bound.group, chosen, timeout)
        if bound.timestamp is not None or bound.timestamps:
            return self._at_times(bound, chosen, name, timeout)
        if bound.offsets:
            _check_all_named(dict(bound.offsets), chosen, name)
        wanted = dict(bound.offsets) or dict.fromkeys(chosen, bound.every or LATEST)
        first = self.earliest((each for each in chosen if wanted[each] == EARLIEST), timeout=timeout)
        last = self.latest((each for each in chosen if wanted[each] == LATEST), timeout=timeout)
        return {partition: wanted[partition] for partition in chosen} | first | last

    def sample(self, spans: Mapping[TopicPartition, Span]) -> dict[TopicPartition, Sample]:
        """What the first records of each weigh."""
        if not spans:
            return {}
        if self._sampler is None:
            self._sampler = Sampler(self._options)
        return self._sampler.sample(spans)

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """For two seconds at most. Raises a KafkaError."""
        consumer = self._of_group(group)
        consumer.assign(offsets)
        # It commits, and is to fetch nothing.
        consumer.pause(offsets)
        consumer.commit(dict(offsets), timeout=_COMMIT_SECONDS, allow_rewind=True)

    def close(self) -> None:
        for consumer in [self._consumer, *self._groups.values()]:
            if consumer is not None:
                consumer.close(timeout=1.0)
        if self._sampler is not None:
            self._sampler.close()

    def _opened(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(**dict(self._options.consumer))
        return self._consumer

    def _of_group(self, group: str) -> Consumer:
        if group not in self._groups:
            self._groups[group] = Consumer(**dict(self._options.consumer), group_id=group, auto_offset_reset="none")
        return self._groups[group]

    def _committed(
        self, group: str, partitions: list[TopicPartition], timeout: float | None
    ) -> dict[TopicPartition, int]:
        """Where the group has committed nothing: earliest, so that nothing is passed over."""
        found = self._of_group(group).committed(partitions, timeout=timeout)
        known = {partition: each.offset for partition, each in found.items() if each is not None}
        return known | self.earliest((each for each in partitions if each not in known), timeout=timeout)

    def _at_times(
        self, bound: Bound, partitions: list[TopicPartition], name: str, timeout: float | None
    ) -> dict[TopicPartition, int]:
        times = dict(bound.timestamps)
        if bound.timestamp is not None:
            times = dict.fromkeys(partitions, bound.timestamp)
        else:
            _check_all_named(times, partitions, name)
        found = self._opened().offsets_for_times(times, timeout=timeout)
        late = [partition for partition in partitions if found[partition] is None]
        if late and bound.unmatched == "error":
            raise ConfigError(
                f"{name}: no record of {some(late)} is that late; set startingOffsetsByTimestampStrategy to latest "
                "to begin at the end there"
            )
        known = {partition: each.offset for partition, each in found.items() if each is not None}
        return known | self.latest(late, timeout=timeout)


def _check_all_named(given: Mapping[TopicPartition, int], partitions: list[TopicPartition], name: str) -> None:
    missing, unknown = set(partitions) - set(given), set(given) - set(partitions)
    if missing or unknown:
        raise ConfigError(
            f"{name} must name exactly the partitions that are read: it lacks {some(missing)}, and of those that it "
            f"names there is no {some(unknown)}"
        )


def some(names: Iterable[object]) -> str:
    texts = sorted(map(str, names))
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return ", ".join(texts[:_NAMED]) + more if texts else "nothing"


def _ids(infos: Iterable[PartitionInfo]) -> Found:
    return {info.topic_partition: str(info.topic_id) if info.topic_id is not None else "" for info in infos}


def absent(topics: Topics, known: Collection[TopicPartition]) -> list[str]:
    """The topics and partitions that are named, and are not among these."""
    there = {partition.topic for partition in known}
    missing = [name for name in topics.subscribe if name not in there]
    return missing + [str(partition) for partition in topics.assign if partition not in known]


def not_there(missing: Sequence[str]) -> UnknownTopicOrPartitionError:
    return UnknownTopicOrPartitionError(f"there is no {some(missing)} in the cluster; create it, or correct its name")
