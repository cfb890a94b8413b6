"""Every sink keeps the contract: the same public checks, each on a place of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from table_help import MAKERS, place

from instride.spark.contract import CHECKS, SinkUnderTest


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", MAKERS)
def test_the_contract(kind: str, check: Callable[[SinkUnderTest], None], tmp_path: Path) -> None:
    check(place(kind, tmp_path / "out"))
