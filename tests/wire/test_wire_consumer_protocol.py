"""The consumer protocol against kio's writers, and against what other clients were seen to write."""

from __future__ import annotations

import io
import itertools
import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_entity_schema
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from instride._wire.consumer_protocol import (
    Assignment,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from instride.errors import ProtocolError
from instride.records import TopicPartition

TOPICS = st.text(max_size=8)
PARTITIONS = st.lists(st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1)), max_size=6)
SUBSCRIPTIONS = st.builds(
    Subscription,
    topics=st.lists(TOPICS, max_size=4).map(tuple),
    owned=PARTITIONS.map(tuple),
    generation=st.integers(-1, 2**31 - 1),
    rack=st.none() | TOPICS,
    userdata=st.none() | st.binary(max_size=8),
    version=st.integers(0, 3),
)


def as_read(subscription: Subscription) -> Subscription:
    """What is left of a subscription after writing it in its version."""
    version = subscription.version
    return Subscription(
        topics=tuple(sorted(set(subscription.topics))),
        owned=tuple(sorted(set(subscription.owned))) if version >= 1 else (),
        generation=subscription.generation if version >= 2 else -1,
        rack=(subscription.rack or None) if version >= 3 else None,
        userdata=subscription.userdata,
        version=version,
    )


def schema(name: str, version: int) -> Any:
    assert version in schema_name_map[name]
    return load_entity_schema(name, version, EntityType.data)


@given(SUBSCRIPTIONS)
def test_a_subscription_round_trips(subscription: Subscription) -> None:
    assert read_subscription(write_subscription(subscription)) == as_read(subscription)


@given(SUBSCRIPTIONS)
def test_kio_reads_our_subscription(subscription: Subscription) -> None:
    data = write_subscription(subscription)
    (version,) = struct.unpack_from(">h", data)
    entity, size = entity_reader(schema("consumer_protocol_subscription", version))(data, 2)
    assert size == len(data) - 2
    expected = as_read(subscription)
    assert entity.topics == expected.topics
    assert entity.user_data == expected.userdata
    if version >= 1:
        owned = [TopicPartition(each.topic, number) for each in entity.owned_partitions for number in each.partitions]
        assert tuple(owned) == expected.owned
    if version >= 2:
        assert entity.generation_id == expected.generation
    if version >= 3:
        assert entity.rack_id == expected.rack


@given(st.lists(st.tuples(TOPICS, st.lists(st.integers(-2, 5), max_size=4).map(tuple)), max_size=4))
def test_what_kio_wrote_is_read_sorted_and_sane(claims: list[tuple[str, tuple[int, ...]]]) -> None:
    kind = schema("consumer_protocol_subscription", 3)
    partition_class = kind.__annotations__["owned_partitions"].__args__[0]
    entity = kind(
        topics=("b", "a", "b"),
        user_data=b"",
        owned_partitions=tuple(partition_class(topic=topic, partitions=numbers) for topic, numbers in claims),
        generation_id=4,
        rack_id="",
    )
    buffer = io.BytesIO(struct.pack(">h", 3))
    buffer.seek(2)
    entity_writer(kind)(buffer, entity)
    expected = sorted({TopicPartition(topic, number) for topic, numbers in claims for number in numbers if number >= 0})
    assert read_subscription(buffer.getvalue()) == Subscription(
        topics=("a", "b"), owned=tuple(expected), generation=4, userdata=b""
    )


@pytest.mark.vector(21)
def test_the_order_of_what_is_given_does_not_show() -> None:
    one = Subscription(topics=("a", "b"), owned=(TopicPartition("a", 1), TopicPartition("b", 0)))
    other = Subscription(topics=("b", "a", "a"), owned=(TopicPartition("b", 0), TopicPartition("a", 1)))
    assert write_subscription(one) == write_subscription(other)


def test_the_very_bytes_of_a_cooperative_sticky_member() -> None:
    """As the Java client writes them: version 3, sorted, the generation in the userdata too."""
    subscription = Subscription(
        topics=("t",), owned=(TopicPartition("t", 2),), generation=7, userdata=struct.pack(">i", 7)
    )
    assert write_subscription(subscription).hex(" ") == (
        "00 03"  # version
        " 00 00 00 01 00 01 74"  # topics
        " 00 00 00 04 00 00 00 07"  # userdata
        " 00 00 00 01 00 01 74 00 00 00 01 00 00 00 02"  # owned
        " 00 00 00 07"  # generation
        " ff ff"  # rack
    )


