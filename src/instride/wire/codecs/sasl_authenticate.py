"""SaslAuthenticate (key 36): one message of a mechanism each way."""

from __future__ import annotations

from instride.wire.codecs.base import message_codec
from instride.wire.entities import Fields
from instride.wire.sasl.messages import SaslAuthenticate, SaslAuthenticateAnswer

__all__ = ["CODEC"]


def _fields(request: SaslAuthenticate, _version: int) -> Fields:
    return {"auth_bytes": request.auth_bytes}


def _answer(fields: Fields, _request: SaslAuthenticate) -> SaslAuthenticateAnswer:
    return SaslAuthenticateAnswer(
        error=fields["error_code"],
        error_message=fields["error_message"] or "",
        auth_bytes=bytes(fields["auth_bytes"]),
        session_lifetime=max(0, fields.get("session_lifetime", 0)) / 1000.0,
    )


CODEC = message_codec(
    name="SaslAuthenticate", api_key=36, versions=(0, 2), flexible_from=2, fields=_fields, answer=_answer
)
