"""PySpark's readers of the source, and sources of the fused form. See `stream` for how a streaming query calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from instride.errors import ConfigError
from instride.spark._data_source.batch import BatchReader, FilteringBatchReader
from instride.spark._data_source.columns import spark_schema
from instride.spark._data_source.fused import Transform
from instride.spark._data_source.group_stream import GroupStreamReader
from instride.spark._data_source.options import parse_options
from instride.spark._data_source.stream import StreamReader
from instride.spark._functions import pickle_function

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

__all__ = ["batch_reader", "source", "source_schema", "stream_reader"]


def source_schema(given: Mapping[str, str]) -> StructType:
    """The columns that the options ask for. Raises ConfigError."""
    return spark_schema(parse_options(given, None).columns)


def batch_reader(given: Mapping[str, str], schema: StructType, transform: Transform | None = None) -> BatchReader:
    """transform: of the fused form."""
    options = parse_options(given, "batch")
    _check_schema(schema, options.columns, transform)
    # Behind a transform Spark's filters are on its columns, which may have the names of Kafka's.
    filters = options.push_filters and transform is None
    return FilteringBatchReader(options) if filters else BatchReader(options, transform)


def stream_reader(given: Mapping[str, str], schema: StructType, transform: Transform | None = None) -> StreamReader:
    """transform: of the fused form."""
    options = parse_options(given, "stream")
    _check_schema(schema, options.columns, transform)
    return StreamReader(options, transform) if options.group is None else GroupStreamReader(options, transform)


def _check_schema(schema: StructType, columns: tuple[str, ...], transform: Transform | None) -> None:
    own = spark_schema(columns)
    if transform is None and schema != own:
        raise ConfigError(
            f"the source has a schema of its own ({own.simpleString()}); leave .schema(...) out, and choose columns "
            'with the option "columns"'
        )


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
            return batch_reader(self._options, schema, chosen)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
            return stream_reader(self._options, schema, chosen)

    return FusedSource
