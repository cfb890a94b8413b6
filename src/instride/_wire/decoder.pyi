"""What `decoder.py` offers, for type checkers and users (its own annotations speak Cython)."""

from collections.abc import Callable
from typing import Any, Final, Generic, final

from typing_extensions import TypeVar

from instride._topic_partition import TopicPartition

COMPILED: Final[bool]
"""False where INSTRIDE_PURE=1 let the slow form run."""

K_co = TypeVar("K_co", covariant=True, default=Any)
V_co = TypeVar("V_co", covariant=True, default=Any)

@final
class ConsumerRecord(Generic[K_co, V_co]):
    """A record as a broker gave it. Immutable; threads may share it; it can be pickled, compared and hashed.

    timestamp: milliseconds since 1970, or -1 for none. timestamp_type: 0 set by the producer, 1 by the broker.
    key, value: bytes, or what the consumer's deserializers made of them; None where Kafka has null.
    ConsumerRecord[K, V] says of what type they are.
    headers: in order; a name may come twice.
    leader_epoch: of the leader that appended it, or -1. epoch: of the assignment it was returned in (0: none).
    seek_number: rises with each seek of its partition.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        timestamp: int = -1,
        timestamp_type: int = 0,
        key: Any = None,
        value: Any = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        leader_epoch: int = -1,
        epoch: int = 0,
        seek_number: int = 0,
    ) -> None: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def timestamp_type(self) -> int: ...
    @property
    def key(self) -> K_co: ...
    @property
    def value(self) -> V_co: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def seek_number(self) -> int: ...
    @property
    def topic_partition(self) -> TopicPartition: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

@final
class RecordColumns:
    """The index of a record set. Rows below `first` are below the fetch offset. Immutable.

    failed_batch: the first batch of the table that cannot be read, or -1; failure: what is wrong with it.
    """

    @property
    def first(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def failed_batch(self) -> int: ...
    @property
    def failure(self) -> str: ...
    def own_large_values(self, release: Callable[[int, int], object]) -> None:
        """Moves each value of 1 MiB or more into memory of its own, step by step. release: is called after each step
        with the bytes [start, end) of the base that nothing needs any more. Before anybody else knows of these columns.
        """

    def offset(self, row: int) -> int: ...
    def leader_epoch(self, row: int) -> int: ...
    def key(self, row: int) -> bytes | None: ...
    def nbytes(self, start: int, stop: int) -> int: ...
    def records(
        self, topic_partition: TopicPartition, start: int, stop: int, epoch: int, seek_number: int
    ) -> list[ConsumerRecord]: ...
    def longs(self, column: int, start: int, stop: int) -> memoryview: ...
    def timestamp_types(self, start: int, stop: int) -> bytearray: ...
    def binary(self, field: int, start: int, stop: int) -> tuple[bytearray, bytes | bytearray, bytearray | None]: ...
    def kept_bytes(self, start: int, stop: int) -> tuple[bytes | memoryview, int]:
        """A buffer with the keys and values of these rows, and where in the base it begins: the base itself where the
        rows are a sixth or more of what it keeps, else a copy, so that a few rows do not keep all of a response. Large
        values that were moved out of it, it does not keep.
        """

    def binary_view(
        self, field: int, start: int, stop: int, kept: bytes | memoryview, first: int
    ) -> tuple[bytes | bytearray | None, tuple[bytes | memoryview, ...], bytearray | None]:
        """Keys (field 0) or values (field 1) as Arrow lays out views: 16 bytes for each row; the buffers that they
        point to; a bitmap of what is not null (None where nothing is null). No payload is copied.
        Where all is null there are no views: None.

        kept, first: of `kept_bytes`, for the same rows.
        """

    def headers(self, row: int) -> tuple[tuple[str, bytes | None], ...]: ...
    def header_columns(
        self, start: int, stop: int
    ) -> tuple[int, bytearray, bytearray, bytearray, bytearray, bytearray, bytearray, bytearray]: ...
    def have_headers(self, start: int, stop: int) -> bool: ...

def replaced(record: ConsumerRecord, key: object, value: object) -> ConsumerRecord:
    """The same record with another key and value."""

def keep_gil(*, keep: bool) -> None:
    """Whether work of up to some milliseconds keeps the GIL, here and in `record_index`, in the whole process: where
    another thread holds it for as long as it may, who gives it up waits longer than the work takes.
    """

def index_batches(base: memoryview, table: bytearray, fetch_offset: int) -> RecordColumns:
    """The index of the batches in `table` (rows that `Batch.row` made) over `base`: see `record_index.pyi`."""
