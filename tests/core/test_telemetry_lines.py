"""Telemetry's events as lines of a log."""

from __future__ import annotations

import logging
from typing import get_args

import pytest

from instride import TopicPartition
from instride._core.telemetry_lines import first_fetches, formatted
from instride.telemetry import (
    Blocker,
    DelayAtRisk,
    FetchBegan,
    HandedOver,
    OwnershipChange,
    OwnershipChanged,
    PartitionFlows,
    PartitionStalled,
    PositionReset,
    RebalanceEnded,
    RebalanceOutcome,
    RebalanceStarted,
    ResetCause,
    StallCause,
    TelemetryEvent,
)

TP = TopicPartition("flights", 3)
RECORD = Blocker(text="the record at offset 7", offset=7)

LINES: list[tuple[TelemetryEvent, int, str]] = [
    (
        OwnershipChanged(at=1.0, change=OwnershipChange.REVOKE_REQUESTED, partitions=(TP,)),
        logging.DEBUG,
        "revoke requested: flights-3",
    ),
    (
        FetchBegan(at=1.5, partition=TP, epoch=2, assigned_at=1.25),
        logging.DEBUG,
        "the first fetch of flights-3 was sent 0.250 s after it was assigned",
    ),
    (
        RebalanceStarted(at=1.0, generation=4, reason="the group is rebalancing"),
        logging.DEBUG,
        "a rebalance began after generation 4: the group is rebalancing",
    ),
    (
        RebalanceEnded(
            at=12.5,
            started_at=10.0,
            generation=5,
            reason="subscribe",
            outcome=RebalanceOutcome.TAKEN,
            joins=1,
            joining=2.0,
            syncing=0.1,
            taking=0.4,
            assigned=(TP,),
            delayed=(TopicPartition("flights", 1),),
        ),
        logging.INFO,
        "rebalance to generation 5 took 2.5 s (join 2.0 s, sync 0.100 s, taken by a poll after 0.400 s); assigned "
        "flights-3; delayed flights-1; because subscribe",
    ),
    (
        RebalanceEnded(
            at=11.0,
            started_at=10.0,
            generation=-1,
            reason="subscribe",
            outcome=RebalanceOutcome.FAILED,
            joins=2,
            revocation_requested=(TP,),
            reassigned=(TP,),
        ),
        logging.INFO,
        "rebalance to generation -1 took 1.0 s; revocation requested of flights-3; reassigned "
        "flights-3; because subscribe; it joined 2 times; the membership ended",
    ),
    (
        HandedOver(
            at=106.5,
            partition=TP,
            epoch=2,
            how=OwnershipChange.REVOKED,
            since=50.0,
            requested_at=100.0,
            noticed_at=100.25,
            delayed_at=100.5,
            polls_delayed=9,
            completing_at=106.0,
            blocker=RECORD,
        ),
        logging.INFO,
        "flights-3 was revoked 6.5 s after its revocation was requested (waiting for a poll 0.250 s, kept 5.8 s, "
        "completing 0.500 s); it waited for the record at offset 7",
    ),
    (
        HandedOver(at=100.0, partition=TP, epoch=2, how=OwnershipChange.REVOKED, since=50.0, requested_at=100.0),
        logging.DEBUG,
        "flights-3 was revoked 0.000 s after its revocation was requested",
    ),
    (
        HandedOver(at=106.5, partition=TP, epoch=2, how=OwnershipChange.LOST, since=50.0, abandoned=12),
        logging.WARNING,
        "flights-3 was lost; 12 of its records may come again at its next owner: returned and not committed",
    ),
    (
        DelayAtRisk(at=1.0, partition=TP, epoch=2, seconds_left=149.5, blocker=RECORD),
        logging.WARNING,
        "half of the time for the revocation of flights-3 has passed: it waits for the record at offset 7; in 149.5 s "
        "the partition is lost",
    ),
    (
        DelayAtRisk(at=1.0, partition=TP, epoch=2, seconds_left=0.25),
        logging.WARNING,
        "half of the time for the revocation of flights-3 has passed: no reason was given; in 0.250 s the partition "
        "is lost",
    ),
    (
        PartitionStalled(
            at=1.0, partition=TP, epoch=2, seconds=61.0, cause=StallCause.NOT_TAKEN, offset=0, end=9, waiting=4
        ),
        logging.WARNING,
        "flights-3 is owned and stands still for 61.0 s: records are fetched, and no poll takes them (next offset 0, "
        "log end 9, fetched 4)",
    ),
    (
        PartitionStalled(
            at=1.0, partition=TP, epoch=2, seconds=61.0, cause=StallCause.FETCH_FAILS, offset=5, error="NOT_LEADER"
        ),
        logging.WARNING,
        "flights-3 is owned and stands still for 61.0 s: no fetch of it succeeds, NOT_LEADER (next offset 5)",
    ),
    (
        PartitionStalled(at=1.0, partition=TP, epoch=2, seconds=61.0, cause=StallCause.NO_POSITION),
        logging.WARNING,
        "flights-3 is owned and stands still for 61.0 s: where to begin is not known yet",
    ),
    (
        PositionReset(at=1.0, partition=TP, epoch=2, cause=ResetCause.OUT_OF_RANGE, from_offset=70, to_offset=100),
        logging.WARNING,
        "flights-3 is read on from offset 100 instead of 70 (30 offsets skipped): its log, by both of its ends, "
        "does not have the offset",
    ),
    (
        PositionReset(at=1.0, partition=TP, epoch=2, cause=ResetCause.TRUNCATED, from_offset=70, to_offset=60),
        logging.WARNING,
        "flights-3 is read on from offset 60 instead of 70 (10 offsets may come again): its log was truncated "
        "below the offset",
    ),
    (
        PartitionFlows(at=1.0, partition=TP, epoch=2, seconds=99.0),
        logging.INFO,
        "flights-3 stands still no more, after 99.0 s",
    ),
]


