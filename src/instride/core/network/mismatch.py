"""A group that shares no assignor with us: the broker says only that; so its coordinator is asked what the group uses.

Laws
1. The question changes nothing: whatever becomes of it, the user hears of the mismatch, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from instride.core.network.coordinator import Coordinator
from instride.errors import InconsistentGroupProtocolError
from instride.wire import api

__all__ = ["ask", "mismatch"]

_OURS: Final = "consumer"
_NAMED: Final = 5


def ask(
    coordinator: Coordinator,
    group_id: str,
    assignors: Sequence[str],
    on_done: Callable[[InconsistentGroupProtocolError, float], None],
    now: float,
) -> None:
    """Calls `on_done` with the error to raise, once the coordinator has answered or has not in time."""
    request = api.DescribeGroup(group_id=group_id)
    coordinator.send(request, lambda result, then: on_done(mismatch(group_id, assignors, result), then), now)


def mismatch(group_id: str, assignors: Sequence[str], found: object) -> InconsistentGroupProtocolError:
    """found: the coordinator's answer, or why there is none."""
    offered = ", ".join(assignors)
    said = (
        f"group {group_id!r} cannot be joined: it has no assignor in common with this consumer, which offers {offered}."
    )
    if not isinstance(found, api.DescribeGroupResponse) or found.error:
        why = f"error code {found.error}" if isinstance(found, api.DescribeGroupResponse) else found
        hint = "Set assignors to what its members use, or choose another group_id."
        return InconsistentGroupProtocolError(f"{said} What the group uses could not be learnt ({why}). {hint}")
    return InconsistentGroupProtocolError(f"{said} {_hint(found, assignors)}")


def _hint(group: api.DescribeGroupResponse, assignors: Sequence[str]) -> str:
    if group.protocol_type not in ("", _OURS):
        return f"The group is not one of consumers but of {group.protocol_type!r}: choose another group_id."
    names = list(dict.fromkeys(group.clients))
    members = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    with_whom = f" (members: {members})" if members else ""
    if not group.protocol:
        return f"The group{with_whom} has not chosen its assignor yet: set assignors to one that its members have."
    listed = [*assignors, group.protocol]
    return (
        f"The group{with_whom} uses {group.protocol!r}: set assignors to a list with it, as {listed!r}, or choose"
        " another group_id."
    )
