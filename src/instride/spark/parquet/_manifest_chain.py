"""The chain of one partition: find its last manifest, add the next, look one up, shorten what readers read.

Laws
1. Only `append` adds, and only by create-if-absent: of two writers of the same sequence one wins, whole.
2. A manifest that was seen is a place to start looking for the last, as long as it is there: manifests expire in order,
   the oldest first. So while it is there, none after it has expired, and one that is absent was never made. Where it
   is gone, the chain is listed anew. For the same reason `append` counts only if the manifest before it is still
   there afterwards: a writer that was stopped for long cannot make anew what has expired.
3. A chain with a gap, or whose ranges do not meet, is an error for readers and writers alike. Writing on
   would hide the damage. Up to the newest checkpoint that stands for the manifests.
4. A manifest or checkpoint that was listed and is gone has expired if the checkpoints are others by now: then the chain
   is listed anew. For that checkpoints expire before manifests.
5. Many manifests are read beside each other: an object store takes some 20 ms for each. What has an order (to append,
   to expire) is done one after another. Who reads several chains beside each other lends its threads, so that no call
   has more than READERS. They may all be busy, or wait here themselves: who waits reads what nobody has begun.

A commit, which appends one: `_sink.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from instride.errors import CorruptManifestError
from instride.spark.parquet._checkpoint import (
    Checkpoint,
    Piece,
    checkpoint_key,
    decode_checkpoint,
    encode_checkpoint,
    number_of,
)
from instride.spark.parquet._manifest import Manifest, chain_folder, decode, encode, key_of, sequence_of
from instride.spark.parquet._storage import ManifestStore
from instride.spark.sink import FileInfo

__all__ = ["READERS", "Chain", "ChainState", "Retained"]

T = TypeVar("T")

READERS: Final = 16
_PART: Final = 16
"""Manifests that a thread reads one after another. So many need no other thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainState:
    """One snapshot of a chain: its newest checkpoint, if any, and the manifests since, in order."""

    checkpoint: Checkpoint | None
    manifests: tuple[Manifest, ...]

    @property
    def last(self) -> Manifest | None:
        if self.manifests:
            return self.manifests[-1]
        return self.checkpoint.last if self.checkpoint else None

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """All that is in the sink, in order."""
        since = tuple(Piece(start=each.start, end=each.end, files=each.files) for each in self.manifests)
        return (self.checkpoint.pieces if self.checkpoint else ()) + since

    @property
    def files(self) -> list[FileInfo]:
        return [file for piece in self.pieces for file in piece.files]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """What readers may need. oldest: the checkpoint that the oldest of them took, or None where they took none."""

    state: ChainState
    oldest: Checkpoint | None
    checkpoints: tuple[Checkpoint, ...]
    manifests: tuple[Manifest, ...]

    @property
    def files(self) -> list[FileInfo]:
        pieces = [piece.files for checkpoint in self.checkpoints for piece in checkpoint.pieces]
        since = [manifest.files for manifest in (*self.manifests, *self.state.manifests)]
        return [file for files in pieces + since for file in files]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """What a listing showed. checkpoints: their numbers, the oldest first. sequences: of the manifests."""

    checkpoints: list[int]
    sequences: set[int]

    @property
    def newest(self) -> int:
        return self.checkpoints[-1] if self.checkpoints else 0


