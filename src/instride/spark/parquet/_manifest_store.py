"""Where manifests are kept: the one place that must be able to create a file only if it is absent.

A store holds small immutable texts under keys like
``topic-flights/partition-00003/00000000000000000007.json``. The local one uses hard links. For another kind
of storage implement `ManifestStore` with what that storage has for "create if absent" (a conditional PUT, a
generation match, a lease): plain "write, then rename" is *not* enough.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol, runtime_checkable

from instride.errors import SinkError
from instride.spark.parquet import _files as files

__all__ = ["LocalManifestStore", "ManifestStore"]


@runtime_checkable
class ManifestStore(Protocol):
    """Immutable texts by key. A key's parts are joined by "/". Every method may be called from several
    threads.
    """

    def create_if_absent(self, key: str, content: bytes) -> bool:
        """Create, atomically with its content; False where the key exists, whoever made it.

        On return what is under the key is durable and every later `read`, anywhere, sees it. Raises
        SinkWriteError where it cannot be known to have been created; the caller then calls again.
        """
        ...

    def read(self, key: str) -> bytes | None:
        """The whole content, or None where the key does not exist."""
        ...

    def names(self, folder: str) -> list[str]:
        """The next parts of the keys below a folder ("" for the top), each once, in any order.

        A key that was created before the call is among them.
        """
        ...

    def remove(self, key: str) -> None:
        """Remove what is under the key, if it is there and may be removed: nothing is raised. `vacuum` calls it.

        Keys that are removed one after another must go in that order, also where the machine crashes between.
        """
        ...


class LocalManifestStore:
    """Manifests in a folder of a POSIX file system with hard links: a local disk, or one shared by all
    drivers.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def create_if_absent(self, key: str, content: bytes) -> bool:
        """By a hard link, which fails where the name is taken."""
        return files.create_if_absent(self.folder / key, content)

    def read(self, key: str) -> bytes | None:
        """Raises SinkError where a file is there and cannot be read."""
        try:
            return (self.folder / key).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SinkError(f"cannot read the manifest {self.folder / key}: {error}") from error

    def names(self, folder: str) -> list[str]:
        """Without hidden files. Raises SinkError where a folder is there and cannot be listed."""
        try:
            names = os.listdir(self.folder / folder)  # noqa: PTH208 - a chain may have 100,000 of them
            return [name for name in names if not name.startswith(".")]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SinkError(f"cannot list {self.folder / folder}: {error}") from error

    def remove(self, key: str) -> None:
        """In the order of the calls on a file system with a journal (ext4, XFS)."""
        files.remove(self.folder / key)

    def __repr__(self) -> str:
        return f"LocalManifestStore({str(self.folder)!r})"
