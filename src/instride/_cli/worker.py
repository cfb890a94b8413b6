"""A worker of `instride run`: one process with one processor, and so one member of the group.

Laws
1. Its exit status: 0 when it was stopped, 1 when its processor ended by an error, 2 when it cannot begin.
2. Its standard input is a pipe that the supervisor holds, and on which it says "stop" or "cancel", a byte each. When
   the pipe is closed, because the supervisor is gone, the worker stops.
3. SIGTERM and SIGINT stop its processor, however often they come: an init may signal every process of a service, and
   each stop would come twice. Only the supervisor's word cancels. A worker without a processor yet ends by either.
4. Nobody else reads that pipe: no handler, and no program that a handler starts. They have an empty standard input.
5. It ends soon after its processor has ended, whatever threads still do: Python itself waits for those of executors,
   and so for a call in one (`asyncio.to_thread`) that does not return. So it waits for `_PATIENCE`, and no longer; and
   as long again for the functions that the user registered for the end, which may hang too. None of these is called
   twice, but for one that a thread has registered since the processor ended.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import instride
from instride._cli.supervisor import CANNOT_BEGIN, FAILED, Word
from instride._cli.targets import TargetError, settings_of, target
from instride._processing.processor import Processor
from instride._processing.running_processor import RunningProcessor, run_with_signals
from instride.errors import ConfigError, DeadLettersUnwrittenError, DrainTimeoutError
from instride_command.ending import keep_status

__all__ = ["main"]


def main(app: str, settings: str | None, bootstrap_servers: str | None, group_id: str | None, slot: int) -> int:
    try:
        supervisor = _SupervisorsWords(_taken_standard_input())
        running = loaded(app, settings_of(settings, bootstrap_servers, group_id), slot)
    except KeyboardInterrupt:  # law 3
        return 0
    except BaseException as error:  # noqa: BLE001 - a module may raise anything, and no thread be left
        if isinstance(error, TargetError) or (isinstance(error, ConfigError) and _is_of_the_command_line(error)):
            _tell(f"instride run: worker {slot} cannot begin: {error}")
        else:
            _tell(traceback.format_exc().rstrip())
        return CANNOT_BEGIN
    supervisor.go_to(running)
    try:
        run_with_signals(running, second_cancels=False)
    except (DeadLettersUnwrittenError, DrainTimeoutError) as error:  # it says all, and no line of code is to blame
        _tell(f"instride run: worker {slot} left work behind: {type(error).__name__}: {error}")
        return FAILED
    except BaseException:  # noqa: BLE001 - the supervisor is told by the status
        _tell(traceback.format_exc().rstrip())
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


def _tell(text: str) -> None:
    """Where that cannot be written (a full disk, a log's reader that is gone), the status still says it."""
    with suppress(Exception):
        print(text, file=sys.stderr)


def _taken_standard_input() -> int:
    """Law 4. A descriptor of the pipe, which no process that is started inherits."""
    pipe, empty = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return pipe


class _SupervisorsWords:
    """Obeys them, on a thread of its own."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._running: RunningProcessor | None = None
        threading.Thread(target=self._listen, name="instride-supervisor", daemon=True).start()

    def go_to(self, running: RunningProcessor) -> None:
        """From now on they are for it."""
        self._running = running

    def _listen(self) -> None:
        while words := os.read(self._pipe, 1):
            self._obey(Word(words))
        self._obey(Word.STOP)

    def _obey(self, word: Word) -> None:
        if self._running is None:
            os.kill(os.getpid(), signal.SIGTERM)
        elif word is Word.CANCEL:
            self._running.cancel()
        else:
            self._running.stop()


_PATIENCE = 10.0
"""Seconds."""


def _end(status: int) -> NoReturn:
    """Law 5."""
    turn = threading.Lock()
    watch = threading.Timer(_PATIENCE, _cut_off, [status, turn])
    watch.daemon = True

    def take_turn() -> None:
        if threading.current_thread() is threading.main_thread():
            turn.acquire()  # where the watch has it, this waits until that has ended the process

    atexit.register(take_turn)  # the last one that is registered is called first
    with suppress(RuntimeError):  # no thread is left: nobody watches
        watch.start()
    sys.exit(status)


def _cut_off(status: int, turn: threading.Lock) -> None:
    """turn: of whoever calls the functions that the user registered for the end. Python takes it after the threads."""
    threads_ended = not turn.acquire(blocking=False)
    if threads_ended:
        time.sleep(_PATIENCE)  # a process that ends in time does not wait for this thread
    _say_left_behind("exit functions" if threads_ended else "threads")
    if not threads_ended:
        # What sends the last traces, say. They come after the threads, so none was called yet.
        functions = threading.Thread(target=atexit._run_exitfuncs, daemon=True)
        with suppress(RuntimeError):  # no thread is left: nobody could cut them off
            functions.start()
            functions.join(_PATIENCE)
        if functions.is_alive() or functions.ident is None:
            _say_left_behind("exit functions")
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # it may be closed, or broken
            stream.flush()
    os._exit(status)


def _say_left_behind(late: str) -> None:
    _tell(f"instride run: {late} of a worker did not end in {_PATIENCE:g} s: they are left behind")


if __name__ == "__main__":
    keep_status()
    _app, _settings, _servers, _group, _slot = sys.argv[1:]
    _end(main(_app, _settings or None, _servers or None, _group or None, int(_slot)))
