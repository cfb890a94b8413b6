"""Queries in group mode without a Spark: a thread asks the source what Spark would ask, and keeps a checkpoint.

`Played` has what `instride.spark.stop` needs of a StreamingQuery. What a batch "reads" is the offsets of its ranges.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from pipeline_help import PATIENCE, wait_for

from instride.errors import IllegalStateError
from instride.spark._data_source import source_schema, stream_reader
from instride.spark._data_source.reading import RangesPartition
from instride.testing import LocalKafka

__all__ = ["Checkpoint", "Played"]


class CrashError(Exception):
    """The driver is gone."""


@dataclass
class Checkpoint:
    """offsets: the ends of batches, as Spark logs them before it reads. committed: how many batches are. rows: what the
    sink has, which ignores a batch that it had before, as Spark's file sink does.
    """

    offsets: list[str] = field(default_factory=list)
    committed: int = 0
    rows: list[tuple[int, int]] = field(default_factory=list)


class Played:
    """One run of a query. gate: each batch with records waits for it before it is in the sink.

    reading: the partitions of the batch in flight. async_progress: it logs the ends of batches when it comes to that.
    """

    def __init__(
        self,
        kafka: LocalKafka,
        topic: str,
        checkpoint: Checkpoint,
        *,
        available_now: bool = False,
        async_progress: bool = False,
        **options: str,
    ) -> None:
        self.checkpoint = checkpoint
        self._async_progress = async_progress
        self.gate = threading.Event()
        self.gate.set()
        self.reading: set[int] = set()
        self.error: BaseException | None = None
        self.lastProgress: dict[str, Any] | None = None
        self.status = {"isTriggerActive": True, "message": "Getting offsets"}
        settings = SimpleNamespace(get=lambda _: "100")
        self._jsq = SimpleNamespace(sparkSession=lambda: SimpleNamespace(conf=lambda: settings))
        self._available_now = available_now
        self._crashed = self._stopped = False
        given = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "subscribe": topic,
            "consumerGroup": topic,
            "startingOffsets": "earliest",
            "kafka.heartbeat.interval.ms": "100",
            **{name.replace("__", "."): value for name, value in options.items()},
        }
        self._reader = stream_reader(given, source_schema(given))
        self._thread = threading.Thread(target=self._run, name="query")
        self._thread.start()

    @property
    def isActive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """As a bare `query.stop()`."""
        self._stopped = True
        self.gate.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def crash(self) -> None:
        """In mid-batch: nothing of that is in the sink."""
        self._crashed = True
        self.stop()

    def lose_source(self) -> None:
        """Its source leaves the group in mid-batch. Spark notices when it asks for the next one."""
        member = self._reader._member  # type: ignore[attr-defined]  # of group mode
        member.close()
        self.gate.set()
        self._thread.join(PATIENCE)
        assert isinstance(self.error, IllegalStateError)

    def until_rows(self, rows: int) -> None:
        self.until(lambda: len(self.checkpoint.rows) >= rows, f"{rows} rows")

    def until(self, condition: Callable[[], object], what: str) -> None:
        wait_for(lambda: self.error is not None or condition(), what)
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            self._go_on()
        except CrashError:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self._reader.stop()

    def _go_on(self) -> None:
        kept, initial = self.checkpoint, json.dumps(self._reader.initialOffset())
        if len(kept.offsets) > kept.committed:
            self._batch(kept.offsets[-2] if len(kept.offsets) > 1 else initial, kept.offsets[-1])
        if self._available_now:
            self._reader.prepareForTriggerAvailableNow()
        while not self._stopped:
            start = kept.offsets[-1] if kept.offsets else initial
            end = json.dumps(self._reader.latestOffset(json.loads(start), self._reader.getDefaultReadLimit()))
            if end != start or not kept.offsets:
                kept.offsets.append(end)
                if kept.committed and not self._async_progress:
                    self._reader.commit(json.loads(start))
                self._batch(start, end)
            elif self._available_now:
                return

    def _batch(self, start: str, end: str) -> None:
        tasks = self._reader.partitions(json.loads(start), json.loads(end))
        ranges = [each for task in tasks if isinstance(task, RangesPartition) for each in task.ranges]
        self.reading = {each.partition for each in ranges}
        if ranges:
            assert self.gate.wait(PATIENCE)
        if self._crashed:
            raise CrashError
        self.checkpoint.rows += [(each.partition, offset) for each in ranges for offset in range(each.start, each.end)]
        self.checkpoint.committed = len(self.checkpoint.offsets)
        self.lastProgress = {"batchId": self.checkpoint.committed, "sources": [{"endOffset": end}]}
        self.reading = set()
