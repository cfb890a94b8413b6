"""The member with confluent-kafka's consumer, whose broker a test plays."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from demo_stories import plan_in

from demo import confluent_member
from demo.confluent_member import ConfluentMember
from instride.testing import Recorder


class Refuses:
    """A consumer whose first commits are refused: at once by an exception, or in the response of a partition."""

    def __init__(self, *, by_response: bool) -> None:
        self.left = 3
        self.by_response = by_response

    def commit(self, offsets: list[TopicPartition], *, asynchronous: bool) -> list[Any]:
        self.left -= 1
        if self.left >= 0 and not self.by_response:
            raise KafkaException(KafkaError(KafkaError.REBALANCE_IN_PROGRESS))
        return [SimpleNamespace(error="not now" if self.left >= 0 else None)]

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None: ...


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.mark.parametrize("by_response", [False, True])
def test_a_refused_commit_is_tried_again_after_a_while(
    tmp_path: Path, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, by_response: bool
) -> None:
    """Its work was finished, so there was nothing to wait for: it tried as fast as the processor could."""
    naps: list[float] = []
    monkeypatch.setattr(confluent_member, "sleep", naps.append)
    monkeypatch.setattr(confluent_member, "Consumer", lambda _: Refuses(by_response=by_response))
    with Recorder(tmp_path / "history.jsonl") as history:
        member = ConfluentMember(plan_in(tmp_path), "A", history, pool)
        moving: Any = [TopicPartition("flights-confluent", 3)]
        member._assigned(member._consumer, moving)
        lane = member._lanes[3]
        lane.job, lane.end = Future(), 10
        lane.job.set_result(None)
        member._revoked(member._consumer, moving)
    assert len(naps) == 3
    assert member._lanes == {}
