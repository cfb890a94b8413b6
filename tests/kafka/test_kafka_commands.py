"""`instride dead-letters` and `instride run` at a real Kafka, and output topics with the real producer."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka_help import PATIENCE, settings, tps, until
from typer.testing import CliRunner

from filled_topics import fill
from instride import Consumer, ConsumerRecord, OutputRecord, Processor
from instride._cli._app import app
from instride._processing.commit_metadata import Remembered, decode
from instride._processing.dead_letters import dead_letter
from instride.testing import LocalKafka

INSTRIDE = Path(sysconfig.get_path("scripts")) / "instride"


def read(kafka: LocalKafka, topic: str, partitions: int, count: int) -> list[ConsumerRecord[Any, Any]]:
    found: list[ConsumerRecord[Any, Any]] = []
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest") as reader:
        reader.assign(tps(topic, *range(partitions)))
        until(lambda: found.extend(reader.poll(timeout=0.1)) or len(found) >= count)  # type: ignore[func-returns-value]
    return found


def command(kafka: LocalKafka, *arguments: str) -> list[str]:
    ended = CliRunner().invoke(app, [*arguments, "--bootstrap-servers", kafka.bootstrap_servers])
    assert ended.exit_code == 0, ended.output
    return ended.stdout.splitlines()


@pytest.mark.drawn(3, "commands")
def test_outputs_are_in_their_topic_when_the_offset_moves(
    kafka: LocalKafka, kafka_topic: Callable[..., str], group: str
) -> None:
    topic, bills = kafka_topic(1), kafka_topic(2)
    fill(kafka, topic, {0: 20})

    def bill(record: ConsumerRecord[Any, Any]) -> OutputRecord:
        return OutputRecord(value=b"bill %d" % record.offset, key=b"k", partition=1, headers=(("h", b"1"),))

    with (
        Processor(bill, topics=[topic], output=bills, commit_interval=0.1).running(**settings(kafka, group)),
        Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=group) as reader,
    ):
        (where,) = tps(topic, 0)

        def is_committed() -> bool:
            found = reader.committed(where, timeout=PATIENCE)[where]
            return found is not None and found.offset == 20

        until(is_committed)
        found = read(kafka, bills, 2, 20)
    assert {(each.partition, each.key, each.headers) for each in found} == {(1, b"k", (("h", b"1"),))}
    assert {each.value for each in found} == {b"bill %d" % number for number in range(20)}


@pytest.mark.drawn(3, "commands")
def test_dead_letters_are_listed_shown_and_sent_again_once(
    kafka: LocalKafka, kafka_topic: Callable[..., str], group: str
) -> None:
    topic, letters = kafka_topic(2), kafka_topic(1)
    fill(kafka, topic, {1: 3})

    def handle(record: ConsumerRecord[Any, Any]) -> None:
        raise ValueError("no such\x1b order")

    processor = Processor(handle, topics=[topic], order="partition", dead_letters=letters)
    with processor.running(**settings(kafka, group)) as running:
        until(lambda: running.tally().dead_lettered == 3)
    listed = command(kafka, "dead-letters", "list", letters)
    assert listed == [
        f"0:{number}  {topic} 1:{number}  1  builtins.ValueError  no such\\x1b order" for number in range(3)
    ]
    shown = command(kafka, "dead-letters", "show", letters, "0:1")
    assert shown[0].startswith(f"from      {topic} 1:1, written 20")
    assert f"group     {group}, 1 attempt" in shown
    assert "value     b'1:1'" in shown

    with pytest.raises(AssertionError, match=r"instride-replay-.* has no offset of"):
        command(kafka, "dead-letters", "replay", letters)
    first = ("replay", letters, "--from-beginning")
    assert command(kafka, "dead-letters", *first) == ["0:0  sent", "0:1  sent", "0:2  sent"]
    assert command(kafka, "dead-letters", "replay", letters) == [], "they were sent before"
    assert command(kafka, "dead-letters", "replay", letters, "--at", "0:2") == ["0:2  sent"]
    again = read(kafka, topic, 2, 7)
    assert [(each.partition, each.value, each.headers) for each in again] == [
        (1, value, ()) for value in (b"1:0", b"1:1", b"1:2", b"1:0", b"1:1", b"1:2", b"1:2")
    ]


@pytest.mark.drawn(3, "commands")
def test_a_letter_that_is_too_large_says_where_its_record_is(
    kafka: LocalKafka, kafka_topic: Callable[..., str], group: str
) -> None:
    """The broker refuses the first and the third, for their size, and not those beside them."""
    topic, letters = kafka_topic(1), kafka_topic(1, configs={"max.message.bytes": "20000"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in (b"x" * 30_000, b"small", b"y" * 30_000, b"last"):
        producer.produce(topic, value, b"k")
    assert producer.flush(PATIENCE) == 0

    def handle(record: ConsumerRecord[Any, Any]) -> None:
        raise ValueError("no such order")

    processor = Processor(handle, topics=[topic], order="none", dead_letters=letters)
    with processor.running(**settings(kafka, group)) as running:
        until(lambda: running.tally().dead_lettered == 4)
    found = sorted(read(kafka, letters, 1, 4), key=lambda each: dict(each.headers)["instride.offset"] or b"")
    assert [(each.key, each.value) for each in found] == [(b"k", b""), (b"k", b"small"), (b"k", b""), (b"k", b"last")]
    first = found[0].offset
    assert "left out  value (30000 bytes): too large for this topic" in command(
        kafka, "dead-letters", "show", letters, f"0:{first}"
    )
    assert len(command(kafka, "dead-letters", "replay", letters, "--from-beginning")) == 2, (
        "the others have no value to send"
    )


@pytest.mark.drawn(3, "commands")
def test_letters_after_a_refused_one_are_sent_once_in_any_number_of_replays(
    kafka: LocalKafka, kafka_topic: Callable[..., str]
) -> None:
    """Three polls of letters; the topic of the second letter's record is not there."""
    topic, letters = kafka_topic(1), kafka_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(1100):
        origin = f"{topic}-is-gone" if number == 1 else topic
        record: ConsumerRecord[Any, Any] = ConsumerRecord(origin, 0, number, value=b"%d" % number)
        letter = dead_letter(letters, record, ValueError("no such order"), 1, "billing")
        producer.produce(letters, letter.value, headers=list(letter.headers))
    assert producer.flush(PATIENCE) == 0
    replay = ["dead-letters", "replay", letters, "--bootstrap-servers", kafka.bootstrap_servers]
    for sent, more in ((1099, ["--from-beginning"]), (0, [])):
        ended = CliRunner().invoke(app, [*replay, *more])
        assert ended.exit_code == 1
        assert ended.stdout.count("  sent\n") == sent
        assert f"1 letter was refused. The first is {letters}-0@1: {topic}-is-gone: " in ended.stderr
    assert command(kafka, *replay[:3], "--skip", "0:1") == []
    assert command(kafka, *replay[:3]) == []
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=f"instride-replay-{letters}") as reader:
        ((where, end),) = reader.end_offsets(tps(letters, 0), timeout=PATIENCE).items()
        committed = reader.committed(where, timeout=PATIENCE)[where]
    assert committed is not None
    assert (end, committed.offset) == (1100, 1100)
    assert decode(committed.metadata, 1100) == Remembered(finished=((1100, 1100),))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("list", "TOPIC"), "--bootstrap-servers"),
        (("show", "TOPIC", "7:0", "--bootstrap-servers", "SERVERS"), "has no offset 0"),
        (("replay", "TOPIC", "--at", "0:5", "--bootstrap-servers", "SERVERS"), "has no offset 5"),
    ],
)
def test_a_wrong_command_says_what_to_do(
    kafka: LocalKafka, kafka_topic: Callable[..., str], arguments: tuple[str, ...], told: str
) -> None:
    meant = {"TOPIC": kafka_topic(1), "SERVERS": kafka.bootstrap_servers}
    ended = CliRunner().invoke(app, ["dead-letters", *(meant.get(each, each) for each in arguments)])
    assert ended.exit_code == 1
    assert told in ended.output


