"""Which settings fit together, and what is in the files that they name."""

from __future__ import annotations

import functools
import ssl
from pathlib import Path
from typing import Any

import pytest
from security_help import Certificates

from instride import Consumer, ConsumerConfig
from instride.errors import ConfigError

LOGIN = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "u", "sasl_password": "canary"}


def build(**settings: Any) -> Consumer:
    return Consumer(bootstrap_servers="localhost:1", **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"security_protocol": "SSL"},
        {"security_protocol": "SSL", "ssl_check_hostname": False},
        {"security_protocol": "SASL_SSL", **LOGIN},
        {"security_protocol": "SASL_PLAINTEXT", **LOGIN},
        {"security_protocol": "SASL_SSL", **LOGIN, "sasl_mechanism": "PLAIN"},
        {"security_protocol": "SASL_PLAINTEXT", **LOGIN, "sasl_mechanism": "PLAIN", "sasl_plain_without_tls": True},
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token": lambda: "t"},
    ],
)
def test_what_fits_together(settings: dict[str, Any]) -> None:
    build(**settings).close()


@pytest.mark.requirement("surface/plain")
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"security_protocol": "TLS"}, "security_protocol"),
        ({"security_protocol": "ssl"}, "security_protocol"),
        # without effect
        ({"ssl_ca_file": "x"}, "ssl_ca_file"),
        ({"ssl_check_hostname": False}, "ssl_check_hostname"),
        ({"ssl_context": ssl.create_default_context()}, "ssl_context"),
        (LOGIN, "sasl_mechanism"),
        ({"security_protocol": "SSL", "sasl_username": "u"}, "sasl_username"),
        ({"security_protocol": "SSL", "sasl_password": "canary"}, "sasl_password"),
        ({"security_protocol": "SSL", "sasl_oauth_token": lambda: "t"}, "sasl_oauth_token"),
        ({"security_protocol": "SSL", "sasl_plain_without_tls": True}, "sasl_plain_without_tls"),
        ({"security_protocol": "SASL_SSL", **LOGIN, "sasl_plain_without_tls": True}, "sasl_plain_without_tls"),
        ({"security_protocol": "SASL_PLAINTEXT", **LOGIN, "sasl_plain_without_tls": True}, "sasl_plain_without_tls"),
        # against each other
        ({"security_protocol": "SASL_PLAINTEXT", **LOGIN, "ssl_ca_file": "x"}, "ssl_ca_file"),
        ({"security_protocol": "SASL_SSL", **LOGIN, "sasl_oauth_token": lambda: "t"}, "sasl_oauth_token"),
        (
            {"security_protocol": "SSL", "ssl_context": ssl.create_default_context(), "ssl_ca_file": "x"},
            "ssl_context",
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauth_token": lambda: "t",
                "sasl_password": "canary",
            },
            "sasl_password",
        ),
        # too little
        ({"security_protocol": "SASL_SSL"}, "sasl_mechanism"),
        ({"security_protocol": "SASL_SSL", **LOGIN, "sasl_mechanism": "SCRAM"}, "sasl_mechanism"),
        ({"security_protocol": "SASL_SSL", **LOGIN, "sasl_mechanism": "GSSAPI"}, "sasl_username"),
        ({"security_protocol": "SASL_SSL", **LOGIN, "sasl_kerberos_principal": "x"}, "sasl_kerberos_principal"),
        ({"sasl_kerberos_keytab_file": "x"}, "sasl_kerberos_keytab_file"),
        ({"security_protocol": "SASL_SSL", **LOGIN, "sasl_username": None}, "sasl_username"),
        ({"security_protocol": "SASL_SSL", **LOGIN, "sasl_password": ""}, "sasl_password"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}, "sasl_oauth_token"),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token": "canary"},
            "sasl_oauth_token",
        ),
        ({"security_protocol": "SSL", "ssl_key_file": "x"}, "ssl_cert_file"),
        ({"security_protocol": "SSL", "ssl_key_password": "canary"}, "ssl_cert_file"),
        # in the clear
        ({"security_protocol": "SASL_PLAINTEXT", **LOGIN, "sasl_mechanism": "PLAIN"}, "sasl_plain_without_tls"),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token": lambda: "t"},
            "sasl_plain_without_tls",
        ),
        # of the wrong kind
        ({"security_protocol": "SASL_SSL", **LOGIN, "sasl_password": b"canary"}, "sasl_password"),
        ({"security_protocol": "SASL_SSL", **LOGIN, "sasl_password": "canary\0x"}, "sasl_password"),
        ({"security_protocol": "SASL_SSL", **LOGIN, "sasl_username": "\ud800"}, "sasl_username"),
        ({"security_protocol": "SSL", "ssl_check_hostname": 0}, "ssl_check_hostname"),
        ({"security_protocol": "SSL", "ssl_context": "x"}, "ssl_context"),
    ],
)
def test_what_is_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as refused:
        build(**settings)
    assert "canary" not in str(refused.value)


