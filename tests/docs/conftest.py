from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from virtual_driver import Build, World


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """``build(**settings)``: a world of one consumer, whose time-outs are an hour but for those given."""
    made: list[World] = []

    def one(**settings: Any) -> World:
        hour: dict[str, Any] = {"default_api_timeout": 3600.0, "request_timeout": 3600.0}
        while made:
            made.pop().close()
        made.append(World(monkeypatch, **{**hour, **settings}))
        return made[-1]

    yield one
    for each in made:
        each.close()
