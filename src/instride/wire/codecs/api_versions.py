"""ApiVersions (key 18): which requests in which versions a broker speaks, and who is asking (KIP-511)."""

from __future__ import annotations

import functools
import re
from importlib import metadata

from instride.wire.api import ApiVersions, ApiVersionsAnswer
from instride.wire.codecs.base import message_codec
from instride.wire.entities import Fields

__all__ = ["CODEC", "software_version"]


@functools.cache
def software_version() -> str:
    """Our version in the letters that brokers take: digits, letters, and ``-`` and ``.`` inside."""
    try:
        version = metadata.version("instride")
    except metadata.PackageNotFoundError:
        return "unknown"
    return re.sub(r"[^a-zA-Z0-9.]", "-", version).strip("-.") or "unknown"


def _fields(_request: ApiVersions, _version: int) -> Fields:
    return {"client_software_name": "instride", "client_software_version": software_version()}


def _answer(fields: Fields, _request: ApiVersions) -> ApiVersionsAnswer:
    return ApiVersionsAnswer(
        error=fields["error_code"],
        versions={key["api_key"]: (key["min_version"], key["max_version"]) for key in fields["api_keys"]},
    )


CODEC = message_codec(name="ApiVersions", api_key=18, versions=(0, 4), flexible_from=3, fields=_fields, answer=_answer)
