"""`instride dead-letters` shows letters that anyone may have written: no terminal obeys them, no number ends it."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from typer.testing import CliRunner

from instride import ConsumerRecord, PartitionInfo, TopicPartition
from instride._cli import dead_letters, main

EVIL = "\x1b]0;owned\x07\r\n\u202e\x9b2J"
TOLD = {
    "topic": EVIL,
    "partition": "0",
    "offset": "1",
    "timestamp": str((1 << 63) - 1),
    "group": EVIL,
    "attempts": "3",
    "error": EVIL,
    "message": f"{EVIL} no café: ж",
}
HEADERS = ((EVIL, EVIL.encode()), *((f"instride.{name}", text.encode()) for name, text in TOLD.items()))
LETTER: ConsumerRecord[Any, Any] = ConsumerRecord("dlq", 0, 7, key=EVIL.encode(), value=EVIL.encode(), headers=HEADERS)


class Reader:
    def letters(self) -> Iterator[ConsumerRecord[Any, Any]]:
        yield LETTER

    def letter(self, *_: int) -> ConsumerRecord[Any, Any]:
        return LETTER


@contextmanager
def reader(*_: Any, **__: Any) -> Iterator[Reader]:
    yield Reader()


COMMANDS = pytest.mark.parametrize("command", [["list", "dlq"], ["show", "dlq", "0:7"]])


@COMMANDS
def test_an_output_that_cannot_show_a_letter_shows_its_code(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a locale with another encoding than UTF-8."""
    output = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(sys, "argv", ["instride", "dead-letters", *command])
    monkeypatch.setattr(dead_letters, "_reader", reader)
    with pytest.raises(SystemExit, match="0"):
        main()
    output.seek(0)
    assert "no café: \\u0436" in output.read()


@COMMANDS
def test_no_terminal_obeys_a_letter(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "_reader", reader)
    done = CliRunner().invoke(dead_letters.app, command)
    assert done.exit_code == 0, done.exception
    assert all(line.isprintable() for line in done.stdout.split("\n"))
    assert "owned" in done.stdout


def test_an_absent_broker_is_named_when_the_time_is_out() -> None:
    done = CliRunner().invoke(
        dead_letters.app, ["list", "dlq", "--bootstrap-servers", "localhost:1", "--timeout", "0.1"]
    )
    assert done.exit_code == 1
    assert "localhost:1 did not respond in 0.1 s (--timeout)" in done.stderr


@pytest.mark.parametrize("topic", ["", "\udcff"])
def test_a_name_that_no_topic_has_is_told_in_one_line(topic: str) -> None:
    done = CliRunner().invoke(dead_letters.app, ["list", topic, "--bootstrap-servers", "localhost:1"])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"instride dead-letters: {topic!r} is no topic: ")


def test_an_offset_of_too_many_digits_is_no_place() -> None:
    done = CliRunner().invoke(dead_letters.app, ["show", "dlq", f"0:{5000 * '9'}"])
    assert done.exit_code == 2, done.exception


class Silent:
    """A consumer that knows where the topic ends, and whose broker is gone then."""

    def __init__(self, **_: Any) -> None:
        self.polls = 0
        self._positions = [2, 0]

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None: ...

    def partitions_for(self, topic: str, **_: Any) -> list[PartitionInfo]:
        return [PartitionInfo(topic=topic, partition=0, leader=None)]

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._assigned = partitions

    def assignment(self) -> list[TopicPartition]:
        return self._assigned

    def seek_to_end(self, *_: TopicPartition) -> None: ...

    seek_to_beginning = seek_to_end

    def position(self, _: TopicPartition, **__: Any) -> int:
        return self._positions.pop(0) if len(self._positions) > 1 else self._positions[0]

    def poll(self, *, timeout: float) -> list[Any]:
        self.polls += 1
        return []


def test_a_broker_that_goes_while_letters_are_read_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = Silent()
    monkeypatch.setattr(dead_letters, "Consumer", lambda **_: silent)
    done = CliRunner().invoke(dead_letters.app, ["list", "dlq", "--bootstrap-servers", "b:1", "--timeout", "5"])
    assert done.exit_code == 1
    assert "b:1 did not respond in 5 s (--timeout)" in done.stderr
    assert silent.polls == 5
