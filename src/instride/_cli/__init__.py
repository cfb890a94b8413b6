"""The command `instride`. Each verb is a file: `doctor`, `run`, `dead_letters`; `_app` has them all.

early                 signals that come before `run` hears them
supervisor, worker    what `run` decides, and one of its processes
targets               what `module:name` and the settings of a command line mean
"""

from __future__ import annotations

import sys

from instride._cli.early import note_signals

__all__ = ["main"]


def main() -> int:
    """What `instride` runs. The exit status is 1 where the extra [cli] is not installed."""
    if sys.argv[1:2] == ["run"]:
        note_signals()
    try:
        from instride._cli._app import app  # noqa: PLC0415 - what it needs may not be installed
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        sys.stderr.write("the command instride needs its extra: pip install 'instride[cli]'\n")
        return 1
    app(prog_name="instride")
    return 0
