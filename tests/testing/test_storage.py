"""The storage of a broker's node: the tool formats the first of those with the same settings, the others are copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from instride.testing._kafka.java import Java
from instride.testing._kafka.jvm import Jvm
from instride.testing._kafka.kafka_home import KafkaHome
from instride.testing._kafka.processes import Processes
from instride.testing._kafka.running import Running, lay_out
from instride.testing._kafka.settings import Node

# In the place of Java: writes what the tool does, and the cluster's id as an argument has it.
TOOL = """#!/bin/sh
for last; do :; done
echo asked >> "$(dirname "$0")/asked"
mkdir "$(dirname "$last")/data"
echo levels > "$(dirname "$last")/data/bootstrap.checkpoint"
echo by the tool > "$(dirname "$last")/data/meta.properties"
"""

Prepare = Callable[..., Running]


@pytest.fixture
def prepare(tmp_path: Path) -> Iterator[Prepare]:
    """``prepare(version, nodes, properties)``: a cluster whose storage is there, and whose brokers are not started."""
    tool = tmp_path / "java"
    tool.write_text(TOOL)
    tool.chmod(0o755)
    with ExitStack() as stack:

        def build(version: str = "4.3.1", nodes: int = 1, properties: Mapping[str, str] | None = None) -> Running:
            processes = Processes(tmp_path)
            stack.callback(processes.end)
            jvm = Jvm(
                java=Java(path=tool, version=17, source="test"),
                home=KafkaHome(folder=tmp_path / "home", version=version),
                options=(),
                folder=processes.folder,
            )
            jvm.prepare()
            laid = lay_out(processes.folder, [""] * nodes, properties or {}, {})
            running = Running(processes, laid, jvm, timeout=60)
            running.prepare()
            return running

        yield build


def times_asked(folder: Path) -> int:
    return len((folder / "asked").read_text().splitlines())


def identity(node: Node) -> dict[str, str]:
    lines = (node.data / "meta.properties").read_text().splitlines()
    return dict(line.split("=") for line in lines)


def test_nodes_with_the_same_settings_are_formatted_once(prepare: Prepare, tmp_path: Path) -> None:
    cluster, again = prepare(nodes=3), prepare(nodes=3)
    assert times_asked(tmp_path) == 1
    nodes = [cluster.node(2), cluster.node(3), *again.nodes.values()]
    assert {(node.data / "bootstrap.checkpoint").read_text() for node in nodes} == {"levels\n"}
    assert [identity(node)["node.id"] for node in nodes] == ["2", "3", "1", "2", "3"]
    assert [identity(node)["cluster.id"] for node in nodes] == [cluster.cluster_id] * 2 + [again.cluster_id] * 3
    assert len({identity(node)["directory.id"] for node in nodes}) == 5
    assert {identity(node)["version"] for node in nodes} == {"1"}


def test_other_settings_and_other_versions_are_formatted_anew(prepare: Prepare, tmp_path: Path) -> None:
    for version, properties in (("4.3.1", {}), ("4.3.1", {"num.io.threads": "2"}), ("3.9.1", {})):
        prepare(version, properties=properties)
    assert times_asked(tmp_path) == 3


def test_a_kafka_home_is_always_formatted_by_its_own_tool(prepare: Prepare, tmp_path: Path) -> None:
    prepare("", nodes=2)
    assert times_asked(tmp_path) == 2
