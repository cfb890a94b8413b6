"""`CommitsInFlight`: which commit may go, and of what, by what was sent, settled and ended before."""

from __future__ import annotations

from itertools import product

import pytest
from processing_help import P0, P1, tp

from instride import TopicPartition
from instride._processing.commits_in_flight import (
    PATIENCE,
    TRANSITIONS,
    CommitsInFlight,
    Following,
    Heard,
    SentCommit,
)
from instride.commits import CommitOutcome
from instride.errors import KafkaError, KafkaTimeoutError, RebalanceInProgressError, UnknownTopicOrPartitionError

P2 = tp(2)
LATE = KafkaTimeoutError("no response")
NOTHING = frozenset[TopicPartition]()


def sent(commits: CommitsInFlight, *partitions: TopicPartition, at: float = 0.0) -> SentCommit:
    commit = SentCommit(names=frozenset(partitions), waits_for=set(partitions), sent_at=at)
    commits.sent(commit)
    return commit


def settle(
    commits: CommitsInFlight, commit: SentCommit, outcome: CommitOutcome, *partitions: TopicPartition, at: float = 0.0
) -> None:
    for each in partitions or tuple(commit.names):
        commits.settled(commit, each, outcome, at)


def silent(commits: CommitsInFlight, commit: SentCommit, error: KafkaError = LATE) -> None:
    """Its time is out."""
    settle(commits, commit, CommitOutcome.FAILED, *commit.waits_for)
    commits.ended(commit, error)


def kept_back(commits: CommitsInFlight, now: float = 0.0, *, hurries: bool = False) -> object:
    return commits.kept_back(now, hurries=hurries)


def test_each_pair_has_a_row() -> None:
    assert TRANSITIONS.keys() == set(product(Following, Heard))


def test_while_one_is_in_flight_no_other_goes_for_a_second() -> None:
    commits = CommitsInFlight()
    assert kept_back(commits) == NOTHING
    first = sent(commits, P0)
    assert kept_back(commits, PATIENCE - 0.1) is None
    assert kept_back(commits, PATIENCE) == {P0}
    sent(commits, P1, at=PATIENCE)
    assert kept_back(commits, PATIENCE + 0.1) is None, "the newest counts"
    commits.ended(first, None)
    assert kept_back(commits, PATIENCE + 0.1) == {P1}


def test_a_hand_over_waits_for_no_other_commit() -> None:
    commits = CommitsInFlight()
    sent(commits, P0)
    assert kept_back(commits, hurries=True) == {P0}


@pytest.mark.parametrize("outcome", CommitOutcome)
def test_one_that_waits_for_a_part_keeps_no_other_back(outcome: CommitOutcome) -> None:
    commits = CommitsInFlight()
    commit = sent(commits, P0, P1)
    settle(commits, commit, outcome, P0)
    assert kept_back(commits) == {P1}


@pytest.mark.parametrize("error", [LATE, RebalanceInProgressError("it did not end")])
def test_after_one_without_an_answer_others_wait_for_one_or_for_all_ends(error: KafkaError) -> None:
    commits = CommitsInFlight()
    first, second = sent(commits, P0), sent(commits, P1)
    silent(commits, first, error)
    assert kept_back(commits, 99.0) is None
    silent(commits, second, error)
    assert kept_back(commits, 99.0) == NOTHING, "all have ended"
    third, fourth = sent(commits, P0, at=99.0), sent(commits, P1, P2, at=99.0)
    assert kept_back(commits, 999.0) is None, "the next ones wait as long"
    settle(commits, fourth, CommitOutcome.COMMITTED, P2, at=999.0)
    assert kept_back(commits, 999.0) == {P0, P1}, "it is back"
    silent(commits, third, error)
    sent(commits, P0, at=999.0)
    assert kept_back(commits, 999.0 + PATIENCE) == {P0, P1}, "somebody answered since it was sent"


def test_an_error_that_is_an_answer_is_no_outage() -> None:
    commits = CommitsInFlight()
    first = sent(commits, P0)
    sent(commits, P1)
    commits.ended(first, UnknownTopicOrPartitionError("it is gone"))
    assert kept_back(commits) == {P1}


def test_without_an_answer_one_of_others_alone_may_go() -> None:
    """The first may be of a topic that is away."""
    commits = CommitsInFlight()
    silent(commits, sent(commits, P0))
    sent(commits, P0, at=60.0)
    assert kept_back(commits, 60.0) == {P0}
    other = sent(commits, P1, at=60.0)
    assert kept_back(commits, 99.0) is None
    assert kept_back(commits, 99.0, hurries=True) == {P0, P1}
    settle(commits, other, CommitOutcome.REFUSED, at=99.0)
    assert kept_back(commits, 99.0) == {P0}


def test_of_what_nobody_answered_the_one_that_finds_out_names_nothing() -> None:
    """Also what is not on its way."""
    commits = CommitsInFlight()
    silent(commits, sent(commits, P0, P1))
    sent(commits, P0)
    assert kept_back(commits, 99.0) == {P0, P1}


def test_in_an_outage_a_part_that_failed_lets_one_go() -> None:
    commits = CommitsInFlight()
    silent(commits, sent(commits, P0, P1))
    commit = sent(commits, P0, P1, P2)
    settle(commits, commit, CommitOutcome.FAILED, P0)
    settle(commits, commit, CommitOutcome.STALE, P1)
    assert kept_back(commits) == {P2}
    sent(commits, P1)
    assert kept_back(commits, 99.0) is None
