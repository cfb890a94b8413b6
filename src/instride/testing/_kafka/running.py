"""The processes of a cluster that was started, and waiting for what they do.

Laws
1. A wait polls the state with a deadline. Errors of the transport and of brokers mean not yet; the last one is the
   cause of the timeout's error. A node that has to be there and ended fails the wait at once, with what its log says.
2. A suspended node runs, but does not serve: no wait asks it anything.
"""

from __future__ import annotations

import logging
import re
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from instride.errors import (
    BrokerResponseError,
    BrokerStartError,
    KafkaError,
    LocalKafkaError,
    LocalKafkaTimeoutError,
    TransportError,
)
from instride.testing._kafka.jvm import Jvm
from instride.testing._kafka.ports import free_ports
from instride.testing._kafka.processes import Processes
from instride.testing._kafka.settings import Node, server_properties
from instride.testing._kafka.storage import copy_storage, draw_id, keep_storage
from instride.testing._kafka.zookeeper import brokers, zookeeper_settings

if TYPE_CHECKING:
    from instride.testing._kafka.admin import Admin

__all__ = ["Running", "lay_out"]

logger = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.05
_PROBE_SECONDS: Final = 3.0
_LOG_PART: Final = 2000
_ERROR: Final = re.compile(r"^.*(?: ERROR | FATAL |Exception).*$", re.MULTILINE)
_PORT_TAKEN: Final = "Address already in use"
_ZOOKEEPER: Final = "zookeeper"
_STORED: Final = re.compile(r"(.+)-\d+")


def lay_out(
    folder: Path,
    racks: Sequence[str],
    properties: Mapping[str, str],
    listeners: Mapping[str, str],
    *,
    zookeeper: bool = False,
) -> tuple[Node, ...]:
    """Draw the ports and write the settings of all nodes. racks: of each node, or "". listeners: name -> protocol."""
    ports = free_ports((2 + len(listeners)) * len(racks) + 1)
    zookeeper_port = ports.pop() if zookeeper else 0
    nodes = tuple(
        Node(
            node_id=number,
            port=ports.pop(),
            controller_port=ports.pop(),
            folder=folder / f"node-{number}",
            log=folder / f"node-{number}.log",
            listeners={name: (protocol, ports.pop()) for name, protocol in listeners.items()},
            zookeeper_port=zookeeper_port,
            rack=rack,
        )
        for number, rack in enumerate(racks, start=1)
    )
    for node in nodes:
        node.folder.mkdir()
        node.settings_file.write_text(server_properties(node, nodes, properties), encoding="ascii")
    return nodes


