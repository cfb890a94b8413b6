"""A Spark of the tests' own process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import pytest
from app_help import HELPERS
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

__all__ = ["beside_a_full_load", "local_session"]

T = TypeVar("T")


def beside_a_full_load(run: Callable[[], T]) -> T:
    """Run a query, and again where the ten seconds that Spark gives a new Python process to call back were too few."""
    while True:
        try:
            return run()
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise


@contextmanager
def local_session(name: str, master: str, conf: Mapping[str, float | str | None]) -> Iterator[SparkSession]:
    """Without its page and its log; its workers run this Python, and import the helpers of tests."""
    # Not by the environment: a JVM of an earlier module's session goes on with its own.
    ours = {"spark.ui.enabled": "false", "spark.executorEnv.PYTHONPATH": HELPERS}
    builder = SparkSession.builder.master(master).appName(name).config(map={**ours, **conf})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()
