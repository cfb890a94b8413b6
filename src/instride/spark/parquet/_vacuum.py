"""Deleting what no reader can ever see, and what only a reader of long ago can.

Laws
1. A data file that no manifest listed is deleted only if the chain has passed its start. A manifest that
   lists it would have to start there, so none ever will, whatever is still running. A file at or beyond the
   chain's end may be a job's in flight: it stays.
2. What a compaction has replaced (data files, manifests, checkpoints) is deleted only if a checkpoint that does without
   it has been there for `keep_for`, both by its text and by the storage: whoever took a snapshot since then took that
   checkpoint, or a newer one. But where a compaction in a local folder was stopped for longer than that between two
   system calls (law 5 of `_files`), what readers use may go: they fail with MissingDataError.
3. A file that was made for a checkpoint is deleted only once that checkpoint is there and does not list it: no
   later one will. Until then its compaction may be at work.
4. A temporary file of a manifest goes when its place is taken: its maker died, or is about to lose. The same
   for the folder's marker, which is there when a vacuum runs.
5. Names this sink does not give are left alone.
6. Running beside writers, readers, compactions and other vacuums is safe. A zombie that writes on finds its temporary
   file gone, and fails.
7. Where the storage does not answer a removal, or removes nothing at all, the vacuum ends: with thousands of files it
   would wait for each.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from instride.errors import ConfigError
from instride.spark.parquet._checkpoint import number_of
from instride.spark.parquet._layout import COMPACTED, META, attempt_of, data_folder, open_sink, start_of
from instride.spark.parquet._location import is_local, storage_at
from instride.spark.parquet._manifest_chain import Chain, ChainState, Retained
from instride.spark.parquet._read import chains_in
from instride.spark.parquet._storage import NoRemovalError, Storage

__all__ = ["vacuum"]

_log = logging.getLogger(__name__)

_DAY: Final = 86_400.0
_IN_FLIGHT: Final = 900.0
"""Seconds for which an object store may yet take a request that was sent and not answered."""


def vacuum(path: str | Path, *, storage_options: Mapping[str, str] | None = None, keep_for: float = _DAY) -> list[str]:
    """Delete the files of dropped, failed and repeated attempts, and what `compact` has replaced; the paths (URIs).

    keep_for: seconds. What was replaced less than that ago stays, for readers that took their snapshot before: longer
    than any of them takes. By the clocks of the machines that call `compact` and this, and of the storage. In an object
    store at least 900.0: so long a store may yet take a request that was sent and not answered. Raises NotASinkError,
    CorruptManifestError, SinkError, ConfigError; a file that cannot be deleted is left. An object store that answers no
    deletion, or knows none, ends it: the log says so, and the next call deletes the rest.
    """
    least = 0.0 if is_local(path) else _IN_FLIGHT
    # Nor infinity or NaN, of which no comparison is true.
    if isinstance(keep_for, bool) or not isinstance(keep_for, int | float) or not least <= keep_for < math.inf:
        store = " in an object store" if least else ""
        raise ConfigError(f"keep_for must be a number of seconds, of at least {least:.0f}{store}; it is {keep_for!r}")
    storage = open_sink(storage_at(path, storage_options))
    removed: list[str] = []
    try:
        for key in _doomed(storage, keep_for):
            if storage.remove(key):
                removed.append(storage.at(key))
    except NoRemovalError:
        _log.warning("the vacuum of %s ends here: the next one deletes what is left", storage.name)
    return removed


def _doomed(storage: Storage, keep_for: float) -> list[str]:
    """What is to be deleted, in order; what has expired of the chains is then gone. Raises NoRemovalError."""
    doomed = _temporary(storage, "") + _temporary(storage, META)
    for chain in chains_in(storage):
        kept = chain.kept(time.time() - keep_for)
        if kept.oldest is not None:
            chain.expire(kept.oldest)
        doomed += _unlisted(storage, chain, kept) + _replaced(storage, chain, kept)
        doomed += _half_manifests(storage, chain, kept.state)
    return doomed


def _temporary(storage: Storage, folder: str) -> list[str]:
    return [_key(folder, name) for name in storage.unfinished(folder)]


def _inside(storage: Storage, folder: str) -> list[tuple[str, str]]:
    """The keys in a folder, finished or not, each with its last part."""
    return [(_key(folder, name), name) for name in storage.names(folder) + storage.unfinished(folder)]


def _key(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _unlisted(storage: Storage, chain: Chain, kept: Retained) -> list[str]:
    """Laws 1 and 2."""
    last = kept.state.last
    if last is None:
        return []
    listed = {file.path for file in kept.files}
    found = ((key, start_of(name)) for key, name in _inside(storage, data_folder(chain.topic, chain.partition)))
    return [key for key, start in found if start is not None and start < last.end and key not in listed]


def _replaced(storage: Storage, chain: Chain, kept: Retained) -> list[str]:
    """Laws 2 and 3."""
    checkpoint = kept.state.checkpoint
    if checkpoint is None:
        return []
    listed = {file.path for file in kept.files}
    found = ((key, attempt_of(name)) for key, name in _inside(storage, f"{COMPACTED}/{chain.folder}"))
    return [key for key, made_for in found if made_for and made_for <= checkpoint.number and key not in listed]


def _half_manifests(storage: Storage, chain: Chain, state: ChainState) -> list[str]:
    last, newest = state.last, state.checkpoint.number if state.checkpoint else 0
    folder = f"{META}/{chain.folder}"
    found = ((_key(folder, file), file.removeprefix(".").split(".")[0]) for file in storage.unfinished(folder))
    return [
        key
        for key, name in found
        if (name.isdecimal() and last is not None and int(name) <= last.sequence)
        # What is no checkpoint's name counts as one that is yet to come.
        or (number_of(f"{name}.json") or newest + 1) <= newest
    ]