def weak(**changes: Any) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for name, value in changes.items():
        setattr(context, name, value)
    return context


@pytest.mark.parametrize(
    ("context", "named"),
    [
        (lambda: weak(check_hostname=False), "check_hostname"),
        (lambda: weak(check_hostname=False, verify_mode=ssl.CERT_NONE), "verify_mode"),
        (lambda: weak(verify_mode=ssl.CERT_OPTIONAL), "verify_mode"),
        (lambda: weak(minimum_version=ssl.TLSVersion.MINIMUM_SUPPORTED), "minimum_version"),
    ],
)
def test_a_context_that_is_weaker_than_ours_is_refused(context: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        build(security_protocol="SSL", ssl_context=context())


@pytest.mark.requirement("surface/tls-names")
def test_a_context_without_the_check_of_names_needs_the_word_of_the_user() -> None:
    build(security_protocol="SSL", ssl_context=weak(check_hostname=False), ssl_check_hostname=False).close()
    with pytest.raises(ConfigError, match="decide"):
        build(security_protocol="SSL", ssl_context=weak(), ssl_check_hostname=False)


@pytest.mark.parametrize(
    "files",
    [
        {"ssl_ca_file": "absent.pem"},
        {"ssl_ca_file": "key.pem"},
        {"ssl_cert_file": "absent.pem"},
        {"ssl_cert_file": "cert.pem"},
        {"ssl_cert_file": "cert.pem", "ssl_key_file": "absent.pem"},
        {"ssl_cert_file": "cert.pem", "ssl_key_file": "key-encrypted.pem"},
        {"ssl_cert_file": "cert.pem", "ssl_key_file": "key-encrypted.pem", "ssl_key_password": "canary-wrong"},
        {"ssl_cert_file": "ca.pem", "ssl_key_file": "key.pem"},
    ],
)
def test_files_that_do_not_do_are_told_at_once(certificates: Certificates, files: dict[str, str]) -> None:
    named = {name: certificates.file(value) if name.endswith("_file") else value for name, value in files.items()}
    with pytest.raises(ConfigError, match=next(iter(files))) as refused:
        build(security_protocol="SSL", **named)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("file", ["a\0b", "\ud800"], ids=ascii)
@pytest.mark.parametrize("name", ["ssl_ca_file", "ssl_cert_file", "ssl_key_file"])
def test_a_name_that_no_file_can_have_is_told_at_once(certificates: Certificates, name: str, file: str) -> None:
    files = {"ssl_cert_file": certificates.file("cert.pem"), "ssl_key_file": certificates.file("key.pem")}
    with pytest.raises(ConfigError, match=name):
        build(security_protocol="SSL", **{**files, name: file})


@pytest.mark.parametrize("name", ["ssl_ca_file", "ssl_cert_file", "ssl_key_file"])
def test_pem_text_in_place_of_a_files_name_is_refused_and_not_shown(certificates: Certificates, name: str) -> None:
    """As Java's ssl.keystore.key and librdkafka's ssl.key.pem have it: the text is the key itself."""
    files = {"ssl_cert_file": certificates.file("cert.pem"), "ssl_key_file": certificates.file("key.pem")}
    text = Path(certificates.file("key.pem")).read_text(encoding="ascii")
    with pytest.raises(ConfigError, match=f"{name} names a PEM file") as refused:
        build(security_protocol="SSL", **{**files, name: text})
    assert not [line for line in text.splitlines() if line in str(refused.value)]


async def _fetch_token() -> str:
    return "token"


@pytest.mark.parametrize("function", [_fetch_token, functools.partial(_fetch_token)])
def test_an_asynchronous_token_function_is_refused(function: Any) -> None:
    with pytest.raises(ConfigError, match="sasl_oauth_token is asynchronous"):
        build(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauth_token=function)


def test_a_certificate_and_its_key_may_be_in_one_file(certificates: Certificates, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes((certificates.folder / "cert.pem").read_bytes() + (certificates.folder / "key.pem").read_bytes())
    build(security_protocol="SSL", ssl_cert_file=str(both)).close()


@pytest.mark.requirement("surface/secrets")
def test_the_configs_repr_has_no_secret() -> None:
    config = ConsumerConfig(bootstrap_servers="localhost:1", security_protocol="SASL_SSL", **LOGIN)  # type: ignore[arg-type]
    assert "canary" not in repr(config)
    assert "SCRAM-SHA-256" in repr(config)
