"""What a user may be told of rebalances (KIP-429's callbacks)."""

from __future__ import annotations

from collections.abc import Sequence

from instride.records import TopicPartition

__all__ = ["RebalanceListener"]


class RebalanceListener:
    """Subclass it and pass it to `subscribe`. Every method runs on the application's thread, inside a poll,
    unsubscribe or close, and may call the consumer (but none of these three). Partitions come sorted. What a method
    raises is raised by the call it ran in, after the step is done; no method runs twice for one thing.
    """

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """New partitions start in this poll. With revoke_mode "immediate" also called with none (C)."""

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Their revoke completes: every commit was answered; the last moment to commit what was finished."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """They belong to another member already; nothing of them may be committed. As Java: on_partitions_revoked."""
        self.on_partitions_revoked(partitions)
