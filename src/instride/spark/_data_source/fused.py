"""The fused form: the user's Arrow function runs in the source's reader, so that rows shrink before they reach the JVM.

Laws
1. The checkpoint stays Spark's, and so does the once of each record: the function is a part of reading a batch, and
   runs again where a batch does.
2. It is given one batch of records of one partition. It has no state that must outlive a batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from instride.spark._functions import batches_of, cast_to, unpickled

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Transform"]


@dataclass(frozen=True, slots=True)
class Transform:
    """Picklable. function: as `pickle_function` gives it. schema: what comes of it, as Spark's JSON."""

    function: bytes = field(repr=False)
    schema: str

    def results(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """In the schema. Raises what the function raises, TypeError, KeyError and ValueError for other results."""
        target = self._arrow_schema()
        for result in batches_of(unpickled(self.function)(batch)):
            yield from cast_to(result, target)

    def _arrow_schema(self) -> pa.Schema:
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - only where Spark is
        from pyspark.sql.types import StructType  # noqa: PLC0415

        return to_arrow_schema(StructType.fromJson(json.loads(self.schema)), timezone="UTC")
