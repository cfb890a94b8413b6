"""The `storage_options` of an object store, in the types that its client takes.

Laws
1. A switch is "true" or "false", a time a number with its unit, an endpoint an HTTP(S) URL; no value but a certificate
   or a key's file holds control characters. Anything else is refused by the option's name, and so is an option that is
   given twice. The client would panic at some of these, with the first request.
2. No message holds a value: it may be a secret.
3. A request ends, in an error if need be, `timeout` after it began. What failed is asked again for `retry_timeout`, and
   no longer. Both have defaults here, whatever the client's are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from instride.errors import ConfigError

__all__ = ["ClientOptions", "parse_client_options"]

_DEFAULTS: Final = {"connect_timeout": "5 s", "timeout": "30 s", "retry_timeout": "3 min"}
_TIMES: Final = frozenset({*_DEFAULTS, "read_timeout", "pool_idle_timeout"})
_SWITCHES: Final = frozenset({"allow_http", "allow_invalid_certificates", "http1_only", "http2_only"})
# What obstore takes apart from the store's own settings: of its HTTP client.
_HTTP: Final = (
    _SWITCHES
    | (_TIMES - {"retry_timeout"})
    | {
        "pool_max_idle_per_host",
        "proxy_url",
        "proxy_ca_certificate",
        "proxy_excludes",
        "root_certificate",
        "user_agent",
    }
)
# Of the stores, whose names have a prefix or none: obstore takes "1", "on" and "yes" too, and of one of them any text.
_STORES_SWITCHES: Final = re.compile(
    r"(aws_|azure_storage_|azure_|google_|object_store_)?"
    r"(skip_signature|unsigned_payload|virtual_hosted_style_request|disable_tagging|disable_bulk_delete|s3_express"
    r"|imdsv1_fallback|sse_bucket_key_enabled|use_emulator|use_fabric_endpoint|use_azure_cli)"
)
_ENDPOINTS: Final = re.compile(r"(.*_)?(endpoint|endpoint_url|endpoint_url_s3|base_url)")
# A user and password, too, are in front of the path, and nothing is behind it.
_URL: Final = re.compile(r"https?://[!-~]+", re.IGNORECASE)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
# PEM and JSON have lines.
_TEXTS: Final = re.compile(r"root_certificate|proxy_ca_certificate|(google_)?service_account_key")
_SPAN: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([a-z]+)\s*")
_MOST: Final = 86_400.0
_SECONDS: Final = {
    **dict.fromkeys(("ms", "msec"), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3_600.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Secrets may be in both, so keep it out of every message. store: of the store. http: of the HTTP client.

    retry_timeout: seconds.
    """

    store: dict[str, str]
    http: dict[str, Any]
    retry_timeout: float

    def retry(self, retries: int) -> dict[str, Any]:
        """obstore's settings of what is sent again."""
        return {"max_retries": retries, "retry_timeout": timedelta(seconds=self.retry_timeout)}


def parse_client_options(options: Mapping[str, str]) -> ClientOptions:
    """Names in any case. Raises ConfigError, which names the option."""
    names: dict[str, str] = {}
    for name in options:
        if name.lower() in names:
            one, other = sorted((names[name.lower()], name))
            raise ConfigError(f"storage_options: {one} and {other} are one option: give it once")
        names[name.lower()] = name
    given: dict[str, Any] = {**_DEFAULTS, **{name.lower(): value for name, value in options.items()}}
    for name, value in given.items():
        _check_characters(name, value)
        if name in _TIMES:
            given[name] = timedelta(seconds=_seconds(name, value))
        elif name in _SWITCHES:
            given[name] = _is_on(name, value)
        elif _STORES_SWITCHES.fullmatch(name):
            given[name] = str(_is_on(name, value)).lower()
        elif _ENDPOINTS.fullmatch(name):
            _check_endpoint(name, value)
    retry_timeout = given.pop("retry_timeout").total_seconds()
    return ClientOptions(
        store={name: value for name, value in given.items() if name not in _HTTP},
        http={name: value for name, value in given.items() if name in _HTTP},
        retry_timeout=retry_timeout,
    )


def _check_characters(name: str, value: str) -> None:
    if _CONTROL.search(value) and not _TEXTS.fullmatch(name):
        raise ConfigError(
            f"storage_options: {name} holds a control character, such as the newline at the end of a file: take it out"
        )


def _check_endpoint(name: str, value: str) -> None:
    if not _is_url(value):
        raise ConfigError(
            f"storage_options: {name} must begin with http:// or https://, and hold no spaces, no ? and no #, such as "
            '"http://minio:9000"'
        )


def _is_url(value: str) -> bool:
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        return False
    return bool(_URL.fullmatch(value) and parts.hostname) and not (parts.query or parts.fragment or "@" in parts.path)


def _is_on(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ConfigError(f'storage_options: {name} must be "true" or "false"')
    return value.lower() == "true"


def _seconds(name: str, value: str) -> float:
    text = value.strip().lower()
    spans = _SPAN.findall(text)
    if not spans or _SPAN.sub("", text) or any(unit not in _SECONDS for _, unit in spans):
        raise ConfigError(
            f'storage_options: {name} must be a time with its unit: "500 ms", "30 s", "3 min", "1 h 30 m"'
        )
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in spans)
    if not 0.001 <= seconds <= _MOST:
        raise ConfigError(f"storage_options: {name} must be from 1 ms to 24 h")
    return seconds
