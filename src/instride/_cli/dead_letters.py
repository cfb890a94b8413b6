"""`instride dead-letters`: look at the letters of a topic, and send their records again.

Laws
1. A letter counts as sent when the broker has acknowledged it. A refused one holds up none: the others are sent too.
   Whatever ends a replay (Ctrl-C, SIGTERM, a pipe that nobody reads), what was acknowledged is committed before, and
   no second signal cuts that commit off. A first one in the middle of a commit does.
2. The offset of a partition is that of the first letter that was refused; the commit's metadata remember which later
   ones were sent (`commit_metadata.py`). So the next replay sends none of those again.
3. A group without an offset of any partition tells nothing: either no replay was before this one, or the brokers have
   forgotten what it sent (`offsets.retention.minutes` after its last commit). Then only --from-beginning sends letters.
   Each replay of all letters commits, even if it finds none, so that time begins anew with it. The metadata of each
   commit name the topic's id. An offset beyond the log's end is of a log that was before, and so are all offsets where
   the metadata of any name another topic id: of such partitions too only --from-beginning sends letters, all of them.
4. Of the settings, which may be those of a member, a reader gets what concerns reading (`NOT_A_READERS`). A letter's
   key and value are bytes.
5. One replay of a topic at a time: before each commit the group's offsets must be those of this replay's last one, or
   it ends. So another replay, which sends the same letters, is told of, and no offset goes back; but for one that
   commits between the question and the commit.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from types import FrameType
from typing import Annotated, Any, Final, TypeAlias
from uuid import UUID

import typer

from instride._cli.targets import TargetError, settings_of
from instride._processing.commit_metadata import Remembered, decode, encode
from instride._processing.dead_letters import ConfluentProduce, NotTakenError
from instride._processing.origin import DeadLetterOrigin, replay_of
from instride._wire.decoder import ConsumerRecord
from instride.consumer import Consumer
from instride.errors import ConfigError, KafkaError, KafkaTimeoutError, OffsetMetadataTooLargeError, RecordTooLargeError
from instride.errors._quoting import counted
from instride.records import OffsetAndMetadata, TopicPartition

__all__ = ["NOT_A_READERS", "app"]

NOT_A_READERS: Final = frozenset(
    {
        "assignors",
        "auto_commit_interval",
        "commit_budget",
        "commit_start_offsets",
        "exclude_internal_topics",
        "group_instance_id",
        "heartbeat_interval",
        "interceptors",
        "key_deserializer",
        "max_poll_interval",
        "max_poll_records",
        "range_poll_interval",
        "revoke_mode",
        "session_timeout",
        "stalled_after",
        "telemetry",
        "value_deserializer",
    }
)
"""Settings that only a member of a group needs, or what handles its records. All others hold for a reader too."""

app = typer.Typer(no_args_is_help=True, help="Look at dead letters, and send their records again.")

Topic: TypeAlias = Annotated[str, typer.Argument(help="the dead-letter topic")]
Servers: TypeAlias = Annotated[str | None, typer.Option("--bootstrap-servers", help="host:port, with commas")]
Settings: TypeAlias = Annotated[
    str | None, typer.Option("--settings", help="module:name of a dict of settings, or of a function")
]
Letter: TypeAlias = "ConsumerRecord[bytes | None, bytes | None]"
Offsets: TypeAlias = dict[TopicPartition, tuple[int, str]]
"""Of a group, with the metadata of the commit."""

Timeout: TypeAlias = Annotated[
    float, typer.Option("--timeout", min=0.1, help="seconds without a response of the broker, after which it gives up")
]
_PATIENCE = 15.0
_TURN = 1.0
"""Seconds of one poll."""
_MOST_REFUSED: Final = 100
"""Letters, after which a replay ends early: then it is hardly the letters' fault, and a commit remembers no more."""
_ENDS: Final = (signal.SIGTERM, signal.SIGHUP)
_METADATA: Final = 4_000
"""Characters of a commit's metadata (the broker's offset.metadata.max.bytes is 4,096)."""


