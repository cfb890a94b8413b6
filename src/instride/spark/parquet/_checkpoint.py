"""A partition's chain up to one of its manifests, in one text: what a reader opens instead of all of them.

Laws
1. Checkpoints of a chain are numbered from 1. Each is made from the one before it and the manifests since, and is
   created only if its number is absent: of two compactions that began from the same one, one wins, whole.
2. So what a checkpoint does not list, no later one lists, but for files that were made for that later one.
3. A checkpoint is immutable, and says what its manifests say: the same rows, in fewer files.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from instride.errors import CorruptManifestError
from instride.spark.parquet._manifest import Manifest, chain_folder, from_fields, sealed, unsealed
from instride.spark.sink import FileInfo

__all__ = ["Checkpoint", "Piece", "checkpoint_key", "decode_checkpoint", "encode_checkpoint", "number_of"]

_NAME = "checkpoint-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The offsets [start, end), and exactly the files that hold their rows."""

    start: int
    end: int
    files: tuple[FileInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """number: its place among the chain's checkpoints. created: when it was made, in seconds since 1970; it may have
    appeared later.

    last: the manifest up to which it speaks. pieces: what is in the sink up to there, in order.
    """

    number: int
    created: float
    last: Manifest
    pieces: tuple[Piece, ...]

    @property
    def sequence(self) -> int:
        """That of the manifest up to which it speaks."""
        return self.last.sequence


def checkpoint_key(topic: str, partition: int, number: int) -> str:
    """The key of a checkpoint."""
    return f"{chain_folder(topic, partition)}/{_file(number)}"


def number_of(name: str) -> int | None:
    """The number that a key's last part speaks of, if it is a checkpoint's: no other spelling of the number is."""
    number = name.removeprefix(_NAME).removesuffix(".json")
    return int(number) if number.isdecimal() and name == _file(int(number)) else None


def _file(number: int) -> str:
    return f"{_NAME}{number:020d}.json"


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The text of a checkpoint, with version and checksum."""
    return sealed(asdict(checkpoint))


def decode_checkpoint(content: bytes, key: str) -> Checkpoint:
    """The checkpoint found under a key. Raises CorruptManifestError, which names the key."""
    body = unsealed(content, key)
    try:
        last = from_fields(body.pop("last"), key)
        pieces = tuple(_piece(piece) for piece in body.pop("pieces"))
        found = Checkpoint(**body, last=last, pieces=pieces)
    except (KeyError, TypeError) as error:
        raise CorruptManifestError(f"the checkpoint {key} lacks a field or has a strange one: {error}") from error
    if checkpoint_key(last.topic, last.partition, found.number) != key:
        raise CorruptManifestError(f"the checkpoint {key} is another's: it was copied or renamed")
    return found


def _piece(fields: dict[str, object]) -> Piece:
    start, end, files = fields["start"], fields["end"], fields["files"]
    if not (isinstance(start, int) and isinstance(end, int) and isinstance(files, list)):
        raise TypeError(f"no piece: {fields}")
    return Piece(start=start, end=end, files=tuple(FileInfo(**file) for file in files))
