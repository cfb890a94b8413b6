"""Deleting what no reader can ever see.

Laws
1. A data file is deleted only if its chain does not list it *and* has passed its start. A manifest that
   lists it would have to start there, so none ever will, whatever is still running. A file at or beyond the
   chain's end may be a job's in flight: it stays.
2. A temporary file of a manifest goes when its place is taken: its maker died, or is about to lose. The same
   for the folder's marker, which is there when a vacuum runs.
3. Names this sink does not give are left alone.
4. Running beside writers, readers and other vacuums is safe. A zombie that writes on finds its temporary
   file gone, and fails.
"""

from __future__ import annotations

from pathlib import Path

from instride.spark.parquet import files
from instride.spark.parquet.chain import Chain
from instride.spark.parquet.layout import data_folder, local_folder, open_sink, start_of
from instride.spark.parquet.read import chains_in
from instride.spark.parquet.store import LocalManifestStore, ManifestStore

__all__ = ["vacuum"]


def vacuum(path: str | Path, *, store: ManifestStore | None = None) -> list[Path]:
    """Delete the files of dropped, failed and repeated attempts; the paths that were deleted.

    Raises NotASinkError, CorruptManifestError; a file that cannot be deleted is left.
    """
    root = local_folder(path)
    opened = open_sink(root, store)
    doomed: list[Path] = []
    if isinstance(opened, LocalManifestStore):
        doomed += [file for file in opened.folder.iterdir() if files.is_temporary(file.name)]
    for chain in chains_in(opened):
        doomed += _unlisted(root, chain)
        if isinstance(opened, LocalManifestStore):
            doomed += _half_manifests(opened, chain)
    return [file for file in doomed if files.remove(file)]


def _unlisted(root: Path, chain: Chain) -> list[Path]:
    manifests = chain.all()
    folder = root / data_folder(chain.topic, chain.partition)
    if not manifests or not folder.is_dir():
        return []
    listed = {root / file.path for manifest in manifests for file in manifest.files}
    reached = manifests[-1].end
    found = ((file, start_of(file.name)) for file in folder.iterdir())
    return [file for file, start in found if start is not None and start < reached and file not in listed]


def _half_manifests(store: LocalManifestStore, chain: Chain) -> list[Path]:
    last = chain.last()
    folder = store.folder / chain.folder
    if last is None or not folder.is_dir():
        return []
    found = ((file, file.name.removeprefix(".").split(".")[0]) for file in folder.iterdir())
    return [
        file
        for file, sequence in found
        if files.is_temporary(file.name) and sequence.isdecimal() and int(sequence) <= last.sequence
    ]
