"""The executors' half of a table's sink: rows in the table's own columns, in files that no commit names yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from instride.errors import SinkError
from instride.spark._functions import cast_to
from instride.spark.parquet._data import write_data_file
from instride.spark.sink import OutputRange, WrittenRange

__all__ = ["DATA", "TableWriter"]

DATA: Final = "instride"
"""Where in the table's folder its data files are. Not hidden: a vacuum is to delete those that no commit names."""


@dataclass(frozen=True, slots=True)
class TableWriter:
    """Picklable. Every executor must see the same folder as the driver. schema: the table's columns."""

    folder: str
    schema: pa.Schema
    compression: str = "zstd"

    def write(self, output: OutputRange, *, job: str, attempt: int, batches: Iterator[pa.RecordBatch]) -> WrittenRange:
        """Write one range. Columns that the batches lack are null.

        Raises SinkError where the batches' columns do not fit the table's, or lack one that is required; and
        SinkWriteError.
        """
        file = write_data_file(
            self.folder,
            output,
            job=job,
            attempt=attempt,
            batches=self._fitted(batches),
            compression=self.compression,
            below=DATA,
        )
        return WrittenRange(range=output, files=(file,) if file else ())

    def _fitted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            unknown = sorted(set(batch.schema.names) - set(self.schema.names))
            if unknown:
                raise SinkError(f"the table has no columns {', '.join(unknown)}: it has {', '.join(self.schema.names)}")
            try:
                fitted = list(cast_to(self._filled(batch), self.schema))
            # ValueError: nulls in a required column.
            except (KeyError, ValueError, pa.ArrowException) as error:
                raise SinkError(f"what the function returned does not fit the table's columns: {error}") from error
            yield from fitted

    def _filled(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """With nulls in the columns that it lacks: the table may have got one since the function was written."""
        lacking = [field for field in self.schema if field.name not in batch.schema.names]
        required = [field.name for field in lacking if not field.nullable]
        if required:
            raise SinkError(f"the table requires values in {', '.join(required)}: let the function return them")
        for field in lacking:
            batch = batch.append_column(field, pa.nulls(batch.num_rows, field.type))
        return batch
