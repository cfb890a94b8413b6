"""The other side of `ProcessWorkers`: a process that calls the handler.

Laws
1. Records come and outputs go as bytes, many jobs in one message (`marshal`, of tuples of plain values). The one thing
   that is pickled is the handler, once, and the error of an attempt that failed.
2. Jobs are handled in the order in which they came, and each gets its result at once. So a death is blamed on the first
   one without a result.
3. Signals are the parent's: SIGINT and SIGTERM do nothing to this process, which ends when its pipe is closed. It is
   made with both blocked, until `serve` has seen to that: threads that imported modules have begun keep them blocked.
   A program that a handler starts (`exec`) is the handler's, and hears both, except from such a thread; what it only
   forks hears neither. If the parent is killed, this process ends at once (within a second, where a fork of the parent
   lives on), in the middle of a handler: its successor must not work beside it.
4. What a handler forks, and what returns from it as if it were this process, ends without a response (`forks.py`),
   since a second one for one job would put all later ones out of step. Nor does it hold the pipe, and no program that a
   handler starts does: once this process has died, a write of the parent's would wait for ever.
"""

from __future__ import annotations

import marshal
import multiprocessing
import operator
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any, Final, cast

from instride._coroutines import refuse_coroutine
from instride._processing.attempts import enter_attempt
from instride._processing.engine import Batch, Job, Task
from instride._processing.lifespan import Lifespan, SyncLifespan
from instride._processing.outputs import OutputRecord, outputs_of
from instride._record_deserializer import RecordDeserializer
from instride._wire.decoder import ConsumerRecord
from instride.errors import DeserializationError

__all__ = ["DONE", "PART", "READY", "SIGNALS", "Spec", "error_of", "outputs_from", "packed", "serve", "tasks_of"]

READY: Final = 0
DONE: Final = 1
_FAILED: Final = 2
_UNREADABLE: Final = 3

PART: Final = 16 * 1024
"""Bytes that the parent writes at once: a shorter part is a message's last."""
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
"""Law 3."""
_LOOK: Final = 1.0
"""Seconds after which we look whether the parent lives, besides waiting for its sentinel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What a process needs to know; pickled. output: the topic of what the handler returns."""

    handler: Callable[[Any], Any]
    reader: RecordDeserializer
    around: Lifespan | None
    output: str | None


def packed(jobs: Iterable[Job]) -> bytes:
    """Of each job: its attempts so far, whether it is a batch, its records."""
    return marshal.dumps([(job.attempts, isinstance(job, Batch), list(map(_plain, tasks_of(job)))) for job in jobs])


def tasks_of(job: Job) -> list[Task]:
    return job.tasks if isinstance(job, Batch) else [job]


def _plain(task: Task) -> tuple[Any, ...]:
    each = task.record
    return (
        (each.topic, each.partition, each.offset),
        (each.timestamp, each.timestamp_type, each.key, each.value, each.headers),
        (each.leader_epoch, each.epoch, each.seek_number),
    )


def _record(plain: tuple[Any, ...]) -> ConsumerRecord[Any, Any]:
    where, (timestamp, timestamp_type, key, value, headers), (leader_epoch, epoch, seek_number) = plain
    return ConsumerRecord(
        *where,
        timestamp=timestamp,
        timestamp_type=timestamp_type,
        key=key,
        value=value,
        headers=headers,
        leader_epoch=leader_epoch,
        epoch=epoch,
        seek_number=seek_number,
    )


@dataclass(slots=True)
class Call:
    """What `current_attempt` tells here. over: never known, since nothing comes while the handler runs."""

    attempts: int
    over: bool = False
    late: bool = False


