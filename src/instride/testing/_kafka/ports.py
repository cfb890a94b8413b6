"""Free ports on the loopback address."""

from __future__ import annotations

import random
import socket
from contextlib import closing
from typing import Final

from instride.errors import LocalKafkaError

__all__ = ["free_ports"]

# Below the range from which systems take ports for outgoing connections (32768 on Linux, 49152 elsewhere): so no
# client's socket can sit on a broker's port while that broker is down and about to be started again.
_RANGE: Final = range(15_000, 32_000)
_TRIES: Final = 1000


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on now. Another process may be quicker: the caller must be ready to draw again."""
    found: list[int] = []
    # Not of the global `random`: a test run may seed that alike in each of its processes, and has its own use for it.
    for port in random.SystemRandom().sample(_RANGE, _TRIES):
        if len(found) == count:
            break
        if _is_free(port):
            found.append(port)
    if len(found) < count:
        raise LocalKafkaError(f"no {count} free ports between {_RANGE.start} and {_RANGE.stop} on 127.0.0.1")
    return found


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the broker does: TIME_WAIT is no hindrance
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
