"""Every bound of docs/timeouts.md, by the real driver over a scripted clock and scripted sockets (`virtual_driver`).

Each row of the page's first two tables is one of this file's tables (the third is `test_retried.py`'s). It is played,
and ends neither before its bound nor more than half a second after it. No second passes meanwhile.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from virtual_driver import (
    COMMIT,
    COORDINATOR,
    FETCH,
    HEARTBEAT,
    JOIN,
    KEEPALIVE,
    LEAVE,
    LIST_OFFSETS,
    SYNC,
    Build,
    Sent,
    World,
    kept,
)

from instride import Consumer, RangeConsumer, TopicPartition
from instride import errors as all_errors
from instride._wire.group_notice import GroupNotice, write_notice
from instride.errors import IllegalStateError, KafkaError, KafkaTimeoutError, WakeupError
from instride.listeners import RebalanceListener
from instride.observers import Observer

NOT_LEADER_OR_FOLLOWER = 6
PAGE = Path(__file__).parents[2] / "docs" / "timeouts.md"
TP = TopicPartition("t", 0)
NO_BOUND = "`timeout`; None: no bound"
DEFAULT = "`timeout`, else `default_api_timeout`"
CLOSE = "`timeout` (30)"
FUTURE = "returns at once; its future: `default_api_timeout`"
LOCAL = "local"
ANYWHERE = "local, from any thread"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """call: with the call's own time-out, or (**{}) without. error: None where it returns."""

    bound: str
    call: Callable[..., Any]
    error: type[KafkaError] | None = None


TABLE: dict[str, Row] = {
    "poll": Row(bound=NO_BOUND, call=lambda c, **t: c.poll(**t)),
    "poll_arrow": Row(bound=NO_BOUND, call=lambda c, **t: c.poll_arrow(**t)),
    "poll_changes": Row(bound=NO_BOUND, call=lambda c, **t: c.poll_changes(**t)),
    "commit": Row(bound=DEFAULT, call=lambda c, **t: c.commit({TP: 1}, **t), error=KafkaTimeoutError),
    "commit_async": Row(bound=FUTURE, call=lambda c: c.commit_async({TP: 1}), error=KafkaTimeoutError),
    "committed": Row(bound=DEFAULT, call=lambda c, **t: c.committed(TP, **t), error=KafkaTimeoutError),
    "position": Row(bound=DEFAULT, call=lambda c, **t: c.position(TP, **t), error=KafkaTimeoutError),
    "beginning_offsets": Row(
        bound=DEFAULT, call=lambda c, **t: c.beginning_offsets([TP], **t), error=KafkaTimeoutError
    ),
    "end_offsets": Row(bound=DEFAULT, call=lambda c, **t: c.end_offsets([TP], **t), error=KafkaTimeoutError),
    "offsets_for_times": Row(
        bound=DEFAULT, call=lambda c, **t: c.offsets_for_times({TP: 1}, **t), error=KafkaTimeoutError
    ),
    "list_topics": Row(bound=DEFAULT, call=lambda c, **t: c.list_topics(**t), error=KafkaTimeoutError),
    "partitions_for": Row(bound=DEFAULT, call=lambda c, **t: c.partitions_for("t", **t), error=KafkaTimeoutError),
    "unsubscribe": Row(bound=DEFAULT, call=lambda c, **t: c.unsubscribe(**t)),
    "close": Row(bound=CLOSE, call=lambda c, **t: c.close(**t)),
    "subscribe": Row(bound=LOCAL, call=lambda c: c.subscribe(["t"]), error=IllegalStateError),
    "assign": Row(bound=LOCAL, call=lambda c: c.assign([TP])),
    "subscription": Row(bound=LOCAL, call=lambda c: c.subscription()),
    "assignment": Row(bound=LOCAL, call=lambda c: c.assignment()),
    "enforce_rebalance": Row(bound=LOCAL, call=lambda c: c.enforce_rebalance(), error=IllegalStateError),
    "group_metadata": Row(bound=LOCAL, call=lambda c: c.group_metadata()),
    "change_settings": Row(bound=LOCAL, call=lambda c: c.change_settings(max_poll_records=7)),
    "observe": Row(bound=LOCAL, call=lambda c: c.observe(Observer()), error=IllegalStateError),
    "seek": Row(bound=LOCAL, call=lambda c: c.seek(TP, 3)),
    "seek_to_beginning": Row(bound=LOCAL, call=lambda c: c.seek_to_beginning(TP)),
    "seek_to_end": Row(bound=LOCAL, call=lambda c: c.seek_to_end()),
    "pause": Row(bound=LOCAL, call=lambda c: c.pause(TP)),
    "resume": Row(bound=LOCAL, call=lambda c: c.resume(TP)),
    "paused": Row(bound=LOCAL, call=lambda c: c.paused()),
    "lag": Row(bound=LOCAL, call=lambda c: c.lag(TP)),
    "fetched_topic_id": Row(bound=LOCAL, call=lambda c: c.fetched_topic_id(TP)),
    "to_be_revoked_partitions": Row(bound=LOCAL, call=lambda c: c.to_be_revoked_partitions()),
    "lost_partitions": Row(bound=LOCAL, call=lambda c: c.lost_partitions()),
    "delay_revoke": Row(bound=LOCAL, call=lambda c: c.delay_revoke([])),
    "revoke_deadline": Row(bound=LOCAL, call=lambda c: c.revoke_deadline(TP)),
    "failed_partitions": Row(bound=LOCAL, call=lambda c: c.failed_partitions()),
    "holdings": Row(bound=LOCAL, call=lambda c: c.holdings()),
    "metrics": Row(bound=LOCAL, call=lambda c: c.metrics()),
    "wakeup": Row(bound=ANYWHERE, call=lambda c: c.wakeup()),
}


