"""A program that ends: what becomes of its membership (docs/rebalance.md, rule 13).

A child process is a member at a scripted broker. Whether its network thread still runs when Python has waited for all
that it waits for is told by a function of its own, which Python calls last. Nothing depends on speed: once the listener
ends the program, the network thread does nothing before somebody waits for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import attack
from attack.broker import Broker

LEAVE = 13
CHILD = """
import asyncio, atexit, sys, threading
import instride._net.thread
from instride import AsyncConsumer, Consumer, RebalanceListener

Thread = instride._net.thread.NetworkThread
waited_for, turn, join = threading.Event(), Thread._turn, threading.Thread.join
waited_for.set()

def told():
    alive = any(each.name.startswith("instride-") for each in threading.enumerate())
    print("its thread runs" if alive else "its thread has ended", flush=True)

def patient_turn(self):
    waited_for.wait()
    turn(self)

def told_join(self, timeout=None):
    if self.name.startswith("instride-"):
        waited_for.set()
    return join(self, timeout)

atexit.register(told)
Thread._turn, threading.Thread.join = patient_turn, told_join
kind, when, port = sys.argv[1:]

class Ends(RebalanceListener):
    def on_partitions_assigned(self, partitions):
        if when == "poll":
            self.end()
    def on_partitions_revoked(self, partitions):
        self.end()
    def end(self):
        waited_for.clear()
        raise SystemExit(3)

settings = {"bootstrap_servers": f"127.0.0.1:{port}", "group_id": "g"}

def main():
    consumer = Consumer(**settings)
    consumer.subscribe(["t"], listener=Ends())
    while not consumer.assignment():
        consumer.poll(timeout=0.1)
    getattr(consumer, when)()

async def async_main():
    consumer = AsyncConsumer(**settings)
    consumer.subscribe(["t"], listener=Ends())
    while not consumer.assignment():
        await consumer.poll(timeout=0.1)
    await getattr(consumer, when)()

main() if kind == "Consumer" else asyncio.run(async_main())
"""


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker()
    yield made
    made.close()


def ended(broker: Broker, kind: str, when: str) -> str:
    """What the child says in the end. It ends as the listener says."""
    path = os.pathsep.join([str(Path(attack.__file__).parents[1]), *sys.path])
    child = subprocess.run(
        [sys.executable, "-c", CHILD, kind, when, str(broker.port)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert child.returncode == 3, child.stderr
    return child.stdout.strip()


@pytest.mark.rule("13")
@pytest.mark.parametrize("verb", ["close", "unsubscribe"])
@pytest.mark.parametrize("kind", ["Consumer", "AsyncConsumer"])
def test_python_waits_for_an_interrupted_end_when_it_exits(broker: Broker, kind: str, verb: str) -> None:
    assert ended(broker, kind, verb) == "its thread has ended"
    assert broker.requested[LEAVE] == 1


@pytest.mark.rule("13")
def test_a_program_that_ends_in_a_poll_ends_and_its_session_does_the_rest(broker: Broker) -> None:
    assert ended(broker, "Consumer", "poll") == "its thread runs"
    assert broker.requested[LEAVE] == 0
