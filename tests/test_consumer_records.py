"""What a poll returns: records by partition, made on demand."""

from __future__ import annotations

import copy
import pickle
from collections import deque
from dataclasses import replace

import pytest

from instride._core.application.partition import Delivery
from instride._core.network.ranges import RangeChunk
from instride.consumer_records import Changes, ConsumerRecords, Stretch
from instride.records import TopicPartition
from step_counter import calls, steps

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def delivery(
    partition: TopicPartition, start: int, end: int, *, epoch: int = 1, seek_number: int = 0, after: int = -1
) -> Delivery:
    chunk = RangeChunk(topic="t", partition=partition.partition, first_offset=start, next_offset=end)
    return Delivery(
        partition=partition,
        chunk=chunk,  # type: ignore[arg-type]  # its record is a range
        epoch=epoch,
        seek_number=seek_number,
        start=after,
    )


def starts(records: list[object]) -> list[int]:
    return [each.start for each in records]  # type: ignore[attr-defined]


def test_no_records_are_falsy_and_say_so() -> None:
    records = ConsumerRecords()
    assert not records
    assert (len(records), list(records), records.partitions(), records.next_offsets()) == (0, [], (), {})
    assert repr(records) == "ConsumerRecords(0 of no partition)"
    assert records.to_arrow() == []


def test_records_come_in_the_order_of_the_poll_and_by_partition() -> None:
    records = ConsumerRecords([delivery(P1, 5, 8), delivery(P0, 0, 2), delivery(P1, 8, 9)])
    assert len(records) == 6
    assert starts(list(records)) == [5, 0, 8]
    assert records.partitions() == (P1, P0)
    assert starts(list(records.records(P1))) == [5, 8]
    assert records.records(TopicPartition("t", 9)) == []
    assert {tp: starts(list(each)) for tp, each in records.by_partition().items()} == {P1: [5, 8], P0: [0]}
    assert repr(records) == "ConsumerRecords(6 of t-1, t-0)"


def test_by_partition_goes_over_them_once_however_many_partitions_there_are() -> None:
    def cost(partitions: int) -> int:
        records = ConsumerRecords([delivery(TopicPartition("t", each), 0, 1) for each in range(partitions)])
        return steps(records.by_partition)

    assert cost(200) < 11 * cost(20)


def test_going_over_the_records_calls_no_function_for_each() -> None:
    def calls_of(many: int) -> int:
        made = replace(delivery(P0, 0, many), records=(object(),) * many)  # type: ignore[arg-type]
        return calls(lambda: deque(ConsumerRecords([made, made]), maxlen=0))

    assert calls_of(100) == calls_of(10)


def test_records_do_not_go_to_another_process_and_say_what_does() -> None:
    for records in (ConsumerRecords(), ConsumerRecords([delivery(P0, 0, 2)])):
        with pytest.raises(TypeError, match=r"send list\(records\), or what records\.to_arrow\(\) returns"):
            pickle.dumps(records)
        assert copy.copy(records) is copy.deepcopy(records) is records, "it cannot change"


def test_next_offsets_are_behind_the_last_record_of_each_partition() -> None:
    records = ConsumerRecords([delivery(P1, 5, 8), delivery(P0, 0, 2), delivery(P1, 8, 9)])
    assert records.next_offsets() == {P1: 9, P0: 2}


@pytest.mark.rule("14")
def test_deliveries_that_join_up_are_one_stretch() -> None:
    records = ConsumerRecords(
        [
            delivery(P0, 5, 8, after=3),
            delivery(P0, 9, 12, after=8),
            delivery(P0, 20, 22, after=15),
            delivery(P0, 22, 23, after=22, seek_number=1),
            delivery(P1, 23, 24, after=23, seek_number=1),
            delivery(P0, 30, 31),
        ]
    )
    assert records.stretches() == [
        Stretch(3, 12, 6),
        Stretch(15, 22, 2),
        Stretch(22, 23, 1),
        Stretch(23, 24, 1),
        Stretch(-1, 31, 1),
    ]
    assert ConsumerRecords().stretches() == []


def test_every_record_carries_the_epoch_and_seek_number_it_was_returned_in() -> None:
    records = ConsumerRecords([delivery(P0, 0, 2, epoch=4, seek_number=3)])
    (record,) = records
    assert (record.epoch, record.seek_number) == (4, 3)


def test_changes_are_empty_by_default() -> None:
    changes = Changes()
    assert not changes.records
    assert (changes.to_be_revoked, changes.lost) == (frozenset(), frozenset())
