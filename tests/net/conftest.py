"""What every test of the network side owes the next one."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

PATIENCE = 20.0


@pytest.fixture(autouse=True)
def no_network_thread_is_left() -> Iterator[None]:
    """A thread that goes on looks for its broker beside the tests that follow, and fails one of those."""
    before = set(threading.enumerate())
    yield
    left = [each for each in threading.enumerate() if each not in before and each.name.startswith("instride-")]
    for thread in left:
        thread.join(PATIENCE)
    assert not [each.name for each in left if each.is_alive()], "close the consumer of this test"
