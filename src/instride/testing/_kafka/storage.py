"""The empty storage of a node, written without a JVM where Kafka's own tool has formatted one with the same settings.

Laws
1. What the tool writes is the authority: its checkpoint (the levels of the features, which depend on Kafka's version
   and on the settings) is kept as it is, in this process only. The other file names the cluster, the node and its
   folder.
2. Settings that only say where a node is make no difference; with any other difference the tool runs again.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Final
from uuid import uuid4

from instride.testing._kafka.kafka_home import KafkaHome
from instride.testing._kafka.settings import RESERVED, Node

__all__ = ["copy_storage", "draw_id", "keep_storage"]

_CHECKPOINT: Final = "bootstrap.checkpoint"
_OWN: Final = RESERVED | {"broker.rack"}
_kept: dict[tuple[str, str, tuple[str, ...]], bytes] = {}


def draw_id() -> str:
    """A random id in Kafka's form."""
    return urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")


def keep_storage(home: KafkaHome, node: Node) -> None:
    """Remember what the tool has written for this node."""
    _kept[_key(home, node)] = (node.data / _CHECKPOINT).read_bytes()


def copy_storage(home: KafkaHome, node: Node, cluster_id: str) -> bool:
    """Whether the storage was written; else the tool has to format it."""
    checkpoint = _kept.get(_key(home, node))
    if checkpoint is None:
        return False
    node.data.mkdir()
    (node.data / _CHECKPOINT).write_bytes(checkpoint)
    identity = {"version": 1, "cluster.id": cluster_id, "node.id": node.node_id, "directory.id": draw_id()}
    text = "".join(f"{name}={value}\n" for name, value in identity.items())
    (node.data / "meta.properties").write_text(text, encoding="ascii")
    return True


def _key(home: KafkaHome, node: Node) -> tuple[str, str, tuple[str, ...]]:
    lines = node.settings_file.read_text(encoding="utf-8").splitlines()
    return str(home.folder), home.version, tuple(line for line in lines if line.partition("=")[0] not in _OWN)
