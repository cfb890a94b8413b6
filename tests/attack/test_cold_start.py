"""What a call needs was imported before: without a bytecode cache that takes longer than a short timeout."""

from __future__ import annotations

import subprocess
import sys

from attack.broker import Broker

LISTS_TOPICS = """
import sys
from instride import Consumer
consumer = Consumer(bootstrap_servers=sys.argv[1])
before = set(sys.modules)
assert "t" in consumer.list_topics(timeout=60)
print(*sorted(set(sys.modules) - before))
consumer.close(timeout=60)
"""
OPENS_FILES = """
import sys
from instride import Consumer
late, watched = [], []
sys.addaudithook(lambda event, given: late.append(str(given[0])) if event == "open" and watched else None)
consumer = Consumer(bootstrap_servers=sys.argv[1])
watched.append(True)
assert "t" in consumer.list_topics(timeout=60)
watched.clear()
print(*late)
consumer.close(timeout=60)
"""
SPEAKS_THE_NEWEST_VERSIONS = """
import sys
from instride import Consumer
from instride._wire.message_codecs import CODECS
from instride._wire.message_codecs import _kio
consumer = Consumer(bootstrap_servers=sys.argv[1])
before = set(sys.modules)
for each in CODECS.values():
    if each.name != "Fetch":
        _kio().request_schema(each.api_key, each.highest)
        _kio().response_schema(each.api_key, each.highest)
print(*sorted(set(sys.modules) - before))
"""


def imported_late(code: str) -> list[str]:
    """The modules that were imported after the consumer was made."""
    broker = Broker()
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, f"127.0.0.1:{broker.port}"], capture_output=True, text=True, check=True
        )
    finally:
        broker.close()
    return done.stdout.split()


def test_a_first_call_imports_nothing() -> None:
    assert imported_late(LISTS_TOPICS) == []


def test_a_first_call_opens_no_file() -> None:
    """The system may have none left then."""
    assert imported_late(OPENS_FILES) == []


def test_requests_to_a_broker_of_today_import_nothing() -> None:
    assert imported_late(SPEAKS_THE_NEWEST_VERSIONS) == []
