"""The executors' half of a table's sink: rows in the table's own columns, in files that no commit names yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from instride.errors import SinkError
from instride.spark._functions import cast_to
from instride.spark._nested import fields_in
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
                _check_meant(self.schema, batch.schema)
                _check_finite(self.schema, batch)
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


def _check_meant(there: pa.Schema, given: pa.Schema) -> None:
    """Raise ValueError where PyArrow's cast takes a number for what was hardly meant, and says nothing."""
    kinds = {path: field.type for path, field in fields_in(there)}
    for path, field in fields_in(given):
        kind = kinds.get(path, field.type)
        returned = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        # It would take milliseconds for microseconds, and 0.5 for true.
        if pa.types.is_temporal(kind) and pa.types.is_integer(returned):
            raise ValueError(f"{'.'.join(path)} is {kind}, and a number does not tell its unit: return such values")
        if pa.types.is_boolean(kind) and pa.types.is_floating(returned):
            raise ValueError(f"{'.'.join(path)} is {kind}, and the function returned {returned}: return booleans")


def _check_finite(there: pa.Schema, batch: pa.RecordBatch) -> None:
    """Raise ValueError for a number beyond those of the column, which PyArrow's cast takes for an infinite one."""
    for field in batch.schema:
        if pa.types.is_float64(field.type) and pa.types.is_float32(there.field(field.name).type):
            import pyarrow.compute as pc  # noqa: PLC0415 - slow to import, and no other worker needs it

            values = batch.column(field.name)
            if pc.any(pc.and_(pc.is_finite(values), pc.is_inf(values.cast(pa.float32())))).as_py():
                raise ValueError(
                    f"{field.name} is {pa.float32()}, which has no number as great as one that was returned"
                )
