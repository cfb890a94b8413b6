"""FindCoordinator (key 10): the broker that keeps a group. Version 4 and later ask for several at once."""

from __future__ import annotations

from typing import Final

from instride.errors import ProtocolError
from instride.wire.api import FindCoordinator, FindCoordinatorAnswer
from instride.wire.codecs.base import message_codec
from instride.wire.entities import Fields

__all__ = ["CODEC"]

_KEY_TYPE_GROUP: Final = 0


def _fields(request: FindCoordinator, _version: int) -> Fields:
    return {
        "key": request.group_id,
        "coordinator_keys": (request.group_id,),
        "key_type": _KEY_TYPE_GROUP,
    }


def _answer(fields: Fields, request: FindCoordinator) -> FindCoordinatorAnswer:
    found = _ours(fields["coordinators"], request.group_id) if "coordinators" in fields else fields
    return FindCoordinatorAnswer(
        error=found["error_code"],
        error_message=found.get("error_message"),
        node_id=found["node_id"],
        host=found["host"],
        port=found["port"],
    )


def _ours(coordinators: list[Fields], group_id: str) -> Fields:
    for coordinator in coordinators:
        if coordinator["key"] == group_id:
            return coordinator
    raise ProtocolError(f"the FindCoordinator response does not speak of the group {group_id!r}")


CODEC = message_codec(
    name="FindCoordinator", api_key=10, versions=(0, 6), flexible_from=3, fields=_fields, answer=_answer
)
