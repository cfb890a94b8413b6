"""R1 in virtual time: a client that buffers without bounds, or keeps what had its response on its list, is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from instride._core.network import fetcher
from instride._core.network.connections import Connections
from instride._core.network.fetcher import Capacity
from instride.testing.simulation import check, plan_for, run

SEEDS = range(40)


def found() -> set[str]:
    """The laws of R1 that some of these histories break."""
    return {each.law for seed in SEEDS for each in check(run(plan_for(seed))) if each.number == "R1"}


@pytest.mark.drawn(1, "needs")
def test_one_that_fetches_whether_there_is_room_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    all_the_room = Capacity(nbytes=1 << 40, most_bytes=1 << 20, records=-1, undecoded=1 << 40, none=False)
    monkeypatch.setattr(fetcher, "capacity", lambda _config, _owned: all_the_room)
    assert "buffers keep their caps" in found()


@pytest.mark.drawn(1, "needs")
def test_one_that_keeps_its_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    received: Callable[..., None] = Connections.response_received

    def keep(self: Connections, request_id: int, result: Any, now: float) -> None:
        key = self._where[request_id]
        pending = self._links[key].in_flight.get(request_id)
        received(self, request_id, result, now)
        if pending is not None:
            pending.deadline = float("inf")
            self._links[key].in_flight[-request_id] = pending

    monkeypatch.setattr(Connections, "response_received", keep)
    assert "little is under way" in found()
