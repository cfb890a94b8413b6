"""What a run of the demo is to be, for the scenario and for its members."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from demo.flights import flights, parse, partition_of
from instride.errors import KafkaError

__all__ = ["PARTITIONS", "DemoError", "Plan", "slow_flight"]

PARTITIONS: Final = 12
SLOW_AFTER: Final = 0.15
"""The flight that takes long is the first of its partition after this part of all."""


class DemoError(KafkaError):
    """The demo cannot go on: a member ended, or did not come to where it should be in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """kind: of the consumers; its members are processes of the module demo.<kind>_member. folder: of all its files.

    rows, seconds: how many flights are sent, in how much time. slow_row: the flight that takes slow_seconds to work on;
    the others take none. slow_offset: its own, in slow_partition, which the group moves to the second of two members.
    stay_seconds: how long B stays once it owns something.
    """

    kind: str
    bootstrap_servers: str
    folder: Path
    rows: int
    seconds: float
    slow_partition: int
    slow_row: int
    slow_offset: int
    slow_seconds: float
    stay_seconds: float

    @property
    def topic(self) -> str:
        return f"flights-{self.kind}"

    @property
    def histories(self) -> Path:
        return self.folder / "histories"

    @property
    def output(self) -> Path:
        return self.folder / "output"

    def join_file(self, app: str) -> Path:
        """Its appearing lets the member join, so that a slow start-up costs nobody anything."""
        return self.folder / f"join-{app}"

    def argument(self) -> str:
        """All of it, for a command line."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_argument(cls, text: str) -> Self:
        values = json.loads(text)
        return cls(**{**values, "folder": Path(values["folder"])})

    def work(self, values: Iterable[bytes | memoryview]) -> pa.Table:
        """What every member does: parse these record values. It takes long if the slow flight is among them."""
        table = parse(values)
        if pc.index(table["row"], self.slow_row).as_py() >= 0:
            time.sleep(self.slow_seconds)
        return table


def slow_flight(rows: int, partition: int, after: float = SLOW_AFTER) -> tuple[int, int]:
    """Row and offset of the first flight of the partition after this part of all rows. DemoError if there is none."""
    start = round(rows * after)
    its_rows = (each.row for each in flights(rows) if partition_of(each.key, PARTITIONS) == partition)
    for offset, row in enumerate(its_rows):
        if row >= start:
            return row, offset
    raise DemoError(f"no flight from row {start} to {rows} is in partition {partition}")
