"""Manifests: how damage is found, and how the last one is."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parquet_help import PARTITION, commit, span, write

from instride.errors import CorruptManifestError, SinkError
from instride.spark.parquet import Manifest, ParquetSink, _manifest_chain, _read, read_table
from instride.spark.parquet._checkpoint import Checkpoint, number_of
from instride.spark.parquet._local_storage import LocalStorage
from instride.spark.parquet._manifest import decode, encode, key_of
from instride.spark.parquet._manifest_chain import READERS, Chain
from instride.spark.sink import FileInfo

KEY = key_of("flights", 3, 2)
PATIENCE = 20.0


def manifest(sequence: int, start: int, end: int, job: str = "a") -> Manifest:
    return Manifest(
        topic="flights", topic_id="", partition=3, sequence=sequence, start=start, end=end, job=job, files=()
    )


class MemoryStore:
    """A `ManifestStore` in memory; counts what is asked of it."""

    def __init__(self, length: int = 0) -> None:
        self.kept = {key_of("flights", 3, n): encode(manifest(n, 2 * n, 2 * n + 2)) for n in range(1, length + 1)}
        self.requested: list[str] = []
        self.durable: list[str] = []

    def create_if_absent(self, key: str, content: bytes) -> bool:
        return self.kept.setdefault(key, content) is content

    def make_durable(self, key: str) -> None:
        self.durable.append(key)

    def read(self, key: str) -> bytes | None:
        self.requested.append(key)
        return self.kept.get(key)

    def names(self, folder: str) -> list[str]:
        self.requested.append(folder)
        prefix = f"{folder}/" if folder else ""
        return list({key[len(prefix) :].split("/")[0] for key in self.kept if key.startswith(prefix)})

    def appeared(self, key: str) -> float | None:
        return 0.0 if key in self.kept else None

    def remove(self, key: str) -> None:
        self.kept.pop(key, None)


@given(st.integers(1, 10**18), st.integers(0, 10**15), st.integers(1, 10**6), st.integers(0, 3))
def test_a_manifest_comes_back_as_it_was(sequence: int, start: int, length: int, count: int) -> None:
    files = tuple(FileInfo(path=f"data/{n}", rows=n, bytes=9, attempt=n) for n in range(count))
    there = Manifest(
        topic="t-é", topic_id="x", partition=7, sequence=sequence, start=start, end=start + length, job="j", files=files
    )
    assert decode(encode(there), key_of("t-é", 7, sequence)) == there


@given(st.data())
def test_no_change_of_a_manifest_goes_unseen(data: st.DataObject) -> None:
    good = encode(manifest(2, 10, 30))
    place = data.draw(st.integers(0, len(good) - 1))
    bad = data.draw(
        st.one_of(st.just(good[:place]), st.just(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]))
    )
    with pytest.raises(CorruptManifestError, match="the manifest topic-flights/partition-00003/0"):
        assert decode(bad, KEY) != manifest(2, 10, 30)


@pytest.mark.parametrize("content", [b"", b"[]", b"7", b"null", b"{}", b"\xff", b'{"crc32": 1}'])
def test_what_is_no_manifest_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptManifestError, match=KEY):
        decode(content, KEY)


def test_a_copied_manifest_is_found_out() -> None:
    with pytest.raises(CorruptManifestError, match="copied or renamed"):
        decode(encode(manifest(1, 0, 5)), KEY)


def test_a_manifest_of_a_newer_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("instride.spark.parquet._manifest.VERSION", 2)
        newer = encode(manifest(2, 0, 5))
    with pytest.raises(CorruptManifestError, match="use a newer instride"):
        decode(newer, KEY)


def test_a_manifest_without_a_range_is_refused() -> None:
    with pytest.raises(CorruptManifestError, match="holds no range"):
        decode(encode(manifest(2, 5, 5)), KEY)


@pytest.mark.parametrize("damage", ["cut", "gone", "edited"])
def test_a_damaged_chain_stops_readers_and_writers(tmp_path: Path, damage: str) -> None:
    sink = ParquetSink(tmp_path / "out")
    for start in range(4):
        commit(sink, "a", write(sink, span(start, start + 1), "a"))
    place = sink.folder / "_instride" / KEY
    content = place.read_bytes()
    place.unlink()
    if damage != "gone":
        place.write_bytes(content[:9] if damage == "cut" else content.replace(b'"end": 2', b'"end": 3'))
    with pytest.raises(CorruptManifestError, match=KEY):
        read_table(sink.folder)
    if damage == "gone":
        with pytest.raises(CorruptManifestError, match="is missing, though later ones are there"):
            ParquetSink(sink.folder).positions([PARTITION])


def test_ranges_that_do_not_meet_are_found_out() -> None:
    store = MemoryStore(3)
    store.kept[KEY] = encode(manifest(2, 5, 6))
    with pytest.raises(CorruptManifestError, match="starts at offset 5, but the one before it ends at 4"):
        Chain(store, "flights", 3).state()


def test_of_a_known_chain_one_manifest_only_is_read() -> None:
    store = MemoryStore(5000)
    chain = Chain(store, "flights", 3)
    last = chain.last()
    assert last is not None
    assert len(store.requested) == 4, (
        "a listing, the last, the one that is not there, and that the last has not expired"
    )
    store.requested.clear()
    assert chain.last(last) == last
    assert store.requested == [key_of("flights", 3, 5001), key_of("flights", 3, 5000)]


@given(st.integers(1, 300), st.integers(0, 650))
def test_an_offset_is_found_in_few_steps(length: int, start: int) -> None:
    store = MemoryStore(length)
    found = Chain(store, "flights", 3).reaching(start, manifest(length, 2 * length, 2 * length + 2))
    holds = max(2, start - start % 2)
    assert (found.start if found else None) == (holds if start < 2 * length + 2 else None)
    assert len(store.requested) <= 12


def test_chains_that_are_read_beside_each_other_share_their_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each had threads of its own: an object store was asked by 256 at once."""
    threads: set[threading.Thread] = set()

    class Watched(MemoryStore):
        def read(self, key: str) -> bytes | None:
            threads.add(threading.current_thread())
            return super().read(key)

    chains = [Chain(Watched(40), "flights", 3) for _ in range(READERS + 4)]
    monkeypatch.setattr(_manifest_chain, "_PART", 2)
    monkeypatch.setattr(_read, "open_sink", lambda storage: storage)
    monkeypatch.setattr(_read, "chains_in", lambda _: chains)
    states = _read._states(cast("Any", None))
    assert [chain for chain, _ in states] == chains
    assert {tuple(each.sequence for each in state.manifests) for _, state in states} == {tuple(range(1, 41))}
    assert len(threads) <= READERS


