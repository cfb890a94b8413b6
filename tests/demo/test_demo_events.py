"""The event log: what is written is read again, by readers that follow it while it grows."""

import threading
from pathlib import Path

import pytest

from demo.events import (
    Change,
    Event,
    EventLog,
    EventTail,
    JobFailed,
    JobFinished,
    JobStarted,
    Life,
    Mark,
    Ownership,
    Phase,
    Produced,
    Progress,
    Range,
    decode,
    encode,
    read_events,
)

ONE_OF_EACH: list[Event] = [
    *(Ownership(t=1.5, app="A", change=change, partitions=(0, 7)) for change in Change),
    Progress(t=2.0, app="A", partition=3, start=10, end=20, rows=9),
    JobStarted(t=2.5, app="B", job="job 1", ranges=(Range(3, 10, 20), Range(4, 0, 5))),
    JobFinished(t=3.0, app="B", job="job 1"),
    JobFailed(t=3.5, app="B", job="job 2", reason='a "bad"\nrecord'),
    Produced(t=4.0, app="source", partition=3, end=99),
    *(Life(t=4.2, app="A", phase=phase) for phase in Phase),
    Mark(t=4.5, app="scenario", text="B joins"),
]


@pytest.mark.parametrize("event", ONE_OF_EACH, ids=lambda event: type(event).__name__)
def test_an_event_is_one_line_and_comes_back_as_it_was(event: Event) -> None:
    line = encode(event)
    assert "\n" not in line
    assert decode(line) == event


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{}",
        "[]",
        '{"event":"flown","t":1}',
        '{"event":"progress","t":1}',
        "nonsense",
        '{"event":"life","t":1,"app":"A","phase":"on the moon"}',
    ],
)
def test_what_is_no_event_is_refused_with_the_line(line: str) -> None:
    with pytest.raises(ValueError, match="not an event of the demo"):
        decode(line)


def test_the_files_of_a_run_merge_by_time(tmp_path: Path) -> None:
    with EventLog(tmp_path, "A") as a, EventLog(tmp_path, "B") as b:
        a.write(Mark(t=1.0, app="A", text="first"))
        a.write(Mark(t=3.0, app="A", text="third"))
        b.write(Mark(t=2.0, app="B", text="second"))
    assert [event.text for event in read_events(tmp_path) if isinstance(event, Mark)] == ["first", "second", "third"]


def test_a_tail_gives_each_event_once_and_waits_for_whole_lines(tmp_path: Path) -> None:
    tail = EventTail(tmp_path)
    assert tail.new_events() == []
    first, second = (encode(Mark(t=t, app="A", text=f"{t} é")) + "\n" for t in (1.0, 2.0))
    path = tmp_path / "A.events.jsonl"
    for half in (0, 1):
        data = (first + second).encode()
        cut = len(first.encode()) + 9
        with path.open("ab") as file:
            file.write(data[:cut] if half == 0 else data[cut:])
        assert [event.t for event in tail.new_events()] == [half + 1.0]
    assert tail.new_events() == []


def test_many_threads_write_whole_lines(tmp_path: Path) -> None:
    with EventLog(tmp_path, "A") as log:

        def write(partition: int) -> None:
            for n in range(200):
                log.progress(Range(partition, n, n + 1), 1)

        threads = [threading.Thread(target=write, args=(partition,)) for partition in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(read_events(tmp_path)) == 800


def test_a_change_of_nothing_is_not_written(tmp_path: Path) -> None:
    with EventLog(tmp_path, "A") as log:
        log.change(Change.REVOKED, ())
        log.change(Change.ASSIGNED, {2, 1})
    (event,) = read_events(tmp_path)
    assert isinstance(event, Ownership)
    assert event.partitions == (1, 2)
