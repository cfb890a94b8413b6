"""The codecs' framings, and the buffer that grows no further than it must."""

from __future__ import annotations

import gzip
import mmap
import struct
import subprocess
import sys

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_batches import CODECS, compress, xerial

from instride._wire import compression
from instride._wire.compression import CompressionError, Sections
from instride._wire.memory_pool import Pages, Segment, Segments, extended
from step_counter import calls

LIMIT = 1 << 20


def _one(codec: str, data: bytes, limit: int = LIMIT) -> bytes:
    sections = Sections(0)
    assert sections.append(CODECS.index(codec), memoryview(data), limit)[0] == 0
    return bytes(sections.finish())


@pytest.mark.parametrize("codec", CODECS)
@given(parts=st.lists(st.binary(max_size=300), max_size=6), expected=st.integers(0, 2000))
def test_sections_stand_one_after_another(codec: str, parts: list[bytes], expected: int) -> None:
    sections = Sections(expected)
    places = [sections.append(CODECS.index(codec), memoryview(compress(codec, part)), LIMIT) for part in parts if part]
    whole = bytes(sections.finish())
    assert [whole[start:end] for start, end in places] == [part for part in parts if part]
    assert len(whole) == sum(map(len, parts)) == sections.used


@pytest.mark.parametrize(("codec", "most"), [("none", 17), ("gzip", 13), ("snappy", 15), ("lz4", 13), ("zstd", 20)])
def test_the_cost_of_a_batch_is_a_few_calls(codec: str, most: int) -> None:
    """Of a few rows the library takes hardly longer than they do."""
    text = b"x" * 100
    data = memoryview(bytes(cramjam.snappy.compress_raw(text)) if codec == "snappy" else compress(codec, text))
    sections = Sections(1000)
    assert calls(lambda: sections.append(CODECS.index(codec), data, LIMIT)) <= most


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_several_frames_are_one_section(codec: str) -> None:
    assert _one(codec, compress(codec, b"abc") + compress(codec, b"def")) == b"abcdef"


def _joined(codec: str, parts: list[bytes], limit: int = LIMIT, least: int = 0) -> list[bytes] | None:
    """Of batches that are compressed already, behind one of three bytes."""
    sections = Sections(0)
    sections.append(0, memoryview(b"abc"), LIMIT)
    places = sections.append_joined(
        CODECS.index(codec),
        [memoryview(part) for part in parts],
        least_bytes=[least] * len(parts),
        expected_bytes=100,
        limit=limit,
    )
    used, whole = sections.used, bytes(sections.finish())
    assert used == len(whole)
    assert whole[:3] == b"abc"
    if places is None:
        assert whole == b"abc", "nothing is added"
        return None
    return [whole[start:end] for start, end in places]


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
@given(parts=st.lists(st.binary(max_size=300), min_size=1, max_size=6))
def test_joined_batches_come_apart_where_they_were_joined(codec: str, parts: list[bytes]) -> None:
    assert _joined(codec, [compress(codec, part) for part in parts]) == parts


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_of_joined_batches_nothing_counts_where_one_is_wrong(codec: str) -> None:
    good, large = compress(codec, b"x" * 50), compress(codec, b"x" * 500)
    assert _joined(codec, [good, good[:-5], good]) is None
    assert _joined(codec, [good, b"junk", good]) is None
    assert _joined(codec, [good, large, good], limit=600) is None, "more than the limit"
    assert _joined(codec, [good, good], least=51) is None, "one has too little"
    assert _joined(codec, [good, large, good]) == [b"x" * 50, b"x" * 500, b"x" * 50]


def test_a_batch_that_claims_what_follows_is_not_joined() -> None:
    """A block of zstd that is not compressed takes in the mark behind it, but not as the mark."""
    good = compress("zstd", b"x" * 50)
    swallowed = len(compression.MARKS[4]) + len(good)
    claims = b"\x28\xb5\x2f\xfd\x00\x58" + (1 | (3 + swallowed) << 3).to_bytes(3, "little") + b"abc"
    assert compression.MARKS[4] in cramjam.zstd.decompress(claims + compression.MARKS[4] + good).read()
    assert _joined("zstd", [claims, good]) is None


