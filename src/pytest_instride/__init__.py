"""Fixtures for pytest: ``instride_kafka``, ``instride_kafka_topic`` and ``instride_kafka_cluster``.

A test suite opts in, in its top ``conftest.py``::

    pytest_plugins = ["pytest_instride"]

It is a package of its own, and imports instride only when a fixture is used: so a run that needs no Kafka does not pay
for one, and coverage misses no line of instride.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from instride.testing import LocalKafka

__all__ = ["instride_kafka", "instride_kafka_cluster", "instride_kafka_topic"]


@pytest.fixture(scope="session")
def instride_kafka() -> Iterator[LocalKafka]:
    """One real broker for the whole run, started on first use. Do not stop or kill it: other tests use it too."""
    from instride.testing import LocalKafka  # noqa: PLC0415 - see the top of the file

    with LocalKafka() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def instride_kafka_cluster() -> Iterator[LocalKafka]:
    """Three nodes for the tests of one module, which may kill, suspend and restart them, and then restore them."""
    from instride.testing import LocalKafka  # noqa: PLC0415 - see the top of the file

    with LocalKafka(nodes=3) as cluster:
        yield cluster


@pytest.fixture
def instride_kafka_topic(instride_kafka: LocalKafka, request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """``instride_kafka_topic(partitions=1, *, configs=None)``: make a topic of this test's own and return its name.

    The names are unique in the run; the topics are deleted when the test ends.
    """
    import uuid  # noqa: PLC0415 - see the top of the file

    from instride.errors import KafkaError, UnknownTopicOrPartitionError  # noqa: PLC0415 - see the top of the file

    made: dict[str, type[KafkaError]] = {}
    """By name, what its removal may raise."""
    stem = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:80].strip("-.")

    def make(partitions: int = 1, *, configs: dict[str, str] | None = None) -> str:
        name = f"{stem}-{uuid.uuid4().hex[:8]}"
        made[name] = KafkaError  # before: a call that fails may have made it all the same
        instride_kafka.create_topic(name, partitions, configs=configs)
        made[name] = UnknownTopicOrPartitionError  # the test may have deleted it
        return name

    def delete(name: str) -> None:
        with suppress(made[name]):
            instride_kafka.delete_topic(name)

    yield make
    with ExitStack() as deletions:  # each is tried, whatever becomes of another
        for name in made:
            deletions.callback(delete, name)
