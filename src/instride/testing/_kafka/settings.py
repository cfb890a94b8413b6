"""What a node's ``server.properties`` says.

Laws
1. Every node is broker and controller in one (before 3.3: a broker, with a ZooKeeper for all), and listens on
   127.0.0.1 only (or ::1): in plain text, and as the user's own listeners say.
2. The user's properties win over the defaults here; those that make the cluster what it is are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from instride.errors import ConfigError
from instride.testing._kafka.java_properties import escaped
from instride.testing._kafka.zookeeper import SESSION_MS

__all__ = [
    "RESERVED",
    "Node",
    "checked",
    "checked_listeners",
    "checked_racks",
    "listener_address",
    "server_properties",
]

Property = str | int | float | bool

RESERVED: Final = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
        "zookeeper.connect",
    }
)


_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_IPV6: Final = "@::1"
_RACK: Final = "broker.rack"
_NEAREST: Final = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
_OWN_LISTENERS: Final = ("PLAINTEXT", "CONTROLLER")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One broker and controller. port: for clients. folder: all of the node's files but its log.

    listeners: those besides, name -> (security protocol, port). zookeeper_port: 0 where the node is its own controller.
    rack: "" where it is in none.
    """

    node_id: int
    port: int
    controller_port: int
    folder: Path
    log: Path
    listeners: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    zookeeper_port: int = 0
    rack: str = ""

    @property
    def name(self) -> str:
        return f"node-{self.node_id}"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def settings_file(self) -> Path:
        return self.folder / "server.properties"


def checked(properties: Mapping[str, Property] | None) -> dict[str, str]:
    """The user's properties as text. Raises ConfigError for one that only LocalKafka may set."""
    texts: dict[str, str] = {}
    for key, value in (properties or {}).items():
        if key in RESERVED:
            raise ConfigError(f"the broker property {key!r} is set by LocalKafka and cannot be given")
        texts[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def checked_listeners(listeners: Mapping[str, str] | None) -> dict[str, str]:
    """Name -> security protocol, which ends in "@::1" for a listener on IPv6. Raises ConfigError."""
    for name, protocol in (listeners or {}).items():
        if not re.fullmatch(r"[A-Z][A-Z0-9_]*", name) or name in _OWN_LISTENERS:
            raise ConfigError(
                f"a listener cannot have the name {name!r}: capital letters, and none of {_OWN_LISTENERS}"
            )
        if protocol.removesuffix(_IPV6) not in _PROTOCOLS:
            raise ConfigError(f"listener {name}: its protocol is one of {', '.join(_PROTOCOLS)}, not {protocol!r}")
    return dict(listeners or {})


def checked_racks(racks: Sequence[str] | None, nodes: int, properties: Mapping[str, str]) -> tuple[str, ...]:
    """One for each node. Raises ConfigError."""
    if racks is None:
        return ("",) * nodes
    if isinstance(racks, str) or len(racks) != nodes or not all(isinstance(rack, str) and rack for rack in racks):
        raise ConfigError(f"racks must be {nodes} texts that are not empty, one for each node, not {racks!r}")
    if _RACK in properties:
        raise ConfigError(f"racks and the broker property {_RACK!r} exclude each other")
    return tuple(racks)


def listener_address(protocol: str, port: int) -> str:
    """Where a listener is: on 127.0.0.1, or on ::1 where its protocol says so."""
    return f"[::1]:{port}" if protocol.endswith(_IPV6) else f"127.0.0.1:{port}"


def server_properties(node: Node, nodes: tuple[Node, ...], properties: Mapping[str, str]) -> str:
    """The text of the node's ``server.properties``."""
    racked = {_RACK: node.rack, **_NEAREST} if node.rack else {}
    merged = {**_defaults(len(nodes)), **racked, **properties, **_identity(node, nodes)}
    return "".join(f"{escaped(key)}={escaped(value)}\n" for key, value in merged.items())


def _identity(node: Node, nodes: tuple[Node, ...]) -> dict[str, str]:
    clients = [f"PLAINTEXT://{node.address}"]
    clients += [f"{name}://{listener_address(*where)}" for name, where in node.listeners.items()]
    protocols = dict.fromkeys(_OWN_LISTENERS, "PLAINTEXT")
    protocols |= {name: protocol.removesuffix(_IPV6) for name, (protocol, _) in node.listeners.items()}
    own = {
        "advertised.listeners": ",".join(clients),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(node.data),
    }
    return own | (_with_zookeeper(node, clients) if node.zookeeper_port else _with_quorum(node, nodes, clients))


def _with_quorum(node: Node, nodes: tuple[Node, ...], clients: list[str]) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "controller.quorum.voters": ",".join(f"{n.node_id}@127.0.0.1:{n.controller_port}" for n in nodes),
        "listeners": ",".join((*clients, f"CONTROLLER://127.0.0.1:{node.controller_port}")),
        "controller.listener.names": "CONTROLLER",
    }


def _with_zookeeper(node: Node, clients: list[str]) -> dict[str, str]:
    return {
        "broker.id": str(node.node_id),
        "zookeeper.connect": f"127.0.0.1:{node.zookeeper_port}",
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        "listeners": ",".join(clients),
    }


def _defaults(count: int) -> dict[str, str]:
    """Quick to start, quick to notice a lost broker, small; replicated as far as there are nodes."""
    copies, in_sync = str(count), str(max(1, count - 1))
    return {
        "auto.create.topics.enable": "false",
        "broker.heartbeat.interval.ms": "1000",
        "broker.session.timeout.ms": "6000",
        "default.replication.factor": copies,
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "log.cleaner.dedupe.buffer.size": str(16 << 20),
        # In hours, the least specific of the three settings: whichever of them the user gives wins.
        "log.retention.hours": "-1",
        "min.insync.replicas": "1",
        "num.io.threads": "4",
        "num.network.threads": "2",
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": copies,
    }
