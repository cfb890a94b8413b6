"""Fewer, larger files for the same rows, and one text in place of a chain's manifests.

Laws
1. What is in the sink does not change: a checkpoint lists the same rows in the same order as the chain up to its
   manifest, and its files are whole, durable and were read once before it is created.
2. Neither a writer nor a reader waits for it. Nothing is deleted here: `vacuum` does that, once no reader can need it.
3. Of two compactions of a partition that began from the same checkpoint one wins. What the other made, or one that
   failed, is `vacuum`'s: here nobody knows whether the checkpoint came to be.
4. Only neighbours with one schema are put together. Its metadata stays if it is the same in all their files.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from instride.errors import ConfigError, CorruptManifestError, SinkError
from instride.errors._quoting import counted
from instride.spark.parquet._checkpoint import Checkpoint, Piece
from instride.spark.parquet._data import check_compression, write_to
from instride.spark.parquet._layout import COMPACTED, open_sink
from instride.spark.parquet._location import storage_at
from instride.spark.parquet._manifest_chain import Chain, ChainState
from instride.spark.parquet._read import chains_in
from instride.spark.parquet._storage import Storage, reading
from instride.spark.sink import FileInfo, OutputRange, new_job_id

__all__ = ["compact"]


def compact(
    path: str | Path,
    *,
    storage_options: Mapping[str, str] | None = None,
    target_bytes: int = 128 << 20,
    compression: str | Mapping[str, str | None] | None = "zstd",
) -> list[str]:
    """Put small files together, and write a checkpoint of each partition's chain; the files that were made, as
    `read_files` names them.

    It runs in the calling process, a partition at a time, beside writers, readers and others of its kind. What it
    replaces stays until `vacuum`. target_bytes: files of neighbouring ranges are put together up to this size, as they
    are in the sink; those of one range whatever their size.
    Raises NotASinkError, CorruptManifestError, MissingDataError, SinkWriteError, SinkUnavailableError, SinkError, and
    ConfigError as `ParquetSink`; what was done before stays.
    """
    checked = check_compression(compression)
    if isinstance(target_bytes, bool) or not isinstance(target_bytes, int) or target_bytes < 1:
        raise ConfigError(f"target_bytes must be a whole number of at least 1; it is {target_bytes!r}")
    storage = open_sink(storage_at(path, storage_options))
    made: list[str] = []
    for chain in chains_in(storage):
        made += _Compaction(storage=storage, chain=chain, target=target_bytes, compression=checked).run()
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compaction:
    """That of one partition. schemas: by path, as they were read from the files. distinct: one object for all that are
    alike, metadata included.
    """

    storage: Storage
    chain: Chain
    target: int
    compression: str | dict[str, str]
    schemas: dict[str, pa.Schema] = field(default_factory=dict)
    distinct: dict[bytes, pa.Schema] = field(default_factory=dict)

    def run(self) -> list[str]:
        state = self.chain.state()
        number = state.checkpoint.number + 1 if state.checkpoint else 1
        made: list[FileInfo] = []
        try:
            added = self._is_added(state, number, made)
        except SinkError:
            # Another that came first may have let a vacuum delete what this one reads and writes.
            newest = self.chain.state().checkpoint
            if newest is None or newest.number < number:
                raise
            added = False
        return [self.storage.at(file.path) for file in made] if added else []

    def _is_added(self, state: ChainState, number: int, made: list[FileInfo]) -> bool:
        last, groups = state.last, self._groups(state.pieces)
        # Nothing came since the last checkpoint, and no pieces go together: a new one would say the same.
        if last is None or (not state.manifests and all(len(group) == 1 for group in groups)):
            return False
        pieces = tuple(self._together(group, number, made) for group in groups)
        checkpoint = Checkpoint(number=number, created=time.time(), last=last, pieces=pieces)
        return self.chain.add_checkpoint(checkpoint)

    def _groups(self, pieces: Sequence[Piece]) -> list[list[Piece]]:
        """Neighbours that are to be one piece. Law 4."""
        groups: list[list[Piece]] = []
        size, schemas = 0, set[pa.Schema]()
        for piece in pieces:
            more = sum(file.bytes for file in piece.files)
            its = self._schemas(piece.files)
            # A piece without rows has no schema, and goes with any. One with two goes with none.
            if groups and size + more <= self.target and len(schemas | its) <= 1:
                groups[-1].append(piece)
                size, schemas = size + more, schemas or its
            else:
                groups.append([piece])
                size, schemas = more, its
        return groups

    def _schemas(self, files: Sequence[FileInfo]) -> set[pa.Schema]:
        """Tasks that share a range may write two, such as where all values of a column are null in one."""
        return {self._schema(file).remove_metadata() for file in files}

    def _together(self, group: Sequence[Piece], number: int, made: list[FileInfo]) -> Piece:
        listed = tuple(file for piece in group for file in piece.files)
        # Files of several pieces were found to be of one schema; those of one piece may be of two.
        if len(listed) > 1 and (common := self._common_schema(listed)) is not None:
            listed = (self._merged(group, listed, number, common.metadata),)
            made += listed
        return Piece(start=group[0].start, end=group[-1].end, files=listed)

    def _merged(
        self, group: Sequence[Piece], listed: Sequence[FileInfo], number: int, metadata: Mapping[Any, Any] | None
    ) -> FileInfo:
        output = OutputRange(
            topic=self.chain.topic, partition=self.chain.partition, start=group[0].start, end=group[-1].end
        )
        file = write_to(
            self.storage,
            output,
            job=new_job_id(),
            attempt=number,
            batches=self._rows(listed, metadata),
            compression=self.compression,
            below=COMPACTED,
        )
        rows = sum(each.rows for each in listed)
        if file is None or file.rows != rows:
            raise CorruptManifestError(
                f"the manifests of {output} say {counted(rows, 'row')}, but its files have others"
            )
        # Law 1: what PyArrow writes without an error it may be unable to read. An error of the reading names the file.
        if sum(batch.num_rows for batch in self._rows([file], None)) != rows:
            raise SinkError(f"{self.storage.at(file.path)} was written with {counted(rows, 'row')}, but has others")
        return file

    def _rows(self, listed: Sequence[FileInfo], metadata: Mapping[Any, Any] | None) -> Iterator[pa.RecordBatch]:
        for file in listed:
            with reading(self.storage, file), pq.ParquetFile(self.storage.opened(file)) as opened:
                for batch in opened.iter_batches():
                    yield batch.replace_schema_metadata(metadata)

    def _common_schema(self, files: Sequence[FileInfo]) -> pa.Schema | None:
        """That of all files, or None where they differ. Without metadata where that differs."""
        common: pa.Schema | None = None
        for file in files:
            schema = self._schema(file)
            if common is not None and schema != common:
                return None
            if common is not None and schema.metadata != common.metadata:
                schema = schema.remove_metadata()
            common = schema
        return common

    def _schema(self, file: FileInfo) -> pa.Schema:
        if file.path not in self.schemas:
            with reading(self.storage, file):
                schema = pq.read_schema(self.storage.opened(file))
            self.schemas[file.path] = self.distinct.setdefault(schema.serialize().to_pybytes(), schema)
        return self.schemas[file.path]
