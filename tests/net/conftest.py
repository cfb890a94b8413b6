"""What every test of the network side owes the next one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from instride import Consumer, TopicPartition
from instride._net.resolver import SocketAddress

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


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    """An open consumer of t-0 whose broker takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        made = Consumer(bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}", group_id="g")
        made.assign([TopicPartition("t", 0)])
        yield made
        made.close(timeout=0.1)


@pytest.fixture
def silent() -> Iterator[SocketAddress]:
    """An address that takes no connection, and does not say so: what it would take is there already."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            waits = stack.enter_context(socket.socket())
            waits.setblocking(False)
            waits.connect_ex(server.getsockname())
        yield (socket.AF_INET, server.getsockname())
