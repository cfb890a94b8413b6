"""What the first records of a partition's backlog weigh: asked of the brokers before a batch with a limit of bytes.

Laws
1. A record weighs what its row weighs as an Arrow batch in the columns that are read: decompressed, as Spark gets it.
2. A broker sends at least one record batch of each partition, and beyond that at most `_SAMPLE_BYTES`.
3. What was fetched is weighed and given up: executors read it again.
4. Where a topic is gone, its partitions are not weighed: each gives one offset to the batch. Whether
   that is data loss is said by who plans the next batch, or reads this one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final

from instride.consumer import Consumer
from instride.errors import KafkaTimeoutError, TransportError, UnknownTopicOrPartitionError
from instride.records import TopicPartition
from instride.spark._data_source.admission import Sample
from instride.spark._data_source.columns import in_spark_schema, made_of
from instride.spark._data_source.offsets import Span
from instride.spark._data_source.options import Options

__all__ = ["Sampler"]

_log = logging.getLogger(__name__)

_SAMPLE_BYTES: Final = 64 << 10
_BUFFER_BYTES: Final = 8 << 20
_POLL_SECONDS: Final = 0.1


class Sampler:
    """A consumer without a group. For one thread."""

    def __init__(self, options: Options) -> None:
        self._columns = options.columns
        self._timeout = options.read_timeout
        self._consumer = Consumer(
            **dict(options.consumer),
            # Whether records that are gone are data loss, is said by who reads them.
            auto_offset_reset="earliest",
            max_poll_records=-1,
            max_partition_fetch_bytes=_SAMPLE_BYTES,
            fetch_buffer_bytes=_BUFFER_BYTES,
            fetch_max_wait=0.02,
        )

    def sample(self, spans: Mapping[TopicPartition, Span]) -> dict[TopicPartition, Sample]:
        """Of each span, but for law 4. Awaits what may pass, such as an outage. Raises KafkaTimeoutError, ConfigError
        for a timestamp that Spark cannot hold, and what else a poll raises.
        """
        consumer, found = self._consumer, dict[TopicPartition, Sample]()
        consumer.assign(spans)
        try:
            for partition, span in spans.items():
                consumer.seek(partition, span.start)
            deadline, trouble = time.monotonic() + self._timeout, None
            while len(found) < len(spans):
                known = len(found)
                try:
                    self._poll(spans, found)
                    trouble = trouble if len(found) == known else None
                except TransportError as error:
                    # What may pass within the time, such as an outage of the bootstrap servers, ends no query.
                    if not error.retriable:
                        raise
                    trouble = error
                    _log.warning("maxBytesPerTrigger: %s", error)
                if time.monotonic() > deadline and len(found) < len(spans):
                    missing = min(set(spans) - set(found))
                    raise KafkaTimeoutError(
                        f"maxBytesPerTrigger: no record of {missing} came from offset {spans[missing].start} on within "
                        f"{self._timeout:.0f} s, so it is not known what its records weigh"
                    ) from trouble
        except UnknownTopicOrPartitionError as error:
            _log.debug("of a batch's records not all are weighed: %s", error)
        finally:
            consumer.assign([])
        return found

    def close(self) -> None:
        self._consumer.close(timeout=1.0)

    def _poll(self, spans: Mapping[TopicPartition, Span], found: dict[TopicPartition, Sample]) -> None:
        consumer = self._consumer
        records = consumer.poll(timeout=_POLL_SECONDS)
        columns = tuple(dict.fromkeys((*made_of(self._columns), "topic", "partition", "offset")))
        for batch in records.to_arrow(columns):
            partition = TopicPartition(batch["topic"][0].as_py(), batch["partition"][0].as_py())
            if partition not in found:
                found[partition] = Sample(
                    start=spans[partition].start,
                    first=batch["offset"][0].as_py(),
                    end=batch["offset"][-1].as_py() + 1,
                    nbytes=in_spark_schema(batch, self._columns).nbytes,
                )
        for partition in set(spans) - set(found):
            span = spans[partition]
            if consumer.position(partition, timeout=self._timeout) >= span.end:
                # Nothing but markers, aborted records, or what compaction left: it weighs nothing.
                found[partition] = Sample(start=span.start, first=span.start, end=span.end, nbytes=0)
        # Law 3: what else came of these would only be given up.
        consumer.pause(found)
