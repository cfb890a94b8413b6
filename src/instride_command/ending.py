"""How a command ends that cannot write all: nobody reads its output any more, the disk is full, a stream is closed.

Laws
1. Its status is the one that it means, or says that its text is lost; Python's own for that, 120, is never it. What the
   library under a command hides (argparse does, where Python buffers no output) changes nothing.
2. Where nobody reads, it ends without a word, as a program that SIGPIPE ends.
3. A closed stream (`>&-`) is one whose text nobody wants.
"""

from __future__ import annotations

import atexit
import errno
import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from contextlib import suppress
from typing import Any

__all__ = ["Parser", "keep_status", "status_of"]

_UNREAD = 141
"""As a shell says it of a program that SIGPIPE has ended."""
_UNWRITTEN = 2
"""1 is a bad result."""
_CANNOT_BE_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Parser(ArgumentParser):
    """argparse's own hides a help that cannot be written."""

    def print_help(self, file: Any = None) -> None:
        (file or sys.stdout).write(self.format_help())


def status_of(main: Callable[[], int]) -> int:
    """main's, unless it could not write what it had to say."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    keep_status()
    try:
        return _said(main)
    except BrokenPipeError:
        return _UNREAD
    except OSError as error:
        if error.errno not in _CANNOT_BE_WRITTEN:
            raise
        with suppress(OSError):
            sys.stderr.write(f"instride: {error}\n")
        return _UNWRITTEN


def _said(main: Callable[[], int]) -> int:
    """main's status, when its text is written. argparse and click end by SystemExit."""
    try:
        status = main()
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # click and rich make a bad result of it
            return _UNREAD
        sys.stdout.flush()
        raise
    sys.stdout.flush()
    return status


def keep_status() -> None:
    """Who calls this first flushes last, and ends with the status that it means."""
    atexit.register(_flush)


def _flush() -> None:
    """What cannot be written goes nowhere: Python flushes once more."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # it is None, or closed
            try:
                stream.flush()
            except OSError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
