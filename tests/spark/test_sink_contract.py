"""Every sink keeps the contract: the same public checks, each on a place of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from table_help import MAKERS, place, ready

from instride.spark.contract import CHECKS, SinkUnderTest, killed_drivers

# Killed drivers take ten seconds: Iceberg's with the catalogue in PostgreSQL, where a connection dies with them.
CASES = [(kind, check) for kind in MAKERS for check in CHECKS if (kind, check) != ("iceberg", killed_drivers)]


@pytest.mark.drawn(24)
@pytest.mark.parametrize(("kind", "check"), CASES, ids=[f"{kind}-{check.__name__}" for kind, check in CASES])
def test_the_contract(
    kind: str, check: Callable[[SinkUnderTest], None], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    ready(kind, request, tmp_path)
    check(place(kind, tmp_path / "out"))
