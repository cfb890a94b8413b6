"""Whatever brokers respond, the requests to them in a second are bounded, and so are the lines in the log."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from network_script import NetworkScript, tp

from instride._core.events import Lost, PartitionsAssigned, Polled
from instride._core.network.actions import Transmit
from instride._wire import api
from instride._wire.consumer_protocol import Assignment, write_assignment
from instride.errors.codes import ErrorCode

ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 22, 25, 27, 79

MINE = write_assignment(Assignment(partitions=(tp(0),)))
Lie = Callable[["Lying", Any], Any]


class Lying(NetworkScript):
    """Brokers that respond as `lies` say, a millisecond later; requests are counted by kind, lines by level."""

    def __init__(self, lies: dict[type[Any], Lie], **settings: Any) -> None:
        super().__init__(random=random.Random(7).random, **settings)
        self.lies = lies
        self.requested_at: dict[type[Any], list[float]] = {}
        self.lines: list[tuple[float, int, str]] = []

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.do(Polled(at=self.now))
            due = [each for each in self.waiting if type(each.request) in self.lies]
            for each in due:
                self._lie(each)
            self.settle()
            self.pass_time(0.001 if due else min(0.05, max(self.machine.deadline() - self.now, 0.001)))
            self.lines += [(self.now, *each) for each in zip(self.levels, self.logs, strict=True)]
            self.logs.clear()
            self.levels.clear()
            self.delivered.clear()

    def _lie(self, action: Transmit) -> None:
        if action in self.waiting:
            self.waiting.remove(action)
            self.requested_at.setdefault(type(action.request), []).append(self.now)
            response = self.lies[type(action.request)](self, action.request)
            self.machine.response_received(action.request_id, response, self.now)

    def of(self, kind: type[Any]) -> list[float]:
        return self.requested_at.get(kind, [])

    def most_in_a_second(self, kind: type[Any], *, since: float) -> int:
        return max(Counter(int(at) for at in self.of(kind) if at >= since).values(), default=0)


def joined(script: Lying, request: api.JoinGroup) -> api.JoinGroupResponse:
    name = request.protocols[0].name
    return api.JoinGroupResponse(generation=len(script.of(api.JoinGroup)), protocol=name, leader="x", member_id="me")


def refused(code: int) -> dict[str, Lie]:
    return {
        "join": lambda _script, _request: api.JoinGroupResponse(error=code, member_id="me"),
        "sync": lambda _script, _request: api.SyncGroupResponse(error=code),
    }


def well(_script: Lying, _request: Any) -> api.SyncGroupResponse:
    return api.SyncGroupResponse(assignment=MINE)


# What ends the membership is tried again as `test_standing_errors` says.
SELDOM = [-1, 12345]
CODES = [ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, 14, 15, 16, -1, 12345]


@pytest.mark.rule("17")
@pytest.mark.parametrize("what", ["join", "sync"])
@pytest.mark.parametrize("code", [*CODES, MEMBER_ID_REQUIRED])
def test_a_coordinator_that_refuses_over_and_over_gets_few_joins(what: str, code: int) -> None:
    lies: dict[type[Any], Lie] = {api.JoinGroup: joined, api.SyncGroup: refused(code)["sync"]}
    if what == "join":
        lies[api.JoinGroup] = refused(code)["join"]
    script = Lying(lies)
    script.subscribe()
    script.run(60.0)
    assert len(script.of(api.JoinGroup)) <= 90, "60 s: each a rebalance for the whole group"
    assert script.most_in_a_second(api.JoinGroup, since=110.0) <= 3
    assert len(script.lines) <= 200, "of any level"
    deferred = any("more lines like this one before" in text for _, _, text in script.lines)
    assert deferred == (code not in SELDOM)


@pytest.mark.parametrize("code", [ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS])
def test_one_rebalance_that_overtakes_another_is_followed_at_once(code: int) -> None:
    script = NetworkScript()
    script.member_of(1, 0)
    for generation in (2, 4):
        script.heartbeat(REBALANCE_IN_PROGRESS)
        script.join(generation)
        script.response(api.SyncGroup, api.SyncGroupResponse(error=code))
        script.rebalance(generation + 1, 0)
        script.do(PartitionsAssigned(generation=generation + 1))
    assert script.take(Lost) == []


def test_the_back_off_grows_until_the_sync_has_succeeded() -> None:
    """A join whose response is good before its sync is refused is no success."""
    script = Lying({api.JoinGroup: joined, api.SyncGroup: refused(REBALANCE_IN_PROGRESS)["sync"]})
    script.subscribe()
    script.run(5.0)
    gaps = [later - earlier for earlier, later in itertools.pairwise(script.of(api.JoinGroup))]
    assert gaps[0] < 0.05, "the first one is followed at once"
    assert all(later > earlier for earlier, later in itertools.pairwise(gaps[:4]))
    script.lies[api.SyncGroup] = well
    script.run(5.0)
    before = len(script.of(api.JoinGroup))
    script.lies[api.Heartbeat] = lambda _script, _request: api.HeartbeatResponse(error=REBALANCE_IN_PROGRESS)
    script.run(3.5)
    assert len(script.of(api.JoinGroup)) > before
    assert script.of(api.JoinGroup)[-1] - script.of(api.Heartbeat)[-1] < 0.01, "and it begins anew"


def test_a_leader_that_assigns_what_nobody_wants_makes_few_joins() -> None:
    other = write_assignment(Assignment(partitions=(tp(0, "other"),)))
    script = Lying({api.JoinGroup: joined, api.SyncGroup: lambda _s, _r: api.SyncGroupResponse(assignment=other)})
    script.subscribe()
    script.run(60.0)
    assert len(script.of(api.JoinGroup)) <= 90


def test_a_coordinator_whose_commits_always_ask_for_a_rebalance_gets_few_joins() -> None:
    script = Lying({api.JoinGroup: joined, api.SyncGroup: well})
    script.member_of(1, 0)
    script.commit({0: 5}, timeout=1000.0)
    script.lies[api.OffsetCommit] = lambda _script, _request: api.OffsetCommitResponse(
        errors={tp(0): REBALANCE_IN_PROGRESS}
    )
    script.run(60.0)
    assert len(script.of(api.JoinGroup)) <= 90
    assert len(script.of(api.OffsetCommit)) <= 90


def of_each(request: api.Fetch, script: Lying, error: int) -> api.FetchResponse:
    return api.FetchResponse(
        partitions={tp(p): api.FetchedPartition(error=error) for p in {each.partition for each in request.partitions}}
    )


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        12345,
    ],
)
def test_two_hundred_partitions_that_a_broker_refuses_are_requested_together(code: int) -> None:
    script = Lying({api.Fetch: lambda script, request: of_each(request, script, code)}, max_poll_interval=10_000.0)
    script.topics = {"t": 200}
    script.member_of(1, *range(200))
    script.run(20.0)
    assert script.most_in_a_second(api.Fetch, since=105.0) <= 6
    assert script.metadata_responses <= 100
    assert len(script.lines) <= 200


REFUSALS = 6
"""Of each partition: its back-off grows to the longest one."""


def partitions_of(request: Any) -> list[api.Partition]:
    match request:
        case api.OffsetFetch():
            return list(request.partitions)
        case api.ListOffsets():
            return list(request.timestamps)
        case api.OffsetForLeaderEpoch():
            return list(request.epochs)
        case _:
            return [(each.topic, each.partition) for each in request.partitions]


def responses(kind: type[Any], codes: dict[api.Partition, int], *, committed: int) -> api.Response:
    """committed: the offset that is, in an epoch before the leader's."""
    if kind is api.OffsetFetch:
        offset = api.CommittedOffset(offset=committed, leader_epoch=3)
        return api.OffsetFetchResponse(offsets={each: replace(offset, error=code) for each, code in codes.items()})
    if kind is api.ListOffsets:
        return api.ListOffsetsResponse(
            offsets={each: api.ListedOffset(offset=9, error=code) for each, code in codes.items()}
        )
    if kind is api.OffsetForLeaderEpoch:
        end = api.EpochEnd(leader_epoch=3, end_offset=9)
        return api.OffsetForLeaderEpochResponse(ends={each: replace(end, error=code) for each, code in codes.items()})
    return api.FetchResponse(
        partitions={each: api.FetchedPartition(error=code, high_watermark=9) for each, code in codes.items()}
    )


