"""Every sink keeps the contract: the same public checks, each on a place of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import pytest
from run_help import PATIENCE, PanicError
from table_help import MAKERS, place, ready

from instride.spark import ParquetSink, contract
from instride.spark.contract import CHECKS, SinkUnderTest, drivers_race, killed_drivers, stopped_driver

# Killed drivers take ten seconds: Iceberg's with the catalogue in PostgreSQL, where a connection dies with them.
CASES = [(kind, check) for kind in MAKERS for check in CHECKS if (kind, check) != ("iceberg", killed_drivers)]

_ENDS_SECONDS: Final = 120.0


@pytest.mark.drawn(24)
@pytest.mark.parametrize(("kind", "check"), CASES, ids=[f"{kind}-{check.__name__}" for kind, check in CASES])
def test_the_contract(
    kind: str, check: Callable[[SinkUnderTest], None], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    ready(kind, request, tmp_path)
    check(place(kind, tmp_path / "out"))


class PlayedSink(ParquetSink):
    """look: called where a driver looks how far it is."""

    def __init__(self, folder: Path, look: Callable[[], object]) -> None:
        super().__init__(folder)
        self._look = look

    def positions(self, *arguments: Any, **options: Any) -> Any:
        self._look()
        return super().positions(*arguments, **options)


def with_first(folder: Path, look: Callable[[], object]) -> SinkUnderTest:
    """The first of a check's drivers has such a sink; the others have good ones."""
    sinks: list[ParquetSink] = [PlayedSink(folder, look)]
    return SinkUnderTest(make=lambda: sinks.pop() if sinks else ParquetSink(folder), rows=place("parquet", folder).rows)


@pytest.mark.parametrize("kind", [RuntimeError, PanicError])
def test_a_driver_that_dies_in_the_race_fails_the_check(tmp_path: Path, kind: type[BaseException]) -> None:
    """The others reached the goal without it, and its error was a thread's: nobody's."""

    def dies() -> None:
        raise kind("mine")

    with pytest.raises(AssertionError, match=f"a driver ended by {kind.__name__}: mine") as raised:
        drivers_race(with_first(tmp_path / "out", dies))
    assert isinstance(raised.value.__cause__, kind)


def test_a_driver_that_hangs_in_the_race_fails_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check hung with it."""
    gate = threading.Event()
    # No driver ends meanwhile that was to end: the first cannot.
    monkeypatch.setattr(contract, "_RESPONSE_SECONDS", 0.0)
    before = set(threading.enumerate())
    try:
        with pytest.raises(AssertionError, match="a driver came to no end"):
            drivers_race(with_first(tmp_path / "out", lambda: gate.wait(PATIENCE)))
    finally:
        gate.set()
        racers = set(threading.enumerate()) - before
        for racer in racers:
            racer.join(_ENDS_SECONDS)
    assert not [racer for racer in racers if racer.is_alive()], "they would go on during the tests that follow"


def test_a_drivers_process_that_ends_is_said_to_have_ended() -> None:
    """By its own error; the check's was an EOFError without a text."""
    with pytest.raises(AssertionError, match="the driver ended"):
        stopped_driver(SinkUnderTest(make=cast(Any, object), rows=list))
