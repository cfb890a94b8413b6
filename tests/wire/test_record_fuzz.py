"""Any bytes give records or a typed error: bytes are flipped, cut, doubled and swapped, and most sealed again."""

from __future__ import annotations

import random
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from kio.records.readers import read_batch
from kio.records.schema import RecordHeader
from record_batches import CODECS, HEADER, Rec, batch, decode, marker, plain, records_of

from instride.errors import CorruptRecordError

GOOD = batch(plain(0, 1))
FIRST = 2
LIMIT = 1 << 16


def originals(codec: str) -> list[bytes]:
    rich = [Rec(offset=2 + n, key=b"key", value=b"x" * n, headers=(("h", b"1"), ("", None))) for n in range(5)]
    return [
        batch(rich, codec=codec),
        batch(plain(2, 3, 7), codec=codec, transactional=True, producer_id=1),
        marker(2, 1, commit=False),
        batch([], base_offset=2, last_delta=3),
    ]


def mutated(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(out)) if rng.random() < 0.5 else rng.randrange(min(len(out), 75))
        match rng.randrange(5):
            case 0:
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del out[at : at + rng.randrange(1, 9)]
            case 3:
                out[at:at] = out[at : at + rng.randrange(1, 9)]
            case _:
                out[at : at + 4] = rng.randbytes(4)
        if len(out) < HEADER.size:
            return bytes(out)
    return bytes(out)


def sealed(data: bytes) -> bytes:
    """With the length and the checksum that the bytes ought to have, so that what is behind them is reached."""
    if len(data) < HEADER.size:
        return data
    length = (len(data) - 12).to_bytes(4, "big")
    return data[:8] + length + data[12:16] + b"\2" + crc32c(data[21:]).to_bytes(4, "big") + data[21:]


def check(data: bytes, fetch_offset: int, **options: Any) -> list[int]:
    """What must hold for any bytes. Returns the offsets found."""
    chunk, next_offset, error = decode(data, fetch_offset, max_decompressed_bytes=LIMIT, **options)
    assert error is None or isinstance(error, CorruptRecordError)
    records = records_of(chunk)
    offsets = [each.offset for each in records]
    assert offsets == sorted(set(offsets))
    assert all(fetch_offset <= offset < next_offset for offset in offsets)
    assert next_offset > fetch_offset or error is not None or not data
    chunks = [] if chunk is None else getattr(chunk, "chunks", [chunk])
    values = [value for each in chunks for value in each.to_arrow().column("value").to_pylist()]
    assert values == [each.value for each in records]
    views = [value for each in chunks for value in each.to_arrow(binary_view=True).column("value").to_pylist()]
    assert views == values
    assert all(each.next_offset <= next_offset for each in chunks)
    return offsets


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("seed", range(4))
def test_mutations(codec: str, seed: int) -> None:
    rng = random.Random(f"{codec} {seed}")
    for _ in range(300):
        bad = mutated(rng, rng.choice(originals(codec)))
        if rng.random() < 0.7:
            bad = sealed(bad)
        offsets = check(GOOD + bad + GOOD, 0, read_committed=rng.random() < 0.5, aborted=[(1, 0)])
        assert offsets[:2] in ([0, 1], []), "none, where what follows makes the first one doubtful"
        check(bad, 2)


@given(data=st.binary(max_size=300), offset=st.integers(0, 1 << 62))
def test_random_bytes(data: bytes, offset: int) -> None:
    check(data, offset)


@given(section=st.binary(max_size=80), count=st.integers(-2, 40), last_delta=st.integers(-2, 40))
def test_random_records(section: bytes, count: int, last_delta: int) -> None:
    check(batch([Rec(offset=2)], compressed=section, count=count, last_delta=last_delta), 2)


@pytest.mark.parametrize("seed", range(4))
def test_what_we_accept_kio_reads_the_same(seed: int) -> None:
    """A differential test. The other way round we are stricter (numbers too long, offsets that do not rise).

    (kafka-python is no judge here: it takes a record's attributes byte for a varint.)
    """
    rng = random.Random(seed)
    agreed = 0
    for _ in range(500):
        bad = sealed(mutated(rng, originals("none")[0]))
        chunk, _, error = decode(bad, 0)
        if error is not None or chunk is None or bad[22] & 0x27:
            continue
        try:
            theirs, _ = read_batch(bad, 0)
        except (ValueError, OverflowError, OSError):
            continue  # its datetimes hold fewer timestamps than Kafka's 64 bits
        agreed += 1
        found = [(r.offset, r.key, r.value, r.headers) for r in records_of(chunk)]
        assert found == [(r.offset, r.key, r.value, tuple(map(_header, r.headers))) for r in theirs.records]
    assert agreed > 20


def _header(header: RecordHeader) -> tuple[str, bytes | None]:
    assert header.key is not None
    return header.key.decode("utf-8", "replace"), header.value