@pytest.mark.requirement("surface/telemetry-lines")
@pytest.mark.parametrize(("event", "level", "line"), LINES)
def test_the_line_of_an_event(event: TelemetryEvent, level: int, line: str) -> None:
    assert formatted(event) == (level, line)


@pytest.mark.requirement("surface/telemetry-lines")
def test_every_kind_of_event_has_a_line() -> None:
    assert {type(event) for event, _, _ in LINES} == set(get_args(TelemetryEvent))


def test_a_long_list_of_partitions_is_cut() -> None:
    many = tuple(TopicPartition("t", number) for number in range(23))
    _, line = formatted(OwnershipChanged(at=1.0, change=OwnershipChange.ASSIGNED, partitions=many))
    assert line.endswith("t-19 and 3 more")
    assert "t-20" not in line


def test_the_loss_of_so_many_that_their_own_lines_are_bounded_is_a_warning() -> None:
    many = tuple(TopicPartition("t", number) for number in range(21))
    level, _ = formatted(OwnershipChanged(at=1.0, change=OwnershipChange.LOST, partitions=many))
    fewer, _ = formatted(OwnershipChanged(at=1.0, change=OwnershipChange.LOST, partitions=many[1:]))
    assert (level, fewer) == (logging.WARNING, logging.DEBUG)


def test_something_else_has_no_line() -> None:
    with pytest.raises(TypeError, match="not an event of telemetry"):
        formatted("x")  # type: ignore[arg-type]


def test_first_fetches_that_come_together_are_one_line_that_names_twenty() -> None:
    began = [
        FetchBegan(at=1.5, partition=TopicPartition("t", p), epoch=1, assigned_at=1.25 - p / 100) for p in range(50)
    ]
    level, line = first_fetches(began)
    assert level == logging.DEBUG
    assert line.startswith("the first fetches of t-0, t-1, t-2, ")
    assert line.endswith("t-19 and 30 more were sent 0.250 s to 0.740 s after they were assigned")


def test_first_fetches_of_one_assignment_name_one_time() -> None:
    began = [FetchBegan(at=1.5, partition=TopicPartition("t", p), epoch=1, assigned_at=1.25) for p in range(2)]
    assert first_fetches(began)[1] == "the first fetches of t-0, t-1 were sent 0.250 s after they were assigned"
