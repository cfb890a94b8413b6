"""A handler in a thread may fork. Its child has this thread and no other: nothing of ours may go on in it."""

from __future__ import annotations

import os
import sys
import traceback
from typing import NoReturn

__all__ = ["end_child"]


def end_child(error: BaseException | None = None) -> NoReturn:
    """The handler has returned, or raised, in a child: there it was all. As a program ends: by its own status."""
    status = 0 if error is None else 1
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        traceback.print_exception(error)
    # `_exit` flushes nothing.
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # Not sys.exit: `finally` blocks and exit handlers here are the parent's, whose consumer they would close.
    os._exit(status & 0xFF)
