"""Every error code that a broker may give to each question, and what becomes of it (Kafka's tables), as one table.

What a code means besides is told elsewhere (`test_group_errors`, `test_commit_errors`, `test_fetcher`, ...): here each
pair of question and code has a row, so that none is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any, Final
from uuid import UUID

import pytest
from network_script import NetworkScript, tp

from instride._core.events import (
    CallCompleted,
    EnforceRebalance,
    ErrorRaised,
    FetchCommitted,
    FetchOffsets,
    Lost,
    PartitionFailed,
    PartitionsAssigned,
    Polled,
    Positioned,
    SetPosition,
    Unsubscribe,
)
from instride._wire import api
from instride.errors import BROKER_ERRORS, CommitFailedError
from instride.errors import ErrorCode as E
from instride.errors.codes import COORDINATOR_MOVED as MOVED

# Again: it is asked once more, nothing is lost and nobody is told. Anew: the coordinator is looked for, then again.
AGAIN, ANEW, LOST, TOLD = "again", "anew", "lost", "told"
# Partition failed: it is raised, and tried again or left to a seek. Reset: by the policy.
# Failed: the caller hears of it. Silent: nobody hears of it.
PARTITION_FAILED, VERIFIED, FAILED, SILENT = "partition failed", "verified", "failed", "silent"
SERVER_ERROR: Final = E.UNKNOWN_SERVER_ERROR
NOBODY_KNOWS: Final = 12345
# 1 is a code of fetches alone; what follows is of the group's coordinator, of leaders, or of anybody.
CODES: Final = (SERVER_ERROR, NOBODY_KNOWS, *sorted(BROKER_ERRORS))


def codes(default: str, *rows: tuple[str, AbstractSet[int]]) -> dict[int, str]:
    """What each code that exists leads to."""
    table = dict.fromkeys(CODES, default)
    for what, of in rows:
        assert of <= set(CODES)
        table.update(dict.fromkeys(of, what))
    return table


PASSING: Final = {code for code, kind in BROKER_ERRORS.items() if kind.retriable}

TABLE: Final[dict[str, dict[int, str]]] = {
    "join": codes(
        TOLD,
        (AGAIN, PASSING | {E.ILLEGAL_GENERATION, E.REBALANCE_IN_PROGRESS, E.MEMBER_ID_REQUIRED}),
        (ANEW, MOVED),
        (LOST, {E.UNKNOWN_MEMBER_ID, E.GROUP_ID_NOT_FOUND}),
    ),
    "sync": codes(
        TOLD,
        (AGAIN, PASSING | {E.ILLEGAL_GENERATION, E.REBALANCE_IN_PROGRESS}),
        (ANEW, MOVED),
        (LOST, {E.UNKNOWN_MEMBER_ID, E.GROUP_ID_NOT_FOUND}),
    ),
    "heartbeat": codes(
        SILENT,
        (TOLD, {E.FENCED_INSTANCE_ID}),
        (ANEW, MOVED),
        (LOST, {E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID, E.GROUP_ID_NOT_FOUND}),
        (AGAIN, {E.REBALANCE_IN_PROGRESS}),
    ),
    "commit": codes(
        FAILED,
        (
            AGAIN,
            {E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_LOAD_IN_PROGRESS, E.REBALANCE_IN_PROGRESS, E.UNKNOWN_TOPIC_ID},
        ),
        (ANEW, MOVED | {E.REQUEST_TIMED_OUT}),
        (LOST, {E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID, E.GROUP_ID_NOT_FOUND}),
        (TOLD, {E.FENCED_INSTANCE_ID}),
    ),
    "committed offset": codes(PARTITION_FAILED, (AGAIN, PASSING), (ANEW, MOVED)),
    "offset at a time": codes(PARTITION_FAILED, (AGAIN, PASSING | {SERVER_ERROR})),
    "end of a log": codes(PARTITION_FAILED, (AGAIN, PASSING | {SERVER_ERROR})),
    "fetch": codes(
        PARTITION_FAILED,
        (
            AGAIN,
            {
                E.CORRUPT_MESSAGE,
                E.UNKNOWN_TOPIC_OR_PARTITION,
                E.LEADER_NOT_AVAILABLE,
                E.NOT_LEADER_OR_FOLLOWER,
                E.REQUEST_TIMED_OUT,
                E.REPLICA_NOT_AVAILABLE,
                E.KAFKA_STORAGE_ERROR,
                E.FENCED_LEADER_EPOCH,
                E.UNKNOWN_LEADER_EPOCH,
                E.OFFSET_NOT_AVAILABLE,
                E.UNKNOWN_TOPIC_ID,
                E.INCONSISTENT_TOPIC_ID,
                SERVER_ERROR,
            },
        ),
        (VERIFIED, {E.OFFSET_OUT_OF_RANGE}),
    ),
    "whole fetch": codes(PARTITION_FAILED, (AGAIN, PASSING | {SERVER_ERROR})),
    "search": codes(TOLD, (AGAIN, PASSING | {SERVER_ERROR})),
    "leave": codes(FAILED, (AGAIN, PASSING), (ANEW, MOVED), (SILENT, {E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID})),
}


def ask_join(script: NetworkScript) -> None:
    script.heartbeat(E.REBALANCE_IN_PROGRESS)


def ask_sync(script: NetworkScript) -> None:
    script.heartbeat(E.REBALANCE_IN_PROGRESS)
    script.join(2)


def ask_heartbeat(script: NetworkScript) -> None:
    script.pass_time(script.config.heartbeat_interval)


def ask_commit(script: NetworkScript) -> None:
    script.commit({0: 5})


def ask_committed(script: NetworkScript) -> None:
    script.committed_offset = None
    position(script, -3)


def ask_offset(script: NetworkScript) -> None:
    position(script, -2)


def position(script: NetworkScript, offset: int) -> None:
    epoch = script.epoch(0)
    script.take(Positioned)
    script.do(SetPosition(partition=tp(0), epoch=epoch, seek_number=1, fetch_number=1, offset=offset))


def ask_range(script: NetworkScript) -> None:
    script.response(
        api.Fetch, api.FetchResponse(partitions={("t", 0): api.FetchedPartition(error=E.OFFSET_OUT_OF_RANGE)})
    )


def ask_nothing(_script: NetworkScript) -> None:
    pass


def ask_search(script: NetworkScript) -> None:
    script.heartbeat(E.NOT_COORDINATOR)  # the coordinator has moved


def ask_leave(script: NetworkScript) -> None:
    script.do(Unsubscribe(call=7, deadline=script.now + 30.0))


Row = tuple[type[Any], Callable[[NetworkScript], None], Callable[[int], Any]]
QUESTIONS: Final[dict[str, Row]] = {
    "join": (api.JoinGroup, ask_join, lambda code: api.JoinGroupResponse(error=code, member_id="me")),
    "sync": (api.SyncGroup, ask_sync, lambda code: api.SyncGroupResponse(error=code)),
    "heartbeat": (api.Heartbeat, ask_heartbeat, lambda code: api.HeartbeatResponse(error=code)),
    "commit": (api.OffsetCommit, ask_commit, lambda code: api.OffsetCommitResponse(errors={("t", 0): code})),
    "committed offset": (api.OffsetFetch, ask_committed, lambda code: api.OffsetFetchResponse(error=code)),
    "offset at a time": (
        api.ListOffsets,
        ask_offset,
        lambda code: api.ListOffsetsResponse(offsets={("t", 0): api.ListedOffset(error=code)}),
    ),
    "end of a log": (
        api.ListOffsets,
        ask_range,
        lambda code: api.ListOffsetsResponse(offsets={("t", 0): api.ListedOffset(error=code)}),
    ),
    "fetch": (
        api.Fetch,
        ask_nothing,
        lambda code: api.FetchResponse(partitions={("t", 0): api.FetchedPartition(error=code)}),
    ),
    "whole fetch": (api.Fetch, ask_nothing, lambda code: api.FetchResponse(error=code)),
    "search": (api.FindCoordinator, ask_search, lambda code: api.FindCoordinatorResponse(error=code)),
    "leave": (api.LeaveGroup, ask_leave, lambda code: api.LeaveGroupResponse(error=code)),
}


class Watched(NetworkScript):
    """FindCoordinator is counted, and waits for the test when `search_waits`."""

    def __init__(self) -> None:
        super().__init__()
        self.searches = 0
        self.search_waits = False

    def _respond_at_once(self, action: Any) -> None:
        if isinstance(action.request, api.FindCoordinator):
            self.searches += 1
            if self.search_waits:
                return
        super()._respond_at_once(action)


def rows() -> Iterator[tuple[str, int, str]]:
    for pending, table in TABLE.items():
        for code, outcome in table.items():
            yield pending, code, outcome


def outcome_of(script: Watched, pending: str, searches: int) -> str:
    """What became of it, by all that can be seen."""
    kind, _, _ = QUESTIONS[pending]
    lost, told, failed = script.take(Lost), script.take(ErrorRaised), script.take(PartitionFailed)
    if told:
        return TOLD
    if lost:
        return LOST
    if failed:
        return PARTITION_FAILED
    if pending == "fetch" and "ListOffsets" in script.waits():
        return VERIFIED
    completed = script.take(CallCompleted)
    if any(
        isinstance(each, Exception) for response in completed for each in (response.error, *response.committed.values())
    ):
        return FAILED
    script.search_waits = False
    script.do(Polled(at=script.now))
    if "JoinGroup" in script.waits() and pending not in ("join", "sync"):
        script.rebalance(2, 0)  # the commit, or the heartbeat, told of a rebalance
        script.do(PartitionsAssigned(generation=2))
        return AGAIN
    for _ in range(4):
        script.pass_time(1.0)
    again = api.JoinGroup if kind is api.SyncGroup else kind
    if script.searches > searches:
        return AGAIN if pending == "search" else ANEW
    requested = any(isinstance(each.request, again) for each in script.waiting)
    assert requested or kind is api.LeaveGroup, script.waits()
    return SILENT if pending == "heartbeat" or not requested else AGAIN


@pytest.mark.parametrize(("pending", "code", "expected"), list(rows()))
def test_what_becomes_of_a_request_that_ends_with_an_error(pending: str, code: int, expected: str) -> None:
    kind, ask, response = QUESTIONS[pending]
    script = Watched()
    script.member_of(1, 0)
    script.search_waits = pending == "search"
    ask(script)
    script.settle()
    searches = script.searches
    script.response(kind, response(code))
    if (pending, code) == ("join", E.INCONSISTENT_GROUP_PROTOCOL):
        script.response(api.DescribeGroup, api.DescribeGroupResponse())
    assert outcome_of(script, pending, searches) == expected


@pytest.mark.rule("membership")
@pytest.mark.parametrize(
    "code", [E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID, E.GROUP_AUTHORIZATION_FAILED, E.FENCED_INSTANCE_ID]
)
def test_a_refusal_of_a_heartbeat_that_a_join_overtook_decides_nothing(code: int) -> None:
    script = NetworkScript()
    script.member_of(1, 0)
    script.pass_time(script.config.heartbeat_interval)
    script.do(EnforceRebalance(reason="a test"))
    script.rebalance(2, 0)
    script.response(api.Heartbeat, api.HeartbeatResponse(error=code))
    assert (script.take(Lost), script.take(ErrorRaised)) == ([], [])
    script.heartbeat(E.UNKNOWN_MEMBER_ID)
    assert len(script.take(Lost)) == 1, "the next one does"


@pytest.mark.parametrize("pending", ["commit", "committed offset", "the application's"])
@pytest.mark.parametrize("followed", [True, False])
def test_a_topic_id_that_a_broker_does_not_know_is_learnt_anew(pending: str, followed: bool) -> None:
    """Metadata may be minutes old: the topic was deleted and made again meanwhile."""
    script = NetworkScript()
    script.topic_ids = {"t": UUID(int=1)}
    if pending == "commit":
        script.member_of(1, 0)
        script.commit({0: 5})
    else:
        script.committed_offset = None
        script.member_of(1, 0)
    requested: Any = api.OffsetCommit if pending == "commit" else api.OffsetFetch
    if pending == "the application's":
        script.response(api.OffsetFetch, api.OffsetFetchResponse(offsets={tp(0): api.CommittedOffset(offset=4)}))
        if not followed:
            script.do(Unsubscribe(call=1, deadline=script.now + 30.0))
            script.response(api.LeaveGroup, api.LeaveGroupResponse())
        script.do(FetchCommitted(call=2, deadline=script.now + 60.0, partitions=(tp(0),)))
    script.topic_ids = {"t": UUID(int=2)}
    of_offset: dict[api.Partition, api.CommittedOffset] = {tp(0): api.CommittedOffset(error=E.UNKNOWN_TOPIC_ID)}
    while requested.__name__ in script.waits() and script.requested(requested).topic_ids == {"t": UUID(int=1)}:
        commit = requested is api.OffsetCommit
        refused = (
            api.OffsetCommitResponse(errors={tp(0): 100}) if commit else api.OffsetFetchResponse(offsets=of_offset)
        )
        script.response(requested, refused)
        script.pass_time(1.0)
        assert script.now < 120.0, "and not only when the metadata is too old anyway"
    if pending == "commit":
        assert "OffsetCommit" not in script.waits(), "an offset of the old topic is none of the new one"
        (completed,) = script.take(CallCompleted)
        assert isinstance(completed.committed[tp(0)], CommitFailedError)
    else:
        ids = {} if pending == "the application's" and not followed else {"t": UUID(int=2)}
        assert script.requested(requested).topic_ids == ids, "where no metadata is kept, it is requested by name"


@pytest.mark.parametrize(
    "code",
    [
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.COORDINATOR_NOT_AVAILABLE,
        E.NOT_COORDINATOR,
        E.UNSTABLE_OFFSET_COMMIT,
        E.UNKNOWN_TOPIC_ID,
    ],
)
def test_what_the_application_asks_is_asked_again_and_has_one_response(code: int) -> None:
    script = NetworkScript()
    script.committed_offset = None
    script.subscribe()
    script.do(FetchCommitted(call=1, deadline=script.now + 60.0, partitions=(tp(0),)))
    script.response(api.OffsetFetch, api.OffsetFetchResponse(offsets={tp(0): api.CommittedOffset(error=code)}))
    script.pass_time(2.0)
    script.response(api.OffsetFetch, api.OffsetFetchResponse(offsets={tp(0): api.CommittedOffset(offset=4)}))
    (completed,) = script.take(CallCompleted)
    assert completed.error is None


@pytest.mark.parametrize(
    "code",
    [
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.LEADER_NOT_AVAILABLE,
        E.NOT_LEADER_OR_FOLLOWER,
        E.REQUEST_TIMED_OUT,
        E.REPLICA_NOT_AVAILABLE,
        E.KAFKA_STORAGE_ERROR,
        E.FENCED_LEADER_EPOCH,
        E.UNKNOWN_LEADER_EPOCH,
        E.OFFSET_NOT_AVAILABLE,
        E.UNKNOWN_TOPIC_ID,
    ],
)
def test_an_offset_by_time_is_requested_again(code: int) -> None:
    script = NetworkScript()
    script.subscribe()
    script.do(FetchOffsets(call=1, deadline=script.now + 60.0, timestamps={tp(0): 5}))
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(error=code)}))
    script.pass_time(2.0)
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(offset=4)}))
    (completed,) = script.take(CallCompleted)
    assert completed.error is None