def told() -> dict[str, tuple[str, str]]:
    """Call -> (bound, what then), as the page's first table has it."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {name: (row[1], row[2]) for row in cells for name in re.findall(r"`(\w+)`", row[0])}


def told_behind_a_call() -> dict[str, str]:
    """What -> bound, as the page's second table has it."""
    section = PAGE.read_text(encoding="utf-8").partition("## What happens behind a call")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return {what.strip(): bound.strip() for what, bound, _ in (line.strip("|").split(" | ") for line in lines)}


def named(*bounds: str) -> list[str]:
    return [name for name, row in TABLE.items() if row.bound in bounds]


ENDS = ("unsubscribe", "close")
KINDS = (Consumer, RangeConsumer)
CALLS = [(kind, name) for name in TABLE for kind in KINDS if hasattr(kind, name)]


def calls(*bounds: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("kind", "name"), [each for each in CALLS if TABLE[each[1]].bound in bounds])


def before(world: World, name: str) -> World:
    """No broker says a word any more: to a consumer of one partition, or, where the group is left, to a member. For who
    polls there are no records."""
    if name in named(NO_BOUND):
        world.broker.end = 0
        world.broker.without_response.add(FETCH)
        world.consumer.assign([TP])
    elif name in ENDS:
        world.consumer.subscribe(["t"])
        world.consumer.poll(timeout=1.0)
        assert world.consumer.assignment()
        world.broker.silent = True
    else:
        world.broker.silent = True
        world.consumer.assign([TP])
    return world


def took(world: World, name: str, **timeout: float) -> float:
    """Virtual seconds. It ends as the table says."""
    row, began = TABLE[name], world.now
    if row.error is None:
        row.call(world.consumer, **timeout)
    else:
        with pytest.raises(row.error):
            row.call(world.consumer, **timeout)
    return world.now - began


@pytest.mark.requirement("surface/timeouts")
def test_the_page_and_the_table_agree() -> None:
    page = told()
    assert {name: bound for name, (bound, _) in page.items()} == {name: row.bound for name, row in TABLE.items()}
    for name, (_, then) in page.items():
        row = TABLE[name]
        waits = row.bound not in (LOCAL, ANYWHERE)
        assert ("KafkaTimeoutError" in then) == (waits and row.error is KafkaTimeoutError), name
        for error in re.findall(r"`(\w+Error)`", then):
            assert hasattr(all_errors, error)


@pytest.mark.requirement("surface/timeouts")
def test_every_call_has_its_row() -> None:
    public = {name for kind in (Consumer, RangeConsumer) for name in dir(kind) if not name.startswith("_")}
    assert public == set(TABLE)


def test_the_default_of_close_is_told() -> None:
    defaults = Consumer.close.__kwdefaults__
    assert defaults is not None
    assert f"`timeout` ({defaults['timeout']:g})" == CLOSE


@pytest.mark.requirement("surface/timeouts")
@calls(NO_BOUND, DEFAULT, CLOSE)
def test_a_call_ends_at_its_own_timeout(build: Build, kind: type, name: str) -> None:
    assert kept(took(before(build(kind=kind), name), name, timeout=10.0), 10.0)


@pytest.mark.requirement("surface/timeouts")
@calls(DEFAULT)
def test_without_one_a_call_ends_at_default_api_timeout(build: Build, kind: type, name: str) -> None:
    assert kept(took(before(build(kind=kind, default_api_timeout=10.0), name), name), 10.0)


