"""Reads the same with Spark's own connector and with instride's source, in a Spark with both.

    python both_sources.py SETTINGS    (JSON: servers, jars, folder, batch: [options], stream: [options])

Prints one line of JSON for each set of options: what each of the two gave, as sorted rows or as the error's class.
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from pipeline_help import QUICK_JVM
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from instride.errors import KafkaError
from instride.spark import recommended_conf
from instride.spark._data_source import batch_reader, source_schema, stream_reader

FORMATS = ("kafka", "instride")
# The connector waits for what follows the last record, which a transaction's marker is; and between its tries.
SOON = {"kafka.fetch.max.wait.ms": "20", "fetchOffset.retryIntervalMs": "10"}


def main() -> None:
    settings = json.loads(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {**recommended_conf(), "spark.ui.enabled": "false", "spark.jars": ",".join(settings["jars"])}
    conf |= {"spark.driver.extraJavaOptions": QUICK_JVM, "spark.sql.shuffle.partitions": "1"}
    conf["spark.driver.memory"] = "1g"
    spark = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    with ThreadPoolExecutor(len(FORMATS)) as pool:
        for options in settings["batch"]:
            found = pool.map(partial(batch, spark, settings=settings, options=options), FORMATS)
            print(json.dumps(dict(zip(FORMATS, found, strict=True))), flush=True)
        for number, options in enumerate(settings["stream"]):
            found = pool.map(partial(stream, spark, settings=settings, options=options, number=number), FORMATS)
            print(json.dumps(dict(zip(FORMATS, found, strict=True))), flush=True)
    spark.stop()


def refused_here(name: str, settings: dict[str, Any], options: dict[str, str], *, streaming: bool) -> bool:
    """Ours is asked in this process first: each refusal in one of Spark's costs Spark a new Python process.

    That a refusal reaches the user through Spark is shown by `test_what_is_wrong_is_told`.
    """
    if name != "instride":
        return False
    given = {"kafka.bootstrap.servers": settings["servers"], **SOON, **options}
    try:
        if streaming:
            stream_reader(given, source_schema(given))
        else:
            batch_reader(given, source_schema(given)).partitions()
    except KafkaError as error:
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return True
    return False


def batch(spark: SparkSession, name: str, settings: dict[str, Any], options: dict[str, str]) -> list[str] | str:
    if refused_here(name, settings, options, streaming=False):
        return "refused"
    try:
        reader = spark.read.format(name).option("kafka.bootstrap.servers", settings["servers"])
        return rows(reader.options(**SOON, **options).load())
    except Exception as error:  # Scala's assertions too, which have no class in Python
        print(f"{name}: {type(error).__name__}: {error}"[:3000], file=sys.stderr, flush=True)
        return "refused"


def stream(
    spark: SparkSession, name: str, settings: dict[str, Any], options: dict[str, str], number: int
) -> list[str] | str:
    if refused_here(name, settings, options, streaming=True):
        return "refused"
    reader = spark.readStream.format(name).option("kafka.bootstrap.servers", settings["servers"])
    place = f"{settings['folder']}/{name}-{number}"
    while True:
        try:
            frame = reader.options(**SOON, **options).load()
            writer = frame.writeStream.format("parquet").option("path", f"{place}/out")
            query = writer.option("checkpointLocation", f"{place}/at").trigger(availableNow=True).start()
            query.awaitTermination()
            return rows(spark.read.parquet(f"{place}/out"))
        except Exception as error:  # Scala's assertions too, which have no class in Python
            if isinstance(error, StreamingQueryException) and "failed to connect back" in str(error):
                continue  # Spark gives a new Python process ten seconds to call back: too few beside a full load
            print(f"{name} {number}: {type(error).__name__}: {error}"[:3000], file=sys.stderr, flush=True)
            return "refused"


def rows(frame: DataFrame) -> list[str]:
    columns = [name for name in frame.columns if name != "timestamp"]
    chosen = frame.selectExpr(*columns, "unix_micros(timestamp) AS timestamp")
    return sorted(json.dumps([plain(value) for value in row]) for row in chosen.collect())


def plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("latin-1")
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    main()
