"""`instride dead-letters`: look at the letters of a topic, and send their records again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, TypeAlias

import typer

from instride._cli.targets import settings_of
from instride._processing.dead_letters import ConfluentProduce
from instride._processing.origin import DeadLetterOrigin, replay_of
from instride._wire.decoder import ConsumerRecord
from instride.consumer import Consumer
from instride.errors import ConfigError, KafkaError, KafkaTimeoutError
from instride.errors._quoting import counted
from instride.records import OffsetAndMetadata, TopicPartition

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Look at dead letters, and send their records again.")

Topic: TypeAlias = Annotated[str, typer.Argument(help="the dead-letter topic")]
Servers: TypeAlias = Annotated[str | None, typer.Option("--bootstrap-servers", help="host:port, with commas")]
Settings: TypeAlias = Annotated[
    str | None, typer.Option("--settings", help="module:name of a dict of settings, or of a function")
]
Letter: TypeAlias = "ConsumerRecord[bytes | None, bytes | None]"

Timeout: TypeAlias = Annotated[
    float, typer.Option("--timeout", min=0.1, help="seconds without a response of the broker, after which it gives up")
]
_PATIENCE = 15.0
_TURN = 1.0
"""Seconds of one poll."""


@app.command("list")
def list_letters(
    topic: Topic, bootstrap_servers: Servers = None, settings: Settings = None, timeout: Timeout = _PATIENCE
) -> None:
    """One line a letter: where it lies, where it is from, its attempts and its error."""
    with _reader(topic, settings_of(settings, bootstrap_servers, None), timeout) as reader:
        for letter in reader.letters():
            origin = DeadLetterOrigin.of(letter)
            where = f"{letter.partition}:{letter.offset}"
            if origin is None:
                typer.echo(f"{where}  no dead letter of a Processor")
                continue
            source = f"{_printable(origin.topic)} {origin.partition}:{origin.offset}"
            why = f"{_printable(origin.error)}  {_printable(origin.message)}"
            typer.echo(f"{where}  {source}  {origin.attempts}  {why}")


@app.command()
def show(
    topic: Topic,
    at: Annotated[str, typer.Argument(help="partition:offset, as list shows it")],
    bootstrap_servers: Servers = None,
    settings: Settings = None,
    timeout: Timeout = _PATIENCE,
) -> None:
    """All of one letter: its record, byte by byte, and why it is here."""
    place = _place(at)
    with _reader(topic, settings_of(settings, bootstrap_servers, None), timeout) as reader:
        letter = reader.letter(*place)
    origin = DeadLetterOrigin.of(letter)
    if origin is not None:
        source = f"{_printable(origin.topic)} {origin.partition}:{origin.offset}"
        typer.echo(f"from      {source}, written {_when(origin.timestamp)}")
        typer.echo(f"group     {_printable(origin.group)}, {counted(origin.attempts, 'attempt')}")
        typer.echo(f"error     {_printable(origin.error)}: {_printable(origin.message)}")
        if origin.left_out:
            typer.echo(f"left out  {_printable(origin.left_out)}: too large for this topic")
    typer.echo(f"key       {letter.key!r}")
    typer.echo(f"value     {letter.value!r}")
    for name, value in letter.headers:
        typer.echo(f"header    {_printable(name)} = {value!r}")


@app.command()
def replay(
    topic: Topic,
    at: Annotated[list[str] | None, typer.Option(help="only this letter, partition:offset; may come again")] = None,
    to: Annotated[str | None, typer.Option(help="the topic, if not the one that each is from")] = None,
    bootstrap_servers: Servers = None,
    settings: Settings = None,
    timeout: Timeout = _PATIENCE,
) -> None:
    """Send the records again, as they were. Without --at all that were not replayed before: the group
    instride-replay-TOPIC has an offset of each partition, which moves when the broker has acknowledged them."""
    found = settings_of(settings, bootstrap_servers, None)
    with (
        _reader(topic, found, timeout, group=None if at else f"instride-replay-{topic}") as reader,
        _producing(found) as produce,
    ):
        if at:
            for letter in [reader.letter(*_place(each)) for each in at]:
                _send([letter], to, produce)
            return
        for letters in reader.batches():
            _send(letters, to, produce)
            reader.commit()


def _send(letters: list[Letter], to: str | None, produce: ConfluentProduce) -> None:
    """Returns when they are acknowledged."""
    sent: list[tuple[Letter, Future[Any]]] = []
    for letter in letters:
        try:
            sent.append((letter, produce(replay_of(letter, to))))
        except ValueError as error:
            typer.echo(f"{letter.partition}:{letter.offset}  left out: {error}", err=True)
    for letter, acknowledged in sent:
        acknowledged.result()
        typer.echo(f"{letter.partition}:{letter.offset}  sent")


class _Reader:
    """The letters from where it begins to where the topic ends now."""

    def __init__(self, consumer: Consumer, topic: str, timeout: float, *, from_group: bool) -> None:
        self._consumer = consumer
        self._timeout = timeout
        self._still = 0.0
        found = consumer.partitions_for(topic, timeout=self._timeout)
        if not found:
            raise ConfigError(f"{topic}: there is no such topic")
        self._partitions = [TopicPartition(topic, each.partition) for each in found]
        consumer.assign(self._partitions)
        consumer.seek_to_end(*self._partitions)
        self._ends = {each: consumer.position(each, timeout=self._timeout) for each in self._partitions}
        consumer.seek_to_beginning(*self._partitions)
        if from_group:
            for partition, committed in consumer.committed(*self._partitions, timeout=self._timeout).items():
                if committed is not None:
                    consumer.seek(partition, committed.offset)

    def letters(self) -> Iterator[Letter]:
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[list[Letter]]:
        while not self._is_at_the_end():
            found = [each for each in self._poll() if each.offset < self._ends[each.topic_partition]]
            if found:
                yield found

    def letter(self, partition: int, offset: int) -> Letter:
        where = TopicPartition(self._partitions[0].topic, partition)
        if not 0 <= offset < self._ends.get(where, 0):
            raise ConfigError(f"{where} has no offset {offset}")
        self._consumer.assign([where])
        self._consumer.seek(where, offset)
        while self._consumer.position(where, timeout=self._timeout) <= offset:
            for each in self._poll():
                if each.offset == offset:
                    return each
        raise ConfigError(f"{where} has no record at offset {offset}")

    def commit(self) -> None:
        """Up to where it has read. What came after it began, it has read perhaps, and not returned."""
        read = {
            each: min(self._consumer.position(each, timeout=self._timeout), end) for each, end in self._ends.items()
        }
        self._consumer.commit({each: OffsetAndMetadata(offset=at) for each, at in read.items()}, timeout=self._timeout)

    def _poll(self) -> list[Letter]:
        """Raises KafkaTimeoutError where there was nothing for the time-out: before the end there always is."""
        before = self._positions()
        found = list(self._consumer.poll(timeout=_TURN))
        self._still = 0.0 if found or self._positions() != before else self._still + _TURN
        if self._still >= self._timeout:
            raise KafkaTimeoutError(f"no record came after {sorted(before.items())}")
        return found

    def _positions(self) -> dict[TopicPartition, int]:
        return {each: self._consumer.position(each, timeout=self._timeout) for each in self._consumer.assignment()}

    def _is_at_the_end(self) -> bool:
        return all(self._consumer.position(each, timeout=self._timeout) >= end for each, end in self._ends.items())


@contextmanager
def _reader(topic: str, settings: Mapping[str, Any], timeout: float, *, group: str | None = None) -> Iterator[_Reader]:
    """Errors end the command with a line that says what to do."""
    ours: dict[str, Any] = {"group_id": group, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    try:
        if not settings.get("bootstrap_servers"):
            raise ConfigError("say where Kafka is: --bootstrap-servers host:port, or --settings module:name")
        with Consumer(**{**settings, **ours}) as consumer:
            yield _Reader(consumer, topic, timeout, from_group=group is not None)
    except KafkaTimeoutError as error:
        servers = settings["bootstrap_servers"]
        typer.echo(f"instride dead-letters: {servers} did not respond in {timeout:g} s (--timeout): {error}", err=True)
        raise typer.Exit(code=1) from error
    except (ConfigError, KafkaError, ConnectionError) as error:
        typer.echo(f"instride dead-letters: {error}", err=True)
        raise typer.Exit(code=1) from error


@contextmanager
def _producing(settings: Mapping[str, Any]) -> Iterator[ConfluentProduce]:
    produce = ConfluentProduce(settings)
    try:
        yield produce
    finally:
        produce.close()


def _place(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+):(\d+)", text)
    if found is None:
        raise typer.BadParameter(f"{text!r}: write partition:offset, such as 0:17")
    return int(found[1]), int(found[2])


def _when(timestamp: int) -> str:
    """Of milliseconds since 1970. Anyone may have written the letter: any number may come."""
    try:
        return datetime.fromtimestamp(timestamp / 1000, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return f"{timestamp} ms after 1970"


def _printable(text: str) -> str:
    """In one line, and nothing that a terminal obeys: anyone may have written the letter."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
