"""Questions of the application that need an answer: committed offsets, offsets by time.

Laws
1. Each is answered once: with a result, a final error, or at its deadline with `KafkaTimeoutError` that names the
   last obstacle.
2. What is retriable is retried, after a back-off, until the deadline.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from instride.core.events import Answered, FetchCommitted, FetchOffsets
from instride.core.network.actions import ConnectionKey, Role
from instride.core.network.backoff import Backoff
from instride.core.network.cluster import Cluster
from instride.core.network.context import Context
from instride.core.network.coordinator import Coordinator
from instride.errors import KafkaError, KafkaTimeoutError, error_for_code
from instride.records import OffsetAndMetadata, TopicPartition
from instride.wire import api

__all__ = ["Lookups"]

_MOVED = frozenset({15, 16})


@dataclass(slots=True, kw_only=True)
class _Question:
    event: FetchCommitted | FetchOffsets
    backoff: Backoff
    flying: int = 0
    found: dict[TopicPartition, object] = field(default_factory=dict)
    obstacle: Exception | None = None


class Lookups:
    """Not thread-safe: the network machine owns it."""

    def __init__(self, context: Context, cluster: Cluster, coordinator: Coordinator) -> None:
        self._context = context
        self._cluster = cluster
        self._coordinator = coordinator
        self._questions: list[_Question] = []

    def add(self, event: FetchCommitted | FetchOffsets) -> None:
        question = _Question(event=event, backoff=self._context.backoff())
        self._questions.append(question)
        if not (event.partitions if isinstance(event, FetchCommitted) else event.timestamps):
            self._answer(question, result={})
        self._context.touch()

    def topics(self) -> frozenset[str]:
        """Whose metadata the questions need."""
        events = [each.event for each in self._questions]
        return frozenset(tp.topic for event in events if isinstance(event, FetchOffsets) for tp in event.timestamps)

    def poll(self, now: float) -> float:
        wake = float("inf")
        for question in list(self._questions):
            if now >= question.event.deadline:
                self._timed_out(question)
                continue
            wake = min(wake, question.event.deadline)
            if question.flying:
                continue
            if question.backoff.ready(now):
                self._ask(question, now)
            wake = min(wake, max(question.backoff.ready_at, now + 0.001) if not question.flying else wake)
        return wake

    def _ask(self, question: _Question, now: float) -> None:
        if isinstance(question.event, FetchCommitted):
            self._ask_coordinator(question, question.event, now)
        else:
            self._ask_leaders(question, question.event, now)

    # -- committed offsets

    def _ask_coordinator(self, question: _Question, event: FetchCommitted, now: float) -> None:
        if not self._coordinator.need():
            question.backoff.failed(now)
            question.obstacle = self._context.connections.last_error
            if self._coordinator.refused is not None:
                self._answer(question, error=self._coordinator.refused)
            return
        question.flying = 1
        request = api.OffsetFetch(
            group_id=self._context.config.group_id or "",
            partitions=event.partitions,
            topic_ids=self._cluster.topic_ids({tp.topic for tp in event.partitions}),
        )
        self._coordinator.send(request, lambda result, then: self._committed(question, result, then), now)

    def _committed(self, question: _Question, result: api.Answer | Exception, now: float) -> None:
        question.flying = 0
        self._context.touch()
        if not isinstance(result, api.OffsetFetchAnswer):
            self._coordinator.lost(result)
            self._failed(question, result, now)
            return
        codes = {result.error, *(found.error for found in result.offsets.values())} - {0}
        if not codes:
            self._answer(question, result=_dressed(result))
            return
        if codes & _MOVED:
            self._coordinator.lost(error_for_code(min(codes & _MOVED)))
        self._failed(question, error_for_code(min(codes)), now)

    # -- offsets by time

    def _ask_leaders(self, question: _Question, event: FetchOffsets, now: float) -> None:
        by_leader: dict[int, dict[tuple[str, int], int]] = {}
        for tp, timestamp in event.timestamps.items():
            if tp in question.found:
                continue
            leader = self._cluster.leader(tp)
            if leader is None:
                self._cluster.refresh()
                question.obstacle = question.obstacle or KafkaError(f"no leader of {tp} is known")
                continue
            by_leader.setdefault(leader[0].node_id, {})[tp] = timestamp
        if not by_leader:
            question.backoff.failed(now)
            if self._context.connections.refused is not None:
                self._answer(question, error=self._context.connections.refused)
        for node_id, timestamps in by_leader.items():
            broker = self._cluster.brokers[node_id]
            question.flying += 1
            self._context.connections.send(
                ConnectionKey(Role.DATA, node_id),
                (broker.host, broker.port),
                api.ListOffsets(
                    timestamps=timestamps,
                    read_committed=self._context.config.isolation_level == "read_committed",
                ),
                lambda result, then: self._listed(question, result, then),
                now,
            )

    def _listed(self, question: _Question, result: api.Answer | Exception, now: float) -> None:
        question.flying -= 1
        self._context.touch()
        if isinstance(result, api.ListOffsetsAnswer):
            for tp, listed in result.offsets.items():
                if listed.error:
                    self._cluster.refresh()
                    self._failed(question, error_for_code(listed.error), now)
                else:
                    question.found[TopicPartition(*tp)] = listed.offset
        else:
            self._cluster.refresh()
            self._failed(question, result, now)
        if isinstance(question.event, FetchOffsets) and len(question.found) == len(question.event.timestamps):
            self._answer(question, result=dict(question.found))

    # -- ends

    def _failed(self, question: _Question, error: object, now: float) -> None:
        question.backoff.failed(now)
        question.obstacle = error if isinstance(error, Exception) else TypeError(repr(error))
        if not (isinstance(error, KafkaError) and error.retriable):
            self._answer(question, error=question.obstacle)

    def _timed_out(self, question: _Question) -> None:
        obstacle = question.obstacle or self._context.connections.last_error
        if obstacle is None and not self._context.connections.ever_connected:
            obstacle = self._cluster.unreachable()
        error = KafkaTimeoutError(f"no answer within the timeout; last obstacle: {obstacle or 'none'}")
        error.__cause__ = obstacle
        self._answer(question, error=error)

    def _answer(self, question: _Question, *, result: object = None, error: Exception | None = None) -> None:
        if question in self._questions:
            self._questions.remove(question)
            self._context.deliver(Answered(call=question.event.call, result=result, error=error))


def _dressed(answer: api.OffsetFetchAnswer) -> dict[TopicPartition, OffsetAndMetadata | None]:
    return {
        TopicPartition(*tp): None
        if found.offset < 0
        else OffsetAndMetadata(offset=found.offset, metadata=found.metadata, leader_epoch=found.leader_epoch)
        for tp, found in answer.offsets.items()
    }
