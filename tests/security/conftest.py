"""One broker with all listeners for the tests of this folder, and a topic with records on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from canaries import everything_told, secrets_in
from confluent_kafka import Producer
from security_help import PASSWORD, PATIENCE, USER, Certificates, Listeners, add_scram_user, make_listeners

from instride import Consumer


@pytest.fixture(autouse=True)
def no_secret_is_told(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In every test here: no log line at DEBUG and no error of ours has a secret in it."""
    with everything_told(monkeypatch) as told:
        yield
    assert [found for text in told for found in secrets_in(text)] == []


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def listeners(certificates: Certificates) -> Iterator[Listeners]:
    with make_listeners(certificates) as kafka:
        kafka.create_topic("secured")
        add_scram_user(kafka, USER, PASSWORD)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for number in range(20):
            producer.produce("secured", str(number).encode())
        assert producer.flush(PATIENCE) == 0
        yield Listeners(kafka, certificates)


@pytest.fixture
def open_consumer() -> Iterator[Callable[..., Consumer]]:
    """``open_consumer(**settings)``: closed when the test ends."""
    with ExitStack() as stack:

        def build(**settings: Any) -> Consumer:
            quick = {"auto_offset_reset": "earliest", "heartbeat_interval": 0.1, "request_timeout": 5.0}
            consumer = Consumer(**{**quick, **settings})
            stack.callback(consumer.close, timeout=2.0)
            return consumer

        yield build
