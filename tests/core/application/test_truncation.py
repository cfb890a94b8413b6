"""A log that was cut behind what was read (KIP-320), as the application side takes it."""

from __future__ import annotations

from typing import Any

import pytest
from application_script import Script, shown, tp

from instride._core.events import EARLIEST, LATEST, Fetched, PartitionFailed, SetPosition
from instride.errors import KafkaTimeoutError, LogTruncationError, TopicAuthorizationFailedError
from instride.testing._simulation.chunk import SimulatedChunk


class Cut(Script):
    """Offsets 0 to 9 are buffered, in two chunks and a batch without records."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.subscribe()
        self.assigned(0)
        self.fetched(0, 0, 4)
        self.fetched(0, 4, 8)
        self.up(Fetched(partition=tp(0), epoch=1, fetch_number=0, start=8, chunk=None, next_offset=10))

    def cut(self, offset: int, *, reset: int | None, void_from: int | None = None, fetch_number: int = 0) -> None:
        error = LogTruncationError("cut", topic="t", partition=0, offset=10, divergent_offset=offset)
        self.up(
            PartitionFailed(
                partition=tp(0),
                epoch=1,
                fetch_number=fetch_number,
                error=error,
                reset=reset,
                leader_epoch=2,
                void_from=offset if void_from is None else void_from,
            )
        )

    def sent(self) -> list[tuple[int, int, int]]:
        """(offset, leader epoch, seek number) of every position told to the network side."""
        return [(each.offset, each.leader_epoch, each.seek_number) for each in self.take_posted(SetPosition)]


@pytest.mark.parametrize(("offset", "returned"), [(8, [(0, 0, 4), (0, 4, 8)]), (6, [(0, 0, 4), (0, 4, 6)])])
def test_what_is_buffered_behind_the_cut_is_not_returned(offset: int, returned: list[tuple[int, int, int]]) -> None:
    script = Cut()
    script.cut(offset, reset=offset)
    assert script.poll() == returned
    assert script.poll() == []
    assert script.sent() == [(offset, -1, 0)], "fetched again from the cut; nothing was returned from behind it"


@pytest.mark.parametrize(("offset", "returned"), [(4, [(0, 0, 4)]), (1, [(0, 0, 1)])])
def test_chunks_behind_the_cut_go_whole(offset: int, returned: list[tuple[int, int, int]]) -> None:
    script = Cut()
    script.cut(offset, reset=offset)
    assert script.poll() == returned
    script.poll()
    assert script.sent() == [(offset, -1, 0)]


@pytest.mark.parametrize(("limit", "offset"), [(-1, 6), (-1, 4), (-1, 0), (6, 5), (6, 6), (3, 2), (3, 7)])
def test_what_is_read_while_the_log_is_cut_is_not_returned_from_behind_the_cut(limit: int, offset: int) -> None:
    """A slow deserializer: the poll's last look finds it. Those records were returned, and then the ones in their
    place, though nobody had to see the former."""
    script = Cut()
    call = script.machine.poll(script.now, 0.0, immediate=False, limit=limit, read=lambda record: record)
    assert script.start(call).in_hand
    script.cut(offset, reset=offset)
    returned = shown(script.go_on(call)) + script.poll()
    assert [each for _, start, end in returned for each in range(start, end)] == list(range(offset))
    script.poll()
    assert script.sent() == [(offset, -1, 0)], "no seek is needed"


def test_a_chunk_whose_last_batches_hold_no_record_is_returned_before_a_cut() -> None:
    """The chunk leads past the cut, and no record of it is there: nothing is to be given up for that."""
    script = Script()
    script.subscribe()
    script.assigned(0)
    chunk = SimulatedChunk(topic="t", partition=0, first_offset=0, next_offset=10, offsets=(0, 1, 2))
    script.up(Fetched(partition=tp(0), epoch=1, fetch_number=0, start=0, chunk=chunk, next_offset=10))
    call = script.machine.poll(script.now, 0.0, immediate=False, limit=-1, read=lambda record: record)
    assert script.start(call).in_hand
    error = LogTruncationError("cut", topic="t", partition=0, offset=10, divergent_offset=5)
    script.up(PartitionFailed(partition=tp(0), epoch=1, fetch_number=0, error=error, reset=5, void_from=5))
    (delivery,) = script.go_on(call)
    assert delivery.chunk.last_offset == 2


def test_what_a_poll_took_of_a_partition_that_fails_otherwise_stays_aside() -> None:
    """Of each such partition it was put back into the buffer at the poll's last look, to look for a cut."""
    script = Cut()
    error = TopicAuthorizationFailedError("not authorised")
    script.up(PartitionFailed(partition=tp(0), epoch=1, fetch_number=0, error=error, reset=None))
    call = script.machine.poll_aside(script.now, 0.0, immediate=False, limit=-1, read=lambda record: record)
    assert script.start(call).in_hand
    result = script.go_on(call)
    assert shown(list(result.deliveries)) == [(0, 0, 4), (0, 4, 8)]
    assert result.aside is not None
    assert len(result.aside.arrivals) == 1


