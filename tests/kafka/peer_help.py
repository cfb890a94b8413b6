"""Members in processes of their own: ours, Java, librdkafka, kafka-python, aiokafka and franz-go, driven the same way.

A line to the process is a command: ``poll`` or ``close`` (ours takes more). One line comes back, three lists with a
bar between them: the records that the poll returned (``partition:offset``), the partitions owned, and those lost.

Laws
1. A peer polls when `turn` says so and at no other time, so a test reads as a transcript.
2. A process that dies or is silent fails the test with the end of what it wrote.
3. A peer may wait, within its turn, for a rebalance that waits for another member's poll (librdkafka's synchronous
   commit does). So `take_turn` gives up after a while, and the turn is ended by a later call.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kafka_help import PATIENCE

from instride import TopicPartition
from instride.testing import LocalKafka, RecordedPeer, find_java, find_kafka
from instride.testing._kafka.java import Java
from instride.testing._kafka.kafka_home import KafkaHome

__all__ = ["GO", "Peer", "java_peer", "start"]


def _find_go() -> str | None:
    """None where there is none, or one that is older than go.mod asks for."""
    path = shutil.which("go")
    if path is None:
        return None
    told = subprocess.run([path, "env", "GOVERSION"], capture_output=True, text=True, timeout=60, check=False).stdout
    found = re.match(r"go(\d+)\.(\d+)", told)
    return path if found and (int(found[1]), int(found[2])) >= _LOWEST_GO else None


_LOWEST_GO: Final = (1, 26)
GO: Final = _find_go()
"""Where there is none, franz-go's cells are skipped by name."""

_BEFORE_THE_OTHERS: Final = 5.0
_AGAIN: Final = 0.05
"""Seconds that `Peer.take_turn` waits for a turn that it began, and for one that was begun before."""

_HERE: Final = Path(__file__).parent
_BUILD_SECONDS: Final = 500
_JAVA_ASSIGNORS: Final = {
    "cooperative-sticky": "CooperativeStickyAssignor",
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
}
_NEW_PROTOCOL: Final = {
    "group.protocol": "consumer",
    "partition.assignment.strategy": None,
    "heartbeat.interval.ms": None,
    "session.timeout.ms": None,
}


