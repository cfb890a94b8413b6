"""Each test plays its story on a loop in virtual time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from aio_help import VirtualLoop, patched_clock


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    with patched_clock(made):
        yield made
    made.close()
