"""SyncGroup (key 14): hand in the assignment as the leader, take one's own as a member."""

from __future__ import annotations

from instride.wire.api import SyncGroup, SyncGroupAnswer
from instride.wire.codecs.base import ANY_VERSION, Needs, many_bytes, message_codec
from instride.wire.entities import Fields

__all__ = ["CODEC"]


def _needs(request: SyncGroup) -> Needs:
    if request.group_instance_id is None:
        return ANY_VERSION
    return Needs(lowest=3, because="group_instance_id is set (static membership)")


def _fields(request: SyncGroup, _version: int) -> Fields:
    return {
        "group_id": request.group_id,
        "generation_id": request.generation,
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
        "protocol_type": request.protocol_type,
        "protocol_name": request.protocol,
        "assignments": [
            {"member_id": member_id, "assignment": assignment}
            for member_id, assignment in sorted(request.assignments.items())
        ],
    }


def _answer(fields: Fields, _request: SyncGroup) -> SyncGroupAnswer:
    return SyncGroupAnswer(error=fields["error_code"], assignment=fields["assignment"])


CODEC = message_codec(
    most_bytes=many_bytes,
    name="SyncGroup",
    api_key=14,
    versions=(0, 5),
    flexible_from=4,
    fields=_fields,
    answer=_answer,
    needs=_needs,
)