class Peer:
    """One process that is a member. The same surface as `Member`, as far as `drive` and `each_once` need it."""

    def __init__(self, name: str, topic: str, command: list[str], log: Path, *, verb: str = "poll") -> None:
        self.name = name
        self.verb = verb
        self.seen: list[tuple[int, int]] = []
        self.owned: frozenset[TopicPartition] = frozenset()
        self.lost: list[TopicPartition] = []
        self.recorded: RecordedPeer | None = None
        self._topic = topic
        self._log = log
        self._rest = b""
        self.in_turn = False
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=_environment()
            )

    def turn(self) -> list[tuple[int, int]]:
        if not self.in_turn:
            self.say(self.verb)
        self.in_turn = False
        return self.hear()

    def take_turn(self) -> list[tuple[int, int]] | None:
        """A turn, or the end of the last one. None where the peer is silent (law 3)."""
        patience = _AGAIN if self.in_turn else _BEFORE_THE_OTHERS
        if not self.in_turn:
            self.say(self.verb)
            self.in_turn = True
        return self.turn() if self._responds(patience) else None

    def _responds(self, within: float) -> bool:
        assert self._process.stdout is not None
        return b"\n" in self._rest or bool(select.select([self._process.stdout], [], [], within)[0])

    def say(self, command: str) -> None:
        if self.in_turn:
            self.turn()
        assert self._process.stdin is not None
        self._process.stdin.write(command.encode() + b"\n")
        self._process.stdin.flush()

    def hear(self) -> list[tuple[int, int]]:
        seen, owned, lost = self._line().split("|")
        records = [(int(each.split(":")[0]), int(each.split(":")[1])) for each in seen.split(",") if each]
        self.seen += records
        self.owned = frozenset(self.partition(int(each)) for each in owned.split(",") if each)
        lost_now = [self.partition(int(each)) for each in lost.split(",") if each]
        self.lost += lost_now
        self._record(records, lost_now)
        return records

    def _record(self, records: list[tuple[int, int]], lost: list[TopicPartition]) -> None:
        if self.recorded is not None:
            offsets: dict[TopicPartition, list[int]] = {}
            for partition, offset in records:
                offsets.setdefault(self.partition(partition), []).append(offset)
            self.recorded.turn(offsets, self.owned, lost)

    def partition(self, number: int) -> TopicPartition:
        return TopicPartition(self._topic, number)

    def _line(self) -> str:
        assert self._process.stdout is not None
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
            data = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
            assert data, f"{self.name} said nothing; it wrote: {self._log.read_text()[-2000:]}"
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        return line.decode()

    def close(self) -> None:
        """Leave the group, and end."""
        self.leave()
        self._process.wait(PATIENCE)
        assert self.left()

    def leave(self) -> None:
        """As `close`, but it is not waited for: in a rebalance the other members may have to take turns. See `left`."""
        self.say("close")
        self.owned = frozenset()
        if self.recorded is not None:
            self.recorded.closed()  # from now on it returns nothing

    def left(self) -> bool:
        """Whether it has ended after `leave`; in another way than well is a failure."""
        code = self._process.poll()
        assert not code, f"{self.name} ended with {code}; it wrote: {self.log[-2000:]}"
        return code == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        if self.recorded is not None:
            self.recorded.crashed()

    def suspend(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def end(self) -> None:
        """Whatever state it is in."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass  # it was killed before it read what was said last

    def __repr__(self) -> str:
        owned = sorted(each.partition for each in self.owned)
        silent = f", silent; it wrote: {self.log[-2000:]}" if self.in_turn else ""
        return f"{self.name}(holds {owned}, lost {self.lost}, {len(self.seen)} records{silent})"


def start(
    kind: str, kafka: LocalKafka, group: str, topic: str, name: str, folder: Path, settings: dict[str, Any]
) -> Peer:
    """kind: "instride", "java", "java-848", "java-2.8.2" or another version, "confluent", "confluent-848",
    "kafka_python", "aiokafka" or "franz".

    settings: "assignor" (its name; for Java, franz-go and kafka-python several too, with commas between) and "session"
    (seconds) are known to all; others are the client's own.
    """
    log = folder / f"{name}.log"
    if kind.startswith("java"):
        return java_peer(kafka, group, topic, name, log, variant=kind[5:], **settings)
    if kind == "franz":
        command = [str(_built(folder)), kafka.bootstrap_servers, group, topic, name]
        command += [settings.get("assignor", "cooperative-sticky"), _ms(settings.get("session", 10))]
        return Peer(name, topic, command, log)
    if kind == "confluent-848":
        kind, settings = "confluent", {**_NEW_PROTOCOL, **settings}
    script = _HERE / "peers" / f"{kind}_peer.py"
    command = [sys.executable, str(script), kafka.bootstrap_servers, group, topic, name, json.dumps(settings)]
    return Peer(name, topic, command, log)


def java_peer(
    kafka: LocalKafka,
    group: str,
    topic: str,
    name: str,
    log: Path,
    *,
    variant: str = "",
    assignor: str = "cooperative-sticky",
    session: float = 10,
) -> Peer:
    """variant: "" for the Java client of the version of the Kafka under test, "848" for that on the new protocol, or
    the version of another."""
    version = variant if "." in variant else kafka.version or None
    java, home = find_java(), find_kafka(version)
    classes_of = _compiled(java, home, log.parent.parent)
    command = [str(java.path), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
    command += ["-cp", f"{classes_of}{os.pathsep}{home.class_path}", "Peer"]
    command += [kafka.bootstrap_servers, group, topic, name, "consumer" if variant == "848" else "classic"]
    classes = ",".join(f"org.apache.kafka.clients.consumer.{_JAVA_ASSIGNORS[each]}" for each in assignor.split(","))
    return Peer(name, topic, [*command, classes, _ms(session)], log)


def _compiled(java: Java, home: KafkaHome, folder: Path) -> Path:
    """Java's peer for that client, compiled once in a run: from its source each start would take twice as long.

    Renamed when it is whole, so two threads may start peers at once.
    """
    place = folder / f"java-peer-{home.version}"
    if not place.exists():
        fresh = tempfile.mkdtemp(dir=folder)
        jars = os.pathsep.join(map(str, (home.folder / "libs").glob("*.jar")))  # the compiler takes no "*"
        command = [str(java.path), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-cp", jars, "-d", fresh]
        done = subprocess.run(
            [*command, str(_HERE / "java" / "Peer.java")],
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        with suppress(OSError):  # the other was first
            Path(fresh).rename(place)
    return place


def _built(folder: Path) -> Path:
    """franz-go's peer, built once in a run of the tests; a broken build fails."""
    binary = folder.parent / "franz-peer"
    if not binary.exists():
        assert GO is not None, "franz-go needs Go"
        command = [GO, "build", "-o", str(binary), "."]
        done = subprocess.run(
            command, cwd=_HERE / "peers" / "franz", capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
    return binary


def _ms(seconds: float) -> str:
    return str(int(1000 * seconds))


def _environment() -> dict[str, str]:
    """The peer finds the package where this process found it, installed or not."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
