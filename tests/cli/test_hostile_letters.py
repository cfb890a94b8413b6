"""`instride dead-letters` shows letters that anyone may have written: no terminal obeys them, no number ends it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from typer.testing import CliRunner

from instride import ConsumerRecord
from instride._cli import dead_letters

EVIL = "\x1b]0;owned\x07\r\n\u202e\x9b2J"
TOLD = {
    "topic": EVIL,
    "partition": "0",
    "offset": "1",
    "timestamp": str((1 << 63) - 1),
    "group": EVIL,
    "attempts": "3",
    "error": EVIL,
    "message": EVIL,
}
HEADERS = ((EVIL, EVIL.encode()), *((f"instride.{name}", text.encode()) for name, text in TOLD.items()))
LETTER: ConsumerRecord[Any, Any] = ConsumerRecord("dlq", 0, 7, key=EVIL.encode(), value=EVIL.encode(), headers=HEADERS)


class Reader:
    def letters(self) -> Iterator[ConsumerRecord[Any, Any]]:
        yield LETTER

    def letter(self, *_: int) -> ConsumerRecord[Any, Any]:
        return LETTER


@pytest.mark.parametrize("command", [["list", "dlq"], ["show", "dlq", "0:7"]])
def test_no_terminal_obeys_a_letter(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def reader(*_: Any, **__: Any) -> Iterator[Reader]:
        yield Reader()

    monkeypatch.setattr(dead_letters, "_reader", reader)
    done = CliRunner().invoke(dead_letters.app, command)
    assert done.exit_code == 0, done.exception
    assert all(line.isprintable() for line in done.stdout.split("\n"))
    assert "owned" in done.stdout
