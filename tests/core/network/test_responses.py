"""Every event of the application that expects a response gets one in time, whatever brokers do (law 4 of events)."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_script import NetworkScript, single, tp

from instride._core import events
from instride._core.events import (
    ApplicationEvent,
    Assign,
    BackgroundEvent,
    CallCompleted,
    Close,
    Commit,
    FetchCommitted,
    FetchMetadata,
    FetchOffsets,
    Unsubscribe,
)
from instride._core.network.actions import Action, Deliver
from instride._wire import api
from instride.commits import CommitEntry
from instride.errors import KafkaError, TransportError

DOWN = typing.get_args(ApplicationEvent)
UP = typing.get_args(BackgroundEvent)


# --- the types ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("threading/22")
def test_every_event_has_a_type_of_its_own_which_cannot_be_changed() -> None:
    assert len(set(DOWN + UP)) == len(DOWN) + len(UP), "none goes both ways"
    public = {each for name, each in vars(events).items() if name in events.__all__ and inspect.isclass(each)}
    assert public == set(DOWN + UP)
    for each in DOWN + UP:
        assert is_dataclass(each)
        assert vars(each)["__dataclass_params__"].frozen, each
        assert "__slots__" in vars(each), each


@pytest.mark.requirement("threading/22")
def test_what_has_a_response_has_a_deadline_and_only_that() -> None:
    for each in DOWN:
        names = {field.name for field in fields(each)}
        assert ("call" in names) == ("deadline" in names), each
    questions = {each for each in DOWN if "call" in {field.name for field in fields(each)}}
    assert questions == {Commit, FetchCommitted, FetchOffsets, FetchMetadata, Unsubscribe, Close}


# --- the responses ------------------------------------------------------------------------------------------


class Timed(NetworkScript):
    """Notes when each call completed."""

    def __init__(self) -> None:
        super().__init__(request_timeout=7.0, session_timeout=20.0, heartbeat_interval=2.0)
        self.committed_offset = None
        self.asked_until: dict[int, float] = {}
        self.responded_at: dict[int, list[float]] = {}
        self._number = 0

    def _act(self, action: Action) -> None:
        super()._act(action)
        for event in single(action.event) if isinstance(action, Deliver) else ():
            if isinstance(event, CallCompleted):
                assert not self.stopped, "after the end nobody listens"
                self.responded_at.setdefault(event.call, []).append(self.now)

    def ask(self, kind: str, timeout: float) -> None:
        self._number += 1
        call, deadline = self._number, self.now + timeout
        self.asked_until[call] = deadline
        entry = CommitEntry(offset=self._number, epoch=1, seek_number=0)
        requested: dict[str, ApplicationEvent] = {
            "commit": Commit(call=call, deadline=deadline, entries={tp(0): entry}),
            "stale commit": Commit(call=call, deadline=deadline, entries={tp(0): entry, tp(3): entry}),
            "no commit": Commit(call=call, deadline=deadline, entries={}),
            "impatient": Commit(call=call, deadline=deadline, entries={tp(0): entry}, carry_over=False),
            "committed": FetchCommitted(call=call, deadline=deadline, partitions=(tp(0), tp(1))),
            "offsets": FetchOffsets(call=call, deadline=deadline, timestamps={tp(0): 5, tp(9): 5}),
            "topics": FetchMetadata(call=call, deadline=deadline, topics=None),
            "unsubscribe": Unsubscribe(call=call, deadline=deadline),
            "close": Close(call=call, deadline=deadline),
        }
        self.do(requested[kind])

    def reply(self, number: int, code: int) -> None:
        """Respond to one of the requests that wait: with an error code, or (below zero) with a broken connection."""
        if not self.waiting:
            return
        waiting = self.waiting.pop(number % len(self.waiting))
        result = TransportError("broken") if code < 0 else RESPONSES[type(waiting.request)](code)
        self.machine.response_received(waiting.request_id, result, self.now)
        self.settle()


def offsets(code: int) -> Any:
    return api.OffsetFetchResponse(offsets={tp(n): api.CommittedOffset(offset=3, error=code) for n in (0, 1)})


RESPONSES: dict[type, Callable[[int], Any]] = {
    api.Metadata: lambda code: api.MetadataResponse(
        brokers=(api.Broker(node_id=1, host="b", port=1),),
        topics=(api.MetadataTopic(name="t", error=code, partitions=(api.MetadataPartition(partition=0, leader=1),)),),
    ),
    api.FindCoordinator: lambda code: api.FindCoordinatorResponse(error=code, node_id=1, host="b", port=1),
    api.OffsetFetch: offsets,
    api.OffsetCommit: lambda code: api.OffsetCommitResponse(errors={tp(0): code}),
    api.ListOffsets: lambda code: api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(offset=4, error=code)}),
    api.JoinGroup: lambda code: api.JoinGroupResponse(
        error=code, generation=1, protocol="cooperative-sticky", leader="other", member_id="me"
    ),
    api.SyncGroup: lambda code: api.SyncGroupResponse(error=code, assignment=b""),
    api.Heartbeat: lambda code: api.HeartbeatResponse(error=code),
    api.LeaveGroup: lambda code: api.LeaveGroupResponse(error=code),
    api.Fetch: lambda code: api.FetchResponse(partitions={tp(0): api.FetchedPartition(next_offset=0, error=code)}),
}

KINDS = ["commit", "stale commit", "no commit", "impatient", "committed", "offsets", "topics"]
steps = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from(KINDS), st.sampled_from([0.0, 1.0, 5.0, 30.0])),
    st.tuples(st.just("reply"), st.integers(0, 5), st.sampled_from([-1, 0, 0, 3, 6, 14, 15, 16, 22, 25, 27, 29, 30])),
    st.tuples(st.just("pass"), st.sampled_from([0.1, 1.0, 4.0, 10.0]), st.none()),
    st.tuples(st.just("reach"), st.booleans(), st.none()),
)
ends = st.sampled_from([None, ("unsubscribe", 3.0), ("close", 0.0), ("close", 3.0), ("close", 1000.0)])


@pytest.mark.requirement("threading/29")
@given(
    begin=st.sampled_from(["member", "joining", "by hand", "nothing"]),
    script=st.lists(steps, max_size=25),
    end=ends,
    holds=st.booleans(),
)
def test_each_request_has_one_response_and_by_its_deadline(
    begin: str, script: list[tuple[Any, ...]], end: tuple[str, float] | None, holds: bool
) -> None:
    made = Timed()
    if begin == "member":
        made.member_of(1, 0)
    elif begin == "joining":
        made.subscribe()
    elif begin == "by hand":
        made.do(Assign(partitions={tp(0): 1}))
    made.hold_metadata = holds
    for what, first, second in script:
        match what:
            case "ask":
                made.ask(first, second)
            case "reply":
                made.reply(first, second)
            case "pass":
                made.pass_time(first)
            case "reach":
                made.reachable = first
    if end is not None:
        made.ask(*end)
    made.pass_time(1100.0 if end is not None else 40.0)
    assert {call: len(times) for call, times in made.responded_at.items()} == dict.fromkeys(made.asked_until, 1)
    step = 0.0011  # the script's clock moves by a millisecond at least, so it may miss a deadline by one
    late = {call: times for call, times in made.responded_at.items() if times[0] > made.asked_until[call] + step}
    assert not late
    assert made.stopped == (end is not None and end[0] == "close")


def test_what_is_still_open_when_the_consumer_has_closed_ends_before_the_end() -> None:
    made = Timed()
    made.member_of(1, 0)
    made.ask("offsets", 500.0)
    made.ask("commit", 500.0)
    made.ask("committed", 500.0)
    made.ask("close", 1.0)
    made.pass_time(2.0)
    assert made.stopped
    assert sorted(made.responded_at) == [1, 2, 3, 4]
    errors = [event.error or next(iter(event.committed.values())) for event in made.take(CallCompleted)]
    assert all(isinstance(each, KafkaError) for each in errors)
