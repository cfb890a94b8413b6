"""The settings of TLS and SASL: which fit together. `net.tls` checks what is in the files.

Laws
1. Nothing is weaker than it looks: a setting that would have no effect, or take a protection away unasked, is refused.
2. No error shows a value that is secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from instride.errors import ConfigError

if TYPE_CHECKING:
    from instride.config import ConsumerConfig

__all__ = ["check_security"]

_USES_TLS: Final = ("SSL", "SASL_SSL")
_USES_SASL: Final = ("SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
_SHOWS_THE_SECRET: Final = ("PLAIN", "OAUTHBEARER")
_FILES: Final = ("ssl_ca_file", "ssl_cert_file", "ssl_key_file", "ssl_key_password")
_PASSWORD: Final = ("sasl_username", "sasl_password")
_KERBEROS: Final = ("sasl_kerberos_service_name", "sasl_kerberos_principal", "sasl_kerberos_keytab_file")
_TEXTS: Final = (*_FILES, *_PASSWORD, *_KERBEROS)
# Which settings belong to a mechanism; the names of all others are refused beside it.
_OWN: Final[dict[str, tuple[str, ...]]] = {"OAUTHBEARER": ("sasl_oauth_token",), "GSSAPI": _KERBEROS}


def check_security(config: ConsumerConfig) -> None:
    """Raises ConfigError."""
    for name in _TEXTS:
        value = getattr(config, name)
        if value is not None and not (isinstance(value, str) and value):
            raise ConfigError(f"{name} must be a text that is not empty, or None")
    for name in ("ssl_check_hostname", "sasl_plain_without_tls"):
        if not isinstance(getattr(config, name), bool):
            raise ConfigError(f"{name} must be True or False")
    _check_tls(config)
    _check_sasl(config)


def _check_tls(config: ConsumerConfig) -> None:
    given = [name for name in (*_FILES, "ssl_context") if getattr(config, name) is not None]
    if not config.ssl_check_hostname:
        given.append("ssl_check_hostname=False")
    if config.security_protocol not in _USES_TLS:
        _refuse(given, f"needs security_protocol SSL or SASL_SSL; it is {config.security_protocol}")
        return
    if config.ssl_context is not None:
        _refuse([name for name in given if name in _FILES], "cannot be given together with ssl_context: load it there")
    if config.ssl_key_file is not None and config.ssl_cert_file is None:
        raise ConfigError("ssl_key_file needs ssl_cert_file, the certificate that the key belongs to")
    if config.ssl_key_password is not None and config.ssl_cert_file is None:
        raise ConfigError("ssl_key_password needs ssl_cert_file (and ssl_key_file, where the key is not in it)")


def _check_sasl(config: ConsumerConfig) -> None:
    protocol, mechanism = config.security_protocol, config.sasl_mechanism
    names = ("sasl_mechanism", *_PASSWORD, "sasl_oauth_token", *_KERBEROS)
    if protocol not in _USES_SASL:
        given = [name for name in names if getattr(config, name) is not None]
        given += ["sasl_plain_without_tls"] if config.sasl_plain_without_tls else []
        _refuse(given, f"needs security_protocol SASL_SSL or SASL_PLAINTEXT; it is {protocol}")
        return
    if mechanism not in _MECHANISMS:
        known = ", ".join(map(repr, _MECHANISMS))
        raise ConfigError(f"security_protocol {protocol} needs a sasl_mechanism: one of {known}; it is {mechanism!r}")
    own = _OWN.get(mechanism, _PASSWORD)
    given = [name for name in names[1:] if name not in own and getattr(config, name) is not None]
    _refuse(given, f"does not belong to sasl_mechanism {mechanism}")
    if mechanism == "OAUTHBEARER":
        _check_oauth(config)
    elif mechanism != "GSSAPI":
        _check_password(config)
    _check_without_tls(config)


def _check_oauth(config: ConsumerConfig) -> None:
    if not callable(config.sasl_oauth_token):
        raise ConfigError("sasl_mechanism OAUTHBEARER needs sasl_oauth_token, a function that returns a token")


def _check_password(config: ConsumerConfig) -> None:
    for name in _PASSWORD:
        value: Any = getattr(config, name)
        if value is None:
            raise ConfigError(f"sasl_mechanism {config.sasl_mechanism} needs {name}")
        try:
            bad = "\0" in value or not value.encode()
        except UnicodeEncodeError:
            bad = True
        if bad:
            raise ConfigError(f"{name} has a character that cannot be sent")


def _check_without_tls(config: ConsumerConfig) -> None:
    """A listener without TLS would let everybody on the way read the password or token."""
    exposed = config.security_protocol == "SASL_PLAINTEXT" and config.sasl_mechanism in _SHOWS_THE_SECRET
    if exposed and not config.sasl_plain_without_tls:
        raise ConfigError(
            f"sasl_mechanism {config.sasl_mechanism} over security_protocol SASL_PLAINTEXT sends the secret readable "
            "for everybody on the way; use SASL_SSL or SCRAM, or say sasl_plain_without_tls=True if that is meant"
        )
    if config.sasl_plain_without_tls and not exposed:
        raise ConfigError(
            "sasl_plain_without_tls=True is only for PLAIN and OAUTHBEARER over SASL_PLAINTEXT; leave it out here"
        )


def _refuse(given: list[str], why: str) -> None:
    if given:
        raise ConfigError(f"{given[0]} {why}")
