"""Is every flight there exactly once? Computed from what was written and from the source, as multisets.

Laws
1. Both sides are read whole: nothing that the run counted of itself is believed.
2. A row number tells a flight; its content is compared column by column, missing values too.
3. A copy too many and a copy altered are different faults; each written copy is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet


class Verdict(NamedTuple):
    """source, written: how many rows. The others are row numbers. missing: in the source only. foreign: written only.

    duplicated: rows written more than once. altered: written with other content than the source's.
    """

    source: int
    written: int
    missing: tuple[int, ...] = ()
    duplicated: tuple[int, ...] = ()
    altered: tuple[int, ...] = ()
    foreign: tuple[int, ...] = ()

    @property
    def exactly_once(self) -> bool:
        return self.source == self.written and not any(self[2:])


def read_written(files: Iterable[Path | str], schema: pa.Schema) -> pa.Table:
    """The rows of Parquet files, in the schema's columns. pyarrow.ArrowInvalid where a file has others."""
    tables = [parquet.read_table(file, columns=schema.names, partitioning=None) for file in files]
    return pa.concat_tables([table.cast(schema) for table in tables]) if tables else schema.empty_table()


def judge(written: pa.Table, source: pa.Table) -> Verdict:
    """Compare two tables of the same columns, in any order of rows. In the source each row number is there once."""
    source = source.sort_by("row")
    expected = source["row"].to_numpy()
    every = pc.fill_null(written["row"], -1).to_numpy()  # no source has -1
    numbers, counts = np.unique(every, return_counts=True)
    known = np.isin(every, expected)
    counterparts = source.take(pa.array(np.searchsorted(expected, every[known])))
    altered = every[known][_differences(written.filter(pa.array(known)), counterparts)]
    faults = (np.setdiff1d(expected, numbers), numbers[counts > 1], np.unique(altered), np.setdiff1d(numbers, expected))
    return Verdict(source.num_rows, written.num_rows, *(tuple(rows.tolist()) for rows in faults))


def _differences(left: pa.Table, right: pa.Table) -> np.ndarray:
    """Which rows differ in any column; a missing value equals only a missing one."""
    differs = np.zeros(left.num_rows, dtype=bool)
    for name in left.column_names:
        unequal = pc.fill_null(pc.not_equal(left[name], right[name]), fill_value=False)
        differs |= pc.or_(unequal, pc.xor(pc.is_null(left[name]), pc.is_null(right[name]))).to_numpy()
    return differs
