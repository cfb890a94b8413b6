"""The ZooKeeper that brokers before 3.3 keep their cluster in: its settings, and what it says of them.

Laws
1. It listens on 127.0.0.1 only, and forgets a killed broker after some ten seconds.
2. A request without a response counts as "no": whoever asks polls.
"""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Final

from instride.testing._kafka.java_properties import escaped

__all__ = ["SESSION_MS", "brokers", "zookeeper_settings"]

SESSION_MS: Final = 10_000
"""How long a broker that does not speak counts as alive. A broker that starts on a busy machine may be silent
for seconds, and ends if its session does."""

_ASK_SECONDS: Final = 3.0
_BROKER: Final = re.compile(rb"/brokers/ids/(\d+)")


def zookeeper_settings(folder: Path, port: int) -> str:
    """The text of its settings file."""
    return "\n".join(
        (
            f"tickTime={SESSION_MS // 4}",
            f"dataDir={escaped(str(folder / 'zookeeper-data'))}",
            f"clientPort={port}",
            "clientPortAddress=127.0.0.1",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=dump",
            "",
        )
    )


def brokers(port: int) -> set[int] | None:
    """The numbers of the brokers that are registered; None where ZooKeeper does not respond."""
    response = b""
    try:
        with socket.create_connection(("127.0.0.1", port), _ASK_SECONDS) as connection:
            connection.sendall(b"dump")
            while part := connection.recv(1 << 16):
                response += part
    except OSError:
        return None
    return {int(number) for number in _BROKER.findall(response)} if b"SessionTracker" in response else None
