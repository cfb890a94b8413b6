"""Names to addresses: a result in any case, whatever the name."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from instride._net.resolver import AddressOrder, Resolver, SocketAddress, _Waiter
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
@pytest.mark.parametrize("host", ["127.0.0.1\0x", "x" * 256, "".join(map(chr, range(0x4E00, 0x4E00 + 10_900)))])
def test_what_is_no_host_never_reaches_the_system(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would connect to what is before a NUL, and encode a long one for seconds, on the network thread."""
    monkeypatch.setattr(socket, "getaddrinfo", None)
    results: list[list[SocketAddress] | TransportError] = []
    Resolver().resolve(host, 9092, results.append)
    assert isinstance(results[0], TransportError)


def hosts(found: list[SocketAddress]) -> str:
    return "".join(address[0] for _, address in found)


def addresses(names: str) -> list[SocketAddress]:
    return [(socket.AF_INET, (host, 1)) for host in names]


@pytest.mark.requirement("surface/dns")
def test_an_address_that_failed_comes_after_all_others() -> None:
    order, found = AddressOrder(), addresses("abc")
    assert hosts(order.ordered("b:1", found)) == "abc"
    seen = []
    for _ in range(4):  # each attempt fails at its first address
        order.failed("b:1", order.ordered("b:1", found)[0])
        seen.append(hosts(order.ordered("b:1", found)))
    assert seen == ["bca", "cab", "abc", "bca"]
    order.worked("b:1", found[0])
    order.worked("b:1", found[0])
    assert hosts(order.ordered("b:1", found)) == "abc"
    assert hosts(order.ordered("c:1", found)) == "abc", "of another place"
    assert order.ordered("b:1", []) == []


def test_where_all_addresses_fail_each_has_its_turn_to_be_the_first() -> None:
    """The first of an attempt has most of the time then: one that takes long is reached only as the first."""
    order, found, firsts = AddressOrder(), addresses("abc"), list[str]()
    for _ in range(6):
        ordered = order.ordered("b:1", found)
        assert order.all_failed("b:1", ordered) is bool(firsts)
        firsts.append(hosts(ordered[:1]))
        order.failed("b:1", *ordered)
    assert "".join(firsts) == "aabcab"
    assert not order.all_failed("b:1", order.ordered("b:1", addresses("abcd")))


def test_an_address_that_is_none_of_the_name_any_more_is_forgotten() -> None:
    order = AddressOrder()
    order.failed("b:1", addresses("a")[0])
    assert hosts(order.ordered("b:1", addresses("abc"))) == "bca"
    assert hosts(order.ordered("b:1", addresses("bc"))) == "bc"
    assert hosts(order.ordered("b:1", addresses("abc"))) == "abc", "it is as good as a new one"


def test_an_address_may_work_in_one_thread_while_another_orders_them() -> None:
    """Two consumers may share an `OAuthClientCredentials`."""
    order = AddressOrder()

    class Meeting:
        """Between a look whether it has failed and a look when."""

        looks = -1

        def __hash__(self) -> int:
            self.looks -= 1
            if self.looks == 0:
                order.worked("b:1", address)
            return 1

    met = Meeting()
    address: Any = met
    for looks in range(1, 8):
        order.failed("b:1", address)
        met.looks = looks
        assert order.ordered("b:1", [address]) == [address]


def test_of_places_whose_addresses_failed_a_bounded_number_is_known() -> None:
    """A broker may make up others for ever."""
    order = AddressOrder()
    for number in range(2500):
        order.failed(f"b{number}:1", addresses("a")[0])
    assert 0 < len(order._failed) <= 1000


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
    """A DNS server that responds when it is told to; of some names it never does. It counts the threads that ask at one
    time."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.silent = threading.Event()
        self.asked: list[str] = []
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
            self.asked.append(host)
        (self.silent if host == "broker-silent" else self.go).wait(60)
        with self._lock:
            self.asking -= 1
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", port))]


def nameless(*_: object) -> tuple[str, str]:
    raise OSError("no name")


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    server = Slow()
    monkeypatch.setattr(socket, "getaddrinfo", server.getaddrinfo)
    monkeypatch.setattr(socket, "getnameinfo", nameless)
    yield server
    server.go.set()
    server.silent.set()


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


def test_a_name_that_hangs_holds_up_no_other_however_often_it_is_requested(slow: Slow) -> None:
    """Law 4."""
    results: queue.Queue[tuple[str, object]] = queue.Queue()
    resolver, newest = Resolver(), [0]
    for number in range(20):
        newest[0] = number
        resolver.resolve(
            "broker-silent",
            9000 + number,
            partial(_put, results, f"silent-{number}"),
            wanted=lambda number=number: newest[0] == number,  # type: ignore[misc]
        )
    resolver.resolve_canonical("broker-silent", 9092, 0, lambda name, found: results.put((name, found)))
    resolver.resolve("broker-good", 9092, partial(_put, results, "good"))
    slow.go.set()
    assert results.get(timeout=60) == ("good", [(socket.AF_INET, ("10.0.0.1", 9092))])
    assert slow.asked.count("broker-silent") == 1
    assert len(resolver._waiting["broker-silent"]) <= 2, "who gave up is not kept"
    slow.silent.set()
    found = dict[str, object]()
    while not {"silent-19", "broker-silent"} <= set(found):
        host, result = results.get(timeout=60)
        found[host] = result
    assert found["silent-19"] == [(socket.AF_INET, ("10.0.0.1", 9019))], "the port is its own"
    assert found["broker-silent"] == [(socket.AF_INET, ("10.0.0.1", 9092))]
    assert set(found) <= {"silent-0", "silent-19", "broker-silent"}, "the first may have been wanted when it began"


def test_a_name_is_looked_up_anew_when_its_look_up_has_ended(slow: Slow) -> None:
    slow.go.set()
    results: queue.Queue[object] = queue.Queue()
    resolver = Resolver()
    for times in (1, 2):
        resolver.resolve("broker-1", 9092, results.put)
        results.get(timeout=60)
        while resolver._begun:
            threading.Event().wait(0.001)
        assert slow.asked == ["broker-1"] * times


class Hangs:
    """A system whose look-ups of a name return when they are told to; others return at once."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.begun = threading.Semaphore(0)
        self.go: list[threading.Event] = []
        self.over = False

    def getaddrinfo(self, host: str, port: int, **more: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        if more.get("flags"):
            raise OSError("not a literal")
        self.asked.append(host)
        if host.startswith("hangs") and not self.over:
            go = threading.Event()
            self.go.append(go)
            self.begun.release()
            assert go.wait(60)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", port))]


@pytest.fixture
def hangs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hangs]:
    made = Hangs()
    monkeypatch.setattr(socket, "getaddrinfo", made.getaddrinfo)
    yield made
    for each in made.go:
        each.set()


