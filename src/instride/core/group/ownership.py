"""Who may do what with a partition: the KIP-983 table, one machine for each partition and assignment epoch.

Laws
1. The table below is the machine. A pair of state and input that it does not have is a bug and raises; a row that no
   simulated history takes is no part of it.
2. OWNED is the only state in which records are handed out.
3. REVOKED and LOST are final. The same partition, assigned again, is a new machine with a higher epoch.
4. Two owners share it: the application machine moves OWNED, REVOKE_NEXT and REVOKE_THEREAFTER; the network
   machine, COMPLETING and REVOKED. What crosses between them carries the epoch.
5. The columns of the protocols differ in one row only: what giving back means (docs/rebalance.md, rule 8).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from instride.core.group.protocol import RebalanceProtocol

__all__ = ["TRANSITIONS", "IllegalTransitionError", "Ownership", "OwnershipInput", "next_ownership"]


class Ownership(Enum):
    """State of a partition in one assignment epoch."""

    OWNED = "owned"
    REVOKE_NEXT = "to be revoked"
    REVOKE_THEREAFTER = "delayed"
    COMPLETING = "completing"
    REVOKED = "revoked"
    LOST = "lost"


class OwnershipInput(Enum):
    REVOCATION_REQUESTED = "the group asks for it"
    DELAYED = "delay_revoke"
    POLL_STARTED = "start of a poll"
    LET_GO = "close, unsubscribe or immediate mode"
    REASSIGNED = "the group assigns it again"
    COMPLETED = "commits answered, listener done"
    LOST = "membership or deadline lost"


class IllegalTransitionError(RuntimeError):
    """The table has no such row: a bug of instride, never of its user."""


_S = Ownership
_I = OwnershipInput

# What is the same in every protocol.
_COMMON: Final[dict[tuple[Ownership, OwnershipInput], Ownership]] = {
    (_S.OWNED, _I.REVOCATION_REQUESTED): _S.REVOKE_NEXT,
    (_S.OWNED, _I.DELAYED): _S.OWNED,  # it was given back: nothing to delay
    (_S.OWNED, _I.LET_GO): _S.COMPLETING,
    (_S.OWNED, _I.REASSIGNED): _S.OWNED,
    (_S.OWNED, _I.LOST): _S.LOST,
    (_S.REVOKE_NEXT, _I.REVOCATION_REQUESTED): _S.REVOKE_NEXT,
    (_S.REVOKE_NEXT, _I.DELAYED): _S.REVOKE_THEREAFTER,
    (_S.REVOKE_NEXT, _I.POLL_STARTED): _S.COMPLETING,
    (_S.REVOKE_NEXT, _I.LET_GO): _S.COMPLETING,
    (_S.REVOKE_NEXT, _I.LOST): _S.LOST,
    (_S.REVOKE_THEREAFTER, _I.DELAYED): _S.REVOKE_THEREAFTER,
    (_S.REVOKE_THEREAFTER, _I.POLL_STARTED): _S.REVOKE_NEXT,
    (_S.REVOKE_THEREAFTER, _I.LET_GO): _S.COMPLETING,
    (_S.REVOKE_THEREAFTER, _I.LOST): _S.LOST,
    (_S.COMPLETING, _I.REVOCATION_REQUESTED): _S.COMPLETING,
    (_S.COMPLETING, _I.REASSIGNED): _S.COMPLETING,  # the revoke finishes; assigned anew in a new epoch
    (_S.COMPLETING, _I.COMPLETED): _S.REVOKED,
    (_S.COMPLETING, _I.LOST): _S.LOST,
}

_CLASSIC: Final = {
    (_S.REVOKE_NEXT, _I.REASSIGNED): _S.OWNED,
    (_S.REVOKE_THEREAFTER, _I.REASSIGNED): _S.OWNED,
}

# KIP-848: only the acknowledgement brings it back, so the revoke goes on.
_KIP848: Final = {
    (_S.REVOKE_NEXT, _I.REASSIGNED): _S.REVOKE_NEXT,
    (_S.REVOKE_THEREAFTER, _I.REASSIGNED): _S.REVOKE_THEREAFTER,
}

TRANSITIONS: Final[dict[RebalanceProtocol, dict[tuple[Ownership, OwnershipInput], Ownership]]] = {
    RebalanceProtocol.EAGER: {**_COMMON, **_CLASSIC},
    RebalanceProtocol.COOPERATIVE: {**_COMMON, **_CLASSIC},
    RebalanceProtocol.CONSUMER: {**_COMMON, **_KIP848},
}


def next_ownership(protocol: RebalanceProtocol, state: Ownership, event: OwnershipInput) -> Ownership:
    """The state after the event. Raises `IllegalTransitionError` where the table has no row."""
    try:
        return TRANSITIONS[protocol][state, event]
    except KeyError:
        raise IllegalTransitionError(f"{protocol.name}: {event.name} in {state.name}") from None