@pytest.mark.requirement("surface/timeouts")
@calls(CLOSE)
def test_without_one_a_close_ends_after_its_default(build: Build, kind: type, name: str) -> None:
    assert kept(took(before(build(kind=kind), name), name), 30.0)


@pytest.mark.requirement("surface/timeouts")
@calls(NO_BOUND)
def test_without_one_a_poll_has_no_bound(build: Build, kind: type, name: str) -> None:
    world = before(build(kind=kind, default_api_timeout=10.0), name)
    world.later(60.0, world.consumer.wakeup)
    began = world.now
    with pytest.raises(WakeupError):
        TABLE[name].call(world.consumer)
    assert world.now - began >= 60.0


@pytest.mark.requirement("surface/timeouts")
@calls(NO_BOUND, DEFAULT, CLOSE)
def test_a_timeout_of_zero_does_not_wait(build: Build, kind: type, name: str) -> None:
    assert kept(took(before(build(kind=kind), name), name, timeout=0), 0.0)


@calls(FUTURE)
def test_a_future_ends_with_default_api_timeout(build: Build, kind: type, name: str) -> None:
    world = before(build(kind=kind, default_api_timeout=10.0), name)
    began = world.now
    future = TABLE[name].call(world.consumer)
    assert world.now == began, "it returns at once"
    world.pass_until(began + 100.0, future.done)
    assert isinstance(future.exception(timeout=0), TABLE[name].error or Exception)
    assert kept(world.now - began, 10.0)


