"""The executors' half: rows into data files that nobody sees until a manifest lists them.

Laws
1. A data file holds rows of one range of one Kafka partition, written by one attempt; its name says which.
2. It is written under a name that nobody looks at, and published when it is finished: what is reported is whole, and
   durable.
3. No rows, no file. The range is reported all the same, for the chain must advance over it.
4. After an error the attempt leaves nothing. A process that dies leaves at most a temporary file: `vacuum` deletes
   those in a sink's folder; those for an object store are in the system's folder for temporary files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from instride.errors import ConfigError, SinkError
from instride.spark.parquet import _files as files
from instride.spark.parquet._layout import DATA, check_job_id, check_topic, file_name
from instride.spark.parquet._location import kept_storage_at, storage_at
from instride.spark.parquet._manifest import chain_folder
from instride.spark.parquet._schemas import stored
from instride.spark.parquet._storage import Storage
from instride.spark.sink import FileInfo, OutputRange, WrittenRange

__all__ = ["ParquetWriter", "check_compression", "write_data_file", "write_to"]

_COMPRESSIONS: Final = ("none", "snappy", "gzip", "brotli", "lz4", "lz4_raw", "zstd")

# Small batches are gathered into row groups of about this size: a row group a batch would make files large
# and slow.
_GROUP_ROWS = 1 << 17
_GROUP_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ParquetWriter:
    """Writes the ranges of a `ParquetSink`; picklable. Every executor must see the same folder or bucket as the
    driver. folder: a path or URI. storage_options travel with it; its repr does not show them.
    """

    folder: str
    compression: str | Mapping[str, str | None] | None = "zstd"
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)

    def write(self, output: OutputRange, *, job: str, attempt: int, batches: Iterator[pa.RecordBatch]) -> WrittenRange:
        """Write one range; see `write_data_file` for the errors."""
        file = write_to(
            kept_storage_at(self.folder, self.storage_options),
            output,
            job=job,
            attempt=attempt,
            batches=batches,
            compression=self.compression,
        )
        return WrittenRange(range=output, files=(file,) if file else ())


def write_data_file(
    folder: str | Path,
    output: OutputRange,
    *,
    job: str,
    attempt: int,
    batches: Iterator[pa.RecordBatch],
    compression: str | Mapping[str, str | None] | None = "zstd",
    below: str = DATA,
    storage_options: Mapping[str, str] | None = None,
) -> FileInfo | None:
    """Write a range's rows into one new data file, or none where there are no rows.

    folder: the sink's, a path or URI. below: the folder in it that holds all data files. job, attempt: as for
    `RangeWriter.write`. compression, storage_options: as for `ParquetSink`.
    Memory: one row group (64 MiB or 131,072 rows, whichever is reached first, and one batch more). For an object store
    the file is first written to the local folder for temporary files (TMPDIR).

    Raises SinkWriteError (a full disk, say), SinkError where the batches' schemas differ, NotASinkError and ConfigError
    as `ParquetSink`, and whatever `batches` raises.
    """
    storage = storage_at(folder, storage_options)
    return write_to(storage, output, job=job, attempt=attempt, batches=batches, compression=compression, below=below)


def write_to(
    storage: Storage,
    output: OutputRange,
    *,
    job: str,
    attempt: int,
    batches: Iterator[pa.RecordBatch],
    compression: str | Mapping[str, str | None] | None,
    below: str = DATA,
) -> FileInfo | None:
    """As `write_data_file`."""
    checked = check_compression(compression)
    name = file_name(output, check_job_id(job), attempt)
    key = f"{below}/{chain_folder(check_topic(output.topic), output.partition)}/{name}"
    groups = _groups(batches)
    first = next(groups, None)
    if first is None:
        return None
    temp = storage.scratch(key)
    try:
        rows = _write_groups(temp, first, groups, checked)
        size = storage.publish(temp, key)
    except BaseException:
        files.remove(temp)
        raise
    return FileInfo(path=key, rows=rows, bytes=size, attempt=attempt)


def check_compression(given: str | Mapping[str, str | None] | None) -> str | dict[str, str]:
    """As PyArrow takes it: a name, or one for each column that is named. ConfigError where it writes no file so."""
    if not isinstance(given, Mapping):
        return _codec(given)
    if not all(isinstance(column, str) for column in given):
        raise ConfigError(f"compression names columns by strings, not as {given!r}")
    return {column: _codec(name) for column, name in given.items()}


def _codec(name: str | None) -> str:
    if name is None:
        return "none"
    if not isinstance(name, str) or name.lower() not in _COMPRESSIONS:
        raise ConfigError(f"compression must be one of {', '.join(_COMPRESSIONS)}, not {name!r}")
    return name


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of about the size of a row group, of the batches that have rows."""
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        batch = _stored(batch)  # noqa: PLW2901 - what came is not to be written
        if gathered and batch.schema != gathered[0].schema:
            raise SinkError(f"batches of one range differ in schema: {gathered[0].schema} and {batch.schema}")
        gathered.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(gathered)
            gathered, rows, size = [], 0, 0
    if gathered:
        yield pa.Table.from_batches(gathered)


def _stored(batch: pa.RecordBatch) -> pa.RecordBatch:
    schema = stored(batch.schema)
    try:
        return batch if schema == batch.schema else batch.cast(schema)
    except MemoryError:  # PyArrow's is one of its own errors too
        raise
    except pa.ArrowException as error:
        raise _no_such_columns(error) from error


def _write_groups(temp: Path, first: pa.Table, groups: Iterator[pa.Table], compression: str | dict[str, str]) -> int:
    """Write the first group and the others; the number of rows."""
    writer = _open(temp, first.schema, compression)
    try:
        rows = _write_group(writer, temp, first)
        for group in groups:
            if group.schema != first.schema:
                raise SinkError(f"batches of one range differ in schema: {first.schema} and {group.schema}")
            rows += _write_group(writer, temp, group)
    except BaseException:
        # Closed for its handle only: the file is given up, and what is raised already says why.
        with contextlib.suppress(OSError, pa.ArrowException):
            writer.close()
        raise
    _close(writer, temp)
    return rows


# Arrow's own errors for a full disk are OSErrors too; each call is wrapped by itself, so that an OSError
# that the batches' source raises (a broken connection to Kafka) is never taken for the disk's.


def _open(temp: Path, schema: pa.Schema, compression: str | dict[str, str]) -> Any:
    _check_names(schema.names)
    try:
        return pq.ParquetWriter(str(temp), schema, compression=compression)
    except OSError as error:
        raise files.write_error(temp, error) from error
    except pa.ArrowException as error:
        raise _no_such_columns(error) from error


def _check_names(names: list[str]) -> None:
    """No reader could tell the columns apart, or find the rows."""
    if not names:
        raise SinkError("a Parquet file cannot have rows without columns: return a column, or no batch")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise SinkError(f"a Parquet file cannot have two columns named {twice!r}: rename one of them")


def _no_such_columns(error: pa.ArrowException) -> SinkError:
    return SinkError(f"a Parquet file cannot have the columns of this result: {error}")


def _write_group(writer: Any, temp: Path, group: pa.Table) -> int:
    try:
        writer.write_table(group)
    except OSError as error:
        raise files.write_error(temp, error) from error
    except MemoryError:
        raise
    except pa.ArrowException as error:
        raise _no_such_columns(error) from error
    return int(group.num_rows)


def _close(writer: Any, temp: Path) -> None:
    try:
        writer.close()
    except OSError as error:
        raise files.write_error(temp, error) from error
