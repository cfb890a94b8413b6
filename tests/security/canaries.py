"""What must never be told: every password and key of these tests has "canary" in it, and tokens and proofs have a form.

Laws
1. It listens to every logger at DEBUG, and to the text of every error of ours that is made, shown to anybody or not.
"""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from instride.errors import KafkaError

__all__ = ["everything_told", "secrets_in"]

# As base64 has it, wherever in a longer text it stands: what is the same whatever comes before and after.
_ENCODED: Final = [base64.b64encode(b"x" * pad + b"canary")[(0, 2, 3)[pad] : 8].decode() for pad in range(3)]
_SECRET: Final = re.compile(
    "|".join(
        (
            "canary",
            *map(re.escape, _ENCODED),
            r"eyJ[\w-]{8,}\.eyJ",  # a token
            r"\bp=[A-Za-z0-9+/]{40,}",  # SCRAM's proof
        )
    )
)


def secrets_in(text: str) -> list[str]:
    """The places where a secret is, each with a little of what is around it."""
    return [text[max(0, match.start() - 60) : match.end() + 20] for match in _SECRET.finditer(text)]


class _Listening(logging.Handler):
    def __init__(self, told: list[str]) -> None:
        super().__init__(logging.DEBUG)
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        self._told.append(self.format(record))


@contextmanager
def everything_told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    told: list[str] = []

    def made(self: KafkaError, *arguments: Any) -> None:
        told.extend(map(str, arguments))
        Exception.__init__(self, *arguments)

    monkeypatch.setattr(KafkaError, "__init__", made, raising=False)
    root, handler = logging.getLogger(), _Listening(told)
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield told
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
