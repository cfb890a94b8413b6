"""The model of a log: what readers of it see, and what stands in their way."""

from __future__ import annotations

import random

from instride.testing._simulation.chunk import SimulatedChunk
from instride.testing._simulation.log_model import LogModel


def read(log: LogModel, offset: int, most: int = 100, *, committed: bool = True) -> tuple[list[int], int]:
    found = log.read(offset, most, committed=committed)
    return list(found.offsets), found.next_offset


def test_an_open_transaction_holds_up_who_reads_committed_records() -> None:
    log = LogModel()
    log.append(2)
    first = log.begin(2)
    log.append(1)
    assert read(log, 0) == ([0, 1], 2)
    assert read(log, 0, committed=False) == ([0, 1, 2, 3, 4], 5)
    assert log.finish(first, commit=True) == [range(5, 6)]
    assert read(log, 0) == ([0, 1, 2, 3, 4], 6)


def test_an_aborted_one_is_passed_over_with_its_marker_and_has_bytes() -> None:
    log = LogModel()
    first = log.begin(3)
    assert log.finish(first, commit=False) == [range(3), range(3, 4)]
    assert log.read(0, 2, committed=True) == ([], 2, 2)
    assert read(log, 0) == ([], 4)
    log.append(1)
    assert read(log, 1) == ([4], 5)
    assert log.next_record(0) == 4


def test_two_open_ones_end_in_any_order() -> None:
    log = LogModel()
    one, other = log.begin(1), log.begin(1)
    log.finish(other, commit=True)
    assert log.stable == 0
    log.finish(one, commit=False)
    assert log.stable == log.end == 4
    assert read(log, 0) == ([1], 4)


def test_a_compaction_leaves_the_last_record_and_no_bytes_of_what_it_takes() -> None:
    log = LogModel()
    log.append(50)
    taken = log.compact(random.Random(1))
    assert 10 < len(taken) < 40
    left = [at for at in range(50) if at not in taken]
    assert left[-1] == 49
    assert read(log, 0, len(left)) == (left, 50)
    assert log.read(0, 3, committed=True).size == 3


def test_retention_moves_the_beginning_up_to_an_open_transaction() -> None:
    log = LogModel()
    log.append(5)
    assert log.retain(2) == range(3)
    assert (log.start, log.end, log.next_record(0)) == (3, 5, 3)
    assert not log.retain(4)
    first = log.begin(2)
    assert log.retain(0) == range(3, 5)
    assert not log.retain(0)
    log.finish(first, commit=True)
    assert log.retain(0) == range(5, 8)
    assert (log.start, log.end, log.next_record(0)) == (8, 8, 8)
    assert log.compact(random.Random(1)) == []


def test_after_a_truncation_the_same_offsets_are_given_again() -> None:
    log = LogModel()
    log.append(5)
    log.truncate(3)
    assert (log.end, read(log, 0), read(log, 3)) == (3, ([0, 1, 2], 3), ([], 3))
    log.append(1)
    assert read(log, 2) == ([2, 3], 4)
    log.truncate(9)
    assert log.end == 4, "it ends nowhere else"
    log.retain(2)
    log.truncate(0)
    assert (log.start, log.end) == (2, 2)


def test_markers_and_holes_of_what_was_truncated_are_gone_with_it() -> None:
    log = LogModel()
    log.append(2)
    log.finish(log.begin(2), commit=False)
    log.append(30)
    assert any(at > 5 for at in log.compact(random.Random(1)))
    log.truncate(2)
    log.append(10)
    assert read(log, 2) == (list(range(2, 12)), 12)


def test_a_transaction_ends_without_its_lost_records_or_is_unknown() -> None:
    log = LogModel()
    one = log.begin(3)
    other = log.begin(2)
    log.truncate(2)
    another = log.begin(1)
    assert log.finish(other, commit=True) == [], "another one has begun since, where it did"
    assert log.finish(one, commit=False) == [range(2), range(3, 4)]
    assert log.stable == 2
    assert log.finish(another, commit=True) == [range(4, 5)]
    assert read(log, 0) == ([2], 5)


def test_a_chunk_with_holes_is_split_between_its_records() -> None:
    chunk = SimulatedChunk(topic="t", partition=0, first_offset=3, next_offset=12, offsets=(3, 4, 7, 9))
    assert list(chunk.stretches()) == [(3, 4, 0), (7, 7, 0), (9, 9, 0)]
    left, right = chunk.split(2)
    assert (left.next_offset, left.last_offset, len(left)) == (5, 4, 2)
    assert (right.first_offset, right.next_offset, right.last_offset) == (7, 12, 9)
    assert [record.offset for record in right.records(epoch=1, seek_number=0)] == [7, 9]


def test_each_record_of_a_chunk_has_the_leader_epoch_that_wrote_it() -> None:
    chunk = SimulatedChunk(topic="t", partition=0, first_offset=21, next_offset=27, epoch_starts=(0, 23, 26))
    assert list(chunk.stretches()) == [(21, 22, 0), (23, 25, 1), (26, 26, 2)]
    left, right = chunk.split(2)
    assert (left.leader_epoch, right.leader_epoch) == (0, 2)
    assert [record.leader_epoch for record in right.records(epoch=1, seek_number=0)] == [1, 1, 1, 2]
