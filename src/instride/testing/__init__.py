"""For tests: a real Apache Kafka, ``LocalKafka`` (the pytest fixtures that offer it are in `pytest_instride`); and a
whole group in virtual time, ``SimulatedCluster`` (docs/simulation.md).

    with LocalKafka() as kafka:
        kafka.create_topic("flights", partitions=12)
        Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id="g")

Laws
1. Names are loaded on first use: who wants only `find_java` does not import an admin client.
"""

# What is inside: check, simulation, simulate, explore: the checker, simulated groups, and their commands;
# _check, _simulation, _explore, _kafka, _recording: their parts; _tap: what an observer tells a history.

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from instride.testing._kafka.java import Java, find_java
    from instride.testing._kafka.kafka_home import KAFKA_VERSIONS, KafkaHome, find_kafka
    from instride.testing._kafka.local_kafka import LocalKafka
    from instride.testing._recording import RecordedMember, RecordedPeer, Recorder
    from instride.testing._simulation.cluster import SimulatedCluster

__all__ = [
    "KAFKA_VERSIONS",
    "LocalKafka",
    "Java",
    "KafkaHome",
    "find_java",
    "find_kafka",
    "RecordedMember",
    "RecordedPeer",
    "Recorder",
    "SimulatedCluster",
]

_HOMES: Final = {
    "KAFKA_VERSIONS": "_kafka.kafka_home",
    "LocalKafka": "_kafka.local_kafka",
    "Java": "_kafka.java",
    "find_java": "_kafka.java",
    "KafkaHome": "_kafka.kafka_home",
    "find_kafka": "_kafka.kafka_home",
    "RecordedMember": "_recording",
    "RecordedPeer": "_recording",
    "Recorder": "_recording",
    "SimulatedCluster": "_simulation.cluster",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
