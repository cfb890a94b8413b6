"""Our decoder against those that others wrote, on batches that they and we wrote."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import cramjam
import kafka_python_batches as kafka_python
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.records.readers import read_batch
from kio.records.schema import NewRecordBatch, Record, RecordHeader
from kio.records.writers import write_new_batch
from record_batches import CODECS, Rec, batch, decode, records_of

from instride.records import ConsumerRecord

payload = st.none() | st.binary(max_size=200)
header_lists = st.lists(st.tuples(st.text(max_size=20), payload), max_size=3).map(tuple)
NOW = 1_700_000_000_000


@st.composite
def batches_of(draw: st.DrawFn) -> list[Rec]:
    """Records of one batch: offsets with gaps, timestamps in any order."""
    offset, out = draw(st.integers(0, 1 << 40)), []
    for _ in range(draw(st.integers(1, 12))):
        out.append(
            Rec(
                offset=offset,
                timestamp=NOW + draw(st.integers(-100_000, 100_000)),
                key=draw(payload),
                value=draw(payload),
                headers=draw(header_lists),
            )
        )
        offset += draw(st.integers(1, 300))
    return out


def plain_view(record: ConsumerRecord) -> tuple[Any, ...]:
    return record.offset, record.timestamp, record.key, record.value, record.headers


def ours(data: bytes, fetch_offset: int = 0) -> list[tuple[Any, ...]]:
    chunk, _, error = decode(data, fetch_offset)
    assert error is None
    return [plain_view(each) for each in records_of(chunk)]


def kio(data: bytes) -> list[tuple[Any, ...]]:
    """kio cuts timestamps to seconds."""
    read, _ = read_batch(data, 0)
    return [
        (r.offset, int(r.timestamp.timestamp()), r.key, r.value, tuple((_text(h.key), h.value) for h in r.headers))
        for r in read.records
    ]


def _text(name: bytes | None) -> str:
    assert name is not None
    return name.decode()


def _seconds(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row[0], row[1] // 1000, *row[2:]


@given(records=batches_of())
def test_three_decoders_read_the_same(records: list[Rec]) -> None:
    data = batch(records)
    expected = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records]
    assert ours(data) == expected
    assert kafka_python.read(data) == expected
    assert kio(data) == [_seconds(row) for row in expected]


@pytest.mark.parametrize("codec", CODECS)
@given(records=batches_of(), start=st.integers(0, 12))
def test_a_codec_changes_nothing(codec: str, records: list[Rec], start: int) -> None:
    first = records[min(start, len(records) - 1)].offset
    assert ours(batch(records, codec=codec), first) == [row for row in ours(batch(records)) if row[0] >= first]


@given(records=batches_of(), gzipped=st.booleans())
def test_what_kafka_python_writes(records: list[Rec], gzipped: bool) -> None:
    data = kafka_python.write(records, gzipped=gzipped)
    assert ours(data) == kafka_python.read(data)
    assert [row[2:] for row in ours(data)] == [(r.key, r.value, r.headers) for r in records]


@given(records=batches_of())
def test_what_kio_writes(records: list[Rec]) -> None:
    out = io.BytesIO()
    write_new_batch(out, _kio_batch(records))
    data = out.getvalue()
    assert [_seconds(row) for row in ours(data)] == kio(data)


def _kio_batch(records: list[Rec]) -> NewRecordBatch:
    made: list[Any] = [
        Record(
            attributes=0,  # type: ignore[arg-type]
            timestamp=datetime.fromtimestamp(NOW // 1000, UTC),  # type: ignore[arg-type]
            offset=each.offset - records[0].offset,  # type: ignore[arg-type]
            key=each.key,
            value=each.value,
            headers=tuple(RecordHeader(key=name.encode(), value=value) for name, value in each.headers),
        )
        for each in records
    ]
    numbers: dict[str, Any] = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "attributes": 0}
    return NewRecordBatch(records=tuple(made), **numbers)


def test_raw_snappy_as_librdkafka_may_send_it() -> None:
    records = [Rec(offset=n, value=b"value" * 9) for n in range(20)]
    section = batch(records)[61:]
    raw = bytes(cramjam.snappy.compress_raw(section))
    assert ours(batch(records, codec="snappy", compressed=raw)) == ours(batch(records))
