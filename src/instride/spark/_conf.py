"""Spark settings that suit a pipeline. All are Spark's own; none is required."""

from __future__ import annotations

import os

__all__ = ["recommended_conf"]


def recommended_conf() -> dict[str, bool | float | int | str | None]:
    """Settings for `SparkSession.builder.config(map=...)`. They count only if set before the session is made.

    spark.python.unix.domain.socket.enabled: takes some 45 ms off every Python task (where there are unix sockets).
    spark.ui.showConsoleProgress: the progress bars of many short jobs only blink.
    """
    conf: dict[str, bool | float | int | str | None] = {"spark.ui.showConsoleProgress": "false"}
    if os.name == "posix":
        conf["spark.python.unix.domain.socket.enabled"] = "true"
    return conf
