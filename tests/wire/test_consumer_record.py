"""The record object that users hold."""

from __future__ import annotations

import pickle

import pytest
from record_batches import Rec, batch, decode, plain, records_of

from instride._wire.decoder import COMPILED
from instride.records import ConsumerRecord, TopicPartition

HEADERS = (("a", b"1"), ("b", None))


def full() -> ConsumerRecord:
    return ConsumerRecord(
        "topic",
        4,
        77,
        timestamp=1234,
        timestamp_type=1,
        key=b"secret-key",
        value=b"secret-value",
        headers=HEADERS,
        leader_epoch=5,
        epoch=6,
        seek_number=7,
    )


def test_it_runs_compiled() -> None:
    assert COMPILED


def test_attributes() -> None:
    record = full()
    assert (record.topic, record.partition, record.offset) == ("topic", 4, 77)
    assert (record.timestamp, record.timestamp_type) == (1234, 1)
    assert (record.key, record.value, record.headers) == (b"secret-key", b"secret-value", HEADERS)
    assert (record.leader_epoch, record.epoch, record.seek_number) == (5, 6, 7)
    assert record.topic_partition == TopicPartition("topic", 4)
    assert isinstance(record.topic_partition, TopicPartition)


def test_defaults() -> None:
    record = ConsumerRecord("t", 0, 1)
    assert (record.timestamp, record.timestamp_type, record.key, record.value) == (-1, 0, None, None)
    assert (record.headers, record.leader_epoch, record.epoch, record.seek_number) == ((), -1, 0, 0)


@pytest.mark.parametrize("name", ["topic", "offset", "value", "headers", "epoch", "topic_partition", "unknown"])
def test_it_cannot_be_changed(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(full(), name, 1)


def test_its_repr_shows_no_content() -> None:
    text = repr(full())
    assert "secret" not in text
    assert "topic='topic', partition=4, offset=77" in text
    assert "key=<10 bytes>, value=<12 bytes>, headers=2" in text
    assert "key=None, value=None, headers=0" in repr(ConsumerRecord("t", 0, 1))


def test_equality_and_hash() -> None:
    assert full() == full()
    assert len({full(), full()}) == 1
    assert full() != ConsumerRecord("topic", 4, 77)
    assert full() != ("topic", 4, 77)
    assert ConsumerRecord("t", 0, 1, epoch=1) != ConsumerRecord("t", 0, 1, epoch=2)


def test_pickle() -> None:
    copy = pickle.loads(pickle.dumps(full()))
    assert copy == full()
    assert copy.topic_partition == TopicPartition("topic", 4)


def test_a_decoded_record_equals_a_built_one() -> None:
    chunk, _, _ = decode(batch([Rec(offset=9, timestamp=10, key=b"k", value=b"v", headers=HEADERS)]), 9)
    (record,) = records_of(chunk)
    built = ConsumerRecord(
        "t", 3, 9, timestamp=10, key=b"k", value=b"v", headers=HEADERS, leader_epoch=7, epoch=1, seek_number=2
    )
    assert record == built
    assert hash(record) == hash(built)


def test_records_outlive_their_chunk() -> None:
    chunk, _, _ = decode(batch(plain(*range(500))))
    records = records_of(chunk)
    del chunk
    assert [r.value for r in records] == [b"v%d" % n for n in range(500)]


def test_rows_outside_the_index_are_refused() -> None:
    chunk, _, _ = decode(batch(plain(0, 1)))
    assert chunk is not None
    columns = chunk.columns
    name = TopicPartition("t", 0)
    for start, stop in ((-1, 1), (0, 3), (2, 1)):
        with pytest.raises(IndexError):
            columns.records(name, start, stop, 0, 0)
        with pytest.raises(IndexError):
            columns.binary(0, start, stop)
        with pytest.raises(IndexError):
            columns.longs(0, start, stop)
    with pytest.raises(IndexError):
        columns.offset(2)
    with pytest.raises(IndexError):
        columns.key(-1)
