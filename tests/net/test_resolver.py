"""Names to addresses: a result in any case, whatever the name."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from instride._net.resolver import Resolver, SocketAddress, rotated
from instride.errors import TransportError


def ask(host: str) -> list[SocketAddress] | TransportError:
    results: queue.Queue[list[SocketAddress] | TransportError] = queue.Queue()
    Resolver().resolve(host, 9092, results.put)
    return results.get(timeout=60)


def test_a_literal_is_resolved_on_the_spot() -> None:
    results: list[list[SocketAddress] | TransportError] = []
    Resolver().resolve("127.0.0.1", 9092, results.append)
    assert results == [[(socket.AF_INET, ("127.0.0.1", 9092))]]


def test_an_ipv6_literal_too() -> None:
    results: list[list[SocketAddress] | TransportError] = []
    Resolver().resolve("::1", 9092, results.append)
    assert results == [[(socket.AF_INET6, ("::1", 9092, 0, 0))]]


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
    results: queue.Queue[tuple[str, list[SocketAddress] | TransportError]] = queue.Queue()
    Resolver().resolve_canonical(host, 9092, turn, lambda name, found: results.put((name, found)))
    name, found = results.get(timeout=60)
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


class Slow:
    """A DNS server that responds when it is told to. It counts the threads that ask at one time."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asking = 0
        self.most = 0
        self._lock = threading.Lock()

    def getaddrinfo(self, host: str, port: int, **_: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        if not host.startswith("broker"):
            raise OSError("no such name")
        if _.get("flags"):
            raise OSError("not a literal")
        with self._lock:
            self.asking += 1
            self.most = max(self.most, self.asking)
        self.go.wait(60)
        with self._lock:
            self.asking -= 1
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", port))]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    server = Slow()
    monkeypatch.setattr(socket, "getaddrinfo", server.getaddrinfo)
    yield server
    server.go.set()


def test_three_hundred_names_take_four_threads(slow: Slow) -> None:
    results: queue.Queue[list[SocketAddress] | TransportError] = queue.Queue()
    resolver, before = Resolver(), threading.active_count()
    for number in range(300):
        resolver.resolve(f"broker-{number}", 9092, results.put)
    assert threading.active_count() <= before + 4
    slow.go.set()
    found = [results.get(timeout=60) for _ in range(300)]
    assert not any(isinstance(each, TransportError) for each in found)
    assert slow.most <= 4


def _put(results: queue.Queue[tuple[str, object]], host: str, found: object) -> None:
    results.put((host, found))


def _is_not_in(host: str, given_up: set[str]) -> bool:
    return host not in given_up


def test_what_nobody_wants_any_more_is_not_looked_up(slow: Slow) -> None:
    results: queue.Queue[tuple[str, object]] = queue.Queue()
    resolver, given_up = Resolver(), {"broker-7"}
    for host in (f"broker-{number}" for number in range(20)):
        done, wanted = partial(_put, results, host), partial(_is_not_in, host, given_up)
        resolver.resolve(host, 9092, done, wanted=wanted)
    slow.go.set()
    found = {results.get(timeout=60)[0] for _ in range(19)}
    assert found == {f"broker-{number}" for number in range(20)} - given_up


def test_a_closed_one_begins_nothing(slow: Slow) -> None:
    results: queue.Queue[object] = queue.Queue()
    resolver = Resolver()
    for number in range(20):
        resolver.resolve(f"broker-{number}", 9092, results.put)
    resolver.close()
    resolver.resolve("broker-x", 9092, results.put)
    slow.go.set()
    found = [results.get(timeout=60) for _ in range(slow.most)]
    assert len(found) <= 4


def test_without_a_thread_it_is_an_error_that_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    results: list[object] = []
    resolver = Resolver()
    resolver.resolve("localhost", 9092, results.append)
    resolver.resolve_canonical("localhost", 9092, 0, lambda name, found: results.append(found))
    assert [str(each) for each in results] == [
        "cannot look up 'localhost': no thread can be started (can't start new thread)"
    ] * 2
    assert all(isinstance(each, TransportError) and each.retriable for each in results)
    monkeypatch.undo()
    assert ask("localhost") != []


def test_without_another_thread_those_that_run_do_it_all(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    results: queue.Queue[list[SocketAddress] | TransportError] = queue.Queue()
    resolver, start = Resolver(), threading.Thread.start
    started: list[threading.Thread] = []

    def one_only(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", one_only)
    for number in range(3):
        resolver.resolve(f"broker-{number}", 9092, results.put)
    assert results.empty(), "nobody is told of an error"
    slow.go.set()
    assert [results.get(timeout=60) for _ in range(3)] == [[(socket.AF_INET, ("10.0.0.1", 9092))]] * 3
    assert slow.most == 1


@pytest.mark.requirement("surface/dns")
@pytest.mark.parametrize("port", [0, -1, 65536, 65536 + 9092])
def test_a_port_that_is_none_is_an_error_and_not_anothers_port(port: int) -> None:
    results: list[list[SocketAddress] | TransportError] = []
    Resolver().resolve("127.0.0.1", port, results.append)
    assert isinstance(results[0], TransportError)
    assert str(port) in str(results[0])
