"""The fused form: the user's Arrow function runs in the source's reader, so that rows shrink before they reach the JVM.

Laws
1. The checkpoint stays Spark's, and so does the once of each record: the function is a part of reading a batch, and
   runs again where a batch does.
2. It is given one batch of records of one partition. It has no state that must outlive a batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from instride.errors import ConfigError
from instride.spark.functions import batches_of, cast_to, pickle_function, unpickled

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

__all__ = ["Transform", "source"]


@dataclass(frozen=True, slots=True)
class Transform:
    """Picklable. function: as `pickle_function` gives it. schema: what comes of it, as Spark's JSON."""

    function: bytes = field(repr=False)
    schema: str

    def results(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """In the schema. Raises what the function raises, TypeError, KeyError and ArrowInvalid for other results."""
        target = self._arrow_schema()
        for result in batches_of(unpickled(self.function)(batch)):
            yield from cast_to(result, target)

    def _arrow_schema(self) -> pa.Schema:
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - only where Spark is
        from pyspark.sql.types import StructType  # noqa: PLC0415

        return to_arrow_schema(StructType.fromJson(json.loads(self.schema)), timezone="UTC")


def source(transform: Callable[[Any], Any], schema: StructType, *, name: str = "instride-fused") -> type[DataSource]:
    """A data source to register: `spark.dataSource.register(source(...))`, then `format(name)` with instride's options.

    transform: given a pyarrow.RecordBatch with the source's columns (the option "columns" chooses), it returns a
        RecordBatch, a Table, a pandas DataFrame, an iterable of these, or None for nothing.
    schema: of what it returns, as a pyspark.sql.types.StructType.

    Raises ConfigError, and what pickling the function raises.
    """
    from pyspark.sql.types import StructType  # noqa: PLC0415 - only where Spark is

    from pyspark_instride import DefaultSource  # noqa: PLC0415

    if not callable(transform):
        raise ConfigError("transform must be callable")
    if not isinstance(schema, StructType):
        raise ConfigError("schema must be a pyspark.sql.types.StructType; StructType.fromDDL reads a text")
    chosen = Transform(pickle_function(transform), schema.json())

    class FusedSource(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> StructType:
            return schema

        def reader(self, schema: StructType) -> DataSourceReader:
            from instride.spark.data_source import batch_reader  # noqa: PLC0415

            return batch_reader(self._options, schema, chosen)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
            from instride.spark.data_source import stream_reader  # noqa: PLC0415

            return stream_reader(self._options, schema, chosen)

    return FusedSource
