"""Kafka's settings as Spark users write them (`kafka.ssl.*`, `kafka.sasl.*`, a JAAS line), as the consumer's own.

Laws
1. A setting is translated, or refused by its name. None is passed over in silence but those that change nothing here.
2. No message holds a value: it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from instride.errors import ConfigError

__all__ = ["OF_CONSUMERS", "consumer_settings", "member_settings", "milliseconds"]

_PLAIN: Final[dict[str, str]] = {
    "bootstrap.servers": "bootstrap_servers",
    "client.id": "client_id",
    "client.rack": "client_rack",
    "isolation.level": "isolation_level",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "ssl.key.password": "ssl_key_password",
}
_MILLISECONDS: Final[dict[str, str]] = {
    "request.timeout.ms": "request_timeout",
    "default.api.timeout.ms": "default_api_timeout",
    "retry.backoff.ms": "retry_backoff",
    "retry.backoff.max.ms": "retry_backoff_max",
    "reconnect.backoff.ms": "reconnect_backoff",
    "reconnect.backoff.max.ms": "reconnect_backoff_max",
    "metadata.max.age.ms": "metadata_max_age",
}
_SHORTEST_WAIT: Final = 0.001
_FIRST_WAITS: Final = {
    "retry_backoff": ("retry_backoff_max", 0.1, 1.0),
    "reconnect_backoff": ("reconnect_backoff_max", 0.05, 1.0),
}
"""Of each the longest, and the defaults of both."""
_WAITS: Final = (*_FIRST_WAITS, *(longest for longest, _, _ in _FIRST_WAITS.values()))
_OF_MEMBERS: Final[dict[str, str]] = {
    "max.poll.interval.ms": "max_poll_interval",
    "session.timeout.ms": "session_timeout",
    "heartbeat.interval.ms": "heartbeat_interval",
}
_REFUSED: Final[dict[str, str]] = {
    "auto.offset.reset": 'the option "startingOffsets" says where to begin',
    "key.deserializer": "keys are bytes; convert them with DataFrame operations",
    "value.deserializer": "values are bytes; convert them with DataFrame operations",
    "enable.auto.commit": "the checkpoint has the offsets",
    "interceptor.classes": "interceptors run in the Java client only",
    "key.serializer": "this is a source",
    "value.serializer": "this is a source",
    "ssl.truststore.password": "give a PEM file as kafka.ssl.truststore.location, with kafka.ssl.truststore.type=PEM",
    "ssl.keystore.password": "give PEM files, with kafka.ssl.keystore.type=PEM and kafka.ssl.key.password",
    "ssl.truststore.certificates": "give a file as kafka.ssl.truststore.location",
    "ssl.keystore.key": "give a file as kafka.ssl.keystore.location",
    "ssl.keystore.certificate.chain": "give a file as kafka.ssl.keystore.location",
    "sasl.client.callback.handler.class": "it names a Java class",
    "sasl.login.callback.handler.class": "it names a Java class",
    "sasl.login.class": "it names a Java class",
}
OF_CONSUMERS: Final = frozenset(
    (
        "group.id",
        "max.poll.records",
        "max.poll.interval.ms",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "fetch.min.bytes",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "max.partition.fetch.bytes",
        "check.crcs",
    )
)
"""Of Kafka's consumers alone. They change nothing for the source, and a sink has none of them."""
_NO_MATTER: Final = OF_CONSUMERS | frozenset(
    (
        "receive.buffer.bytes",
        "send.buffer.bytes",
        "connections.max.idle.ms",
        "ssl.truststore.type",
        "ssl.keystore.type",
        "ssl.protocol",
        "ssl.enabled.protocols",
    )
)
_JAAS: Final = re.compile(r"\s*([\w.]+)\s+(?:required|requisite|sufficient|optional)\b(.*?);?\s*\Z", re.DOTALL | re.I)
_JAAS_PAIR: Final = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s\"';]+))")


def consumer_settings(kafka: Mapping[str, str]) -> dict[str, Any]:
    """The consumer's settings for Kafka's. kafka: without the prefix "kafka.". Raises ConfigError, which names one."""
    settings: dict[str, Any] = {}
    for name, value in kafka.items():
        settings.update(_translated(name, value))
    if "sasl.jaas.config" in kafka:
        # GSSAPI is Kafka's default.
        found = _jaas(kafka["sasl.jaas.config"], kafka.get("sasl.mechanism", "GSSAPI"))
        service = settings.get("sasl_kerberos_service_name")
        if service is not None and found.get("sasl_kerberos_service_name", service) != service:
            raise ConfigError(
                "kafka.sasl.kerberos.service.name and serviceName in kafka.sasl.jaas.config differ: give one"
            )
        settings.update(found)
    settings.update(_stores(kafka))
    if settings.get("security_protocol", "").startswith("SASL_"):
        settings.setdefault("sasl_mechanism", "GSSAPI")
    return settings | _waits(settings)