class Running:
    """The nodes by number, over the keeper's processes. timeout: seconds for every wait and every request."""

    def __init__(self, processes: Processes, nodes: Iterable[Node], jvm: Jvm, *, timeout: float) -> None:
        self.processes = processes
        self.nodes = {node.node_id: node for node in nodes}
        self._jvm = jvm
        self._timeout = timeout
        self._suspended: set[int] = set()
        self._pids: dict[int, int] = {}
        self._log_starts: dict[int, int] = {}
        self._cluster_id = draw_id()

    @property
    def version(self) -> str:
        return self._jvm.home.version

    @property
    def _zookeeper_port(self) -> int:
        """0 where there is none."""
        return self.nodes[1].zookeeper_port

    @property
    def cluster_id(self) -> str:
        """The id that this cluster's brokers tell. With ZooKeeper the first broker draws it; "" before that."""
        if not self._zookeeper_port:
            return self._cluster_id
        written = _read(self.nodes[1].data / "meta.properties")
        return next((line[11:].strip() for line in written.splitlines() if line.startswith("cluster.id=")), "")

    def prepare(self) -> None:
        """Give every node its empty storage, all of one new cluster; or start the ZooKeeper that will know them."""
        if self._zookeeper_port:
            self._start_zookeeper()
            return
        home = self._jvm.home
        if not home.version:  # the user's own Kafka: what its tool writes is not known here
            self._format(*self.nodes.values())
            return
        for node in self.nodes.values():
            if not copy_storage(home, node, self._cluster_id):
                self._format(node)
                keep_storage(home, node)

    def _format(self, *nodes: Node) -> None:
        for node in nodes:
            command = self._jvm.format_tool(node.settings_file, self._cluster_id)
            self.processes.start(f"format {node.name}", command, node.log)
        for node in nodes:
            if self._code_of(f"format {node.name}") != 0:
                raise BrokerStartError(
                    f"node {node.node_id}: its storage was not formatted.\n{_trouble(_read(node.log))}"
                )

    def _start_zookeeper(self) -> None:
        settings, log = (self.processes.folder / f"{_ZOOKEEPER}.{kind}" for kind in ("properties", "log"))
        settings.write_text(zookeeper_settings(self.processes.folder, self._zookeeper_port), encoding="ascii")
        self.processes.start(_ZOOKEEPER, self._jvm.zookeeper(settings), log)

        def responds() -> bool:
            if self.processes.exit_code(_ZOOKEEPER) is not None:
                text = _read(log)
                message = f"ZooKeeper ended while it was to start.\n{_trouble(text)}"
                raise BrokerStartError(message, port_taken=_PORT_TAKEN in text)
            return brokers(self._zookeeper_port) is not None

        self.wait("ZooKeeper did not respond", responds)

    @property
    def stored_topics(self) -> set[str]:
        """With ZooKeeper: those that a node that serves has on its disk. It knows itself before it knows of these."""
        if not self._zookeeper_port:
            return set()
        folders = (each.name for number in self.serving() for each in self.node(number).data.iterdir())
        return {match[1] for name in folders if (match := _STORED.fullmatch(name))}

    def _is_forgotten(self, number: int) -> bool:
        """Whether ZooKeeper knows nothing of a broker that was killed, which else cannot come back."""
        known = brokers(self._zookeeper_port)
        return known is not None and number not in known

    def _code_of(self, name: str) -> int | None:
        self.wait(f"{name} did not end", lambda: self.processes.exit_code(name) is not None)
        return self.processes.exit_code(name)

    def launch(self, number: int) -> None:
        """Start the node's process; the node is ready later."""
        node = self.node(number)
        if self._zookeeper_port:
            self.wait(f"ZooKeeper did not forget node {number}", lambda: self._is_forgotten(number))
        self._log_starts[number] = node.log.stat().st_size if node.log.exists() else 0
        self._pids[number] = self.processes.start(node.name, self._jvm.broker(node.settings_file), node.log)
        self._suspended.discard(number)  # its process before this one may have been killed while it was
        logger.debug("node %d on %s is process %d", number, node.address, self._pids[number])

    def pid(self, number: int) -> int:
        return self._pids[self.node(number).node_id]

    def node(self, number: int) -> Node:
        if number not in self.nodes:
            raise LocalKafkaError(f"there is no node {number}; the nodes are {', '.join(map(str, self.nodes))}")
        return self.nodes[number]

    def is_running(self, number: int) -> bool:
        return self.processes.exit_code(self.node(number).name) is None

    def is_suspended(self, number: int) -> bool:
        return number in self._suspended

    def serving(self) -> list[int]:
        """The nodes that run and are not suspended."""
        return [number for number in self.nodes if number not in self._suspended and self.is_running(number)]

    def signal(self, number: int, which: signal.Signals) -> None:
        """Send a signal to a node. Raises LocalKafkaError where it does not run."""
        if not self.is_running(number):
            raise LocalKafkaError(f"node {number} is not running")
        self.processes.signal(self.node(number).name, which)
        if which is signal.SIGSTOP:
            self._suspended.add(number)
        elif which in {signal.SIGCONT, signal.SIGKILL}:
            self._suspended.discard(number)

    def admin(self) -> Admin:
        """A connection to the first node that serves."""
        for number in self.serving():
            return self._connect(number, self._timeout)
        raise LocalKafkaError("no node is running, or all are suspended")

    def controller(self) -> Admin:
        """A connection to the controller, which alone takes changes of topics where there is a ZooKeeper."""
        if not self._zookeeper_port:
            return self.admin()
        with self.admin() as admin:
            number = int(admin.metadata().controller_id)
        return self._connect(number, self._timeout)

    def probe(self, number: int) -> Admin:
        """A connection to that node for a question within a wait: with little patience, since the wait asks again."""
        return self._connect(number, min(self._timeout, _PROBE_SECONDS))

    def _connect(self, number: int, timeout: float) -> Admin:
        from instride.testing._kafka.admin import Admin  # noqa: PLC0415 - kio's messages take a while to import

        return Admin(self.node(number).port, timeout=timeout)

    def wait(self, what: str, done: Callable[[], bool], *, needed: Iterable[int] = ()) -> None:
        """Poll until done. needed: the nodes whose end is a failure. See the first law."""
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
                raise LocalKafkaTimeoutError(f"{what} within {self._timeout:g} s{self._ends_of_logs(needed)}") from last
            time.sleep(_POLL_SECONDS)

    def _check_alive(self, number: int) -> None:
        if not self.is_running(number):
            log = _read(self.node(number).log, self._log_starts[number])
            message = f"node {number} ended while it was to start. Of its log:\n{_trouble(log)}"
            raise BrokerStartError(message, port_taken=_PORT_TAKEN in log)

    def _ends_of_logs(self, numbers: Iterable[int]) -> str:
        return "".join(f"\nThe end of node {n}'s log:\n{_read(self.node(n).log)[-_LOG_PART:]}" for n in numbers)


def _read(log: Path, start: int = 0) -> str:
    return log.read_bytes()[start:].decode(errors="replace") if log.exists() else ""


def _trouble(log: str) -> str:
    """The part that tells what went wrong: from the first error on, or else the end."""
    match = _ERROR.search(log)
    return log[match.start() :][:_LOG_PART] if match else log[-_LOG_PART:]
