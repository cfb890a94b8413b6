"""PySpark's readers of the source. See `stream` for how a streaming query calls them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from instride.errors import ConfigError
from instride.spark.data_source.batch import BatchReader
from instride.spark.data_source.columns import spark_schema
from instride.spark.data_source.fused import Transform
from instride.spark.data_source.options import parse_options
from instride.spark.data_source.stream import StreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["batch_reader", "source_schema", "stream_reader"]


def source_schema(given: Mapping[str, str]) -> StructType:
    """The columns that the options ask for. Raises ConfigError."""
    return spark_schema(parse_options(given, None).columns)


def batch_reader(given: Mapping[str, str], schema: StructType, transform: Transform | None = None) -> BatchReader:
    """transform: of the fused form."""
    options = parse_options(given, "batch")
    _check_schema(schema, options.columns, transform)
    return BatchReader(options, transform)


def stream_reader(given: Mapping[str, str], schema: StructType, transform: Transform | None = None) -> StreamReader:
    """transform: of the fused form."""
    options = parse_options(given, "stream")
    _check_schema(schema, options.columns, transform)
    return StreamReader(options, transform)


def _check_schema(schema: StructType, columns: tuple[str, ...], transform: Transform | None) -> None:
    own = spark_schema(columns)
    if transform is None and schema != own:
        raise ConfigError(
            f"the source has a schema of its own ({own.simpleString()}); leave .schema(...) out, and choose columns "
            'with the option "columns"'
        )
