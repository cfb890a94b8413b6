"""Names to addresses: an answer in any case, whatever the name."""

from __future__ import annotations

import queue
import socket

import pytest

from instride.errors import TransportError
from instride.net.resolver import SocketAddress, resolve


def ask(host: str) -> list[SocketAddress] | TransportError:
    answers: queue.Queue[list[SocketAddress] | TransportError] = queue.Queue()
    resolve(host, 9092, answers.put)
    return answers.get(timeout=60)


def test_a_literal_is_answered_on_the_spot() -> None:
    answers: list[list[SocketAddress] | TransportError] = []
    resolve("127.0.0.1", 9092, answers.append)
    assert answers == [[(socket.AF_INET, ("127.0.0.1", 9092))]]


def test_a_name_is_looked_up() -> None:
    assert ask("localhost") != []


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "no-such-host.invalid"])
def test_a_name_that_cannot_be_one_is_an_error_and_kills_no_thread(host: str) -> None:
    error = ask(host)
    assert isinstance(error, TransportError)
    assert host in str(error)
