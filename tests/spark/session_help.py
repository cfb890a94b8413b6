"""A Spark of the tests' own process."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

__all__ = ["local_session"]


@contextmanager
def local_session(name: str, master: str, conf: Mapping[str, float | str | None]) -> Iterator[SparkSession]:
    """Without its page and its log; its workers run this Python."""
    builder = SparkSession.builder.master(master).appName(name).config(map={"spark.ui.enabled": "false", **conf})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()
