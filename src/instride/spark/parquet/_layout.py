"""Where things lie in a sink's folder (or below its prefix), and how a folder is known to be one.

    FOLDER/_instride/sink.json                                        "this is a sink", and its version
    FOLDER/_instride/topic-T/partition-PPPPP/SEQUENCE.json            the chain of manifests
    FOLDER/_instride/topic-T/partition-PPPPP/checkpoint-NUMBER.json   what it says up to some manifest
    FOLDER/_data/topic-T/partition-PPPPP/START-END-JOB-ATTEMPT-TOKEN.parquet
    FOLDER/_compacted/topic-T/partition-PPPPP/START-END-JOB-NUMBER-TOKEN.parquet   made for checkpoint NUMBER
    FOLDER/read-this-folder-with-format(instride-parquet).parquet     for who reads it without its manifests

The folders' names begin with "_", which Spark, Arrow and pandas pass over: reading FOLDER without its manifests
gives an error, not the rows of losers and zombies. The error is that the last one is no Parquet file: Spark, Arrow,
pandas and DuckDB all name the file that they cannot read, and so say what to use.

Numbers are of fixed width, so that names sort as they count. The token makes the name of every write its
own: even two writes by the same attempt cannot touch each other's file.
"""

from __future__ import annotations

import json
import re
import uuid
from typing import Final

from instride.errors import NotASinkError
from instride.spark.parquet._manifest import VERSION, chain_folder
from instride.spark.parquet._storage import Storage
from instride.spark.sink import OutputRange

__all__ = [
    "COMPACTED",
    "DATA",
    "META",
    "check_job_id",
    "check_topic",
    "create_sink",
    "data_folder",
    "file_name",
    "name_prefix",
    "open_sink",
    "attempt_of",
    "start_of",
]

DATA: Final = "_data"
COMPACTED: Final = "_compacted"
_SIGNPOST: Final = "read-this-folder-with-format(instride-parquet).parquet"
_SIGNPOST_TEXT: Final = b"""The rows are in files that manifests list; other files here hold rows twice, or half.
Read them with spark.read.format("instride-parquet").load(folder), or with instride.spark.parquet.read_table(folder).
"""
META: Final = "_instride"
_MARKER: Final = "sink.json"
_FORMAT: Final = {"format": "instride-parquet", "version": VERSION}
_JOB = re.compile(r"[A-Za-z0-9_]{1,64}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NAME = re.compile(r"\.?(\d{20})-\d{20}-[A-Za-z0-9_]{1,64}-(\d+)-")


def check_job_id(job: str) -> str:
    """The id, or ValueError where it cannot be part of a file's name."""
    if not _JOB.fullmatch(job):
        raise ValueError(f"a job's id is 1 to 64 letters, digits and underscores, not {job!r}")
    return job


def check_topic(topic: str) -> str:
    """The topic, or ValueError where Kafka would not allow its name (so it cannot lead out of the folder)."""
    if not _TOPIC.fullmatch(topic):
        raise ValueError(f"not the name of a Kafka topic: {topic!r}")
    return topic


def data_folder(topic: str, partition: int) -> str:
    """The folder of a partition's data files, relative to the sink's."""
    return f"{DATA}/{chain_folder(topic, partition)}"


def name_prefix(output: OutputRange, job: str) -> str:
    """How the name of every file begins that a job writes for a range."""
    return f"{output.start:020d}-{output.end:020d}-{job}-"


def file_name(output: OutputRange, job: str, attempt: int) -> str:
    """A new name for a data file, never given before."""
    return f"{name_prefix(output, job)}{attempt}-{uuid.uuid4().hex[:12]}.parquet"


def start_of(name: str) -> int | None:
    """The first offset that a data file's name (or its temporary name) speaks of, or None where it is no
    such name.
    """
    match = _NAME.match(name)
    return int(match[1]) if match else None


def attempt_of(name: str) -> int | None:
    """The attempt that such a name speaks of: of a compaction's file, the checkpoint for which it was made."""
    match = _NAME.match(name)
    return int(match[2]) if match else None


def open_sink(storage: Storage) -> Storage:
    """The storage of an existing sink. Raises NotASinkError where there is none, or a newer one."""
    if not _is_marked(storage):
        raise NotASinkError(f"{storage.name} is not a sink of instride (it has no {META}/{_MARKER})")
    return storage


def create_sink(storage: Storage) -> Storage:
    """The storage of a sink that exists, or of a new one in a folder that is absent or empty.

    Raises NotASinkError where the folder holds other things, or is a file, or where a create of what exists is not
    refused.
    """
    inner = storage.inside(META)
    if not _is_marked(storage):
        strange = _strange_things(storage)
        # Another process may have made the sink, and written to it, between the two looks.
        if strange and not _is_marked(storage):
            raise NotASinkError(
                f"{storage.name} is not a sink and not empty (it holds {strange}); choose another folder"
            )
        inner.create_if_absent(_MARKER, json.dumps(_FORMAT).encode())
    inner.check_creates(_MARKER, json.dumps({**_FORMAT, "check": uuid.uuid4().hex}).encode())
    if storage.size(_SIGNPOST) is None:
        storage.create_if_absent(_SIGNPOST, _SIGNPOST_TEXT)
    return storage


def _is_marked(storage: Storage) -> bool:
    storage.check_kind()
    content = storage.inside(META).read(_MARKER)
    if content is None:
        return False
    try:
        marker = json.loads(content)
        known = {name: marker[name] for name in _FORMAT} == _FORMAT
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise NotASinkError(f"{storage.name} is not a sink of version {VERSION}: its marker says {content[:200]!r}")
    return True


def _strange_things(storage: Storage) -> str:
    return ", ".join([name for name in sorted(storage.names("")) if name not in (META, _SIGNPOST)][:3])
