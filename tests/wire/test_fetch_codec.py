"""The Fetch codec against kio's classes, in every version, and against damaged bytes."""

from __future__ import annotations

import io
from dataclasses import replace
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from record_batches import Rec, batch, plain
from response_builder import build

from instride._wire.api import Fetch, FetchPartition, FetchResponse
from instride._wire.fetch_codec import FETCH_VERSIONS, decode_fetch, encode_fetch
from instride.errors import CorruptRecordError, ErrorCode, ProtocolError

VERSIONS = range(FETCH_VERSIONS[0], FETCH_VERSIONS[1] + 1)
IDS = {"flights": UUID(int=5), "airports": UUID(int=6)}

REQUEST = Fetch(
    partitions=(
        FetchPartition(topic="flights", partition=0, offset=10, topic_id=IDS["flights"], leader_epoch=3, max_bytes=99),
        FetchPartition(topic="airports", partition=7, offset=1 << 40, topic_id=IDS["airports"]),
        FetchPartition(topic="flights", partition=1, offset=20, topic_id=IDS["flights"]),
    ),
    max_wait=0.5,
    min_bytes=1,
    max_bytes=1000,
    read_committed=True,
    rack="north",
)


def _classes(kind: str, version: int) -> Any:
    return import_module(f"kio.schema.fetch.v{version}.{kind}")


def _written(request: Fetch, version: int) -> Any:
    data = encode_fetch(request, version)
    message, size = entity_reader(_classes("request", version).FetchRequest)(data, 0)
    assert size == len(data)
    return message


