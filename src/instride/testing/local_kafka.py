"""A real Apache Kafka for a test: one to three nodes on this machine, gone when the test's process is.

Laws
1. Building one does nothing; ``start`` (or ``with``) returns when every node answers and sees all the others, else raises.
2. No process and no file outlives the process that started them, however that ends (see `keeper`).
3. After ``create_topic`` returns, every node that runs knows the topic and has leaders for it; after ``delete_topic``, none does.
4. A node keeps its number, its ports and its data from ``start`` to ``stop``, through ``kill`` and ``restart``.
"""

from __future__ import annotations

import logging
import os
import signal
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from instride.errors import (
    BrokerResponseError,
    BrokerStartError,
    ConfigError,
    KafkaError,
    KafkaTimeoutError,
    LocalKafkaError,
    TransportError,
)
from instride.testing.java import Java, find_java
from instride.testing.kafka_home import KafkaHome, find_kafka
from instride.testing.ports import free_ports
from instride.testing.processes import Processes
from instride.testing.settings import Node, Property, checked, server_properties

if TYPE_CHECKING:
    from kio.schema.metadata.v12.response import MetadataResponse

    from instride.testing.admin import Admin

__all__ = ["LocalKafka"]

logger = logging.getLogger(__name__)

MOST_NODES: Final = 3
_POLL_SECONDS: Final = 0.05
_START_TRIES: Final = 3
_LOG_TAIL: Final = 2000