def test_what_was_returned_from_behind_the_cut_needs_a_seek() -> None:
    script = Cut()
    assert script.poll(limit=5) == [(0, 0, 4), (0, 4, 5)]
    script.cut(3, reset=3)
    assert script.poll() == []
    assert script.sent() == [(3, 2, 1)], "with a higher seek number: commits may go back"
    script.fetched(0, 3, 5, fetch_number=1)
    assert script.poll() == [(0, 3, 5)]


@pytest.mark.vector(74)
def test_without_a_policy_it_is_raised_once_all_before_the_cut_was_returned() -> None:
    script = Cut()
    script.cut(6, reset=None)
    assert script.poll() == [(0, 0, 4), (0, 4, 6)]
    with pytest.raises(LogTruncationError) as raised:
        script.poll()
    assert raised.value.divergent_offset == 6
    assert script.poll() == []
    assert script.sent() == []


def test_a_cut_that_a_seek_overtook_is_ignored() -> None:
    script = Cut()
    script.poll()
    script.machine.seek(tp(0), 2)
    script.sent()
    script.cut(1, reset=1)
    script.fetched(0, 2, 9, fetch_number=1)
    assert script.poll() == [(0, 2, 9)]
    assert script.sent() == []


class Divergences(Script):
    """The log of partition 0, read up to 10, is truncated."""

    def __init__(self, *, reset: int | None = None) -> None:
        super().__init__()
        self.subscribe()
        self.assigned(0)
        self.fetched(0, 0, 10)
        self.poll()
        self.reset = reset

    def fail(self, fetch_number: int = 0, *, divergences: int = 1) -> None:
        error = LogTruncationError("cut", topic="t", partition=0, offset=10, divergent_offset=None)
        failed = PartitionFailed(
            partition=tp(0), epoch=1, fetch_number=fetch_number, error=error, reset=self.reset, divergences=divergences
        )
        self.up(failed)

    def sought(self) -> list[tuple[int, int]]:
        """(offset, divergences) of every position told to the network side."""
        return [(each.offset, each.divergences) for each in self.take_posted(SetPosition)]


def test_a_seek_says_of_how_many_divergences_of_the_log_the_user_was_told() -> None:
    """Else the network side took it for one in the log since then, and nobody heard of the loss."""
    script = Divergences()
    script.fail()
    script.machine.seek(tp(0), 4)
    script.machine.assignment()  # takes what came up
    script.machine.seek(tp(0), 5)
    assert script.sought() == [(4, 0), (5, 0)]
    script.fail(fetch_number=2)
    with pytest.raises(LogTruncationError):
        script.poll()
    script.machine.seek(tp(0), 6)
    script.machine.seek(tp(0), 7)
    script.fail(fetch_number=4, divergences=2)
    script.machine.assignment()
    script.machine.seek(tp(0), 8)
    assert script.sought() == [(6, 1), (7, 1), (8, 1)]


def test_what_failed_partitions_shows_the_user_was_told() -> None:
    script = Divergences()
    script.fail()
    assert list(script.machine.failed()) == [tp(0)]
    script.machine.seek(tp(0), 4)
    assert script.machine.failed() == {}
    assert script.sought() == [(4, 1)]


def test_what_position_raises_the_user_was_told() -> None:
    script = Divergences()
    script.machine.seek(tp(0), LATEST)
    with pytest.raises(KafkaTimeoutError):
        script.run(script.machine.position(script.now, tp(0), 0.0))
    script.fail(fetch_number=1)
    with pytest.raises(LogTruncationError):
        script.run(script.machine.position(script.now, tp(0), 0.0))
    script.machine.seek(tp(0), 4)
    assert script.sought() == [(LATEST, 0), (4, 1)]


def test_a_reset_goes_by_the_divergence_that_caused_it() -> None:
    script = Divergences(reset=EARLIEST)
    script.fail()
    assert script.machine.failed() == {}, "it is no failure of which the user hears"
    script.poll()
    assert script.sought() == [(EARLIEST, 1)]
