"""Rule 14: only what continues the buffer is taken, and what arrives says where it starts. A pause voids nothing."""

from __future__ import annotations

import pytest
from application_script import RecordingListener, Script, epochs, tp

from instride._core.events import (
    COMMITTED,
    Assigned,
    Commit,
    Consumed,
    Fetched,
    Pause,
    Positioned,
    Resume,
    SetPosition,
)

pytestmark = pytest.mark.rule("14")


@pytest.fixture
def owner(script: Script) -> Script:
    script.assigned(0)
    script.poll()
    script.posted.clear()
    return script


def test_what_is_under_way_when_a_partition_is_paused_and_resumed_is_returned(owner: Script) -> None:
    owner.machine.pause([tp(0)])
    owner.fetched(0, 0, 5)
    owner.machine.resume([tp(0)])
    assert owner.poll() == [(0, 0, 5)]
    assert owner.take_posted(Pause) == [Pause(partition=tp(0), epoch=1)]
    assert owner.take_posted(Resume) == [Resume(partition=tp(0), epoch=1)]


def test_what_arrives_while_paused_is_kept(owner: Script) -> None:
    owner.machine.pause([tp(0)])
    owner.fetched(0, 0, 5)
    assert owner.poll() == []
    owner.machine.resume([tp(0)])
    owner.fetched(0, 5, 9)
    assert owner.poll() == [(0, 0, 5), (0, 5, 9)]


def test_a_listener_that_works_between_pause_and_resume_loses_nothing(
    script: Script, listener: RecordingListener
) -> None:
    """How people load state: the position and the first records come while the listener works."""
    script.subscribe(listener)
    script.up(Assigned(generation=1, partitions=epochs(0)))

    def work() -> None:
        script.machine.pause([tp(0)])
        script.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=0))
        script.fetched(0, 0, 1000)
        script.machine.resume([tp(0)])

    listener.meanwhile = work
    assert script.poll() == [(0, 0, 1000)]
    assert script.take_posted(SetPosition) == []


def test_what_does_not_continue_the_buffer_is_fetched_again_from_its_end(owner: Script) -> None:
    owner.fetched(0, 0, 5)
    owner.fetched(0, 8, 12)
    assert owner.poll() == [(0, 0, 5)]
    (again,) = owner.take_posted(SetPosition)
    assert (again.offset, again.seek_number, again.fetch_number, again.keeps_buffer) == (5, 0, 1, True)
    counted = {tp(0): (1, 0, 4, 0)}, {tp(0): (1, 1, 5, 0)}
    assert tuple(each.partitions for each in owner.take_posted(Consumed)) == counted
    owner.fetched(0, 12, 15)
    assert owner.poll() == [], "of before the refusal"
    owner.fetched(0, 5, 8, fetch_number=1)
    assert owner.poll() == [(0, 5, 8)]


def test_what_repeats_the_buffer_is_refused_too(owner: Script) -> None:
    owner.fetched(0, 0, 5)
    owner.fetched(0, 3, 9)
    assert owner.poll() == [(0, 0, 5)]
    assert owner.take_posted(SetPosition)[0].offset == 5


def test_what_arrives_before_any_position_is_refused_and_the_position_is_looked_for(script: Script) -> None:
    script.up(Assigned(generation=1, partitions=epochs(0)))
    script.fetched(0, 7, 9)
    assert script.poll() == []
    assert script.take_posted(SetPosition)[0].offset == COMMITTED


def test_a_gap_of_the_log_is_no_gap(owner: Script) -> None:
    """Compaction, or aborted transactions: what was fetched at 0 begins at 3; nothing lies between 5 and 8."""
    owner.fetched(0, 3, 5, start=0)
    owner.up(Fetched(partition=tp(0), epoch=1, fetch_number=0, start=5, chunk=None, next_offset=8))
    owner.fetched(0, 8, 9)
    assert owner.poll() == [(0, 3, 5), (0, 8, 9)]
    assert owner.take_posted(SetPosition) == []


def test_a_second_look_up_that_passes_the_first_position_found_skips_nothing(owner: Script) -> None:
    """A partition whose revoke was requested is assigned again while its first position is under way."""
    script = Script()
    script.subscribe()
    script.up(Assigned(generation=1, partitions=epochs(0)))
    script.revocation_requested(0)
    script.reassigned(0)
    script.poll()
    (told,) = script.take_posted(SetPosition)
    assert told.offset == COMMITTED
    script.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=10))
    script.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=30))
    script.fetched(0, 30, 32, fetch_number=told.fetch_number)
    assert script.poll() == []
    (again,) = script.take_posted(SetPosition)
    assert again.offset == 10
    script.fetched(0, 10, 32, fetch_number=again.fetch_number)
    assert script.poll() == [(0, 10, 32)]


def test_the_leader_epoch_of_a_repeated_fetch_is_that_of_the_last_buffered_record(owner: Script) -> None:
    owner.fetched(0, 0, 5, leader_epoch=3)
    owner.up(Fetched(partition=tp(0), epoch=1, fetch_number=0, start=5, chunk=None, next_offset=8))
    owner.fetched(0, 11, 12)
    owner.poll()
    (again,) = owner.take_posted(SetPosition)
    assert (again.offset, again.leader_epoch) == (8, 3)


def test_a_position_behind_a_marker_has_the_markers_leader_epoch(owner: Script) -> None:
    """With that of the last record a validation would say that the log was cut before the marker (KIP-320)."""
    owner.fetched(0, 0, 5, leader_epoch=3)
    owner.up(Fetched(partition=tp(0), epoch=1, fetch_number=0, start=5, chunk=None, next_offset=6, leader_epoch=4))
    owner.poll()
    owner.up(Fetched(partition=tp(0), epoch=1, fetch_number=0, start=6, chunk=None, next_offset=7, leader_epoch=5))
    owner.poll()
    owner.machine.commit_async(owner.now, None)
    entry = owner.take_posted(Commit)[-1].entries[tp(0)]
    assert (entry.offset, entry.leader_epoch) == (7, 5)
