"""A worker of `instride run`: one process with one processor, and so one member of the group.

Laws
1. Its exit status: 0 when it was stopped, 1 when its processor ended by an error, 2 when it cannot begin.
2. Its standard input is a pipe that the supervisor holds: when that is gone, the worker stops as by a SIGTERM.
3. SIGTERM and SIGINT stop its processor as they stop `Processor.run` (`_processing/running_processor.py`, law 2).
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import instride
from instride._cli.supervisor import CANNOT_BEGIN, FAILED
from instride._cli.targets import settings_of, target
from instride._processing.processor import Processor
from instride._processing.running_processor import RunningProcessor, run_with_signals
from instride.errors import ConfigError, DeadLettersUnwrittenError, DrainTimeoutError

__all__ = ["main"]


def main(app: str, settings: str | None, bootstrap_servers: str | None, group_id: str | None, slot: int) -> int:
    threading.Thread(target=_watch_the_supervisor, name="instride-supervisor", daemon=True).start()
    try:
        running = loaded(app, settings_of(settings, bootstrap_servers, group_id), slot)
    except BaseException as error:  # noqa: BLE001 - a module may raise anything
        if isinstance(error, ConfigError) and _is_of_the_command_line(error):
            print(f"instride run: worker {slot} cannot begin: {error}", file=sys.stderr)
        else:
            traceback.print_exc()
        return CANNOT_BEGIN
    try:
        run_with_signals(running)
    except (DeadLettersUnwrittenError, DrainTimeoutError) as error:  # it says all, and no line of code is to blame
        print(f"instride run: worker {slot} left work behind: {type(error).__name__}: {error}", file=sys.stderr)
        return FAILED
    except BaseException:  # noqa: BLE001 - the supervisor is told by the status
        traceback.print_exc()
        return FAILED
    return 0


def loaded(app: str, settings: dict[str, Any], slot: int) -> RunningProcessor:
    processor = target(app)
    if not isinstance(processor, Processor):
        raise ConfigError(f"{app}: it must be a Processor, not {type(processor).__qualname__}")
    if settings.get("group_instance_id") is not None:
        settings["group_instance_id"] = f"{settings['group_instance_id']}-{slot}"
    if not logging.getLogger().handlers:
        logging.basicConfig(level=logging.INFO, format=f"%(asctime)s worker {slot} %(levelname)s %(name)s: %(message)s")
    running: RunningProcessor = processor.running(**settings)
    return running


def _is_of_the_command_line(error: BaseException) -> bool:
    """Whether no code of the user's raised it, so that its text says all: a trace would only hide that."""
    ours = str(Path(instride.__file__).parent)
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    return all(each.startswith((ours, "<")) for each in files)


def _watch_the_supervisor() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    _app, _settings, _servers, _group, _slot = sys.argv[1:]
    sys.exit(main(_app, _settings or None, _servers or None, _group or None, int(_slot)))
