"""The kinds of consumers that play the scenario, in the order in which they stand side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from demo.scenario import Contender
from instride.spark.parquet import read_files

__all__ = ["CONFLUENT", "CONTENDERS", "INSTRIDE"]


def _plain_files(output: Path) -> list[Path]:
    """Every finished file; one that is being written has a name that starts with a dot."""
    return sorted(path for path in output.glob("*.parquet") if not path.name.startswith("."))


CONFLUENT: Final = Contender(
    name="confluent-kafka",
    slug="confluent",
    module="demo.confluent_member",
    slow_partition=3,
    written=_plain_files,
)

INSTRIDE: Final = Contender(
    name="instride",
    slug="instride",
    module="demo.pipeline_member",
    slow_partition=6,
    written=read_files,
    ours=True,
)

CONTENDERS: Final = (INSTRIDE, CONFLUENT)
