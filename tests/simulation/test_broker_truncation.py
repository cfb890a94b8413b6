"""The model of the brokers at an unclean leader election: what is there no more, and who is told where it ends."""

from __future__ import annotations

from instride._wire import api
from instride.errors.codes import ErrorCode
from instride.records import TopicPartition
from instride.testing._simulation.broker_model import BrokerModel
from instride.testing._simulation.history import History
from instride.testing._simulation.scheduler import Scheduler

P = TopicPartition("t", 0)


class Brokers:
    """Two nodes; ten records of leader epoch 0, and five of epoch 1, are at the second one."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(1)
        self.history = History(self.scheduler)
        self.model = BrokerModel(self.scheduler, self.history, nodes=2, topics={"t": 1}, initial_delay=0.0)
        self.model.produce(P, 10)
        self.model.move_leader(P)
        self.model.produce(P, 5)

    def ask(self, request: api.Request, node: int) -> api.Response:
        responses: list[api.Response] = []
        self.model.serve(node, "A", request, responses.append)
        (response,) = responses
        return response

    def end_of(self, epoch: int, *, present: int = -1, node: int = 1) -> api.EpochEnd:
        """present: the leader epoch that the client knows."""
        request = api.OffsetForLeaderEpoch(epochs={P: epoch}, leader_epochs={P: present})
        response = self.ask(request, node)
        assert isinstance(response, api.OffsetForLeaderEpochResponse)
        return response.ends[P]

    def fetch(self, offset: int, *, present: int, node: int = 1) -> api.FetchedPartition:
        partition = api.FetchPartition("t", 0, offset, leader_epoch=present, max_bytes=10_000)
        response = self.ask(api.Fetch(partitions=(partition,), max_wait=0.0, min_bytes=1, max_bytes=10_000), node)
        assert isinstance(response, api.FetchResponse)
        return response.partitions[P]

    def told(self, what: str) -> list[tuple[object, ...]]:
        return [each.detail for each in self.history if each.what == what]


def test_the_next_leader_has_a_new_epoch_and_less() -> None:
    brokers = Brokers()
    brokers.model.truncate(P, 3)
    assert brokers.told("truncated") == [(P, 12, 2)]
    assert brokers.end_of(1, present=2) == api.EpochEnd(leader_epoch=1, end_offset=12)
    assert brokers.end_of(0, present=2) == api.EpochEnd(leader_epoch=0, end_offset=10)
    assert brokers.end_of(2, present=2) == api.EpochEnd(leader_epoch=2, end_offset=12)
    assert brokers.end_of(3) == api.EpochEnd(), "it knows no such epoch"


def test_of_an_epoch_that_has_lost_all_its_records_the_one_before_it_is_told() -> None:
    brokers = Brokers()
    brokers.model.truncate(P, 7)
    brokers.model.produce(P, 9)
    assert brokers.end_of(1) == api.EpochEnd(leader_epoch=0, end_offset=8)


def test_a_log_that_begins_later_has_its_beginning_as_the_end_of_what_is_gone() -> None:
    brokers = Brokers()
    brokers.model.retain(P, 2)
    brokers.model.truncate(P, 1000)
    assert brokers.told("truncated") == [(P, 13, 2)]
    assert brokers.end_of(1) == api.EpochEnd(leader_epoch=1, end_offset=13)


def test_other_records_take_the_same_offsets_with_another_epoch() -> None:
    brokers = Brokers()
    brokers.model.truncate(P, 3)
    brokers.model.produce(P, 4)
    chunk = brokers.fetch(11, present=2).chunk
    assert chunk is not None
    assert [(each.offset, each.leader_epoch) for each in chunk.records(epoch=1, seek_number=0)] == [
        *[(11, 1), (12, 2), (13, 2), (14, 2), (15, 2)],
    ]


def test_an_older_epoch_is_fenced_and_an_offset_behind_the_end_is_out_of_range() -> None:
    brokers = Brokers()
    brokers.model.truncate(P, 3)
    assert brokers.fetch(15, present=1).error == ErrorCode.FENCED_LEADER_EPOCH
    assert brokers.fetch(15, present=3).error == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert brokers.fetch(15, present=-1, node=2).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert brokers.fetch(15, present=2).error == ErrorCode.OFFSET_OUT_OF_RANGE
    assert brokers.fetch(12, present=2).error == ErrorCode.NONE
    assert brokers.end_of(1, present=1).error == ErrorCode.FENCED_LEADER_EPOCH


def test_where_reading_goes_on_that_reached_an_offset() -> None:
    brokers = Brokers()
    brokers.model.truncate(P, 7)
    brokers.model.produce(P, 9)
    assert [brokers.model.next_offset(P, 15, epoch) for epoch in (-1, 0, 1, 2)] == [15, 8, 8, 15]
    assert brokers.model.next_offset(P, 99, -1) == 17
    assert brokers.model.next_offset(P, 5, 1) == 5


def test_an_election_that_loses_nothing_truncates_nothing() -> None:
    brokers = Brokers()
    brokers.model.truncate(P, 0)
    assert (brokers.told("truncated"), brokers.model.leader_epochs[P]) == ([], 2)


def test_a_transaction_that_is_lost_ends_unheard() -> None:
    brokers = Brokers()
    brokers.model.transact(P, 3, 1.0, commit=True)
    brokers.model.truncate(P, 3)
    before = len(brokers.history)
    brokers.scheduler.run(2.0, lambda: False)
    assert (brokers.model.logs[P].end, len(brokers.history)) == (15, before)
