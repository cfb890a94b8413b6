"""What docs/timeouts.md says of retries, by the real driver over a scripted clock and scripted sockets.

Laws
1. A row's times are read from the page: the row is played, and what is tried and raised must come at these moments.
2. A moment is met to within 0.15 s: what is a fifth slower fails, be it of one second.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from virtual_driver import COORDINATOR, FETCH, HEARTBEAT, JOIN, METADATA, Build, World

from instride import TopicPartition
from instride._core.ownership import RebalanceProtocol
from instride.errors import ErrorCode, KafkaError

PAGE = Path(__file__).parents[2] / "docs" / "timeouts.md"
TP = TopicPartition("t", 0)
LONG = 205.0
MOMENT = 0.15
"""Nothing takes time but a poll that waits for 0.1 s, and a fetch (0.2 s). A fifth of the shortest time is more."""
NOT_AUTHORISED, GROUP_NOT_AUTHORISED, UNKNOWN_TOPIC, NO_SUCH_CODE = 29, 30, 3, 12345


def section() -> str:
    return PAGE.read_text(encoding="utf-8").partition("## What is retried")[2].partition("\n## ")[0]


def told() -> dict[str, tuple[str, str]]:
    """What -> (tried again, raised or logged), as the page has it; "the same" is what stands above it."""
    lines = [line.strip("|").split(" | ") for line in section().splitlines() if line.startswith("| ")][1:]
    rows: dict[str, tuple[str, str]] = {}
    again = raised = ""
    for what, *cells in ([cell.strip() for cell in line] for line in lines):
        again = again if cells[0] == "the same" else cells[0]
        raised = cells[1].replace("the same", raised)
        rows[what] = again, raised
    return rows


def seconds(words: str) -> list[float]:
    """Those of "after 1 s, 2 s, 4 s, ... 60 s", and 60 s once more."""
    named = [float(each) for each in re.findall(r"([\d.]+) s\b", words)]
    *first, last = named
    assert "..." in words
    while first[-1] * 2 < last:
        first.append(first[-1] * 2)
    return [*first, last, last]


def gaps(times: Sequence[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


def are(found: Sequence[float], words: str) -> None:
    """found: times between what comes again and again, which the page tells in these words."""
    wanted = seconds(words)[: len(found)]
    assert len(found) >= 6
    assert found[: len(wanted)] == pytest.approx(wanted, abs=MOMENT)


def polls(world: World, lasting: float) -> list[tuple[float, Exception]]:
    """Polls on, past each error. What was raised, and when."""
    end = world.now + lasting
    raised: list[tuple[float, Exception]] = []
    while world.now < end:
        try:
            world.consumer.poll(timeout=0.1)
        except (KafkaError, LookupError) as error:
            raised.append((world.now, error))
    return raised


def sent(world: World, key: int) -> list[float]:
    return [each.at for each in world.requested[key]]


def standing(raised: Sequence[tuple[float, Exception]], began: float, words: str) -> None:
    """It is raised `after` the first moment that the words tell ("at once", "after 2 s"), then after 5 s, 10 s, ..."""
    first, _, then = words.partition(", then ")
    named = re.findall(r"(\d+) s", first)
    times = [at for at, _ in raised]
    assert times[0] - began == pytest.approx(float(named[0]) if named else 0.0, abs=MOMENT)
    are(gaps(times), then)


# -- the rows


def a_failed_partition(build: Build, again: str, raised: str) -> None:
    assert raised == "raised once for each failure; logged when it has recovered"
    for code in (NOT_AUTHORISED, NO_SUCH_CODE, "corrupt"):
        world = build()
        world.broker.corrupt = code == "corrupt"
        if isinstance(code, int):
            world.broker.errors[FETCH] = code
        world.consumer.assign([TP])
        errors = polls(world, LONG)
        # A batch that is damaged is fetched once more, at once, before it is a failure.
        tries = sent(world, FETCH)[code == "corrupt" :]
        assert len(errors) == len(tries) >= 8
        for delay, (earlier, later) in zip(seconds(again), pairwise(tries), strict=False):
            failed, quarter = earlier + 0.2, delay / 4
            assert later == pytest.approx(math.ceil((failed + delay) / quarter) * quarter, abs=0.01)
        world.broker.errors.clear()
        world.broker.corrupt = False
        assert polls(world, 80.0) == []
        assert len(sent(world, FETCH)) > len(tries) + 10


def without_a_position(build: Build, again: str, raised: str) -> None:
    assert (again, raised) == ("not before a `seek`", "raised once")
    world = build(auto_offset_reset="none")
    world.consumer.assign([TP])
    assert len(polls(world, LONG)) == 1
    assert world.requested[FETCH] == []
    world.consumer.seek(TP, 3)
    assert polls(world, 1.0) == []
    assert world.requested[FETCH] != []


def a_group_that_refuses(build: Build, again: str, raised: str) -> None:
    for code in (GROUP_NOT_AUTHORISED, 81, 26, 23):
        world = build()
        world.broker.errors[JOIN] = code
        world.consumer.subscribe(["t"])
        errors = polls(world, LONG)
        are(gaps(sent(world, JOIN)), again)
        standing(errors, sent(world, JOIN)[0], raised)


class Garbage:
    """A user's assignor that fails: its own error is raised."""

    name, version, protocols = "garbage", 0, (RebalanceProtocol.EAGER,)

    def subscription_userdata(self, topics: Any, *, owned: Any, generation: int) -> bytes | None:
        return None

    def assign(self, cluster: Any, members: Any) -> Any:
        raise LookupError("the user's own")

    def on_assignment(self, assignment: Any, generation: int) -> None:
        pass


