"""What a user may be told of rebalances (KIP-429's callbacks).

When they run, and what becomes of what they raise: `_core/application/listener_calls.py`; in a close or unsubscribe:
`_core/application/closing.py`, law 3.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from instride.records import TopicPartition

__all__ = ["AsyncRebalanceListener", "RebalanceListener"]


class AsyncRebalanceListener:
    """Subclass it and pass it to `AsyncConsumer.subscribe`. Each method may be ``async def`` or ``def``. It runs in the
    task that is inside poll, unsubscribe or close. It may await the consumer's other methods. `poll` and `unsubscribe`
    raise an error there. `close` returns at once, and the consumer closes when the call in which the listener runs has
    ended. Everything else is as with `RebalanceListener`. Where that task is cancelled, so is the method.
    """

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """New partitions start in this poll. With revoke_mode "immediate" also called with none (KIP-429)."""

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Their revocation completes: every commit had its response; the last moment to commit what was finished."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """They belong to another member already; nothing of them may be committed. As Java: on_partitions_revoked."""
        return self.on_partitions_revoked(partitions)


class RebalanceListener(AsyncRebalanceListener):
    """Subclass it and pass it to `subscribe`. Every method runs on the application's thread, inside a poll,
    unsubscribe or close. It may call the consumer's other methods. `poll` and `unsubscribe` raise an error there.
    `close` returns at once, and the consumer closes when the call in which the listener runs has ended. Partitions come
    sorted. What a method raises is raised by the call it ran in, after the step is done; no method runs twice for one
    thing.
    """

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """New partitions start in this poll. With revoke_mode "immediate" also called with none (KIP-429)."""

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Their revocation completes: every commit had its response; the last moment to commit what was finished."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """They belong to another member already; nothing of them may be committed. As Java: on_partitions_revoked."""
        self.on_partitions_revoked(partitions)
