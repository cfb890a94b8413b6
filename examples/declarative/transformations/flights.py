"""The tables of the pipeline. `spark-pipelines run` imports this; the servers are in spark-pipeline.yml."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table
def flights() -> DataFrame:
    servers = spark.conf.get("flights.bootstrap.servers")
    reader = spark.readStream.format("instride").option("kafka.bootstrap.servers", str(servers))
    return reader.option("subscribe", "flights").option("startingOffsets", "earliest").load()


@dp.materialized_view
def sizes() -> DataFrame:
    return spark.table("flights").selectExpr("length(value) AS size").groupBy("size").count()