@dataclass(frozen=True, slots=True)
class Chain:
    """The manifests of one partition in a store."""

    store: ManifestStore
    topic: str
    partition: int

    @property
    def folder(self) -> str:
        """The key of the folder that holds it."""
        return chain_folder(self.topic, self.partition)

    def read(self, sequence: int) -> Manifest | None:
        """The manifest of a sequence, or None where the chain is shorter, or it has expired."""
        key = key_of(self.topic, self.partition, sequence)
        content = self.store.read(key)
        return None if content is None else decode(content, key)

    def last(self, seen: Manifest | None = None) -> Manifest | None:
        """The last manifest, or None. seen: one that was read before, to start from."""
        found = seen or self._snapshot(self._listed_last)
        while found is not None:
            last = self._followed(found)
            if last is not None:
                return last
            again = self._snapshot(self._listed_last)
            if again == found:
                raise self._missing(found.sequence)
            found = again
        return None

    def append(self, manifest: Manifest, *, after: Manifest | None) -> bool:
        """Create the manifest, atomically; False where its sequence is taken, or the chain has long passed it.

        after: the one before it, as it was read. After False ask `last` again, from a listing.
        """
        key = key_of(self.topic, self.partition, manifest.sequence)
        if not self.store.create_if_absent(key, encode(manifest)):
            return False
        if after is not None:
            return self.read(after.sequence) == after
        # Another may have died before it synced a folder that it made above the chain.
        self.store.make_durable(key)
        # Where there are checkpoints, there was a first manifest, which has expired: one made anew counts for nothing.
        return not self._listed().checkpoints

    def settle(self, last: Manifest) -> bool:
        """The last manifest, which was seen, and those before it are durable from here on. False where it has expired
        meanwhile: another is the last then; ask `last` again, from a listing. Raises SinkError.
        """
        self.store.make_durable(key_of(self.topic, self.partition, last.sequence))
        return self.read(last.sequence) == last

    def state(self, pool: Executor | None = None) -> ChainState:
        """What is in the sink, as one snapshot. pool: lent by the caller (law 5).

        Raises CorruptManifestError where it is not one chain.
        """
        return self._snapshot(lambda listing: self._listed_state(listing, pool))

    def reaching(self, offset: int, last: Manifest) -> Manifest | None:
        """The first manifest since the newest checkpoint that ends beyond an offset, of those up to `last`."""

        def look(listing: _Listing) -> Manifest | None:
            # Up to the newest checkpoint no manifest need be there, or be the one that it was.
            newest = listing.newest
            low, high = self._must_read_checkpoint(newest).sequence if newest else 1, last.sequence
            while low < high:
                middle = (low + high) // 2
                # By the end: an empty first manifest starts where the second one does.
                if self._must_read(middle).end <= offset:
                    low = middle + 1
                else:
                    high = middle
            found = self._must_read(low)
            return found if found.end > offset else None

        return self._snapshot(look)

    def kept(self, since: float) -> Retained:
        """What readers may need that took their snapshots at a time, in seconds since 1970, or later."""

        def look(listing: _Listing) -> Retained:
            checkpoints = [self._must_read_checkpoint(number) for number in listing.checkpoints]
            oldest = next((each for each in reversed(checkpoints) if self._was_there(each, since)), None)
            newest = checkpoints[-1].sequence if checkpoints else 0
            manifests = self._between(oldest.sequence if oldest else 0, newest, listing)
            needed = tuple(each for each in checkpoints if oldest is None or each.number >= oldest.number)
            return Retained(state=self._listed_state(listing), oldest=oldest, checkpoints=needed, manifests=manifests)

        return self._snapshot(look)

    def add_checkpoint(self, checkpoint: Checkpoint) -> bool:
        """Create it, atomically; False where its number is taken."""
        key = checkpoint_key(self.topic, self.partition, checkpoint.number)
        return self.store.create_if_absent(key, encode_checkpoint(checkpoint))

    def expire(self, oldest: Checkpoint) -> None:
        """Remove what only readers need that began before this checkpoint was there. Laws 2 and 4: in order.

        Raises NoRemovalError.
        """
        listing = self._listed()
        keys = [
            checkpoint_key(self.topic, self.partition, each) for each in listing.checkpoints if each < oldest.number
        ]
        expired = sorted(each for each in listing.sequences if each < oldest.sequence)
        for key in keys + [key_of(self.topic, self.partition, each) for each in expired]:
            # One that stays, where a call to an object store failed, must not be the newest that looks unexpired.
            if not self.store.remove(key) and self.store.read(key) is not None:
                return

    # -- one look at the chain

    def _snapshot(self, look: Callable[[_Listing], T]) -> T:
        """What a look at a listing gives. Law 4."""
        listing = self._listed()
        while True:
            try:
                return look(listing)
            except CorruptManifestError:
                now = self._listed()
                if now.checkpoints == listing.checkpoints:
                    raise
                listing = now

    def _listed(self) -> _Listing:
        names = self.store.names(self.folder)
        return _Listing(
            checkpoints=sorted(number for name in names if (number := number_of(name)) is not None),
            sequences={sequence for name in names if (sequence := sequence_of(name)) is not None},
        )

    def _listed_last(self, listing: _Listing) -> Manifest | None:
        """A listing may miss a name that is created meanwhile: each one missed is looked up."""
        checkpoint = self._must_read_checkpoint(listing.newest) if listing.newest else None
        floor = checkpoint.sequence if checkpoint else 0
        top = max(listing.sequences, default=0)
        if top <= floor:
            return checkpoint.last if checkpoint else None
        for sequence in set(range(floor + 1, top + 1)) - listing.sequences:
            self._must_read(sequence)
        return self._must_read(top)

    def _listed_state(self, listing: _Listing, pool: Executor | None = None) -> ChainState:
        checkpoint = self._must_read_checkpoint(listing.newest) if listing.newest else None
        last = checkpoint.last if checkpoint else None
        found: list[Manifest] = []
        sequences = range(last.sequence + 1 if last else 1, max(listing.sequences, default=0) + 1)
        for sequence, manifest in zip(sequences, self._read_all(sequences, pool), strict=True):
            if manifest is None:
                raise self._missing(sequence)
            if last is not None:
                self._check_meet(last, manifest)
            found.append(manifest)
            last = manifest
        return ChainState(checkpoint=checkpoint, manifests=tuple(found))

    def _between(self, floor: int, newest: int, listing: _Listing) -> tuple[Manifest, ...]:
        """Those after a sequence, up to the last listed one and the newest checkpoint's. A listing that comes in pages
        may show that checkpoint and miss manifests before it, of which a reader knows: each is looked up. One that is
        gone has expired, by law 4 or an earlier vacuum, as have all before the first that was listed.
        """
        first = max(floor + 1, min(listing.sequences, default=1))
        found = self._read_all(range(first, max(newest, *listing.sequences, 0) + 1))
        there = tuple(each for each in found if each is not None)
        if len(there) < len(found) and self._listed().checkpoints != listing.checkpoints:
            raise CorruptManifestError("checkpoints came or went meanwhile")
        return there

    def _read_all(self, sequences: range, pool: Executor | None = None) -> list[Manifest | None]:
        """As `read`, in their order. Law 5."""
        if len(sequences) <= _PART:
            return self._read_part(sequences)
        if pool is None:
            # And this thread.
            with ThreadPoolExecutor(READERS - 1, thread_name_prefix="instride-manifests") as own:
                return self._read_all(sequences, own)
        parts = [sequences[start : start + _PART] for start in range(0, len(sequences), _PART)]
        futures = [pool.submit(self._read_part, part) for part in parts]
        try:
            ours = [
                self._read_part(part) if future.cancel() else None for part, future in zip(parts, futures, strict=True)
            ]
            found = [future.result() if each is None else each for each, future in zip(ours, futures, strict=True)]
        finally:
            for future in futures:  # where one has failed
                future.cancel()
        return [manifest for part in found for manifest in part]

    def _read_part(self, sequences: range) -> list[Manifest | None]:
        return list(map(self.read, sequences))

    def _followed(self, seen: Manifest) -> Manifest | None:
        """The last, from one that was seen; None where that has expired. Law 2."""
        last = seen
        while (following := self.read(last.sequence + 1)) is not None:
            # No damage where the one that was seen has expired meanwhile: law 2 holds only while it is there.
            if following.start != last.end and self.read(seen.sequence) != seen:
                return None
            self._check_meet(last, following)
            last = following
        return last if self.read(seen.sequence) == seen else None

    def _must_read(self, sequence: int) -> Manifest:
        manifest = self.read(sequence)
        if manifest is None:
            raise self._missing(sequence)
        return manifest

    def _must_read_checkpoint(self, number: int) -> Checkpoint:
        key = checkpoint_key(self.topic, self.partition, number)
        content = self.store.read(key)
        if content is None:
            raise CorruptManifestError(f"the checkpoint {key} was listed, but is missing")
        return decode_checkpoint(content, key)

    def _was_there(self, checkpoint: Checkpoint, time: float) -> bool:
        """At a time, in seconds since 1970. A compaction that was stopped just before its last step creates a
        checkpoint long after the time that its text has: then the storage's clock says when.
        """
        if checkpoint.created > time:
            return False
        key = checkpoint_key(self.topic, self.partition, checkpoint.number)
        appeared = self.store.appeared(key)
        if appeared is None:
            raise CorruptManifestError(f"the checkpoint {key} was listed, but is missing")
        return appeared <= time

    def _missing(self, sequence: int) -> CorruptManifestError:
        key = key_of(self.topic, self.partition, sequence)
        return CorruptManifestError(f"the manifest {key} is missing, though later ones are there")

    def _check_meet(self, one: Manifest, following: Manifest) -> None:
        if following.start != one.end:
            raise CorruptManifestError(
                f"the manifest {key_of(self.topic, self.partition, following.sequence)} starts at offset "
                f"{following.start}, but the one before it ends at {one.end}"
            )
