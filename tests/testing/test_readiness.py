"""The questions of readiness, where a node ends between two looks: what a real broker does not do on demand."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from instride.errors import TransportError
from instride.testing._kafka.admin import Admin
from instride.testing._kafka.readiness import all_ready, topics_gone, topics_ready
from instride.testing._kafka.running import Running
from instride.testing._kafka.settings import Node


class EndsAfter:
    """A cluster of one node, which serves for so many looks and then ends."""

    cluster_id = "the-cluster"
    stored_topics: frozenset[str] = frozenset()

    def __init__(self, looks: int) -> None:
        self._looks = looks

    def serving(self) -> list[int]:
        self._looks -= 1
        return [1] if self._looks >= 0 else []

    def probe(self, number: int) -> Admin:
        raise TransportError(f"node {number} refused the connection")


QUESTIONS: dict[str, Callable[[Running], bool]] = {
    "all": all_ready,
    "topics": lambda running: topics_ready(running, {"orders": 1}),
    "gone": lambda running: topics_gone(running, ("orders",)),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_node_that_ends_amid_a_question_fails_like_one_that_cannot_be_reached(question: str) -> None:
    """`Running.wait` takes that as "not yet" and looks why the node ended."""
    with pytest.raises(TransportError, match="node 1 refused"):
        QUESTIONS[question](cast("Running", EndsAfter(looks=1)))


@pytest.mark.parametrize("question", ["all", "topics"])
def test_nothing_is_ready_where_no_node_serves(question: str) -> None:
    assert not QUESTIONS[question](cast("Running", EndsAfter(looks=0)))


def test_a_node_that_was_killed_while_suspended_serves_when_started_again(tmp_path: Path) -> None:
    """By a `kill -9` from outside: every wait left the new process out."""
    processes = SimpleNamespace(start=lambda *_: 7, exit_code=lambda name: None, signal=lambda *_: None)
    node = Node(node_id=1, port=1, controller_port=2, folder=tmp_path, log=tmp_path / "log")
    jvm = SimpleNamespace(broker=lambda settings: [])
    running = Running(cast(Any, processes), [node], cast(Any, jvm), timeout=1.0)
    running.launch(1)
    running.signal(1, signal.SIGSTOP)
    assert running.serving() == []
    running.launch(1)
    assert running.serving() == [1]
