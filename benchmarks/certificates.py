"""An authority and a server's certificate for 127.0.0.1, for the cases with TLS."""

from __future__ import annotations

from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization


def make(folder: str) -> None:
    """ca.pem, and server.pem with its key."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(f"{folder}/ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(f"{folder}/server.pem")


def keystore(folder: str, listener: str) -> dict[str, str]:
    """Make them, and return the broker's properties for that listener."""
    make(folder)
    pem = Path(folder, "server.pem").read_bytes()
    key = serialization.load_pem_private_key(pem, None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    prefix = f"listener.name.{listener.lower()}.ssl.keystore."
    chain = pem[pem.index(b"-----BEGIN CERTIFICATE") :]
    return {
        f"{prefix}type": "PEM",
        f"{prefix}certificate.chain": chain.decode(),
        f"{prefix}key": key.decode(),
    }