def test_a_look_up_that_does_not_return_is_followed_by_one_more(hangs: Hangs) -> None:
    """Law 4."""
    at, results = [1000.0], queue.Queue[tuple[str, object]]()
    resolver = Resolver(lambda: at[0])
    resolver.resolve("hangs", 9000, partial(_put, results, "first"))
    assert hangs.begun.acquire(timeout=60)
    at[0] += 9.9
    resolver.resolve("hangs", 9001, partial(_put, results, "second"))
    resolver.resolve("good", 9092, partial(_put, results, "good"))
    assert results.get(timeout=60)[0] == "good"
    assert hangs.asked == ["hangs", "good"], "it may still return"
    at[0] += 0.1
    resolver.resolve("hangs", 9002, partial(_put, results, "third"))
    assert hangs.begun.acquire(timeout=60)
    at[0] += 100.0
    resolver.resolve("hangs", 9003, partial(_put, results, "fourth"))
    resolver.resolve("good", 9092, partial(_put, results, "good"))
    assert results.get(timeout=60)[0] == "good"
    assert hangs.asked == ["hangs", "good", "hangs", "good"], "two, and no more"
    hangs.go[1].set()
    found = dict(results.get(timeout=60) for _ in range(3))
    assert found == {
        name: [(socket.AF_INET, ("10.0.0.1", port))]
        for name, port in [("second", 9001), ("third", 9002), ("fourth", 9003)]
    }
    while len(resolver._begun["hangs"]) > 1:
        threading.Event().wait(0.001)
    resolver.resolve("hangs", 9004, partial(_put, results, "fifth"))
    assert hangs.begun.acquire(timeout=60), "the first still hangs, and holds up nobody"
    hangs.go[2].set()
    assert results.get(timeout=60) == ("fifth", [(socket.AF_INET, ("10.0.0.1", 9004))])
    hangs.go[0].set()
    assert results.get(timeout=60)[0] == "first"
    while resolver._begun:
        threading.Event().wait(0.001)


def test_however_many_names_hang_others_are_looked_up_and_threads_are_bounded(hangs: Hangs) -> None:
    at, results = [1000.0], queue.Queue[tuple[str, object]]()
    resolver, threads = Resolver(lambda: at[0]), 0
    for number in range(8):
        for _ in range(4):
            resolver.resolve(f"hangs-{number}", 9092, partial(_put, results, "hangs"))
            while threads < resolver._threads:
                assert hangs.begun.acquire(timeout=60)
                threads += 1
            at[0] += 10.0
        if number == 3:
            resolver.resolve("good", 9092, partial(_put, results, "good"))
            assert results.get(timeout=60)[0] == "good"
    assert threads == 12
    assert all(hangs.asked.count(host) <= 2 for host in hangs.asked)
    hangs.over = True
    resolver.resolve("good", 9092, partial(_put, results, "good"))
    for each in hangs.go:
        each.set()
    while results.get(timeout=60)[0] != "good":
        pass


def test_a_look_up_that_dies_keeps_nobody_from_the_next(slow: Slow) -> None:
    resolver, results = Resolver(), queue.Queue[object]()

    def no_memory() -> bool:
        raise MemoryError

    resolver._waiting["broker-1"] = [_Waiter(port=1, take=results.put, wanted=no_memory)]
    resolver._due.append("broker-1")
    resolver._threads = 1
    with pytest.raises(MemoryError):
        resolver._work()
    slow.go.set()
    resolver.resolve("broker-1", 9092, results.put)
    assert results.get(timeout=60) == [(socket.AF_INET, ("10.0.0.1", 9092))]


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