def _body(version: int, partitions: dict[tuple[str, int], dict[str, Any]], **top: Any) -> bytes:
    """A response as kio writes it. partitions: by topic and number, the fields that are not zero."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), fields in partitions.items():
        ends = {"high_watermark": 1 << 50, "last_stable_offset": 1 << 50}
        topics.setdefault(topic, []).append({"partition_index": partition, "records": None, **ends, **fields})
    responses = [{"topic": name, "topic_id": IDS.get(name), "partitions": each} for name, each in topics.items()]
    schema = _classes("response", version).FetchResponse
    out = io.BytesIO()
    entity_writer(schema)(out, build(schema, {"responses": responses, **top}))
    return out.getvalue()


def _response(version: int, partitions: dict[tuple[str, int], dict[str, Any]], **top: Any) -> FetchResponse:
    return decoded(decode_fetch(memoryview(_body(version, partitions, **top)), version, REQUEST))


def decoded(response: FetchResponse) -> FetchResponse:
    """With what can be decoded at once."""
    partitions = {}
    for key, each in response.partitions.items():
        partitions[key] = each
        if each.undecoded is not None:
            piece = each.undecoded.decode(1 << 20, 1 << 20, alone=True)
            assert piece is not None
            partitions[key] = replace(
                each, undecoded=None, chunk=piece.chunk, next_offset=piece.next_offset, corrupt=piece.corrupt
            )
    return replace(response, partitions=partitions)


def test_much_more_of_a_partition_than_was_requested_is_not_kept() -> None:
    """99 bytes of the first partition were requested, 5 MiB of the second one."""
    first, other, second = REQUEST.partitions
    requested = replace(REQUEST, partitions=(first, other, second._replace(max_bytes=5 << 20)))
    log = b"".join(batch([Rec(offset=offset, value=bytes(3 << 20))]) for offset in range(20, 25))
    body = _body(VERSIONS[-1], {("flights", number): {"records": log} for number in (0, 1)})
    response = decode_fetch(memoryview(body), VERSIONS[-1], requested)
    ends = [each.undecoded.next_offset for each in response.partitions.values() if each.undecoded is not None]
    assert ends == [22, 23]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_says_what_was_asked(version: int) -> None:
    message = _written(REQUEST, version)
    assert message.max_wait.total_seconds() == 0.5
    assert (message.min_bytes, message.max_bytes, message.isolation_level) == (1, 1000, 1)
    keys = ["flights", "airports"] if version < 13 else [IDS["flights"], IDS["airports"]]
    assert [each.topic if version < 13 else each.topic_id for each in message.topics] == keys
    (first, second), (third,) = (each.partitions for each in message.topics)
    assert [(each.partition, each.fetch_offset) for each in (first, second, third)] == [(0, 10), (1, 20), (7, 1 << 40)]
    assert (first.partition_max_bytes, second.partition_max_bytes) == (99, 1 << 20)
    assert getattr(first, "current_leader_epoch", 3) == 3
    assert getattr(first, "log_start_offset", -1) == getattr(first, "last_fetched_epoch", -1) == -1
    assert getattr(message, "rack_id", "north") == "north"
    assert (getattr(message, "session_id", 0), getattr(message, "session_epoch", -1)) == (0, -1)
    assert getattr(message, "replica_id", -1) == -1


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 7])
def test_a_session_s_request(version: int) -> None:
    partitions = REQUEST.partitions[:1]
    requested = Fetch(
        partitions=partitions,
        max_wait=0,
        min_bytes=1,
        max_bytes=1,
        session_id=77,
        session_epoch=4,
        forgotten=tuple(
            FetchPartition(topic="flights", partition=number, offset=0, topic_id=IDS["flights"]) for number in (8, 9)
        ),
    )
    message = _written(requested, version)
    assert (message.session_id, message.session_epoch) == (77, 4)
    (forgotten,) = message.forgotten_topics_data
    assert (forgotten.topic if version < 13 else forgotten.topic_id) == ("flights" if version < 13 else IDS["flights"])
    assert forgotten.partitions == (8, 9)


def test_a_topic_without_id_cannot_be_named_from_version_13_on() -> None:
    requested = Fetch(
        partitions=(FetchPartition(topic="flights", partition=0, offset=0),), max_wait=0, min_bytes=1, max_bytes=1
    )
    assert _written(requested, 12).topics[0].topic == "flights"
    with pytest.raises(ValueError, match="id; that of 'flights' is not given"):
        encode_fetch(requested, 13)


@pytest.mark.parametrize("seconds", [-1.0, 1e9])
def test_a_wait_that_does_not_fit_is_cut(seconds: float) -> None:
    requested = Fetch(partitions=(), max_wait=seconds, min_bytes=1, max_bytes=1)
    assert encode_fetch(requested, 15)[:4] == (0 if seconds < 0 else (1 << 31) - 1).to_bytes(4, "big")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_has_what_the_broker_said(version: int) -> None:
    response = _response(
        version,
        {
            ("flights", 0): {
                "high_watermark": 50,
                "last_stable_offset": 40,
                "log_start_offset": 2,
                "preferred_read_replica": 3,
                "records": batch(plain(9, 10, 11)),
            },
            ("flights", 1): {"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER},
            ("airports", 7): {"high_watermark": 1 << 40},
        },
        session_id=5,
    )
    assert (response.error, response.session_id) == (0, 5 if version >= 7 else 0)
    first, second, third = (response.partitions[key] for key in (("flights", 0), ("flights", 1), ("airports", 7)))
    assert (first.error, first.high_watermark, first.last_stable_offset) == (0, 50, 40)
    assert first.log_start_offset == (2 if version >= 5 else -1)
    assert first.preferred_read_replica == (3 if version >= 11 else -1)
    assert first.chunk is not None
    assert [r.offset for r in first.chunk.records(epoch=0, seek_number=0)] == [10, 11]
    assert (first.chunk.topic, first.chunk.partition, first.next_offset) == ("flights", 0, 12)
    assert (second.error, second.chunk, second.next_offset) == (6, None, 20)
    assert (third.error, third.chunk, third.next_offset, third.corrupt) == (0, None, 1 << 40, None)


@pytest.mark.parametrize("version", VERSIONS)
def test_aborted_transactions_are_skipped(version: int) -> None:
    log = batch(plain(10, 11), transactional=True, producer_id=9) + batch(plain(12))
    aborted = [{"producer_id": 9, "first_offset": 10}]
    response = _response(version, {("flights", 0): {"records": log, "aborted_transactions": aborted}})
    chunk = response.partitions["flights", 0].chunk
    assert chunk is not None
    assert [r.offset for r in chunk.records(epoch=0, seek_number=0)] == [12]


def test_records_stay_where_they_were_received() -> None:
    """Where they are most of it. The value's bytes are changed under the chunk: a record made after it shows that."""
    body = bytearray(_body(16, {("flights", 0): {"records": batch([Rec(offset=10, value=b"v" * 500)])}}))
    response = decoded(decode_fetch(memoryview(body), 16, REQUEST))
    body[:] = body.replace(b"v" * 500, b"n" * 500)
    chunk = response.partitions["flights", 0].chunk
    assert chunk is not None
    assert chunk.records(epoch=0, seek_number=0)[0].value == b"n" * 500


def test_a_corrupt_partition_leaves_the_others() -> None:
    bad = batch(plain(10, 11), crc=1)
    response = _response(16, {("flights", 0): {"records": bad}, ("flights", 1): {"records": batch(plain(20))}})
    first, second = response.partitions["flights", 0], response.partitions["flights", 1]
    assert isinstance(first.corrupt, CorruptRecordError)
    assert (first.corrupt.topic, first.corrupt.partition, first.corrupt.offset) == ("flights", 0, 10)
    assert (first.chunk, first.next_offset, first.error) == (None, 10, 0)
    assert second.chunk is not None
    assert (second.corrupt, second.next_offset) == (None, 21)