def serve(pipe: Connection) -> None:
    """The main function of the process."""
    begun_by = os.getppid()
    # Law 3: a terminal's Ctrl-C comes to all of its processes, and the parent finishes what is in progress.
    for number in SIGNALS:
        # Not SIG_IGN, which `exec` hands on: a `Popen.terminate()` of a handler's would have no effect.
        signal.signal(number, _do_nothing)
        # Else a library of C that a handler calls would have its system calls interrupted. (Python's go on: PEP 475.)
        signal.siginterrupt(number, False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    os.set_inheritable(pipe.fileno(), False)
    os.register_at_fork(after_in_child=pipe.close)
    threading.Thread(target=_end_with_parent, args=(begun_by,), name="instride-parent", daemon=True).start()
    lifespan = SyncLifespan()
    try:
        spec: Spec = pickle.loads(_message(pipe))  # noqa: S301 - of the process that made this one
        lifespan.enter(spec.around)
    except BaseException as error:  # noqa: BLE001 - the parent decides
        pipe.send_bytes(_failed(error))
        return
    pipe.send_bytes(marshal.dumps((READY, None)))
    try:
        lifespan.context.run(_handle_all, pipe, spec)
    finally:
        lifespan.leave()


def _end_with_parent(begun_by: int) -> None:
    """begun_by: the process that began this one. That is the parent, or what is wrapped around its Python."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    # The sentinel is a pipe, and a fork of the parent holds the other end, too: that alone is not enough.
    is_orphan = begun_by == 1 != parent.pid
    while not is_orphan and not wait([parent.sentinel], _LOOK) and os.getppid() == begun_by:
        pass
    os._exit(1)


def _do_nothing(_: int, __: FrameType | None) -> None: ...


def _message(pipe: Connection) -> bytes:
    """The parent's. Raises EOFError."""
    parts = [pipe.recv_bytes()]
    while len(parts[-1]) == PART:
        parts.append(pipe.recv_bytes())
    return b"".join(parts)


def _handle_all(pipe: Connection, spec: Spec) -> None:
    while True:
        try:
            jobs = marshal.loads(_message(pipe))  # noqa: S302 - of the same
        except EOFError:
            return
        for attempts, is_batch, plain in jobs:
            # A copy for each call: what a handler sets is not to be seen by the next.
            result = copy_context().run(_result, spec, attempts, is_batch, plain)
            try:
                pipe.send_bytes(result)
            except BrokenPipeError:
                return


def _result(spec: Spec, attempts: int, is_batch: bool, plain: list[Any]) -> bytes:  # noqa: FBT001
    enter_attempt(Call(attempts))
    records: list[ConsumerRecord[Any, Any]] = []
    try:
        for each in plain:
            record = _record(each)
            records.append(spec.reader.read(record) if spec.reader else record)
    except DeserializationError as error:
        return marshal.dumps((_UNREADABLE, (str(error), error.part, len(records), _shown(error.__cause__))))
    except BaseException as error:  # noqa: BLE001 - the engine decides what becomes of it
        return _failed(error)
    try:
        returned = spec.handler(records if is_batch else records[0])
        refuse_coroutine(returned)
        outputs = [] if spec.output is None else outputs_of(returned, spec.output)
        # Within the try: a handler may have put into an output what marshal does not take.
        return marshal.dumps((DONE, list(map(_plain_output, outputs))))
    except BaseException as error:  # noqa: BLE001 - the engine decides what becomes of it
        return _failed(error)


def _plain_output(output: OutputRecord) -> tuple[Any, ...]:
    partition = None if output.partition is None else operator.index(output.partition)
    headers = tuple((_exact(name), _exact(value)) for name, value in output.headers)
    return _exact(output.value), _exact(output.key), headers, _exact(output.topic), partition


def _exact(text: Any) -> Any:
    """marshal takes a str, and nothing that is derived from it, such as a member of a StrEnum."""
    return str.__str__(text) if isinstance(text, str) else text


def _shown(error: BaseException | None) -> str:
    try:
        shown: str = _exact(repr(error))
    except Exception:  # noqa: BLE001 - a user's class may do anything
        return type(error).__name__
    return shown


def _failed(error: BaseException) -> bytes:
    """As it is, if it can be pickled, and read again with the same text; else in parts; else in words."""
    with suppress(Exception):  # a user's class may do anything
        error.add_note("in a process of the Processor:\n" + "".join(traceback.format_exception(error)))
    for form in (lambda: error, lambda: _parts(error), lambda: _parts(error, str(error))):
        with suppress(Exception):  # the same
            pickled = pickle.dumps(form())
            if str(_read(pickled)) == str(error):
                return marshal.dumps((_FAILED, pickled))
    words = "".join(traceback.format_exception_only(error)).strip()
    return marshal.dumps((_FAILED, pickle.dumps(RuntimeError(words))))


def _parts(error: BaseException, *others: object) -> tuple[Any, ...]:
    """Its class, its arguments (or others), and of its attributes those that can be pickled: for `_from_parts`."""
    kind = type(error)
    _, args, *state = cast("tuple[Any, ...]", _native(kind).__reduce__(error))
    kept = {name: value for each in state for name, value in each.items() if _is_picklable(value)}
    return kind, others or args, kept


def _read(pickled: bytes) -> Any:
    """Of a process that we made, or our own."""
    found = pickle.loads(pickled)  # noqa: S301
    return _from_parts(*found) if isinstance(found, tuple) else found


def _is_picklable(value: object) -> bool:
    try:
        pickle.loads(pickle.dumps(value))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - a user's class may do anything
        return False
    return True


def _from_parts(kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    """Without the `__init__` of a user's class, which may ask for anything."""
    error = kind.__new__(kind, *args)
    native = _native(kind)
    native.__init__(error, *args)
    native.__setstate__(error, state)
    return error


def _native(kind: type[BaseException]) -> type[BaseException]:
    """The next class above it that is Python's own."""
    return next(each for each in kind.__mro__ if each.__module__ == "builtins")


def error_of(kind: int, content: Any, tasks: list[Task]) -> BaseException:
    """In the parent. tasks: of the job."""
    if kind == _UNREADABLE:
        message, part, place, cause = content
        unreadable = DeserializationError(message, part=part, record=tasks[place].record)
        unreadable.__cause__ = ValueError(cause)
        return unreadable
    try:
        error = _read(content)
    except Exception as failed:  # noqa: BLE001 - a module that only the child could import, or a user's class
        return RuntimeError(f"the error of a handler's process cannot be read here: {type(failed).__name__}: {failed}")
    return error if isinstance(error, BaseException) else RuntimeError(repr(error))


def outputs_from(plain: list[tuple[Any, ...]]) -> list[OutputRecord]:
    """In the parent."""
    return [
        OutputRecord(value=value, key=key, headers=headers, topic=topic, partition=partition)
        for value, key, headers, topic, partition in plain
    ]
