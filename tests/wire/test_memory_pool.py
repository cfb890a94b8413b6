"""Memory of long frames is used again, and never while somebody may still read what came into it."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import struct
import sys
import tracemalloc
import weakref

import pyarrow as pa
import pytest

from instride._wire import compression
from instride._wire import memory_pool as segments_module
from instride._wire.frames import FrameBuffer
from instride._wire.memory_pool import LARGE_BYTES, Pages, Segment, Segments, kept_bytes, segment_bytes

LONG = 300_000
MOST = 400_000


def received(frames: FrameBuffer, body: bytes) -> tuple[memoryview, int]:
    """The frame, and into how many buffers it was received."""
    data, buffers = struct.pack(">i", len(body)) + body, 0
    while True:
        with frames.get_buffer() as buffer:
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
        data, buffers = data[size:], buffers + 1
        found = frames.buffer_updated(size)
        if found:
            return found[0], buffers


def test_a_long_frame_is_received_where_the_last_one_was_once_no_view_of_it_is_left() -> None:
    frames = FrameBuffer(max_frame_bytes=MOST, segments=Segments(1 << 20))
    first, grown = received(frames, b"a" * LONG)
    memory = first.obj
    del first
    second, buffers = received(frames, b"b" * (LONG + 5))
    assert second.obj is memory
    assert second == b"b" * (LONG + 5)
    assert buffers == 2 < grown  # the scratch buffer, and all the rest in one


def test_a_connection_that_has_sent_a_frame_as_long_gets_the_whole_memory_at_once() -> None:
    frames = FrameBuffer(max_frame_bytes=MOST)
    kept, grown = received(frames, b"a" * LONG)
    received(frames, b"short")
    again, buffers = received(frames, b"b" * (LONG - 5))
    assert again.obj is not kept.obj
    assert buffers == 2 < grown  # the scratch buffer, and all the rest in one


@pytest.mark.skipif(
    not hasattr(resource, "RUSAGE_THREAD")
    or sys.flags.dev_mode
    or os.environ.get("PYTHONMALLOC", "").endswith("debug")
    or "MALLOC_PERTURB_" in os.environ,
    reason="the system counts no thread's page faults, or this malloc fills all memory by itself",
)
def test_memory_that_is_received_into_is_not_written_to_before() -> None:
    """Counted by the pages that the process touches for the first time."""
    segments = Segments(64 << 20)
    segment, before = segments.new(b"begun"), _page_faults()
    grown = segments.extended(segment, 32 << 20)
    assert _page_faults() - before < 100
    assert grown is segment
    assert len(grown) == (32 << 20) + 5
    assert grown[:5] == b"begun"


def _page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


def test_other_users_of_pythons_interface_may_say_what_they_pass_to_it() -> None:
    """`ctypes.pythonapi.NAME` is one object for all libraries of the process."""
    shared = ctypes.pythonapi.PyByteArray_Resize
    segments, before = Segments(1 << 20), shared.argtypes
    shared.argtypes = (ctypes.c_char_p,)
    try:
        assert len(segments.extended(segments.new(b"begun"), 7)) == 12
    finally:
        shared.argtypes = before


def test_memory_that_is_not_there_leaves_the_segment_as_it_was() -> None:
    segments = Segments(1 << 20)
    segment = segments.new(b"begun")
    with pytest.raises(MemoryError):
        segments.extended(segment, sys.maxsize - 100)
    assert segment == b"begun"


def test_what_is_claimed_beyond_the_longest_frame_so_far_is_not_believed() -> None:
    frames = FrameBuffer(max_frame_bytes=1 << 30)
    received(frames, b"a" * LONG)
    tracemalloc.start()
    try:
        frames.receive_data(struct.pack(">i", LARGE_BYTES) + bytes(100_000))
        assert tracemalloc.get_traced_memory()[1] < 3 * LONG
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("keep", [lambda frame: frame[7:9], pa.py_buffer, lambda frame: memoryview(frame).toreadonly()])
def test_what_is_still_seen_is_not_written_to(keep: object) -> None:
    frames = FrameBuffer(max_frame_bytes=MOST, segments=Segments(1 << 20))
    frame, _ = received(frames, b"a" * LONG)
    memory = frame.obj
    kept = keep(frame)  # type: ignore[operator]
    del frame
    second, _ = received(frames, b"b" * LONG)
    assert second.obj is not memory
    assert set(bytes(kept)) == set(b"a")
    del kept
    third, _ = received(frames, b"c" * LONG)
    assert third.obj is memory


def test_a_segment_that_is_received_into_is_nobody_elses() -> None:
    segments = Segments(1 << 20)
    one, other = (FrameBuffer(max_frame_bytes=MOST, segments=segments) for _ in range(2))
    received(one, b"a" * LONG)
    one.receive_data(struct.pack(">i", LONG) + b"one " * 10_000)
    between, _ = received(other, b"o" * LONG)
    (frame,) = one.receive_data(b"one " * ((LONG - 40_000) // 4))
    assert frame == b"one " * (LONG // 4)
    assert between == b"o" * LONG


def test_any_frames_that_are_kept_and_dropped_in_any_order_stay_as_they_came() -> None:
    chance = random.Random(7)
    segments = Segments(1 << 20)
    streams = [FrameBuffer(max_frame_bytes=MOST, segments=segments) for _ in range(3)]
    taken: list[tuple[memoryview, bytes]] = []
    for number in range(300):
        body = bytes([number % 251]) * chance.choice((10, 66_000, 100_000, LONG, LONG + 3000))
        taken.append((received(chance.choice(streams), body)[0], body))
        if len(taken) > 4:
            taken.pop(chance.randrange(len(taken)))
        assert all(frame == body for frame, body in taken)


def test_no_more_is_kept_than_may_be() -> None:
    segments = Segments(2 * segment_bytes(LONG))
    frames = FrameBuffer(max_frame_bytes=MOST, segments=segments)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for size in (LONG, 2 * LONG // 3, LONG // 2, LONG // 3, LONG):
            views = [received(frames, b"x" * size)[0] for _ in range(4)]
            del views
            segments.trim()
            assert tracemalloc.get_traced_memory()[0] - before < 2 * segment_bytes(LONG) + 20_000
    finally:
        tracemalloc.stop()


def test_a_bound_that_changes_holds_at_once() -> None:
    segments = Segments(4 * segment_bytes(LONG))
    free, (used, view) = [segments.new(bytes(LONG)) for _ in range(2)], in_use(segments)
    for each in free:
        segments.keep(each)
    del each, free
    segments.bound(segment_bytes(LONG))
    assert segments.take(LONG) is not None
    assert segments.take(LONG) is None
    segments.bound(0)
    view.release()
    del used
    segments.trim()
    assert segments.take(LONG) is None, "it was in use when the bound changed"
    segments.bound(2 * segment_bytes(LONG))
    segments.keep(segments.new(bytes(LONG)))
    assert segments.take(LONG) is not None


@pytest.mark.parametrize("fetch_buffer_bytes", [64 << 20, 256 << 20])
def test_two_full_responses_memory_is_kept_for_the_next_ones(fetch_buffer_bytes: int) -> None:
    """An eighth of the buffer each, with some bytes of headers."""
    segments = Segments(kept_bytes(fetch_buffer_bytes))
    length = segment_bytes(fetch_buffer_bytes // 8 + 300)
    free = [segments.new(bytes(length)) for _ in range(2)]
    for each in free:
        segments.keep(each)
    del each
    assert [segments.take(length) is not None for _ in free] == [True, True]


def test_what_is_free_is_let_go_of_and_what_is_in_use_is_used_again() -> None:
    segments = Segments(2000)
    kept, dropped = lent(segments, 900), lent(segments, 900)
    del dropped
    segments.let_go()
    assert segments.take(1000) is None
    memory = id(kept[0])
    del kept
    assert id(segments.take(1000)) == memory


@pytest.mark.parametrize(("most_bytes", "length"), [(LONG, LARGE_BYTES + 1), (9 << 20, (9 << 20) + 1)])
def test_a_frame_too_long_to_be_kept_has_its_own_pages_and_others_make_way(most_bytes: int, length: int) -> None:
    """malloc kept parts of what it grew through, and what was free stayed beside it: 109 MiB for one of 55 MB."""
    segments = Segments(most_bytes)
    frames = FrameBuffer(max_frame_bytes=1 << 30, segments=segments)
    received(frames, b"a" * LONG)
    body = random.Random(7).randbytes(length)
    frame, buffers = received(frames, body)
    assert frame == body
    assert type(frame.obj) is Pages
    assert frame.obj.pool is segments
    assert buffers == 2, "the scratch buffer, and all the rest in one"
    assert segments.take(LONG) is None
    shorter, _ = received(frames, b"c" * min(most_bytes, LARGE_BYTES))
    assert type(shorter.obj) is Segment


def test_a_segment_that_was_to_take_the_next_frame_makes_way_for_pages_too() -> None:
    """It has the frame's beginning, so that nobody else could let go of it."""
    segments = Segments(1 << 20)
    frames = FrameBuffer(max_frame_bytes=1 << 30, segments=segments)
    whole(frames, framed(b"a" * LONG))
    body = random.Random(7).randbytes(LARGE_BYTES + 1)
    (frame,) = whole(frames, framed(body))
    assert frame == body
    assert type(frame.obj) is Pages
    assert segments.take(LONG) is None