def _waits(settings: Mapping[str, Any]) -> dict[str, float]:
    """As Java takes them. 0 is allowed. A first wait above the longest is cut to it. If only reconnect.backoff.ms is
    given, it is the longest, too."""
    found = {name: settings[name] or _SHORTEST_WAIT for name in _WAITS if name in settings}
    first, longest = "reconnect_backoff", "reconnect_backoff_max"
    if first in found and longest not in found:
        found[longest] = found[first]
    for first, (longest, usual, most) in _FIRST_WAITS.items():
        if first in found or longest in found:
            found[first] = min(found.get(first, usual), found.get(longest, most))
    return found


def member_settings(kafka: Mapping[str, str]) -> dict[str, Any]:
    """Those that only a member of a group has (group mode). kafka: as for `consumer_settings`. Raises ConfigError."""
    return {_OF_MEMBERS[name]: milliseconds(name, value) / 1000 for name, value in kafka.items() if name in _OF_MEMBERS}


def _translated(name: str, value: str) -> dict[str, Any]:
    if name in _PLAIN:
        return {_PLAIN[name]: value}
    if name in _MILLISECONDS:
        return {_MILLISECONDS[name]: milliseconds(name, value) / 1000}
    if name == "ssl.endpoint.identification.algorithm":
        # Kafka turns the check off by an empty text.
        return {"ssl_check_hostname": value.strip() != ""}
    if name in _NO_MATTER or name in ("sasl.jaas.config", "ssl.truststore.location", "ssl.keystore.location"):
        return {}
    reason = _REFUSED.get(name, "instride has no such setting; docs/spark-source.md lists those that it takes")
    raise ConfigError(f"kafka.{name} is not supported: {reason}")


def _stores(kafka: Mapping[str, str]) -> dict[str, Any]:
    """Files of certificates: PEM only, which Kafka takes since 2.7 (KIP-651)."""
    found: dict[str, Any] = {}
    for store, names in (("truststore", ("ssl_ca_file",)), ("keystore", ("ssl_cert_file", "ssl_key_file"))):
        location = kafka.get(f"ssl.{store}.location")
        if location is None:
            continue
        # JKS is Kafka's default.
        if kafka.get(f"ssl.{store}.type", "JKS").upper() != "PEM":
            raise ConfigError(
                f"kafka.ssl.{store}.location: a Java keystore cannot be read here; convert it to a PEM file "
                f"and set kafka.ssl.{store}.type to PEM"
            )
        found.update(dict.fromkeys(names, location))
    return found


def _jaas(line: str, mechanism: str) -> dict[str, Any]:
    match = _JAAS.match(line)
    if match is None:
        raise ConfigError('kafka.sasl.jaas.config cannot be read: write MODULE required name="value" ...;')
    module = match[1].rsplit(".", 1)[-1]
    pairs = {name: _unquoted(one, two, bare) for name, one, two, bare in _JAAS_PAIR.findall(match[2])}
    if module in ("PlainLoginModule", "ScramLoginModule"):
        missing = {"username", "password"} - set(pairs)
        if missing:
            raise ConfigError(f"kafka.sasl.jaas.config lacks {' and '.join(sorted(missing))}")
        if pairs.get("tokenauth", "false").lower() == "true":
            raise ConfigError("kafka.sasl.jaas.config: delegation tokens (tokenauth) are not supported")
        return {"sasl_username": pairs["username"], "sasl_password": pairs["password"]}
    if module == "Krb5LoginModule" and mechanism == "GSSAPI":
        renamed = {
            "principal": "sasl_kerberos_principal",
            "keyTab": "sasl_kerberos_keytab_file",
            "serviceName": "sasl_kerberos_service_name",
        }
        return {ours: pairs[name] for name, ours in renamed.items() if name in pairs}
    raise ConfigError(
        f"kafka.sasl.jaas.config: {module} is not supported; PlainLoginModule, ScramLoginModule and Krb5LoginModule are"
    )


def _unquoted(double: str, single: str, bare: str) -> str:
    return bare or re.sub(r"\\(.)", r"\1", double or single)


def milliseconds(name: str, value: str) -> float:
    """Of Kafka's setting of that name. Raises ConfigError."""
    if not re.fullmatch(r"\s*[+-]?\d{1,19}\s*", value):
        raise ConfigError(f"kafka.{name} must be a whole number of milliseconds")
    return float(int(value))
