"""PySpark's door to instride: `spark.read.format("instride")` and `spark.readStream.format("instride")`; and to write.

Laws
1. PySpark (4.2 and later) finds it by the name of this package and of `DefaultSource`: no call registers it.
2. PySpark imports this in a worker of its own before the first Python data source of a session, whoever's it is. So
   nothing of instride is imported until a source is made.
3. Nothing here is done before Spark asks: a source is built and pickled more than once for one query.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The source "instride", described in docs/spark-source.md, and the sink (docs/spark-sink.md)."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._options = dict(options)

    @classmethod
    def name(cls) -> str:
        return "instride"

    def schema(self) -> StructType:
        """Raises ConfigError for a wrong option."""
        from instride.spark._data_source import source_schema  # noqa: PLC0415 - law 2

        return source_schema(self._options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises ConfigError for a wrong option, or another schema than the source's own."""
        from instride.spark._data_source import batch_reader  # noqa: PLC0415 - law 2

        return batch_reader(self._options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
        """Raises as `reader`."""
        from instride.spark._data_source import stream_reader  # noqa: PLC0415 - law 2

        return stream_reader(self._options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - PySpark's
        """Raises ConfigError for a wrong option, or rows that are no records."""
        from instride.spark._data_source.writing import BatchWriter, write_task  # noqa: PLC0415 - law 2

        return BatchWriter(write_task(self._options, schema, overwrite=overwrite))

    def streamWriter(  # noqa: N802 - PySpark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamWriter:
        """Raises as `writer`."""
        from instride.spark._data_source.writing import StreamWriter, write_task  # noqa: PLC0415 - law 2

        return StreamWriter(write_task(self._options, schema, overwrite=overwrite))
