"""What the network machine wants done: the only things that its shell has to do.

Laws
1. Actions are done in the order given.
2. Each `Transmit` has one outcome: `response_received` with its request id, or `closed` for its connection.
3. The shell calls `opened` or `closed` once for each `OpenConnection`, unless `CloseConnection` comes first, and
   `closed` at most once after `opened`. After `CloseConnection` it calls neither for this connection.
4. The shell calls `assignment_performed` with the outcome of each `PerformAssignment`. No second one comes before that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from instride._core.events import BackgroundEvent
from instride._wire.api import Request
from instride.errors import AssignorError

__all__ = [
    "Action",
    "CloseConnection",
    "ConnectionKey",
    "Deliver",
    "Log",
    "OpenConnection",
    "PerformAssignment",
    "Role",
    "Stop",
    "Transmit",
    "assignor_failure",
]


class Role(Enum):
    """Why there is a connection. The broker serves a connection's requests in order, so what may wait long has one of
    its own: Join and Sync (a commit behind a pending JoinGroup would come too late, docs/protocol-facts.md), and the
    fetches of partitions that are read to their end.
    """

    BOOTSTRAP = "bootstrap"
    DATA = "data"
    TAIL = "tail"
    COORDINATOR = "coordinator"
    JOIN = "join"

    __hash__ = object.__hash__  # each is one object; Enum's own is a function in Python, and lanes are found by it


class ConnectionKey(NamedTuple):
    """node_id: the broker's, or the place in bootstrap_servers."""

    role: Role
    node_id: int

    def __str__(self) -> str:
        return f"{self.role.value} connection to node {self.node_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenConnection:
    key: ConnectionKey
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseConnection:
    """abort: what was sent and has not arrived is not to arrive any more. It would come after what is sent next, on
    another connection: an older commit would take a newer one back. late: it was not ready in time, so another address
    may be better."""

    key: ConnectionKey
    abort: bool = False
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transmit:
    key: ConnectionKey
    request_id: int
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliver:
    """Append the event to the application's queue and wake it."""

    event: BackgroundEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """level: as in `logging`. The core logs nothing itself."""

    level: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformAssignment:
    """Compute the group's assignment on another thread: it may take seconds, and heartbeats must go on.

    assign: member id -> assignment bytes. It calls the assignor, which may be the user's own.
    """

    assign: Callable[[], Mapping[str, bytes]]

    def outcome(self) -> Mapping[str, bytes] | Exception:
        """What the machine is to be told: what the assignor returns or raises, whatever it is."""
        try:
            return self.assign()
        except BaseException as error:  # noqa: BLE001 - an assignor may be the user's own code
            return assignor_failure(error)


def assignor_failure(error: BaseException) -> Exception:
    """What the user hears. A SystemExit would end the thread that called the assignor, and nothing else."""
    if isinstance(error, Exception):
        return error
    # Without its text: that may raise, too.
    failed = AssignorError(f"an assignor raised {type(error).__name__}")
    failed.__cause__ = error
    return failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Everything is done; the network thread may end."""


Action = OpenConnection | CloseConnection | Transmit | Deliver | Log | PerformAssignment | Stop
