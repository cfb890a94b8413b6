"""SaslHandshake (key 17): which mechanism. Version 0, after which bare bytes follow, is not spoken."""

from __future__ import annotations

from instride.wire.codecs.base import message_codec
from instride.wire.entities import Fields
from instride.wire.sasl.messages import SaslHandshake, SaslHandshakeAnswer

__all__ = ["CODEC"]


def _fields(request: SaslHandshake, _version: int) -> Fields:
    return {"mechanism": request.mechanism}


def _answer(fields: Fields, _request: SaslHandshake) -> SaslHandshakeAnswer:
    return SaslHandshakeAnswer(error=fields["error_code"], mechanisms=tuple(fields["mechanisms"]))


CODEC = message_codec(
    name="SaslHandshake", api_key=17, versions=(1, 1), flexible_from=99, fields=_fields, answer=_answer
)