@pytest.mark.vector(22)
@pytest.mark.requirement("KIP-429/17")
def test_a_higher_version_is_read_as_ours_and_the_rest_ignored() -> None:
    subscription = Subscription(topics=("t",), owned=(TopicPartition("t", 0),), generation=3, rack="r")
    data = struct.pack(">h", 9) + write_subscription(subscription)[2:] + b"what we do not know"
    assert read_subscription(data) == Subscription(
        topics=("t",), owned=(TopicPartition("t", 0),), generation=3, rack="r", version=9
    )


@pytest.mark.vector(23)
@pytest.mark.requirement("KIP-429/17")
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_missing_fields_at_the_end_have_their_defaults(version: int) -> None:
    head = struct.pack(">hih", version, 1, 1) + b"t"
    assert read_subscription(head) == Subscription(topics=("t",), version=version)
    with_userdata = head + struct.pack(">i", 0)
    assert read_subscription(with_userdata) == Subscription(topics=("t",), userdata=b"", version=version)


def test_null_arrays_are_empty() -> None:
    data = struct.pack(">hiiiih", 3, -1, -1, -1, -5, -1)
    assert read_subscription(data) == Subscription()


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff", b"\x00\x03\x00\x00\x00\x01\x00\x05t"])
def test_what_cannot_be_read(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_subscription(data)


def test_a_version_that_we_do_not_write() -> None:
    with pytest.raises(ValueError, match="version 0 to 3, not 4"):
        write_subscription(Subscription(version=4))


@given(PARTITIONS, st.none() | st.binary(max_size=8))
def test_an_assignment_round_trips(partitions: list[TopicPartition], userdata: bytes | None) -> None:
    data = write_assignment(Assignment(partitions=tuple(partitions), userdata=userdata))
    expected = Assignment(partitions=tuple(sorted(set(partitions))), userdata=userdata)
    assert read_assignment(data) == expected
    for version in range(4):
        entity, size = entity_reader(schema("consumer_protocol_assignment", version))(data, 2)
        assert size == len(data) - 2
        assert read_assignment(struct.pack(">h", version + 7) + data[2:] + b"more") == expected
        assert sum(len(each.partitions) for each in entity.assigned_partitions) == len(expected.partitions)


def test_no_bytes_are_no_partitions() -> None:
    assert read_assignment(b"") == Assignment()


def test_an_assignment_without_userdata() -> None:
    assert read_assignment(struct.pack(">hi", 0, 0)) == Assignment()


@given(st.binary(max_size=60))
def test_garbage_gives_a_value_or_a_protocol_error(garbage: bytes) -> None:
    for read in (read_subscription, read_assignment):
        try:
            read(garbage)
        except ProtocolError:
            pass


@given(SUBSCRIPTIONS, st.data())
def test_a_damaged_subscription_gives_a_value_or_a_protocol_error(
    subscription: Subscription, data: st.DataObject
) -> None:
    damaged = bytearray(write_subscription(subscription))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        read_subscription(bytes(damaged))
    except ProtocolError:
        pass


def test_each_version_adds_to_the_one_before() -> None:
    """As KIP-429, KIP-792 and KIP-881 did: so a reader of an older version finds what it knows."""
    said = Subscription(topics=("t",), owned=(TopicPartition("t", 3),), generation=7, rack="r", userdata=b"u")
    bodies = [write_subscription(replace(said, version=version))[2:] for version in range(4)]
    added = [later.removeprefix(earlier) for earlier, later in itertools.pairwise([b"", *bodies])]
    assert added == [
        b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\1u",
        b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\1\0\0\0\3",
        b"\0\0\0\7",
        b"\0\1r",
    ]


def test_the_very_bytes_of_an_assignment() -> None:
    written = write_assignment(Assignment(partitions=(TopicPartition("t", 3),)))
    assert written == b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\1\0\0\0\3" + b"\xff\xff\xff\xff"