def test_two_batches_that_were_made_for_each_other_are_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each alone is broken. Joined, the second one makes the mark of the text that the first one has taken in."""
    mark, text = compression.MARKS[3], compression._MARK[:8]
    literals = len(b"a" + mark) + 1
    back = literals - 1 - mark.index(text)
    one = b"a"
    # Literals, eight bytes from there, the forty behind them; then literals alone.
    other = b"0" + back.to_bytes(2, "little") + b"\x0f" + b"\x08\x00" + bytes([40 - 4 - 15]) + b"\xf0\x05" + b"b" * 20
    begin = b"\xf4" + bytes([literals - 15])
    size = len(begin + one + mark + other).to_bytes(4, "little")
    first, second = b"\x04\x22\x4d\x18\x60\x40\x82" + size + begin + one, other + bytes(4)
    assert _joined("lz4", [first, second]) is None
    monkeypatch.setattr(compression, "_may_be_joined", lambda *_: True)
    assert _joined("lz4", [first, second]) == [b"a" + mark + b"0", b"b" * 20], "so the look at the frames is needed"


def test_an_empty_block_of_lz4_ends_no_frame() -> None:
    """One that is not compressed has a bit of its length set. What follows is a block's length, and no checksum."""
    empty = b"\x04\x22\x4d\x18\x64\x40\xa7" + b"\x00\x00\x00\x80" + b"\x20\x00\x00\x80"
    assert not compression._may_be_joined(3, memoryview(empty))


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_marks_that_do_not_come_out_discard_all(codec: str) -> None:
    """A batch has the mark itself."""
    parts = [b"x" * 50, b"x" + compression._MARK + b"y"]
    assert _joined(codec, [compress(codec, part) for part in parts]) is None


@pytest.mark.parametrize("codec", compression.MARKS)
def test_compressed_the_mark_is_another_text(codec: int) -> None:
    assert compression._MARK not in compression.MARKS[codec]
    assert _one(CODECS[codec], compression.MARKS[codec]) == compression._MARK


def test_a_frame_with_a_large_window_is_not_joined() -> None:
    """What that leaves of the limit, it says alone."""
    usual = compress("zstd", b"x" * 50)
    # A window of 16 MiB; one raw block.
    large = b"\x28\xb5\x2f\xfd\x00\x70" + (1 | 50 << 3).to_bytes(3, "little") + b"x" * 50
    assert _one("zstd", large, 1 << 25) == b"x" * 50
    assert _joined("zstd", [usual, large], limit=1 << 20) is None


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_frames_of_very_many_blocks_are_not_joined(codec: str) -> None:
    """To go over them would take longer than to decompress them alone."""
    begin, block, end = {
        "lz4": (b"\x04\x22\x4d\x18\x60\x40\x82", b"\x01\x00\x00\x80x", bytes(4)),
        "zstd": (b"\x28\xb5\x2f\xfd\x00\x58", b"\x08\x00\x00x", b"\x01\x00\x00"),
    }[codec]
    few, many = (begin + count * block + end for count in (90, 110))
    assert _one(codec, many) == b"x" * 110
    assert _joined(codec, [few, few]) == [b"x" * 90] * 2
    assert _joined(codec, [few, many]) is None


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
@given(cut=st.integers(0, 80), behind=st.binary(max_size=20))
def test_what_is_joined_is_what_each_alone_is(codec: str, cut: int, behind: bytes) -> None:
    good = compress(codec, b"xyz" * 20)
    parts = [good, good[:cut] + behind, good]
    together = _joined(codec, parts)
    assert together is None or together == [_one(codec, part) for part in parts]


def test_gzip_of_the_standard_library() -> None:
    assert _one("gzip", gzip.compress(b"x" * 1000)) == b"x" * 1000


@pytest.mark.requirement("surface/codecs")
def test_snappy_in_both_framings() -> None:
    text = b"to take something in stride " * 40
    assert _one("snappy", bytes(cramjam.snappy.compress_raw(text))) == text
    assert _one("snappy", xerial(text)) == text
    assert _one("snappy", xerial(text, 1 << 15)) == text


