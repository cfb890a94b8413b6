"""A Parquet sink for the pipeline, with compare-and-set commits: every offset exactly once, whoever writes.

A sink is a folder. Any number of applications commit to it at once; what a reader sees is, for each
partition, one unbroken chain of ranges, each written by exactly one job. See `sink` for the commit, `layout`
for the folder, `read` for readers, `compaction` and `vacuum` for what keeps a folder small.
"""

from instride.spark.parquet.compaction import compact
from instride.spark.parquet.data import ParquetWriter, write_data_file
from instride.spark.parquet.manifest import Manifest
from instride.spark.parquet.read import read_dataframe, read_files, read_manifests, read_table
from instride.spark.parquet.sink import ParquetSink
from instride.spark.parquet.store import LocalManifestStore, ManifestStore
from instride.spark.parquet.vacuum import vacuum

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
    "ManifestStore",
    "LocalManifestStore",
]
