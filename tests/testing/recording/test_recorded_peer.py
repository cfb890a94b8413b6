"""What is seen of a peer from outside becomes a history."""

from __future__ import annotations

import linecache
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from instride import TopicPartition
from instride._net.clock import now
from instride.testing import Recorder
from instride.testing._check.events import decode, read_histories
from instride.testing._recording import recorder
from instride.testing.check import Event

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


def events(path: Path, who: str) -> list[Event]:
    return [each.event for each in read_histories([path]) if each.event.who == who]


def test_a_peers_turns_are_assignments_polls_and_ends(tmp_path: Path) -> None:
    with Recorder(tmp_path / "history.jsonl") as recorder:
        peer = recorder.peer("java")
        peer.turn({P: [0, 1, 2, 5]}, [P, Q])
        peer.turn({}, [Q])
        peer.turn({}, [], [Q])
        peer.closed()
    told = [(each.what, each.detail) for each in events(recorder.path, "java")]
    assert told == [
        ("started", (False, "delivered", False)),
        ("assigned", (None, ((P, 1), (Q, 2)))),
        ("poll", (((P, 1, 0, 0, 2, -1), (P, 1, 0, 5, 5, -1)), (), ())),
        ("revoked", (((P, 1),),)),
        ("lost", (((Q, 2),),)),
        ("poll", ((), (), (Q,))),
        ("closed", (True,)),
    ]
    assert [each.number for each in recorder.check()] == ["S3"], "3 and 4 were skipped"


def test_what_a_peer_lost_and_has_again_in_one_turn_is_lost_first(tmp_path: Path) -> None:
    """S7 reported it, since one poll had the records and the loss."""
    with Recorder(tmp_path / "history.jsonl", kind="slow", reset="earliest") as recorder:
        peer = recorder.peer("java")
        peer.turn({P: [0, 1]}, [P])
        peer.turn({P: [0, 1, 2]}, [P], [P])
    told = [(each.what, each.detail) for each in events(recorder.path, "java")]
    assert told[-4:] == [
        ("lost", (((P, 1),),)),
        ("poll", ((), (), (P,))),
        ("assigned", (None, ((P, 2),))),
        ("poll", (((P, 2, 0, 0, 2, -1),), (), ())),
    ]
    assert recorder.check() == []


def test_what_a_peer_lost_and_nobody_saw_it_have_is_no_loss(tmp_path: Path) -> None:
    """It may have been assigned between two polls: S8 reported a loss of what it never had."""
    with Recorder(tmp_path / "history.jsonl", kind="slow", reset="earliest") as recorder:
        recorder.peer("java").turn({P: [0]}, [P], [Q])
    assert recorder.check() == []


def test_what_two_peers_both_return_is_found(tmp_path: Path) -> None:
    with Recorder(tmp_path / "history.jsonl", kind="calm") as recorder:
        one, other = recorder.peer("one"), recorder.peer("other")
        one.turn({P: [0, 1]}, [P])
        other.turn({P: [1]}, [P])
        one.turn({P: [2]}, [P])
        recorder.end(drained=False)
    assert {each.number for each in recorder.check()} == {"S1", "S11"}


def test_a_peer_may_tell_of_its_work_and_its_commits(tmp_path: Path) -> None:
    with Recorder(tmp_path / "history.jsonl", reset="earliest") as recorder:
        peer = recorder.peer("a", finishes="told", commits=True)
        peer.turn({P: range(10)}, [P])
        peer.done(P, 0, 4)
        peer.committed({P: 5})
        peer.not_begun(P, 5)
        peer.turn({}, [])
        other = recorder.peer("b", finishes="told", commits=True)
        other.turn({P: range(5, 10)}, [P])
        assert recorder.check() == []
        other.committed({P: 10})
    assert [each.number for each in recorder.check()] == ["S4"]


def test_what_a_killed_peer_returned_may_come_again(tmp_path: Path) -> None:
    with Recorder(tmp_path / "history.jsonl") as recorder:
        one, other = recorder.peer("one"), recorder.peer("other")
        one.turn({P: [0, 1]}, [P])
        one.crashed()
        other.turn({P: [0, 1, 2]}, [P])
    assert recorder.check() == []


def test_files_of_two_processes_are_one_history(tmp_path: Path) -> None:
    one = Recorder(tmp_path / "one.jsonl", source="the test")
    other = Recorder(tmp_path / "other.jsonl", source="the test")
    one.peer("a").turn({P: [0]}, [P])
    other.peer("b").turn({P: [0]}, [P])
    one.close()
    other.close()
    assert one.check() == []
    assert [each.number for each in one.check([other.path])] == ["S1"]


