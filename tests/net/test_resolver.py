"""Names to addresses: an answer in any case, whatever the name."""

from __future__ import annotations

import queue
import socket

import pytest

from instride.errors import TransportError
from instride.net.resolver import SocketAddress, resolve, resolve_canonical, rotated


def ask(host: str) -> list[SocketAddress] | TransportError:
    answers: queue.Queue[list[SocketAddress] | TransportError] = queue.Queue()
    resolve(host, 9092, answers.put)
    return answers.get(timeout=60)


def test_a_literal_is_answered_on_the_spot() -> None:
    answers: list[list[SocketAddress] | TransportError] = []
    resolve("127.0.0.1", 9092, answers.append)
    assert answers == [[(socket.AF_INET, ("127.0.0.1", 9092))]]


def test_an_ipv6_literal_too() -> None:
    answers: list[list[SocketAddress] | TransportError] = []
    resolve("::1", 9092, answers.append)
    assert answers == [[(socket.AF_INET6, ("::1", 9092, 0, 0))]]


def test_a_name_is_looked_up() -> None:
    assert ask("localhost") != []


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "no-such-host.invalid"])
def test_a_name_that_cannot_be_one_is_an_error_and_kills_no_thread(host: str) -> None:
    error = ask(host)
    assert isinstance(error, TransportError)
    assert host in str(error)


@pytest.mark.requirement("surface/dns")
def test_another_address_comes_first_with_each_turn() -> None:
    addresses: list[SocketAddress] = [(socket.AF_INET, (host, 1)) for host in "abc"]
    firsts = [[address[1][0] for address in rotated(addresses, turn)] for turn in range(4)]
    assert firsts == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]
    assert rotated([], 5) == []


Names = dict[str, list[str]]


@pytest.fixture
def dns(monkeypatch: pytest.MonkeyPatch) -> Names:
    """Name -> addresses. An address has the first name that it is among the addresses of and that has no other."""
    names: Names = {}

    def getaddrinfo(host: str, port: int, **_: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        if host not in names:
            raise OSError("no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in names[host]]

    def getnameinfo(address: tuple[str, int], _flags: int) -> tuple[str, str]:
        for name, addresses in names.items():
            if addresses == [address[0]]:
                return name, str(address[1])
        raise OSError("no name")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(socket, "getnameinfo", getnameinfo)
    return names


def ask_canonical(host: str, turn: int) -> tuple[str, list[str] | TransportError]:
    answers: queue.Queue[tuple[str, list[SocketAddress] | TransportError]] = queue.Queue()
    resolve_canonical(host, 9092, turn, lambda name, found: answers.put((name, found)))
    name, found = answers.get(timeout=60)
    return name, found if isinstance(found, TransportError) else [address[0] for _, address in found]


def test_the_canonical_names_of_a_server_take_turns(dns: Names) -> None:
    dns.update({"kafka": ["10.0.0.1", "10.0.0.2"], "k1": ["10.0.0.1"], "k2": ["10.0.0.2"]})
    assert [ask_canonical("kafka", turn) for turn in range(3)] == [
        ("k1", ["10.0.0.1"]),
        ("k2", ["10.0.0.2"]),
        ("k1", ["10.0.0.1"]),
    ]


def test_an_address_without_a_name_goes_by_the_servers(dns: Names) -> None:
    dns.update({"kafka": ["10.0.0.1", "10.0.0.2"]})
    assert ask_canonical("kafka", 1) == ("kafka", ["10.0.0.1", "10.0.0.2"])


def test_a_server_without_an_address_is_an_error(dns: Names) -> None:
    name, found = ask_canonical("kafka", 0)
    assert name == "kafka"
    assert isinstance(found, TransportError)