@pytest.mark.parametrize("length", [-1, 1 << 30, 200])
def test_a_snappy_block_that_is_longer_than_its_batch(length: int) -> None:
    bad = xerial(b"abc")[:16] + struct.pack(">i", length) + b"abc"
    with pytest.raises(CompressionError, match="longer than its batch"):
        _one("snappy", bad)


@pytest.mark.requirement("surface/bombs")
def test_a_claimed_snappy_length_is_not_believed() -> None:
    with pytest.raises(CompressionError, match="over 1048576 bytes"):
        _one("snappy", b"\xff\xff\xff\xff\x0f" + b"\0" * 20)


@pytest.mark.parametrize("codec", CODECS)
def test_the_bound_itself_still_fits(codec: str) -> None:
    data = compress(codec, bytes(5000))
    assert _one(codec, data, 5000) == bytes(5000)
    with pytest.raises(CompressionError, match=f"a {codec} batch holds over 4999 bytes"):
        _one(codec, data, 4999)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec(codec: int) -> None:
    with pytest.raises(CompressionError, match=f"codec {codec} is unknown"):
        Sections(0).append(codec, memoryview(b"abc"), LIMIT)


def test_a_failed_section_leaves_the_others() -> None:
    sections = Sections(0)
    sections.append(0, memoryview(b"abc"), LIMIT)
    with pytest.raises(CompressionError):
        sections.append(4, memoryview(b"junk"), LIMIT)
    assert bytes(sections.finish()) == b"abc"


