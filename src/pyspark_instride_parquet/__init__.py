"""PySpark's door to a Parquet sink of instride: `spark.read.format("instride-parquet").load(folder)`.

The laws of `pyspark_instride` hold here too: PySpark finds it by name, and imports it in every session.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The source "instride-parquet", described in docs/parquet-sink.md."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Raises ConfigError: at `load`, or where the user gave a schema at the first query."""
        from instride.spark.parquet._spark_options import parse_parquet_options  # noqa: PLC0415 - not in every session

        self._options = dict(options)
        parse_parquet_options(self._options)

    @classmethod
    def name(cls) -> str:
        return "instride-parquet"

    def schema(self) -> StructType:
        """Raises ConfigError, NotASinkError, CorruptManifestError, MissingDataError."""
        from instride.spark.parquet._data_source import parquet_schema  # noqa: PLC0415 - not in every session

        return parquet_schema(self._options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises ConfigError."""
        from instride.spark.parquet._data_source import ParquetReader  # noqa: PLC0415 - not in every session

        return ParquetReader(self._options, schema)
