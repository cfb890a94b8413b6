"""Is every flight there exactly once? Computed from what was written and from the source, as multisets.

Laws
1. Both sides are read whole: nothing that the run counted of itself is believed.
2. A row number tells a flight; its content is compared column by column, missing values too.
3. A copy too many and a copy altered are different faults; each written copy is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

__all__ = ["Fault", "Verdict", "judge", "read_written"]

EXAMPLES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """How many rows have it, and the first few of their row numbers."""

    count: int = 0
    examples: tuple[int, ...] = ()

    def __str__(self) -> str:
        if not self.count:
            return "none"
        rest = ", ..." if self.count > len(self.examples) else ""
        return f"{self.count:,} (rows {', '.join(map(str, self.examples))}{rest})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """source, written: how many rows. missing: in the source only. foreign: written only.

    duplicated: rows written more than once. altered: written with other content than the source's.
    """

    source: int
    written: int
    missing: Fault
    duplicated: Fault
    altered: Fault
    foreign: Fault

    @property
    def exactly_once(self) -> bool:
        faults = (self.missing, self.duplicated, self.altered, self.foreign)
        return self.source == self.written and not any(fault.count for fault in faults)


def read_written(files: Iterable[Path], schema: pa.Schema) -> pa.Table:
    """The rows of Parquet files, in the schema's columns. pyarrow.ArrowInvalid where a file has others."""
    tables = [parquet.read_table(file, columns=schema.names, partitioning=None) for file in files]
    return pa.concat_tables([table.cast(schema) for table in tables]) if tables else schema.empty_table()


def judge(written: pa.Table, source: pa.Table) -> Verdict:
    """Compare two tables with a column `row` and the same content columns, in any order of rows.

    In the source each row number is there once. ValueError if it is not, or if the columns differ.
    """
    if set(written.column_names) != set(source.column_names):
        raise ValueError(f"the columns differ: {sorted(written.column_names)} and {sorted(source.column_names)}")
    source = source.sort_by("row")
    numbers, counts = np.unique(_row_numbers(written), return_counts=True)
    expected = source["row"].to_numpy()
    if len(np.unique(expected)) != len(expected):
        raise ValueError("the source has a row number twice")
    return Verdict(
        source=source.num_rows,
        written=written.num_rows,
        missing=_fault(np.setdiff1d(expected, numbers)),
        duplicated=_fault(numbers[counts > 1]),
        altered=_fault(_altered(written, source, expected)),
        foreign=_fault(np.setdiff1d(numbers, expected)),
    )


def _row_numbers(table: pa.Table) -> np.ndarray:
    """The row numbers; -1, which no source has, where there is none."""
    numbers: np.ndarray = pc.fill_null(table["row"], -1).to_numpy()
    return numbers


def _altered(written: pa.Table, source: pa.Table, expected: np.ndarray) -> np.ndarray:
    """The row numbers of written copies that have a counterpart in the source, and differ from it."""
    known = written.filter(pa.array(np.isin(_row_numbers(written), expected)))
    rows = _row_numbers(known)
    counterpart = source.take(pa.array(np.searchsorted(expected, rows)))
    differs = np.zeros(len(rows), dtype=bool)
    for name in source.column_names:
        differs |= _differences(known[name], counterpart[name])
    return np.unique(rows[differs])


def _differences(left: pa.ChunkedArray, right: pa.ChunkedArray) -> np.ndarray:
    """Where two columns differ; a missing value equals only a missing one."""
    unequal = pc.fill_null(pc.not_equal(left, right), fill_value=False)
    one_missing = pc.xor(pc.is_null(left), pc.is_null(right))
    differs: np.ndarray = pc.or_(unequal, one_missing).to_numpy()
    return differs


def _fault(rows: np.ndarray) -> Fault:
    return Fault(count=len(rows), examples=tuple(int(row) for row in rows[:EXAMPLES]))