def test_what_comes_after_the_end_is_not_recorded(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "history.jsonl")
    recorder.end(drained=False)
    recorder.produced(P, 10)
    assert [each.event.what for each in read_histories([recorder.path])] == ["history", "end"]


class Passing:
    """A lock that another thread takes whenever it is let go."""

    def __init__(self, other: Callable[[], None]) -> None:
        self.other = other
        self.taken = False

    def acquire(self, _blocking: bool, _timeout: float) -> bool:
        assert not self.taken
        self.taken = True
        return True

    def release(self) -> None:
        self.taken = False
        other, self.other = self.other, lambda: None
        other()


def test_the_end_is_the_last_of_a_file_whatever_another_thread_has_to_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(tmp_path / "history.jsonl")
    monkeypatch.setattr(recorder, "_lock", Passing(lambda: recorder.produced(P, 10)))
    recorder.end(drained=False)
    assert [each.event.what for each in read_histories([recorder.path])] == ["history", "end"]


class LetGo:
    """A lock: when it is let go, another thread tries to take it just before."""

    def __init__(self, other: Callable[[], None]) -> None:
        self.other = other
        self.taken = False

    def acquire(self, _blocking: bool, _timeout: float) -> bool:
        taken, self.taken = self.taken, True
        return not taken

    def release(self) -> None:
        other, self.other = self.other, lambda: None
        other()
        self.taken = False


def test_what_comes_as_another_thread_stops_writing_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Recorder(tmp_path / "history.jsonl")
    monkeypatch.setattr(written, "_lock", LetGo(lambda: written.produced(P, 11)))
    written.produced(P, 10)
    assert [each.event.what for each in read_histories([written.path])] == ["history", "produced", "produced"]
    written.close()


class Slow:
    """A file; each line of it takes its time, of which `began` tells."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.began, self.may_end = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, line: str) -> None:
        self.began.set()
        assert self.may_end.wait(60)
        self._file.write(line)


class Patient:
    """A lock; whoever waits long for it may wait until `goes_on` is called."""

    def __init__(self, goes_on: Callable[[], None]) -> None:
        self._lock = Lock()
        self._goes_on = goes_on
        self.release = self._lock.release

    def acquire(self, blocking: bool, timeout: float) -> bool:
        if timeout == recorder._LONG_PATIENCE:
            self._goes_on()
        return self._lock.acquire(blocking, timeout)


@pytest.mark.parametrize("verb", ["end", "close", "check"])
def test_who_ends_a_history_or_judges_it_waits_for_a_slow_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """An event is left to the thread that writes after a moment, since a signal's handler may have it wait."""
    written = Recorder(tmp_path / "history.jsonl")
    slow = Slow(written._file)
    monkeypatch.setattr(written, "_file", slow)
    monkeypatch.setattr(written, "_lock", Patient(slow.may_end.set))
    writer = Thread(target=written.produced, args=(P, 10))
    writer.start()
    assert slow.began.wait(60)
    written.produced(P, 11)
    verbs: dict[str, Callable[[], object]] = {
        "end": lambda: written.end(drained=False),
        "close": written.close,
        "check": written.check,
    }
    reader = Thread(target=verbs[verb])
    reader.start()
    reader.join(60)
    told = [each.event.what for each in read_histories([written.path])]
    slow.may_end.set()
    writer.join(60)
    assert told[:3] == ["history", "produced", "produced"]
    written.close()


def test_no_time_falls_though_a_later_event_is_written_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two threads the one that was stamped first may come second to the file."""
    written = Recorder(tmp_path / "history.jsonl")
    stamps = [now() + 2.0, now() + 1.0]
    monkeypatch.setattr(recorder, "now", lambda: stamps.pop(0))
    written.produced(P, 10)
    written.produced(P, 11)
    written.close()
    first, second = (each.event for each in read_histories([written.path]) if each.event.what == "produced")
    assert first.time == second.time


def test_what_is_no_event_is_the_error_of_who_says_it(tmp_path: Path) -> None:
    with Recorder(tmp_path / "history.jsonl") as recorder:
        with pytest.raises(ValueError, match="shorter"):
            recorder.add("a", "closed")
        recorder.add("a", "closed", True)
    assert [each.what for each in events(recorder.path, "a")] == ["closed"]


class Bounded:
    """A lock for which nobody can wait without an end."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.release = self._lock.release

    def acquire(self, blocking: bool, timeout: float) -> bool:
        assert timeout >= 0
        return self._lock.acquire(blocking, timeout)


