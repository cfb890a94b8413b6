"""Frames come out whole and unchanged however the stream is cut; bad lengths allocate nothing."""

from __future__ import annotations

import mmap
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instride._wire.frames import FIRST_FRAME_BYTES, FrameBuffer
from instride._wire.memory_pool import LARGE_BYTES, Segments
from instride.errors import FrameTooLargeError, NotKafkaError

MAX = 400_000


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def received_in_place(frames: FrameBuffer, data: bytes) -> list[memoryview]:
    """As a socket does it: at most as much as the offered buffer holds."""
    found: list[memoryview] = []
    while data:
        with frames.get_buffer() as buffer:
            assert len(buffer) > 0
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
        found += frames.buffer_updated(size)
        data = data[size:]
    return found


def test_frames_split_at_every_byte() -> None:
    bodies = [b"first", b"", b"x" * 30]
    stream = framed(*bodies)
    for cut in range(len(stream) + 1):
        frames = FrameBuffer(max_frame_bytes=MAX)
        found = received_in_place(frames, stream[:cut]) + received_in_place(frames, stream[cut:])
        assert [bytes(each) for each in found] == bodies
        assert frames.is_between_frames


def test_one_byte_at_a_time() -> None:
    frames = FrameBuffer(max_frame_bytes=MAX)
    stream = framed(b"ab", b"cde")
    found = [bytes(each) for byte in stream for each in frames.receive_data(bytes([byte]))]
    assert found == [b"ab", b"cde"]


@given(
    sizes=st.lists(st.integers(0, 50) | st.integers(65_500, 65_560) | st.integers(100_000, 200_000), max_size=6),
    cuts=st.lists(st.integers(1, 150_000), max_size=8),
)
def test_any_sizes_in_any_pieces(sizes: list[int], cuts: list[int]) -> None:
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    stream = framed(*bodies)
    frames = FrameBuffer(max_frame_bytes=MAX)
    found: list[memoryview] = []
    for cut in cuts:
        found += received_in_place(frames, stream[:cut])
        stream = stream[cut:]
    found += received_in_place(frames, stream)
    assert [bytes(each) for each in found] == bodies


def test_a_large_frame_is_received_in_place() -> None:
    frames = FrameBuffer(max_frame_bytes=MAX)
    frames.receive_data(struct.pack(">i", 300_000) + b"abcd")
    with frames.get_buffer() as buffer:
        received = buffer.obj
    (frame,) = received_in_place(frames, b"x" * (300_000 - 4))
    assert frame.obj is received


def test_a_view_that_a_profiler_has_of_the_buffer_is_no_bar() -> None:
    """Who lists all objects of a process finds those of a thread at work. It killed the network thread."""
    frames, body = FrameBuffer(max_frame_bytes=MAX), b"x" * 300_000
    stream = struct.pack(">i", len(body)) + body
    found: list[memoryview] = []
    seen: list[memoryview] = []
    while stream:
        with frames.get_buffer() as buffer:
            seen.append(buffer[:])
            size = min(len(buffer), len(stream))
            buffer[:size] = stream[:size]
        stream = stream[size:]
        found += frames.buffer_updated(size)
    assert found == [body]
    assert len(seen) > 2, "it grew"


@pytest.mark.parametrize("claimed", [LARGE_BYTES, 1 << 30])
@pytest.mark.parametrize("arrived", [0, 3, 4, 100_000])
def test_memory_follows_what_has_arrived_and_not_what_is_claimed(arrived: int, claimed: int) -> None:
    """Four bytes cost 127 MiB. What is too long to be kept takes addresses only, until it arrives."""
    frames = FrameBuffer(max_frame_bytes=1 << 30)
    frames.receive_data(framed(b"first"))
    stream = struct.pack(">i", claimed) + bytes(arrived)
    resident = resident_bytes()
    tracemalloc.start()
    try:
        frames.receive_data(stream)
        assert tracemalloc.get_traced_memory()[1] < 4 * arrived + 200_000
    finally:
        tracemalloc.stop()
    assert resident_bytes() - resident < LARGE_BYTES // 2
    assert frames.failure is None


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_a_long_frame_is_judged_by_its_request() -> None:
    most = {7: 200_000, 8: 100_000}
    for number, says in ((7, None), (8, "100000 are the most for what was asked"), (9, "for which no request waits")):
        frames = FrameBuffer(max_frame_bytes=MAX, most_bytes=most.get)
        frames.receive_data(framed(b"first") + struct.pack(">ii", 150_000, number))
        assert (frames.failure is None) == (says is None)
        assert says is None or says in str(frames.failure)


