"""The rebalance protocols, lowest first: the highest that all assignors of a consumer support is used (KIP-429)."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["RebalanceProtocol"]


class RebalanceProtocol(IntEnum):
    """EAGER: every partition is given up before a join. COOPERATIVE: only what moves is. CONSUMER: KIP-848."""

    EAGER = 0
    COOPERATIVE = 1
    CONSUMER = 2
