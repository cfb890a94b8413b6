"""pytest's door to `instride.testing`: the fixtures ``kafka``, ``kafka_topic`` and ``kafka_cluster``.

Laws
1. pytest loads this in every run where instride is installed, so it imports nothing of instride until a fixture is
   asked for. Hence a package of its own: `import instride.anything` would import the consumer. So a run that needs no
   Kafka does not pay for one, coverage misses no line of instride, and a broken install breaks only what uses it.

``-p no:pytest_instride`` turns it off.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from instride.testing.local_kafka import LocalKafka

__all__ = ["kafka", "kafka_cluster", "kafka_topic"]


@pytest.fixture(scope="session")
def kafka() -> Iterator[LocalKafka]:
    """One real broker for the whole run, started on first use. Do not stop or kill it: other tests use it too."""
    from instride.testing.local_kafka import LocalKafka  # noqa: PLC0415 - see the law above

    with LocalKafka() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka_cluster() -> Iterator[LocalKafka]:
    """Three nodes for the tests of one module, which may kill, suspend and restart them, and then restore them."""
    from instride.testing.local_kafka import LocalKafka  # noqa: PLC0415 - see the law above

    with LocalKafka(nodes=3) as cluster:
        yield cluster


@pytest.fixture
def kafka_topic(kafka: LocalKafka, request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """``kafka_topic(partitions=1, *, configs=None)``: make a topic of this test's own and return its name.

    The names are unique in the run; the topics are deleted when the test ends.
    """
    import uuid  # noqa: PLC0415 - see the law above

    made: list[str] = []
    stem = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:80].strip("-.")

    def make(partitions: int = 1, *, configs: dict[str, str] | None = None) -> str:
        name = f"{stem}-{uuid.uuid4().hex[:8]}"
        kafka.create_topic(name, partitions, configs=configs)
        made.append(name)
        return name

    yield make
    if made:
        kafka.delete_topic(*made)
