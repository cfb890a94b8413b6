"""GSSAPI against a real broker and a KDC of our own; skipped by name where Kerberos is not installed."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kerberos_help import MISSING, READER, Kdc, running_kdc, with_gssapi
from security_help import PATIENCE, Certificates, connections_outlast

from instride import Consumer, TopicPartition
from instride.errors import AuthenticationError
from instride.testing import LocalKafka

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(bool(MISSING), reason=f"GSSAPI's tests need {', '.join(MISSING)}: see tools/kerberos"),
]

Open = Callable[..., Consumer]
TP = TopicPartition("secured", 0)


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with running_kdc(tmp_path_factory.mktemp("kdc")) as started:
        yield started


@pytest.fixture(scope="module")
def keytab(kdc: Kdc) -> Path:
    return kdc.add(READER)


@pytest.fixture(scope="module")
def kafka(kdc: Kdc, certificates: Certificates) -> Iterator[LocalKafka]:
    with with_gssapi(kdc, certificates) as started:
        started.create_topic("secured")
        producer = Producer({"bootstrap.servers": started.bootstrap_servers})
        for number in range(20):
            producer.produce("secured", str(number).encode())
        assert producer.flush(PATIENCE) == 0
        yield started


@pytest.fixture
def settings(
    kafka: LocalKafka, kdc: Kdc, keytab: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.config))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{kdc.folder / uuid.uuid4().hex}")

    def build(listener: str = "KRBPLAIN", **more: Any) -> dict[str, Any]:
        reach: dict[str, Any] = {"bootstrap_servers": kafka.listener(listener), "sasl_mechanism": "GSSAPI"}
        reach["security_protocol"] = "SASL_SSL" if listener == "KRBTLS" else "SASL_PLAINTEXT"
        if listener == "KRBTLS":
            reach["ssl_ca_file"] = certificates.file("ca.pem")
        who = {"sasl_kerberos_principal": READER, "sasl_kerberos_keytab_file": str(keytab)}
        return {**reach, **who, **more}

    return build


Settings = Callable[..., dict[str, Any]]


@pytest.mark.requirement("surface/gssapi")
@pytest.mark.parametrize("listener", ["KRBTLS", "KRBPLAIN"])
def test_a_member_of_a_group_with_a_keytab(settings: Settings, open_consumer: Open, listener: str) -> None:
    consumer = open_consumer(group_id=f"g-{uuid.uuid4().hex[:8]}", **settings(listener))
    consumer.subscribe(["secured"])
    values: list[bytes | None] = []
    deadline = time.monotonic() + PATIENCE
    while len(values) < 20:
        assert time.monotonic() < deadline, f"{len(values)} records came"
        values += [record.value for record in consumer.poll(timeout=0.2)]
    assert values == [str(number).encode() for number in range(20)]
    consumer.commit(timeout=PATIENCE)


def test_whoever_the_environment_says(
    settings: Settings, open_consumer: Open, keytab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after kinit: no principal and no keytab are given."""
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(keytab))
    consumer = open_consumer(**settings(sasl_kerberos_principal=None, sasl_kerberos_keytab_file=None))
    assert consumer.end_offsets([TP], timeout=PATIENCE) == {TP: 20}


@pytest.mark.requirement("surface/gssapi")
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"sasl_kerberos_principal": None, "sasl_kerberos_keytab_file": None}, "kafka/127.0.0.1"),
        ({"sasl_kerberos_principal": "nobody@INSTRIDE.TEST"}, "kafka/127.0.0.1"),
        ({"sasl_kerberos_service_name": "other"}, "other/127.0.0.1"),
    ],
)
def test_what_gets_no_ticket_is_told(settings: Settings, open_consumer: Open, wrong: dict[str, Any], told: str) -> None:
    consumer = open_consumer(**settings(**wrong))
    consumer.assign([TP])
    with pytest.raises(AuthenticationError, match=f"no Kerberos ticket for {told}"):
        consumer.poll(timeout=PATIENCE)


@pytest.mark.requirement("surface/re-authentication")
def test_sessions_go_on_over_several_lifetimes(
    settings: Settings, open_consumer: Open, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "instride")
    consumer = open_consumer(fetch_max_wait=0.1, **settings("SHORT"))
    consumer.assign([TP])
    values: list[bytes | None] = []

    def turn() -> None:
        values.extend(record.value for record in consumer.poll(timeout=0.1))

    connections_outlast(7.0, turn, caplog)
    assert values == [str(number).encode() for number in range(20)]
