"""How tickets are requested, with a library of our own in gssapi's place: threads, patience, what is told."""

from __future__ import annotations

import errno
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from security_help import PATIENCE

from instride import Consumer, ConsumerConfig
from instride._net import kerberos
from instride._net.credentials import authenticator
from instride._wire.sasl.gssapi import Gssapi
from instride.errors import AuthenticationError, ConfigError, TransportError


class GSSError(Exception):
    pass


class Library:
    """gssapi, as far as it is used. requested: the names that tickets were requested for, and on which threads.

    agreed: the flags of its contexts.
    """

    def __init__(self) -> None:
        self.requested: list[tuple[str, str]] = []
        self.credentials: list[dict[str, Any]] = []
        self.first: Callable[[], bytes] = lambda: b"ticket"
        self.agreed = 2
        self.exceptions = SimpleNamespace(GSSError=GSSError)
        self.RequirementFlag = SimpleNamespace(mutual_authentication=2, replay_detection=4, out_of_sequence_detection=8)
        self.NameType = SimpleNamespace(hostbased_service="host", kerberos_principal="principal")
        self.MechType = SimpleNamespace(kerberos="krb5")

    def Name(self, name: str, kind: str) -> str:
        return f"{kind}:{name}"

    def Credentials(self, **how: Any) -> str:
        self.credentials.append(how)
        return "credentials"

    def SecurityContext(self, *, name: str, creds: Any, mech: str, flags: int, usage: str) -> Any:
        assert (mech, flags, usage) == ("krb5", 14, "initiate")
        self.requested.append((name, threading.current_thread().name))

        def step(token: bytes | None = None) -> bytes:
            if token == b"bad":
                raise GSSError("a replay")
            context.complete = token is not None
            return self.first() if token is None else b""

        def wrap(message: bytes, encrypt: bool) -> Any:
            assert not encrypt
            return SimpleNamespace(message=b"wrapped " + message)

        def unwrap(message: bytes) -> Any:
            if message == b"bad":
                raise GSSError("a replay")
            return SimpleNamespace(message=message.removeprefix(b"wrapped "))

        context = SimpleNamespace(step=step, wrap=wrap, unwrap=unwrap, complete=False, actual_flags=self.agreed)
        return context


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setitem(sys.modules, "gssapi", made)
    return made