def test_a_long_frame_that_comes_whole_is_judged_by_its_request_too() -> None:
    """Where the last one was as long, and all of it is received at once."""
    most = {7: 200_000, 8: 100_000}
    for number, says in ((7, None), (8, "100000 are the most for what was asked"), (9, "for which no request waits")):
        frames = FrameBuffer(max_frame_bytes=MAX, most_bytes=most.get, segments=Segments(1 << 20))
        long = struct.pack(">i", 7) + b"x" * 149_996
        assert received_in_place(frames, framed(b"first", long)) == [b"first", long]
        stream = framed(struct.pack(">i", number) + b"y" * 149_996)
        with frames.get_buffer(whole=True) as buffer:
            assert len(buffer) >= len(stream)
            buffer[: len(stream)] = stream
        found = frames.buffer_updated(len(stream))
        assert (len(found) == 1) == (frames.failure is None) == (says is None)
        assert says is None or says in str(frames.failure)


def test_a_frame_outlives_later_ones() -> None:
    frames = FrameBuffer(max_frame_bytes=MAX)
    (first,) = frames.receive_data(framed(b"first"))
    frames.receive_data(framed(b"other"))
    assert bytes(first) == b"first"


@pytest.mark.parametrize("length", [-1, -(2**31), MAX + 1, 2**31 - 1])
def test_a_bad_length_allocates_nothing(length: int) -> None:
    frames = FrameBuffer(max_frame_bytes=MAX)
    stream = framed(b"good", b"good too") + struct.pack(">i", length) + bytes(11)
    tracemalloc.start()
    try:
        found = frames.receive_data(stream)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert [bytes(each) for each in found] == [b"good", b"good too"]
    assert isinstance(frames.failure, FrameTooLargeError)
    assert str(length) in str(frames.failure)
    assert frames.receive_data(framed(b"more")) == []


def test_the_longest_frame_allowed() -> None:
    frames = FrameBuffer(max_frame_bytes=MAX)
    frames.receive_data(framed(b""))
    (frame,) = frames.receive_data(framed(bytes(MAX)))
    assert len(frame) == MAX


@pytest.mark.parametrize(
    ("greeting", "guess"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\n\r\n", "an HTTP server"),
        (b"<!DOCTYPE html><html>", "an HTTP server"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "a TLS listener"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "a TLS listener"),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "an SSH server"),
        (b"AMQP\x00\x00\x09\x01", "RabbitMQ"),
        (b"-ERR unknown command\r\n", "Redis"),
        (b"E\x00\x00\x00\x88SFATAL\x00VFATAL\x00C0A000\x00Munsupported frontend protocol 18.3", "PostgreSQL"),
        (b"220 mail.example.org ESMTP\r\n", "SMTP"),
        (b"\x4a\x00\x00\x00\x0a8.0.33", "something else"),
        (b"\xff\xff\xff\xff", "something else"),
        (struct.pack(">i", FIRST_FRAME_BYTES + 1), "something else"),
    ],
)
def test_what_is_not_kafka_is_named(greeting: bytes, guess: str) -> None:
    frames = FrameBuffer(max_frame_bytes=2**31 - 1)
    assert frames.receive_data(greeting) == []
    assert isinstance(frames.failure, NotKafkaError)
    assert guess in str(frames.failure)


def test_only_the_first_frame_is_judged_so() -> None:
    frames = FrameBuffer(max_frame_bytes=2**31 - 1)
    frames.receive_data(framed(b"kafka"))
    frames.receive_data(struct.pack(">i", FIRST_FRAME_BYTES + 1))
    assert frames.failure is None


def test_a_large_frame_comes_in_pieces() -> None:
    frames = FrameBuffer(max_frame_bytes=MAX)
    assert frames.receive_data(struct.pack(">i", 300_000)) == []
    for _ in range(4):
        assert received_in_place(frames, b"x" * 50_000) == []
        assert not frames.is_between_frames
    (frame,) = received_in_place(frames, b"y" * 100_000)
    assert bytes(frame) == b"x" * 200_000 + b"y" * 100_000
    assert frames.is_between_frames


def test_what_a_socket_brings_after_a_failure_is_not_looked_at() -> None:
    frames = FrameBuffer(max_frame_bytes=MAX)
    frames.receive_data(framed(b"good") + struct.pack(">i", -5))
    failure = frames.failure
    frames.get_buffer()[:6] = framed(b"ab")
    assert frames.buffer_updated(6) == []
    assert frames.failure is failure