def what_no_time_mends(build: Build, again: str, raised: str) -> None:
    assert again == "not before a new `subscribe`"
    for how in (24, 82, Garbage()):
        world = build(assignors=[how]) if isinstance(how, Garbage) else build(group_instance_id="i")
        if isinstance(how, int):
            world.broker.errors[JOIN] = how
        else:
            world.broker.join = world.broker.leads  # type: ignore[method-assign]
        world.consumer.subscribe(["t"])
        errors = polls(world, LONG)
        (joined,) = sent(world, JOIN)
        standing(errors, joined, raised)
        world.consumer.unsubscribe()
        world.consumer.subscribe(["t"])
        polls(world, 1.0)
        assert len(sent(world, JOIN)) == 2


def refused_heartbeats(build: Build, again: str, raised: str) -> None:
    assert again == "each `heartbeat_interval`; the coordinator is looked for again as often"
    for code in (ErrorCode.UNKNOWN_SERVER_ERROR, NO_SUCH_CODE):
        world = build(session_timeout=20.0, heartbeat_interval=3.0, max_poll_interval=900.0)
        world.consumer.subscribe(["t"])
        assert polls(world, 11.0) == []
        heard = sent(world, HEARTBEAT)[-1]
        world.broker.errors[HEARTBEAT] = code
        errors = polls(world, LONG + 20.0)
        lease_ended = next(at for at in sent(world, HEARTBEAT) if at >= heard + 20.0)
        standing(errors, lease_ended, raised)
        assert gaps(sent(world, HEARTBEAT))[-50:] == pytest.approx([3.0] * 50, abs=MOMENT)
        assert gaps(sent(world, COORDINATOR))[-50:] == pytest.approx([3.0] * 50, abs=MOMENT)
        world.broker.errors.clear()
        assert polls(world, 80.0)[1:] == [], "one may have been on its way"


def what_does_not_exist(build: Build, again: str, raised: str) -> None:
    assert again == "with the metadata, each `retry_backoff_max`"
    for partition in (False, True):
        world = build(retry_backoff_max=3.0)
        if partition:
            world.consumer.assign([TopicPartition("t", 7)])
        else:
            world.broker.errors[METADATA] = UNKNOWN_TOPIC
            world.consumer.subscribe(["t"])
        errors = polls(world, LONG)
        standing(errors, sent(world, METADATA)[0], raised)
        assert gaps(sent(world, METADATA))[-50:] == pytest.approx([3.0] * 50, abs=0.01)


def a_topic_that_may_not_be_read(build: Build, again: str, raised: str) -> None:
    assert again == "with the metadata, each `retry_backoff_max`"
    assert raised.endswith(", at once")
    world = build(retry_backoff_max=3.0)
    world.broker.errors[METADATA] = NOT_AUTHORISED
    world.consumer.subscribe(["t"])
    errors = polls(world, LONG)
    standing(errors, sent(world, METADATA)[0], "at once, then" + raised.partition("then")[2])
    assert gaps(sent(world, METADATA))[-50:] == pytest.approx([3.0] * 50, abs=0.01)