class Interrupted:
    """A file; while a line of it is written, a signal's handler runs."""

    closed = False

    def __init__(self, handler: Callable[[], None]) -> None:
        self.lines: list[str] = []
        self._handler = handler

    def flush(self) -> None: ...

    def write(self, line: str) -> None:
        self.lines.append(line)
        handler, self._handler = self._handler, lambda: None
        handler()


def test_a_signals_handler_that_closes_a_consumer_amid_a_line_waits_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for ever: for the lock that its own thread had. So did the network thread, for which a close waits."""
    written = Recorder(tmp_path / "history.jsonl")
    network = Thread(target=written.add, args=("a", "group refused"), daemon=True)

    def handler() -> None:
        written.add("a", "leaving")
        network.start()
        network.join()
        written.add("a", "closed", True)

    with monkeypatch.context() as patch:
        file = Interrupted(handler)
        patch.setattr(written, "_file", file)
        patch.setattr(written, "_lock", Bounded())
        written.produced(P, 10)
    written.close()
    told = [decode(line) for line in file.lines]
    assert [each.what for each in told] == ["produced", "leaving", "group refused", "closed"]
    assert [each.time for each in told] == sorted(each.time for each in told)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_poll_whose_line_is_written_as_an_exception_comes_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """It was told again: a file has what is written before a signal's handler runs, and keeps what a disk refuses."""
    written = Recorder(tmp_path / "history.jsonl")
    written.hold("a", [("poll", (), (P,), ())], lambda: True)
    file = written._file

    def write(line: str) -> None:
        file.write(line)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(written, "_file", SimpleNamespace(closed=False, flush=file.flush, write=write))
        with pytest.raises(error):
            written.add("a", "leaving")
    written.close()
    assert [each.what for each in events(written.path, "a")] == ["poll", "leaving"]


@contextmanager
def no_room(file: Path) -> Iterator[None]:
    """No file of this process grows beyond the size of this one, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_long_line_that_a_full_disk_refuses_is_written_once_there_is_room(tmp_path: Path) -> None:
    with Recorder(tmp_path / "history.jsonl") as recorder:
        with no_room(recorder.path), pytest.raises(OSError, match="too large"):
            recorder.add("a", "a note", "n" * 100_000)
        recorder.add("a", "leaving")
        assert recorder.check() == []
        assert [each.what for each in events(recorder.path, "a")] == ["a note", "leaving"]


def test_a_history_that_a_full_disk_cuts_off_has_no_gap_and_is_no_success(tmp_path: Path) -> None:
    """Some lines were lost without a word, and those that came after them were written: the checker blamed the rest."""
    written = Recorder(tmp_path / "history.jsonl")
    with no_room(written.path):
        for at in range(200):
            with suppress(OSError):
                written.add("a", "a note", at, "n" * 100)
    written.add("a", "leaving")
    for verb in (written.check, partial(written.end, drained=True), written.close):
        with pytest.raises(OSError, match="too large"):
            verb()
    assert [each.detail[0] for each in events(written.path, "a")] == [0]


def test_a_verdict_lacks_no_last_line_that_a_full_disk_refuses(tmp_path: Path) -> None:
    """The file ended in half of a line, and what came before it was judged."""
    with suppress(OSError), Recorder(tmp_path / "history.jsonl") as written, no_room(written.path):
        with pytest.raises(OSError, match="too large"):
            written.add("a", "leaving")
        with pytest.raises(OSError, match="too large"):
            written.check()


def test_no_verdict_is_given_where_the_end_of_the_file_was_refused(tmp_path: Path) -> None:
    """The file was closed with half of a line, and what came before it was judged."""
    written = Recorder(tmp_path / "history.jsonl")
    with no_room(written.path):
        with suppress(OSError):
            written.add("a", "leaving")
        with pytest.raises(OSError, match="too large"):
            written.close()
    with pytest.raises(OSError, match="too large"):
        written.check()


def test_what_a_handler_raises_is_no_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TimeoutError, as of an alarm, is an OSError too. It has no number."""

    class Alarmed:
        closed = False

        def flush(self) -> None:
            raise TimeoutError("alarm")

    with Recorder(tmp_path / "history.jsonl") as written:
        with monkeypatch.context() as patch:
            patch.setattr(written, "_file", Alarmed())
            with pytest.raises(TimeoutError):
                written.add("a", "a note", 1)
        written.add("a", "a note", 2)
    found = [each.event.detail for each in read_histories([written.path]) if each.event.what == "a note"]
    assert found == [(1,), (2,)], "the next one writes what that one left"


