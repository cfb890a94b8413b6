"""What counts of a client's reading, in the benchmark of the rates."""

from __future__ import annotations

import pytest

from benchmarks import clients
from benchmarks.clients import Task, Window


class Clock:
    """A meter by a clock that stands still. reads: of all of them."""

    reads = 0

    def __init__(self) -> None:
        self.seconds = 0.0

    def read(self, rows: int) -> dict[str, float]:
        Clock.reads += 1
        return {"rows": rows}


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> Window:
    monkeypatch.setattr(clients, "Meter", Clock)
    monkeypatch.setattr(Clock, "reads", 0)
    return Window(Task(servers="", topic="", warm_rows=10, warm_seconds=9.0, most_rows=100, most_seconds=9.0))


def test_the_meter_is_read_once_however_many_polls_there_are(window: Window) -> None:
    """It reads a file: read for each poll, it took more than a small poll does."""
    assert [window.read(1) for _ in range(99)] == [None] * 99
    assert Clock.reads == 0
    found = window.read(1)
    assert found is not None
    assert found["rows"] == 90, "without the warm-up's"
    assert Clock.reads == 1
