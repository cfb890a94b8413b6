"""One link of a partition's chain, and its form on disk.

Laws
1. A manifest is immutable. Its key says topic, partition and sequence; its text says them again, and a
   checksum: a manifest that was copied, renamed, cut or edited is found out when it is read.
2. Sequences count from 1 without a gap; each manifest starts at the offset where the one before it ends.
3. The first may be empty, of no job: it says where the partition's output begins.
4. A commit appends one: `_sink.py` says when, `_manifest_chain.py` how.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass
from typing import Any, Final

from instride.errors import CorruptManifestError
from instride.spark.sink import FileInfo

__all__ = [
    "VERSION",
    "Manifest",
    "chain_folder",
    "decode",
    "encode",
    "from_fields",
    "key_of",
    "partition_of",
    "sealed",
    "sequence_of",
    "topic_of",
    "unsealed",
]

VERSION: Final = 1
_TOPIC = "topic-"
_PARTITION = "partition-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The range [start, end) of a partition, and exactly the files that hold its rows."""

    topic: str
    topic_id: str
    partition: int
    sequence: int
    start: int
    end: int
    job: str
    files: tuple[FileInfo, ...]


def chain_folder(topic: str, partition: int) -> str:
    """Where the chain of a partition is kept. Prefixed, for a topic's name may start with "." or "_"."""
    return f"{_TOPIC}{topic}/{_partition_folder(partition)}"


def key_of(topic: str, partition: int, sequence: int) -> str:
    """The key of a manifest."""
    return f"{chain_folder(topic, partition)}/{_file(sequence)}"


def sequence_of(name: str) -> int | None:
    """The sequence that a key's last part speaks of, if it is a manifest's: no other spelling of the number is."""
    number = name.removesuffix(".json")
    return int(number) if number.isdecimal() and name == _file(int(number)) else None


def _file(sequence: int) -> str:
    return f"{sequence:020d}.json"


def topic_of(name: str) -> str | None:
    """The topic that a folder's name speaks of, if any."""
    return name.removeprefix(_TOPIC) if name.startswith(_TOPIC) else None


def partition_of(name: str) -> int | None:
    """The partition that a folder's name speaks of, if any: another spelling of the number is another's folder."""
    number = name.removeprefix(_PARTITION)
    return int(number) if number.isdecimal() and name == _partition_folder(int(number)) else None


def _partition_folder(partition: int) -> str:
    return f"{_PARTITION}{partition:05d}"


def encode(manifest: Manifest) -> bytes:
    """The text of a manifest, with version and checksum."""
    return sealed(asdict(manifest))


def decode(content: bytes, key: str) -> Manifest:
    """The manifest found under a key. Raises CorruptManifestError, which names the key."""
    return _checked(from_fields(unsealed(content, key), key), key)


def sealed(fields: dict[str, Any]) -> bytes:
    """The text of these fields, with version and checksum."""
    body = {"version": VERSION, **fields}
    return json.dumps({**body, "crc32": _checksum(body)}, indent=1).encode()


def unsealed(content: bytes, key: str) -> dict[str, Any]:
    """The fields whose `sealed` gave this text. Raises CorruptManifestError, which names the key."""
    try:
        body = json.loads(content)
        checksum = body.pop("crc32")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise CorruptManifestError(f"the manifest {key} cannot be read: {error!r}") from error
    if checksum != _checksum(body):
        raise CorruptManifestError(f"the manifest {key} was changed or damaged: its checksum does not match")
    if body.pop("version", None) != VERSION:
        raise CorruptManifestError(f"the manifest {key} is of another version than {VERSION}; use a newer instride")
    assert isinstance(body, dict)
    return body


def from_fields(body: dict[str, Any], key: str) -> Manifest:
    """A manifest of its fields. Raises CorruptManifestError, which names the key."""
    try:
        files = tuple(FileInfo(**file) for file in body.pop("files"))
        return Manifest(**body, files=files)
    except (KeyError, TypeError) as error:
        raise CorruptManifestError(f"the manifest {key} lacks a field or has a strange one: {error}") from error


def _checked(manifest: Manifest, key: str) -> Manifest:
    if key_of(manifest.topic, manifest.partition, manifest.sequence) != key:
        raise CorruptManifestError(f"the manifest {key} is another's: it was copied or renamed")
    if not 0 <= manifest.start <= manifest.end or (manifest.start == manifest.end and manifest.sequence > 1):
        raise CorruptManifestError(f"the manifest {key} holds no range: [{manifest.start}, {manifest.end})")
    return manifest


def _checksum(body: dict[str, Any]) -> int:
    # Of the fields and not of the text: neither their order nor spaces count.
    return zlib.crc32(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())
