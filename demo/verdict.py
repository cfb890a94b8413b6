"""Is every flight there exactly once? Computed from what was written and from the source, as multisets.

Laws
1. Both sides are read whole: nothing that the run counted of itself is believed.
2. A row number tells a flight; its content is compared column by column, missing values too.
3. A copy too many and a copy altered are different faults; each written copy is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

EXAMPLES: Final = 5


class Rows(tuple[int, ...]):
    """Row numbers that have a fault; as text, how many, and the first few of them."""

    __slots__ = ()

    def __str__(self) -> str:
        if not self:
            return "none"
        rest = ", ..." if len(self) > EXAMPLES else ""
        return f"{len(self):,} (rows {', '.join(map(str, self[:EXAMPLES]))}{rest})"


class Verdict(NamedTuple):
    """source, written: how many rows. missing: in the source only. foreign: written only.

    duplicated: rows written more than once. altered: written with other content than the source's.
    """

    source: int
    written: int
    missing: Rows = Rows()
    duplicated: Rows = Rows()
    altered: Rows = Rows()
    foreign: Rows = Rows()

    @property
    def exactly_once(self) -> bool:
        return self.source == self.written and not any(self[2:])


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
    expected = source["row"].to_numpy()
    if len(np.unique(expected)) != len(expected):
        raise ValueError("the source has a row number twice")
    every = pc.fill_null(written["row"], -1).to_numpy()  # no source has -1
    numbers, counts = np.unique(every, return_counts=True)
    known = np.isin(every, expected)
    counterparts = source.take(pa.array(np.searchsorted(expected, every[known])))
    altered = every[known][_differences(written.filter(pa.array(known)), counterparts)]
    faults = (np.setdiff1d(expected, numbers), numbers[counts > 1], np.unique(altered), np.setdiff1d(numbers, expected))
    return Verdict(source.num_rows, written.num_rows, *(Rows(rows.tolist()) for rows in faults))


def _differences(left: pa.Table, right: pa.Table) -> np.ndarray:
    """Which rows differ in any column; a missing value equals only a missing one."""
    differs = np.zeros(left.num_rows, dtype=bool)
    for name in left.column_names:
        unequal = pc.fill_null(pc.not_equal(left[name], right[name]), fill_value=False)
        differs |= pc.or_(unequal, pc.xor(pc.is_null(left[name]), pc.is_null(right[name]))).to_numpy()
    return differs
