"""The default producer of dead letters and outputs, at a real broker over TLS: it reaches what the consumer reaches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from security_help import PATIENCE, Listeners

from instride import Consumer, TopicPartition
from instride._processing.dead_letters import ConfluentProduce
from instride._processing.outputs import OutputRecord

pytestmark = pytest.mark.kafka

Open = Callable[..., Consumer]


def is_reached(listeners: Listeners, open_consumer: Open, settings: dict[str, Any], topic: str) -> None:
    """The consumer sees what the producer has written, with the same settings."""
    listeners.kafka.create_topic(topic)
    partition = TopicPartition(topic, 0)
    with closing(ConfluentProduce(settings)) as produce:
        assert produce(OutputRecord(value=b"v", topic=topic)).result(PATIENCE) is None
    assert open_consumer(**settings).end_offsets([partition], timeout=PATIENCE) == {partition: 1}


def test_a_key_in_the_file_of_its_certificate(listeners: Listeners, open_consumer: Open, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    files = listeners.certificates.file("cert.pem"), listeners.certificates.file("key.pem")
    both.write_text("".join(Path(each).read_text() for each in files))
    is_reached(listeners, open_consumer, listeners.tls("MUTUAL", ssl_cert_file=str(both)), "key-and-certificate")


def test_authorities_by_the_variables_of_openssl(
    listeners: Listeners, open_consumer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", listeners.certificates.file("ca.pem"))
    is_reached(listeners, open_consumer, listeners.tls(ssl_ca_file=None), "openssl-variables")