def test_a_long_chain_is_read_by_several_threads_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two waits until another reads as well."""
    beside = threading.Barrier(2)

    class Slow(MemoryStore):
        def read(self, key: str) -> bytes | None:
            if key in (key_of("flights", 3, 1), key_of("flights", 3, 3)):
                beside.wait(PATIENCE)
            return super().read(key)

    monkeypatch.setattr(_manifest_chain, "_PART", 2)
    with ThreadPoolExecutor(2) as pool:
        state = pool.submit(lambda: Chain(Slow(4), "flights", 3).state(pool)).result(PATIENCE)
    assert [each.sequence for each in state.manifests] == [1, 2, 3, 4]


def test_what_fails_of_a_chain_is_raised_and_the_rest_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(MemoryStore):
        def read(self, key: str) -> bytes | None:
            if key == key_of("flights", 3, 1):
                raise SinkError("no network")
            return super().read(key)

    store = Broken(1000)
    monkeypatch.setattr(_manifest_chain, "_PART", 1)
    with ThreadPoolExecutor(1) as pool, pytest.raises(SinkError, match="no network"):
        pool.submit(lambda: Chain(store, "flights", 3).state(pool)).result(PATIENCE)
    assert len(store.requested) == 1, "the listing; the pool's only thread is the one that has failed"


def test_a_listing_that_misses_a_new_name_is_no_gap() -> None:
    class Late(MemoryStore):
        def names(self, folder: str) -> list[str]:
            return [name for name in super().names(folder) if name != "00000000000000000003.json"]

    last = Chain(Late(5), "flights", 3).last()
    assert last is not None
    assert last.sequence == 5


def test_a_storage_that_contradicts_itself_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = ParquetSink(tmp_path / "out")
    written = write(sink, span(0, 5), "a")
    monkeypatch.setattr(LocalStorage, "create_if_absent", lambda *_: False)
    with pytest.raises(SinkError, match="says that another manifest of flights-3 came meanwhile, but shows none"):
        commit(sink, "a", written)


def test_a_manifest_can_be_read_by_people(tmp_path: Path) -> None:
    body = json.loads(encode(manifest(2, 10, 30)))
    assert (body["version"], body["topic"], body["start"], body["end"], body["job"]) == (1, "flights", 10, 30, "a")


def test_a_manifest_that_a_page_of_the_listing_missed_is_kept() -> None:
    """Between two pages another commits it, a reader takes its snapshot, and a checkpoint of a compaction appears."""

    class Paged(MemoryStore):
        def names(self, folder: str) -> list[str]:
            first_page = super().names(folder)
            if len(self.kept) == 4:
                assert Chain(self, "flights", 3).append(manifest(5, 10, 12), after=manifest(4, 8, 10))
                checkpoint = Checkpoint(number=1, created=9.0, last=manifest(5, 10, 12), pieces=())
                assert Chain(self, "flights", 3).add_checkpoint(checkpoint)
            return first_page + [name for name in super().names(folder) if number_of(name)]

    kept = Chain(Paged(4), "flights", 3).kept(8.0)
    assert kept.oldest is None
    assert [each.sequence for each in kept.manifests] == [1, 2, 3, 4, 5]


def test_a_manifest_that_has_expired_is_not_made_anew_where_it_is_to_be_durable() -> None:
    """A process was suspended between its look and that: it would have gone on behind the checkpoint."""
    store = MemoryStore(3)
    chain = Chain(store, "flights", 3)
    last = chain.last()
    assert last is not None
    assert chain.settle(last)
    assert store.durable == [key_of("flights", 3, 3)]
    del store.kept[key_of("flights", 3, 3)]
    assert not chain.settle(last)
    assert key_of("flights", 3, 3) not in store.kept


def test_what_expired_long_ago_is_not_asked_for_again() -> None:
    """A vacuum that is to keep more than the one before it finds no checkpoint that is old enough."""
    store = MemoryStore(500)
    chain = Chain(store, "flights", 3)
    last = chain.read(500)
    assert last is not None
    assert chain.add_checkpoint(Checkpoint(number=1, created=7.0, last=last, pieces=()))
    for sequence in range(1, 500):
        store.remove(key_of("flights", 3, sequence))
    store.requested.clear()
    assert chain.kept(6.0).manifests == (last,)
    assert len(store.requested) < 10


def test_a_checkpoint_that_goes_while_its_age_is_asked_is_listed_anew() -> None:
    store = MemoryStore(4)
    chain = Chain(store, "flights", 3)
    for number, sequence in ((1, 2), (2, 4)):
        last = chain.read(sequence)
        assert last is not None
        assert chain.add_checkpoint(Checkpoint(number=number, created=7.0, last=last, pieces=()))

    class Vanishing(MemoryStore):
        def appeared(self, key: str) -> float | None:
            if number_of(key.rpartition("/")[2]) == 2 and key in self.kept:
                self.kept.pop(key)
                return None
            return super().appeared(key)

    gone = Vanishing()
    gone.kept = store.kept
    kept = Chain(gone, "flights", 3).kept(8.0)
    assert kept.oldest is not None
    assert kept.oldest.number == 1