@pytest.mark.parametrize("lines", [0, 1, 2, 3])
def test_the_end_closes_a_file_on_a_full_disk_too(tmp_path: Path, lines: int) -> None:
    written = Recorder(tmp_path / "history.jsonl")
    with no_room(written.path):
        for _ in range(lines):
            with suppress(OSError):
                written.add("a", "a note", "n" * 100)
        with pytest.raises(OSError, match="too large"):
            written.end(drained=True)
    assert written._file.closed


def test_no_verdict_is_given_where_the_last_line_was_refused(tmp_path: Path) -> None:
    """What came before it was judged: the recorder did not remember it."""
    written = Recorder(tmp_path / "history.jsonl")
    with no_room(written.path), pytest.raises(OSError, match="too large"):
        written.end(drained=True)
    with pytest.raises(OSError, match="too large"):
        written.check()


class Late:
    """A lock: who asks for it first waits until another thread has had it and let it go."""

    def __init__(self, other: Callable[[], None]) -> None:
        self.other = other

    def acquire(self, _blocking: bool, _timeout: float) -> bool:
        other, self.other = self.other, lambda: None
        thread = Thread(target=other)
        thread.start()
        thread.join()
        return True

    def release(self) -> None: ...


@pytest.mark.parametrize("verb", ["end", "close"])
def test_who_ends_a_file_is_told_of_a_full_disk_though_another_thread_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """The other thread was told of the last line: the end was a success. Of a close it was told, too, and stopped."""
    written = Recorder(tmp_path / "history.jsonl")
    others: list[OSError] = []

    def other() -> None:
        try:
            written.add("a", "leaving")
        except OSError as error:
            others.append(error)

    with no_room(written.path):
        if verb == "close":
            with pytest.raises(OSError, match="too large"):
                written.add("a", "a note")
        monkeypatch.setattr(written, "_lock", Late(other))
        with pytest.raises(OSError, match="too large"):
            written.end(drained=True) if verb == "end" else written.close()
    assert len(others) == (verb == "end"), "a line is the matter of whoever writes it"
    assert written._file.closed


def interrupted(verb: Callable[[], object], at: int, handler_raises: type[BaseException] = KeyboardInterrupt) -> bool:
    """Raises it at that line of the recorder's code, where Python may run a handler; else False."""
    left = at

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != recorder.__file__:
            return None
        if event == "line" and not is_let_go_of(frame.f_lineno):
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise handler_raises
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        verb()
    except handler_raises:
        return True
    finally:
        sys.settrace(before)
    return False


def is_let_go_of(line: int) -> bool:
    """Python runs no handler here: its turn is at a function's beginning, after a call, and at a loop's end."""
    before, here = (linecache.getline(recorder.__file__, each).strip() for each in (line - 1, line))
    return before == "finally:" or here in ("self._writer = 0", "self._lock.release()")


def test_a_writer_that_is_interrupted_at_any_line_loses_nothing_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock was never let go again, and all that came later was lost; so was the event that was to be written."""
    at, goes_on = 0, True
    while goes_on:
        written = Recorder(tmp_path / f"{at}.jsonl")
        written.hold("a", [("poll", (), (P,), ())], lambda: True)
        with monkeypatch.context() as patch:
            patch.setattr(written, "_lock", SimpleNamespace(acquire=lambda _blocking, _timeout: False))
            written.produced(P, 9)  # is left to who writes next
        goes_on = interrupted(partial(written.produced, P, 10), at)
        other = Thread(target=written.produced, args=(P, 11))
        other.start()
        other.join()
        told = [(each.event.what, each.event.detail[-1]) for each in read_histories([written.path])]
        written.close()
        ends = [("poll", ()), ("produced", 9), ("produced", 10), ("produced", 11)]
        assert told[1:] in (ends, [ends[0], ends[1], ends[3]]), at
        at += 1
    assert at > 20


@pytest.mark.parametrize("handler_raises", [KeyboardInterrupt, TimeoutError])
def test_an_end_that_is_interrupted_at_any_line_can_be_told_again(
    tmp_path: Path, handler_raises: type[BaseException]
) -> None:
    """The file was closed without it: the second one was a success, and a history without an end was judged."""
    at, goes_on = 0, True
    while goes_on:
        written = Recorder(tmp_path / f"{at}.jsonl")
        end = partial(written.end, drained=True)
        goes_on = interrupted(end, at, handler_raises)
        end()
        assert [each.event.what for each in read_histories([written.path])] == ["history", "end"], at
        at += 1
    assert at > 20


def test_each_member_has_a_name_of_its_own(tmp_path: Path) -> None:
    with Recorder(tmp_path / "history.jsonl") as recorder:
        recorder.peer("a")
        for name in ("a", "broker"):
            with pytest.raises(ValueError, match="give each one of its own"):
                recorder.peer(name)