MUCH = LARGE_BYTES + 1


def in_use(segments: Segments) -> tuple[Segment, memoryview]:
    """One that is kept, of which somebody has a view."""
    segment = segments.new(bytes(LONG))
    view = memoryview(segment)
    segments.keep(segment)
    return segment, view


def test_beside_pages_the_pool_keeps_less_by_them_until_they_go() -> None:
    """Beside a response of 59 MB it had kept 30 MB of others."""
    segments = Segments(MUCH)
    segment, view = in_use(segments)
    assert segments.may_stay(segment)
    pages = Pages(MUCH, segments)
    assert not segments.may_stay(segment)
    view.release()
    del segment
    segments.trim()
    assert segments.take(LONG) is None
    del pages
    segment, view = in_use(segments)
    assert segments.may_stay(segment)


def test_what_is_moved_into_pages_is_beside_the_pool_it_came_from() -> None:
    segments = Segments(MUCH)
    segment, _view = in_use(segments)
    moved = compression.moved(memoryview(segments.new(bytes(MUCH + 1)))[:MUCH])
    assert not segments.may_stay(segment)
    del moved
    assert segments.may_stay(segment)


@pytest.mark.parametrize("taking", ["a frame", "a part that is moved", "a batch"])
def test_malloc_gives_back_what_it_keeps_where_much_memory_is_taken(
    taking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It kept as much again: 130 MiB for a response of 59 MB that was taken apart."""
    trims: list[bool] = []
    for module in (segments_module, compression):
        monkeypatch.setattr(module, "trim_malloc", lambda: trims.append(True))
    segments, size = Segments(LONG), LARGE_BYTES + 1
    if taking == "a frame":
        assert segments.new_pages(size) is not None
    elif taking == "a part that is moved":
        compression.moved(memoryview(segments.new(bytes(2 * size)))[:size])
    else:
        compression.Sections(0).append(0, memoryview(bytes(size)), 2 * size)
    assert trims == [True]


def test_pages_that_the_system_does_not_have_are_a_memory_error() -> None:
    with pytest.raises(MemoryError, match=str(1 << 62)):
        Pages(1 << 62)


def test_nothing_is_kept_of_a_frame_that_is_longer_than_all_that_may_be() -> None:
    segments = Segments(LONG)
    segments.keep(segments.new(bytes(LONG + 1)))
    assert segments.take(LONG) is None


def lent(segments: Segments, nbytes: int) -> tuple[Segment, memoryview]:
    """One of the pool's segments of 1,000 bytes, and the part of it that somebody counts."""
    segment = segments.new(bytes(1000))
    part = memoryview(segment)[:nbytes]
    segment.lend(part, nbytes)
    segments.keep(segment)
    return segment, part


def test_parts_may_stay_while_what_nobody_counts_of_their_segments_is_bounded() -> None:
    segments = Segments(2000)
    kept = [lent(segments, nbytes) for nbytes in (1000, 500, 1)]
    assert kept[0][0].may_stay()
    kept.append(lent(segments, 498))
    assert not kept[0][0].may_stay(), "2001 bytes are idle"
    kept[3] = lent(segments, 500)
    assert kept[0][0].may_stay()


def test_parts_may_stay_while_twice_the_bound_is_in_use() -> None:
    segments = Segments(2000)
    kept = [lent(segments, 1000) for _ in range(4)]
    assert kept[0][0].may_stay()
    kept.append(lent(segments, 1000))
    assert not kept[0][0].may_stay()
    del kept[1:]
    assert kept[0][0].may_stay()


def test_the_parts_of_a_response_cost_as_much_however_many_segments_are_in_use() -> None:
    """With 25 MiB in segments of 75 KiB each response of 70 partitions took 40 ms of CPU, and not 3."""

    def calls(in_use: int) -> int:
        segments = Segments(1 << 20)
        kept = [lent(segments, 1000) for _ in range(in_use)]
        seen: list[str] = []
        sys.setprofile(lambda _frame, event, _arg: seen.append(event))
        try:
            assert all(kept[0][0].may_stay() for _ in range(70))
        finally:
            sys.setprofile(None)
        return len(seen)

    assert calls(400) < 2 * calls(10)


@pytest.mark.parametrize(("counted", "free"), [(500, 2), (250, 1), (1, 0)])
def test_what_is_free_gives_way_to_what_is_idle(counted: int, free: int) -> None:
    segments = Segments(2000)
    dropped = [lent(segments, 1000) for _ in range(2)]
    kept = [lent(segments, counted) for _ in range(4)]
    del dropped
    segments.trim()
    found = [segments.take(1000) for _ in range(2)]
    assert sum(each is not None for each in found) == free
    assert len(kept) == 4


def test_what_is_decompressed_has_a_pool_of_its_own_whose_bound_follows() -> None:
    segments = Segments(16 << 20)
    for bound in (16 << 20, 8 << 20, 0):
        segments.bound(bound)
        for _ in range(8):
            segments.decompressed.keep(segments.decompressed.new(bytes(1 << 20)))
        assert sum(map(len, segments.decompressed._kept)) == bound // 4
    assert segments._kept == []


@pytest.mark.parametrize("decompresses", [False, True])
def test_beside_a_pool_of_the_decompressed_less_may_be_idle(decompresses: bool) -> None:
    """By as much as that may keep: else it would be beyond what docs/architecture.md says."""
    segments = Segments(4000)
    if decompresses:
        assert segments.decompressed.take(1) is None
    parts = [lent(segments, 1) for _ in range(3)]
    idle = sum(segment.idle for segment, _ in parts)
    segments.bound(idle + 1)
    assert segments.may_stay(parts[0][0]) == (not decompresses)


def test_what_is_free_of_the_decompressed_makes_way_too() -> None:
    segments = Segments(16 << 20)
    segments.decompressed.keep(segments.decompressed.new(bytes(1 << 20)))
    segments.let_go()
    assert segments.decompressed.take(1 << 20) is None


def test_nothing_may_stay_that_the_pool_does_not_know() -> None:
    segments = Segments(LONG)
    long, short = segments.new(bytes(LONG + 1)), segments.new(bytes(LONG))
    views = [memoryview(long), memoryview(short)]
    for each in (long, short):
        each.lend(views[each is short], len(each))
        segments.keep(each)
    assert (long.may_stay(), short.may_stay()) == (False, True)
    del segments
    assert not short.may_stay(), "the consumer is closed"


def test_what_is_used_again_and_again_remembers_nothing() -> None:
    """Also where nobody asks what of it is idle, as with one partition."""
    segments = Segments(2000)
    part = lent(segments, 900)[1]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(300):
            del part
            again = segments.take(1000)
            assert again is not None
            part = memoryview(again)[:900]
            again.lend(part, 900)
            segments.keep(again)
        assert tracemalloc.get_traced_memory()[0] - before < 2000
    finally:
        tracemalloc.stop()


def test_a_part_that_ends_late_is_not_counted_twice() -> None:
    """A view lets go of its memory before it says so: another thread may come between."""
    segment, part = lent(Segments(2000), 900)
    segment.forget()
    del part
    assert segment.idle == 1000
    again, other = memoryview(segment)[:100], memoryview(segment)[:7]
    segment.lend(again, 100)
    segment._ended.append(weakref.ref(other))
    assert segment.idle == 900


def test_a_signal_while_a_part_ends_is_not_lost() -> None:
    """Nothing of Python runs there, in which a signal's exception would only be printed."""
    segment, part = lent(Segments(2000), 900)
    seen: list[str] = []
    kept = [part]
    del part
    sys.setprofile(lambda _frame, event, _arg: seen.append(event))
    kept.clear()
    sys.setprofile(None)
    assert "call" not in seen
    assert segment.idle == 1000


def test_what_is_used_again_is_lent_anew() -> None:
    segments = Segments(2000)
    segment, part = lent(segments, 900)
    memory = id(segment)
    for _ in range(3):
        assert segment.idle == 100
        del part, segment
        again = segments.take(1000)
        assert again is not None
        segment = again
        assert id(segment) == memory
        assert segment.idle == 1000
        part = memoryview(segment)[:900]
        segment.lend(part, 900)
        del again
        segments.keep(segment)


@pytest.mark.parametrize("length", [1, 7, 8, 9, 65_533, LONG, 1 << 23, (1 << 23) + 1])
def test_a_segment_is_an_eighth_longer_at_most(length: int) -> None:
    assert length <= segment_bytes(length) <= length + length // 8 + 1


def test_a_much_shorter_frame_does_not_take_a_long_segment() -> None:
    segments = Segments(1 << 20)
    segments.keep(segments.new(bytes(LONG)))
    assert segments.take(LONG // 2) is None
    assert segments.take(LONG - 100) is not None


def whole(frames: FrameBuffer, data: bytes) -> list[memoryview]:
    """As a pump receives, which is told that a frame is awaited."""
    found: list[memoryview] = []
    while data:
        with frames.get_buffer(whole=True) as buffer:
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
        data = data[size:]
        found += frames.buffer_updated(size)
    return found


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def test_an_awaited_frame_as_long_as_the_last_one_is_received_at_once() -> None:
    frames = FrameBuffer(max_frame_bytes=MOST, segments=Segments(1 << 20))
    memory = whole(frames, framed(b"a" * LONG))[0].obj
    with frames.get_buffer(whole=True) as buffer:
        assert buffer.obj is memory
        assert len(buffer) >= 4 + LONG
    (frame,) = whole(frames, framed(b"b" * LONG))
    assert frame.obj is memory
    assert frame == b"b" * LONG


def test_the_memory_for_an_awaited_frame_is_released_where_none_or_a_short_one_came() -> None:
    segments = Segments(1 << 20)
    frames = FrameBuffer(max_frame_bytes=MOST, segments=segments)
    whole(frames, framed(b"a" * LONG))
    frames.get_buffer(whole=True).release()
    assert segments.take(LONG) is None
    frames.get_buffer().release()
    back = segments.take(LONG)
    assert back is not None
    segments.keep(back)
    assert whole(frames, framed(b"short")) == [b"short"]
    frames.get_buffer(whole=True).release()
    assert segments.take(LONG) is not None


def test_an_awaited_frame_is_judged_by_its_request() -> None:
    most = {7: LONG, 8: LONG - 1}
    for number, accepted in ((7, True), (8, False), (9, False)):
        frames = FrameBuffer(max_frame_bytes=MOST, most_bytes=most.get, segments=Segments(1 << 20))
        whole(frames, framed(struct.pack(">i", 7) + b"a" * (LONG - 4)))
        found = whole(frames, framed(struct.pack(">i", number) + b"b" * (LONG - 4)))
        assert (len(found), frames.failure is None) == (accepted, accepted)


def test_awaited_frames_of_any_length_and_in_any_pieces_come_as_they_were_sent() -> None:
    chance = random.Random(3)
    frames = FrameBuffer(max_frame_bytes=MOST, segments=Segments(1 << 20))
    bodies = [bytes([n % 251]) * chance.choice((0, 3, 65_531, 65_533, LONG, LONG, LONG + 9, MOST)) for n in range(60)]
    stream, found = b"".join(map(framed, bodies)), []
    while stream:
        size = chance.choice((1, 5, 1000, 100_000, LONG + 4))
        found += [bytes(each) for each in whole(frames, stream[:size])]
        stream = stream[size:]
    assert found == bodies
    assert (frames.is_between_frames, frames.wanted) == (True, 0)


def test_a_long_frame_that_comes_in_small_pieces_is_not_copied_with_each_of_them() -> None:
    """As TLS brings it, which unpacks 16 KiB at a time: eight times the CPU of the drain went into these copies."""
    frames = FrameBuffer(max_frame_bytes=MOST, segments=Segments(1 << 20))
    body = b"a" * LONG
    assert whole(frames, framed(body))[0] == body  # so the next one is awaited in a segment of its own
    data, most = framed(body), 0
    for at in range(0, len(data), 16_384):
        piece = data[at : at + 16_384]
        with frames.get_buffer(whole=True) as buffer:
            buffer[: len(piece)] = piece
        tracemalloc.start()
        found = frames.buffer_updated(len(piece))
        most = max(most, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert found == [body]
    assert most < 16_384
