"""What the default producer is told of the consumer's settings: it reaches the brokers that the consumer reaches."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from instride import Processor
from instride._processing.dead_letters import ConfluentProduce, confluent_settings, with_authorities
from instride._processing.outputs import OutputRecord
from instride.errors import ConfigError

SERVERS = {"bootstrap_servers": "b:1"}
TLS = {**SERVERS, "security_protocol": "SSL"}
PEM = "-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n"
KERBEROS: dict[str, Any] = {**SERVERS, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}


def told(settings: dict[str, Any]) -> dict[str, Any]:
    return with_authorities(confluent_settings(settings))


def test_a_key_in_the_file_of_its_certificate_is_found_there() -> None:
    assert told({**TLS, "ssl_cert_file": "both.pem"})["ssl.key.location"] == "both.pem"
    assert told({**TLS, "ssl_cert_file": "c.pem", "ssl_key_file": "k.pem"})["ssl.key.location"] == "k.pem"
    assert "ssl.key.location" not in told(TLS)


@pytest.fixture
def authorities(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Those of this machine, by the variables that OpenSSL reads."""
    (tmp_path / "ca.pem").write_text(PEM)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    return tmp_path


def test_without_authorities_it_trusts_those_of_the_consumer(authorities: Path) -> None:
    """librdkafka reads neither variable, and has a list of files of its own."""
    for protocol in ("SSL", "SASL_SSL"):
        found = told({**TLS, "security_protocol": protocol})
        assert (found["ssl.ca.pem"], found["ssl.ca.location"]) == (PEM, str(authorities))


def test_authorities_that_are_given_are_all_that_it_trusts(authorities: Path) -> None:
    found = told({**TLS, "ssl_ca_file": "mine.pem"})
    assert found["ssl.ca.location"] == "mine.pem"
    assert "ssl.ca.pem" not in found


def test_without_tls_it_is_told_of_no_authorities(authorities: Path) -> None:
    assert told(SERVERS) == {"bootstrap.servers": "b:1"}


def test_authorities_that_are_not_there_are_not_told(authorities: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.setenv(name, str(authorities / "none"))
    assert not [name for name in told(TLS) if name.startswith("ssl.")]


def test_a_file_of_authorities_that_cannot_be_read_is_passed_over(
    authorities: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> str:
        raise PermissionError("no")

    monkeypatch.setattr(Path, "read_text", refuse)
    assert "ssl.ca.pem" not in told(TLS)
    assert os.environ["SSL_CERT_DIR"] == told(TLS)["ssl.ca.location"]


def test_of_a_list_of_directories_one_is_told(
    authorities: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """librdkafka takes no list, and Python tells of none."""
    (other := authorities / "other").mkdir()
    monkeypatch.setenv("SSL_CERT_DIR", os.pathsep.join(["", str(authorities / "none"), str(authorities)]))
    assert told(TLS)["ssl.ca.location"] == str(authorities)
    assert not caplog.messages
    monkeypatch.setenv("SSL_CERT_DIR", os.pathsep.join([str(other), str(authorities)]))
    assert told(TLS)["ssl.ca.location"] == str(other)
    assert caplog.messages == [f"SSL_CERT_DIR: confluent-kafka takes one directory of authorities: {other}"]


@pytest.mark.parametrize("text", ["", "none", "-----BEGIN TRUSTED CERTIFICATE-----"])
def test_a_file_without_a_certificate_that_librdkafka_reads_is_passed_over(authorities: Path, text: str) -> None:
    """As OpenSSL passes over it. librdkafka refuses the text, and names neither file nor variable."""
    (authorities / "ca.pem").write_text(text)
    assert "ssl.ca.pem" not in told(TLS)
    ConfluentProduce(TLS)


def test_kerberos_without_a_keytab_runs_no_kinit() -> None:
    """The tickets are there already. With one it does, as librdkafka's default is."""
    name = "sasl.kerberos.min.time.before.relogin"
    assert told(KERBEROS)[name] == 0
    assert name not in told({**KERBEROS, "sasl_kerberos_keytab_file": "k"})
    assert name not in told(SERVERS)


class WithoutKerberos:
    """confluent-kafka's wheel: its librdkafka is built without."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        if settings.get("sasl.mechanism") == "GSSAPI":
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "No provider for SASL mechanism GSSAPI"))


def test_a_mechanism_that_librdkafka_lacks_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by the first dead letter, which would be refused for ever."""
    monkeypatch.setattr("confluent_kafka.Producer", WithoutKerberos)
    with pytest.raises(ConfigError, match=r"refuses security_protocol, sasl_mechanism: No provider .*produce="):
        ConfluentProduce(KERBEROS)


def test_files_that_librdkafka_does_not_take_are_told_at_once(tmp_path: Path) -> None:
    """By confluent-kafka itself. No value is told, which may be a secret."""
    (tmp_path / "cert.pem").write_text("none")
    settings = {**TLS, "ssl_cert_file": str(tmp_path / "cert.pem"), "ssl_key_password": "canary"}
    with pytest.raises(ConfigError, match="refuses security_protocol, ssl_cert_file, ssl_key_password: ") as found:
        ConfluentProduce(settings)
    assert "canary" not in str(found.value)


def test_no_broker_is_connected_to_for_that(authorities: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    def make(settings: dict[str, Any]) -> WithoutKerberos:
        made.append(settings)
        return WithoutKerberos(settings)

    monkeypatch.setattr("confluent_kafka.Producer", make)
    ConfluentProduce(SERVERS)
    assert made == [], "nor is one made where nothing can be refused"
    ConfluentProduce(TLS)
    trusted = {"ssl.ca.location": str(authorities), "ssl.ca.pem": PEM}
    assert made == [{"security.protocol": "SSL", **trusted, "sasl.kerberos.min.time.before.relogin": 0, "log_level": 0}]


@pytest.mark.parametrize("option", [{"dead_letters": "t.dlq"}, {"output": "o"}])
def test_a_processor_tells_of_it_before_it_runs(monkeypatch: pytest.MonkeyPatch, option: dict[str, Any]) -> None:
    monkeypatch.setattr("confluent_kafka.Producer", WithoutKerberos)

    def handle(_: Any) -> list[OutputRecord]:
        return []

    with pytest.raises(ConfigError, match="refuses security_protocol, sasl_mechanism"):
        Processor(handle, topics=["t"], **option).run(group_id="g", **KERBEROS)