@app.command("list")
def list_letters(
    topic: Topic, bootstrap_servers: Servers = None, settings: Settings = None, timeout: Timeout = _PATIENCE
) -> None:
    """One line a letter: where it lies, where it is from, its attempts and its error."""
    with _reader(topic, settings, bootstrap_servers, timeout) as reader:
        for letter in reader.letters():
            origin = DeadLetterOrigin.of(letter)
            where = _where(letter)
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
    with _reader(topic, settings, bootstrap_servers, timeout) as reader:
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
    skip: Annotated[list[str] | None, typer.Option(help="leave this letter out for ever; may come again")] = None,
    to: Annotated[str | None, typer.Option(help="the topic, if not the one that each is from")] = None,
    bootstrap_servers: Servers = None,
    settings: Settings = None,
    from_beginning: Annotated[  # noqa: FBT002 - an option, which is given by its name
        bool,
        typer.Option(
            "--from-beginning", help="where no replay is remembered, or the topic was made again, send all letters"
        ),
    ] = False,
    timeout: Timeout = _PATIENCE,
) -> None:
    """Send the records again, as they were. Without --at all that were not replayed before: the group
    instride-replay-TOPIC has an offset of each partition, which moves when the broker has acknowledged them. It stays
    before a letter that is refused, while later ones are sent; the exit status is 1 then. Where the group has no
    offset, because this is the first replay or the brokers have forgotten it, say --from-beginning. Say it too where
    an offset is of a topic that was made again, or lost its end."""
    if at and (skip or from_beginning):
        raise typer.BadParameter("--skip and --from-beginning are for a replay of all letters, so without --at")
    left_out = {_place(each) for each in skip or ()}
    with (
        _ended_in_order(),
        _reader(topic, settings, bootstrap_servers, timeout, group=None if at else _group_of(topic)) as reader,
        _producing(reader.settings) as produce,
    ):
        if at:
            sending = _Sending([reader.letter(*_place(each)) for each in at], timeout)
            try:
                outcome = _Outcome(refused=sending.finish(to, produce))
            finally:
                sending.tell()
        else:
            if not (reader.remembers or from_beginning):
                raise _forgotten(topic, reader.strange)
            reader.commit([])  # law 3
            outcome = _replayed(reader, left_out, to, produce, timeout)
    if outcome.refused:
        _tell(outcome.text(is_of_all=not at))
        raise typer.Exit(code=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """refused: in the order in which they were sent. ended_early: letters are left that were not sent.
    is_remembered: whether the commits remember all letters that were sent."""

    refused: Sequence[_Attempt]
    ended_early: bool = False
    is_remembered: bool = True

    def text(self, *, is_of_all: bool) -> str:
        """is_of_all: not of some that were named; then there is a next time."""
        letter, is_one = self.refused[0].letter, len(self.refused) == 1
        count = f"{counted(len(self.refused), 'letter')} {'was' if is_one else 'were'} refused"
        early = ", and the replay ended early" if self.ended_early else ""
        said = f"{count}{early}. The first is {letter.topic_partition}@{letter.offset}: {self.refused[0].refused}"
        if not is_of_all:
            return said
        again = "" if self.is_remembered else ". The broker takes too little metadata, so others are sent again too"
        return f"{said}. The next replay tries again; with --skip {_where(letter)} it leaves this one out{again}"


def _forgotten(topic: str, strange: Sequence[TopicPartition]) -> ConfigError:
    if strange:
        return ConfigError(
            f"what the group {_group_of(topic)} has committed of {', '.join(map(str, strange))} does not fit what is "
            "there now: the topic was made again, or lost its end, or a transaction is still open there (then wait for "
            "its end). Say --from-beginning to send all letters there"
        )
    return ConfigError(
        f"the group {_group_of(topic)} has no offset of {topic}: no replay was before this one, or the brokers have "
        f"forgotten it (offsets.retention.minutes after it). Say --from-beginning to send all letters that `instride "
        "dead-letters list` shows, those that an earlier replay has sent or left out too"
    )


def _group_of(topic: str) -> str:
    return f"instride-replay-{topic}"


def _replayed(
    reader: _Reader, left_out: set[tuple[int, int]], to: str | None, produce: ConfluentProduce, timeout: float
) -> _Outcome:
    refused: list[_Attempt] = []
    for letters in reader.batches():
        chosen: list[Letter] = []
        for each in letters:
            if (each.partition, each.offset) in left_out:
                typer.echo(f"{_where(each)}  left out: --skip", err=True)
            else:
                chosen.append(each)
        sending, before = _Sending(chosen, timeout), [each.letter for each in refused]
        try:
            refused += sending.finish(to, produce)
        finally:
            is_remembered = _ended(sending, reader, before)
        if refused and (not is_remembered or len(refused) >= _MOST_REFUSED):
            return _Outcome(refused=refused, ended_early=True, is_remembered=is_remembered)
    return _Outcome(refused=refused)


def _ended(sending: _Sending, reader: _Reader, refused_before: Sequence[Letter]) -> bool:
    """Commits what is over, also where the sending was interrupted; then tells of it, also where the commit fails. If
    both fail, the sending's error is told, and the commit's is raised. Returns whether the commit remembers all."""
    cause = sys.exception()
    try:
        # Before anything is told, since nobody may be there to read it.
        with nullcontext() if cause is None else _undisturbed():
            return reader.commit([*refused_before, *sending.unsent()])
    except Exception:
        if cause is not None:
            _tell(str(cause) or type(cause).__name__)
        raise
    finally:
        sending.tell()


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """left_out: why, once that is known."""

    letter: Letter
    acknowledged: Future[Any] | None = None
    left_out: str = ""

    def begin(self, to: str | None, produce: ConfluentProduce) -> None:
        try:
            record = replay_of(self.letter, to)
        except ValueError as error:
            self.left_out = _printable(str(error))
            return
        try:
            self.acknowledged = produce(record)
        except Exception as error:  # noqa: BLE001 - a producer may refuse at once what it cannot send
            self.acknowledged = Future()
            self.acknowledged.set_exception(error)

    def error(self, patience: float = 0.0) -> BaseException | None:
        """Why it is not acknowledged. Waits for it so many seconds. Raises TimeoutError."""
        return None if self.acknowledged is None else self.acknowledged.exception(patience)

    @property
    def is_known(self) -> bool:
        """Whether it is acknowledged, or refused."""
        return self.acknowledged is not None and self.acknowledged.done()

    @property
    def refused(self) -> str:
        """Why, once that is known."""
        error = self.error() if self.is_known else None
        # It may name the letter's topic, which anyone may have written.
        return "" if error is None else _printable(str(error)) or type(error).__name__

    def is_over(self) -> bool:
        """Whether the letter was left out, or is known to be acknowledged."""
        return bool(self.left_out) or (self.is_known and self.error() is None)

    def tell(self) -> None:
        """What is known of it."""
        where = _where(self.letter)
        if self.left_out:
            typer.echo(f"{where}  left out: {self.left_out}", err=True)
        elif self.refused:
            typer.echo(f"{where}  refused: {self.refused}", err=True)
        elif self.is_known:
            typer.echo(f"{where}  sent")


class _Sending:
    """Letters that are sent together. Nothing is told of them before `tell`."""

    def __init__(self, letters: Sequence[Letter], patience: float) -> None:
        """patience: seconds without an acknowledgement."""
        self._patience = patience
        self._heard_at = 0.0
        self._attempts = [_Attempt(letter=each) for each in letters]

    def finish(self, to: str | None, produce: ConfluentProduce) -> list[_Attempt]:
        """Returns when each is acknowledged, left out or refused: those that are refused. Raises NotTakenError."""
        for each in self._attempts:
            self._begin(each, to, produce)
        for each in self._attempts:
            if isinstance(self._error(each), RecordTooLargeError):
                # The broker measures a batch, so that another of its records may be the one that is too large.
                self._begin(each, to, produce)
                self._error(each)
        return [each for each in self._attempts if each.refused]

    def _begin(self, attempt: _Attempt, to: str | None, produce: ConfluentProduce) -> None:
        attempt.begin(to, produce)
        self._hear()
        if attempt.acknowledged is not None:
            attempt.acknowledged.add_done_callback(lambda _: self._hear())

    def _hear(self) -> None:
        self._heard_at = time.monotonic()

    def _error(self, attempt: _Attempt) -> BaseException | None:
        """Waits for as long as any of them is acknowledged or refused."""
        while True:
            left = self._heard_at + self._patience - time.monotonic()
            try:
                return attempt.error(max(0.0, left))
            except TimeoutError:
                if left <= 0 and not attempt.is_known:
                    raise NotTakenError(self._not_acknowledged()) from None

    def _not_acknowledged(self) -> str:
        left = [_where(each.letter) for each in self._attempts if not (each.left_out or each.is_known)]
        names = ", ".join(left[:3]) + (", ..." if len(left) > 3 else "")
        return f"not acknowledged in {self._patience:g} s (--timeout): {counted(len(left), 'record')} ({names})"

    def unsent(self) -> list[Letter]:
        """At any time: of which it is not known that they need not be sent again."""
        return [each.letter for each in self._attempts if not each.is_over()]

    def tell(self) -> None:
        for each in self._attempts:
            each.tell()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """What an earlier replay has sent of a partition: ranges [start, end) beyond the group's offset, rising."""

    topic_id: UUID | None
    ranges: Sequence[tuple[int, int]] = ()

    def has(self, offset: int) -> bool:
        return any(start <= offset < end for start, end in self.ranges)

    def commit(self, position: int, refused: Sequence[int]) -> tuple[OffsetAndMetadata, bool]:
        """Law 2: up to the position all is sent, or left out, or was refused. Whether the metadata remember the rest.

        refused: offsets, rising.
        """
        at = refused[0] if refused else position
        finished = [(one + 1, another) for one, another in pairwise([*refused, position]) if one + 1 < another]
        finished += [(max(start, position), end) for start, end in self.ranges if end > position]
        while finished and finished[0][0] == at:
            _, at = finished.pop(0)
        # Law 3: a text without ranges would not name the topic's id. So there is one in which nothing lies.
        finished = finished or [(at, at)]
        metadata = encode(at, Remembered(finished=finished), topic_id=self.topic_id, limit=_METADATA)
        remembered = decode(metadata, at, self.topic_id) or Remembered()
        return OffsetAndMetadata(offset=at, metadata=metadata), remembered.finished == tuple(finished)


class _Reader:
    """The letters from where it begins to where the topic ends now.

    settings: of the command, also for who writes. remembers: False where law 3 lets only --from-beginning send the
    letters that are there. strange: partitions with letters whose offset is of a log that was before.
    """

    def __init__(
        self, consumer: Consumer, topic: str, settings: Mapping[str, Any], timeout: float, *, from_group: bool
    ) -> None:
        self.settings = settings
        self._consumer = consumer
        self._timeout = timeout
        self._still = 0.0
        try:
            found = consumer.partitions_for(topic, timeout=self._timeout)
        except ValueError as error:
            raise ConfigError(f"{topic!r} is no topic: {error}") from None
        if not found:
            raise ConfigError(f"{topic}: there is no such topic")
        self._partitions = [TopicPartition(topic, each.partition) for each in found]
        self._sent = {TopicPartition(topic, each.partition): _Sent(topic_id=each.topic_id) for each in found}
        consumer.assign(self._partitions)
        consumer.seek_to_end(*self._partitions)
        self._ends = {each: consumer.position(each, timeout=self._timeout) for each in self._partitions}
        consumer.seek_to_beginning(*self._partitions)
        self.remembers = True
        self.strange: list[TopicPartition] = []
        self._committed: Offsets = {}
        if from_group:
            self._committed = self._group()
            self._go_to_the_groups()

    def _group(self) -> Offsets:
        found = self._consumer.committed(*self._partitions, timeout=self._timeout)
        return {each: (committed.offset, committed.metadata) for each, committed in found.items() if committed}

    def _go_to_the_groups(self) -> None:
        """Law 3. It stands at the beginning of each partition."""
        earlier = {each: sent for each, found in self._committed.items() if (sent := self._sent_before(each, *found))}
        is_another = len(earlier) < len(self._committed)
        strange = {each for each, (offset, _) in self._committed.items() if is_another or offset > self._ends[each]}
        self.strange += [each for each in self._partitions if each in strange and not self._is_over(each)]
        known = self._committed.keys() - strange
        self.remembers = not self.strange and (bool(known) or self._is_at_the_end())
        for partition in known:
            self._consumer.seek(partition, self._committed[partition][0])
            self._sent[partition] = earlier[partition]

    def _sent_before(self, partition: TopicPartition, offset: int, metadata: str) -> _Sent | None:
        """As the metadata remember it; None where they name another topic id."""
        topic_id = self._sent[partition].topic_id
        remembered = decode(metadata, offset, topic_id)
        if remembered is None and decode(metadata, offset) is not None:
            return None
        return _Sent(topic_id=topic_id, ranges=remembered.finished if remembered else ())

    def letters(self) -> Iterator[Letter]:
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[list[Letter]]:
        """Those that no earlier replay has sent, if it is the group's."""
        while not self._is_at_the_end():
            found = [each for each in self._poll() if each.offset < self._ends[each.topic_partition]]
            new = [each for each in found if not self._sent[each.topic_partition].has(each.offset)]
            if new:
                yield new

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

    def commit(self, refused: Sequence[Letter]) -> bool:
        """Up to where it has read, or to the first letter that was refused. Whether it remembers what was sent beyond.

        What came after it began, it has read perhaps, and not returned. Raises ConfigError by law 5.
        """
        offsets = {each: [one.offset for one in refused if one.topic_partition == each] for each in self._ends}
        read = {
            each: min(self._consumer.position(each, timeout=self._timeout), end) for each, end in self._ends.items()
        }
        commits = {each: self._sent[each].commit(at, offsets[each]) for each, at in read.items()}
        if self._group() != self._committed:
            raise ConfigError(
                "the group's offsets have changed meanwhile (another replay?), and the same letters were sent twice "
                "perhaps: this one ends"
            )
        try:
            self._commit({each: found for each, (found, _) in commits.items()})
        except OffsetMetadataTooLargeError:
            self._commit({each: OffsetAndMetadata(offset=found.offset) for each, (found, _) in commits.items()})
            return False
        return all(is_whole for _, is_whole in commits.values())

    def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._consumer.commit(offsets, timeout=self._timeout)
        self._committed.update((each, (found.offset, found.metadata)) for each, found in offsets.items())

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
        return all(map(self._is_over, self._ends))

    def _is_over(self, partition: TopicPartition) -> bool:
        return self._consumer.position(partition, timeout=self._timeout) >= self._ends[partition]


@contextmanager
def _reader(
    topic: str, target: str | None, servers: str | None, timeout: float, *, group: str | None = None
) -> Iterator[_Reader]:
    """target: of the settings. Errors end the command with a line that says what to do."""
    ours: dict[str, Any] = {"group_id": group, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    settings: Mapping[str, Any] = {}
    try:
        settings = settings_of(target, servers, None)
        reading = {name: value for name, value in settings.items() if name not in NOT_A_READERS}
        if not settings.get("bootstrap_servers"):
            raise ConfigError("say where Kafka is: --bootstrap-servers host:port, or --settings module:name")
        with Consumer(**{**reading, **ours}) as consumer:
            yield _Reader(consumer, topic, settings, timeout, from_group=group is not None)
    except KafkaTimeoutError as error:
        _tell(f"{settings.get('bootstrap_servers')} did not respond in {timeout:g} s (--timeout): {error}")
        raise typer.Exit(code=1) from error
    except (TargetError, ConfigError, KafkaError, ConnectionError) as error:
        _tell(str(error))
        raise typer.Exit(code=1) from error


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """By SIGTERM and SIGHUP too, which end Python at once by default. One that is ignored (by nohup) stays so."""
    is_main = threading.current_thread() is threading.main_thread()
    numbers = [each for each in _ENDS if is_main and signal.getsignal(each) is signal.SIG_DFL]

    def leave(number: int, _: FrameType | None) -> None:
        # A finalizer may swallow this: the next one is obeyed too.
        sys.exit(128 + number)

    for each in numbers:
        signal.signal(each, leave)
    try:
        yield
    finally:
        for each in numbers:
            signal.signal(each, signal.SIG_DFL)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Whatever comes now would cut off the commit that the first signal caused."""
    is_main = threading.current_thread() is threading.main_thread()
    before = {each: found for each in (signal.SIGINT, *_ENDS) if is_main and (found := signal.getsignal(each))}
    try:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        yield
    finally:
        for each, found in before.items():
            signal.signal(each, found)


@contextmanager
def _producing(settings: Mapping[str, Any]) -> Iterator[ConfluentProduce]:
    produce = ConfluentProduce(settings)
    try:
        yield produce
    finally:
        produce.close()


def _tell(text: str) -> None:
    typer.echo(f"instride dead-letters: {text}", err=True)


def _where(letter: Letter) -> str:
    """As `_place` reads it."""
    return f"{letter.partition}:{letter.offset}"


def _place(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,19}):(\d{1,19})", text)
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
