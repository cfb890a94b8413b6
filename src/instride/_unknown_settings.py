"""From a caller's keyword arguments to a config. An unknown name is told with its likeliest kin, other clients' too.

The pages of docs/coming-from name every setting of other clients; here are those whose names are too unlike ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from instride.config import ConsumerConfig
from instride.errors import ConfigError

__all__ = ["config_from_settings", "hint_for"]

_ELSEWHERE: Final[dict[str, str]] = {
    "partition_assignment_strategy": "assignors",
    "interceptor_classes": "interceptors",
    "socket_connection_setup_timeout": "connection_setup_timeout",
    "socket_connection_setup_timeout_max": "connection_setup_timeout",
    "fetch_wait_max": "fetch_max_wait",
    "topic_metadata_refresh_interval": "metadata_max_age",
    "queued_max_messages_kbytes": "fetch_buffer_bytes",
    "receive_message_max_bytes": "max_frame_bytes",
    "metadata_broker_list": "bootstrap_servers",
    "socket_timeout": "request_timeout",
    "consumer_timeout": "the timeout of poll; default_api_timeout is of other calls",
    "enable_auto_offset_store": "enable_auto_commit, and OffsetLedger for what is finished",
    "metric_reporters": "Consumer.metrics()",
    "statistics_interval": "Consumer.metrics()",
    "on_commit": "commit_async's future, or interceptors",
    "group_protocol": "assignors; KIP-848 is not there yet",
    "sasl_jaas_config": "sasl_username and sasl_password",
    "sasl_login_callback_handler_class": "sasl_oauth_token",
    "sasl_oauth_token_provider": "sasl_oauth_token",
    "oauth_cb": "sasl_oauth_token",
    "sasl_oauthbearer_token_endpoint_url": "sasl_oauth_token, with OAuthClientCredentials",
    "sasl_oauthbearer_client_id": "sasl_oauth_token, with OAuthClientCredentials",
    "sasl_oauthbearer_client_secret": "sasl_oauth_token, with OAuthClientCredentials",
    "sasl_oauthbearer_scope": "sasl_oauth_token, with OAuthClientCredentials",
    "ssl_truststore_location": "ssl_ca_file",
    "ssl_truststore_certificates": "ssl_ca_file, or ssl_context",
    "ssl_truststore_password": "ssl_ca_file, which is PEM and has no password",
    "ssl_ca_pem": "ssl_ca_file, which names a PEM file",
    "ssl_ca_location": "ssl_ca_file",
    "ssl_keystore_location": "ssl_cert_file and ssl_key_file",
    "ssl_keystore_key": "ssl_key_file, which names a PEM file",
    "ssl_keystore_certificate_chain": "ssl_cert_file, which names a PEM file",
    "ssl_key_pem": "ssl_key_file, which names a PEM file",
    "ssl_certificate_pem": "ssl_cert_file, which names a PEM file",
    "ssl_certificate_location": "ssl_cert_file",
    "ssl_key_location": "ssl_key_file",
    "ssl_password": "ssl_key_password",
    "ssl_endpoint_identification_algorithm": "ssl_check_hostname",
    "enable_ssl_certificate_verification": "ssl_ca_file; certificates are always verified",
    "ssl_cipher_suites": "ssl_context",
    "ssl_enabled_protocols": "ssl_context",
    "ssl_protocol": "ssl_context",
}


def hint_for(name: str, known: Sequence[str]) -> str:
    """What is added to "unknown setting"; "" where nothing is alike."""
    plain = name.lower().replace(".", "_").replace("-", "_")
    bare = plain.removesuffix("_ms")
    hint = f"; did you mean {found}?" if (found := _likeliest(bare, known)) else ""
    if plain != bare:
        hint += " (times are seconds, without _ms)"
    return hint


def _likeliest(name: str, known: Sequence[str]) -> str:
    if name in known:
        return name
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.6)), "")


def config_from_settings(settings: Mapping[str, Any]) -> ConsumerConfig:
    """A checked config of a caller's settings. An unknown one is a `ConfigError` that names its likeliest kin."""
    known = [field.name for field in fields(ConsumerConfig)]
    for name in settings:
        if name not in known:
            raise ConfigError(f"unknown setting {name!r}{hint_for(name, known)}")
    if "bootstrap_servers" not in settings:
        raise ConfigError('bootstrap_servers is missing; it names the cluster, such as "localhost:9092"')
    return ConsumerConfig(**settings)
