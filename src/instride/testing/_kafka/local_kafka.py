"""A real Apache Kafka for a test: one to three nodes on this machine, gone when the test's process is.

Laws
1. Building one does nothing; ``start`` (or ``with``) returns when every node responds and sees all others, else raises.
2. No process and no file outlives the process that started them, however that ends (see `keeper`).
3. After ``create_topic`` every node that serves knows the topic and its leaders; after ``delete_topic`` none does.
4. A node keeps its number, its ports and its data from ``start`` to ``stop``, through ``kill`` and ``restart``.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from instride.errors import BrokerStartError, ConfigError, LocalKafkaError
from instride.testing._kafka.class_archive import archive_options, making_options
from instride.testing._kafka.java import find_java
from instride.testing._kafka.jvm import QUICK_JVM, Jvm
from instride.testing._kafka.kafka_home import KAFKA_VERSIONS, find_kafka
from instride.testing._kafka.processes import Processes
from instride.testing._kafka.readiness import all_ready, topics_gone, topics_ready
from instride.testing._kafka.running import Running, lay_out
from instride.testing._kafka.settings import Property, checked, checked_listeners, checked_racks, listener_address

__all__ = ["LocalKafka"]

logger = logging.getLogger(__name__)

MOST_NODES: Final = 3
_START_TRIES: Final = 3


class LocalKafka:
    """A cluster for tests. A context manager: ``with LocalKafka(nodes=3) as kafka: ...``

    nodes: 1 to 3; their numbers are 1, 2, 3. properties: broker properties for all nodes, over this class's defaults.
    listeners: besides that without TLS or SASL, name -> security protocol ("PLAINTEXT@::1" is on IPv6); `properties`
    configures them by ``listener.name.<name in small letters>.``. racks: of each node (`broker.rack`); a consumer with
    such a `client_rack` is then sent to the replica there. heap: of each node, as ``java -Xmx`` takes it.
    jvm_options: of the JVM; the default is for a quick start, so give ``()`` for a benchmark. timeout: seconds for a
    start, and for each other call that waits. folder: where the temporary folder is made; the system's place by
    default. version: of Kafka, one of `KAFKA_VERSIONS` ("2.8.2" runs with a ZooKeeper); None takes ``KAFKA_HOME``,
    else the newest.

    Its calls may come from several threads, but not two at once on one node, nor with ``start`` or ``stop``.
    Calls that wait raise KafkaTimeoutError; those that need a cluster or node that is not there raise LocalKafkaError.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        properties: Mapping[str, Property] | None = None,
        listeners: Mapping[str, str] | None = None,
        racks: Sequence[str] | None = None,
        heap: str = "512m",
        jvm_options: Sequence[str] = QUICK_JVM,
        timeout: float = 120.0,
        folder: str | os.PathLike[str] | None = None,
        version: str | None = None,
    ) -> None:
        """Check the settings; nothing is started. Raises ConfigError."""
        if not 1 <= nodes <= MOST_NODES:
            raise ConfigError(f"nodes must be 1 to {MOST_NODES}, not {nodes}")
        if timeout <= 0:
            raise ConfigError(f"timeout must be more than 0 seconds, not {timeout}")
        if folder is not None and not Path(folder).is_dir():
            raise ConfigError(f"folder {os.fspath(folder)!r} is not there, or no folder")
        if version is not None and version not in KAFKA_VERSIONS:
            raise ConfigError(f"version {version!r} of Kafka is not pinned here; known: {', '.join(KAFKA_VERSIONS)}")
        self._count = nodes
        self._version = version
        self._properties = checked(properties)
        self._listeners = checked_listeners(listeners)
        self._racks = checked_racks(racks, nodes, self._properties)
        self._jvm_options = (f"-Xmx{heap}", *jvm_options)
        self._timeout = timeout
        self._base = None if folder is None else Path(folder).resolve()
        self._started: Running | None = None

    # --- the whole cluster

    def start(self) -> Self:
        """Start all nodes and wait until they are ready. Fetches Kafka on first use (see `kafka_home`), and makes an
        archive of its classes beside it (see `class_archive`), which takes 50 MB.

        Raises JavaNotFoundError, KafkaNotFoundError, ChecksumMismatchError, or BrokerStartError with the end of a log.
        """
        if self._started is not None:
            raise LocalKafkaError("this LocalKafka was started already")
        for left in reversed(range(_START_TRIES)):
            try:
                self._start_once()
            except BrokerStartError as error:
                if not (error.port_taken and left):
                    raise
                logger.info("another process took a port first; starting again with others")
            else:
                break
        return self

    def _start_once(self) -> None:
        java, home = find_java(), find_kafka(self._version)
        shared = archive_options(java, home, self._jvm_options, self._make_archive)
        processes = Processes(self._base)
        try:
            jvm = Jvm(java=java, home=home, options=(*self._jvm_options, *shared), folder=processes.folder)
            jvm.prepare()
            nodes = lay_out(
                processes.folder, self._racks, self._properties, self._listeners, zookeeper=home.has_zookeeper
            )
            running = Running(processes, nodes, jvm, timeout=self._timeout)
            running.prepare()
            for number in self.nodes:
                running.launch(number)
            running.wait("Kafka did not become ready", lambda: all_ready(running), needed=self.nodes)
        except BaseException:
            processes.end()
            raise
        self._started = running

    def _make_archive(self, archive: Path) -> None:
        """By a broker with a topic, which ends in order."""
        options = (*QUICK_JVM, *making_options(archive))
        with LocalKafka(jvm_options=options, timeout=self._timeout, folder=self._base, version=self._version) as kafka:
            kafka.create_topic("classes")
            kafka.shut_down(1)

    def stop(self) -> None:
        """Kill all nodes and remove all files. Again is harmless; afterwards the same object may be started anew."""
        running, self._started = self._started, None
        if running is not None:
            running.processes.end()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = self.bootstrap_servers if self._started else "not running"
        return f"<LocalKafka nodes={self._count} {state}>"

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every node, joined by commas, as every Kafka client takes it."""
        return ",".join(node.address for node in self._running.nodes.values())

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes' numbers."""
        return tuple(range(1, self._count + 1))

    @property
    def version(self) -> str:
        """Of Kafka, as "4.3.1"; "" for that of a ``KAFKA_HOME``, which is not asked."""
        return self._running.version

    @property
    def folder(self) -> Path:
        """The temporary folder of all nodes. Removed by ``stop``."""
        return self._running.processes.folder

    # --- topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and wait until every node that serves can serve it. See ``create_topics``."""
        self.create_topics({name: partitions}, replication=replication, configs=configs)

    def create_topics(
        self,
        topics: Mapping[str, int],
        *,
        replication: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create topics, name -> number of partitions. replication: copies; by default as many as there are nodes.

        configs: Kafka's topic settings. Raises the error of the broker's code, for example for a topic that is there.
        """
        running = self._running
        copies = self._count if replication is None else replication
        with running.controller() as admin:
            admin.create_topics(topics, replication=copies, configs=configs)
        running.wait("the topics did not become ready", lambda: topics_ready(running, topics))

    def delete_topic(self, *names: str) -> None:
        """Delete topics and wait until no node that serves knows them. Raises UnknownTopicOrPartitionError."""
        running = self._running
        with running.controller() as admin:
            admin.delete_topics(names)
        running.wait("the topics did not go", lambda: topics_gone(running, names))

    def topics(self) -> dict[str, int]:
        """The topics there are, without Kafka's internal ones: name -> number of partitions."""
        with self._running.admin() as admin:
            response = admin.metadata(None)
        return {str(topic.name): len(topic.partitions) for topic in response.topics if not topic.is_internal}

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """The node that leads the partition now; None without a leader, or where the partition is unknown."""
        with self._running.admin() as admin:
            parts = admin.metadata([topic]).topics[0].partitions
        found = (int(part.leader_id) for part in parts if part.partition_index == partition)
        return next((node for node in found if node >= 0), None)

    # --- single nodes

    def kill(self, node: int) -> None:
        """End a node at once (SIGKILL), as a crash does. Returns when its process is gone."""
        self._end(node, signal.SIGKILL)

    def shut_down(self, node: int) -> None:
        """End a node in order (SIGTERM): it first hands on what it leads. Returns when its process is gone."""
        if self._running.is_suspended(node):
            self.resume(node)
        self._end(node, signal.SIGTERM)

    def _end(self, node: int, which: signal.Signals) -> None:
        running = self._running
        running.signal(node, which)
        running.wait(f"node {node} did not end", lambda: not running.is_running(node))

    def suspend(self, node: int) -> None:
        """Freeze a node (SIGSTOP): its connections stay open and nothing responds."""
        self._running.signal(node, signal.SIGSTOP)

    def resume(self, node: int) -> None:
        """Let a suspended node go on (SIGCONT). It joins the others a little later: see ``wait_until_ready``."""
        self._running.signal(node, signal.SIGCONT)

    def wait_until_ready(self) -> None:
        """Wait until all nodes that run and are not suspended see each other and lead what they can."""
        running = self._running
        running.wait("Kafka did not become ready", lambda: all_ready(running))

    def restart(self, node: int) -> None:
        """Start a node again on its data and ports; one that runs is shut down in order first. Waits until ready.

        Raises BrokerStartError with the end of its log.
        """
        running = self._running
        if running.is_running(node):
            self.shut_down(node)
        running.launch(node)
        running.wait(f"node {node} did not come back", lambda: all_ready(running), needed=[node])

    def is_running(self, node: int = 1) -> bool:
        """Whether the node's process is there; a suspended one is."""
        return self._running.is_running(node)

    def address(self, node: int = 1) -> str:
        """``host:port`` of one node."""
        return self._running.node(node).address

    def listener(self, name: str, node: int = 1) -> str:
        """``host:port`` of one of the `listeners` on one node."""
        listeners = self._running.node(node).listeners
        if name not in listeners:
            raise LocalKafkaError(f"there is no listener {name!r}; those given are {', '.join(listeners) or 'none'}")
        return listener_address(*listeners[name])

    def pid(self, node: int = 1) -> int:
        """The process id of the node's JVM, or of the last one that it had."""
        return self._running.pid(node)

    def log_path(self, node: int = 1) -> Path:
        """The file that the node's log goes to, through all its restarts."""
        return self._running.node(node).log

    def log(self, node: int = 1) -> str:
        """All that the node has logged."""
        return self.log_path(node).read_text(encoding="utf-8", errors="replace")

    @property
    def _running(self) -> Running:
        if self._started is None:
            raise LocalKafkaError("this LocalKafka is not running: call start(), or use it in a with statement")
        return self._started
