"""Durations as Kafka's settings spell them (ISO 8601, as Java's ``Duration.parse`` reads it)."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["parse_duration"]

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?P<time>T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)


def parse_duration(text: str) -> float:
    """Seconds of "P1DT2H3M4.5S". Raises ValueError for anything else, a negative duration among it (KIP-1106)."""
    found = _DURATION.fullmatch(text)
    parts = found.group("days", "hours", "minutes", "seconds") if found is not None else ()
    if found is None or not any(parts) or (found["time"] or "x").upper() == "T":
        raise ValueError(f"{text!r} is not a duration such as PT1H30M or P2D")
    days, hours, minutes, seconds = (float((part or "0").replace(",", ".")) for part in parts)
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
