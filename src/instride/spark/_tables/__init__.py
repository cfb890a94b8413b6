"""Sinks that are tables of a format with transactions of its own: Delta Lake and Apache Iceberg.

Executors write Parquet files beside the table's own, as the Parquet sink does; the driver brings many ranges into the
table by one commit, which also holds the offsets reached. `table_sink` has what they share (`writer`: the files;
`combining`: many ranges in one commit; `columns`: a schema that is given beside the table's), `delta` (`delta_log`: its
offsets, all at once) and `iceberg` the rest.
"""

from instride.spark._tables.delta import DeltaSink
from instride.spark._tables.iceberg import IcebergSink

__all__ = ["DeltaSink", "IcebergSink"]
