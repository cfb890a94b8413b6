"""A listener whose methods are asynchronous: the call that they run in yields what is to be awaited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any

import pytest
from application_script import RecordingListener, Script, epochs, tp

from instride._core.application.calls import Call
from instride._core.events import Close, CommitsSettled, PartitionsAssigned, PartitionsRevoked
from instride.listeners import AsyncRebalanceListener
from instride.records import TopicPartition


class Work:
    """What a method returns."""

    def __await__(self) -> Generator[Any, None, None]:
        yield


class Listener(AsyncRebalanceListener):
    def __init__(self) -> None:
        self.heard: list[tuple[str, list[int]]] = []

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None]:
        self.heard.append(("assigned", [each.partition for each in partitions]))
        return Work()

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None]:
        self.heard.append(("revoked", [each.partition for each in partitions]))
        return Work()


@pytest.fixture
def asynchronous() -> Listener:
    return Listener()


@pytest.fixture
def owner(asynchronous: Listener) -> Script:
    script = Script()
    script.machine.subscribe(["t"], asynchronous)
    script.assigned(0, 1)
    return script


def poll(script: Script) -> Call[Any]:
    return script.machine.poll(script.now, 0.0, immediate=False, limit=-1)


def test_a_poll_yields_what_is_to_be_awaited_and_goes_on_when_that_has_ended(owner: Script) -> None:
    owner.fetched(0, 0, 3)
    call = poll(owner)
    assert isinstance(owner.start(call).awaited, Work)
    assert owner.take_posted(PartitionsAssigned) == []
    assert call.send(owner.now).awaited is None
    assert owner.take_posted(PartitionsAssigned) == [PartitionsAssigned(generation=1)]
    with pytest.raises(StopIteration) as end:
        call.send(owner.now)
    assert len(end.value.value) == 1


@pytest.mark.rule("13")
@pytest.mark.parametrize("how", [lambda call: call.throw(LookupError), lambda call: call.close()])
def test_one_that_fails_or_is_given_up_is_not_called_again(
    owner: Script, asynchronous: Listener, how: Callable[[Call[Any]], object]
) -> None:
    call = poll(owner)
    owner.start(call)
    try:
        how(call)
    except LookupError:
        pass
    assert owner.take_posted(PartitionsAssigned) == [PartitionsAssigned(generation=1)]
    owner.poll()
    assert asynchronous.heard == [("assigned", [0, 1])]


def test_a_loss_is_told_as_a_revoke_where_nothing_else_is_said(owner: Script, asynchronous: Listener) -> None:
    owner.poll()
    owner.lost(1)
    assert isinstance(owner.start(poll(owner)).awaited, Work)
    assert asynchronous.heard[1:] == [("revoked", [1])]


@pytest.mark.rule("12")
def test_a_close_awaits_it_and_then_lets_go(owner: Script) -> None:
    owner.poll()
    call = owner.machine.close(owner.now, 5.0, leave=True)
    owner.start(call)
    owner.up(CommitsSettled(partitions=epochs(0, 1)))
    assert isinstance(call.send(owner.now).awaited, Work)
    assert owner.take_posted(PartitionsRevoked) == []
    assert call.throw(LookupError("the user's bug")).awaited is None
    assert owner.take_posted(PartitionsRevoked) == [PartitionsRevoked(partitions=epochs(0, 1))]
    assert len(owner.take_posted(Close)) == 1


@pytest.mark.parametrize("moment", ["at the start", "in the wait"])
def test_a_poll_looks_at_the_lease_again_when_its_listener_has_heard_of_a_loss(moment: str) -> None:
    """It may have taken longer than the membership lasted."""
    listener, script = RecordingListener(), Script()
    script.subscribe(listener)
    script.assigned(0, 1)
    script.poll()
    call = script.machine.poll(script.now, 60.0, immediate=False, limit=-1)
    if moment == "in the wait":
        script.start(call)
    script.lost(1)
    script.fetched(0, 0, 3)

    def long() -> None:
        script.lease.expires = script.now - 1

    listener.meanwhile = long
    if moment == "in the wait":
        call.send(script.now)
    else:
        script.start(call)
    assert listener.heard[-1] == ("lost", [1])
    with pytest.raises(StopIteration) as end:
        call.send(script.now)
    assert end.value.value == []
    assert script.machine.lost() == {tp(1)}
