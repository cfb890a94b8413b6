"""Which version of a request is sent to which broker."""

from __future__ import annotations

from typing import get_args
from uuid import UUID

import pytest
from kio.index import load_request_schema
from kio.schema.index import schema_name_map
from wire_examples import CODECS, REQUESTS, A, B

from instride._wire import api
from instride._wire.message_codecs import choose_version, codec_of
from instride._wire.sasl.messages import SaslHandshake
from instride.errors import UnsupportedVersionError


def test_every_request_has_a_codec_of_its_own() -> None:
    """And its response, and an example that the tests take through every version."""
    requests = {*REQUESTS, api.Fetch}  # whose codec has tests of its own
    assert set(get_args(api.Request)) == set(api.RESPONSES) == requests
    assert set(get_args(api.Response)) == set(api.RESPONSES.values())
    codecs = [codec_of(kind) for kind in api.RESPONSES]
    assert len({codec.api_key for codec in codecs}) == len(api.RESPONSES)


@pytest.mark.parametrize("kind", REQUESTS)
def test_our_range_is_as_wide_as_the_schemas(kind: type[api.Request]) -> None:
    codec = CODECS[kind]
    name = load_request_schema(codec.api_key, codec.highest).__module__.split(".")[-3]
    known = sorted(schema_name_map[name])
    assert codec.highest == known[-1]
    # Metadata 0 cannot ask for no topics, and after SaslHandshake 0 bare bytes follow; nothing that can be met speaks
    # only those. Older ones of OffsetForLeaderEpoch are for brokers among each other.
    lowest = {api.Metadata: 1, SaslHandshake: 1, api.OffsetForLeaderEpoch: 3}
    assert codec.lowest == lowest.get(kind, known[0])
    for version in range(codec.lowest, codec.highest + 1):
        assert load_request_schema(codec.api_key, version).__flexible__ == (version >= codec.flexible_from)


@pytest.mark.requirement("surface/versions")
@pytest.mark.parametrize("kind", REQUESTS)
def test_the_highest_common_version_is_chosen(kind: type[api.Request]) -> None:
    codec, request = CODECS[kind], REQUESTS[kind]
    assert choose_version(request, (0, 99)) == codec.highest
    assert choose_version(request, (codec.highest, 99)) == codec.highest
    for highest in range(max(codec.lowest, codec.needs(request).lowest), codec.highest):
        assert choose_version(request, (0, highest)) == highest


# (lowest, highest) of Apache Kafka 2.4.0 by api key.
KAFKA_2_4 = {
    1: (0, 11), 2: (0, 5), 3: (0, 9), 8: (0, 8), 9: (0, 6), 10: (0, 3),
    11: (0, 6), 12: (0, 4), 13: (0, 4), 14: (0, 4), 15: (0, 5), 18: (0, 3),
    17: (0, 1), 36: (0, 1),
}  # fmt: skip
KAFKA_2_4[23] = (0, 3)


@pytest.mark.requirement("surface/versions")
@pytest.mark.parametrize("kind", REQUESTS)
def test_an_old_broker_can_be_spoken_to(kind: type[api.Request]) -> None:
    key = CODECS[kind].api_key
    assert choose_version(REQUESTS[kind], KAFKA_2_4[key]) == KAFKA_2_4[key][1]


def test_topic_ids_decide() -> None:
    commit = api.OffsetCommit(
        group_id="g", generation=1, member_id="m", offsets={("a", 0): api.OffsetToCommit(offset=1)}
    )
    fetch = api.OffsetFetch(group_id="g", partitions=(("a", 0), ("b", 0)), topic_ids={"a": A})
    zero = api.OffsetFetch(group_id="g", partitions=(("a", 0),), topic_ids={"a": api.NO_TOPIC_ID})
    assert [choose_version(each, (0, 99)) for each in (commit, fetch, zero)] == [9, 9, 9]


def test_topic_ids_decide_for_fetch() -> None:
    def fetch(*ids: UUID, forgotten: UUID = A, named: bool = False) -> api.Fetch:
        partitions = tuple(
            api.FetchPartition(topic=f"t{number}", partition=0, offset=0, topic_id=topic_id)
            for number, topic_id in enumerate(ids)
        )
        gone = (api.FetchPartition(topic="x", partition=3, offset=0, topic_id=forgotten),)
        return api.Fetch(partitions=partitions, max_wait=1, min_bytes=1, max_bytes=1, forgotten=gone, named=named)

    assert choose_version(fetch(A, B), (0, 99)) == codec_of(api.Fetch).highest
    assert choose_version(fetch(A, api.NO_TOPIC_ID), (0, 99)) == 12
    assert choose_version(fetch(A, forgotten=api.NO_TOPIC_ID), (0, 99)) == 12
    assert choose_version(fetch(named=True), (0, 99)) == 12, "a session that began with names"


@pytest.mark.parametrize(
    ("request_", "lowest"),
    [
        (api.Metadata(topics=None), 4),
        (api.Metadata(topics=None, allow_auto_topic_creation=True), 1),
        (api.ListOffsets(timestamps={("a", 0): -1}), 1),
        (api.ListOffsets(timestamps={("a", 0): -1}, read_committed=True), 2),
        (api.ListOffsets(timestamps={("a", 0): -3, ("b", 0): -1}), 7),
        (api.ListOffsets(timestamps={("a", 0): -6}), 11),
        (api.Heartbeat(group_id="g", generation=1, member_id="m", group_instance_id="i"), 3),
    ],
)
def test_what_a_request_says_decides(request_: api.Request, lowest: int) -> None:
    assert choose_version(request_, (0, lowest)) == lowest
    if lowest > 1:
        with pytest.raises(UnsupportedVersionError, match=codec_of(type(request_)).name):
            choose_version(request_, (0, lowest - 1))


def test_an_unsupported_version_names_the_api_both_ranges_and_why() -> None:
    request = api.Heartbeat(group_id="g", generation=1, member_id="m", group_instance_id="i")
    with pytest.raises(UnsupportedVersionError) as caught:
        choose_version(request, (0, 2))
    assert str(caught.value) == (
        "no common version of Heartbeat: the broker speaks 0 to 2, instride 0 to 4,"
        " of which this request can use 3 to 4 (group_instance_id is set (static membership))"
    )