def config(**more: Any) -> ConsumerConfig:
    given: dict[str, Any] = {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI", **more}
    return ConsumerConfig(bootstrap_servers="b:1", **given)


def prepared(config: ConsumerConfig, *hosts: str) -> list[Gssapi | AuthenticationError]:
    """What each host's preparation ends in."""
    woken = threading.Event()
    made = authenticator(config, woken.set, print)
    assert made is not None
    results: list[Any] = []
    for host in hosts:
        made.prepare(host, results.append)
    deadline = time.monotonic() + PATIENCE
    while len(results) < len(hosts):
        assert time.monotonic() < deadline
        woken.wait(min(0.05, max(0.0, made.deadline - time.monotonic())))
        woken.clear()
        made.poll()
    return results


def test_tickets_are_requested_on_one_thread_of_their_own(library: Library) -> None:
    found = prepared(config(), "b-1", "b-2", "b-3")
    assert all(isinstance(each, Gssapi) and each.start() == b"ticket" for each in found)
    assert library.requested == [(f"host:kafka@b-{number}", "instride-kerberos") for number in (1, 2, 3)]
    assert library.credentials == []


def test_a_keytab_has_a_cache_of_its_own(library: Library, tmp_path: Path) -> None:
    file = tmp_path / "k"
    file.write_bytes(b"")
    keytab = {
        "sasl_kerberos_keytab_file": str(file),
        "sasl_kerberos_principal": "me",
        "sasl_kerberos_service_name": "s",
    }
    prepared(config(**keytab), "b")
    prepared(config(**keytab), "b")
    assert [name for name, _ in library.requested] == ["host:s@b"] * 2
    stores = [how["store"] for how in library.credentials]
    assert [how["name"] for how in library.credentials] == ["principal:me"] * 2
    assert {store["client_keytab"] for store in stores} == {str(file)}
    assert len({store["ccache"] for store in stores}) == 2
    assert all(store["ccache"].startswith("MEMORY:") for store in stores)


@pytest.mark.parametrize(
    ("keytab", "told"),
    [
        ("/absent", "'/absent' cannot be read: No such file"),
        ("a\0b", "null byte"),
        ("\ud800", "surrogates not allowed"),
    ],
)
def test_a_keytab_that_cannot_be_read_is_refused_when_the_consumer_is_built(
    library: Library, keytab: str, told: str
) -> None:
    with pytest.raises(ConfigError, match=f"sasl_kerberos_keytab_file .*{told}"):
        Consumer(
            bootstrap_servers="b:1",
            security_protocol="SASL_SSL",
            sasl_mechanism="GSSAPI",
            sasl_kerberos_keytab_file=keytab,
        )


def test_a_dot_at_the_end_of_a_name_does_not_matter(library: Library) -> None:
    prepared(config(), "b-1.test.")
    assert library.requested[0][0] == "host:kafka@b-1.test"


def test_what_the_library_raises_is_told(library: Library) -> None:
    def broken(error: Exception) -> Callable[[], bytes]:
        def first() -> bytes:
            raise error

        return first

    for error, told in ((GSSError("no such\nprincipal"), "kafka/b: no such principal"), (OSError("x"), "OSError")):
        library.first = broken(error)
        (found,) = prepared(config(), "b")
        assert isinstance(found, AuthenticationError)
        assert told in str(found)
    library.first = broken(MemoryError())
    later: list[Any] = [*prepared(config(), "b")]
    assert [type(each) for each in later] == [TransportError], "there may be some then"


UNREACHABLE = (2529639068, -1765328228, 2529639132)
BUSY = (-1765328355, (1 << 32) - 1765328355)


@pytest.mark.parametrize("code", [*UNREACHABLE, *BUSY, errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_kdc_that_cannot_be_reached_may_be_there_later(library: Library, code: int) -> None:
    class NoKDCError(GSSError):
        min_code = code

    def first() -> bytes:
        raise NoKDCError("Cannot contact any KDC for realm 'EXAMPLE'")

    library.first = first
    found: list[Any] = [*prepared(config(), "b")]
    assert [type(each) for each in found] == [TransportError]
    assert "Cannot contact any KDC" in str(found[0])


def test_a_kdc_that_is_silent_is_given_up_and_asked_by_one_thread_only(library: Library) -> None:
    release = threading.Event()
    library.first = lambda: b"late" if release.wait(PATIENCE) else b""
    found: list[Any] = [*prepared(config(connection_setup_timeout=0.25), "b-1", "b-2")]
    assert {type(each) for each in found} == {TransportError}, "it may respond later"
    said = "no Kerberos ticket came within 0.2 s (see connection_setup_timeout): is the KDC there?"
    assert [str(each) for each in found] == [said] * 2
    assert len(library.requested) == 1
    release.set()
    for each in threading.enumerate():
        if each.name == "instride-kerberos":
            each.join(PATIENCE)
    assert len(library.requested) == 1, "nobody waits for the second"


def test_a_bad_token_of_the_broker_is_refused(library: Library) -> None:
    (found,) = prepared(config(), "b")
    assert isinstance(found, Gssapi)
    with pytest.raises(AuthenticationError, match="a replay"):
        found.response(b"bad")


def test_without_the_package_it_is_refused_when_the_consumer_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError, match=r'pip install "instride\[gssapi\]"'):
        Consumer(bootstrap_servers="b:1", security_protocol="SASL_SSL", sasl_mechanism="GSSAPI")


def test_an_exchange_ends_without_a_layer_for_whom_the_ticket_names(library: Library) -> None:
    (found,) = prepared(config(), "b")
    assert isinstance(found, Gssapi)
    assert found.response(b"a token") == b""
    assert found.response(b"wrapped \1\0\0\0") == b"wrapped \1\0\0\0"
    assert found.response(b"") is None


def test_a_broker_that_does_not_prove_itself_is_refused(library: Library) -> None:
    library.agreed = 12
    (found,) = prepared(config(), "b")
    assert isinstance(found, Gssapi)
    found.response(b"a token")
    with pytest.raises(AuthenticationError, match="did not prove who it is"):
        found.response(b"wrapped \1\0\0\0")


def test_a_damaged_offer_of_the_broker_is_refused(library: Library) -> None:
    (found,) = prepared(config(), "b")
    assert isinstance(found, Gssapi)
    found.response(b"a token")
    with pytest.raises(AuthenticationError, match="a replay"):
        found.response(b"bad")


@pytest.mark.parametrize("looked_at", ["complete", "actual_flags"])
def test_a_ticket_that_ends_amid_the_exchange_ends_that_and_no_more(library: Library, looked_at: str) -> None:
    """Of a context that has ended the library tells nothing: it killed the network thread."""

    class Ended(SimpleNamespace):
        def __getattribute__(self, name: str) -> Any:
            if name == looked_at:
                raise GSSError("expired")
            return super().__getattribute__(name)

    (found,) = prepared(config(), "b")
    assert isinstance(found, Gssapi)
    found.response(b"a token")
    context: Any = found._context
    context._context = Ended(**vars(context._context))
    with pytest.raises(AuthenticationError, match="expired"):
        found.response(b"wrapped \1\0\0\0")


def test_without_a_thread_it_is_an_error_that_may_pass(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    woken, results = threading.Event(), list[Any]()
    made = authenticator(config(), woken.set, print)
    assert made is not None
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        made.prepare("b-1", results.append)
    assert woken.is_set(), "the network thread looks at once"
    made.poll()
    assert [str(each) for each in results] == [
        "cannot ask for a ticket for b-1: no thread can be started (can't start new thread)"
    ]
    assert isinstance(results[0], TransportError)
    assert library.requested == []
    woken.clear()
    made.prepare("b-2", results.append)
    while len(results) < 2:
        assert woken.wait(PATIENCE)
        woken.clear()
        made.poll()
    assert isinstance(results[1], Gssapi)


def test_a_ticket_that_comes_after_it_was_given_up_goes_to_nobody(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, release, woken, results = [1000.0], threading.Event(), threading.Event(), list[Any]()
    monkeypatch.setattr(kerberos, "now", lambda: at[0])
    library.first = lambda: b"late" if release.wait(PATIENCE) else b""
    made = authenticator(config(), woken.set, print)
    assert made is not None
    made.prepare("b", results.append)
    at[0] = made.deadline
    made.poll()
    assert [type(each) for each in results] == [TransportError]
    release.set()
    while not made._arrived:  # type: ignore[union-attr]
        assert woken.wait(PATIENCE)
        woken.clear()
    made.poll()
    assert len(results) == 1
    assert made.deadline == float("inf")
