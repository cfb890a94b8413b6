"""The model of the brokers where a topic is deleted and created again: what is there no more, and who is told so."""

from __future__ import annotations

from uuid import UUID

from instride._wire import api
from instride.errors.codes import ErrorCode
from instride.records import TopicPartition
from instride.testing._simulation.broker_model import BrokerModel
from instride.testing._simulation.chunk import SimulatedChunk
from instride.testing._simulation.history import History
from instride.testing._simulation.scheduler import Scheduler
from instride.testing._simulation.topic_ids import as_told, id_of

P = TopicPartition("t", 0)
OLD, NEW = id_of("t", 0), id_of("t", 1)


class Brokers:
    """Two nodes; ten records of leader epoch 0, and five of epoch 1, are at the second one. 12 is committed."""

    def __init__(self, *, late: float = 0.0) -> None:
        self.scheduler = Scheduler(1)
        self.history = History(self.scheduler)
        self.model = BrokerModel(
            self.scheduler, self.history, nodes=2, topics={"t": 1}, initial_delay=0.0, ids=True, late=late
        )
        self.model.produce(P, 10)
        self.model.move_leader(P)
        self.model.produce(P, 5)
        assert self.commit(12, OLD) == ErrorCode.NONE

    def ask(self, request: api.Request, node: int = 1) -> api.Response:
        responses: list[api.Response] = []
        self.model.serve(node, "A", request, responses.append)
        (response,) = responses
        return response

    def topic(self, *, node: int = 1) -> api.MetadataTopic:
        response = self.ask(api.Metadata(topics=("t",)), node)
        assert isinstance(response, api.MetadataResponse)
        return response.topics[0]

    def fetch_request(self, offset: int, topic_id: UUID, *, wait: float = 0.0) -> api.Fetch:
        wanted = api.FetchPartition("t", 0, offset, topic_id=topic_id, leader_epoch=-1, max_bytes=10_000)
        named = topic_id == api.NO_TOPIC_ID
        return api.Fetch(partitions=(wanted,), max_wait=wait, min_bytes=1, max_bytes=10_000, named=named)

    def fetch(self, offset: int, topic_id: UUID, *, node: int = 1) -> api.FetchedPartition:
        response = self.ask(self.fetch_request(offset, topic_id), node)
        assert isinstance(response, api.FetchResponse)
        assert response.by_id == (topic_id != api.NO_TOPIC_ID)
        return response.partitions[P]

    def wait_for_records(self) -> list[api.Response]:
        """At the end of the log. The responses, once there are any."""
        responses: list[api.Response] = []
        self.model.serve(2, "A", self.fetch_request(15, OLD, wait=9.0), responses.append)
        return responses

    def commit(self, offset: int, topic_id: UUID) -> int:
        response = self.ask(
            api.OffsetCommit(
                group_id="g",
                generation=-1,
                member_id="",
                offsets={P: api.OffsetToCommit(offset=offset, leader_epoch=1)},
                topic_ids={} if topic_id == api.NO_TOPIC_ID else {"t": topic_id},
            )
        )
        assert isinstance(response, api.OffsetCommitResponse)
        return response.errors[P]

    def committed(self, topic_id: UUID) -> api.CommittedOffset:
        topic_ids = {} if topic_id == api.NO_TOPIC_ID else {"t": topic_id}
        response = self.ask(api.OffsetFetch(group_id="g", partitions=(P,), topic_ids=topic_ids))
        assert isinstance(response, api.OffsetFetchResponse)
        return response.offsets[P]

    def told(self, what: str) -> list[tuple[object, ...]]:
        return [each.detail for each in self.history if each.what == what]


def deleted() -> Brokers:
    brokers = Brokers()
    brokers.model.recreate("t", 1.0)
    return brokers


def recreated() -> Brokers:
    brokers = deleted()
    brokers.scheduler.run(1.5, lambda: False)
    return brokers


def test_nobody_finds_a_topic_between_its_deletion_and_the_next_creation() -> None:
    brokers = deleted()
    assert brokers.topic().error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert brokers.fetch(3, OLD).error == brokers.fetch(0, NEW).error == ErrorCode.UNKNOWN_TOPIC_ID
    assert brokers.fetch(3, api.NO_TOPIC_ID).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert brokers.commit(15, OLD) == ErrorCode.UNKNOWN_TOPIC_ID
    assert brokers.commit(15, api.NO_TOPIC_ID) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert brokers.committed(OLD).error == ErrorCode.UNKNOWN_TOPIC_ID
    assert brokers.committed(api.NO_TOPIC_ID) == api.CommittedOffset(), "what was committed is deleted with it"


