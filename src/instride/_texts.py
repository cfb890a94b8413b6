"""What Kafka's protocol can carry as a text. One that it cannot would end a connection, again at each attempt."""

from __future__ import annotations

from typing import Final

__all__ = ["MOST_BYTES", "not_sendable"]

MOST_BYTES: Final = 32_767
"""Of a text's length in the protocol: 16 bits with a sign. A broker ends the connection over a longer one."""


def not_sendable(text: str) -> str:
    """Why no request can carry it: the end of a sentence about it. "" for a text that one can."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "has a character that cannot be sent (half of a surrogate pair)"
    return f"takes {size} bytes; {MOST_BYTES} is the most" if size > MOST_BYTES else ""
