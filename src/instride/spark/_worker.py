"""What concerns a Python worker process of Spark as a whole: what it lacks for a pipeline's tasks; its garbage.

A driver asks each worker for what it lacks before the first job: `prepare` of `_jobs.py`.
"""

from __future__ import annotations

import gc
import importlib
import os
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING

from instride.spark._functions import unpickled
from instride.spark._range_reader import ReaderSettings, reader_for

if TYPE_CHECKING:
    from instride.spark._dead_letters import DeadLetters

__all__ = ["lacking", "spare_collections"]

_spared: set[int] = set()


def lacking(function: bytes, reader: ReaderSettings, dead_letters: DeadLetters | None) -> Iterator[str]:
    """Make this worker process ready, or tell what it lacks: packages, compiled modules, the user's own code."""
    try:
        unpickled(function)
        reader_for(reader)
        spare_collections()
        importlib.import_module("pyarrow")
        if dead_letters is not None:
            dead_letters.producer()
    except Exception:  # noqa: BLE001 - told to the driver
        yield traceback.format_exc()


def spare_collections() -> None:
    """Once a process: what is there now is kept out of all later garbage collections.

    PySpark runs a full collection after every task. It looked through all imported modules each time: some 40 ms of
    the 55 ms of CPU that a small range cost. To be called when what is long-lived has been loaded.
    """
    if os.getpid() not in _spared:
        _spared.clear()
        _spared.add(os.getpid())
        gc.collect()
        gc.freeze()
