"""Rule 15, over random sequences of commits, seeks, responses and refusals: each response is true of a model broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from network_script import NetworkScript, tp

from instride._core.events import CallCompleted, Commit
from instride._core.network.actions import ConnectionKey, Role
from instride._wire import api
from instride.commits import CommitEntry
from instride.errors import (
    BrokerResponseError,
    CommitFailedError,
    CommitOvertakenError,
    CommitRewindError,
    KafkaError,
    KafkaTimeoutError,
    StaleCommitError,
    TransportError,
)
from instride.errors.codes import ErrorCode

PARTITIONS = (0, 1)
REFUSED = (
    ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
# No error codes.
GONE, ACCEPTED_AND_GONE = -101, -102
LATER = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS)


@dataclass(slots=True)
class World:
    """The real machine, what was handed over, and a broker that keeps what it accepts."""

    script: NetworkScript
    commits: dict[int, Commit] = field(default_factory=dict)
    # Of each partition, in the order of acceptance: (offset, metadata, the least and greatest seek number of the
    # commits that name these two: a request does not tell them apart).
    group: dict[int, list[tuple[int, str, int, int]]] = field(default_factory=lambda: {0: [], 1: []})
    seeks: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0})
    calls: int = 0
    # What a broker accepted without a response: (partition, offset, metadata). It does not find the very
    # same's metadata too long then; that nobody is authorized any more, or that it has failed, it may say.
    unheard: set[tuple[int, int, str]] = field(default_factory=set)
    # The newest call of each partition that allowed a rewind, and that the broker has accepted.
    rewound: dict[int, int] = field(default_factory=dict)
    completed: set[int] = field(default_factory=set)
    # Calls that ended before there was a connection.
    unsent: set[int] = field(default_factory=set)

    def commit(
        self, offsets: dict[int, int], metadata: str, *, by_hand: bool, allow_rewind: bool, timeout: float = 500.0
    ) -> None:
        self.calls += 1
        entries = {
            tp(each): CommitEntry(
                offset=offset, epoch=self.script.epoch(each), seek_number=self.seeks[each], metadata=metadata
            )
            for each, offset in offsets.items()
        }
        self.commits[self.calls] = event = Commit(
            call=self.calls,
            deadline=self.script.now + timeout,
            entries=entries,
            by_hand=by_hand,
            allow_rewind=allow_rewind,
        )
        self.script.do(event)
        self.judge()

    def commit_in_an_outage(self, offsets: dict[int, int]) -> None:
        """No connection to the coordinator until the call has ended. Other calls would take its offset with them."""
        if self.completed != self.commits.keys():
            return
        self.script.reachable = False
        broken = TransportError("gone")
        self.script.machine.closed(ConnectionKey(Role.COORDINATOR, 1), broken, self.script.now)
        self.commit(offsets, "", by_hand=False, allow_rewind=False, timeout=0.3)
        self.unsent.add(self.calls)
        self.script.pass_time(0.4)
        self.script.reachable = True
        self.judge()
        assert self.unsent <= self.completed

    def respond(self, code: int) -> None:
        """Of a request with two partitions the second is always accepted."""
        request = next(
            (each.request for each in self.script.waiting if isinstance(each.request, api.OffsetCommit)), None
        )
        if request is None:
            self.script.pass_time(1.5)
            self.judge()
            return
        named = {(each[1], found.offset, found.metadata) for each, found in request.offsets.items()}
        if code == ErrorCode.OFFSET_METADATA_TOO_LARGE and min(named) in self.unheard:
            code = 0
        if code == ACCEPTED_AND_GONE:
            self.unheard |= named
        if code in (GONE, ACCEPTED_AND_GONE):
            for each, found in request.offsets.items() if code == ACCEPTED_AND_GONE else ():
                self.take(each[1], found.offset, found.metadata)
            self.script.response(api.OffsetCommit, TransportError("gone"))
            self.judge()
            return
        codes = {each: code if at == 0 else 0 for at, each in enumerate(sorted(request.offsets))}
        for each, found in request.offsets.items():
            if codes[each] == 0:
                self.take(each[1], found.offset, found.metadata)
        self.script.response(api.OffsetCommit, api.OffsetCommitResponse(errors=codes))
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            while "JoinGroup" not in self.script.waits():
                self.script.pass_time(0.5)  # the second one within moments waits for a back-off
            self.script.rebalance(2, *PARTITIONS)
        self.judge()

    def take(self, partition: int, offset: int, metadata: str) -> None:
        named = {
            call: each
            for call, each in self.commits.items()
            if tp(partition) in each.entries
            and (each.entries[tp(partition)].offset, each.entries[tp(partition)].metadata) == (offset, metadata)
        }
        assert named.keys() - self.unsent, "nobody requested this, or nobody does any more"
        assert max(named) >= self.rewound.get(partition, 0), "a rewind was accepted since"
        if all(each.allow_rewind for each in named.values()):
            self.rewound[partition] = min(named)
        seeks = [each.entries[tp(partition)].seek_number for each in named.values()]
        self.group[partition].append((offset, metadata, min(seeks), max(seeks)))

    # -- what is true

    def judge(self) -> None:
        for response in self.script.take(CallCompleted):
            assert response.call not in self.completed, "once"
            self.completed.add(response.call)
            event = self.commits[response.call]
            assert response.committed.keys() == event.entries.keys()
            for partition, error in response.committed.items():
                self._judge(event, partition[1], error)
            self._judge_whole(event, response)

    def _judge(self, event: Commit, partition: int, error: KafkaError | None) -> None:
        own, has = event.entries[tp(partition)], self.group[partition]
        if error is None:
            assert has[-1][:2] == (own.offset, own.metadata), "the group has something else"
        elif isinstance(error, CommitOvertakenError):
            assert error.offset == own.offset
            assert error.committed == has[-1][0], "the group has something else"
            self._judge_order(event, partition, error)
        elif isinstance(error, KafkaTimeoutError):
            assert event.call in self.unsent
        elif isinstance(error, StaleCommitError):
            assert own.seek_number < self.seeks[partition]
        else:
            assert isinstance(error, BrokerResponseError), error

    def _judge_order(self, event: Commit, partition: int, error: CommitOvertakenError) -> None:
        own = event.entries[tp(partition)]
        before = [each for call, each in self.commits.items() if call < event.call and tp(partition) in each.entries]
        after = [each for call, each in self.commits.items() if call > event.call and tp(partition) in each.entries]
        if isinstance(error, CommitRewindError):
            assert not event.allow_rewind
            assert error.committed > own.offset
            assert any(each.entries[tp(partition)].offset > own.offset for each in before)
        else:
            assert any(each.entries[tp(partition)].offset == error.committed for each in after)

    def _judge_whole(self, event: Commit, response: CallCompleted) -> None:
        errors = [error for error in response.committed.values() if error is not None]
        assert response.result.committed == {
            tp: event.entries[tp].to_offset_and_metadata() for tp, error in response.committed.items() if error is None
        }
        assert list(response.result.not_committed.values()) == errors
        if event.by_hand and any(isinstance(each, CommitRewindError | StaleCommitError) for each in errors):
            assert isinstance(response.error, CommitFailedError | BrokerResponseError)
        if not errors:
            assert response.error is None

    def judge_marks(self) -> None:
        """What the group has goes back only by a seek, or where some commit allowed it."""
        for partition, taken in self.group.items():
            may = any(each.allow_rewind and tp(partition) in each.entries for each in self.commits.values())
            for before, after in pairwise(taken):
                assert may or after[3] > before[2] or after[0] >= before[0]


some_offsets = st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 6), min_size=1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), some_offsets, st.sampled_from(["", "", "mm"]), st.booleans(), st.integers(0, 4)),
        st.tuples(st.just("respond"), st.sampled_from([0, 0, 0, GONE, ACCEPTED_AND_GONE, *REFUSED, *LATER])),
        st.tuples(st.just("seek"), st.sampled_from(PARTITIONS)),
        st.tuples(st.just("outage"), some_offsets),
    ),
    max_size=25,
)


TOO_LARGE = ("respond", ErrorCode.OFFSET_METADATA_TOO_LARGE)
REWOUND = [("commit", {0: 0}, "", False, 1), ("commit", {0: 1}, "", False, 1), ("commit", {0: 0}, "", False, 0)]
SOUGHT = [("commit", {0: 0}, "", False, 1), ("respond", GONE), ("seek", 0), ("commit", {0: 0}, "", False, 1)]


@pytest.mark.hypothesis
@pytest.mark.rule("15")
@given(steps)
# What is left after metadata that are too long: what would have been sent without them, and its result.
@example([*REWOUND, ("commit", {0: 0}, "mm", False, 1), ("respond", 0), TOO_LARGE])
@example([*SOUGHT, ("commit", {0: 0}, "mm", False, 1), ("respond", 0), TOO_LARGE])
@example([
    ("commit", {0: 0}, "", False, 1), ("commit", {0: 1}, "", False, 1), ("commit", {0: 2}, "mm", False, 1),
    ("commit", {0: 0}, "", False, 1), ("respond", 0), TOO_LARGE,
])  # fmt: skip
@example([
    ("commit", {0: 0}, "", False, 1), ("commit", {0: 1}, "", False, 1), ("commit", {0: 0}, "mm", False, 0),
    ("respond", 0), ("commit", {0: 0}, "", False, 1), TOO_LARGE,
])  # fmt: skip
# What has no response is not sent again once a rewind was accepted.
@example([
    ("commit", {0: 3}, "", False, 1), ("commit", {0: 0}, "", False, 0), ("respond", GONE), ("respond", 0),
    ("respond", 0), ("commit", {0: 1}, "", False, 1),
])  # fmt: skip
# A refusal of a further commit says nothing of one that was accepted, and whose response is missing.
@example([
    ("commit", {0: 3}, "", False, 1), ("respond", ACCEPTED_AND_GONE), ("commit", {0: 5}, "", False, 1), ("respond", 0),
    ("respond", ErrorCode.TOPIC_AUTHORIZATION_FAILED), ("commit", {0: 1}, "", True, 1),
])  # fmt: skip
# Nor does one for want of authorization, or for no known reason, of the very same that was accepted before.
@example([
    ("commit", {0: 3}, "", False, 1), ("respond", ACCEPTED_AND_GONE), ("respond", 0),
    ("respond", ErrorCode.TOPIC_AUTHORIZATION_FAILED), ("commit", {0: 1}, "", True, 1),
])  # fmt: skip
@example([
    ("commit", {0: 3}, "", False, 1), ("respond", ACCEPTED_AND_GONE), ("respond", 0),
    ("respond", ErrorCode.UNKNOWN_SERVER_ERROR), ("commit", {0: 1}, "", True, 1),
])  # fmt: skip
def test_each_response_is_true_of_the_broker(plan: list[Any]) -> None:
    world = World(NetworkScript())
    world.script.member_of(1, *PARTITIONS)
    for step in plan:
        match step:
            case "commit", offsets, metadata, by_hand, rewind:
                world.commit(offsets, metadata, by_hand=by_hand, allow_rewind=rewind == 0)
            case "respond", code:
                world.respond(code)
            case "seek", partition:
                world.seeks[partition] += 1
            case "outage", offsets:
                world.commit_in_an_outage(offsets)
    for _ in range(60):
        world.respond(0)
    assert world.completed == world.commits.keys()
    world.judge_marks()
