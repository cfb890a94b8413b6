"""The network thread: the only place with sockets. It runs `_core.network` and does what that says.

Laws
1. One loop: take application events, tick, do the actions, wait for sockets or the deadline.
2. The application's events are a deque; a byte on a socket pair wakes the loop. The byte is sent after the append, and
   read before the deque is emptied, so that no event waits for the next time-out. None is sent to a loop that is awake,
   nor for what was consumed where nothing waits for its capacity, nor for a poll where nothing waits for one: the loop
   hears of it in its next turn, before all else.
3. If the thread dies, the mailbox is told first of all, so that every waiting and later call raises what killed it.
4. A mechanism is prepared before a connection that needs one is opened, and again before its session ends. Where there
   is none for an open connection, that is closed only when its session has ended (`transport`, law 5), but then at
   once, also while one is prepared. Where a Join or Sync has no response yet, that is awaited first.
5. It is a daemon: a program that forgets to close ends all the same (and the group waits for its session to end).
6. Which addresses of a place have failed is known to all connections to it (`resolver.AddressOrder`): those that were
   tried before the one that got ready, and all of an attempt that came to nothing.
7. What the user's code raises on it (a callback of a future, an observer) is logged and goes no further, `sys.exit()`
   too. Where a callback raises what is no Exception, later callbacks of the same future are not called.
8. A forked child closes its copies of the sockets: else what the parent closes or aborts lives on for as long as the
   child does, and what the broker has not received by then arrives later. What is left to the child is a socket that
   is within `socket.socket()`, `Tls.wrap` or close(2) just then.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import selectors
import socket
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from types import FrameType
from typing import assert_never

from instride._core.events import (
    ApplicationEvent,
    BackgroundEvent,
    CallCompleted,
    CallsCompleted,
    ChangeSettings,
    Consumed,
    Polled,
)
from instride._core.network.actions import (
    Action,
    CloseConnection,
    ConnectionKey,
    Deliver,
    Log,
    OpenConnection,
    PerformAssignment,
    Role,
    Stop,
    Transmit,
)
from instride._core.network.context import Lines
from instride._core.network.machine import NetworkMachine
from instride._net.call_stack import is_under_way
from instride._net.clock import LONGEST_WAIT, now
from instride._net.credentials import authenticator
from instride._net.mailbox import Mailbox
from instride._net.pump import Line, Pump, Waker, receive
from instride._net.resolver import AddressOrder, Resolver, SocketAddress
from instride._net.tls import Tls, tls_context
from instride._net.transport import Transport
from instride._wire.api import Request, Response
from instride._wire.connection import Connection, Received
from instride._wire.decoder import keep_gil
from instride._wire.memory_pool import Segments, kept_bytes
from instride._wire.message_codecs import load_messages
from instride._wire.sasl.exchange import Mechanism
from instride.commits import CommitResult
from instride.config import ConsumerConfig
from instride.errors import (
    AuthenticationError,
    ConsumerClosedError,
    IllegalSaslStateError,
    KafkaError,
    NetworkThreadDiedError,
    TlsError,
    TransportError,
    UnsupportedSaslMechanismError,
)
from instride.errors._quoting import one_line
from instride.observers import Observer, Observers

__all__ = ["NetworkThread"]

_logger = logging.getLogger("instride.network")
# So many words of the application wait for the next turn at most.
_MOST_WAIT = 100
# Network threads of this process for which the GIL is kept.
_keepers: set[int] = set()
# Those of this process that may have sockets.
_with_sockets: weakref.WeakSet[NetworkThread] = weakref.WeakSet()
# Refusals that say nothing of a token: it was not sent yet.
_BEFORE_IT_WAS_SENT = (TlsError, UnsupportedSaslMechanismError, IllegalSaslStateError)


def _begin_child() -> None:
    """Of the parent's threads none runs in a forked child."""
    _keepers.clear()
    keep_gil(keep=False)
    for each in tuple(_with_sockets):
        each.let_go()


