"""A failed partition is tried again with a growing back-off, is told each time, and stops no other (rule 17)."""

from __future__ import annotations

import itertools
from uuid import UUID

import pytest
from network_script import NetworkScript, tp

from instride._core.events import (
    COMMITTED,
    EARLIEST,
    Fetched,
    PartitionFailed,
    PartitionRecovered,
    Pause,
    Resume,
    SetPosition,
)
from instride._core.network.ranges import RangeChunk
from instride._wire import api
from instride.errors import (
    CorruptRecordError,
    NoOffsetForPartitionError,
    ProtocolError,
    TopicAuthorizationFailedError,
    TopicRecreatedError,
    UnsupportedVersionError,
)

NOT_AUTHORISED, UNKNOWN_CODE, CORRUPT, GROUP_NOT_AUTHORISED = 29, 12345, 2, 30

pytestmark = pytest.mark.rule("17")


def data(partition: int, start: int, end: int) -> api.FetchedPartition:
    chunk = RangeChunk(topic="t", partition=partition, first_offset=start, next_offset=end)
    return api.FetchedPartition(chunk=chunk, next_offset=end, high_watermark=end)  # type: ignore[arg-type]


class Broker(NetworkScript):
    """Fetch responses come after a while: with this for the partitions in `bad`, with one more record for others.

    unreadable: partitions that make a whole response unreadable.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bad: dict[int, api.FetchedPartition] = {}
        self.unreadable: set[int] = set()
        self.requested_at: dict[int, list[float]] = {}

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.pass_time(0.05)
            self.beat()
            if "Fetch" in self.waits():
                self.respond_to_fetch()

    def beat(self) -> None:
        while "Heartbeat" in self.waits():
            self.response(api.Heartbeat, api.HeartbeatResponse())

    def respond_to_fetch(self) -> None:
        request = next(each.request for each in self.waiting if isinstance(each.request, api.Fetch))
        known = {partition for _, partition in request.known} | {each.partition for each in request.partitions}
        offsets = {key[1]: each.offset for key, each in request.known.items()}
        offsets |= {each.partition: each.offset for each in request.partitions}
        for each in known:
            self.requested_at.setdefault(each, []).append(self.now)
        if known & self.unreadable:
            self.response(api.Fetch, ProtocolError("bad bytes"))
            return
        found: dict[tuple[str, int], api.FetchedPartition]
        found = {tp(p): data(p, offsets[p], offsets[p] + 1) if p not in self.bad else self.bad[p] for p in known}
        self.response(api.Fetch, api.FetchResponse(partitions=found))


@pytest.fixture
def broker() -> Broker:
    made = Broker()
    made.member_of(1, 0, 1)
    return made


@pytest.mark.parametrize(
    "bad",
    [
        api.FetchedPartition(error=NOT_AUTHORISED),
        api.FetchedPartition(error=UNKNOWN_CODE),
        api.FetchedPartition(error=CORRUPT),
        api.FetchedPartition(corrupt=CorruptRecordError("bad checksum")),
    ],
    ids=["not authorised", "unknown code", "corrupt, says the broker", "corrupt"],
)
def test_it_is_tried_again_ever_more_seldom_and_told_each_time(broker: Broker, bad: api.FetchedPartition) -> None:
    broker.bad = {0: bad}
    broker.run(180.0)
    told = broker.take(PartitionFailed)
    assert {(each.partition, each.tried_again, each.fetch_number) for each in told} == {(tp(0), True, 0)}
    assert 6 <= len(told) <= 10, "1, 2, 4, ... seconds apart, then a minute"
    gaps = [later - earlier for earlier, later in itertools.pairwise(broker.requested_at[0][-6:])]
    assert gaps == sorted(gaps)
    assert gaps[-1] <= 90.0
    assert broker.take(PartitionRecovered) == []
    others = [each for each in broker.take(Fetched) if each.partition == tp(1)]
    assert len(others) > 1000, "the other one never waited"


def test_it_recovers_and_says_so_once(broker: Broker) -> None:
    broker.bad = {0: api.FetchedPartition(error=NOT_AUTHORISED)}
    broker.run(10.0)
    (first, *_) = broker.take(PartitionFailed)
    assert isinstance(first.error, TopicAuthorizationFailedError)
    broker.bad = {}
    broker.run(10.0)
    (recovered,) = broker.take(PartitionRecovered)
    assert (recovered.partition, recovered.epoch, recovered.fetch_number) == (tp(0), first.epoch, 0)
    assert [each.partition for each in broker.take(Fetched)][-1:] != []
    assert any("t-0 has recovered" in line for line in broker.logs)
    broker.bad = {0: api.FetchedPartition(error=NOT_AUTHORISED)}
    broker.run(3.0)
    assert len(broker.take(PartitionFailed)) >= 2, "the next time the back-off begins anew"


def test_a_seek_is_a_new_beginning(broker: Broker) -> None:
    broker.bad = {0: api.FetchedPartition(error=NOT_AUTHORISED)}
    broker.run(20.0)
    broker.take(PartitionFailed)
    broker.do(SetPosition(partition=tp(0), epoch=broker.epoch(0), seek_number=1, fetch_number=1, offset=7))
    broker.run(0.5)
    (told,) = broker.take(PartitionFailed)
    assert told.fetch_number == 1
    broker.bad = {}
    broker.do(SetPosition(partition=tp(0), epoch=broker.epoch(0), seek_number=2, fetch_number=2, offset=9))
    broker.run(0.5)
    assert broker.take(PartitionRecovered) == [], "who seeks knows that it begins anew"


def test_what_is_paused_meanwhile_is_tried_on_resume(broker: Broker) -> None:
    broker.bad = {0: api.FetchedPartition(error=NOT_AUTHORISED)}
    broker.run(0.5)
    broker.do(Pause(partition=tp(0), epoch=broker.epoch(0)))
    broker.run(30.0)
    assert len(broker.take(PartitionFailed)) == 1
    broker.bad = {}
    broker.do(Resume(partition=tp(0), epoch=broker.epoch(0)))
    broker.run(0.5)
    assert len(broker.take(PartitionRecovered)) == 1


def test_a_partition_that_makes_responses_unreadable_stops_the_others_briefly(broker: Broker) -> None:
    """Which one it is nobody knows: so each is tried alone."""
    broker.unreadable = {0}
    broker.run(10.0)
    assert {each.partition for each in broker.take(PartitionFailed)} == {tp(0), tp(1)}
    assert [each.partition for each in broker.take(PartitionRecovered)] == [tp(1)]
    broker.take(Fetched)
    broker.run(60.0)
    assert {each.partition for each in broker.take(PartitionFailed)} == {tp(0)}
    assert len([each for each in broker.take(Fetched) if each.partition == tp(1)]) > 500
    broker.unreadable = set()
    broker.run(70.0)
    assert [each.partition for each in broker.take(PartitionRecovered)] == [tp(0)]


def test_a_committed_offset_that_may_not_be_read_is_requested_again(broker: Broker) -> None:
    broker.committed_offset = None
    broker.do(SetPosition(partition=tp(0), epoch=broker.epoch(0), seek_number=1, fetch_number=1, offset=COMMITTED))
    broker.response(api.OffsetFetch, api.OffsetFetchResponse(error=GROUP_NOT_AUTHORISED))
    (told,) = broker.take(PartitionFailed)
    assert told.tried_again
    broker.run(1.5)
    broker.response(api.OffsetFetch, api.OffsetFetchResponse(offsets={tp(0): api.CommittedOffset(offset=40)}))
    assert len(broker.take(PartitionRecovered)) == 1
    broker.run(0.5)
    assert next(each.next_offset for each in broker.take(Fetched) if each.partition == tp(0)) == 41


def test_a_position_that_no_policy_gives_waits_for_a_seek() -> None:
    script = NetworkScript(auto_offset_reset="none")
    script.committed_offset = -1
    script.member_of(1, 0)
    (told,) = script.take(PartitionFailed)
    assert isinstance(told.error, NoOffsetForPartitionError)
    assert not told.tried_again
    script.committed_offset = 5
    script.pass_time(200.0)
    assert "Fetch" not in script.waits()
    assert script.take(PartitionFailed) == []


def test_a_broker_of_another_age_is_asked_again_after_its_upgrade(broker: Broker) -> None:
    broker.response(api.Fetch, UnsupportedVersionError("no common version"))
    assert {each.partition for each in broker.take(PartitionFailed)} == {tp(0), tp(1)}
    broker.run(3.0)
    assert {each.partition for each in broker.take(PartitionRecovered)} == {tp(0), tp(1)}


def test_a_failed_partition_whose_topic_is_made_anew_is_reset_as_any_other(broker: Broker) -> None:
    broker.topic_ids = {"t": UUID(int=1)}
    broker.fresh_metadata()
    broker.bad = {0: api.FetchedPartition(error=NOT_AUTHORISED)}
    broker.run(1.0)
    broker.take(PartitionFailed)
    broker.topic_ids = {"t": UUID(int=2)}
    broker.fresh_metadata()
    (told,) = (each for each in broker.take(PartitionFailed) if each.partition == tp(0))
    assert isinstance(told.error, TopicRecreatedError)
    assert (told.tried_again, told.reset) == (False, EARLIEST)
