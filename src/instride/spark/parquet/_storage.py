"""What the sink needs of the place that holds it: all that it reads, writes, lists and removes goes through here.

Everything lies under keys, whose parts are joined by "/", such as
``_instride/topic-flights/partition-00003/00000000000000000007.json``. Two places are served: a folder of a POSIX file
system (`_local_storage`), and a bucket of an object store (`_object_storage`). The URI decides (`_location`).

Laws
1. `create_if_absent` is the one step that decides races. Plain "write, then rename" is *not* enough.
2. What is under a key is there whole or not at all, and never changes.
3. What was reported as created or published is durable, and every later call shows it, from any machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa

from instride.errors import MissingDataError, SinkError
from instride.spark.sink import FileInfo

__all__ = ["ManifestStore", "NoRemovalError", "Storage", "missing_data", "reading"]


class NoRemovalError(Exception):
    """The storage removes nothing for now: it does not answer, or cannot. It was logged; whoever has further keys to
    remove leaves them, since each would take as long. Never a caller's of the sink.
    """


class ManifestStore(Protocol):
    """Small immutable texts by key: what a chain needs. Every method may be called from several threads."""

    def create_if_absent(self, key: str, content: bytes) -> bool:
        """Create, atomically with its content; False where the key exists, whoever made it.

        Raises SinkWriteError where it cannot be known to have been created; the caller then calls again.
        """
        ...

    def make_durable(self, key: str) -> None:
        """What was seen under the key stays, whatever its creator came to. Raises SinkWriteError."""
        ...

    def read(self, key: str) -> bytes | None:
        """The whole content, or None where the key does not exist. Raises SinkError where it cannot be read."""
        ...

    def names(self, folder: str) -> list[str]:
        """The next parts of the keys below a folder ("" for the top), each once, in any order.

        A key that was created before the call is among them; an unfinished file is not listed. Raises SinkError.
        """
        ...

    def appeared(self, key: str) -> float | None:
        """When what is under the key came to be there, or later: in seconds since 1970, by the storage's own clock.
        In a local folder it may be earlier, by law 5 of `_files`.

        None where the key does not exist. Raises SinkError.
        """
        ...

    def remove(self, key: str) -> object:
        """Remove what is under the key, if it is there and may be removed. Raises NoRemovalError alone.

        Keys that are removed one after another must go in that order, also where the machine crashes between.
        """
        ...


class Storage(ManifestStore, Protocol):
    """A sink's folder or prefix."""

    @property
    def name(self) -> str:
        """Its path or URI."""
        ...

    def at(self, key: str) -> str:
        """The path or URI of what is under a key."""
        ...

    def inside(self, folder: str) -> Storage:
        """The part of it below a folder."""
        ...

    def check_kind(self) -> None:
        """Raises NotASinkError where what is there can hold no sink: a file, say."""
        ...

    def check_creates(self, key: str, content: bytes) -> None:
        """Raises NotASinkError where a create of this key, which exists, is not refused. content: made anew."""
        ...

    def size(self, key: str) -> int | None:
        """In bytes, or None where the key does not exist. Raises SinkError."""
        ...

    def remove(self, key: str) -> bool:
        """As above; False where nothing was removed."""
        ...

    def unfinished(self, folder: str) -> list[str]:
        """The names of the hidden temporary files in a folder."""
        ...

    def scratch(self, key: str) -> Path:
        """A local path, used by nobody else, where a data file is written before it gets its key.

        Raises SinkWriteError.
        """
        ...

    def publish(self, scratch: Path, key: str) -> int:
        """Put the finished file under its key, which nobody else uses; its size. Raises SinkWriteError."""
        ...

    def opened(self, file: FileInfo) -> str | BinaryIO:
        """A data file as PyArrow opens it. Raises MissingDataError where it is not there, here or at the first read.

        Reading raises SinkError too, or the system's or PyArrow's error: see `reading`.
        """
        ...


def missing_data(place: str) -> MissingDataError:
    """Of a data file that a manifest lists. place: its path or URI."""
    return MissingDataError(
        f"a manifest lists {place}, but it is not there: it was deleted or moved, this reader took longer than "
        "vacuum(keep_for=...), or this machine does not share the sink's folder"
    )


@contextmanager
def reading(storage: Storage, file: FileInfo) -> Iterator[None]:
    """What PyArrow raises of a data file, inside, becomes MissingDataError or SinkError, which name the file."""
    place = storage.at(file.path)
    try:
        yield
    except FileNotFoundError as error:
        raise missing_data(place) from error
    except MemoryError:  # PyArrow's is one of its own errors too
        raise
    except (OSError, pa.ArrowException) as error:
        raise SinkError(f"cannot read {place}: {error}") from error
