"""Reads, streams, writes and runs a pipeline with a password, in a Spark that tells as much of itself as it can.

    python secrets_app.py SETTINGS    (JSON: servers, user, password, topic, folder)

Where it tells it: plans on stdout, its log on stderr; below the folder the pages of its UI and its REST interface
(`ui`), its event log (`events`), the query's progress (`progress`) and checkpoint (`at`).
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin
from urllib.request import urlopen

from pipeline_help import QUICK, QUICK_JVM, keep
from pyspark.sql import SparkSession

from instride.spark import ParquetSink, Pipeline, recommended_conf

REST = ("jobs", "stages?details=true", "sql?details=true&planDescription=true", "environment", "allexecutors")
LINK = re.compile(r"href=[\"']([^\"'#]+)")
STATIC = re.compile(r"/static/|/kill|[.](sort|pageSize|desc|page)=|threadDump|[.](css|js)\b|\s")


LOG = """
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = console
logger.spark.name = org.apache.spark
logger.spark.level = debug
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c: %m%n%ex
"""


def main() -> None:
    settings = json.loads(sys.argv[1])
    folder = Path(settings["folder"])
    for name in ("events", "ui"):
        (folder / name).mkdir()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {"spark.ui.port": "0", "spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{folder}/events"}
    conf["spark.eventLog.compress"] = "false"
    (folder / "log4j2.properties").write_text(LOG, encoding="utf-8")
    options = f"{QUICK_JVM} -Dlog4j2.configurationFile=file:{folder}/log4j2.properties"
    conf |= {"spark.driver.extraJavaOptions": options, "spark.driver.memory": "512m"}
    spark = SparkSession.builder.master("local[2]").config(map={**recommended_conf(), **conf}).getOrCreate()
    batch(spark, settings)
    stream(spark, settings, folder)
    pipeline(spark, settings, folder)
    for number, page in enumerate(pages(spark)):
        (folder / "ui" / f"{number}").write_text(page, encoding="utf-8")
    spark.stop()


def reach(settings: dict[str, Any]) -> dict[str, str]:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "kafka.bootstrap.servers": settings["servers"],
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": f'{module} required username="{settings["user"]}" password="{settings["password"]}";',
    }


def batch(spark: SparkSession, settings: dict[str, Any]) -> None:
    """Reads, and writes what it has read; a query that fails tells its plan, too."""
    reader = spark.read.format("instride").options(**reach(settings))
    frame = reader.option("subscribe", settings["topic"]).load()
    print(f"read {len(frame.collect())}", flush=True)
    for mode in ("extended", "formatted"):
        frame.explain(mode)
    writer = frame.select("value").write.format("instride").options(**reach(settings))
    writer.option("topic", settings["topic"]).mode("append").save()
    try:
        frame.selectExpr("raise_error('the query fails')").collect()
    except Exception as error:
        print(error, flush=True)


def stream(spark: SparkSession, settings: dict[str, Any], folder: Path) -> None:
    reader = spark.readStream.format("instride").options(**reach(settings))
    frame = reader.option("subscribe", settings["topic"]).option("startingOffsets", "earliest").load()
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "at")).trigger(availableNow=True).start()
    query.awaitTermination()
    query.explain(extended=True)
    print(f"streamed {sum(each['numInputRows'] for each in query.recentProgress)}", flush=True)
    print(query.recentProgress, flush=True)


def pipeline(spark: SparkSession, settings: dict[str, Any], folder: Path) -> None:
    security = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"}
    security |= {"sasl_username": settings["user"], "sasl_password": settings["password"]}
    events: list[object] = []
    Pipeline(
        spark,
        topics=[settings["topic"]],
        group_id=settings["topic"],
        bootstrap_servers=settings["servers"],
        security=security,
        function=keep,
        sink=ParquetSink(folder / "sink"),
        available_now=True,
        on_event=events.append,
        **QUICK,
    ).run()
    print(f"committed {sum(getattr(each, 'rows', 0) for each in events)}", events, flush=True)


def pages(spark: SparkSession) -> Iterator[str]:
    """Of the UI, by its own links, and of its REST interface."""
    root = f"{spark.sparkContext.uiWebUrl}/"
    rest = f"{root}api/v1/applications/{spark.sparkContext.applicationId}"
    todo, known = [root, *(f"{rest}/{each}" for each in REST)], {root}
    while todo:
        address = todo.pop()
        with urlopen(address) as response:
            page = response.read().decode("utf-8", "replace")
        yield f"{address}\n{page}"
        links = {urljoin(address, link.replace("&amp;", "&")) for link in LINK.findall(page)}
        wanted = {each for each in links if each.startswith(root) and not STATIC.search(each)}
        todo += wanted - known
        known |= wanted


if __name__ == "__main__":
    main()