def test_the_next_one_has_another_id_and_begins_anew() -> None:
    brokers = Brokers()
    before = brokers.topic()
    brokers.model.recreate("t", 0.0)
    after = brokers.topic()
    assert (before.topic_id, after.topic_id) == (OLD, NEW)
    assert (before.partitions[0].leader_epoch, after.partitions[0].leader_epoch) == (1, 0)
    assert before.partitions[0].leader != after.partitions[0].leader
    assert brokers.told("recreated") == [(P, 1_000_000)]


def test_only_the_present_id_is_known() -> None:
    brokers = recreated()
    brokers.model.produce(P, 20)
    assert brokers.fetch(12, OLD).error == ErrorCode.UNKNOWN_TOPIC_ID
    assert brokers.fetch(12, NEW).chunk is not None
    assert brokers.fetch(12, api.NO_TOPIC_ID).chunk is not None, "by its name nobody can tell it from the old one"
    assert brokers.commit(12, OLD) == ErrorCode.UNKNOWN_TOPIC_ID
    assert brokers.committed(OLD).error == ErrorCode.UNKNOWN_TOPIC_ID
    assert brokers.committed(NEW) == api.CommittedOffset()
    assert brokers.commit(3, NEW) == ErrorCode.NONE
    assert brokers.committed(NEW).offset == 3