APP = """
import os, signal
from instride import Processor

def handle(record):
    if record.value == b"0:1":
        os.kill(os.getpid(), signal.SIGKILL)
    os.write(1, f"{os.getpid()} {record.partition} {record.offset}\\n".encode())

app = Processor(handle, topics=[os.environ["TOPIC"]], dead_letters=os.environ["LETTERS"], commit_interval=0.1)
settings = {
    "auto_offset_reset": "earliest", "session_timeout": 30.0, "heartbeat_interval": 0.5, "group_instance_id": "worker"
}
"""


@pytest.mark.drawn(3, "commands")
def test_workers_share_a_topic_and_a_killing_record_is_dead_lettered(
    kafka: LocalKafka, kafka_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    """Each worker that died is replaced, as the same member of the group. All other records are handled."""
    topic, letters = kafka_topic(4), kafka_topic(1)
    fill(kafka, topic, dict.fromkeys(range(4), 50))
    (tmp_path / "billing.py").write_text(APP)
    arguments = ["billing:app", "--workers", "2", "--settings", "billing:settings", "--group-id", group]
    handled: set[tuple[int, int]] = set()
    with subprocess.Popen(
        [INSTRIDE, "run", *arguments, "--bootstrap-servers", kafka.bootstrap_servers],
        cwd=tmp_path,
        env={**os.environ, "TOPIC": topic, "LETTERS": letters},
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        lines = running.stdout
        try:
            while len(handled) < 199:
                _, partition, offset = map(int, lines.readline().split())
                handled.add((partition, offset))
            (letter,) = read(kafka, letters, 1, 1)
            running.terminate()
            running.communicate(timeout=PATIENCE)
        finally:
            running.kill()
    assert running.returncode == 0
    assert (0, 1) not in handled
    assert letter.value == b"0:1"
    assert {name: value for name, value in letter.headers if name in ("instride.attempts", "instride.error")} == {
        "instride.attempts": b"3",
        "instride.error": b"instride.errors.processing.HandlerDiedError",
    }


REFUSED = """
import os
from instride import Processor

def handle(record):
    if record.offset == 1:
        raise ValueError("no such order")

def produce(letter):
    raise ConnectionError("no such broker")

app = Processor(handle, topics=[os.environ["TOPIC"]], order="none", dead_letters="letters", produce=produce)
settings = {"auto_offset_reset": "earliest"}
"""


@pytest.mark.drawn(3, "commands")
def test_a_stop_by_sigterm_with_an_unwritten_dead_letter_ends_with_status_1(
    kafka: LocalKafka, kafka_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 3})
    (tmp_path / "billing.py").write_text(REFUSED)
    arguments = ["billing:app", "--settings", "billing:settings", "--group-id", group]
    with subprocess.Popen(
        [INSTRIDE, "run", *arguments, "--bootstrap-servers", kafka.bootstrap_servers],
        cwd=tmp_path,
        env={**os.environ, "TOPIC": topic},
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stderr is not None
        try:
            while "was not written" not in running.stderr.readline():
                pass
            running.terminate()
            _, told = running.communicate(timeout=PATIENCE)
        finally:
            running.kill()
    assert running.returncode == 1
    assert f"{topic}-0 at offset 1: its dead letter is still not written (ConnectionError)" in told
    assert "DeadLettersUnwrittenError: stopped before 1 dead letter could be written" in told
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=group) as reader:
        (where,) = tps(topic, 0)
        committed = reader.committed(where, timeout=PATIENCE)[where]
    assert committed is not None
    assert committed.offset == 1
