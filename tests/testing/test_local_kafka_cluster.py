"""Three nodes, of which single ones are lost and come back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from instride.testing import LocalKafka

Eventually = Callable[[Callable[[], bool]], None]

pytestmark = pytest.mark.kafka


def leaders(kafka: LocalKafka, topic: str, partitions: int) -> list[int | None]:
    return [kafka.leader(topic, partition) for partition in range(partitions)]


@pytest.mark.slow
def test_all_three_serve(kafka_cluster: LocalKafka) -> None:
    assert kafka_cluster.nodes == (1, 2, 3)
    addresses = kafka_cluster.bootstrap_servers.split(",")
    assert addresses == [kafka_cluster.address(node) for node in (1, 2, 3)]
    assert len(set(addresses)) == 3
    kafka_cluster.create_topic("spread", 6)
    assert set(leaders(kafka_cluster, "spread", 6)) == {1, 2, 3}


@pytest.mark.slow
def test_a_killed_nodes_partitions_move_and_it_comes_back(kafka_cluster: LocalKafka, eventually: Eventually) -> None:
    kafka_cluster.create_topic("moves", 6)
    kafka_cluster.kill(1)
    eventually(lambda: set(leaders(kafka_cluster, "moves", 6)) == {2, 3})
    kafka_cluster.create_topic("made-by-two", 2, replication=2)
    kafka_cluster.restart(1)
    assert kafka_cluster.is_running(1)
    assert kafka_cluster.topics()["made-by-two"] == 2


def test_a_node_that_shuts_down_hands_on_first(kafka_cluster: LocalKafka, eventually: Eventually) -> None:
    kafka_cluster.create_topic("handed-on", 6)
    kafka_cluster.shut_down(2)
    assert not kafka_cluster.is_running(2)
    eventually(lambda: set(leaders(kafka_cluster, "handed-on", 6)) == {1, 3})
    kafka_cluster.restart(2)
    assert all(map(kafka_cluster.is_running, (1, 2, 3)))


def test_a_suspended_nodes_partitions_move(kafka_cluster: LocalKafka, eventually: Eventually) -> None:
    kafka_cluster.create_topic("frozen", 6)
    kafka_cluster.suspend(3)
    eventually(lambda: set(leaders(kafka_cluster, "frozen", 6)) == {1, 2})
    kafka_cluster.resume(3)
    kafka_cluster.wait_until_ready()
    kafka_cluster.create_topic("after", 3, replication=3)
    assert None not in leaders(kafka_cluster, "after", 3)