def test_who_waits_for_records_hears_at_once() -> None:
    for seconds, code in ((1.0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (0.0, ErrorCode.INCONSISTENT_TOPIC_ID)):
        brokers = Brokers()
        responses = brokers.wait_for_records()
        assert responses == []
        brokers.model.recreate("t", seconds)
        (response,) = responses
        assert isinstance(response, api.FetchResponse)
        assert response.partitions[P].error == code


def test_ends_are_asked_for_by_name_so_they_are_those_of_the_new_log() -> None:
    brokers = recreated()
    brokers.model.produce(P, 2)
    for epoch, expected in ((-1, (0, 2)), (0, (0, 2)), (1, (ErrorCode.UNKNOWN_LEADER_EPOCH, -1))):
        request = api.ListOffsets(timestamps={P: -1}, leader_epochs={P: epoch})
        response = brokers.ask(request)
        assert isinstance(response, api.ListOffsetsResponse)
        assert (response.offsets[P].error, response.offsets[P].offset) == expected


def test_what_is_written_meanwhile_is_there_once_it_is_created() -> None:
    brokers = deleted()
    brokers.model.produce(P, 4)
    assert brokers.fetch(0, NEW).error == ErrorCode.UNKNOWN_TOPIC_ID
    brokers.scheduler.run(1.5, lambda: False)
    assert brokers.fetch(0, NEW).high_watermark == 4


def test_one_that_is_deleted_is_not_deleted_again() -> None:
    brokers = deleted()
    brokers.model.recreate("t", 0.0)
    assert brokers.told("recreated") == [(P, 1_000_000)]
    assert brokers.topic().error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_transaction_of_the_deleted_log_ends_unheard() -> None:
    brokers = Brokers()
    brokers.model.transact(P, 3, 0.5, commit=False)
    brokers.model.recreate("t", 0.0)
    brokers.model.transact(P, 2, 9.0, commit=True)
    before = len(brokers.history)
    brokers.scheduler.run(2.0, lambda: False)
    assert (brokers.model.logs[P].end, brokers.model.logs[P].stable, len(brokers.history)) == (2, 0, before)


def test_a_history_counts_the_epochs_of_the_next_one_behind_those_of_the_first() -> None:
    brokers = recreated()
    brokers.model.produce(P, 2)
    brokers.model.move_leader(P)
    brokers.model.produce(P, 1)
    chunk = brokers.fetch(0, NEW, node=2).chunk
    assert isinstance(chunk, SimulatedChunk)
    assert list(chunk.stretches()) == [(0, 1, 1_000_000), (2, 2, 1_000_001)]
    assert [each.leader_epoch for each in chunk.records(epoch=1, seek_number=0)] == [0, 0, 1]
    assert list(chunk.split(1)[1].stretches()) == [(1, 1, 1_000_000), (2, 2, 1_000_001)]


def test_so_it_does_where_that_one_is_truncated() -> None:
    brokers = recreated()
    brokers.model.produce(P, 5)
    brokers.model.truncate(P, 2)
    assert brokers.told("truncated") == [(P, 3, 1_000_001)]


def told(brokers: Brokers, *, topic_id: UUID | None = None) -> list[int]:
    """The leader epochs of a commit of A's with the epochs 1 and -1, by this id or by name, as the history has them."""
    offsets = {P: api.OffsetToCommit(offset=3, leader_epoch=1), ("t", 1): api.OffsetToCommit(offset=4)}
    topic_ids = {} if topic_id is None else {"t": topic_id}
    request = api.OffsetCommit(group_id="g", generation=1, member_id="A", offsets=offsets, topic_ids=topic_ids)
    return [each.leader_epoch for each in as_told(request, "A", brokers.history).offsets.values()]


def test_so_does_a_commit_by_the_id_that_it_names() -> None:
    assert told(recreated(), topic_id=NEW) == [1_000_001, -1], "what is unknown stays so"
    assert told(recreated(), topic_id=OLD) == [1, -1]
    assert told(Brokers()) == [1, -1]


def test_one_by_name_is_of_the_topic_that_its_member_reads() -> None:
    """It knows no id. Each such commit counted as one of the deleted topic, and S4 reported it."""
    brokers = recreated()
    assert told(brokers) == [1, -1], "it was told of nothing"
    brokers.history.add("A", "positioned", P, 1, 0)
    brokers.history.add("B", "poll", ((P, 1, 0, 0, 4, 1),), (), ())
    brokers.history.add("A", "poll", ((TopicPartition("t", 1), 1, 0, 0, 4, 1),), (), ())
    assert told(brokers) == [1_000_001, -1]
    brokers.history.add("A", "poll", ((P, 1, 0, 0, 4, 1),), (), ())
    assert told(brokers) == [1, -1], "a broker that had not heard yet has returned these"
    brokers.history.add("A", "positioned", P, 1, 0)
    brokers.history.add("A", "poll", ((P, 1, 0, 0, 4, 1_000_000),), (), ())
    assert told(brokers) == [1_000_001, -1]


def test_a_node_that_hears_late_tells_of_the_old_one_and_serves_it() -> None:
    """The second one. The coordinator's is the first."""
    brokers = Brokers(late=1.0)
    waiting = brokers.wait_for_records()
    brokers.model.recreate("t", 0.0)
    brokers.model.produce(P, 1)
    old, new = brokers.topic(node=2), brokers.topic(node=1)
    assert (old.topic_id, old.partitions[0].leader, old.partitions[0].leader_epoch) == (OLD, 2, 1)
    assert (new.topic_id, new.partitions[0].leader, new.partitions[0].leader_epoch) == (NEW, 1, 0)
    fetched = brokers.fetch(12, OLD, node=2)
    assert (fetched.error, fetched.high_watermark) == (0, 15)
    assert isinstance(fetched.chunk, SimulatedChunk)
    assert list(fetched.chunk.stretches()) == [(12, 14, 1)]
    assert brokers.fetch(12, NEW, node=2).error == ErrorCode.UNKNOWN_TOPIC_ID
    assert brokers.commit(15, OLD) == ErrorCode.UNKNOWN_TOPIC_ID, "the coordinator knows"
    assert waiting == []
    brokers.scheduler.run(1.6, lambda: False)
    (response,) = waiting
    assert isinstance(response, api.FetchResponse)
    assert response.partitions[P].error == ErrorCode.INCONSISTENT_TOPIC_ID
    assert brokers.topic(node=2).topic_id == NEW
    assert brokers.fetch(12, OLD, node=2).error == ErrorCode.UNKNOWN_TOPIC_ID


def test_it_says_where_the_old_log_ends_too() -> None:
    brokers = Brokers(late=1.0)
    brokers.model.recreate("t", 0.0)
    listed = brokers.ask(api.ListOffsets(timestamps={P: -1}, leader_epochs={P: 1}), node=2)
    ended = brokers.ask(api.OffsetForLeaderEpoch(epochs={P: 0}, leader_epochs={P: 1}), node=2)
    assert isinstance(listed, api.ListOffsetsResponse)
    assert isinstance(ended, api.OffsetForLeaderEpochResponse)
    assert (listed.offsets[P].offset, ended.ends[P].end_offset) == (15, 10)


def test_who_becomes_the_coordinator_has_heard() -> None:
    brokers = Brokers(late=1.0)
    brokers.model.recreate("t", 0.0)
    brokers.model.move_coordinator(0.0)
    assert brokers.topic(node=2).topic_id == NEW
