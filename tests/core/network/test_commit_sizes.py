"""Law 11 of commits: a coordinator writes a request as one batch of its log, and refuses one that is too large."""

from __future__ import annotations

import pytest
from network_script import NetworkScript, tp

from instride._core.events import CallCompleted, Commit
from instride._wire import api
from instride.commits import CommitEntry

PARTITIONS = 300
A_BATCH = 1_048_588
"""The message.max.bytes of a broker at default settings, which holds for __consumer_offsets too."""


@pytest.fixture
def script() -> NetworkScript:
    made = NetworkScript()
    made.member_of(1, *range(PARTITIONS))
    return made


def commit_all(script: NetworkScript, metadata: str) -> None:
    entries = {
        tp(n): CommitEntry(offset=n + 1, epoch=script.epoch(n), seek_number=0, metadata=metadata)
        for n in range(PARTITIONS)
    }
    script.do(Commit(call=1, deadline=script.now + 60.0, entries=entries))


@pytest.mark.parametrize("character", ["m", "\u00e9", "\u20ac"])
def test_a_large_commit_is_sent_in_requests_that_the_log_takes(script: NetworkScript, character: str) -> None:
    metadata = character * 4_000
    commit_all(script, metadata)
    committed: dict[int, int] = {}
    while len(committed) < PARTITIONS:
        assert script.take(CallCompleted) == [], "a call ends when all of its partitions are settled"
        sizes = [len(each.metadata.encode()) for each in script.requested(api.OffsetCommit).offsets.values()]
        assert sum(sizes) < A_BATCH
        committed |= script.committed()
    (completed,) = script.take(CallCompleted)
    assert committed == {n: n + 1 for n in range(PARTITIONS)}
    assert set(completed.committed.values()) == {None}


def test_a_commit_of_many_partitions_without_metadata_is_one_request(script: NetworkScript) -> None:
    commit_all(script, "")
    assert len(script.committed()) == PARTITIONS
    assert len(script.take(CallCompleted)) == 1


def test_what_did_not_fit_is_overtaken_by_what_is_committed_meanwhile(script: NetworkScript) -> None:
    commit_all(script, "m" * 4_000)
    first = script.requested(api.OffsetCommit).offsets
    last = tp(PARTITIONS - 1)
    assert last not in first
    script.do(
        Commit(
            call=2,
            deadline=script.now + 60.0,
            entries={last: CommitEntry(offset=9_000, epoch=script.epoch(PARTITIONS - 1), seek_number=0)},
        )
    )
    committed: dict[int, int] = {}
    while len(committed) < PARTITIONS:
        committed |= script.committed()
    assert committed[PARTITIONS - 1] == 9_000
    assert {each.call: each.committed[last] is None for each in script.take(CallCompleted)} == {1: False, 2: True}
