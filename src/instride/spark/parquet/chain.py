"""The chain of one partition: find its last manifest, add the next, look one up.

Laws
1. Only `append` adds, and only by create-if-absent: of two writers of the same sequence one wins, whole.
2. A manifest that was seen stays; so a remembered one is a safe place to start looking for the last: the
   next is absent, or it is read and looked from there. Only a chain never seen before is listed.
3. A chain with a gap, or whose ranges do not meet, is an error for readers and writers alike. Writing on
   would hide the damage.
"""

from __future__ import annotations

from dataclasses import dataclass

from instride.errors import CorruptManifestError
from instride.spark.parquet.manifest import Manifest, chain_folder, decode, encode, key_of
from instride.spark.parquet.store import ManifestStore

__all__ = ["Chain"]


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
        """The manifest of a sequence, or None where the chain is shorter."""
        key = key_of(self.topic, self.partition, sequence)
        content = self.store.read(key)
        return None if content is None else decode(content, key)

    def last(self, seen: Manifest | None = None) -> Manifest | None:
        """The last manifest, or None. seen: one that was read before, to start from."""
        last = seen or self._listed_last()
        if last is None:
            return None
        while (following := self.read(last.sequence + 1)) is not None:
            self._check_meet(last, following)
            last = following
        return last

    def append(self, manifest: Manifest) -> bool:
        """Create the manifest, atomically; False where its sequence is taken."""
        return self.store.create_if_absent(key_of(self.topic, self.partition, manifest.sequence), encode(manifest))

    def all(self) -> list[Manifest]:
        """Every manifest in order, as one snapshot. Raises CorruptManifestError where they are not one
        chain.
        """
        found: list[Manifest] = []
        for sequence in range(1, self._listed_top() + 1):
            manifest = self._must_read(sequence)
            if found:
                self._check_meet(found[-1], manifest)
            found.append(manifest)
        return found

    def starting_at(self, start: int, last: Manifest) -> Manifest | None:
        """The manifest whose range starts at an offset, if there is one up to `last`."""
        low, high = 1, last.sequence
        while low < high:
            middle = (low + high) // 2
            # By the end: an empty first manifest starts where the second one does.
            if self._must_read(middle).end <= start:
                low = middle + 1
            else:
                high = middle
        found = self._must_read(low)
        return found if found.start == start else None

    def _listed_last(self) -> Manifest | None:
        top = self._listed_top()
        return self._must_read(top) if top else None

    def _listed_top(self) -> int:
        """The highest sequence. A listing may miss a name that is created meanwhile: each one missed is
        asked for.
        """
        names = self.store.names(self.folder)
        listed = {int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdecimal()}
        top = max(listed, default=0)
        if len(listed) != top:
            for sequence in set(range(1, top + 1)) - listed:
                self._must_read(sequence)
        return top

    def _must_read(self, sequence: int) -> Manifest:
        manifest = self.read(sequence)
        if manifest is None:
            key = key_of(self.topic, self.partition, sequence)
            raise CorruptManifestError(f"the manifest {key} is missing, though later ones are there")
        return manifest

    def _check_meet(self, one: Manifest, following: Manifest) -> None:
        if following.start != one.end:
            raise CorruptManifestError(
                f"the manifest {key_of(self.topic, self.partition, following.sequence)} starts at offset "
                f"{following.start}, but the one before it ends at {one.end}"
            )
