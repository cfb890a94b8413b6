"""The text of server.properties, and the ports in it."""

from __future__ import annotations

import random
import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instride.errors import ConfigError, LocalKafkaError
from instride.testing._kafka import ports
from instride.testing._kafka.settings import RESERVED, Node, checked, checked_listeners, server_properties
from instride.testing._kafka.zookeeper import zookeeper_settings

NODES = tuple(
    Node(node_id=n, port=1000 + n, controller_port=2000 + n, folder=Path(f"/f/{n}"), log=Path(f"/f/{n}.log"))
    for n in (1, 2, 3)
)


CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


def parsed(text: str) -> dict[str, str]:
    """Read properties as Java does: an unescaped ``=`` parts key from value, a backslash shields a letter. What is not
    ASCII it would read as other letters."""
    assert text.isascii()
    found = {}
    for line in text.removesuffix("\n").split("\n"):
        match = re.fullmatch(r"((?:\\.|[^\\=])*)=((?:\\.|[^\\])*)", line)
        assert match is not None, line
        key, value = map(unescaped, match.groups())
        found[key] = value
    return found


def unescaped(part: str) -> str:
    def letter(match: re.Match[str]) -> str:
        return chr(int(match[1][1:], 16)) if len(match[1]) > 1 else CONTROLS.get(match[1], match[1])

    units = re.sub(r"\\(u[0-9a-f]{4}|.)", letter, part)
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


def test_each_node_knows_all_voters_and_listens_on_loopback_only() -> None:
    settings = parsed(server_properties(NODES[1], NODES, {}))
    assert settings["node.id"] == "2"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:2001,2@127.0.0.1:2002,3@127.0.0.1:2003"
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:1002,CONTROLLER://127.0.0.1:2002"
    assert settings["log.dirs"] == "/f/2/data"
    assert settings["offsets.topic.replication.factor"] == "3"


def test_a_node_with_a_zookeeper_is_a_broker_only() -> None:
    node = replace(NODES[1], zookeeper_port=3000)
    settings = parsed(server_properties(node, (node,), {}))
    assert settings["broker.id"] == "2"
    assert settings["zookeeper.connect"] == "127.0.0.1:3000"
    assert settings["listeners"] == settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1002"
    assert not {"process.roles", "node.id", "controller.quorum.voters", "controller.listener.names"} & set(settings)


def test_a_node_in_a_rack_says_so_and_names_the_replica_in_a_clients_rack() -> None:
    node = replace(NODES[1], rack="r2")
    settings = parsed(server_properties(node, (node,), {}))
    assert settings["broker.rack"] == "r2"
    assert settings["replica.selector.class"].endswith(".RackAwareReplicaSelector")
    own = checked({"replica.selector.class": "Own"})
    assert parsed(server_properties(node, (node,), own))["replica.selector.class"] == "Own"
    assert not {"broker.rack", "replica.selector.class"} & set(parsed(server_properties(NODES[1], NODES, {})))


def test_no_record_expires_by_its_timestamp_unless_the_user_says_so() -> None:
    """Kafka looks every five minutes: a test whose records were old failed by chance."""
    ours = parsed(server_properties(NODES[0], NODES, {}))
    assert {name: value for name, value in ours.items() if "retention" in name} == {"log.retention.hours": "-1"}
    theirs = parsed(server_properties(NODES[0], NODES, {"log.retention.ms": "5"}))
    assert theirs["log.retention.ms"] == "5"


def test_the_users_properties_win_over_the_defaults() -> None:
    given_ones = checked({"offsets.topic.num.partitions": 7, "auto.create.topics.enable": True, "x.ratio": 0.5})
    settings = parsed(server_properties(NODES[0], NODES[:1], given_ones))
    assert settings["offsets.topic.num.partitions"] == "7"
    assert settings["auto.create.topics.enable"] == "true"
    assert settings["x.ratio"] == "0.5"


@pytest.mark.parametrize("key", sorted(RESERVED))
def test_what_makes_the_cluster_cannot_be_given(key: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(repr(key))):
        checked({key: "x"})


LETTERS = st.characters(exclude_categories=["Cs"]) | st.sampled_from("\n\r\t\f\\=:#! é😀")


@given(value=st.text(LETTERS))
def test_any_value_arrives_as_it_was_given(value: str) -> None:
    """Java takes each byte for a letter: of é in UTF-8 it made two."""
    assert parsed(server_properties(NODES[0], NODES, {"some.key": value}))["some.key"] == value


@given(name=st.text(LETTERS, min_size=1))
def test_zookeeper_keeps_its_data_in_the_folder_whatever_its_name_is(name: str) -> None:
    folder = Path("/f", name)
    assert parsed(zookeeper_settings(folder, 1))["dataDir"] == str(folder / "zookeeper-data")


def test_ports_are_free_and_distinct(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "_RANGE", range(port, port + 1))
        monkeypatch.setattr(ports, "_TRIES", 1)
        with pytest.raises(LocalKafkaError, match="free ports"):
            ports.free_ports(1)
    assert ports.free_ports(1) == [port]
    monkeypatch.undo()
    assert len(set(ports.free_ports(6))) == 6


def test_ports_are_no_business_of_a_test_runs_own_random_numbers() -> None:
    """pytest-randomly seeds all workers of a run alike: they drew the same ports, and the tests' own numbers moved."""
    drawn = []
    for _ in range(2):
        random.seed(7)
        before = random.getstate()
        drawn.append(ports.free_ports(3))
        assert random.getstate() == before
    assert drawn[0] != drawn[1]


def test_a_listener_of_ones_own_has_its_protocol_and_is_advertised() -> None:
    node = Node(
        node_id=1, port=1001, controller_port=2001, folder=Path("/f"), log=Path("/l"), listeners={"TLS": ("SSL", 3001)}
    )
    settings = parsed(server_properties(node, (node,), {}))
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:1001,TLS://127.0.0.1:3001,CONTROLLER://127.0.0.1:2001"
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1001,TLS://127.0.0.1:3001"
    assert settings["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL"


def test_a_listener_may_be_on_ipv6() -> None:
    node = Node(
        node_id=1,
        port=1001,
        controller_port=2001,
        folder=Path("/f"),
        log=Path("/l"),
        listeners=dict.fromkeys(checked_listeners({"SIX": "SSL@::1"}), ("SSL@::1", 3001)),
    )
    settings = parsed(server_properties(node, (node,), {}))
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1001,SIX://[::1]:3001"
    assert settings["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SIX:SSL"


@pytest.mark.parametrize("listeners", [{"PLAINTEXT": "SSL"}, {"tls": "SSL"}, {"TLS": "TLS"}, {"CONTROLLER": "SSL"}])
def test_a_listener_that_cannot_be_is_refused(listeners: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        checked_listeners(listeners)
