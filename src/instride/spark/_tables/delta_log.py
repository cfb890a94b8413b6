"""A Delta table's application transactions, all at once: deltalake gives one at a time, and reads the log for each.

Laws
1. A commit's file never changes, so each is read once; the newest number of an application stands.
2. It begins at the newest checkpoint that is one file, or at the first commit. Where neither is there (checkpoints in
   parts, a log that is cleaned up meanwhile), the log says nothing, and deltalake is to be asked.
3. What was read counts as long as the file that was read last is there and is the same. Else somebody has made the
   table anew, perhaps, with offsets of its own under versions that were seen already; so all is read anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["TransactionLog", "commit_file"]

_CHECKPOINT: Final = ".checkpoint.parquet"
_ACTION: Final = '"txn"'


def commit_file(log: Path, version: int) -> Path:
    """Where the commit of this version is."""
    return log / f"{version:020d}.json"


class TransactionLog:
    """log: the table's folder `_delta_log`. Used by one thread at a time."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._found: dict[str, int] = {}
        self._read_to = -1
        self._begun = False
        self._last: _File | None = None

    @property
    def is_the_same(self) -> bool:
        """Law 3. True where nothing was read yet."""
        if self._last is None:
            return True
        try:
            return _File.at(self._last.path) == self._last
        except OSError:
            return False

    def at(self, version: int) -> Mapping[str, int] | None:
        """The number of each application that has one, as of this version of the table; None: ask deltalake.

        version: not below that of the call before, or it is read anew from the beginning.
        """
        # Twice: the commits that are to be read next may be cleaned up, behind a checkpoint.
        for _ in range(2):
            try:
                if not self._begun or self._read_to > version or not self.is_the_same:
                    self._begin(version)
                self._read_commits(version)
            except (OSError, ValueError, KeyError, pa.ArrowException):
                self._begun = False
            else:
                return self._found
        return None

    def _begin(self, version: int) -> None:
        self._found, self._read_to, self._last = {}, -1, None
        checkpoints = sorted(
            int(path.name.removesuffix(_CHECKPOINT))
            for path in self._log.glob(f"*{_CHECKPOINT}")
            if path.name.removesuffix(_CHECKPOINT).isdecimal()
        )
        for newest in [each for each in checkpoints if each <= version][-1:]:
            self._last = _File.at(self._log / f"{newest:020d}{_CHECKPOINT}")
            self._found = _in_checkpoint(self._last.path)
            self._read_to = newest
        self._begun = True

    def _read_commits(self, version: int) -> None:
        for each in range(self._read_to + 1, version + 1):
            # Looked at before it is read: one that takes its place meanwhile is told from it later.
            self._last = _File.at(commit_file(self._log, each))
            self._found.update(_in_commit(self._last.path))
            self._read_to = each


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """One that never changes, so that another of its name is told from it."""

    path: Path
    inode: int
    modified: int
    size: int

    @classmethod
    def at(cls, path: Path) -> _File:
        found = path.stat()
        return cls(path=path, inode=found.st_ino, modified=found.st_mtime_ns, size=found.st_size)


def _in_commit(path: Path) -> dict[str, int]:
    with path.open(encoding="utf-8") as lines:
        # Of the many actions of a large commit only these are decoded.
        actions = [json.loads(line).get("txn") for line in lines if _ACTION in line]
    return {each["appId"]: each["version"] for each in actions if each is not None}


def _in_checkpoint(path: Path) -> dict[str, int]:
    """Raises KeyError where it does not have that column."""
    # Not `pq.read_table`, which names the columns of a struct otherwise.
    with pq.ParquetFile(path) as file:
        found = file.read(columns=["txn.appId", "txn.version"])["txn"]
    return {each["appId"]: each["version"] for each in found.filter(found.is_valid()).to_pylist()}
