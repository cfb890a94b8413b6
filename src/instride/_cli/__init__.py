"""The command `instride`. Each verb is a file: `doctor`, `run`, `dead_letters`; `_app` has them all.

supervisor, worker    what `run` decides, and one of its processes
targets               what `module:name` and the settings of a command line mean

Its entry point is the package `instride_command`, which hears signals before it loads this.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper

from instride_command.ending import status_of

__all__ = ["main"]


def main() -> int:
    """What `instride` runs. The exit status is 1 where the extra [cli] is not installed."""
    return status_of(_main)


def _main() -> int:
    try:
        from instride._cli._app import app  # noqa: PLC0415 - what it needs may not be installed
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        sys.stderr.write("the command instride needs its extra: pip install 'instride[cli]'\n")
        return 1
    if isinstance(sys.stdout, TextIOWrapper):
        # Anyone may have written what is shown, in other letters than those of the output's encoding.
        sys.stdout.reconfigure(errors="backslashreplace")
    app(prog_name="instride")
    return 0
