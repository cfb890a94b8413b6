"""What `record_index.py` offers, for type checkers (its own annotations speak Cython)."""

from typing import Final

COMPILED: Final[bool]
BATCH_WIDTH: Final[int]
MIN_RECORD_BYTES: Final[int]
LARGEST_BASE: Final[int]
FAILURES: Final[dict[int, str]]

def index_records(
    base: memoryview, table: bytearray
) -> tuple[bytes | bytearray, bytes | bytearray, int, int, int, int]:
    """Indexes the records of the batches in `table` (of rows that `Batch.row` made) over `base`.

    Returns the two columns of longs, the five columns of ints, how many rows there is room for and how many
    there are, and the batch that cannot be read (or -1) with what is wrong with it (a key of FAILURES, or 0).
    Raises ValueError for a batch that is not within `base`, or has not MIN_RECORD_BYTES for each record.
    """

def keep_gil(*, keep: bool) -> None:
    """As of `decoder`."""

def header_bytes(base: memoryview, at: int) -> bytes:
    """A copy of the headers that start there, which must have been indexed: for `read_headers`, later."""

def header_columns(
    base: memoryview, int_columns: bytes | bytearray, start: int, stop: int
) -> tuple[int, bytearray, bytearray, bytearray, bytearray, bytearray, bytearray, bytearray]:
    """The headers of the rows [start, stop), which must have been indexed, as Arrow lays them out.

    How many there are; of the rows: offsets into the headers, and a bitmap of those that have any; of the headers:
    offsets and bytes of their names, offsets and bytes of their values, and a bitmap of the values that are not null.
    """

def read_headers(base: memoryview, at: int) -> tuple[tuple[str, bytes | None], ...]: ...
