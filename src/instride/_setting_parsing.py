"""What texts in settings mean: addresses of servers, and where a reset leads.

Durations are spelled as in Kafka's settings: ISO 8601, as Java's ``Duration.parse`` reads it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from instride._coroutines import is_asynchronous
from instride.errors import ConfigError

__all__ = ["POLL_RECORDS", "check_telemetry", "parse_bootstrap_servers", "parse_duration", "reset_duration", "shown"]

POLL_RECORDS: Final = 500
"""What max_poll_records is where nobody sets it (as Java's)."""

_RESETS: Final = ("earliest", "latest", "none")
_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?P<time>T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)


def shown(value: object) -> str:
    """As it was given. Of an int of more than 4,300 digits Python writes none."""
    try:
        return repr(value)
    except ValueError:
        return "too long to be shown"


def check_telemetry(listener: Any) -> None:
    """Raises ConfigError for what cannot be called with an event; for `async def` too, which nobody would await."""
    if listener is not None and not callable(listener):
        raise ConfigError("telemetry must be callable with one event, or None")
    if listener is not None and is_asynchronous(listener):
        raise ConfigError("telemetry is asynchronous; a plain function is called, inside the consumer's own calls")


def parse_duration(text: str) -> float:
    """Seconds of "P1DT2H3M4.5S". Raises ValueError for anything else, a negative duration among it (KIP-1106)."""
    found = _DURATION.fullmatch(text)
    parts = found.group("days", "hours", "minutes", "seconds") if found is not None else ()
    if found is None or not any(parts) or (found["time"] or "x").upper() == "T":
        raise ValueError(f"{text!r} is not a duration such as PT1H30M or P2D")
    days, hours, minutes, seconds = (float((part or "0").replace(",", ".")) for part in parts)
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def reset_duration(setting: str | float) -> float | None:
    """How many seconds auto_offset_reset goes back; None where it names an end, or none. Raises `ConfigError`."""
    if setting in _RESETS:
        return None
    seconds = _seconds_back(setting)
    if seconds is None or not 0 <= seconds < float("inf"):
        raise ConfigError(
            'auto_offset_reset must be "earliest", "latest", "none", a number of seconds to go back, or such as '
            f'"by_duration:PT1H"; it is {shown(setting)}'
        )
    return seconds


def _seconds_back(setting: object) -> float | None:
    if isinstance(setting, str) and setting.startswith(_BY_DURATION):
        try:
            return parse_duration(setting.removeprefix(_BY_DURATION))
        except ValueError:
            return None
    if isinstance(setting, bool) or not isinstance(setting, int | float):
        return None
    try:
        return float(setting)
    except OverflowError:  # no float is as large as an int may be
        return None


def parse_bootstrap_servers(servers: str | Sequence[str]) -> tuple[tuple[str, int], ...]:
    """(host, port) of each server. IPv6 addresses stand in brackets: "[::1]:9092". Raises `ConfigError`."""
    names = servers.split(",") if isinstance(servers, str) else servers
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f'bootstrap_servers must be texts such as "localhost:9092"; it is {_kind(servers)}')
    cleaned = [name.strip() for name in names if name.strip()]
    if not cleaned:
        raise ConfigError('bootstrap_servers must name a broker, such as "localhost:9092"')
    return tuple(_parse_server(name) for name in cleaned)


def _kind(servers: object) -> str:
    """No more than that: some write a password into such a setting."""
    kinds = {type(each).__name__ for each in servers} if isinstance(servers, list | tuple) else ()
    return type(servers).__name__ + (f" of {' and '.join(sorted(kinds))}" if kinds else "")


def _parse_server(name: str) -> tuple[str, int]:
    if "@" in name:  # before anything quotes it
        raise ConfigError('bootstrap_servers: a broker is "host:port", without a user or a password')
    if ";" in name or len(name.split()) > 1:
        raise ConfigError(f"bootstrap_servers: separate the brokers of {name!r} by commas")
    host, colon, port = name.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    port = port.lstrip("0")  # `int` takes no more than 4,300 digits
    is_a_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65_535
    if not colon or host in ("", "[]") or not is_a_port:
        raise ConfigError(f'bootstrap_servers: {name!r} is not "host:port" with a port from 1 to 65535')
    if "/" in host:
        raise ConfigError(f'bootstrap_servers: {name!r} must be "host:port" without a scheme')
    if "\0" in host:
        raise ConfigError(f"bootstrap_servers: the host of {name!r} has a NUL")
    if ":" in host and not bracketed:
        raise ConfigError(f'bootstrap_servers: put the IPv6 address of {name!r} in brackets: "[::1]:9092"')
    return (host[1:-1] if bracketed else host), int(port)
