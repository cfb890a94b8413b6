"""The source's options: a row for each that is taken, and for each that is refused; docs/spark-source.md has them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from instride.errors import ConfigError
from instride.records import TopicPartition
from instride.spark._data_source.options import EARLIEST, LATEST, Bound, Options, Topics, parse_options

DOCS = Path(__file__).parents[2] / "docs" / "spark-source.md"
BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def parse(mode: Any = "stream", **given: str) -> Options:
    return parse_options({**BASE, **{name.replace("__", "."): value for name, value in given.items()}}, mode)


TAKEN: list[tuple[str, str, str, object]] = [
    ("subscribe", " b, a ,b", "topics", Topics(subscribe=("a", "b"))),
    ("startingOffsets", "earliest", "starting", Bound(every=EARLIEST)),
    ("startingOffsets", "LATEST", "starting", Bound(every=LATEST)),
    ("startingOffsets", '{"t": {"0": 23, "1": -2}}', "starting", Bound(offsets=((P0, 23), (P1, -2)))),
    ("startingTimestamp", "17", "starting", Bound(timestamp=17)),
    ("startingOffsetsByTimestamp", '{"t": {"0": 9}}', "starting", Bound(timestamps=((P0, 9),))),
    ("failOnDataLoss", "False", "fail_on_data_loss", False),
    ("maxOffsetsPerTrigger", "9223372036854775807", "max_offsets", 2**63 - 1),
    ("maxBytesPerTrigger", "1000000", "max_bytes", 1_000_000),
    ("minOffsetsPerTrigger", "5", "min_offsets", 5),
    ("maxTriggerDelay", "2m", "max_delay", 120.0),
    ("maxTriggerDelay", "500ms", "max_delay", 0.5),
    ("minPartitions", "6", "min_partitions", 6),
    ("maxPartitions", "6", "max_partitions", 6),
    ("maxRecordsPerPartition", "100", "max_records", 100),
    ("columns", "value, KEY", "columns", ("key", "value")),
    ("columns", "headers", "columns", ("headers",)),
    ("commitOffsetsToGroup", "lag", "commit_group", "lag"),
    ("consumerGroup", "billing", "group", "billing"),
    ("statelessQuery", "true", "stateless", True),
    ("kafkaConsumer.pollTimeoutMs", "1500", "read_timeout", 1.5),
    ("groupIdPrefix", "x", "commit_group", None),
    ("fetchOffset.numRetries", "3", "commit_group", None),
    ("fetchOffset.retryIntervalMs", "10", "commit_group", None),
]


@pytest.mark.requirement("source/23", "source/taken")
@pytest.mark.parametrize(("name", "value", "attribute", "expected"), TAKEN)
def test_an_option_is_taken_whatever_its_case(name: str, value: str, attribute: str, expected: object) -> None:
    for spelled in (name, name.lower(), name.upper()):
        given = {**BASE, spelled: value} if name != "subscribe" else {**BASE, "subscribe": value}
        assert getattr(parse_options(given, "stream"), attribute) == expected


def test_topics_are_assigned_or_match_a_pattern() -> None:
    base = {"kafka.bootstrap.servers": "localhost:9092"}
    assert parse_options({**base, "assign": '{"t": [1, 0]}'}, "batch").topics == Topics(assign=(P0, P1))
    assert parse_options({**base, "subscribePattern": "t.*"}, "batch").topics == Topics(pattern="t.*")


@pytest.mark.requirement("source/6")
def test_the_defaults_are_the_connectors() -> None:
    stream, batch = parse("stream"), parse("batch")
    assert (stream.starting, batch.starting) == (Bound(every=LATEST), Bound(every=EARLIEST))
    assert batch.ending == Bound(every=LATEST)
    assert stream.fail_on_data_loss
    assert (stream.max_offsets, stream.min_offsets, stream.max_delay) == (None, None, 900.0)
    assert stream.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert parse(includeHeaders="true").columns[-1] == "headers"
    assert stream.read_timeout == 120.0


@pytest.mark.requirement("source/4", "source/5")
def test_times_beat_offsets_and_the_one_time_beats_those_of_partitions() -> None:
    each = '{"t": {"0": 9}}'
    assert parse(startingOffsets="earliest", startingOffsetsByTimestamp=each).starting.timestamps == ((P0, 9),)
    assert parse(startingTimestamp="4", startingOffsetsByTimestamp=each).starting == Bound(timestamp=4)
    assert parse(startingTimestamp="4", startingOffsetsByTimestampStrategy="latest").starting.unmatched == "latest"
    ending = parse("batch", endingOffsets="latest", endingOffsetsByTimestamp=each, endingTimestamp="4").ending
    assert ending == Bound(timestamp=4, unmatched="latest")


def test_a_group_names_where_to_begin() -> None:
    assert parse(startingOffsets="group", kafka__group__id="g").starting == Bound(group="g")


REFUSED: list[tuple[str, dict[str, str], str]] = [
    ("batch", {"startingOffsets": "latest"}, "startingOffsets must not be"),
    ("batch", {"startingOffsets": '{"t": {"0": -1}}'}, "startingOffsets must not be"),
    ("batch", {"endingOffsets": "earliest"}, "endingOffsets must not be"),
    ("batch", {"endingOffsets": '{"t": {"0": -2}}'}, "endingOffsets must not be"),
    ("stream", {"endingOffsets": "latest"}, "endingOffsets is not for streaming"),
    ("stream", {"endingTimestamp": "1"}, "endingTimestamp is not for streaming"),
    ("stream", {"endingOffsetsByTimestamp": "{}"}, "endingOffsetsByTimestamp is not for streaming"),
    ("stream", {"assign": '{"t": [0]}'}, "one of the options assign, subscribe"),
    ("stream", {"subscribePattern": "t"}, "one of the options assign, subscribe"),
    ("stream", {"subscribe": " "}, "subscribe is empty"),
    ("stream", {"startingOffsets": "soon"}, "startingOffsets must be a JSON object"),
    ("stream", {"startingOffsets": '{"t": [0]}'}, "startingOffsets must be JSON such as"),
    ("stream", {"startingOffsets": '{"t": {"0": -3}}'}, "startingOffsets must hold offsets"),
    ("stream", {"startingOffsets": '{"t": {"x": 1}}'}, "startingOffsets must hold whole numbers"),
    ("stream", {"startingOffsets": "{}"}, "names no partition"),
    ("stream", {"startingOffsets": "group"}, "kafka.group.id"),
    ("stream", {"startingTimestamp": "noon"}, "startingTimestamp must be a whole number"),
    ("stream", {"startingOffsetsByTimestamp": '{"t": {"0": -5}}'}, "milliseconds since 1970"),
    ("stream", {"startingOffsetsByTimestampStrategy": "guess"}, "startingOffsetsByTimestampStrategy"),
    ("stream", {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "is more than maxOffsetsPerTrigger"),
    ("stream", {"minPartitions": "9", "maxPartitions": "5"}, "is more than maxPartitions"),
    ("stream", {"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger must be a whole number"),
    ("stream", {"maxBytesPerTrigger": "1 MB"}, "maxBytesPerTrigger must be a whole number"),
    ("stream", {"maxTriggerDelay": "soon"}, "maxTriggerDelay must be a duration"),
    ("stream", {"failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false"),
    ("stream", {"includeHeaders": "yes"}, "includeHeaders must be true or false"),
    ("stream", {"statelessQuery": "yes"}, "statelessQuery must be true or false"),
    ("stream", {"columns": "value,body"}, "it has body"),
    ("stream", {"consumerGroups": "g"}, "no option 'consumergroups'"),
    ("batch", {"consumerGroup": "g"}, "consumerGroup is for streaming"),
    ("stream", {"consumerGroup": " "}, "consumerGroup is empty"),
    ("stream", {"consumerGroup": "g", "commitOffsetsToGroup": "h"}, "commitOffsetsToGroup does not go with"),
    ("stream", {"consumerGroup": "g", "startingTimestamp": "1"}, "startingTimestamp does not go with consumerGroup"),
    ("stream", {"consumerGroup": "g", "startingOffsetsByTimestamp": "{}"}, "does not go with consumerGroup"),
    ("stream", {"consumerGroup": "g", "startingOffsets": "group"}, "startingOffsets must be earliest or latest"),
    ("stream", {"consumerGroup": "g", "kafka.group.id": "h"}, "kafka.group.id names another group"),
    ("stream", {"consumerGroup": "g", "kafka.session.timeout.ms": "1000"}, "heartbeat_interval"),
    ("stream", {"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers"),
    ("stream", {"kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset is not supported: .*startingOffsets"),
    ("stream", {"kafka.key.deserializer": "x"}, "kafka.key.deserializer"),
    ("stream", {"kafka.value.deserializer": "x"}, "kafka.value.deserializer"),
    ("stream", {"kafka.key.serializer": "x"}, "kafka.key.serializer"),
    ("stream", {"kafka.value.serializer": "x"}, "kafka.value.serializer"),
    ("stream", {"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit"),
    ("stream", {"kafka.interceptor.classes": "x"}, "kafka.interceptor.classes"),
    ("stream", {"kafka.sasl.login.class": "x"}, "kafka.sasl.login.class is not supported: it names a Java class"),
    ("stream", {"kafka.no.such": "x"}, "kafka.no.such is not supported"),
    ("stream", {"kafka.request.timeout.ms": "long"}, "kafka.request.timeout.ms must be a whole number"),
]


def test_the_settings_of_a_member_count_in_group_mode_only() -> None:
    given = {**BASE, "kafka.session.timeout.ms": "9000", "kafka.max.poll.interval.ms": "60000"}
    assert parse_options(given, "stream").member == ()
    member = parse_options({**given, "consumerGroup": "g"}, "stream").member
    assert dict(member) == {"session_timeout": 9.0, "max_poll_interval": 60.0}


def test_nobody_shares_assigned_partitions() -> None:
    given = {"kafka.bootstrap.servers": "nowhere:1", "assign": '{"t": [0]}', "consumerGroup": "g"}
    with pytest.raises(ConfigError, match="assign does not go with consumerGroup"):
        parse_options(given, "stream")


@pytest.mark.requirement("source/8", "source/23", "source/28", "source/refused")
@pytest.mark.parametrize(("mode", "given", "message"), REFUSED)
def test_what_is_wrong_or_cannot_be_kept_is_refused_by_name(mode: Any, given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_options({**BASE, **given}, mode)


def test_bootstrap_servers_are_needed() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers"):
        parse_options({"subscribe": "t"}, "batch")


def settings(**given: str) -> dict[str, Any]:
    options = parse_options(
        {**BASE, **{f"kafka.{name.replace('_', '.')}": value for name, value in given.items()}}, None
    )
    return {name: value for name, value in options.consumer if name != "bootstrap_servers"}


def test_kafkas_settings_become_the_consumers() -> None:
    assert settings(client_id="me", client_rack="a", isolation_level="read_committed", request_timeout_ms="1500") == {
        "client_id": "me",
        "client_rack": "a",
        "isolation_level": "read_committed",
        "request_timeout": 1.5,
    }
    assert settings(fetch_min_bytes="1", session_timeout_ms="6000", max_poll_records="5") == {}


@pytest.mark.parametrize("module", ["plain.PlainLoginModule", "scram.ScramLoginModule"])
def test_a_jaas_line_becomes_user_and_password(module: str) -> None:
    line = f'org.apache.kafka.common.security.{module} required\n username="ann" password="it\\"s; a=b";'
    mechanism = "PLAIN" if "Plain" in module else "SCRAM-SHA-512"
    found = settings(security_protocol="SASL_SSL", sasl_mechanism=mechanism, sasl_jaas_config=line)
    assert (found["sasl_username"], found["sasl_password"]) == ("ann", 'it"s; a=b')
    assert (found["security_protocol"], found["sasl_mechanism"]) == ("SASL_SSL", mechanism)


def test_pem_files_are_taken_and_java_keystores_refused(tmp_path: Path) -> None:
    pem = str(tmp_path / "x.pem")
    (tmp_path / "x.pem").touch()
    found = settings(
        security_protocol="SSL",
        ssl_truststore_location=pem,
        ssl_truststore_type="PEM",
        ssl_keystore_location=pem,
        ssl_keystore_type="pem",
        ssl_key_password="p",
        ssl_endpoint_identification_algorithm="",
    )
    assert (found["ssl_ca_file"], found["ssl_cert_file"], found["ssl_key_file"]) == (pem, pem, pem)
    assert found["ssl_check_hostname"] is False
    for store in ("truststore", "keystore"):
        with pytest.raises(ConfigError, match=rf"kafka\.ssl\.{store}\.location: a Java keystore"):
            settings(**{"security_protocol": "SSL", f"ssl_{store}_location": "/x.jks"})
    with pytest.raises(ConfigError, match=r"kafka\.ssl\.truststore\.password .*PEM"):
        settings(ssl_truststore_password="secret")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "cannot be read"),
        ('a.PlainLoginModule required username="ann";', "lacks password"),
        ('a.ScramLoginModule required username="a" password="secret" tokenauth="true";', "tokenauth"),
        ('a.OAuthBearerLoginModule required clientSecret="secret";', "OAuthBearerLoginModule is not supported"),
    ],
)
def test_a_jaas_line_that_cannot_be_kept_is_refused_and_not_repeated(line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        settings(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_jaas_config=line)
    assert "secret" not in str(caught.value)


@pytest.mark.requirement("source/secret-log")
def test_no_secret_is_in_a_text_of_the_options() -> None:
    line = 'a.ScramLoginModule required username="ann" password="hush-hush";'
    given = {
        **BASE,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": line,
    }
    assert "hush-hush" not in repr(parse_options(given, "stream"))


def test_the_page_names_every_option() -> None:
    page = DOCS.read_text(encoding="utf-8")
    named = {name.lower() for name in re.findall(r"`([\w.]+)`", page)}
    from instride.spark._data_source import options, security

    assert set(options._TAKEN) <= named
    kafka = (
        set(security._OF_MEMBERS)
        | set(security._PLAIN)
        | set(security._MILLISECONDS)
        | set(security._REFUSED)
        | security._NO_MATTER
    )
    assert {f"kafka.{name}" for name in kafka} <= named
