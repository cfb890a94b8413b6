"""The source's options: a row for each that is taken, and for each that is refused; docs/spark-source.md has them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from instride.errors import ConfigError
from instride.records import TopicPartition
from instride.spark._data_source import options as source_options
from instride.spark._data_source import security
from instride.spark._data_source.options import (
    COLUMNS,
    EARLIEST,
    LATEST,
    Bound,
    Mode,
    Options,
    Topics,
    parse_options,
)
from instride.spark._data_source.security import consumer_settings

DOCS = Path(__file__).parents[2] / "docs" / "spark-source.md"
BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def parse(mode: Mode = "stream", **given: str) -> Options:
    return parse_options({**BASE, **{name.replace("__", "."): value for name, value in given.items()}}, mode)


SPELLINGS: tuple[Callable[[str], str], ...] = (str, str.lower, str.upper)
EACH = '{"t": {"0": 9}}'
# The first name of a row is that of the option; others are what it needs beside it.
TAKEN: list[tuple[Mode, dict[str, str], str, object]] = [
    ("batch", {"assign": '{"t": [1, 0]}'}, "topics", Topics(assign=(P0, P1))),
    ("stream", {"assign": '{"u": [0], "t": [1]}'}, "topics", Topics(assign=(P1, TopicPartition("u", 0)))),
    ("batch", {"subscribe": "t"}, "topics", Topics(subscribe=("t",))),
    ("stream", {"subscribe": " b, a ,b"}, "topics", Topics(subscribe=("a", "b"))),
    ("batch", {"subscribePattern": "t.*"}, "topics", Topics(pattern="t.*")),
    ("stream", {"subscribePattern": " [tT] "}, "topics", Topics(pattern="[tT]")),
    ("batch", {"startingOffsets": "earliest"}, "starting", Bound(every=EARLIEST)),
    ("stream", {"startingOffsets": "LATEST"}, "starting", Bound(every=LATEST)),
    ("stream", {"startingOffsets": '{"t": {"0": 23, "1": -2}}'}, "starting", Bound(offsets=((P0, 23), (P1, -2)))),
    ("batch", {"startingOffsets": "group", "kafka.group.id": "g"}, "starting", Bound(group="g")),
    ("stream", {"startingOffsets": "Group", "kafka.group.id": "G"}, "starting", Bound(group="G")),
    ("stream", {"startingTimestamp": "17"}, "starting", Bound(timestamp=17)),
    ("stream", {"startingOffsetsByTimestamp": EACH}, "starting", Bound(timestamps=((P0, 9),))),
    (
        "batch",
        {"startingOffsetsByTimestampStrategy": "Latest", "startingTimestamp": "4"},
        "starting",
        Bound(timestamp=4, unmatched="latest"),
    ),
    (
        "stream",
        {"startingOffsetsByTimestampStrategy": "latest", "startingOffsetsByTimestamp": EACH},
        "starting",
        Bound(timestamps=((P0, 9),), unmatched="latest"),
    ),
    ("batch", {"endingOffsets": "Latest"}, "ending", Bound(every=LATEST)),
    ("batch", {"endingOffsets": '{"t": {"0": 23, "1": -1}}'}, "ending", Bound(offsets=((P0, 23), (P1, -1)))),
    ("batch", {"endingOffsetsByTimestamp": EACH}, "ending", Bound(timestamps=((P0, 9),), unmatched="latest")),
    ("batch", {"endingTimestamp": "17"}, "ending", Bound(timestamp=17, unmatched="latest")),
    ("stream", {"failOnDataLoss": "False"}, "fail_on_data_loss", False),
    ("batch", {"maxOffsetsPerTrigger": "5"}, "max_offsets", 5),
    ("stream", {"maxOffsetsPerTrigger": "9223372036854775807"}, "max_offsets", 2**63 - 1),
    ("stream", {"maxBytesPerTrigger": "1000000"}, "max_bytes", 1_000_000),
    ("stream", {"minOffsetsPerTrigger": "5"}, "min_offsets", 5),
    ("stream", {"maxTriggerDelay": "2m"}, "max_delay", 120.0),
    ("stream", {"maxTriggerDelay": "500ms"}, "max_delay", 0.5),
    ("stream", {"maxTriggerDelay": "60000"}, "max_delay", 60.0),
    ("batch", {"minPartitions": "6"}, "min_partitions", 6),
    ("stream", {"maxPartitions": "6"}, "max_partitions", 6),
    ("batch", {"maxRecordsPerPartition": "100"}, "max_records", 100),
    ("batch", {"includeHeaders": "True"}, "columns", (*COLUMNS, "headers")),
    ("stream", {"includeHeaders": "false"}, "columns", COLUMNS),
    ("stream", {"columns": "value, KEY"}, "columns", ("key", "value")),
    ("batch", {"columns": "headers"}, "columns", ("headers",)),
    ("batch", {"pushFilters": "True"}, "push_filters", True),
    ("stream", {"commitOffsetsToGroup": "lag"}, "commit_group", "lag"),
    ("stream", {"consumerGroup": "billing"}, "group", "billing"),
    ("stream", {"statelessQuery": "true"}, "stateless", True),
    ("batch", {"kafkaConsumer.pollTimeoutMs": "1500"}, "read_timeout", 1.5),
    ("stream", {"groupIdPrefix": "x"}, "commit_group", None),
    ("batch", {"fetchOffset.numRetries": "3"}, "commit_group", None),
    ("stream", {"fetchOffset.retryIntervalMs": "10"}, "commit_group", None),
]


@pytest.mark.requirement("source/23", "source/taken")
@pytest.mark.parametrize(("mode", "given", "attribute", "expected"), TAKEN)
def test_an_option_is_taken_whatever_its_case(
    mode: Mode, given: dict[str, str], attribute: str, expected: object
) -> None:
    base = {} if {"assign", "subscribe", "subscribePattern"} & set(given) else {"subscribe": "t"}
    for spelled in SPELLINGS:
        named = {spelled(name): value for name, value in given.items()}
        options = parse_options({"kafka.bootstrap.servers": "localhost:9092", **base, **named}, mode)
        assert getattr(options, attribute) == expected


@pytest.mark.requirement("source/taken")
def test_every_option_that_is_taken_has_a_row() -> None:
    assert {next(iter(given)) for _, given, _, _ in TAKEN} == set(source_options._TAKEN.values())


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"retry.backoff.ms": "2000"}, {"retry_backoff": 1.0}),
        ({"retry.backoff.ms": "2000", "retry.backoff.max.ms": "5000"}, {"retry_backoff": 2.0}),
        ({"retry.backoff.max.ms": "50"}, {"retry_backoff": 0.05}),
        ({"retry.backoff.ms": "0"}, {"retry_backoff": 0.001}),
        ({"request.timeout.ms": " +1500 "}, {"request_timeout": 1.5}),
        ({"reconnect.backoff.ms": "5000"}, {"reconnect_backoff": 5.0, "reconnect_backoff_max": 5.0}),
        ({"reconnect.backoff.ms": "5000", "reconnect.backoff.max.ms": "3000"}, {"reconnect_backoff": 3.0}),
        ({"security.protocol": "SASL_PLAINTEXT"}, {"sasl_mechanism": "GSSAPI"}),
    ],
)
def test_settings_that_java_takes_are_taken(given: dict[str, str], found: dict[str, object]) -> None:
    """And nobody is told of a setting that is not in the query."""
    options = parse("stream", **{f"kafka.{name}": value for name, value in given.items()})
    assert found.items() <= dict(options.consumer).items()


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


REFUSED: list[tuple[Mode, dict[str, str], str]] = [
    ("batch", {"startingOffsets": "latest"}, "startingOffsets must not be"),
    ("batch", {"startingOffsets": '{"t": {"0": -1}}'}, "startingOffsets must not be"),
    ("batch", {"endingOffsets": "earliest"}, "endingOffsets must not be"),
    ("batch", {"endingOffsets": '{"t": {"0": -2}}'}, "endingOffsets must not be"),
    ("stream", {"endingOffsets": "latest"}, "endingOffsets is not for streaming"),
    ("stream", {"endingTimestamp": "1"}, "endingTimestamp is not for streaming"),
    ("stream", {"endingOffsetsByTimestamp": "{}"}, "endingOffsetsByTimestamp is not for streaming"),
    ("stream", {"pushFilters": "true"}, "pushFilters is not for streaming"),
    ("batch", {"commitOffsetsToGroup": "lag"}, "commitOffsetsToGroup is for streaming"),
    ("batch", {"statelessQuery": "true"}, "statelessQuery is for streaming"),
    ("stream", {"startingTimestamp": "9223372036854775808"}, "startingTimestamp must be a whole number"),
    ("stream", {"kafka.retry.backoff.ms": "-1"}, "retry_backoff"),
    ("stream", {"assign": '{"t": [0]}'}, "one of the options assign, subscribe"),
    ("stream", {"subscribePattern": "t"}, "one of the options assign, subscribe"),
    ("stream", {"subscribe": " "}, "subscribe is empty"),
    ("stream", {"startingOffsets": "soon"}, "startingOffsets must be a JSON object"),
    ("stream", {"startingOffsets": '{"t": [0]}'}, "startingOffsets must be JSON such as"),
    ("stream", {"startingOffsets": '{"t": {"0": -3}}'}, "startingOffsets must hold offsets"),
    ("stream", {"startingOffsets": '{"t": {"x": 1}}'}, "startingOffsets must hold whole numbers"),
    ("stream", {"startingOffsets": '{"t": {"0": 9223372036854775808}}'}, "must hold whole numbers up to"),
    ("stream", {"startingOffsetsByTimestamp": '{"t": {"0": 9223372036854775808}}'}, "must hold whole numbers up to"),
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
    ("batch", {"subscribe": ","}, "subscribe names no topic"),
    ("stream", {"failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false"),
    ("stream", {"includeHeaders": "yes"}, "includeHeaders must be true or false"),
    ("stream", {"statelessQuery": "yes"}, "statelessQuery must be true or false"),
    ("stream", {"columns": "value,body"}, "it has body"),
    ("stream", {"consumerGroups": "g"}, "no option 'consumergroups'"),
    ("batch", {"consumerGroup": "g"}, "consumerGroup is for streaming"),
    ("stream", {"consumerGroup": " "}, "consumerGroup is empty"),
    ("stream", {"commitOffsetsToGroup": ""}, "commitOffsetsToGroup is empty"),
    ("stream", {"commitOffsetsToGroup": " "}, "commitOffsetsToGroup is empty"),
    ("stream", {"consumerGroup": "g", "commitOffsetsToGroup": "h"}, "commitOffsetsToGroup does not go with"),
    ("stream", {"consumerGroup": "g", "startingTimestamp": "1"}, "startingTimestamp does not go with consumerGroup"),
    ("stream", {"consumerGroup": "g", "startingOffsetsByTimestamp": "{}"}, "does not go with consumerGroup"),
    ("stream", {"consumerGroup": "g", "startingOffsets": "group"}, "startingOffsets must be earliest or latest"),
    ("stream", {"consumerGroup": "g", "kafka.group.id": "h"}, "kafka.group.id names another group"),
    ("stream", {"consumerGroup": "g", "kafka.session.timeout.ms": "1000"}, "heartbeat_interval"),
    ("stream", {"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers"),
    ("stream", {"kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset is not supported: .*startingOffsets"),
    ("stream", {"kafka.sasl.login.class": "x"}, "kafka.sasl.login.class is not supported: it names a Java class"),
    ("stream", {"kafka.no.such": "x"}, "kafka.no.such is not supported"),
    ("stream", {"kafka.request.timeout.ms": "long"}, "kafka.request.timeout.ms must be a whole number"),
    ("stream", {"kafka.request.timeout.ms": "9" * 400}, "kafka.request.timeout.ms must be a whole number"),
    ("stream", {"kafka.request.timeout.ms": "1_000"}, "kafka.request.timeout.ms must be a whole number"),
    ("stream", {"maxTriggerDelay": "9" * 400 + "d"}, "maxTriggerDelay must be a duration"),
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
def test_what_is_wrong_or_cannot_be_kept_is_refused_by_name(mode: Mode, given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_options({**BASE, **given}, mode)


@pytest.mark.requirement("source/23", "source/refused")
@pytest.mark.parametrize("mode", ["batch", "stream"])
@pytest.mark.parametrize("name", security._REFUSED)
def test_what_kafka_has_and_the_source_cannot_keep_says_why(mode: Mode, name: str) -> None:
    """Its value, which may be a secret, is not repeated."""
    message = re.escape(f"kafka.{name} is not supported: {security._REFUSED[name]}")
    for spelled in (f"kafka.{name}", f"KAFKA.{name.upper()}"):
        with pytest.raises(ConfigError, match=message) as caught:
            parse_options({**BASE, spelled: "hush-hush"}, mode)
        assert "hush-hush" not in str(caught.value)


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


def test_a_jaas_line_of_kerberos_names_the_service_once() -> None:
    line = 'com.sun.security.auth.module.Krb5LoginModule required serviceName="kfk" principal="me@R";'
    given = {"bootstrap.servers": "b:1", "sasl.jaas.config": line}
    assert consumer_settings(given)["sasl_kerberos_service_name"] == "kfk"
    assert consumer_settings({**given, "sasl.kerberos.service.name": "kfk"})["sasl_kerberos_service_name"] == "kfk"
    with pytest.raises(ConfigError, match="differ: give one"):
        consumer_settings({**given, "sasl.kerberos.service.name": "kafka"})


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
    assert set(source_options._TAKEN) <= named
    kafka = (
        set(security._OF_MEMBERS)
        | set(security._PLAIN)
        | set(security._MILLISECONDS)
        | set(security._REFUSED)
        | security._NO_MATTER
    )
    assert {f"kafka.{name}" for name in kafka} <= named
