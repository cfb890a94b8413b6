"""What the coordinator's model keeps of a member, and of a group when it stores it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from instride._wire import api
from instride.errors.codes import ErrorCode
from instride.testing._simulation.links import Reply

__all__ = [
    "FENCED_INSTANCE_ID",
    "UNKNOWN_MEMBER_ID",
    "GroupMember",
    "Speaker",
    "StoredGroup",
    "new_member",
    "static_one",
    "stored_group",
    "unknown",
]

UNKNOWN_MEMBER_ID = ErrorCode.UNKNOWN_MEMBER_ID
FENCED_INSTANCE_ID = ErrorCode.FENCED_INSTANCE_ID

Speaker = api.SyncGroup | api.Heartbeat | api.OffsetCommit
"""Requests that name a member and its generation."""


@dataclass(slots=True, kw_only=True)
class GroupMember:
    """join, sync: the replies that it waits for. instance: a static member's name; None for a dynamic one."""

    id: str
    name: str
    session: float
    rebalance: float
    protocols: tuple[api.GroupProtocol, ...]
    instance: str | None = None
    join: Reply | None = None
    sync: Reply | None = None
    synced: bool = False
    assignment: bytes = b""
    expires: float = 0.0

    def waits(self) -> bool:
        return self.join is not None or self.sync is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """What another node would load."""

    generation: int = 0
    leader: str = ""
    protocol: str = ""
    members: tuple[GroupMember, ...] = field(default=())


def stored_group(generation: int, leader: str, protocol: str, members: Iterable[GroupMember]) -> StoredGroup:
    """Of each member what is stored: that it is one, and not what it waits for."""
    settled = tuple(replace(member, join=None, sync=None, synced=True) for member in members)
    return StoredGroup(generation=generation, leader=leader, protocol=protocol, members=settled)


def new_member(name: str, request: api.JoinGroup) -> GroupMember:
    return GroupMember(
        id=request.member_id,
        name=name,
        session=request.session_timeout,
        rebalance=request.rebalance_timeout,
        protocols=request.protocols,
        instance=request.group_instance_id,
    )


def static_one(members: Iterable[GroupMember], instance: str | None) -> GroupMember | None:
    """Who has the instance id."""
    if instance is None:
        return None
    return next((each for each in members if each.instance == instance), None)


def unknown(members: Mapping[str, GroupMember], request: api.JoinGroup | api.LeaveGroup | Speaker) -> int:
    """An error code, where who asks is no member, or no more: who names an instance id must be the one that has it."""
    owner = static_one(members.values(), request.group_instance_id)
    if owner is not None:
        return 0 if owner.id == request.member_id else FENCED_INSTANCE_ID
    return 0 if request.member_id in members and request.group_instance_id is None else UNKNOWN_MEMBER_ID
