"""DescribeGroups (key 15): what a group is. We ask for one."""

from __future__ import annotations

from instride.errors import ProtocolError
from instride.wire.api import DescribeGroup, DescribeGroupAnswer
from instride.wire.codecs.base import many_bytes, message_codec
from instride.wire.entities import Fields

__all__ = ["CODEC"]


def _fields(request: DescribeGroup, _version: int) -> Fields:
    return {"groups": (request.group_id,), "include_authorized_operations": False}


def _answer(fields: Fields, request: DescribeGroup) -> DescribeGroupAnswer:
    for group in fields["groups"]:
        if group["group_id"] == request.group_id:
            return DescribeGroupAnswer(
                error=group["error_code"],
                protocol_type=group["protocol_type"],
                protocol=group["protocol_data"],
                clients=tuple(member["client_id"] for member in group["members"]),
            )
    raise ProtocolError(f"the DescribeGroups response does not speak of the group {request.group_id!r}")


CODEC = message_codec(
    most_bytes=many_bytes,
    name="DescribeGroups",
    api_key=15,
    versions=(0, 6),
    flexible_from=5,
    fields=_fields,
    answer=_answer,
)
