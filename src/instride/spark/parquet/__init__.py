"""A Parquet sink for the pipeline, with compare-and-set commits: every offset exactly once, whoever writes.

A sink is a folder, or a prefix in a bucket. Any number of applications commit to it at once; what a reader sees is,
for each partition, one unbroken chain of ranges, each written by exactly one job.
"""

# What is inside:
# _sink, _data                         the driver's half and the executors' half of a commit
# _manifest_chain, _manifest           a partition's chain of manifests, and one link of it
# _checkpoint, _compaction, _vacuum    fewer, larger files; what is deleted
# _read, _data_source, _spark_options  reading, also by Spark; the options of Spark's source
# _schemas, _spark_types               the columns of files that differ, together; and in Spark's types
# _layout                              where what lies
# _storage, _location                  what the sink needs of the place that holds it; which places are served
# _local_storage, _files               a folder, and the steps on its file system
# _object_storage, _client_options     a bucket of an object store, and the options of its client

# _sink has the commit, _layout the folder, _read the readers; _compaction and _vacuum keep a folder small.

from instride.spark.parquet._compaction import compact
from instride.spark.parquet._data import ParquetWriter, write_data_file
from instride.spark.parquet._manifest import Manifest
from instride.spark.parquet._read import read_dataframe, read_files, read_manifests, read_table
from instride.spark.parquet._sink import ParquetSink
from instride.spark.parquet._vacuum import vacuum

__all__ = [
    "ParquetSink",
    "ParquetWriter",
    "write_data_file",
    "read_table",
    "read_dataframe",
    "read_files",
    "read_manifests",
    "compact",
    "vacuum",
    "Manifest",
]
