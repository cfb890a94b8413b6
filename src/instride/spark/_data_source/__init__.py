"""The data source "instride" for Spark: Kafka's topics as DataFrames, batch and streaming, by PySpark's own API.

options, security                what the user wants, checked
offsets, planning, admission     where a micro-batch begins and ends      decisions: no I/O, no clock
splitting                        which task reads what
cluster, sampling                what the brokers say                     a consumer of no group
batch, stream                    PySpark's readers
group_table                      what a member of a group owns and plans  decisions: no I/O, no clock
group_stream, group_member       the reader in group mode, and its member
leaving                          how `stop(query)` reaches that
reading, columns                 Arrow batches in Spark's schema          on the executors
filters, fused                   filters that leave less to read; a function of the user's in the reader
writing                          the sink: rows to topics
"""

from instride.spark._data_source.readers import batch_reader, source_schema, stream_reader

__all__ = ["batch_reader", "source_schema", "stream_reader"]
