"""The programs of examples/ run as their users start them: every record once, all committed, ended by SIGTERM."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka import Producer

from instride import Consumer, TopicPartition
from instride.testing import LocalKafka

FOLDER = Path(__file__).parents[2] / "examples"
PARTITIONS, EACH = 4, 60
PATIENCE = 60.0
MEMBERS = ["process", "processes", "hand_over", "worker_pool", "changes", "ranges"]


class Program:
    """An example under way, or a module such as uvicorn, and the lines that it has printed."""

    def __init__(self, name: str, *arguments: str) -> None:
        example = FOLDER / f"{name}.py"
        program = [str(example)] if example.exists() else ["-m", name]
        command = [sys.executable, "-W", "error", *program, *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self.complaints: list[str] = []
        streams = ((self.process.stdout, self.lines), (self.process.stderr, self.complaints))
        self._readers = [threading.Thread(target=_read, args=each, daemon=True) for each in streams]
        for reader in self._readers:
            reader.start()

    def end(self, *, told: bool = True, but: str = "\n") -> None:
        """It ends well, on SIGTERM or by itself, and has complained of nothing but what begins so."""
        if told:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        self.release()
        assert (code, [each for each in self.complaints if not each.startswith(but)]) == (0, [])

    def release(self) -> None:
        """Whatever became of it: nothing is left."""
        self.process.kill()
        for reader in self._readers:
            reader.join(PATIENCE)
        with self.process:  # closes its streams
            pass


def _read(stream: Iterator[str], lines: list[str]) -> None:
    lines.extend(line.strip() for line in stream)


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    started: list[Program] = []

    def begin(name: str, *arguments: str) -> Program:
        started.append(Program(name, *arguments))
        return started[-1]

    yield begin
    for each in started:
        each.release()


@pytest.fixture
def topic(kafka_topic: Callable[..., str]) -> str:
    return kafka_topic(PARTITIONS)


def fill(kafka: LocalKafka, topic: str, numbers: range) -> Counter[str]:
    """Write these records to each partition; the lines that an example is to print."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for partition in range(PARTITIONS):
        for number in numbers:
            producer.produce(topic, str(number).encode(), key=str(number).encode(), partition=partition)
    assert producer.flush(PATIENCE) == 0
    return Counter(f"{partition} {number}" for partition in range(PARTITIONS) for number in numbers)


def wait_for_lines(count: int, *programs: Program, ended: Sequence[Program] = ()) -> None:
    """Until so many were printed by all together; those that have ended are counted, and the others go on."""
    deadline = time.monotonic() + PATIENCE
    while sum(len(each.lines) for each in (*programs, *ended)) < count:
        assert time.monotonic() < deadline, [(len(each.lines), each.complaints) for each in programs]
        assert all(each.process.poll() is None for each in programs), [each.complaints for each in programs]
        time.sleep(0.05)


def all_committed(kafka: LocalKafka, topic: str, group: str, end: int) -> None:
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=group) as reader:
        found = reader.committed(*partitions, timeout=PATIENCE)
    assert {each.partition: offset and offset.offset for each, offset in found.items()} == dict.fromkeys(
        range(PARTITIONS), end
    )


@pytest.mark.drawn(2)
@pytest.mark.kafka
@pytest.mark.parametrize("name", [*MEMBERS])
def test_a_member_handles_and_commits_all(
    kafka: LocalKafka, topic: str, start: Callable[..., Program], name: str
) -> None:
    expected = fill(kafka, topic, range(EACH))
    group = f"{name}-{uuid.uuid4().hex[:8]}"
    program = start(name, "--servers", kafka.bootstrap_servers, "--topic", topic, "--group", group)
    wait_for_lines(expected.total(), program)
    program.end()
    assert Counter(program.lines) == expected
    all_committed(kafka, topic, group, EACH)