@pytest.mark.parametrize(
    ("kind", "code", "in_range"),
    [
        (api.OffsetFetch, ErrorCode.UNSTABLE_OFFSET_COMMIT, True),
        (api.ListOffsets, ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (api.ListOffsets, ErrorCode.UNKNOWN_SERVER_ERROR, True),
        (api.ListOffsets, ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (api.OffsetForLeaderEpoch, ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (api.Fetch, ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
    ],
    ids=["committed", "listed", "unknown", "out of range", "validated", "fetched"],
)
def test_a_thousand_partitions_that_are_refused_one_by_one_are_tried_again_together(
    kind: type[Any], code: int, in_range: bool
) -> None:
    """Each has a back-off of its own, with its own jitter: without more they would be tried again one by one, too."""
    tries: Counter[api.Partition] = Counter()
    refusing: list[bool] = []

    def respond(_script: Lying, request: Any) -> api.Response:
        codes = dict.fromkeys(partitions_of(request), 0)
        if isinstance(request, kind):
            tries.update(list(codes))
            codes = {each: code if tries[each] <= REFUSALS else 0 for each in codes}
            refusing.append(any(codes.values()))
        elif isinstance(request, api.Fetch):
            codes = dict.fromkeys(codes, ErrorCode.OFFSET_OUT_OF_RANGE)
        return responses(type(request), codes, committed=-1 if kind is api.ListOffsets and in_range else 3)

    looked_up = dict.fromkeys((api.OffsetFetch, api.ListOffsets, api.OffsetForLeaderEpoch), respond)
    script = Lying({**looked_up, (kind if in_range else api.Fetch): respond})
    script.topics, script.leader_epochs, script.committed_offset = {"t": 1000}, dict.fromkeys(range(1000), 5), None
    script.member_of(1, *range(1000))
    script.run(8.0)
    assert len(tries) == 1000
    assert min(tries.values()) > REFUSALS, "some are not well yet"
    assert sum(refusing) <= 4 * REFUSALS, "responses, of 6,000 refusals"


def test_a_thousand_partitions_without_a_leader_cost_few_turns() -> None:
    script = Lying({})
    script.topics = {"t": 1000}
    script.leaders = dict.fromkeys(range(1, 1000), -1)
    script.member_of(1, *range(1000))
    script.run(10.0)
    turns = 0
    start = script.now
    while script.now < start + 10.0:
        script.now = max(script.machine.deadline(), script.now + 0.0001)
        script.settle()
        turns += 1
    assert turns <= 80


def nothing(_script: Lying, request: api.Fetch, end: int = 0) -> api.FetchResponse:
    """Of each partition in the session that it has no news."""
    none = api.FetchedPartition(high_watermark=end)
    return api.FetchResponse(session_id=7, partitions=dict.fromkeys(request.known, none))


def one_refused(script: Lying, request: api.Fetch) -> api.FetchResponse:
    """A reason to respond at once, of another partition each time."""
    number = len(script.of(api.Fetch))
    response = nothing(script, request)
    response.partitions[tp(number % 20)] = api.FetchedPartition(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return response


def now_and_then_records(script: Lying, request: api.Fetch) -> api.FetchResponse:
    """Offsets that lead on, in one response of a hundred."""
    if len(script.of(api.Fetch)) % 100:
        return nothing(script, request)
    offset = min(each.offset for each in request.known.values())
    return api.FetchResponse(session_id=7, partitions={tp(0): api.FetchedPartition(next_offset=offset + 1)})


EMPTY: dict[str, Lie] = {
    "an empty response": lambda _script, _request: api.FetchResponse(),
    "an empty response of a session": lambda _script, _request: api.FetchResponse(session_id=7),
    "nothing of each partition": nothing,
    "another session each time": lambda script, _request: api.FetchResponse(session_id=len(script.of(api.Fetch))),
    "an error of each session": lambda _script, request: api.FetchResponse(
        session_id=7, error=0 if request.session_epoch == 0 else ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    ),
    "an error of each epoch": lambda _script, request: api.FetchResponse(
        session_id=7, error=0 if request.session_epoch == 0 else ErrorCode.INVALID_FETCH_SESSION_EPOCH
    ),
    "an error of the session each time": lambda _script, _request: api.FetchResponse(
        error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    ),
    "an end that rises": lambda script, request: nothing(script, request, end=len(script.of(api.Fetch))),
    "an end that comes and goes": lambda script, request: nothing(script, request, end=len(script.of(api.Fetch)) % 2),
    "no end": lambda script, request: nothing(script, request, end=-1),
    "a moment's throttling": lambda _script, _request: api.FetchResponse(session_id=7, throttle_time=0.001),
    "an error of one": one_refused,
    "records now and then": now_and_then_records,
}


@pytest.mark.parametrize("how", EMPTY)
def test_a_broker_that_holds_no_fetch_back_is_asked_as_often_as_one_that_does(how: str) -> None:
    """Whatever its reason. A fetch says for how long it may be held back where there is nothing new."""
    script = Lying({api.Fetch: EMPTY[how]}, max_poll_interval=10_000.0)
    script.topics = {"t": 20}
    script.member_of(1, *range(20))
    script.run(6.0)
    assert len(script.of(api.Fetch)) <= 150
    assert script.most_in_a_second(api.Fetch, since=102.0) <= 24, "as of a broker that lets go after 0.05 s"
    assert len(script.lines) <= 200


@pytest.mark.parametrize("reason", ["an empty response", "an error of one"])
def test_a_broker_with_a_reason_now_and_then_is_asked_again_at_once(reason: str) -> None:
    """As when the leader names another replica, or a session is forgotten: what is new is not to wait for it."""
    script = Lying({}, max_poll_interval=10_000.0)
    script.member_of(1, 0, 1, 2, 3)
    for _ in range(100):
        request = script.requested(api.Fetch)
        script.response(api.Fetch, EMPTY[reason](script, request))
        script.requested(api.Fetch)
        script.pass_time(script.config.fetch_max_wait / 2)
        script.response(api.Fetch, nothing(script, request))
        script.requested(api.Fetch)


def test_early_responses_with_a_long_time_between_them_are_followed_at_once() -> None:
    script = Lying({}, max_poll_interval=10_000.0)
    script.member_of(1, 0)
    for _ in range(20):
        request = script.requested(api.Fetch)
        script.response(api.Fetch, of_each(request, script, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        while "Fetch" not in script.waits():
            script.pass_time(0.1)
    script.response(api.Fetch, nothing(script, script.requested(api.Fetch)))
    script.requested(api.Fetch)
