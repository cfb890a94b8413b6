"""A Kerberos KDC on this machine, and a broker that takes its tickets.

Laws
1. All that it writes is in one folder; it listens on 127.0.0.1 only, and ends with the test.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from security_help import PATIENCE, Certificates

from instride.testing import LocalKafka
from instride.testing._kafka.jvm import QUICK_JVM
from instride.testing._kafka.ports import free_ports

__all__ = ["BROKER", "MISSING", "READER", "Kdc", "running_kdc", "with_gssapi"]

REALM: Final = "INSTRIDE.TEST"
BROKER: Final = f"kafka/127.0.0.1@{REALM}"
READER: Final = f"reader@{REALM}"

_PATH: Final = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
_TOOLS: Final = ("krb5kdc", "kdb5_util", "kadmin.local")
_ABSENT: Final = [name for name in _TOOLS if shutil.which(name, path=_PATH) is None]
MISSING: Final = [*_ABSENT, *([] if find_spec("gssapi") else ["the package gssapi"])]
"""What GSSAPI's tests need and this machine lacks (tools/kerberos installs it on Debian)."""

_CLIENT: Final = """\
[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
[realms]
{realm} = {{
  kdc = 127.0.0.1:{port}
}}
"""

_SERVER: Final = """\
[kdcdefaults]
kdc_listen = 127.0.0.1:{port}
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  acl_file = {folder}/acl
}}
"""


class Kdc:
    """folder: its configuration, database and keytabs. port: where it listens."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.config.write_text(_CLIENT.format(realm=REALM, port=port))
        (folder / "kdc.conf").write_text(_SERVER.format(realm=REALM, port=port, folder=folder))
        self.log = folder / "log"
        self.run("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)

    @property
    def config(self) -> Path:
        return self.folder / "krb5.conf"

    @property
    def environment(self) -> dict[str, str]:
        own = {"KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf")}
        return {**os.environ, "PATH": _PATH, **own}

    def run(self, *command: str) -> None:
        with self.log.open("ab") as log:
            subprocess.run(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True, timeout=60
            )

    def add(self, principal: str) -> Path:
        """A principal with a random key. Returns its keytab."""
        keytab = self.folder / (principal.partition("@")[0].replace("/", "-") + ".keytab")
        self.run("kadmin.local", "-r", REALM, "addprinc", "-randkey", principal)
        self.run("kadmin.local", "-r", REALM, "ktadd", "-k", str(keytab), principal)
        return keytab


@contextmanager
def running_kdc(folder: Path) -> Iterator[Kdc]:
    kdc = Kdc(folder, free_ports(1)[0])
    with kdc.log.open("ab") as log:
        process = subprocess.Popen(
            ["krb5kdc", "-n", "-r", REALM], env=kdc.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        _wait_for(kdc, process)
        yield kdc
    finally:
        process.kill()
        process.wait()


def _wait_for(kdc: Kdc, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        assert process.poll() is None, kdc.log.read_text()
        try:
            socket.create_connection(("127.0.0.1", kdc.port), 1.0).close()
        except OSError:
            assert time.monotonic() < deadline, kdc.log.read_text()
            time.sleep(0.05)
        else:
            return


def with_gssapi(kdc: Kdc, certificates: Certificates) -> LocalKafka:
    """A broker with GSSAPI over TLS, and without; SHORT ends sessions after three seconds. Not started yet."""
    keytab = kdc.add(BROKER)
    jaas = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true doNotPrompt=true"
        f' keyTab="{keytab}" principal="{BROKER}";'
    )
    properties: dict[str, str] = {}
    for name in ("KRBTLS", "KRBPLAIN", "SHORT"):
        prefix = f"listener.name.{name.lower()}."
        properties |= {
            f"{prefix}sasl.enabled.mechanisms": "GSSAPI",
            f"{prefix}sasl.kerberos.service.name": "kafka",
            f"{prefix}gssapi.sasl.jaas.config": jaas,
        }
    properties |= certificates.keystore("KRBTLS", "localhost", "127.0.0.1")
    properties["listener.name.short.connections.max.reauth.ms"] = "3000"
    protocols = {"KRBTLS": "SASL_SSL", "KRBPLAIN": "SASL_PLAINTEXT", "SHORT": "SASL_PLAINTEXT"}
    options = (*QUICK_JVM, f"-Djava.security.krb5.conf={kdc.config}")
    return LocalKafka(properties=properties, listeners=protocols, jvm_options=options)
