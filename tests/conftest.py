"""The order of the tests: the fast ones first, then those with a real Kafka, then those with a real Spark.

So a plain mistake is reported within seconds, and the tests that share a kind of server run together. Of the tests that
are marked `drawn`, a run plays the part that the commit says (`drawn_by_commit`).
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

import pytest_instride
from drawn_by_commit import WHOLE, commit, without_undrawn

if TYPE_CHECKING:
    from s3_server import S3Server

    from instride.testing._kafka.local_kafka import LocalKafka
    from postgres_server import PostgresServer

# No test is judged by the clock: a busy machine would fail it.
# A mutant that is found is found in every run (tools/mutants/trial.py).
settings.register_profile("instride", deadline=None, derandomize=os.environ.get("INSTRIDE_DERANDOMIZED") == "1")
settings.load_profile("instride")

_FAILED = pytest.StashKey[bool]()
# They wait for a server of the system's, which nobody can hurry.
_UNHURRIED = ("instride-resolve", "instride-kerberos")


def pytest_configure(config: pytest.Config) -> None:
    # What `pytest_plugins` does, which pytest allows in a conftest at the very top only.
    if not config.pluginmanager.is_registered(pytest_instride):
        config.pluginmanager.register(pytest_instride, "pytest_instride")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Started in the background of a script: then Ctrl-C would reach neither the tests nor the programs they start.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """All tests stay until the end: a collector that walks over them each time takes a tenth of the processor time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_exception_is_left_in_hand() -> Iterator[None]:
    """It would be the context of each error in the tests that follow (`contained`)."""
    before = sys.exc_info()[1]
    yield
    assert sys.exc_info()[1] is before, "the test left an `except` unfinished: run what a trace interrupts `contained`"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.config.stash[_FAILED] = item.config.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture(autouse=True)
def _no_thread_of_ours_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """It would go on beside the tests that follow, and call what they have patched: so it ends first.

    A test that failed may leave some, also beside those that follow: its traceback keeps what it opened.
    """
    before = set(threading.enumerate())
    yield
    begun = set(threading.enumerate()) - before
    left = [each for each in begun if each.name.startswith("instride") and each.name not in _UNHURRIED]
    if not left or request.config.stash.get(_FAILED, False):
        return
    gc.collect()  # what a cycle of references keeps ends with it
    until = time.monotonic() + 60.0
    for thread in left:
        while thread.ident is None:  # another thread has made it just now: it cannot be joined yet
            time.sleep(0)
        thread.join(max(0.0, until - time.monotonic()))
    assert not (still := [each.name for each in left if each.is_alive()]), f"the test left {still} running"


@pytest.fixture(scope="session")
def kafka(instride_kafka: LocalKafka) -> LocalKafka:
    """The plugin's, by a short name."""
    return instride_kafka


@pytest.fixture(scope="module")
def kafka_cluster(instride_kafka_cluster: LocalKafka) -> LocalKafka:
    return instride_kafka_cluster


@pytest.fixture
def kafka_topic(instride_kafka_topic: Callable[..., str]) -> Callable[..., str]:
    return instride_kafka_topic


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One real PostgreSQL for the whole run, started on first use (a second). Skips where there is none."""
    from postgres_server import MISSING, PostgresServer

    if MISSING:
        pytest.skip(f"needs {MISSING}")
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_database(postgres: PostgresServer) -> Iterator[str]:
    """The URI of an empty schema of this test's own; a database of its own would take a second."""
    import psycopg

    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres.uri, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    yield f"{postgres.uri}&options=-csearch_path%3D{name}"
    with psycopg.connect(postgres.uri, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {name} CASCADE")


@pytest.fixture
def s3() -> Iterator[S3Server]:
    """A server of this test's own, whose buckets are all there and empty."""
    from s3_server import s3_server

    with s3_server() as server:
        yield server


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort by what a test needs; the sort is stable, so within a kind the order of the files stays.

    What is drawn is drawn of those that `-k` and `-m` leave: who asks for one case by its name gets it.
    """
    items.sort(key=_cost)
    if WHOLE or any("::" in each for each in config.args):
        return
    played = without_undrawn(items, commit())
    if left_out := set(items) - set(played):
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = played


def _cost(item: pytest.Item) -> int:
    if item.get_closest_marker("spark"):
        return 2
    return 1 if item.get_closest_marker("kafka") else 0
