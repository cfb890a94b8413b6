"""Every setting is checked when the consumer is built, and the error names it."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from instride import ConsumerInterceptor, _unknown_settings
from instride import config as config_module
from instride._setting_parsing import parse_bootstrap_servers, reset_duration
from instride._unknown_settings import config_from_settings
from instride.assignors import RangeAssignor
from instride.config import ConsumerConfig, ConsumerSettings, RunningSettings, changed_while_running
from instride.errors import ConfigError

BOUNDS = config_module._BOUNDS
CHOICES = config_module._CHOICES
SENT = ("group_id", "client_id", "client_rack")
ENORMOUS = (10**400, 10**5000)
"""As large as no float is; and of more digits than Python writes."""


def make(**settings: Any) -> ConsumerConfig:
    return ConsumerConfig(**{"bootstrap_servers": "b:1", "group_id": "g", **settings})


def fitting(name: str, value: float) -> dict[str, Any]:
    """The setting at this value, and beside it what must not contradict it."""
    beside: dict[str, dict[str, Any]] = {
        "session_timeout": {"heartbeat_interval": min(value / 2, 3.0)},
        "heartbeat_interval": {"session_timeout": max(value * 2, 1.0)},
        "max_poll_interval": {"commit_budget": 0},
        "commit_budget": {"max_poll_interval": 7200},
        "retry_backoff": {"retry_backoff_max": 300},
        "reconnect_backoff": {"reconnect_backoff_max": 300},
        "request_timeout": {"fetch_max_wait": 0},
        "fetch_max_wait": {"request_timeout": 3600},
        "retry_backoff_max": {"retry_backoff": 0.001},
        "reconnect_backoff_max": {"reconnect_backoff": 0.001},
    }
    return {**beside.get(name, {}), name: value}


def test_settings_as_keywords_are_those_of_the_config_in_name_and_type() -> None:
    declared = ConsumerSettings.__annotations__
    assert sorted(declared) == sorted(field.name for field in fields(ConsumerConfig))
    for field in fields(ConsumerConfig):
        kind = declared[field.name]
        text = kind.__forward_arg__ if hasattr(kind, "__forward_arg__") else str(kind)
        assert text.removeprefix("Required[").removesuffix("]" * text.startswith("Required[")) == field.type, field.name


def test_the_only_setting_without_a_default_names_the_cluster() -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers is missing"):
        config_from_settings({"group_id": "g"})
    assert config_from_settings({"bootstrap_servers": "b:1"}).group_id is None


def test_every_number_has_bounds_and_every_choice_is_listed() -> None:
    checked = {*BOUNDS, *CHOICES}
    for field in fields(ConsumerConfig):
        if field.type in ("int", "float") and field.name != "max_poll_records":
            assert field.name in checked, field.name


@pytest.mark.parametrize("name", BOUNDS)
def test_a_number_is_taken_up_to_its_bounds_and_refused_beyond(name: str) -> None:
    low, high = BOUNDS[name]
    if name != "heartbeat_interval":
        assert getattr(make(**fitting(name, high)), name) == high
    if name != "session_timeout":
        assert getattr(make(**fitting(name, low)), name) == low
    for value in (low - 1, high + 1, math.nan, math.inf, *ENORMOUS, "1", None, True):
        with pytest.raises(ConfigError, match=f"^{name} must be"):
            make(**{name: value})


@pytest.mark.parametrize("name", [name for name in BOUNDS if name.endswith("bytes")])
def test_bytes_are_whole_numbers(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} must be a whole number"):
        make(**{name: 4096.5})


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_is_one_of_those_listed(name: str) -> None:
    for wrong in ("no-such", "", None, 1, ENORMOUS[1]):
        with pytest.raises(ConfigError, match=rf"^{name} must be one of '"):
            make(**{name: wrong})


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"assignors": "range"}, "assignors"),
        ({"assignors": ()}, "assignors"),
        ({"assignors": RangeAssignor()}, "assignors must be a sequence.*of type RangeAssignor"),
        ({"assignors": None}, "assignors must be a sequence"),
        ({"assignors": [RangeAssignor]}, r"assignors: RangeAssignor is a class; write RangeAssignor\(\)"),
        ({"interceptors": ConsumerInterceptor()}, "interceptors must be a sequence.*of type ConsumerInterceptor"),
        ({"interceptors": None}, "interceptors must be a sequence"),
        ({"interceptors": "mine"}, "interceptors must be a sequence"),
        ({"interceptors": [ConsumerInterceptor]}, r"interceptors: ConsumerInterceptor is a class; write .*\(\)"),
        ({"group_id": ""}, "group_id"),
        ({"group_id": 5}, "group_id"),
        ({"client_id": None}, "client_id"),
        *[({name: "\ud800"}, f"{name} has a character") for name in SENT],
        *[({name: "x" * 32_768}, f"{name} takes 32768 bytes; 32767") for name in SENT],
        ({"enable_auto_commit": "yes"}, "enable_auto_commit"),
        ({"commit_start_offsets": "yes"}, "commit_start_offsets"),
        ({"max_poll_records": 0}, "max_poll_records"),
        ({"max_poll_records": -2}, "max_poll_records"),
        ({"max_poll_records": 1.5}, "max_poll_records"),
        ({"max_poll_records": True}, "max_poll_records"),
        ({"max_poll_records": -ENORMOUS[1]}, "max_poll_records"),
        ({"group_instance_id": ENORMOUS[1]}, "group_instance_id"),
        ({"heartbeat_interval": 10.0, "session_timeout": 10.0}, "heartbeat_interval"),
        ({"commit_budget": 5.0, "max_poll_interval": 5.0}, "commit_budget"),
        ({"enable_auto_commit": True, "group_id": None}, "enable_auto_commit"),
        ({"fetch_max_wait": 31.0}, "fetch_max_wait"),
        ({"retry_backoff": 2.0, "retry_backoff_max": 1.0}, "retry_backoff"),
        ({"reconnect_backoff": 2.0, "reconnect_backoff_max": 1.0}, "reconnect_backoff"),
    ],
)
def test_what_is_wrong_or_contradicts_is_refused_by_name(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=f"^{named}"):
        make(**settings)


@pytest.mark.parametrize("name", SENT)
def test_a_text_as_long_as_the_protocol_can_carry_is_taken(name: str) -> None:
    assert getattr(make(**{name: "x" * 32_767}), name) == "x" * 32_767


@pytest.mark.requirement("KIP-41/3")
@pytest.mark.rule("M")
@pytest.mark.parametrize("records", [1, 500, -1])
def test_max_poll_records_is_a_bound_or_none(records: int) -> None:
    assert make(max_poll_records=records).max_poll_records == records


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("group", "did you mean group_id"),
        ("session_timeout_ms", "did you mean session_timeout.*seconds, without _ms"),
        ("max_poll_record", "did you mean max_poll_records"),
        ("auto_ofset_reset", "did you mean auto_offset_reset"),
    ],
)
def test_an_unknown_setting_names_its_likeliest_kin(wrong: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown setting '{wrong}'.*{hint}"):
        config_from_settings({"bootstrap_servers": "b:1", wrong: 1})


def test_an_unknown_setting_without_kin_is_refused_all_the_same() -> None:
    with pytest.raises(ConfigError, match=r"^unknown setting 'zzz'$"):
        config_from_settings({"bootstrap_servers": "b:1", "zzz": 1})


# --- bootstrap_servers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("b:9092", (("b", 9092),)),
        (" a:1 , b:2, ", (("a", 1), ("b", 2))),
        (["a:1", "b:2"], (("a", 1), ("b", 2))),
        ("[::1]:9092", (("::1", 9092),)),
        ("127.0.0.1:65535", (("127.0.0.1", 65535),)),
        pytest.param(f"b:{'0' * 5000}9092", (("b", 9092),), id="zeros before it"),
    ],
)
def test_servers_are_read(servers: str | list[str], expected: tuple[tuple[str, int], ...]) -> None:
    assert parse_bootstrap_servers(servers) == expected


@pytest.mark.parametrize(
    ("servers", "why"),
    [
        ("", "must name a broker"),
        ([], "must name a broker"),
        (" , ", "must name a broker"),
        (["b:1", 5], "must be texts such as .* it is list of int and str"),
        (b"user:canary@b:9092", "must be texts such as .* it is bytes"),
        ({"user:canary@b:9092"}, "must be texts such as .* it is set"),
        (["user:canary@b:9092", None], "must be texts such as .* it is list of NoneType and str"),
        ("b\0c:9092", "NUL"),
        (None, "must be texts"),
        ("b", 'not "host:port"'),
        ("b:", 'not "host:port"'),
        (":1", 'not "host:port"'),
        ("b:0", "port from 1 to 65535"),
        ("b:65536", "port from 1 to 65535"),
        pytest.param(f"b:{'9' * 5000}", "bootstrap_servers: 'b:999", id="more digits than Python reads"),
        pytest.param([ENORMOUS[1]], "must be texts", id="more digits than Python writes"),
        ("b:-1", "port from 1 to 65535"),
        ("b:\u0661", "port from 1 to 65535"),
        ("::1:9092", "brackets"),
        ("[]:9092", "host:port"),
        ("b:9092;c:9092", "commas"),
        ("b:9092 c:9092", "commas"),
        ("user:canary@b:9092", "without a user"),
        ("kafka://b:9092", "without a scheme"),
    ],
)
def test_a_wrong_server_is_refused_with_the_reason(servers: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        make(bootstrap_servers=servers)
    assert "canary" not in str(refused.value)


def test_what_may_change_while_running_is_checked_like_the_rest() -> None:
    config = make(max_poll_records=10)
    changed = changed_while_running(config, {"max_poll_records": 3, "fetch_fairness": "proportional"})
    assert (changed.max_poll_records, changed.fetch_fairness, changed.group_id) == (3, "proportional", "g")
    assert config.max_poll_records == 10
    with pytest.raises(ConfigError, match="max_poll_records must be 1 or more"):
        changed_while_running(config, {"max_poll_records": 0})
    with pytest.raises(ConfigError, match="'group_id' cannot be changed while the consumer runs"):
        changed_while_running(config, {"group_id": "h"})


def test_the_settings_that_may_change_are_settings_of_the_same_types() -> None:
    settings = ConsumerSettings.__annotations__
    assert RunningSettings.__annotations__.items() <= settings.items()


@pytest.mark.parametrize(
    ("setting", "seconds"),
    [
        (90, 90.0),
        (0.5, 0.5),
        (0, 0.0),
        ("by_duration:PT1H", 3600.0),
        ("by_duration:P1DT2H3M4.5S", 93_784.5),
        ("by_duration:PT0S", 0.0),
        ("by_duration:pt1m", 60.0),
    ],
)
def test_a_reset_goes_back_by_seconds_or_as_kafka_writes_it(setting: Any, seconds: float) -> None:
    """KIP-1106."""
    assert reset_duration(make(auto_offset_reset=setting).auto_offset_reset) == seconds


@pytest.mark.parametrize(
    "setting",
    [
        "newest",
        "by_duration",
        "by_duration:",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:P1DT",
        "by_duration:-PT1H",
        "by_duration:1h",
        -1,
        pytest.param(ENORMOUS[0], id="no float is as large"),
        pytest.param(ENORMOUS[1], id="Python does not write it"),
        math.inf,
        math.nan,
        True,
        None,
        "3600",
    ],
)
def test_any_other_reset_is_refused(setting: Any) -> None:
    with pytest.raises(ConfigError, match="auto_offset_reset must be"):
        make(auto_offset_reset=setting)


def test_the_ends_of_the_log_are_no_durations() -> None:
    assert [reset_duration(setting) for setting in ("earliest", "latest", "none")] == [None, None, None]


@pytest.mark.requirement("surface/milliseconds")
@pytest.mark.parametrize(
    ("name", "in_java"),
    [
        ("session_timeout", 45_000),
        ("heartbeat_interval", 3_000),
        ("max_poll_interval", 300_000),
        ("request_timeout", 30_000),
        ("default_api_timeout", 60_000),
        ("connection_setup_timeout", 10_000),
        ("retry_backoff", 100),
        ("retry_backoff_max", 1_000),
        ("reconnect_backoff_max", 1_000),
        ("metadata_max_age", 300_000),
        ("auto_commit_interval", 5_000),
    ],
)
def test_milliseconds_are_seen_to_be_none(name: str, in_java: int) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} .* is {in_java}\. Times are seconds: {in_java / 1000:g}\?$"):
        make(**{name: in_java})


def test_durations_are_told_to_be_numbers() -> None:
    with pytest.raises(ConfigError, match=r"request_timeout must be a number.*; write 30$"):
        make(request_timeout=timedelta(seconds=30))


@pytest.mark.requirement("surface/java-names")
@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("bootstrap.servers", "did you mean bootstrap_servers?"),
        ("fetch.max.wait.ms", "did you mean fetch_max_wait? (times are seconds, without _ms)"),
        ("max.poll.interval.ms", "did you mean max_poll_interval? (times"),
        ("partition.assignment.strategy", "did you mean assignors?"),
        ("partition_assignment_strategy", "did you mean assignors?"),
        ("ssl.truststore.location", "did you mean ssl_ca_file?"),
        ("ssl_cafile", "did you mean ssl_ca_file?"),
        ("sasl.jaas.config", "did you mean sasl_username and sasl_password?"),
        ("sasl_plain_username", "did you mean sasl_username?"),
        ("metadata.broker.list", "did you mean bootstrap_servers?"),
        ("socket.timeout.ms", "did you mean request_timeout? (times"),
        ("consumer_timeout_ms", "did you mean the timeout of poll; default_api_timeout"),
        ("statistics.interval.ms", "did you mean Consumer.metrics()? (times"),
        ("ssl.truststore.password", "did you mean ssl_ca_file, which is PEM and has no password?"),
        ("ssl.keystore.key", "did you mean ssl_key_file, which names a PEM file?"),
        ("ssl.key.pem", "did you mean ssl_key_file, which names a PEM file?"),
        ("ssl.ca.pem", "did you mean ssl_ca_file, which names a PEM file?"),
        ("enable.auto.offset.store", "did you mean enable_auto_commit, and OffsetLedger for what is finished?"),
        ("enable.ssl.certificate.verification", "did you mean ssl_ca_file; certificates are always verified?"),
        ("sasl.oauthbearer.client.secret", "did you mean sasl_oauth_token, with OAuthClientCredentials?"),
        ("socket.connection.setup.timeout.ms", "did you mean connection_setup_timeout? (times"),
        ("something", ""),
    ],
)
def test_another_clients_name_leads_to_ours(name: str, instead: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_from_settings({"bootstrap_servers": "b:1", name: 1})
    assert str(caught.value).startswith(f"unknown setting {name!r}{instead and '; ' + instead}")


def test_the_names_elsewhere_lead_to_settings_that_there_are() -> None:
    known = {field.name for field in fields(ConsumerConfig)}
    for theirs, ours in _unknown_settings._ELSEWHERE.items():
        assert theirs not in known
        assert known & set(re.findall(r"\w+", ours)) or ours == "Consumer.metrics()", theirs
