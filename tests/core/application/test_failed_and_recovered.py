"""What poll makes of a partition that fails, fails again, and recovers (rule 17)."""

from __future__ import annotations

import pytest
from application_script import Script, tp

from instride._core.events import PartitionFailed, PartitionRecovered
from instride.errors import TopicAuthorizationFailedError

pytestmark = pytest.mark.rule("17")


def failed(script: Script, *, fetch_number: int = 0) -> None:
    error = TopicAuthorizationFailedError("not authorised")
    script.up(PartitionFailed(partition=tp(0), epoch=1, fetch_number=fetch_number, error=error, tried_again=True))


def recovered(script: Script, *, fetch_number: int = 0) -> None:
    script.up(PartitionRecovered(partition=tp(0), epoch=1, fetch_number=fetch_number))


@pytest.fixture
def owner(script: Script) -> Script:
    script.assigned(0, 1)
    script.poll()
    return script


def test_the_error_is_raised_again_when_it_failed_again(owner: Script) -> None:
    for _ in range(2):
        failed(owner)
        with pytest.raises(TopicAuthorizationFailedError):
            owner.poll()
    assert owner.poll() == [], "once each time"


def test_what_has_recovered_before_it_was_raised_is_not_raised(owner: Script) -> None:
    failed(owner)
    recovered(owner)
    owner.fetched(0, 0, 3)
    assert owner.poll() == [(0, 0, 3)]
    assert owner.poll() == [], "nor once nothing is left before it"


def test_a_recovery_of_an_older_position_is_none_of_this_one(owner: Script) -> None:
    failed(owner)
    recovered(owner, fetch_number=7)
    with pytest.raises(TopicAuthorizationFailedError):
        owner.poll()
