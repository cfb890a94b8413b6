"""Who may do what with a partition, from its assignment to its revocation or loss (KIP-983): the table.

There is one machine for each partition and assignment epoch. The story, and the file of each step:

1. The group assigns the partition: OWNED. Polls return its records. (`_core/network/assignment.py`)
2. The group requests the revocation, or an eager member is to join: REVOKE_NEXT. Polls return no more records of it.
   (`_core/network/assignment.py` sends the event, `_core/application/revoke_lists.py` takes it)
3. The application delays it (`delay_revoke`): REVOKE_THEREAFTER, until the next poll. (the same file)
4. The next poll starts, and nobody delayed it: COMPLETING. (`_core/application/revoke_lists.py`)
5. The last commits have their results, and the listener has returned: REVOKED. The member joins without the partition.
   (`_core/network/assignment.py`, `_core/network/group.py`)
6. The group assigns it again before step 4: OWNED, as if nothing had happened. (`_core/network/assignment.py`)
7. The membership is over (`_core/network/group.py`), or the deadline of a delayed revoke has passed
   (`_core/network/assignment.py`, law 4): LOST.

What an observer hears of these steps, and the events of telemetry: `_core/application/ownership_view.py`.

Laws
1. The table below is the machine. A pair of state and input that it does not have is a bug and raises; a row that no
   simulated history takes is no part of it.
2. OWNED is the only state in which polls return records.
3. REVOKED and LOST are final. The same partition, assigned again, is a new machine with a higher epoch.
4. Two machines share it: the application machine moves it between OWNED, REVOKE_NEXT and REVOKE_THEREAFTER; the network
   machine moves it to COMPLETING and REVOKED. What crosses between them carries the epoch.
5. The columns of the protocols differ in one row only: what a reassignment means (docs/rebalance.md, rule 8).
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final

__all__ = [
    "IllegalTransitionError",
    "Ownership",
    "OwnershipInput",
    "RebalanceProtocol",
    "TRANSITIONS",
    "next_ownership",
]


class RebalanceProtocol(IntEnum):
    """The rebalance protocols, lowest first: the highest that all assignors of a consumer support is used (KIP-429).

    EAGER: every partition is revoked before a join. COOPERATIVE: only what moves is. CONSUMER: KIP-848.
    """

    EAGER = 0
    COOPERATIVE = 1
    CONSUMER = 2


class Ownership(Enum):
    """State of a partition in one assignment epoch."""

    OWNED = "owned"
    REVOKE_NEXT = "to be revoked"
    REVOKE_THEREAFTER = "delayed"
    COMPLETING = "completing"
    REVOKED = "revoked"
    LOST = "lost"


class OwnershipInput(Enum):
    REVOCATION_REQUESTED = "the group requests its revocation"
    DELAYED = "delay_revoke"
    POLL_STARTED = "start of a poll"
    RELEASED = "close, unsubscribe or immediate mode"
    REASSIGNED = "the group assigns it again"
    COMPLETED = "the commits have their results, the listener has returned"
    LOST = "membership or deadline lost"


class IllegalTransitionError(RuntimeError):
    """The table has no such row: a bug of instride, never of its user."""


_S = Ownership
_I = OwnershipInput

# What is the same in every protocol.
_COMMON: Final[dict[tuple[Ownership, OwnershipInput], Ownership]] = {
    (_S.OWNED, _I.REVOCATION_REQUESTED): _S.REVOKE_NEXT,
    (_S.OWNED, _I.DELAYED): _S.OWNED,  # it was reassigned: nothing to delay
    (_S.OWNED, _I.RELEASED): _S.COMPLETING,
    (_S.OWNED, _I.REASSIGNED): _S.OWNED,
    (_S.OWNED, _I.LOST): _S.LOST,
    (_S.REVOKE_NEXT, _I.REVOCATION_REQUESTED): _S.REVOKE_NEXT,
    (_S.REVOKE_NEXT, _I.DELAYED): _S.REVOKE_THEREAFTER,
    (_S.REVOKE_NEXT, _I.POLL_STARTED): _S.COMPLETING,
    (_S.REVOKE_NEXT, _I.RELEASED): _S.COMPLETING,
    (_S.REVOKE_NEXT, _I.LOST): _S.LOST,
    (_S.REVOKE_THEREAFTER, _I.DELAYED): _S.REVOKE_THEREAFTER,
    # A delay is for one poll (KIP-983). So a program that stops calling delay_revoke releases the partition.
    (_S.REVOKE_THEREAFTER, _I.POLL_STARTED): _S.REVOKE_NEXT,
    (_S.REVOKE_THEREAFTER, _I.RELEASED): _S.COMPLETING,
    (_S.REVOKE_THEREAFTER, _I.LOST): _S.LOST,
    # Nothing leads back from here: the application was told that it has released the partition.
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