# The client compiler alone, and the serial collector: half the processor time until the first answer. Neither hurts a test's load.
QUICK_JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class LocalKafka:
    """A cluster for tests, usable by any thread. A context manager: ``with LocalKafka(nodes=3) as kafka: ...``

    nodes: 1 to 3; their numbers are 1, 2, 3. properties: broker properties for all nodes, over this class's defaults.
    heap: of each node, as ``java -Xmx`` takes it. jvm_options: other options of the JVM; the default is for a quick start, so
    give ``()`` for a benchmark. timeout: seconds for a start, and for each other call that waits. folder: where the temporary
    folder is made.

    Raises ConfigError for a wrong setting when built; JavaNotFoundError, KafkaNotFoundError, ChecksumMismatchError,
    BrokerStartError from ``start``.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        properties: Mapping[str, Property] | None = None,
        heap: str = "512m",
        jvm_options: Sequence[str] = QUICK_JVM,
        timeout: float = 60.0,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        if not 1 <= nodes <= MOST_NODES:
            raise ConfigError(f"nodes must be 1 to {MOST_NODES}, not {nodes}")
        self._count = nodes
        self._properties = checked(properties)
        self._jvm_options = (f"-Xmx{heap}", *jvm_options)
        self._timeout = timeout
        self._base = None if folder is None else Path(folder)
        self._processes: Processes | None = None
        self._nodes: dict[int, Node] = {}
        self._java: Java | None = None
        self._home: KafkaHome | None = None
        self._suspended: set[int] = set()

    # --- the whole cluster

    def start(self) -> Self:
        """Start all nodes and wait until they are ready. Fetches Kafka on first use (see `kafka_home`)."""
        if self._processes is not None:
            raise LocalKafkaError("this LocalKafka was started already")
        self._java, self._home = find_java(), find_kafka()
        for left in reversed(range(_START_TRIES)):
            try:
                self._start_once()
            except BaseException as error:
                taken = isinstance(error, BrokerStartError) and error.port_taken
                self.stop()
                if not (taken and left):
                    raise
                logger.info("another process took a port first; starting with others")
            else:
                break
        return self

    def _start_once(self) -> None:
        self._processes = Processes(self._base)
        self._nodes = {node.node_id: node for node in self._lay_out(self._processes.folder)}
        self._format()
        for node in self._nodes.values():
            self._launch(node)
        self._wait("Kafka did not become ready", lambda: self._all_see(self._nodes), needed=self.nodes)

    def stop(self) -> None:
        """Kill all nodes and remove all files. Again is harmless; the same object may be started anew."""
        processes, self._processes = self._processes, None
        self._suspended.clear()
        if processes is not None:
            processes.end()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = self.bootstrap_servers if self._processes else "not running"
        return f"<LocalKafka nodes={self._count} {state}>"

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every node, joined by commas, as every Kafka client takes it."""
        self._running()
        return ",".join(node.address for node in self._nodes.values())

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes' numbers."""
        return tuple(range(1, self._count + 1))

    @property
    def folder(self) -> Path:
        """The temporary folder of all nodes. Removed by ``stop``."""
        return self._running().folder

    # --- topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and wait until every running node can serve it. See ``create_topics``."""
        self.create_topics({name: partitions}, replication=replication, configs=configs)

    def create_topics(
        self,
        topics: Mapping[str, int],
        *,
        replication: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create topics, name -> number of partitions. replication: copies; as many as there are nodes by default.

        Raises the error of the broker's code, for example for a topic that is there.
        """
        copies = self._count if replication is None else replication
        with self._admin() as admin:
            admin.create_topics(topics, replication=copies, configs=configs)
        self._wait("the topics did not become ready", lambda: self._everywhere(topics, _all_led))

    def delete_topic(self, *names: str) -> None:
        """Delete topics and wait until no running node knows them."""
        with self._admin() as admin:
            admin.delete_topics(names)
        self._wait("the topics did not go", lambda: self._everywhere(dict.fromkeys(names, 0), _none_known))

    def topics(self) -> dict[str, int]:
        """The topics there are, Kafka's internal ones left out: name -> number of partitions."""
        with self._admin() as admin:
            answer = admin.metadata(None)
        return {str(topic.name): len(topic.partitions) for topic in answer.topics if not topic.is_internal}

    def leader(self, topic: str, partition: int) -> int:
        """The node that leads the partition; -1 for none."""
        with self._admin() as admin:
            found = admin.metadata([topic]).topics[0].partitions
        return next(int(each.leader_id) for each in found if each.partition_index == partition)

    # --- single nodes

    def kill(self, node: int) -> None:
        """End a node at once (SIGKILL), as a crash does. Returns when its process is gone."""
        self._signal(node, signal.SIGKILL)
        self._wait(f"node {node} did not end", lambda: not self.is_running(node))

    def shut_down(self, node: int) -> None:
        """End a node in order (SIGTERM): it hands its leaderships on first. Returns when its process is gone."""
        self._signal(node, signal.SIGTERM)
        self._wait(f"node {node} did not shut down", lambda: not self.is_running(node))

    def suspend(self, node: int) -> None:
        """Freeze a node (SIGSTOP): its connections stay open and nothing answers."""
        self._signal(node, signal.SIGSTOP)
        self._suspended.add(node)

    def resume(self, node: int) -> None:
        """Let a suspended node go on (SIGCONT)."""
        self._signal(node, signal.SIGCONT)
        self._suspended.discard(node)

    def restart(self, node: int) -> None:
        """Start a node again with its data and ports; one that runs is shut down in order first. Waits until ready."""
        if self.is_running(node):
            if node in self._suspended:
                self.resume(node)
            self.shut_down(node)
        self._launch(self._node(node))
        self._wait(f"node {node} did not come back", lambda: self._all_see(self._serving()), needed=[node])

    def is_running(self, node: int) -> bool:
        """Whether the node's process is there; a suspended one is."""
        return self._running().exit_code(self._node(node).name) is None

    def address(self, node: int) -> str:
        """``host:port`` of one node."""
        return self._node(node).address

    def log_path(self, node: int = 1) -> Path:
        """The file that the node's log goes to, through all its restarts."""
        return self._node(node).log

    def log(self, node: int = 1) -> str:
        """All that the node has logged."""
        return self.log_path(node).read_text(encoding="utf-8", errors="replace")

    # --- below here: how

    def _running(self) -> Processes:
        if self._processes is None:
            raise LocalKafkaError(
                "this LocalKafka is not running: call start(), or use it in a with statement"
            )
        return self._processes

    def _node(self, number: int) -> Node:
        self._running()
        if number not in self._nodes:
            raise LocalKafkaError(f"there is no node {number}; there are {list(self._nodes)}")
        return self._nodes[number]

    def _signal(self, number: int, which: signal.Signals) -> None:
        if not self.is_running(number):
            raise LocalKafkaError(f"node {number} is not running")
        self._running().signal(self._node(number).name, which)
        if which is signal.SIGKILL:
            self._suspended.discard(number)

    def _lay_out(self, folder: Path) -> tuple[Node, ...]:
        ports = free_ports(2 * self._count)
        nodes = tuple(
            Node(
                node_id=number,
                port=ports.pop(),
                controller_port=ports.pop(),
                folder=folder / f"node-{number}",
                log=folder / f"node-{number}.log",
            )
            for number in self.nodes
        )
        (folder / "tmp").mkdir()
        (folder / "log4j2.properties").write_text(_LOG4J2, encoding="ascii")
        for node in nodes:
            node.folder.mkdir()
            node.settings_file.write_text(server_properties(node, nodes, self._properties), encoding="utf-8")
        return nodes

    def _format(self) -> None:
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        names = {}
        for node in self._nodes.values():
            names[f"format-{node.node_id}"] = node
            tool = (
                "kafka.tools.StorageTool",
                "format",
                f"--cluster-id={cluster}",
                "-c",
                str(node.settings_file),
            )
            self._running().start(f"format-{node.node_id}", self._java_command(*tool), node.log)
        for name, node in names.items():
            self._wait(
                "formatting did not end", lambda name=name: self._running().exit_code(name) is not None
            )  # type: ignore[misc]
            if self._running().exit_code(name) != 0:
                raise BrokerStartError(
                    f"node {node.node_id}: its storage was not formatted.\n{_tail(node.log)}"
                )

    def _launch(self, node: Node) -> None:
        command = self._java_command("kafka.Kafka", str(node.settings_file))
        pid = self._running().start(node.name, command, node.log)
        logger.debug("node %d on %s is process %d", node.node_id, node.address, pid)

    def _java_command(self, *main: str) -> list[str]:
        assert self._java is not None
        assert self._home is not None
        folder = self._running().folder
        return [
            str(self._java.path),
            *self._jvm_options,
            "-XX:-UsePerfData",  # its file, outside of our folder, would stay after a SIGKILL
            f"-XX:ErrorFile={folder}/hs_err.log",
            f"-Djava.io.tmpdir={folder}/tmp",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={folder}/log4j2.properties",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
            "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",
            "-cp",
            self._home.class_path,
            *main,
        ]

    def _serving(self) -> list[int]:
        return [node for node in self._nodes if node not in self._suspended and self.is_running(node)]

    def _admin(self) -> Admin:
        """A connection to the first node that runs."""
        serving = self._serving()
        if not serving:
            raise LocalKafkaError("no node is running")
        return self._admin_of(serving[0])

    def _admin_of(self, number: int) -> Admin:
        from instride.testing.admin import Admin  # noqa: PLC0415 - kio's messages take a while to import

        return Admin(self._node(number).port, timeout=self._timeout)

    def _all_see(self, numbers: Sequence[int] | Mapping[int, Node]) -> bool:
        """Whether each of these nodes answers, knows the controller, and counts all of them among the living."""
        for number in numbers:
            with self._admin_of(number) as admin:
                answer = admin.metadata()
            seen = {int(broker.node_id) for broker in answer.brokers}
            if answer.controller_id < 0 or not seen.issuperset(numbers):
                return False
        return True

    def _everywhere(
        self, topics: Mapping[str, int], holds: Callable[[MetadataResponse, Mapping[str, int]], bool]
    ) -> bool:
        for number in self._serving():
            with self._admin_of(number) as admin:
                if not holds(admin.metadata(list(topics)), topics):
                    return False
        return True

    def _wait(self, what: str, done: Callable[[], bool], *, needed: Sequence[int] = ()) -> None:
        """Poll until done; meanwhile errors of Kafka count as not yet, and a needed node's end as a failure."""
        deadline = time.monotonic() + self._timeout
        last: KafkaError | None = None
        while True:
            for number in needed:
                self._check_alive(number)
            try:
                if done():
                    return
            except (TransportError, BrokerResponseError) as error:
                last = error
            if time.monotonic() > deadline:
                raise KafkaTimeoutError(f"{what} within {self._timeout:g} s") from last
            time.sleep(_POLL_SECONDS)

    def _check_alive(self, number: int) -> None:
        if not self.is_running(number):
            tail = _tail(self.log_path(number))
            raise BrokerStartError(
                f"node {number} ended while it was to start. The end of its log:\n{tail}",
                port_taken="Address already in use" in tail,
            )


def _all_led(answer: MetadataResponse, topics: Mapping[str, int]) -> bool:
    found = {str(topic.name): topic for topic in answer.topics}
    return all(
        len(found[name].partitions) == count and all(part.leader_id >= 0 for part in found[name].partitions)
        for name, count in topics.items()
    )


def _none_known(answer: MetadataResponse, _: Mapping[str, int]) -> bool:
    return all(not topic.partitions for topic in answer.topics)


def _tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:] if log.exists() else "(no log)"


_LOG4J2: Final = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} [%t] %p %c - %m%n
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
logger.config.name = org.apache.kafka.common.config
logger.config.level = WARN
"""
