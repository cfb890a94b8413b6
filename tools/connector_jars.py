"""The jars of Spark's own Kafka connector, from Maven Central, kept for the next time: for tests and benchmarks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

__all__ = ["connector_jars"]

_JARS: Final = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    # 4.2.0 of this one is not there; the connector runs with it, on PySpark 4.2 and 4.3.
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.commons:commons-pool2:2.12.0",
    "org.apache.kafka:kafka-clients:3.9.1",
)
_FETCH: Final = """
import sys
from jgo.maven import MavenContext
context = MavenContext()
for each in sys.argv[1:]:
    group, name, version = each.split(":")
    print(context.project(group, name).at_version(version).artifact().resolve())
"""
_SECONDS: Final = 240


def connector_jars() -> list[str]:
    """Their paths. Raises FileNotFoundError where they cannot be fetched."""
    folder = Path.home() / ".cache" / "instride" / "m2"
    # A process of its own: jgo reads M2_REPO once, when it is imported.
    command = [sys.executable, "-W", "ignore", "-c", _FETCH, *_JARS]
    environment = {**os.environ, "M2_REPO": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=_SECONDS, check=False)
    found = [line for line in done.stdout.splitlines() if line.endswith(".jar")]
    if done.returncode or len(found) != len(_JARS):
        raise FileNotFoundError(f"the connector's jars cannot be fetched from Maven Central: {done.stderr[-300:]}")
    return found