def no_broker(build: Build, again: str, raised: str) -> None:
    assert again == "after `reconnect_backoff`, doubling"
    logged, first, *_ = re.findall(r"(\d+) s", raised)
    assert raised.endswith("then as above")
    world = build(reconnect_backoff=0.5, reconnect_backoff_max=4.0, retry_backoff=0.01, retry_backoff_max=0.01)
    world.refused = True
    world.consumer.subscribe(["t"])
    began, lines = world.now, Lines(world)
    with lines:
        errors = polls(world, LONG)
    assert gaps([each.opened_at for each in world.peers])[:5] == pytest.approx([0.5, 1.0, 2.0, 4.0, 4.0], abs=0.05)
    (told_at,) = [at for at, text in lines.heard if text.startswith(f"after {logged} s")]
    assert told_at - began == pytest.approx(float(logged), abs=0.01)
    assert float(first) <= errors[0][0] - began
    are(gaps([at for at, _ in errors]), "5 s, 10 s, ... 60 s")


class Lines(logging.Handler):
    """heard: what is logged, and when."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.heard: list[tuple[float, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append((self._world.now, record.getMessage().partition(": ")[2]))

    def __enter__(self) -> Lines:
        logging.getLogger("instride").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("instride").removeHandler(self)


Play = Callable[[Build, str, str], None]
RETRIED: dict[str, Play] = {
    "a failed partition: not authorised, a corrupt batch, an unknown error code": a_failed_partition,
    "a partition without a position, where `auto_offset_reset` gives none": without_a_position,
    "a group that refuses the member: not authorised, full, the session time-out, no assignor in common": (
        a_group_that_refuses
    ),
    "a group id that is not valid; another member has taken this `group_instance_id`; a user's assignor that failed": (
        what_no_time_mends
    ),
    "heartbeats that are refused for `session_timeout`, with an error that says nothing of the membership": (
        refused_heartbeats
    ),
    "a topic, or a partition, that does not exist": what_does_not_exist,
    "a topic that may not be read": a_topic_that_may_not_be_read,
    "no broker of `bootstrap_servers` was ever reached": no_broker,
}


@pytest.mark.requirement("surface/timeouts")
def test_each_row_of_what_is_retried_has_its_play() -> None:
    assert list(told()) == list(RETRIED)


@pytest.mark.drawn(3)
@pytest.mark.requirement("surface/timeouts")
@pytest.mark.rule("21")
@pytest.mark.parametrize("what", [pytest.param(what, id=play.__name__) for what, play in RETRIED.items()])
def test_what_is_retried_comes_when_the_page_says(build: Build, what: str) -> None:
    RETRIED[what](build, *told()[what])


@pytest.mark.requirement("surface/timeouts")
@pytest.mark.parametrize(("chance", "share"), [(0.0, 0.8), (0.5, 1.0), (1.0, 1.2)])
def test_a_purposes_back_off_doubles_to_its_largest(build: Build, chance: float, share: float) -> None:
    assert "up to 20 % shorter or longer at random" in section().replace("\n", " ")
    world = build(retry_backoff=0.5, retry_backoff_max=4.0)
    world.chance = chance
    world.broker.errors[COORDINATOR] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.consumer.subscribe(["t"])
    polls(world, 40.0)
    wanted = [0.5 * share, 1.0 * share, 2.0 * share, 4.0 * share, 4.0 * share]
    assert gaps(sent(world, COORDINATOR))[:5] == pytest.approx(wanted, abs=0.01)


@pytest.mark.requirement("surface/timeouts")
def test_a_lasting_error_is_raised_again_only_to_who_polled_meanwhile(build: Build) -> None:
    assert "raised again only if the application has polled meanwhile" in section()
    world = build()
    world.broker.errors[JOIN] = GROUP_NOT_AUTHORISED
    world.consumer.subscribe(["t"])
    assert len(polls(world, 1.0)) == 1
    world.pass_until(world.now + LONG)
    assert len(polls(world, 1.0)) == 2, "one that waited for the poll, and the next; not one for each time"
