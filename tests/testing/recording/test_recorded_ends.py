"""How an unsubscribe or a close ended is recorded, so that an outage of commits is not taken for the member's fault."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from instride import Consumer, TopicPartition
from instride._core.events import Assigned
from instride.testing import Recorder
from instride.testing._check.events import read_histories

P = TopicPartition("t", 0)


@pytest.fixture
def address() -> Iterator[str]:
    """Where connections are taken and nothing is said."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_an_unsubscribe_that_takes_its_whole_timeout_is_in_the_history(address: str, tmp_path: Path) -> None:
    """As in a simulation: what was tried to commit until then, and was not committed, may come again."""
    with (
        Recorder(tmp_path / "history.jsonl") as recorder,
        Consumer(bootstrap_servers=address, group_id="g") as consumer,
    ):
        recorder.watch(consumer, "a")
        consumer.subscribe(["t"])
        consumer._driver._mailbox.deliver([Assigned(generation=1, partitions={P: 1})])
        consumer.poll(timeout=0)
        consumer.unsubscribe(timeout=0)
    output = [each.event for each in read_histories([recorder.path]) if each.event.who == "a"]
    ends = [(each.what, each.detail) for each in output if each.what in ("unsubscribes", "timed out", "unsubscribed")]
    assert ends == [("unsubscribes", ("unsubscribe",)), ("timed out", ("unsubscribe",)), ("unsubscribed", ())]
