"""The group's states for a classic member (T, C), as a table.

Laws
1. UNJOINED has no membership, or has lost it. PREPARING_REBALANCE has a Join under way or about to be sent.
   COMPLETING_REBALANCE has joined and waits for the Sync. ASSIGNING_PARTITIONS has an assignment that the
   application has not taken yet. STABLE: it has.
2. A rebalance may start in ASSIGNING_PARTITIONS: an application that does not poll holds up nobody.
3. Cooperative: a join does not wait for a revoke. Eager: PREPARING_REBALANCE is entered when all are revoked.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from instride.core.group.ownership import IllegalTransitionError

__all__ = ["TRANSITIONS", "GroupInput", "GroupState", "next_group_state"]


class GroupState(Enum):
    UNJOINED = "no membership"
    PREPARING_REBALANCE = "joining"
    COMPLETING_REBALANCE = "joined, waiting for the assignment"
    ASSIGNING_PARTITIONS = "assigned, the application has not taken it yet"
    STABLE = "assigned and taken"


class GroupInput(Enum):
    JOIN = "a join is to be sent"
    JOINED = "JoinGroup answered well"
    SYNCED = "SyncGroup answered well"
    RESTART = "the sync was refused, or the coordinator moved: join again, membership kept"
    TAKEN = "PARTITIONS_ASSIGNED: the application took the assignment"
    LOST = "the membership is lost or was left"


_S = GroupState
_I = GroupInput

TRANSITIONS: Final[dict[tuple[GroupState, GroupInput], GroupState]] = {
    (_S.UNJOINED, _I.JOIN): _S.PREPARING_REBALANCE,
    (_S.UNJOINED, _I.LOST): _S.UNJOINED,
    (_S.PREPARING_REBALANCE, _I.JOIN): _S.PREPARING_REBALANCE,
    (_S.PREPARING_REBALANCE, _I.JOINED): _S.COMPLETING_REBALANCE,
    (_S.PREPARING_REBALANCE, _I.TAKEN): _S.PREPARING_REBALANCE,
    (_S.PREPARING_REBALANCE, _I.LOST): _S.UNJOINED,
    (_S.COMPLETING_REBALANCE, _I.SYNCED): _S.ASSIGNING_PARTITIONS,
    (_S.COMPLETING_REBALANCE, _I.RESTART): _S.PREPARING_REBALANCE,
    (_S.COMPLETING_REBALANCE, _I.TAKEN): _S.COMPLETING_REBALANCE,
    (_S.COMPLETING_REBALANCE, _I.LOST): _S.UNJOINED,
    (_S.ASSIGNING_PARTITIONS, _I.JOIN): _S.PREPARING_REBALANCE,
    (_S.ASSIGNING_PARTITIONS, _I.TAKEN): _S.STABLE,
    (_S.ASSIGNING_PARTITIONS, _I.LOST): _S.UNJOINED,
    (_S.STABLE, _I.JOIN): _S.PREPARING_REBALANCE,
    (_S.STABLE, _I.TAKEN): _S.STABLE,
    (_S.STABLE, _I.LOST): _S.UNJOINED,
}


def next_group_state(state: GroupState, event: GroupInput) -> GroupState:
    """The state after the event. Raises `IllegalTransitionError` where the table has no row."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransitionError(f"group: {event.name} in {state.name}") from None
