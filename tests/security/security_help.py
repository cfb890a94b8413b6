"""Certificates, a broker with a listener for each case, and how to reach one.

The certificate authority and all keys are made anew for each run; nothing of them outlives it.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import trustme
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from instride.testing import LocalKafka

__all__ = [
    "PASSWORD",
    "PATIENCE",
    "USER",
    "Certificates",
    "Listeners",
    "add_scram_user",
    "connections_outlast",
    "make_listeners",
    "self_signed",
    "token",
]

PATIENCE: Final = 30.0
USER: Final = "reader,="
PASSWORD: Final = "canary-passw0rd,="


@dataclass(frozen=True)
class Certificates:
    """folder: where ca_file, other_ca_file, cert_file and key_file are, PEM."""

    authority: trustme.CA
    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        made = cls(trustme.CA(), folder)
        made.authority.cert_pem.write_to_path(folder / "ca.pem")
        trustme.CA().cert_pem.write_to_path(folder / "other-ca.pem")
        own = made.authority.issue_cert("reader.test")
        (folder / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in own.cert_chain_pems))
        (folder / "key.pem").write_text(pkcs8(own))
        (folder / "key-encrypted.pem").write_text(pkcs8(own, b"canary-key-password"))
        return made

    def file(self, name: str) -> str:
        return str(self.folder / name)

    def keystore(self, listener: str, *names: str, expired: bool = False) -> dict[str, str]:
        """Broker properties: a certificate for these names, in PEM."""
        end = datetime.now(UTC) - timedelta(days=1) if expired else None
        start = datetime.now(UTC) - timedelta(days=9) if expired else None
        cert = self.authority.issue_cert(*names, not_before=start, not_after=end)
        prefix = f"listener.name.{listener.lower()}."
        return {
            f"{prefix}ssl.keystore.type": "PEM",
            f"{prefix}ssl.keystore.certificate.chain": "".join(b.bytes().decode() for b in cert.cert_chain_pems),
            f"{prefix}ssl.keystore.key": pkcs8(cert),
            f"{prefix}ssl.truststore.type": "PEM",
            f"{prefix}ssl.truststore.certificates": self.authority.cert_pem.bytes().decode(),
        }


def self_signed(name: str, folder: Path) -> tuple[Path, Path]:
    """A certificate that nobody signed but its own key; it and the key, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    cert_file, key_file = folder / "self-signed.pem", folder / "self-signed-key.pem"
    cert_file.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert_file, key_file


def pkcs8(cert: trustme.LeafCert, password: bytes | None = None) -> str:
    """The key in the form that Kafka takes."""
    key = serialization.load_pem_private_key(cert.private_key_pem.bytes(), None)
    shield = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, shield).decode()


class Listeners:
    """One broker and its listeners by name; `settings` reach one over TLS that trusts our authority."""

    def __init__(self, kafka: LocalKafka, certificates: Certificates) -> None:
        self.kafka = kafka
        self.certificates = certificates

    def tls(self, listener: str = "TLS", **settings: Any) -> dict[str, Any]:
        reach = {"bootstrap_servers": self.kafka.listener(listener), "security_protocol": "SSL"}
        return {**reach, "ssl_ca_file": self.certificates.file("ca.pem"), **settings}

    def sasl(self, mechanism: str, listener: str = "SASLTLS", **settings: Any) -> dict[str, Any]:
        who: dict[str, Any] = {"sasl_username": USER, "sasl_password": PASSWORD}
        if mechanism == "OAUTHBEARER":
            who = {"sasl_oauth_token": token}
        return self.tls(listener, security_protocol="SASL_SSL", sasl_mechanism=mechanism, **{**who, **settings})


def make_listeners(certificates: Certificates) -> LocalKafka:
    """Not started yet. SASLSHORT ends sessions after three seconds."""
    good = ("localhost", "127.0.0.1")
    properties = {
        **certificates.keystore("TLS", *good),
        **certificates.keystore("WRONGNAME", "other.test"),
        **certificates.keystore("EXPIRED", *good, expired=True),
        **certificates.keystore("MUTUAL", *good),
        "listener.name.mutual.ssl.client.auth": "required",
    }
    for name in ("SASLTLS", "SASLPLAIN", "SASLSHORT"):
        properties |= certificates.keystore(name, *good) | _sasl(name)
    properties["listener.name.saslshort.connections.max.reauth.ms"] = "3000"
    protocols = dict.fromkeys(("TLS", "WRONGNAME", "EXPIRED", "MUTUAL"), "SSL")
    protocols |= {"SASLTLS": "SASL_SSL", "SASLSHORT": "SASL_SSL", "SASLPLAIN": "SASL_PLAINTEXT"}
    return LocalKafka(properties=properties, listeners=protocols)


def _sasl(listener: str) -> dict[str, str]:
    prefix = f"listener.name.{listener.lower()}."
    modules = "org.apache.kafka.common.security"
    return {
        f"{prefix}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{prefix}plain.sasl.jaas.config": f'{modules}.plain.PlainLoginModule required "user_{USER}"="{PASSWORD}";',
        f"{prefix}scram-sha-256.sasl.jaas.config": f"{modules}.scram.ScramLoginModule required;",
        f"{prefix}scram-sha-512.sasl.jaas.config": f"{modules}.scram.ScramLoginModule required;",
        f"{prefix}oauthbearer.sasl.jaas.config": (
            f"{modules}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=broker;"
        ),
    }


def add_scram_user(kafka: LocalKafka, name: str, password: str) -> None:
    """For both mechanisms, salted by librdkafka."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):  # one user, one change a request
        change = UserScramCredentialUpsertion(name, ScramCredentialInfo(kind, 8192), password.encode())
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(PATIENCE)


def connections_outlast(seconds: float, turn: Callable[[], object], caplog: pytest.LogCaptureFixture) -> None:
    """Takes turns for so long, in which no connection is closed.

    Without re-authentication the broker closes each within a lifetime. On a busy machine it may get one too late, and
    closes a connection as well: then the time begins anew.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        caplog.clear()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            turn()
        if not re.search("is gone|failed|lost|broke|closed the connection", caplog.text):
            return
        assert time.monotonic() < deadline, caplog.text


def token(lifetime: float = 3600.0, scope: str = "") -> str:
    """A token without a signature, which the test broker takes."""
    now = time.time()
    claims = {"sub": "reader", "iat": now, "exp": now + lifetime, "scope": scope}
    parts = ({"alg": "none"}, claims)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join(encoded) + "."
