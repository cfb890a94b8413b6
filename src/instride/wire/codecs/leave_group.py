"""LeaveGroup (key 13): give up one's membership. Version 3 and later take several members at once."""

from __future__ import annotations

from typing import Final

from instride.wire.api import LeaveGroup, LeaveGroupAnswer
from instride.wire.codecs.base import ANY_VERSION, Needs, message_codec
from instride.wire.entities import Fields

__all__ = ["CODEC"]

_MAX_REASON: Final = 255


def _needs(request: LeaveGroup) -> Needs:
    if request.group_instance_id is None:
        return ANY_VERSION
    return Needs(lowest=3, because="group_instance_id is set (static membership)")


def _fields(request: LeaveGroup, _version: int) -> Fields:
    member = {
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
        "reason": None if request.reason is None else request.reason[:_MAX_REASON],
    }
    return {"group_id": request.group_id, "member_id": request.member_id, "members": [member]}


def _answer(fields: Fields, _request: LeaveGroup) -> LeaveGroupAnswer:
    # We name one member, so any code in the list is ours.
    codes = [fields["error_code"], *(member["error_code"] for member in fields.get("members", ()))]
    return LeaveGroupAnswer(error=next((code for code in codes if code), 0))


CODEC = message_codec(
    name="LeaveGroup",
    api_key=13,
    versions=(0, 5),
    flexible_from=4,
    fields=_fields,
    answer=_answer,
    needs=_needs,
)
