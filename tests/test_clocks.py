"""No wait and no time-out depends on the wall clock: it may be put forwards or backwards by hours."""

from __future__ import annotations

import ast
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from instride import OAuthToken
from instride._net.credentials import authenticator
from instride.config import ConsumerConfig

PACKAGE = Path(__file__).parents[1] / "src" / "instride"
WALL = {
    "time",
    "time_ns",
    "localtime",
    "gmtime",
    "ctime",
    "asctime",
    "strftime",
    "now",
    "utcnow",
    "today",
    "CLOCK_REALTIME",
}
# Where it is told to people or to other machines, and nothing is decided by it; but for how long replaced files are
# kept for readers, on whichever machines: there is no other clock (docs/parquet-sink.md says so).
ALLOWED = Counter(
    {
        ("_net/driver.py", "time.time"): 1,  # metrics of hand-overs, and a reset by duration: see `NetworkMachine`
        ("spark/_tables/delta.py", "time.time"): 1,  # a file's modification time, in the log of the table
        ("spark/parquet/_compaction.py", "time.time"): 1,  # when it replaced files
        ("spark/parquet/_vacuum.py", "time.time"): 1,  # how long ago that was
        ("spark/_handle.py", "datetime.now"): 1,  # the timestamp of a progress report
    }
)


def uses_of_the_wall_clock(source: str) -> list[str]:
    """`time.time`, `datetime.now` and their like, called or handed on; and what is imported from `time` by name."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="time" | "datetime" | "date" as module), attr=name) if name in WALL:
                found.append(f"{module}.{name}")
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="datetime"), attr=kind), attr=name) if (
                name in WALL
            ):
                found.append(f"datetime.{kind}.{name}")
            case ast.ImportFrom(module="time"):
                found += [f"time.{each.name}" for each in node.names]
            case ast.Import():
                found += [f"{each.name} as {each.asname}" for each in node.names if each.name == "time" and each.asname]
    return found


def test_the_wall_clock_is_read_in_these_places_only() -> None:
    found = Counter(
        (path.relative_to(PACKAGE).as_posix(), use)
        for path in PACKAGE.rglob("*.py")
        for use in uses_of_the_wall_clock(path.read_text(encoding="utf-8"))
    )
    assert found == ALLOWED


@pytest.mark.parametrize(
    "source",
    [
        "deadline = time.time() + 5",
        "clock = time.time_ns",
        "from time import time",
        "import time as clock",
        "datetime.now(UTC)",
        "datetime.datetime.utcnow()",
        "time.clock_gettime(time.CLOCK_REALTIME)",
    ],
)
def test_this_is_how_it_would_be_seen(source: str) -> None:
    assert uses_of_the_wall_clock(source)
    assert uses_of_the_wall_clock("time.monotonic(); time.clock_gettime(time.CLOCK_BOOTTIME)") == []


class Waiting:
    """For tokens, which another thread asks for."""

    def __init__(self) -> None:
        self.woken = threading.Event()
        self.found: list[object] = []
        self.wanted = 1


def test_a_token_is_used_for_its_life_by_the_clock_that_is_never_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """An identity provider says how long a token is good, not until when."""
    at = 1000.0
    monkeypatch.setattr("instride._net.oauth.now", lambda: at)
    requested: list[float] = []

    def token() -> OAuthToken:
        requested.append(at)
        return OAuthToken(value="t", expires_in=100.0)

    settings: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_plain_without_tls": True,
    }
    config = ConsumerConfig(bootstrap_servers="b:1", sasl_oauth_token=token, **settings)
    waiting = Waiting()
    asks = authenticator(config, waiting.woken.set, print)
    assert asks is not None
    for moment, times in ((1000.0, 1), (1079.9, 1), (1080.1, 2)):
        at = moment
        asks.prepare("b", waiting.found.append)
        while len(waiting.found) < waiting.wanted:
            assert waiting.woken.wait(60.0)
            waiting.woken.clear()
            asks.poll()
        waiting.wanted += 1
        assert len(requested) == times