@pytest.mark.requirement("surface/timeouts")
@calls(LOCAL, ANYWHERE)
def test_what_is_local_never_waits(build: Build, kind: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = before(build(kind=kind), name)

    def waits(call: object) -> None:
        raise AssertionError(f"{name} waits")

    with monkeypatch.context() as patch:
        patch.setattr(world.consumer._driver, "run", waits)
        patch.setattr(world.consumer._driver._mailbox, "wait", waits)
        assert took(world, name) == 0.0


# -- what happens behind a call


class Listener(RebalanceListener):
    """When each partition was revoked and lost."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.revoked: dict[int, float] = {}
        self.lost: dict[int, float] = {}

    def on_partitions_revoked(self, partitions: Any) -> None:
        self.revoked.update({each.partition: self._world.now for each in partitions})

    def on_partitions_lost(self, partitions: Any) -> None:
        self.lost.update({each.partition: self._world.now for each in partitions})


PACE: dict[str, Any] = {
    "request_timeout": 8.0,
    "session_timeout": 20.0,
    "heartbeat_interval": 6.0,
    "max_poll_interval": 60.0,
}


def notice(members: int, withheld: int) -> bytes:
    return write_notice(GroupNotice(members=members, place=0, withheld=withheld))


def polls(world: World, seconds: float, enough: Callable[[], bool] = lambda: False) -> float:
    """Polls on. When a poll returned records last."""
    end, returned = world.now + seconds, 0.0
    while world.now < end and not enough():
        if len(world.consumer.poll(timeout=0.25)) > 0:
            returned = world.now
    return returned


def member(world: World, *, members: int = 1, withheld: int = 0) -> Listener:
    """A stable one of three partitions; it has just joined, and its leader says so much of its group."""
    world.broker.notice = notice(members, withheld)
    listener = Listener(world)
    world.consumer.subscribe(["t"], listener=listener)
    polls(world, 5.0, lambda: len(world.consumer.assignment()) == 3)
    return listener


def more_than_one(sent: list[Sent]) -> bool:
    return len(sent) > 1


def gaps(world: World) -> list[float]:
    return [later.at - earlier.at for earlier, later in pairwise(world.requested[HEARTBEAT])]


def one_request(build: Build) -> None:
    world = build(**PACE)
    member(world)
    world.broker.without_response.add(COMMIT)
    world.consumer.commit_async({TP: 1})
    polls(world, 12.0)
    assert kept(world.requested[COMMIT][0].given_up_after, 8.0)


def making_a_connection(build: Build) -> None:
    world = before(build(connection_setup_timeout=3.0), "position")
    world.consumer.poll(timeout=0)
    world.pass_until(world.now + 10.0)
    first = world.peers[0]
    assert first.ended_at is not None
    assert kept(first.ended_at - first.opened_at, 3.0)


def finding_the_coordinator(build: Build) -> None:
    world = build(**PACE)
    world.broker.without_response.add(COORDINATOR)
    world.consumer.subscribe(["t"])
    polls(world, 12.0)
    assert kept(world.requested[COORDINATOR][0].given_up_after, 8.0)


def joining(build: Build) -> None:
    for kind in (JOIN, SYNC):
        for request_timeout, bound in ((8.0, 25.0), (40.0, 40.0)):
            world = build(request_timeout=request_timeout, max_poll_interval=20.0, session_timeout=15.0)
            world.broker.without_response.add(kind)
            world.consumer.subscribe(["t"])
            polls(world, 50.0, partial(more_than_one, world.requested[kind]))
            assert kept(world.requested[kind][0].given_up_after, bound)


def a_peer_that_vanished(build: Build) -> None:
    """The system keeps this bound."""
    world = build()
    member(world)
    told = {"TCP_KEEPIDLE": 10, "TCP_KEEPCNT": 3, "TCP_KEEPINTVL": 5, "TCP_USER_TIMEOUT": 30_000}
    known = {getattr(socket, name): seconds for name, seconds in told.items() if hasattr(socket, name)}
    for each in world.peers:
        assert each.options == {KEEPALIVE: 1, socket.TCP_NODELAY: 1, **known}
    if len(known) == len(told):
        a_coordinator_that_vanished(build(max_poll_interval=300.0, request_timeout=30.0))


def a_coordinator_that_vanished(world: World) -> None:
    """Its machine is back at once, at the same address; the Join waits on a connection of which only we know."""
    world.broker.without_response.add(JOIN)
    world.consumer.subscribe(["t"])
    polls(world, 5.0, lambda: bool(world.requested[JOIN]))
    (waits,) = world.requested[JOIN]
    for each in world.peers:
        world.vanishes(each)
    vanished = world.now
    world.broker.without_response.clear()
    polls(world, 60.0, lambda: bool(world.consumer.assignment()))
    again = world.requested[JOIN][-1]
    assert again.peer is not waits.peer
    assert kept(again.at - vanished, 10.0 + 3 * 5.0)


def a_heartbeat(build: Build) -> None:
    for request_timeout, interval, bound in ((8.0, 60.0, 8.0), (15.0, 60.0, 10.0), (15.0, 14.0, 7.0)):
        world = build(**{**PACE, "request_timeout": request_timeout, "max_poll_interval": interval})
        member(world)
        world.broker.without_response.add(HEARTBEAT)
        polls(world, 18.0)
        assert kept(world.requested[HEARTBEAT][0].given_up_after, bound)


def from_a_heartbeat_to_the_next(build: Build) -> None:
    world = build(**PACE)
    member(world)
    polls(world, 25.0)
    assert gaps(world) == pytest.approx([6.0] * len(gaps(world)), abs=0.01)
    short = build(**{**PACE, "max_poll_interval": 9.0})
    member(short)
    polls(short, 25.0)
    assert gaps(short) == pytest.approx([3.0] * len(gaps(short)), abs=0.01)
    pending = build(**PACE)
    member(pending, members=3, withheld=2)
    polls(pending, 50.0)
    fast, slower = gaps(pending)[:100], [each for each in gaps(pending) if each > 0.3]
    assert fast == pytest.approx([0.25] * 100, abs=0.01)
    assert slower[:6] == pytest.approx([0.5, 1.0, 2.0, 4.0, 6.0, 6.0], abs=0.01)
    assert sum(each for each in gaps(pending) if each <= 0.3) == pytest.approx(30.0, abs=0.5)
    large = build(**PACE)
    member(large, members=450, withheld=2)
    polls(large, 20.0)
    assert min(gaps(large)) >= 450 / 500
    throttled = build(**PACE)
    throttled.broker.throttle = 3.0
    member(throttled, members=3, withheld=2)
    polls(throttled, 20.0)
    assert kept(min(gaps(throttled)), 3.0)


def revocation_requested(world: World) -> tuple[TopicPartition, ...]:
    """Of all but partition 2, at a heartbeat of the member."""
    world.broker.given = (2,)
    world.broker.rebalances = True
    polls(world, 10.0, lambda: bool(world.consumer.to_be_revoked_partitions()))
    return tuple(sorted(world.consumer.to_be_revoked_partitions()))


def from_a_release_to_the_rejoin(build: Build) -> None:
    world = build(**PACE)
    listener = member(world)
    first, second = revocation_requested(world)
    joins = len(world.requested[JOIN])
    while len(world.requested[JOIN]) == joins:
        world.consumer.delay_revoke([second])
        world.consumer.poll(timeout=0.05)
    assert kept(world.requested[JOIN][-1].at - listener.revoked[first.partition], 0.4, late=0.02)
    polls(world, 1.0)
    assert world.requested[JOIN][-1].at == listener.revoked[second.partition]


def no_heartbeat_had_a_response(build: Build) -> None:
    for interval, bound in ((60.0, 20.0), (15.0, 15.0)):
        world = build(**{**PACE, "max_poll_interval": interval})
        member(world)
        polls(world, 13.0)
        world.broker.without_response.add(HEARTBEAT)
        heard = world.requested[HEARTBEAT][-1].at
        returned = polls(world, 40.0)
        assert kept(returned + 0.5 - heard, bound), "records come each 0.2 s"


def no_poll(build: Build) -> None:
    world = build(**PACE)
    member(world)
    polled = world.now
    world.consumer.poll(timeout=0)
    world.pass_until(world.now + 100.0)
    assert kept(world.requested[LEAVE][0].at - polled, 60.0)


def a_delayed_revoke(build: Build) -> None:
    world = build(**{**PACE, "commit_budget": 2.0})
    listener = member(world)
    revocation_requested(world)
    requested = world.requested[SYNC][-1].at
    while not listener.lost and world.now < requested + 100.0:
        world.consumer.delay_revoke(world.consumer.to_be_revoked_partitions())
        world.consumer.poll(timeout=0.25)
    assert kept(listener.lost[0] - requested, 58.0)


def the_leader_of_a_truncated_log(build: Build) -> None:
    for timeout, bound in ((30.0, 1.0), (1.0, 0.5)):
        world = build(auto_offset_reset="latest", commit_start_offsets=True)
        member(world)
        polls(world, 5.0, partial(stands_at, world, world.broker.end))
        world.broker.end, world.broker.leader_epoch = world.broker.end - 50, 1
        world.broker.errors[FETCH] = NOT_LEADER_OR_FOLLOWER
        polls(world, 5.0, partial(stands_at, world, world.broker.end))
        world.broker.without_response.add(LIST_OFFSETS)
        began = world.now
        world.consumer.close(timeout=timeout)
        assert kept(world.requested[COMMIT][0].at - began, bound, late=0.1)


def stands_at(world: World, offset: int) -> bool:
    return bool(world.consumer.position(TP) == offset)


BEHIND: dict[str, tuple[str, Callable[[Build], None]]] = {
    "one request": ("`request_timeout`", one_request),
    "making a connection, TLS and authentication included": ("`connection_setup_timeout`", making_a_connection),
    "finding the coordinator": ("`request_timeout`", finding_the_coordinator),
    "Join and Sync": ("the larger of `request_timeout` and `max_poll_interval` + 5", joining),
    "a peer that vanished without closing the connection": (
        "10 s of silence, then three probes, 5 s apart (TCP keep-alive); 30 s without an acknowledgement",
        a_peer_that_vanished,
    ),
    "a heartbeat": (
        "the smallest of `request_timeout`, half of `session_timeout` and half of `max_poll_interval`",
        a_heartbeat,
    ),
    "from a heartbeat to the next": (
        "`heartbeat_interval`, or a third of `max_poll_interval` if that is less; while a hand-over is pending 0.25 s "
        "for 30 s, then doubled each time (in a group of more than 112 members the interval is longer, so that the "
        "group sends fewer than 500 heartbeats a second); never before a throttle time has passed",
        from_a_heartbeat_to_the_next,
    ),
    "from a release to the rejoin that informs the group": (
        "none, or 0.4 s where more of the member's partitions are still to be released",
        from_a_release_to_the_rejoin,
    ),
    "no heartbeat had a response": (
        "`session_timeout`, or `max_poll_interval` if that is less",
        no_heartbeat_had_a_response,
    ),
    "no poll": ("`max_poll_interval`", no_poll),
    "a delayed revocation": (
        "`max_poll_interval` less `commit_budget`, from the first request of the revocation (`revoke_deadline`)",
        a_delayed_revoke,
    ),
    "the leader of a truncated log, at a release": (
        "1 s; half of what is left of the revocation, `unsubscribe` or `close`, if that is less",
        the_leader_of_a_truncated_log,
    ),
}


@pytest.mark.requirement("surface/timeouts")
def test_each_bound_behind_a_call_has_its_row() -> None:
    assert told_behind_a_call() == {what: bound for what, (bound, _) in BEHIND.items()}


@pytest.mark.requirement("surface/timeouts")
@pytest.mark.parametrize("play", [pytest.param(play, id=play.__name__) for _, play in BEHIND.values()])
def test_behind_a_call_each_bound_is_kept(build: Build, play: Callable[[Build], None]) -> None:
    play(build)
