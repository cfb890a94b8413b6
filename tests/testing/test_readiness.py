"""The questions of readiness, where a node ends between two looks: what a real broker does not do on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from instride.errors import TransportError
from instride.testing._kafka.admin import Admin
from instride.testing._kafka.readiness import all_ready, topics_gone, topics_ready
from instride.testing._kafka.running import Running


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
