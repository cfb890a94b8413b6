"""Deleting what no reader can ever see, and what only a reader of long ago can.

Laws
1. A data file that no manifest listed is deleted only if the chain has passed its start. A manifest that
   lists it would have to start there, so none ever will, whatever is still running. A file at or beyond the
   chain's end may be a job's in flight: it stays.
2. What a compaction has replaced (data files, manifests, checkpoints) is deleted only if a checkpoint that does without
   it has been there for `keep_for`: whoever took a snapshot since then took that checkpoint, or a newer one.
3. A file that was made for a checkpoint is deleted only once that checkpoint is there and does not list it: no
   later one will. Until then its compaction may be at work.
4. A temporary file of a manifest goes when its place is taken: its maker died, or is about to lose. The same
   for the folder's marker, which is there when a vacuum runs.
5. Names this sink does not give are left alone.
6. Running beside writers, readers, compactions and other vacuums is safe. A zombie that writes on finds its temporary
   file gone, and fails.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from instride.spark.parquet import _files as files
from instride.spark.parquet._checkpoint import number_of
from instride.spark.parquet._layout import COMPACTED, attempt_of, data_folder, local_folder, open_sink, start_of
from instride.spark.parquet._manifest_chain import Chain, ChainState, Retained
from instride.spark.parquet._manifest_store import LocalManifestStore, ManifestStore
from instride.spark.parquet._read import chains_in

__all__ = ["vacuum"]

_DAY: Final = 86_400.0


def vacuum(path: str | Path, *, store: ManifestStore | None = None, keep_for: float = _DAY) -> list[Path]:
    """Delete the files of dropped, failed and repeated attempts, and what `compact` has replaced; the paths.

    keep_for: seconds. What was replaced less than that ago stays, for readers that took their snapshot before: longer
    than any of them takes. By the clocks of the machines that call `compact` and this. Raises NotASinkError,
    CorruptManifestError; a file that cannot be deleted is left.
    """
    root = local_folder(path)
    opened = open_sink(root, store)
    doomed = _temporary(root)
    if isinstance(opened, LocalManifestStore):
        doomed += _temporary(opened.folder)
    for chain in chains_in(opened):
        kept = chain.kept(time.time() - keep_for)
        if kept.oldest is not None:
            chain.expire(kept.oldest)
        doomed += _unlisted(root, chain, kept) + _replaced(root, chain, kept)
        if isinstance(opened, LocalManifestStore):
            doomed += _half_manifests(opened, chain, kept.state)
    return [file for file in doomed if files.remove(file)]


def _temporary(folder: Path) -> list[Path]:
    return [file for file in _inside(folder) if files.is_temporary(file.name)]


def _unlisted(root: Path, chain: Chain, kept: Retained) -> list[Path]:
    """Laws 1 and 2."""
    last = kept.state.last
    if last is None:
        return []
    listed = {root / file.path for file in kept.files}
    found = ((file, start_of(file.name)) for file in _inside(root / data_folder(chain.topic, chain.partition)))
    return [file for file, start in found if start is not None and start < last.end and file not in listed]


def _replaced(root: Path, chain: Chain, kept: Retained) -> list[Path]:
    """Laws 2 and 3."""
    checkpoint = kept.state.checkpoint
    if checkpoint is None:
        return []
    listed = {root / file.path for file in kept.files}
    found = ((file, attempt_of(file.name)) for file in _inside(root / COMPACTED / chain.folder))
    return [file for file, made_for in found if made_for and made_for <= checkpoint.number and file not in listed]


def _inside(folder: Path) -> Iterator[Path]:
    return folder.iterdir() if folder.is_dir() else iter(())


def _half_manifests(store: LocalManifestStore, chain: Chain, state: ChainState) -> list[Path]:
    last, newest = state.last, state.checkpoint.number if state.checkpoint else 0
    found = ((file, file.name.removeprefix(".").split(".")[0]) for file in _temporary(store.folder / chain.folder))
    return [
        file
        for file, name in found
        if (name.isdecimal() and last is not None and int(name) <= last.sequence)
        # What is no checkpoint's name counts as one that is yet to come.
        or (number_of(f"{name}.json") or newest + 1) <= newest
    ]