@pytest.mark.drawn(3, "examples")
@pytest.mark.kafka
def test_a_processor_of_coroutines_handles_and_commits_all(
    kafka: LocalKafka, topic: str, start: Callable[..., Program]
) -> None:
    expected = fill(kafka, topic, range(EACH))
    group = f"process-{uuid.uuid4().hex[:8]}"
    program = start("process", "--servers", kafka.bootstrap_servers, "--topic", topic, "--group", group, "--asyncio")
    wait_for_lines(expected.total(), program)
    program.end()
    assert Counter(program.lines) == expected
    all_committed(kafka, topic, group, EACH)


@pytest.mark.drawn(1)
@pytest.mark.kafka
@pytest.mark.requirement("KIP-983/2")
@pytest.mark.parametrize(
    "name", ["process", "hand_over", pytest.param("changes", marks=pytest.mark.requirement("KIP-983/28"))]
)
def test_two_members_share_a_topic_and_one_leaves(
    kafka: LocalKafka, topic: str, start: Callable[..., Program], name: str
) -> None:
    group = f"{name}-{uuid.uuid4().hex[:8]}"
    arguments = ("--servers", kafka.bootstrap_servers, "--topic", topic, "--group", group)
    expected = fill(kafka, topic, range(EACH))
    first = start(name, *arguments)
    wait_for_lines(expected.total(), first)
    second = start(name, *arguments)
    written = EACH
    while not second.lines:  # until the second has partitions of its own
        expected += fill(kafka, topic, range(written, written + EACH))
        written += EACH
        wait_for_lines(expected.total(), first, second)
    first.end()
    expected += fill(kafka, topic, range(written, written + EACH))
    wait_for_lines(expected.total(), second, ended=[first])
    second.end()
    assert Counter(first.lines + second.lines) == expected
    all_committed(kafka, topic, group, written + EACH)


@pytest.mark.drawn(3, "examples")
@pytest.mark.kafka
def test_partitions_are_read_from_beginning_to_end(
    kafka: LocalKafka, topic: str, start: Callable[..., Program]
) -> None:
    expected = fill(kafka, topic, range(EACH))
    numbers = [str(number) for number in range(PARTITIONS)]
    program = start("read_partitions", "--servers", kafka.bootstrap_servers, "--topic", topic, "--partitions", *numbers)
    program.end(told=False)
    assert Counter(program.lines) == expected


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found: int = server.getsockname()[1]
        return found


def get(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=PATIENCE) as response:
        return json.load(response)


@pytest.mark.drawn(3, "examples")
@pytest.mark.kafka
@pytest.mark.skipif(not importlib.util.find_spec("fastapi"), reason="needs fastapi")
def test_a_web_service_serves_while_it_consumes_and_ends_in_order(
    kafka: LocalKafka, topic: str, start: Callable[..., Program], port: int
) -> None:
    expected = fill(kafka, topic, range(EACH))
    group = f"web-{uuid.uuid4().hex[:8]}"
    arguments = ("--servers", kafka.bootstrap_servers, "--topic", topic, "--group", group, "--port", str(port))
    program = start("web_service", *arguments)
    wait_for_lines(expected.total(), program)
    assert get(port, "handled") == {"handled": expected.total()}
    assert get(port, "ready") == {"ready": True}
    program.end()
    assert Counter(program.lines) == expected
    all_committed(kafka, topic, group, EACH)


RELOADED = """
import os, sys
sys.path.insert(0, {folder!r})
from web_service import service

os.write(2, f"up {{os.getpid()}}\\n".encode())
app = service({servers!r}, {topic!r}, {group!r})
"""


