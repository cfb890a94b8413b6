"""JoinGroup (key 11): enter a group, or its next generation."""

from __future__ import annotations

from typing import Final

from instride.wire.api import GroupMember, JoinGroup, JoinGroupAnswer
from instride.wire.codecs.base import ANY_VERSION, Needs, many_bytes, message_codec
from instride.wire.entities import Fields, milliseconds

__all__ = ["CODEC"]

# Brokers refuse longer ones (KIP-800).
_MAX_REASON: Final = 255


def _needs(request: JoinGroup) -> Needs:
    if request.group_instance_id is None:
        return ANY_VERSION
    return Needs(lowest=5, because="group_instance_id is set (static membership)")


def _fields(request: JoinGroup, _version: int) -> Fields:
    return {
        "group_id": request.group_id,
        "session_timeout": milliseconds(request.session_timeout),
        "rebalance_timeout": milliseconds(request.rebalance_timeout),
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
        "protocol_type": request.protocol_type,
        "protocols": [{"name": each.name, "metadata": each.metadata} for each in request.protocols],
        "reason": None if request.reason is None else request.reason[:_MAX_REASON],
    }


def _answer(fields: Fields, _request: JoinGroup) -> JoinGroupAnswer:
    return JoinGroupAnswer(
        error=fields["error_code"],
        generation=fields["generation_id"],
        protocol_type=fields.get("protocol_type"),
        protocol=fields["protocol_name"],
        leader=fields["leader"],
        skip_assignment=fields.get("skip_assignment", False),
        member_id=fields["member_id"],
        members=tuple(map(_member, fields["members"])),
    )


def _member(fields: Fields) -> GroupMember:
    return GroupMember(
        member_id=fields["member_id"],
        metadata=fields["metadata"],
        group_instance_id=fields.get("group_instance_id"),
    )


CODEC = message_codec(
    most_bytes=many_bytes,
    name="JoinGroup",
    api_key=11,
    versions=(0, 9),
    flexible_from=6,
    fields=_fields,
    answer=_answer,
    needs=_needs,
)
