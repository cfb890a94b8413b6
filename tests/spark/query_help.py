"""Applications of `query_app`, as processes with a Spark of their own: a query of the source into a file sink."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq
from app_help import App

from instride.spark._data_source.offsets import BatchPlan
from instride.testing import LocalKafka

__all__ = ["QueryApp"]

Row = tuple[int, int]


class QueryApp(App):
    """A process of `group_app`. folder: of its sink and checkpoint, which outlive it."""

    program = "query_app.py"

    def __init__(
        self, name: str, folder: Path, *, master: str = "local[2]", conf: dict[str, str] | None = None
    ) -> None:
        self.place = folder / name
        self.place.mkdir(exist_ok=True)
        super().__init__(name, folder, master=master, conf=conf)

    def start(
        self, kafka: LocalKafka, topic: str, *, group: bool = True, slow: str = "none", gate: str = "none"
    ) -> None:
        """From here on its events are those of this query."""
        self.forget()
        wanted = {"do": "start", "topic": topic, "servers": kafka.bootstrap_servers, "folder": str(self.place)}
        self.say({**wanted, "group": group, "slow": slow, "gate": gate})
        self.wait(lambda: self.events("started"), "to start its query")

    def stop(self) -> None:
        before = len(self.events("stopped"))
        self.say({"do": "stop"})
        self.until(lambda: len(self.events("stopped")) > before, "to stop its query")
        assert not self.events("stopped")[-1]["error"]

    def until(self, condition: Callable[[], object], what: str) -> None:
        def holds() -> object:
            assert not self.events("failed"), self.events("failed")[-1]["error"][-3000:]
            return condition()

        self.wait(holds, what)

    def batches(self) -> dict[int, list[Row]]:
        """By batch (partition, offset) of what the sink's own log says that it has."""
        found: dict[int, set[str]] = {}
        seen: set[str] = set()
        for log in sorted((self.place / "out" / "_spark_metadata").glob("[0-9]*"), key=lambda each: each.suffix):
            lines = log.read_text(encoding="utf-8").splitlines()[1:]
            paths = {unquote(urlparse(json.loads(line)["path"]).path) for line in lines}
            found.setdefault(int(log.stem), set()).update(paths - seen)
            seen |= paths
        return {batch: [row for path in sorted(paths) for row in rows_of(Path(path))] for batch, paths in found.items()}

    def rows(self) -> list[Row]:
        return [row for rows in self.batches().values() for row in rows]

    def log_of(self, kind: str) -> list[int]:
        """The checkpoint's batches: of "offsets" those that were planned, of "commits" those that ended."""
        return sorted(int(each.name) for each in (self.place / "at" / kind).glob("[0-9]*"))

    def planned(self, batch: int) -> list[Row]:
        lines = (self.place / "at" / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
        plan = BatchPlan.from_json(json.loads(lines[-1]))
        return [(each.partition, offset) for each in plan.ranges() for offset in range(each.start, each.end)]


def rows_of(path: Path) -> list[Row]:
    table = pq.read_table(path, columns=["partition", "offset"])
    return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