@pytest.mark.drawn(3, "examples")
@pytest.mark.kafka
@pytest.mark.skipif(not importlib.util.find_spec("fastapi"), reason="needs fastapi")
def test_a_reload_by_uvicorn_leaves_and_comes_back_without_a_duplicate(
    kafka: LocalKafka, topic: str, start: Callable[..., Program], port: int, tmp_path: Path
) -> None:
    """Its file is touched while records come: the next process goes on where the former one ended."""
    expected = fill(kafka, topic, range(EACH))
    group = f"web-{uuid.uuid4().hex[:8]}"
    names = {"folder": str(FOLDER), "servers": kafka.bootstrap_servers, "topic": topic, "group": group}
    (tmp_path / "app.py").write_text(RELOADED.format(**names))
    folder = str(tmp_path)
    watched = ("--reload", "--reload-dir", folder, "--app-dir", folder, "--port", str(port), "--log-level", "error")
    program = start("uvicorn", "app:app", *watched)
    wait_for_lines(expected.total(), program)
    written = EACH
    while len(program.complaints) < 2:
        touch(tmp_path / "app.py")  # again, if uvicorn had not looked at it before the first time
        expected += fill(kafka, topic, range(written, written + EACH))
        written += EACH
        wait_for_lines(expected.total(), program)
        wait_for_another_process(program)
    program.end(but="up ")
    assert len(set(program.complaints)) == len(program.complaints), "processes"
    assert Counter(program.lines) == expected
    all_committed(kafka, topic, group, written)


def wait_for_another_process(program: Program) -> None:
    """For a moment: uvicorn looks at its files four times a second."""
    until = time.monotonic() + 2.0
    while len(program.complaints) < 2 and time.monotonic() < until:
        time.sleep(0.05)


def touch(path: Path) -> None:
    later = path.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(later, later))


class Service(BaseHTTPRequestHandler):
    """Takes a value at its second try, but those that end in 7 only when it is told to. taken: those that it took."""

    taken: ClassVar[Counter[str]]
    tried: ClassVar[set[str]]
    takes_all: ClassVar[bool]

    def do_POST(self) -> None:
        value = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if value.endswith("7") and not self.takes_all:
            status = 400
        elif value not in self.tried:
            status = 503
        else:
            status = 200
            self.taken[value] += 1
        self.tried.add(value)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def service() -> Iterator[str]:
    Service.taken, Service.tried, Service.takes_all = Counter(), set(), False
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/bills"
        server.shutdown()
        thread.join(PATIENCE)


@pytest.mark.drawn(3, "examples")
@pytest.mark.kafka
def test_a_service_is_called_and_what_it_refused_is_sent_again(
    kafka: LocalKafka, kafka_topic: Callable[..., str], start: Callable[..., Program], service: str
) -> None:
    topic, letters = kafka_topic(1), kafka_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(EACH):
        producer.produce(topic, str(number).encode(), key=str(number).encode())
    assert producer.flush(PATIENCE) == 0
    group = f"http-{uuid.uuid4().hex[:8]}"
    arguments = ("--servers", kafka.bootstrap_servers, "--topic", topic, "--group", group)
    program = start("http_calls", *arguments, "--url", service, "--dead-letters", letters)
    refused = [str(number) for number in range(EACH) if number % 10 == 7]
    wait_until(lambda: len(Service.tried) == EACH and len(Service.taken) == EACH - len(refused), program)
    wait_until(lambda: end_of(kafka, letters) == len(refused), program)
    Service.takes_all = True
    replay = ["dead-letters", "replay", letters, "--from-beginning", "--bootstrap-servers", kafka.bootstrap_servers]
    command = [sys.executable, "-c", "from instride._cli import main; main()", *replay]
    subprocess.run(command, check=True, capture_output=True)
    wait_until(lambda: len(Service.taken) == EACH, program)
    program.process.send_signal(signal.SIGTERM)
    assert program.process.wait(PATIENCE) == 0


def end_of(kafka: LocalKafka, topic: str) -> int:
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=kafka.bootstrap_servers) as reader:
        return reader.end_offsets([partition], timeout=PATIENCE)[partition]


def wait_until(condition: Callable[[], bool], program: Program) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, program.complaints
        assert program.process.poll() is None, program.complaints
        time.sleep(0.05)