def test_what_is_large_exists_once() -> None:
    """A batch of 40 MiB where 64 are allowed: neither the 64 nor a copy of the 40 is ever in memory."""
    script = """
import re
from pathlib import Path
import cramjam
from instride._wire.compression import CODECS, Sections

peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
compressor = cramjam.zstd.Compressor()
for _ in range(40):
    compressor.compress(bytes(1 << 20))
packed = memoryview(bytes(compressor.finish()))
before = peak()
sections = Sections(0)
assert sections.append(CODECS.index("zstd"), packed, 64 << 20) == (0, 40 << 20)
whole = sections.finish()
assert len(whole) == sections.kept == 40 << 20 and not any(whole[:100])
print((peak() - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 60


def test_pages_are_given_back_where_nothing_else_stands() -> None:
    data, page = b"x" * (9 << 20), mmap.PAGESIZE
    sections = Sections(0)
    sections.append(CODECS.index("zstd"), memoryview(compress("zstd", data)), 64 << 20)
    whole = sections.finish()
    assert sections.releases
    sections.release(5, page - 1)
    assert whole == data, "there is no whole page between"
    sections.release(page + 1, 5 * page - 1)
    assert [bytes(whole[n * page : (n + 1) * page]).count(b"x") for n in range(6)] == [page, page, 0, 0, page, page]
    small = Sections(0)
    small.append(CODECS.index("zstd"), memoryview(compress("zstd", b"x" * 100)), 64 << 20)
    assert not small.releases


@pytest.mark.parametrize("size", [100, 100_000, 9 << 20])
def test_a_view_that_a_profiler_has_of_the_buffer_is_no_bar(size: int) -> None:
    """As of the buffer that a frame is received into."""
    sections, part, seen = Sections(50), b"x" * size, []
    for _ in range(2):
        seen.append(memoryview(sections._buffer))
        sections.append(CODECS.index("zstd"), memoryview(compress("zstd", part)), 64 << 20)
    seen.append(memoryview(sections._buffer))
    whole = sections.finish()
    assert whole[: 2 * size] == 2 * part
    assert sections.kept <= len(whole)


def test_no_memory_is_a_memory_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "Pages", lambda _: Pages(1 << 62))
    with pytest.raises(MemoryError, match="no room"):
        Sections(0).append(CODECS.index("gzip"), memoryview(compress("gzip", bytes(20 << 20))), 1 << 62)


def test_what_is_expected_is_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    """After batches that became very much, a small one cost pages for all that it might have become."""
    monkeypatch.setattr(compression, "Pages", lambda _: pytest.fail("pages for a small batch"))
    sections = Sections(1000)
    for expected in (64 << 20, 128 << 20):
        sections.append(
            CODECS.index("zstd"), memoryview(compress("zstd", bytes(1000))), 1 << 30, expected_bytes=expected
        )
    assert sections.finish() == bytes(2000)


@pytest.mark.parametrize(("there", "copied"), [(0, False), (499, False), (500, True), (799, True), (800, False)])
def test_what_is_used_of_a_buffer_is_copied_only_where_cutting_gives_nothing_back(there: int, *, copied: bool) -> None:
    """With a first guess of much all that was decompressed of a usual response was copied. In thousands of bytes."""
    sections, text = Sections(1_000_000), bytes(1000 * there)
    sections.append(CODECS.index("zstd"), memoryview(compress("zstd", text)), 1 << 30)
    buffer, whole = sections._buffer, sections.finish()
    assert whole == text
    assert (whole.obj is not buffer) == copied
    assert 0 <= sys.getsizeof(whole.obj) - sections.kept <= 100, "it says what it keeps"


def decompressed(segments: Segments, nbytes: int, *, expected: int = 2 << 20) -> tuple[memoryview, int]:
    sections = Sections(expected, segments)
    sections.append(CODECS.index("zstd"), memoryview(compress("zstd", b"x" * nbytes)), 1 << 30)
    whole = sections.finish()
    assert whole == b"x" * nbytes
    return whole, sections.kept


def test_what_is_decompressed_takes_the_memory_of_what_nobody_views_any_more() -> None:
    """Malloc took it from the system and returned it each time: half of the time was spent with new pages."""
    segments = Segments(8 << 20)
    first, kept = decompressed(segments, 2_000_000)
    second, _ = decompressed(segments, 2_000_000)
    assert second.obj is not first.obj, "somebody views it"
    assert kept == memoryview(first.obj).nbytes, "it says what it keeps"
    memory = first.obj
    part = first[5:9]
    del first
    third, _ = decompressed(segments, 2_000_000)
    assert third.obj is not memory, "a part of it is viewed"
    assert bytes(part) == b"xxxx"
    del part
    assert decompressed(segments, 1_900_000)[0].obj is memory


def test_of_a_segment_with_little_in_it_that_is_copied_and_the_segment_is_free() -> None:
    segments = Segments(8 << 20)
    little, kept = decompressed(segments, 500_000)
    assert kept == 500_000
    assert not isinstance(little.obj, Segment)
    more, _ = decompressed(segments, 2_000_000)
    memory = more.obj
    assert isinstance(memory, Segment)
    del more
    assert decompressed(segments, 1_000)[1] == 1_000
    assert decompressed(segments, 2_000_000)[0].obj is memory


def test_a_segment_that_is_too_short_grows_and_is_kept_as_it_is_then() -> None:
    segments = Segments(8 << 20)
    long, kept = decompressed(segments, 2_000_000, expected=1 << 20)
    memory = long.obj
    assert isinstance(memory, Segment)
    assert kept == len(memory) >= 2_000_000
    del long
    assert decompressed(segments, 2_000_000, expected=len(memory))[0].obj is memory


def test_a_small_buffer_is_no_segment() -> None:
    """There would be thousands to look through."""
    whole, _ = decompressed(Segments(8 << 20), 100_000, expected=100_000)
    assert not isinstance(whole.obj, Segment)


def test_where_the_system_refuses_a_first_buffer_less_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The piece failed, though a hundredth of it was enough."""

    def granted(buffer: bytearray, size: int) -> bytearray:
        if size > 1 << 20:
            raise MemoryError
        return extended(buffer, size)

    monkeypatch.setattr(compression, "extended", granted)
    sections = Sections(2 << 20)
    sections.append(CODECS.index("zstd"), memoryview(compress("zstd", bytes(20_000))), 1 << 30)
    assert sections.finish() == bytes(20_000)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_where_the_system_refuses_what_is_expected_less_is_taken(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The piece ended, though what the batch became would have been granted."""

    def grow(sections: Sections, size: int) -> None:
        if size > 3 << 20:
            raise MemoryError
        before(sections, size)

    before = Sections._grow
    monkeypatch.setattr(Sections, "_grow", grow)
    sections, text = Sections(0), bytes(1 << 20)
    sections.append(CODECS.index(codec), memoryview(compress(codec, text)), 1 << 30, expected_bytes=6 << 20)
    assert bytes(sections.finish()) == text


def test_a_bound_that_is_more_than_there_is_room_for_is_no_bar() -> None:
    assert _one("gzip", compress("gzip", bytes(20 << 20)), 1 << 62) == bytes(20 << 20)


def zstd_frame(letters: int, window: int | None, *, head: bytes = b"", checksum: bool = False) -> bytes:
    """So many letters "a", each block of them three bytes and one. window: two to this power; None: as head says."""
    said = b"\x28\xb5\x2f\xfd" + (head if window is None else bytes([4 * checksum, window - 10 << 3]))
    blocks = bytearray()
    while letters > 0:
        size = min(letters, 1 << 17)
        letters -= size
        blocks += struct.pack("<I", size << 3 | 2 | (letters == 0))[:3] + b"a"
    return said + bytes(blocks) + bytes(4) * checksum


SKIPPED = b"\x51\x2a\x4d\x18" + struct.pack("<I", 5) + b"hello"
MILLION = 1 << 20


@pytest.mark.parametrize(
    ("data", "fits"),
    [
        (zstd_frame(12 * MILLION, 23), True),  # as large as usual: nothing is said
        (zstd_frame(12 * MILLION, 24), False),
        (zstd_frame(8 * MILLION, 27), True),
        (zstd_frame(8 * MILLION + 1, 27), False),
        (zstd_frame(1, 20) + SKIPPED + zstd_frame(12 * MILLION, 24), False),
        (zstd_frame(12 * MILLION, None, head=b"\xa0" + struct.pack("<I", 12 * MILLION)), False),  # of one segment
        (zstd_frame(12 * MILLION, None, head=b"\x80\x50" + struct.pack("<I", 12 * MILLION)), True),
        (zstd_frame(300, None, head=b"\x60" + struct.pack("<H", 300 - 256)), True),
        (SKIPPED * 10_001 + zstd_frame(12 * MILLION, 20), False),
        (b"".join(zstd_frame(1200, 20) for _ in range(10_001)), False),
    ],
    ids=range(10),
)
def test_a_large_window_of_zstd_counts(data: bytes, *, fits: bool) -> None:
    """Else a batch of 2 KB takes twice max_decompressed_bytes: the decoder keeps its own copy."""
    limit = 16 * MILLION
    if fits:
        assert set(_one("zstd", data, limit)) == {ord("a")}
    else:
        with pytest.raises(CompressionError, match=r"over [0-9]+ bytes beside its decoder's large window"):
            _one("zstd", data, limit)


@pytest.mark.parametrize("cut", [5, 6, 8, 9])
def test_a_frame_of_zstd_that_is_cut_off_is_an_error(cut: int) -> None:
    with pytest.raises(CompressionError, match="broken"):
        _one("zstd", zstd_frame(100, 27)[:cut])


def test_a_frame_of_zstd_with_a_checksum_and_noise_after_it() -> None:
    with pytest.raises(CompressionError):
        _one("zstd", zstd_frame(100, 27, checksum=True) + b"noise")


@given(
    parts=st.lists(
        st.one_of(
            st.builds(zstd_frame, st.integers(1, 300_000), st.integers(20, 30), checksum=st.booleans()),
            st.sampled_from([SKIPPED, b"noise", zstd_frame(1, 27)[:4]]),
        ),
        max_size=4,
    ),
    cut=st.integers(0, 60),
)
def test_a_lone_frame_of_zstd_has_the_window_that_a_walk_finds(parts: list[bytes], cut: int) -> None:
    data = memoryview(b"".join(parts))
    data = data[: max(0, len(data) - cut)]
    with pytest.MonkeyPatch.context() as patch:
        found = compression._window(data)
        patch.setattr(compression, "_SEARCHED_BYTES", 0)
        assert found == compression._window(data)
