"""A sink in a folder of a POSIX file system with hard links: a local disk, or one that all machines share."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from instride.errors import NotASinkError, SinkError
from instride.spark.parquet import _files as files
from instride.spark.parquet._storage import missing_data
from instride.spark.sink import FileInfo

__all__ = ["LocalStorage"]


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """Implements `Storage` by the steps of `_files`, whose laws hold for it. sink: its folder, where this is in it."""

    folder: Path
    sink: Path | None = None

    @property
    def name(self) -> str:
        return str(self.folder)

    def at(self, key: str) -> str:
        return str(self.folder / key)

    def inside(self, folder: str) -> LocalStorage:
        return LocalStorage(self.folder / folder, self.sink or self.folder)

    def check_kind(self) -> None:
        try:
            is_folder = stat.S_ISDIR(self.folder.stat().st_mode)
        except FileNotFoundError:
            return
        except OSError as error:
            raise SinkError(f"cannot read {self.folder}: {error}") from error
        if not is_folder:
            raise NotASinkError(f"{self.folder} is a file, not a sink's folder")

    def check_creates(self, key: str, content: bytes) -> None:
        """The kernel refuses it: a file system without hard links is told by the first create."""

    def create_if_absent(self, key: str, content: bytes) -> bool:
        """By a hard link, which fails where the name is taken."""
        return files.create_if_absent(self.folder / key, content, self._below)

    def make_durable(self, key: str) -> None:
        files.make_durable(self.folder / key, self._below)

    def read(self, key: str) -> bytes | None:
        try:
            return (self.folder / key).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SinkError(f"cannot read {self.folder / key}: {error}") from error

    def size(self, key: str) -> int | None:
        found = self._stat(key)
        return None if found is None else found.st_size

    def appeared(self, key: str) -> float | None:
        """The file's time, which `files.create_if_absent` sets just before the link.

        Not that of the inode's last change, which the link sets: so does whoever changes owners or rights, such as
        Kubernetes at each mount, and no vacuum would ever delete anything.
        """
        found = self._stat(key)
        return None if found is None else found.st_mtime

    def names(self, folder: str) -> list[str]:
        return [name for name in self._all_names(folder) if not files.is_temporary(name)]

    def unfinished(self, folder: str) -> list[str]:
        return [name for name in self._all_names(folder) if files.is_temporary(name)]

    def remove(self, key: str) -> bool:
        """In the order of the calls on a file system with a journal (ext4, XFS)."""
        return files.remove(self.folder / key)

    def scratch(self, key: str) -> Path:
        """Hidden, beside the target: what gives it its name is a rename."""
        temp = files.temporary(self.folder / key)
        try:
            files.make_folders(temp.parent, self._below)
        except OSError as error:
            raise files.write_error(temp, error) from error
        return temp

    def publish(self, scratch: Path, key: str) -> int:
        target = self.folder / key
        try:
            files.publish(scratch, target)
            return target.stat().st_size
        except OSError as error:
            raise files.write_error(target, error) from error

    def opened(self, file: FileInfo) -> str:
        if self.size(file.path) is None:
            raise missing_data(self.at(file.path))
        return self.at(file.path)

    @property
    def _below(self) -> Path:
        """Up to here folders are made durable: the sink's has its place in this one."""
        return (self.sink or self.folder).parent

    def _stat(self, key: str) -> os.stat_result | None:
        try:
            return (self.folder / key).stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SinkError(f"cannot read {self.folder / key}: {error}") from error

    def _all_names(self, folder: str) -> list[str]:
        try:
            return os.listdir(self.folder / folder)  # noqa: PTH208 - a chain may have 100,000 of them
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SinkError(f"cannot list {self.folder / folder}: {error}") from error