@pytest.mark.drawn(3, "examples")
@pytest.mark.kafka
def test_what_is_in_the_database_is_there_once_also_when_it_is_killed(
    kafka: LocalKafka, topic: str, start: Callable[..., Program], postgres_database: str
) -> None:
    """Killed in the middle, wherever that is, and started again: it goes on from the database."""
    import psycopg

    expected = fill(kafka, topic, range(EACH * 5))
    group = f"postgres-{uuid.uuid4().hex[:8]}"
    arguments = ("--servers", kafka.bootstrap_servers, "--topic", topic, "--group", group, "--instance", "one")
    with psycopg.connect(postgres_database, autocommit=True) as database:
        database.execute("CREATE TABLE handled (part INTEGER, record BIGINT, value BYTEA)")
        first = start("postgres", *arguments, "--database", postgres_database)
        wait_until(lambda: rows(database) > 0, first)
        first.release()
        expected += fill(kafka, topic, range(EACH * 5, EACH * 6))  # so that the second has some to do in any case
        second = start("postgres", *arguments, "--database", postgres_database)
        wait_until(lambda: rows(database) >= expected.total(), second)
        second.end()
        found = database.execute("SELECT part, convert_from(value, 'UTF8') FROM handled").fetchall()
    assert Counter(f"{part} {value}" for part, value in found) == expected
    all_committed(kafka, topic, group, EACH * 6)


def rows(database: Any) -> int:
    found: int = database.execute("SELECT count(*) FROM handled").fetchone()[0]
    return found


@pytest.mark.drawn(3, "examples")
@pytest.mark.kafka
def test_what_is_produced_in_transactions_is_there_once_also_when_it_is_killed(
    kafka: LocalKafka, topic: str, kafka_topic: Callable[..., str], start: Callable[..., Program]
) -> None:
    """Killed in the middle, wherever that is, and started again: a reader of what is committed sees each once."""
    output = kafka_topic(1)
    expected = fill(kafka, topic, range(EACH * 10))
    group = f"transactions-{uuid.uuid4().hex[:8]}"
    arguments = ("--servers", kafka.bootstrap_servers, "--topic", topic, "--group", group, "--instance", group)
    first = start("transactions", *arguments, "--output", output)
    wait_until(lambda: end_of(kafka, output) > 0, first)
    first.release()
    expected += fill(kafka, topic, range(EACH * 10, EACH * 11))  # so that the second has some to do in any case
    second = start("transactions", *arguments, "--output", output)
    found: Counter[str] = Counter()
    with Consumer(
        bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as reader:
        reader.assign([TopicPartition(output, 0)])

        def all_is_there() -> bool:
            found.update((record.value or b"").decode() for record in reader.poll(timeout=0.5))
            return found.total() >= expected.total()

        wait_until(all_is_there, second)
        second.end()
        found.update((record.value or b"").decode() for record in reader.poll(timeout=0.5))
    assert found == expected
    all_committed(kafka, topic, group, EACH * 11)


def test_every_example_is_run_and_told_of() -> None:
    programs = {path.stem for path in FOLDER.glob("*.py")}
    assert programs == {*MEMBERS, "read_partitions", "web_service", "postgres", "http_calls", "transactions"}
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [name for name in sorted(programs) if f"[{name}.py]({name}.py)" not in page] == []


@pytest.mark.kafka
@pytest.mark.rule("16")
def test_ctrl_c_waits_for_what_was_started_and_commits_it(
    kafka: LocalKafka, topic: str, start: Callable[..., Program]
) -> None:
    """What was printed is what was started; it is committed, and nothing else was begun."""
    fill(kafka, topic, range(2_500))
    group = f"hand_over-{uuid.uuid4().hex[:8]}"
    program = start("hand_over", "--servers", kafka.bootstrap_servers, "--topic", topic, "--group", group)
    wait_for_lines(100, program)
    program.process.send_signal(signal.SIGINT)
    assert program.process.wait(PATIENCE) == 130
    program.release()
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=group) as reader:
        found = reader.committed(*partitions, timeout=PATIENCE)
    printed = Counter(int(line.split()[0]) for line in program.lines)
    assert {tp.partition: offset.offset for tp, offset in found.items() if offset} == dict(printed)
    assert printed.total() < 10_000