def test_records_beside_an_error_are_not_looked_at() -> None:
    response = _response(
        16, {("flights", 0): {"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER, "records": batch(plain(10))}}
    )
    found = response.partitions["flights", 0]
    assert (found.error, found.chunk, found.next_offset) == (6, None, 10)


def test_the_request_bounds_decompression() -> None:
    body = memoryview(
        _body(16, {("flights", 0): {"records": batch([Rec(offset=10, value=bytes(5000))], codec="zstd")}})
    )
    assert decoded(decode_fetch(body, 16, REQUEST)).partitions["flights", 0].corrupt is None
    bounded = replace(REQUEST, max_decompressed_bytes=5000)
    corrupt = decoded(decode_fetch(body, 16, bounded)).partitions["flights", 0].corrupt
    assert "a zstd batch holds over 4964 bytes" in str(corrupt), "its index takes the rest"


def test_what_was_not_requested_is_ignored() -> None:
    unasked = {("flights", 5): {"records": batch(plain(0))}, ("unknown", 0): {"records": batch(plain(0))}}
    assert set(_response(12, unasked).partitions) == {("flights", 0), ("flights", 1), ("airports", 7)}
    assert set(_response(16, unasked).partitions) == {("flights", 0), ("flights", 1), ("airports", 7)}


def test_what_is_left_out_of_a_full_response_is_an_error() -> None:
    response = _response(16, {("flights", 0): {}})
    assert [response.partitions[key].error for key in (("flights", 0), ("flights", 1), ("airports", 7))] == [0, -1, -1]


def test_a_session_s_response_leaves_out_what_has_nothing_new() -> None:
    requested = Fetch(
        partitions=REQUEST.partitions, max_wait=0, min_bytes=1, max_bytes=1, session_id=1, session_epoch=2
    )
    body = memoryview(_body(16, {("flights", 0): {}}, session_id=1))
    assert set(decode_fetch(body, 16, requested).partitions) == {("flights", 0)}


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 7])
def test_an_error_of_the_whole_response(version: int) -> None:
    assert _response(version, {}, error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND) == FetchResponse(
        error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, by_id=version >= 13
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_from_version_13_on_a_response_names_topics_by_their_ids(version: int) -> None:
    assert _response(version, {}).by_id == (version >= 13)


def test_a_partition_that_is_listed_twice_is_a_protocol_error() -> None:
    """Its batches would be decompressed as often as it is listed."""
    schema = _classes("response", 16).FetchResponse
    partition = {"partition_index": 0, "records": batch(plain(10))}
    out = io.BytesIO()
    topic = {"topic_id": IDS["flights"], "partitions": [partition] * 300}
    entity_writer(schema)(out, build(schema, {"responses": [topic]}))
    with pytest.raises(ProtocolError, match="partition 0 of topic 'flights' is listed twice"):
        decode_fetch(memoryview(out.getvalue()), 16, REQUEST)


@pytest.mark.parametrize("committed", [False, True])
def test_a_batch_beyond_the_end_that_the_response_states_is_corrupt(committed: bool) -> None:
    """The checksum does not cover the base offset."""
    ends = {"high_watermark": 13, "last_stable_offset": 12}
    requested = replace(REQUEST, read_committed=committed)
    good = {("flights", 0): {**ends, "records": batch(plain(10)) + batch(plain(12))}}
    response = decoded(decode_fetch(memoryview(_body(16, good)), 16, requested)).partitions["flights", 0]
    assert (response.next_offset, response.corrupt is not None) == (11 if committed else 13, committed)
    bad = {("flights", 0): {**ends, "records": batch(plain(10), base_offset=10 | 1 << 40)}}
    response = decoded(decode_fetch(memoryview(_body(16, bad)), 16, requested)).partitions["flights", 0]
    assert (response.chunk, response.next_offset) == (None, 10)
    assert "beyond the end of the log" in str(response.corrupt)


def test_a_batch_of_an_epoch_that_its_leader_does_not_know_has_none() -> None:
    """The checksum does not cover it, and the next commit would store it."""
    body = _body(16, {("flights", 0): {"records": batch(plain(10), leader_epoch=3) + batch(plain(11), leader_epoch=7)}})
    first, *others = REQUEST.partitions
    requested = replace(REQUEST, partitions=(first._replace(passed_epoch=2), *others))
    found = decoded(decode_fetch(memoryview(body), 16, requested)).partitions["flights", 0]
    assert found.chunk is not None
    assert [each.leader_epoch for each in found.chunk.records(epoch=1, seek_number=0)] == [3, -1]


def test_a_batch_that_was_written_after_the_broker_looked_at_the_end_is_good() -> None:
    """A real broker may note its high watermark and read a little later. Such a batch follows without a gap."""
    body = _body(16, {("flights", 0): {"high_watermark": 11, "records": batch(plain(10)) + batch(plain(11))}})
    response = decoded(decode_fetch(memoryview(body), 16, REQUEST)).partitions["flights", 0]
    assert (response.next_offset, response.corrupt) == (12, None)


@pytest.mark.parametrize("tags", [False, True])
def test_aborted_transactions_cost_nothing_before_there_is_room(tags: bool) -> None:
    count = 20_000
    body = bytearray(_body(16, {("flights", 0): {"records": batch(plain(10)), "aborted_transactions": []}}))
    at = body.index(b"\1", body.index((1 << 50).to_bytes(8, "big") * 2) + 24)
    entry = (7).to_bytes(8, "big") + (10).to_bytes(8, "big") + (b"\1\0\0" if tags else b"\0")
    listed = bytearray()
    for _ in range(count):
        listed += entry
    number = count + 1
    size = bytes([number & 127 | 128, number >> 7 & 127 | 128, number >> 14])
    body[at : at + 1] = size + listed
    if tags:
        with pytest.raises(ProtocolError, match="more than such a message may have"):
            decode_fetch(memoryview(body), 16, REQUEST)
        return
    undecoded = decode_fetch(memoryview(body), 16, REQUEST).partitions["flights", 0].undecoded
    assert undecoded is not None
    before = undecoded.nbytes
    assert undecoded.decode(1 << 20, 1 << 20) is None, "20,000 entries take 2.7 MB"
    piece = undecoded.decode(1 << 20, 4 << 20)
    assert piece is not None
    assert undecoded.nbytes - before == 136 * count


def test_unknown_error_codes_pass() -> None:
    body = bytearray(_body(16, {("flights", 0): {"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER}}))
    at = body.index(bytes(4) + b"\0\6", 16)
    body[at + 4 : at + 6] = (9999).to_bytes(2, "big")
    assert decode_fetch(memoryview(body), 16, REQUEST).partitions["flights", 0].error == 9999


@pytest.mark.parametrize("version", VERSIONS)
def test_every_cut_is_a_protocol_error(version: int) -> None:
    body = _body(
        version,
        {
            ("flights", 0): {"records": batch(plain(10))},
            ("airports", 7): {"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        },
    )
    for length in range(len(body)):
        with pytest.raises(ProtocolError):
            decode_fetch(memoryview(body)[:length], version, REQUEST)


def test_a_count_is_not_believed() -> None:
    """The 15 bytes that make another reader allocate 32 GiB."""
    for version in (4, 7, 12, 16):
        head = bytes(4) if version < 7 else bytes(10)
        count = b"\x7f\xff\xff\xff" if version < 12 else b"\xff\xff\xff\xff\x0f"
        with pytest.raises(ProtocolError):
            decode_fetch(memoryview(head + count + b"\0" * 20), version, REQUEST)


@given(version=st.sampled_from(VERSIONS), data=st.data())
def test_damaged_bytes_give_a_response_or_a_protocol_error(version: int, data: st.DataObject) -> None:
    aborted = [{"producer_id": 9, "first_offset": 10}]
    fields = {"records": batch(plain(10, 11)), "aborted_transactions": aborted}
    body = bytearray(_body(version, {("flights", 0): fields, ("airports", 7): {}}))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    try:
        response = decode_fetch(memoryview(body), version, REQUEST)
    except ProtocolError:
        return
    assert isinstance(decoded(response), FetchResponse)


@given(version=st.sampled_from(VERSIONS), body=st.binary(max_size=200))
def test_random_bytes_give_a_response_or_a_protocol_error(version: int, body: bytes) -> None:
    try:
        decode_fetch(memoryview(body), version, REQUEST)
    except ProtocolError:
        return


@pytest.mark.parametrize("version", VERSIONS)
def test_the_longest_name_and_many_partitions(version: int) -> None:
    """From 127 on, a compact length takes two bytes."""
    name, count = "t" * 249, 300
    parts = tuple(FetchPartition(topic=name, partition=n, offset=n, topic_id=UUID(int=9)) for n in range(count))
    message = _written(replace(REQUEST, partitions=parts), version)
    (topic,) = message.topics
    assert (topic.topic if version < 13 else topic.topic_id) == (name if version < 13 else UUID(int=9))
    assert [each.partition for each in topic.partitions] == list(range(count))
