"""kafka-python's record batches. Importing its package warns of its own use of old functions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from record_batches import Rec

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

__all__ = ["read", "write"]


def read(data: bytes) -> list[tuple[Any, ...]]:
    batch = DefaultRecordBatch(data)
    assert batch.validate_crc()
    return [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]


def write(records: Sequence[Rec], *, gzipped: bool) -> bytes:
    """With the offsets 0, 1, 2 and so on."""
    builder = DefaultRecordBatchBuilder(2, int(gzipped), 0, -1, -1, -1, 1 << 20)
    for n, each in enumerate(records):
        assert builder.append(n, each.timestamp, each.key, each.value, list(each.headers)) is not None
    return bytes(builder.build())