os.register_at_fork(after_in_child=_begin_child)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opening:
    """number: rises with each opening, so that a slow resolver cannot open a connection that was given up.

    until: when the connection is given up. name: the host, or one of its canonical names: what the peer is called in
    certificates and in Kerberos.
    """

    key: ConnectionKey
    number: int
    host: str
    port: int
    until: float
    name: str = ""


class _WakePair:
    """Two sockets: a byte into the one ends the thread's wait for the other. Raises OSError where there are no more."""

    def __init__(self) -> None:
        self.inner, self._outer = socket.socketpair()
        self.inner.setblocking(False)
        self._outer.setblocking(False)
        self._waker = Waker(self._outer.fileno())

    def wake(self) -> None:
        self._waker.wake()  # full: the loop is woken already; closed: it has ended

    def close(self) -> None:
        # Before the sockets: a wake after that must not write to whatever file gets the number.
        self._waker.close()
        self.inner.close()
        self._outer.close()


class NetworkThread:
    """`events`, `wake` and `future` are thread-safe; everything else belongs to the thread.

    events: what the application side says, appended there; `wake` follows.

    To build one reads the certificates that the config names, and imports what messages are made of: no call's time is
    spent on that. Raises ConfigError.
    """

    def __init__(
        self, config: ConsumerConfig, machine: NetworkMachine, mailbox: Mailbox, observers: Observers | None = None
    ) -> None:
        load_messages()
        self._config = config
        self._machine = machine
        self._observers = Observers() if observers is None else observers
        self._mailbox = mailbox
        self.events: deque[ApplicationEvent] = deque()
        self._resolved: deque[tuple[_Opening, list[SocketAddress] | TransportError]] = deque()
        self._assigned: deque[tuple[PerformAssignment, Mapping[str, bytes] | Exception]] = deque()
        self._resolver = Resolver()
        self._tls = tls_context(config)
        self._authenticator = authenticator(config, self._wake, self._tell_trouble)
        self._futures: dict[int, Future[CommitResult]] = {}
        self._segments = Segments(kept_bytes(config.fetch_buffer_bytes))
        self._transports: dict[ConnectionKey, Transport] = {}
        self._openings: dict[ConnectionKey, int] = {}
        self._order = AddressOrder()
        # Of each bootstrap server, where canonical names are wanted: attempts that came to nothing.
        self._names_tried: dict[ConnectionKey, int] = {}
        self._mechanisms: dict[ConnectionKey, Mechanism] = {}
        # Open ones that wait for a mechanism.
        self._preparing: dict[ConnectionKey, Transport] = {}
        self._opening = 0
        self._announced: set[ConnectionKey] = set()
        self._registered: dict[ConnectionKey, tuple[int, int, Line | None]] = {}
        # Those of which the pump may not know yet what they wait for, and where their next bytes go.
        self._moved: dict[ConnectionKey, Transport] = {}
        # When the first of the connections stalls or must authenticate anew, as of the last look at them.
        self._transports_due = float("-inf")
        self._pump: Pump[ConnectionKey | None] = Pump(eager=sys.platform == "linux")
        self._keeps_gil = False
        self._lines = Lines()
        # None until the thread is started: to build a consumer opens nothing.
        self._wake_pair: _WakePair | None = None
        self._wakes = memoryview(bytearray(64))
        self._stopping = False
        # Whether the loop waits, or is about to: else it sees what is said by itself (law 2).
        self._asleep = False
        # How often it went to sleep; and the turn whose sleep was ended by a byte, so that no second one is sent to a
        # thread that has not come to run since.
        self._turns = 0
        self._woken_in = -1
        # What a future ends with once the thread takes nothing more.
        self._over: KafkaError | None = None
        # Of the newest start: whether its thread runs. Who says so first decides, the thread or who gives it up.
        self._runs = {"thread": False}
        # The thread and the frame of a start.
        self._starting: tuple[int, FrameType] | None = None
        self._thread = self._new_thread(self._runs)

    # -- any thread

    def start(self) -> None:
        """What needs closing is opened here, so that one that never starts leaves nothing behind. One that was
        interrupted may be done again; where the thread runs, nothing is done.

        Raises TransportError where the system has no files, memory or threads left: it may be called again then.
        """
        self._starting = (threading.get_ident(), sys._getframe())
        try:
            # A signal's handler may have been here before us.
            if not self._runs.get("thread"):
                self._start_anew()
        finally:
            self._starting = None

    def _start_anew(self) -> None:
        opened, runs = ExitStack(), dict[str, bool]()
        try:
            self._open_own(opened)
            self._runs = runs
            self._thread = thread = self._new_thread(runs)
            thread.start()
        except (OSError, RuntimeError, MemoryError) as error:
            # A RuntimeError is how threading says that there is no thread left.
            opened.close()
            raise TransportError(f"cannot start the network thread: {error}; close what is not needed") from error
        runs.setdefault("thread", True)

    def _new_thread(self, runs: dict[str, bool]) -> threading.Thread:
        name = f"instride-{self._config.client_id}"
        return threading.Thread(target=self._run, args=(runs,), name=name, daemon=True)

    @property
    def begun(self) -> bool:
        """Whether the thread was started, or is being started: then we are in a signal's handler, and the thread will
        see what that leaves for it.

        A signal's exception may have left a start when the system had its thread already: where that has not come to
        run yet, it never will, and what was opened for it is closed.
        """
        if self._starting is not None and is_under_way(self._starting):
            return True
        begun = self._runs.setdefault("thread", False)
        if not begun and self._wake_pair is not None:
            self._wake_pair.close()
            self._wake_pair = None
        return begun

    def let_go(self) -> None:
        """Law 8. To be called in the child."""
        if not self.begun:
            return  # it may begin in the child
        self._stopping = True  # a callback of the user's may have forked on this very thread
        for each in tuple(self._transports.values()):
            each.let_go()
        if self._wake_pair is not None:
            self._wake_pair.close()

    def _open_own(self, opened: ExitStack) -> None:
        _with_sockets.add(self)
        self._wake_pair = opened.enter_context(closing(_WakePair()))
        self._pump.register(None, self._wake_pair.inner.fileno(), selectors.EVENT_READ)

    def wake(self) -> None:
        # Read before the byte is sent: a byte that is noted for a later turn would keep that turn's own from being
        # sent.
        turn = self._turns
        if self._asleep and self._woken_in != turn and self._is_urgent():
            self._wake()
            self._woken_in = turn  # after the byte: an interrupt before it must not keep the next one
        if self._over is not None:  # it ended while something was on its way
            self._fail_futures(self._over)

    def _is_urgent(self) -> bool:
        """Law 2."""
        machine = self._machine
        # Copied in one step of C: the network thread takes from the deque meanwhile.
        events = tuple(self.events)
        if len(events) > _MOST_WAIT:
            return True
        for event in events:
            if isinstance(event, Consumed):
                if machine.waits_for_capacity:
                    return True
            elif not (isinstance(event, Polled) and event.at < machine.awaits_poll_at):
                return True
        return False

    def future(self, call: int) -> Future[CommitResult]:
        """Resolved, on this thread, when the response to the commit came. To be taken before it is posted."""
        future: Future[CommitResult] = Future()
        future.set_running_or_notify_cancel()  # what was handed over cannot be cancelled
        self._futures[call] = future
        return future

    def join(self, timeout: float) -> bool:
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def join_at_exit(self, timeout: float) -> None:
        """The interpreter waits for it. Once it has ended, the program keeps nothing else of it until then."""
        atexit.register(self._thread.join, timeout)

    @property
    def is_current(self) -> bool:
        # The first is a function in C; an ended thread's number may be another's.
        return threading.get_ident() == self._thread.ident and threading.current_thread() is self._thread

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _wake(self) -> None:
        assert self._wake_pair is not None
        self._wake_pair.wake()

    # -- the thread

    def _run(self, runs: dict[str, bool]) -> None:
        if not runs.setdefault("thread", True):
            return  # its start was given up
        try:
            while not self._stopping:
                self._turn()
        except BaseException as error:
            self._over = died = NetworkThreadDiedError(f"the network thread died of {type(error).__name__}")
            died.__cause__ = error
            # Before the log, whose handlers may block or raise (law 3).
            self._mailbox.network_died(error)
            _logger.critical("the network thread died", exc_info=error)
            self._fail_futures(died)
        finally:
            try:
                self._clean_up()
            except Exception:
                # Before the log, as above.
                self._mailbox.network_ended()
                _logger.exception("the network thread could not close all that it had opened")
            finally:
                # Whatever happened: who closes the consumer waits for it.
                self._mailbox.network_ended()

    def _turn(self) -> None:
        while self.events:
            self._handle(self.events.popleft(), now())
        while self._resolved:
            self._authenticate_and_connect(*self._resolved.popleft())
        while self._assigned:
            self._machine.assignment_performed(*self._assigned.popleft(), now())
        self._authenticate_due()
        if now() >= self._transports_due:
            self._end_stalled()
        self._act(self._machine.tick(now()))
        if self._stopping:
            return
        self._offer()
        self._turns += 1
        self._asleep = True  # before the look at the events: what comes after it wakes us
        wait = 0.0 if self.events else min(self._deadline() - now(), LONGEST_WAIT)
        ready = self._pump.select(max(wait, 0.0))
        self._asleep = False
        if self._pump.crowded != self._keeps_gil:
            self._keep_gil(keep=self._pump.crowded)
        for key, mask in ready:
            if key is None:
                self._drain_wakes()
            else:
                self._ready(key, mask)

    def _keep_gil(self, *, keep: bool) -> None:
        """It is kept in the whole process, for as long as one of its network threads wants that."""
        self._keeps_gil = keep
        (_keepers.add if keep else _keepers.discard)(id(self))
        kept: bool | None = None
        # Another thread may change it between a look and what that leads to. No lock: a fork would leave it locked.
        while kept is not bool(_keepers):
            kept = bool(_keepers)
            keep_gil(keep=kept)

    def _deadline(self) -> float:
        due = float("inf")
        for each in self._transports.values():
            due = min(due, each.authenticate_at, each.stalls_at)
        self._transports_due = due
        for each in self._preparing.values():
            due = min(due, each.session_ends_at)
        if self._authenticator is not None:
            due = min(due, self._authenticator.deadline)
        return min(due, self._machine.deadline())

    def _drain_wakes(self) -> None:
        assert self._wake_pair is not None
        try:
            while receive(self._wake_pair.inner.fileno(), self._wakes) == len(self._wakes):
                pass
        except BlockingIOError:
            pass

    # -- what the machine and the observers hear

    def _tell(self, call: Callable[[Observer], None]) -> None:
        """Law 7."""
        self._observers.each(call, survived=BaseException)

    def _handle(self, event: ApplicationEvent, at: float) -> None:
        if self._observers:
            self._tell(lambda observer: observer.on_application_event(event, at))
        if isinstance(event, ChangeSettings):
            self.change_settings(event.config)
        self._machine.handle(event, at)

    def change_settings(self, config: ConsumerConfig) -> None:
        """What of it is not the machine's. Before the thread runs another one may call it."""
        self._segments.bound(kept_bytes(config.fetch_buffer_bytes))

    def _response_received(self, request_id: int, result: Response | Exception, at: float) -> None:
        if self._observers:
            self._tell(lambda observer: observer.on_response(request_id, result, at))
        self._machine.response_received(request_id, result, at)

    def _closed(self, key: ConnectionKey, error: Exception, at: float) -> None:
        if self._observers:
            self._tell(lambda observer: observer.on_connection_closed(key, at))
        self._machine.closed(key, error, at)

    def _tell_actions(self, actions: list[Action], at: float) -> None:
        """Events last, as they are delivered last."""
        for action in actions:
            match action:
                case Transmit(key=key, request_id=number, request=request):
                    self._tell(functools.partial(_tell_request, key, number, request, at))
                case OpenConnection(key=key) | CloseConnection(key=key):
                    self._tell(functools.partial(_tell_closed, key, at))
        for action in actions:
            if isinstance(action, Deliver):
                self._tell(functools.partial(_tell_event, action.event, at))

    # -- actions

    def _act(self, actions: list[Action]) -> None:
        if self._observers:
            self._tell_actions(actions, now())
        delivered: list[BackgroundEvent] = []
        for action in actions:
            match action:
                case Deliver():
                    delivered.append(action.event)
                    self._resolve_futures(action.event)
                case Transmit():
                    self._transmit(action)
                case OpenConnection():
                    self._open(action)
                case CloseConnection():
                    self._close(action.key, abort=action.abort, late=action.late)
                case PerformAssignment():
                    self._assign(action)
                case Log():
                    _logger.log(action.level, "%s: %s", self._config.client_id, one_line(action.message))
                case Stop():
                    self._stopping = True
                case _:
                    assert_never(action)
        # All together, so that the application wakes once.
        if delivered:
            self._mailbox.deliver(delivered)

    def _assign(self, action: PerformAssignment) -> None:
        """Nobody waits for a thread that does not end: it is a daemon."""

        def done(result: Mapping[str, bytes] | Exception) -> None:
            self._assigned.append((action, result))
            self._wake()

        def assign() -> None:
            done(action.outcome())

        try:
            threading.Thread(target=assign, name=f"instride-assign-{self._config.client_id}", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            done(TransportError(f"cannot assign partitions: no thread can be started ({error})"))

    def _open(self, action: OpenConnection) -> None:
        self._close(action.key)
        self._opening += 1
        until = now() + self._config.connection_setup_timeout
        opening = _Opening(key=action.key, number=self._opening, host=action.host, port=action.port, until=until)
        self._openings[action.key] = opening.number

        def done(name: str, found: list[SocketAddress] | TransportError) -> None:
            self._resolved.append((replace(opening, name=name), found))
            self._wake()

        def wanted() -> bool:  # asked by another thread
            return self._openings.get(opening.key) == opening.number

        canonical = self._config.client_dns_lookup == "resolve_canonical_bootstrap_servers_only"
        if canonical and action.key.role is Role.BOOTSTRAP:
            turn = self._names_tried.get(action.key, 0)
            self._names_tried[action.key] = turn + 1  # until it is ready
            self._resolver.resolve_canonical(action.host, action.port, turn, done, wanted=wanted)
        else:
            self._resolver.resolve(action.host, action.port, lambda found: done(action.host, found), wanted=wanted)

    def _authenticate_and_connect(self, opening: _Opening, found: list[SocketAddress] | TransportError) -> None:
        if self._openings.get(opening.key) != opening.number:
            return
        if isinstance(found, TransportError):
            self._closed(opening.key, found, now())
        elif self._authenticator is None:
            self._connect(opening, found, None)
        else:
            self._authenticator.prepare(opening.name, lambda mechanism: self._connect(opening, found, mechanism))

    def _connect(self, opening: _Opening, found: list[SocketAddress], mechanism: Mechanism | KafkaError | None) -> None:
        if self._openings.get(opening.key) != opening.number:
            return  # given up while the mechanism was prepared
        if isinstance(mechanism, KafkaError):
            self._closed(opening.key, mechanism, now())
            return
        config = self._config
        connection = Connection(
            client_id=config.client_id,
            max_frame_bytes=config.max_frame_bytes,
            mechanism=mechanism,
            segments=self._segments,
        )
        where = f"{opening.name}:{opening.port}"
        tls = None if self._tls is None else Tls(context=self._tls, host=opening.name, where=where)
        ordered = self._order.ordered(where, found)
        # Noted before it has a socket (law 8).
        transport = self._transports[opening.key] = Transport(
            ordered,
            where,
            connection,
            tls=tls,
            patience=config.request_timeout,
            until=opening.until,
            ahead=0.0 if self._authenticator is None else self._authenticator.patience,
            all_failed=self._order.all_failed(where, ordered),
        )
        transport.open()
        if mechanism is not None:
            self._mechanisms[opening.key] = mechanism
        self._after(opening.key)

    def _authenticate_due(self) -> None:
        """Connections whose session ends soon (KIP-368), and what was prepared meanwhile."""
        if self._authenticator is None:
            return
        self._authenticator.poll()
        # A list: a mechanism that fails at once closes its connection within the loop.
        for key, transport in list(self._transports.items()):
            if now() >= transport.authenticate_at and not _is_held(key, transport):
                transport.authenticate_at = float("inf")
                self._preparing[key] = transport
                done = functools.partial(self._authenticate_again, key, transport)
                self._authenticator.prepare(transport.host, done)
        # After those that are prepared at once.
        for key, transport in list(self._preparing.items()):
            if now() >= transport.session_ends_at:
                why = f"the session at {transport.where} ended before there was a new token or ticket"
                self._authenticate_again(key, transport, TransportError(why))

    def _tell_trouble(self, error: KafkaError) -> None:
        """It was to be authenticated anew, and what there is must do until the next attempt."""
        text = f"no new token or ticket ({error}); trying again"
        # Each connection has its own attempts, and each of these comes to nothing for as long as there is none.
        if (line := self._lines.say(logging.WARNING, text, now())) is not None:
            _logger.log(line[0], "%s: %s", self._config.client_id, one_line(line[1]))

    def _end_stalled(self) -> None:
        for key, transport in list(self._transports.items()):
            if now() >= transport.stalls_at:
                self._ready(key, selectors.EVENT_READ)  # what the system has not woken us for
                if transport.failure is None and now() >= transport.stalls_at:
                    transport.stalled()
                    self._after(key)

    def _authenticate_again(self, key: ConnectionKey, transport: Transport, mechanism: Mechanism | KafkaError) -> None:
        if self._preparing.get(key) is not transport:
            return
        del self._preparing[key]
        if _is_held(key, transport):
            return  # one that is prepared when the response is there
        if isinstance(mechanism, KafkaError):
            if transport.put_off_authentication():
                self._tell_trouble(mechanism)
                self._hand_on(transport.release())
                self._after(key)
            else:
                self._close(key)
                self._closed(key, mechanism, now())
            return
        self._mechanisms[key] = mechanism
        transport.authenticate_again(mechanism)
        self._after(key)

    def _transmit(self, action: Transmit) -> None:
        transport = self._transports.get(action.key)
        if transport is None:
            return  # it has failed since the machine wanted this: the machine has heard of it
        try:
            transport.send(action.request_id, action.request)
        except KafkaError as error:
            self._response_received(action.request_id, error, now())
        self._after(action.key)

    def _close(self, key: ConnectionKey, *, abort: bool = False, late: bool = False) -> None:
        transport = self._transports.get(key)
        if transport is not None and key not in self._announced:
            self._note_addresses(transport, works=False if late else None)
        self._openings.pop(key, None)
        self._announced.discard(key)
        self._mechanisms.pop(key, None)
        self._preparing.pop(key, None)
        self._unregister(key)
        self._moved.pop(key, None)
        if transport is not None:
            transport.close(abort=abort)
        self._transports.pop(key, None)  # last (law 8)

    # -- sockets

    def _ready(self, key: ConnectionKey, mask: int) -> None:
        transport = self._transports[key]
        if mask & selectors.EVENT_WRITE:
            transport.writable()
        if mask & selectors.EVENT_READ and transport.socket is not None:
            self._hand_on(transport.readable())
        self._after(key)

    def _hand_on(self, responses: list[Received]) -> None:
        for received in responses:
            result = received.error if received.error is not None else received.response
            assert result is not None
            self._response_received(received.request_id, result, now())

    def _after(self, key: ConnectionKey) -> None:
        """Tell the machine what became of a connection."""
        transport = self._moved[key] = self._transports[key]
        if transport.failure is not None:
            failure = transport.failure
            # Before `_close`, which forgets the mechanism.
            self._tell_authenticator(key, failure)
            self._close(key, late=True)
            self._closed(key, failure, now())
        elif transport.ready and key not in self._announced:
            self._announced.add(key)
            self._tell_authenticator(key, None)
            self._note_addresses(transport, works=True)
            if key in self._names_tried:
                self._names_tried[key] -= 1
            self._machine.opened(key, now())
        elif key not in self._announced:
            self._machine.opening(key, transport.standing)

    def _note_addresses(self, transport: Transport, *, works: bool | None) -> None:
        """Law 6. works: the last one that was tried; None: that is not known."""
        tried, where = transport.tried, transport.where
        self._order.failed(where, *(tried if works is False else tried[:-1]))
        if works:
            self._order.worked(where, tried[-1])

    def _tell_authenticator(self, key: ConnectionKey, failure: KafkaError | None) -> None:
        """failure: of the connection; None: it is ready."""
        mechanism = self._mechanisms.get(key)
        if self._authenticator is None or mechanism is None:
            return
        if failure is None:
            self._authenticator.accepted(mechanism)
        elif isinstance(failure, AuthenticationError) and not isinstance(failure, _BEFORE_IT_WAS_SENT):
            self._authenticator.refused(mechanism)

    def _offer(self) -> None:
        """Sockets change while addresses are tried, and interests while bytes wait."""
        for key, transport in self._moved.items():
            assert transport.socket is not None, "without one it has failed, and was closed"
            transport.offer()
            wanted = (transport.socket.fileno(), transport.interest, transport.line)
            if self._registered.get(key) != wanted:
                self._pump.register(key, *wanted)
                self._registered[key] = wanted
        self._moved.clear()

    def _unregister(self, key: ConnectionKey) -> None:
        if self._registered.pop(key, None) is not None:
            self._pump.unregister(key)

    # -- the end

    def _resolve_futures(self, event: BackgroundEvent) -> None:
        match event:
            case CallCompleted():
                self._resolve_future(event)
            case CallsCompleted():
                for each in event.calls:
                    self._resolve_future(each)

    def _resolve_future(self, event: CallCompleted) -> None:
        future = self._futures.pop(event.call, None)
        if future is not None:
            self._end(future, event.result, event.error)

    def _end(self, future: Future[CommitResult], result: CommitResult, error: BaseException | None) -> None:
        """Law 7: its callbacks run here. On the application's thread an interrupt goes on."""
        try:
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)
        except BaseException as raised:
            if not self.is_current:
                raise
            _logger.error("a callback of commit_async's future raised %s", type(raised).__name__, exc_info=raised)

    def _fail_futures(self, error: BaseException) -> None:
        while self._futures:
            try:
                _, future = self._futures.popitem()
            except KeyError:
                return  # the other thread was quicker
            self._end(future, CommitResult(), error)

    def _clean_up(self) -> None:
        assert self._wake_pair is not None
        # First: the future of what is handed over from here on ends in `wake`.
        if self._over is None:
            self._over = ConsumerClosedError("the consumer was closed before this was done")
        # One that fails keeps no other open. The last that is noted comes first.
        with ExitStack() as closing_all:
            closing_all.callback(self._wake_pair.close)
            for key in list(self._transports):
                closing_all.callback(self._close, key)
            closing_all.callback(self._resolver.close)
            if self._keeps_gil:
                closing_all.callback(self._keep_gil, keep=False)
            closing_all.callback(self._fail_futures, self._over)


def _is_held(key: ConnectionKey, transport: Transport) -> bool:
    """Law 4. Other responses come soon: their connections are of use while a mechanism is prepared."""
    return key.role is Role.JOIN and transport.hold()


def _tell_request(key: ConnectionKey, number: int, request: Request, at: float, observer: Observer) -> None:
    observer.on_request(key, number, request, at)


def _tell_closed(key: ConnectionKey, at: float, observer: Observer) -> None:
    observer.on_connection_closed(key, at)


def _tell_event(event: BackgroundEvent, at: float, observer: Observer) -> None:
    observer.on_background_event(event, at)
