"""A question of the application that is under way: its retries, its obstacle and its one answer.

Laws
1. Each is answered once: with a result, a final error, or at its deadline with `KafkaTimeoutError` that names the
   last obstacle.
2. What is retriable is retried, after a back-off, until the deadline.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from instride.core.events import Answered, FetchCommitted, FetchMetadata, FetchOffsets
from instride.core.network.backoff import Backoff
from instride.core.network.cluster import Cluster
from instride.core.network.context import Context
from instride.errors import KafkaError, KafkaTimeoutError
from instride.records import OffsetAndTimestamp, TopicPartition

__all__ = ["Question", "Questions", "QuestionEvent"]

QuestionEvent = FetchCommitted | FetchOffsets | FetchMetadata


@dataclass(slots=True, kw_only=True, eq=False)
class Question:
    """flying: how many requests of it are under way. obstacle: what went wrong last.

    metadata_version: that of the cluster when it was asked; only what is newer may refuse it.
    """

    event: QuestionEvent
    backoff: Backoff
    metadata_version: int
    flying: int = 0
    found: dict[TopicPartition, OffsetAndTimestamp] = field(default_factory=dict)
    obstacle: Exception | None = None


class Questions:
    """Those that are open. Not thread-safe: the network machine owns it."""

    def __init__(self, context: Context, cluster: Cluster) -> None:
        self._context = context
        self._cluster = cluster
        self.open: list[Question] = []

    def add(self, event: QuestionEvent) -> Question:
        question = Question(event=event, backoff=self._context.backoff(), metadata_version=self._cluster.version)
        self.open.append(question)
        self._context.touch()
        return question

    def failed(self, question: Question, error: object, now: float) -> None:
        """Law 2."""
        question.backoff.failed(now)
        question.obstacle = error if isinstance(error, Exception) else TypeError(repr(error))
        if not (isinstance(error, KafkaError) and error.retriable):
            self.answer(question, error=question.obstacle)

    def refused(self, question: Question) -> None:
        """Where no broker takes our credentials, waiting helps nobody."""
        if self._context.connections.refused is not None:
            self.answer(question, error=self._context.connections.refused)

    def timed_out(self, question: Question) -> None:
        obstacle = question.obstacle or self._context.connections.last_error
        if obstacle is None and not self._context.connections.ever_connected:
            obstacle = self._cluster.unreachable()
        error = KafkaTimeoutError(f"no answer within the timeout; last obstacle: {obstacle or 'none'}")
        error.__cause__ = obstacle
        self.answer(question, error=error)

    def answer(self, question: Question, *, result: object = None, error: Exception | None = None) -> None:
        if question in self.open:
            self.open.remove(question)
            self._context.deliver(Answered(call=question.event.call, result=result, error=error))
