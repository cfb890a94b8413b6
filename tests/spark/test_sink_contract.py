"""Every sink keeps the contract: the same public checks, each on a place of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from table_help import MAKERS, place, ready

from instride.spark.contract import CHECKS, SinkUnderTest


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", MAKERS)
def test_the_contract(
    kind: str, check: Callable[[SinkUnderTest], None], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    ready(kind, request, tmp_path)
    check(place(kind, tmp_path / "out"))
