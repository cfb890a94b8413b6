"""Heartbeat (key 12): this member lives."""

from __future__ import annotations

from instride.wire.api import Heartbeat, HeartbeatAnswer
from instride.wire.codecs.base import ANY_VERSION, Needs, message_codec
from instride.wire.entities import Fields

__all__ = ["CODEC"]


def _needs(request: Heartbeat) -> Needs:
    if request.group_instance_id is None:
        return ANY_VERSION
    return Needs(lowest=3, because="group_instance_id is set (static membership)")


def _fields(request: Heartbeat, _version: int) -> Fields:
    return {
        "group_id": request.group_id,
        "generation_id": request.generation,
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
    }


def _answer(fields: Fields, _request: Heartbeat) -> HeartbeatAnswer:
    return HeartbeatAnswer(error=fields["error_code"], throttle_time=fields.get("throttle_time", 0) / 1000)


CODEC = message_codec(
    name="Heartbeat",
    api_key=12,
    versions=(0, 4),
    flexible_from=4,
    fields=_fields,
    answer=_answer,
    needs=_needs,
)
