"""What concerns a Python worker process of Spark as a whole.

Whether the workers have the packages that a job needs, `prepare` of `_jobs.py` asks before.
"""

from __future__ import annotations

import gc
import os

__all__ = ["spare_collections"]

_spared: set[int] = set()


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
