"""Rule 15: a commit's response tells what the group has; one high-water mark, moved by what the broker accepted."""

from __future__ import annotations

from uuid import UUID

import pytest
from network_script import NetworkScript, tp

from instride._core.events import (
    EARLIEST,
    Assign,
    CallCompleted,
    Close,
    Commit,
    CompleteRevoke,
    Lost,
    MissingOffsets,
    Polled,
    RevocationRequested,
    Revoked,
    SetPosition,
    Unsubscribe,
)
from instride._core.network.actions import ConnectionKey, Role
from instride._wire import api
from instride.commits import CommitEntry, CommitResult
from instride.errors import (
    BrokerResponseError,
    CommitOvertakenError,
    CommitRewindError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    OffsetMetadataTooLargeError,
    ProtocolError,
    StaleCommitError,
    TransportError,
    UnsupportedVersionError,
)
from instride.records import OffsetAndMetadata

METADATA_TOO_LARGE = 12
UNKNOWN_TOPIC = 3
UNKNOWN_TOPIC_ID = 100
NOT_AUTHORIZED = 29
LOADING = 14
REBALANCE_IN_PROGRESS = 27
UNKNOWN_MEMBER_ID = 25
LEFT_OUT = -2


@pytest.fixture
def script() -> NetworkScript:
    made = NetworkScript()
    made.member_of(1, 0, 1)
    return made


def completions(script: NetworkScript) -> dict[int, CallCompleted]:
    found = script.take(CallCompleted)
    assert len({each.call for each in found}) == len(found), "each call completes once"
    return {each.call: each for each in found}


def error_of(script: NetworkScript, call: int) -> KafkaError | None:
    return completions(script)[call].committed[tp(0)]


def sent(script: NetworkScript) -> bool:
    return "OffsetCommit" in script.waits()


@pytest.mark.rule("15")
def test_what_the_broker_accepted_is_in_the_result(script: NetworkScript) -> None:
    call = script.commit({0: 5, 1: 6})
    script.committed()
    response = completions(script)[call]
    result = CommitResult(committed={tp(0): OffsetAndMetadata(offset=5), tp(1): OffsetAndMetadata(offset=6)})
    assert response.result == result
    assert response.result
    assert response.error is None


@pytest.mark.rule("15")
def test_one_behind_a_commit_that_the_broker_accepted_is_refused(script: NetworkScript) -> None:
    script.commit({0: 100})
    script.committed()
    script.take(CallCompleted)
    call = script.commit({0: 50}, by_hand=True)
    assert not sent(script)
    response = completions(script)[call]
    assert isinstance(response.error, CommitRewindError)
    assert (response.error.offset, response.error.committed) == (50, 100)
    assert not response.result
    again = script.commit({0: 100}, by_hand=True)
    assert script.committed() == {0: 100}, "the very same is no step back"
    assert error_of(script, again) is None


@pytest.mark.rule("15")
@pytest.mark.parametrize("end", [TransportError("gone"), api.OffsetCommitResponse(errors={tp(0): LOADING})])
def test_one_behind_a_commit_that_may_have_been_accepted_does_not_take_it_back(
    script: NetworkScript, end: Exception | api.OffsetCommitResponse
) -> None:
    """Nobody waits for the further one any more, and nobody knows what became of it: so it goes once more."""
    call = script.commit({0: 100}, timeout=1.0)
    script.pass_time(1.5)
    assert isinstance(error_of(script, call), KafkaTimeoutError)
    script.response(api.OffsetCommit, end)
    assert not sent(script), "no call waits for it"
    call = script.commit({0: 50}, by_hand=True)
    script.pass_time(5.0)
    assert script.committed() == {0: 100}
    response = completions(script)[call]
    assert isinstance(response.error, CommitRewindError)
    script.commit({0: 120})
    assert script.committed() == {0: 120}


@pytest.mark.rule("15")
def test_a_commit_that_never_left_this_machine_bars_no_other(script: NetworkScript) -> None:
    """Nobody may have accepted it: to send it in place of the later one would commit what its caller gave up."""
    script.reachable = False
    script.machine.closed(ConnectionKey(Role.COORDINATOR, 1), TransportError("the connection broke"), script.now)
    call = script.commit({0: 100}, timeout=2.0)
    script.pass_time(2.5)
    assert isinstance(error_of(script, call), KafkaTimeoutError)
    script.reachable = True
    call = script.commit({0: 50}, by_hand=True)
    script.pass_time(2.0)
    assert script.committed() == {0: 50}
    assert error_of(script, call) is None


@pytest.mark.rule("15")
def test_so_it_is_not_sent_where_its_connection_is_there_too_late(script: NetworkScript) -> None:
    """The coordinator is found again and again, and no connection to it opens: the pause before the next try grows."""
    for offset in range(10):
        script.reachable = False
        script.machine.closed(ConnectionKey(Role.COORDINATOR, 1), TransportError("the connection broke"), script.now)
        script.commit({0: offset}, timeout=0.3)
        script.pass_time(0.4)
        script.reachable = True
    script.pass_time(5.0)
    assert not sent(script)


@pytest.mark.rule("15")
@pytest.mark.parametrize("lost", ["first", "then"])
@pytest.mark.parametrize("end", [TransportError("gone"), LOADING, REBALANCE_IN_PROGRESS])
def test_without_a_final_response_nobody_says_that_it_was_not_committed(
    script: NetworkScript, end: Exception | int, lost: str
) -> None:
    script.pass_time(script.config.heartbeat_interval)
    call = script.commit({0: 5})
    response = end if isinstance(end, Exception) else api.OffsetCommitResponse(errors={tp(0): end})
    ends = [(api.OffsetCommit, response), (api.Heartbeat, api.HeartbeatResponse(error=UNKNOWN_MEMBER_ID))]
    for kind, each in ends if lost == "then" else reversed(ends):
        script.response(kind, each)
    error = error_of(script, call)
    assert isinstance(error, StaleCommitError)
    final = end == REBALANCE_IN_PROGRESS
    what = "was not committed: it" if final else "may not have been committed: "
    assert f"offset 5 of t-0 {what}" in str(error)
    assert any(what in line for line in script.logs)


@pytest.mark.rule("15")
@pytest.mark.parametrize("options", [{"seek_number": 1}, {"allow_rewind": True}])
def test_after_a_seek_what_may_have_been_accepted_is_no_bar(script: NetworkScript, options: dict[str, int]) -> None:
    script.commit({0: 100}, timeout=1.0)
    script.pass_time(1.5)
    script.response(api.OffsetCommit, TransportError("gone"))
    script.commit({0: 50}, by_hand=True, **options)
    script.pass_time(5.0)
    assert script.committed() == {0: 50}


@pytest.mark.rule("15")
def test_what_had_no_response_and_is_refused_then_is_no_bar_any_more(script: NetworkScript) -> None:
    script.commit({0: 100}, timeout=1.0)
    script.pass_time(1.5)
    script.response(api.OffsetCommit, TransportError("gone"))
    script.commit({0: 50})
    script.pass_time(5.0)
    assert script.committed(METADATA_TOO_LARGE) == {0: 100}
    script.pass_time(5.0)
    script.commit({0: 60})
    assert script.committed() == {0: 60}


@pytest.mark.rule("15")
@pytest.mark.parametrize(
    "code",
    [NOT_AUTHORIZED, ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR, LEFT_OUT],
)
def test_that_it_may_commit_no_more_says_nothing_of_what_had_no_response(script: NetworkScript, code: int) -> None:
    """The authorization may have been withdrawn after the broker accepted it; a failure is of this one attempt."""
    script.commit({0: 100}, timeout=1.0)
    script.pass_time(1.5)
    script.response(api.OffsetCommit, TransportError("gone"))
    script.commit({0: 50})
    script.pass_time(5.0)
    if code == LEFT_OUT:
        assert set(script.requested(api.OffsetCommit).offsets) == {tp(0)}
        script.response(api.OffsetCommit, api.OffsetCommitResponse(errors={}))
    else:
        assert script.committed(code) == {0: 100}
    script.pass_time(5.0)
    call = script.commit({0: 60}, by_hand=True)
    assert script.committed() == {0: 100}
    assert isinstance(error_of(script, call), CommitRewindError)


@pytest.mark.rule("15")
def test_that_the_group_has_members_says_nothing_of_what_had_no_response() -> None:
    """A member has joined the group since, and has left it when the next offset is committed."""
    script = NetworkScript()
    script.do(Assign(partitions={tp(0): 1}))
    script.commit({0: 100}, epoch=1, timeout=1.0)
    script.pass_time(1.5)
    script.response(api.OffsetCommit, TransportError("gone"))
    script.commit({0: 50}, epoch=1)
    script.pass_time(5.0)
    assert script.committed(UNKNOWN_MEMBER_ID) == {0: 100}
    script.pass_time(5.0)
    call = script.commit({0: 60}, epoch=1, by_hand=True)
    assert script.committed() == {0: 100}
    assert isinstance(error_of(script, call), CommitRewindError)


@pytest.mark.rule("15")
@pytest.mark.parametrize("options", [{"seek_number": 1}, {"allow_rewind": True}])
def test_after_a_seek_or_where_it_may_go_back_it_is_sent(script: NetworkScript, options: dict[str, int]) -> None:
    script.commit({0: 100})
    script.committed()
    call = script.commit({0: 50}, by_hand=True, **options)
    assert script.committed() == {0: 50}
    assert error_of(script, call) is None
    script.commit({0: 60}, seek_number=options.get("seek_number", 0))
    assert script.committed() == {0: 60}, "the mark went back, too"


@pytest.mark.rule("15")
@pytest.mark.parametrize("code", [METADATA_TOO_LARGE, NOT_AUTHORIZED])
def test_one_behind_a_commit_that_the_broker_refused_is_sent(script: NetworkScript, code: int) -> None:
    high = script.commit({0: 100}, by_hand=True)
    waiting = script.commit({0: 50}, by_hand=True)
    script.committed(code)
    script.pass_time(2.0)
    assert script.committed() == {0: 50}
    late = script.commit({0: 40}, by_hand=True)
    found = completions(script)
    assert isinstance(found[high].error, BrokerResponseError)
    assert found[waiting].error is None
    assert isinstance(found[late].error, CommitRewindError), "behind 50"


@pytest.mark.rule("15")
def test_one_behind_a_commit_that_is_under_way_waits_for_its_response(script: NetworkScript) -> None:
    script.commit({0: 100})
    call = script.commit({0: 50}, by_hand=True)
    assert script.take(CallCompleted) == []
    script.committed()
    assert not sent(script)
    assert isinstance(completions(script)[call].error, CommitRewindError)


@pytest.mark.rule("15")
def test_one_that_a_later_commit_overtook_says_so_and_is_no_error(script: NetworkScript) -> None:
    script.commit({1: 1})
    overtaken = script.commit({0: 5}, by_hand=True)
    newest = script.commit({0: 6}, by_hand=True)
    script.committed()
    assert script.committed() == {0: 6}
    found = completions(script)
    error = found[overtaken].result.not_committed[tp(0)]
    assert type(error) is CommitOvertakenError
    assert (error.offset, error.committed) == (5, 6)
    assert (found[overtaken].error, found[overtaken].result.committed) == (None, {})
    assert found[newest].result


@pytest.mark.rule("15")
def test_what_was_to_go_back_takes_what_waits_with_it(script: NetworkScript) -> None:
    script.commit({0: 100})
    script.committed()
    script.commit({1: 1})
    overtaken, back, on = script.commit({0: 120}), script.commit({0: 50}, allow_rewind=True), script.commit({0: 60})
    behind = script.commit({0: 55})
    script.committed()
    assert script.committed() == {0: 60}, "50 may lie behind 100, so what follows it may, too"
    found = completions(script)
    kinds = [type(found[call].committed[tp(0)]) for call in (overtaken, back, on, behind)]
    assert kinds == [CommitOvertakenError, CommitOvertakenError, type(None), CommitRewindError]


@pytest.mark.rule("15")
def test_who_was_behind_one_that_was_refused_may_be_overtaken_by_another(script: NetworkScript) -> None:
    script.commit({0: 100})
    call = script.commit({0: 50})
    script.commit({0: 70})
    script.committed(NOT_AUTHORIZED)
    script.pass_time(2.0)
    assert script.committed() == {0: 70}
    assert type(error_of(script, call)) is CommitOvertakenError, "100 never was the group's"


@pytest.mark.rule("15")
def test_a_commit_whose_connection_broke_is_sent_again_with_what_came_meanwhile(script: NetworkScript) -> None:
    first = script.commit({0: 100})
    behind = script.commit({0: 50})
    further = script.commit({1: 7})
    script.response(api.OffsetCommit, TransportError("gone"))
    script.pass_time(2.0)
    assert script.committed() == {0: 100, 1: 7}
    found = completions(script)
    assert found[first].result
    assert isinstance(found[behind].committed[tp(0)], CommitRewindError)
    assert found[further].result


@pytest.mark.rule("15")
def test_a_seek_makes_what_waits_stale(script: NetworkScript) -> None:
    script.commit({1: 1})
    before = script.commit({0: 100}, by_hand=True)
    script.commit({0: 20}, seek_number=1)
    script.committed()
    assert script.committed() == {0: 20}
    response = completions(script)[before]
    assert isinstance(response.error, StaleCommitError)
    assert "the group has 20" in str(response.error)


@pytest.mark.rule("15")
def test_who_waits_for_several_partitions_is_told_what_the_group_has_at_the_end(script: NetworkScript) -> None:
    script.commit({0: 5})
    both = script.commit({0: 5, 1: 9})
    kept = script.commit({0: 4, 1: 8}, by_hand=True)
    script.commit({0: 6})
    script.committed()
    script.committed()
    found = completions(script)
    error = found[both].result.not_committed[tp(0)]
    assert type(error) is CommitOvertakenError, "5 was the group's, and is not any more"
    assert error.committed == 6
    assert found[both].result.committed == {tp(1): OffsetAndMetadata(offset=9)}
    assert isinstance(found[kept].error, CommitRewindError)


# --- snapshots, positions and auto-commit: what nobody named --------------------------------------------------


@pytest.mark.rule("15")
def test_after_a_rewind_without_a_response_nobody_is_told_from_memory(script: NetworkScript) -> None:
    """The group has the rewind, or what was before it: so what is behind that is asked of the group."""
    script.commit({0: 100})
    script.committed()
    script.commit({0: 50}, allow_rewind=True, by_hand=True, timeout=1.0)
    script.pass_time(1.5)
    script.response(api.OffsetCommit, TransportError("connection reset"))
    script.take(CallCompleted)
    call = script.commit({0: 60})
    script.pass_time(5.0)
    assert script.committed() == {0: 100}
    assert isinstance(error_of(script, call), CommitOvertakenError)


@pytest.mark.rule("15")
def test_a_rewind_without_a_response_hides_nothing_that_may_be_further(script: NetworkScript) -> None:
    script.commit({0: 100})
    script.committed()
    for offset, rewinds in ((120, False), (50, True)):
        script.commit({0: offset}, allow_rewind=rewinds, by_hand=True, timeout=1.0)
        script.pass_time(1.5)
        script.response(api.OffsetCommit, TransportError("connection reset"))
        script.pass_time(5.0)
    script.commit({0: 60})
    assert script.committed() == {0: 120}


@pytest.mark.rule("15")
@pytest.mark.parametrize("code", [METADATA_TOO_LARGE, NOT_AUTHORIZED])
def test_a_rewind_that_is_refused_in_the_end_hides_nothing_that_is_further(script: NetworkScript, code: int) -> None:
    script.commit({0: 100})
    script.committed()
    script.commit({0: 50}, allow_rewind=True, by_hand=True)
    script.response(api.OffsetCommit, TransportError("connection reset"))
    script.pass_time(5.0)
    script.committed(code)
    script.commit({0: 70})
    script.pass_time(5.0)
    assert script.committed() == {0: 100}


@pytest.mark.rule("15")
def test_a_further_commit_that_is_refused_says_nothing_of_what_may_be_accepted(script: NetworkScript) -> None:
    script.commit({0: 100}, timeout=1.0)
    script.pass_time(1.5)
    script.response(api.OffsetCommit, TransportError("gone"))
    with_metadata(script, 2, 120, "x" * 5000)
    script.pass_time(5.0)
    assert script.committed(METADATA_TOO_LARGE) == {0: 120}
    script.pass_time(5.0)
    call = script.commit({0: 80}, by_hand=True)
    script.pass_time(5.0)
    assert script.committed() == {0: 100}
    assert isinstance(error_of(script, call), CommitRewindError)


@pytest.mark.rule("15")
def test_a_rewind_without_a_response_is_sent_again(script: NetworkScript) -> None:
    script.commit({0: 100})
    script.committed()
    call = script.commit({0: 50}, allow_rewind=True, by_hand=True)
    script.response(api.OffsetCommit, TransportError("connection reset"))
    script.pass_time(5.0)
    assert script.committed() == {0: 50}
    assert error_of(script, call) is None
    script.commit({0: 60})
    assert script.committed() == {0: 60}


@pytest.mark.rule("15")
def test_what_a_ledger_names_behind_the_mark_is_told_and_raises_nothing(script: NetworkScript) -> None:
    script.commit({0: 100}, by_hand=True)
    script.committed()
    script.take(CallCompleted)
    call = script.commit({0: 50})
    response = completions(script)[call]
    assert response.error is None
    assert isinstance(response.result.not_committed[tp(0)], CommitRewindError)


def hand_over(script: NetworkScript, call: int, *entries: CommitEntry) -> CallCompleted:
    """A snapshot's, of partition 0; partition 1 was stale."""
    dropped = {tp(1): StaleCommitError("offset 9 of t-1 was not committed: sought elsewhere")}
    offsets = {tp(0): entry for entry in entries}
    script.do(Commit(call=call, deadline=script.now + 60, entries=offsets, dropped=dropped))
    if sent(script):
        script.committed()
    return completions(script)[call]


@pytest.mark.rule("15")
def test_stale_entries_are_told_beside_what_was_committed(script: NetworkScript) -> None:
    entry = CommitEntry(offset=5, epoch=script.epoch(0), seek_number=0)
    response = hand_over(script, 1, entry)
    assert response.error is None
    assert not response.result
    assert response.result.committed == {tp(0): OffsetAndMetadata(offset=5)}
    assert isinstance(response.result.not_committed[tp(1)], StaleCommitError)


@pytest.mark.rule("15")
def test_a_commit_of_which_all_is_stale_is_no_success(script: NetworkScript) -> None:
    response = hand_over(script, 1)
    assert isinstance(response.error, StaleCommitError)
    assert response.result.committed == {}
    lost = script.commit({0: 5}, epoch=99)
    assert isinstance(completions(script)[lost].error, StaleCommitError), "let go of before it came down"


# --- refused for its metadata ----------------------------------------------------------------------------------


def with_metadata(script: NetworkScript, call: int, offset: int, metadata: str) -> int:
    entry = CommitEntry(offset=offset, epoch=script.epoch(0), seek_number=0, metadata=metadata)
    script.do(Commit(call=call, deadline=script.now + 60, entries={tp(0): entry}, by_hand=True))
    return call


def metadata_sent(script: NetworkScript) -> str:
    (found,) = script.requested(api.OffsetCommit).offsets.values()
    return found.metadata


@pytest.mark.rule("15")
def test_a_commit_of_which_only_the_metadata_changed_is_sent_and_the_newest_wins(script: NetworkScript) -> None:
    first = with_metadata(script, 1, 5, "one")
    assert metadata_sent(script) == "one"
    waiting, newest = with_metadata(script, 2, 5, "two"), with_metadata(script, 3, 5, "three")
    script.committed()
    assert metadata_sent(script) == "three"
    script.committed()
    with_metadata(script, 4, 5, "")
    assert metadata_sent(script) == "", "what was accepted with another text is sent too"
    script.committed()
    found = completions(script)
    assert found[first].result
    assert found[newest].result
    assert isinstance(found[waiting].committed[tp(0)], CommitOvertakenError), "the group never had its text"


@pytest.mark.rule("15")
def test_who_went_along_with_too_long_a_metadata_is_sent_by_itself(script: NetworkScript) -> None:
    script.commit({1: 1})
    low, plain = with_metadata(script, 1, 30, ""), with_metadata(script, 2, 50, "")
    middle = with_metadata(script, 3, 60, "x" * 6000)
    long = with_metadata(script, 4, 100, "x" * 5000)
    script.committed()
    assert script.committed(METADATA_TOO_LARGE) == {0: 100}
    script.pass_time(2.0)
    assert script.committed() == {0: 50}
    found = completions(script)
    assert found[plain].result
    assert isinstance(found[low].committed[tp(0)], CommitOvertakenError)
    for call, offset in ((middle, 60), (long, 100)):
        assert isinstance(found[call].error, OffsetMetadataTooLargeError)
        assert f"offset {offset} of t-0" in str(found[call].error)
    assert not sent(script)


@pytest.mark.rule("15")
def test_too_long_a_metadata_is_raised_before_what_else_refuses_a_commit(script: NetworkScript) -> None:
    """Else its writer never hears of it while the other partition is refused for good, and writes no less."""
    call = script.commit({0: 5, 1: 6})
    errors = {key: (NOT_AUTHORIZED, METADATA_TOO_LARGE)[key[1]] for key in script.requested(api.OffsetCommit).offsets}
    script.response(api.OffsetCommit, api.OffsetCommitResponse(errors=errors))
    response = completions(script)[call]
    assert isinstance(response.error, OffsetMetadataTooLargeError)
    assert len(response.result.not_committed) == 2


@pytest.mark.rule("15")
def test_who_is_behind_what_a_refused_commit_hid_is_told_so(script: NetworkScript) -> None:
    script.commit({1: 1})
    first = with_metadata(script, 1, 50, "")
    with_metadata(script, 2, 100, "x" * 5000)
    behind = with_metadata(script, 3, 40, "")
    script.committed()
    script.committed(METADATA_TOO_LARGE)
    script.pass_time(2.0)
    assert script.committed() == {0: 50}
    found = completions(script)
    assert found[first].result
    assert isinstance(found[behind].committed[tp(0)], CommitRewindError), "50 was committed before it, not after"


# --- where a partition began (rule 18) -------------------------------------------------------------------------


@pytest.fixture
def resetting() -> NetworkScript:
    """The group has no committed offsets."""
    made = NetworkScript()
    made.committed_offset = -1
    made.member_of(1, 0, 1)
    return made


def start(
    script: NetworkScript,
    call: int,
    offset: int,
    *,
    epoch: int | None = None,
    seek_number: int = 0,
    missing: MissingOffsets | None = None,
) -> int:
    entry = CommitEntry(offset=offset, epoch=script.epoch(0) if epoch is None else epoch, seek_number=seek_number)
    lacks = {} if missing is None else {tp(0): missing}
    script.do(Commit(call=call, deadline=script.now + 60, entries={tp(0): entry}, starts=True, missing=lacks))
    return call


@pytest.mark.rule("18")
def test_a_start_is_sent_where_nothing_else_was_and_bars_nothing(resetting: NetworkScript) -> None:
    script = resetting
    call = start(script, 1, 50)
    assert script.committed() == {0: 50}
    assert error_of(script, call) is None
    script.commit({0: 10}, by_hand=True)
    assert script.committed() == {0: 10}, "a user's own offset is what counts"


@pytest.mark.rule("18")
def test_a_start_never_replaces_a_commit(resetting: NetworkScript) -> None:
    script = resetting
    script.commit({0: 10})
    script.committed()
    call = start(script, 1, 50)
    assert not sent(script)
    assert isinstance(error_of(script, call), CommitOvertakenError)


@pytest.mark.rule("18")
def test_a_start_waits_for_what_is_under_way_and_gives_way_to_it(resetting: NetworkScript) -> None:
    script = resetting
    script.commit({1: 1})
    user = script.commit({0: 10})
    call = start(script, 1, 50)
    script.committed()
    assert script.committed() == {0: 10}
    assert not sent(script)
    found = completions(script)
    assert found[user].result
    assert isinstance(found[call].committed[tp(0)], CommitOvertakenError)


@pytest.mark.rule("18")
def test_a_start_is_sent_when_the_users_own_commit_is_refused(resetting: NetworkScript) -> None:
    script = resetting
    script.commit({0: 60})
    call = start(script, 1, 50)
    script.committed(METADATA_TOO_LARGE)
    script.pass_time(2.0)
    assert script.committed() == {0: 50}
    assert error_of(script, call) is None


@pytest.mark.rule("18")
def test_a_users_commit_takes_the_place_of_a_start_that_waits(resetting: NetworkScript) -> None:
    script = resetting
    script.commit({1: 1})
    call = start(script, 1, 50)
    script.committed(LOADING)
    assert start(script, 2, 50) == 2, "once more is nothing else"
    user, further = script.commit({0: 10}), script.commit({0: 60})
    script.pass_time(2.0)
    assert script.committed() == {0: 60, 1: 1}
    found = completions(script)
    kinds = [type(found[each].committed[tp(0)]) for each in (call, 2, user, further)]
    assert kinds == [CommitOvertakenError, CommitOvertakenError, CommitOvertakenError, type(None)]


@pytest.mark.rule("18")
def test_a_start_under_way_holds_up_a_revoke_and_is_given_up_with_the_partition(resetting: NetworkScript) -> None:
    script = resetting
    script.commit({1: 1})
    call = start(script, 1, 50)
    script.complete(0)
    assert script.committed() == {1: 1}
    assert script.machine.deadline() > script.now
    assert script.committed() == {0: 50}
    assert completions(script)[call].result
    gone = start(script, 3, 50, epoch=1)
    assert isinstance(error_of(script, gone), StaleCommitError)


@pytest.mark.rule("18")
def test_a_start_that_waits_ends_when_the_coordinator_refuses_and_at_its_deadline() -> None:
    script = NetworkScript()
    script.committed_offset = -1
    script.member_of(1, 0, 1)
    script.commit({1: 1}, timeout=500.0)
    entry = CommitEntry(offset=50, epoch=script.epoch(0), seek_number=0)
    script.do(Commit(call=1, deadline=script.now + 2, entries={tp(0): entry}, starts=True))
    script.pass_time(3.0)
    assert isinstance(error_of(script, 1), KafkaError)
    start(script, 2, 50)
    script.coordinator_error = 30
    script.response(api.OffsetCommit, TransportError("gone"))
    script.pass_time(3.0)
    assert isinstance(error_of(script, 2), KafkaError)


@pytest.mark.rule("18")
@pytest.mark.parametrize(
    ("found", "missing", "replaces"),
    [
        (10, MissingOffsets(10, 12), True),  # retention has deleted it
        (7, MissingOffsets(10, 12), True),  # and what lies before the position, which was not committed
        (12, MissingOffsets(10, 12), False),  # from elsewhere
        (100, MissingOffsets(10, 12), False),
        (10, MissingOffsets(10, 0), True),  # the log was cut
        (7, MissingOffsets(10, 0), False),  # the log may have that, however far it has grown since
    ],
)
def test_an_offset_that_the_log_lacks_is_replaced_by_the_new_start(
    resetting: NetworkScript, found: int, missing: MissingOffsets, replaces: bool
) -> None:
    script = resetting
    script.committed_offset = found
    call = start(script, 1, 100, missing=missing)
    assert script.committed() == {0: 100} if replaces else not sent(script)
    if not replaces:
        assert isinstance(error_of(script, call), CommitOvertakenError)


@pytest.mark.rule("18")
@pytest.mark.parametrize(("sought", "replaces"), [(0, True), (1, False)])
def test_so_is_what_this_very_member_committed_before_the_reset(
    resetting: NetworkScript, sought: int, replaces: bool
) -> None:
    """sought: the seek number of that commit; the reset's is 1. What was committed after it is right."""
    script = resetting
    script.do(SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=sought, fetch_number=1, offset=10))
    entry = CommitEntry(offset=10, epoch=script.epoch(0), seek_number=sought)
    script.do(Commit(call=1, deadline=script.now + 60, entries={tp(0): entry}))
    script.committed()
    script.committed_offset = 10
    start(script, 2, 100, missing=MissingOffsets(10, 12), seek_number=1)
    assert script.committed() == {0: 100} if replaces else not sent(script)


CUT = MissingOffsets(cut=50)


@pytest.fixture
def reading() -> NetworkScript:
    """The group has committed offsets."""
    made = NetworkScript()
    made.member_of(1, 0, 1)
    return made


def log_begins(script: NetworkScript, *offsets: int) -> None:
    """Of partitions 0, 1 and so on; -1: its leader does not know it."""
    listed: dict[api.Partition, api.ListedOffset] = {
        tp(each): api.ListedOffset(offset=offset, leader_epoch=4)
        if offset >= 0
        else api.ListedOffset(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for each, offset in enumerate(offsets)
    }
    assert set(script.requested(api.ListOffsets).timestamps.items()) == {(each, EARLIEST) for each in listed}
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets=listed))


def asks_leader(script: NetworkScript) -> bool:
    return "ListOffsets" in script.waits()


@pytest.mark.rule("18")
@pytest.mark.parametrize(
    ("found", "begin", "committed"),
    [
        (7, 12, 12),  # retention has taken it; nobody knows what from 12 to 50 is finished
        (12, 12, None),
        (49, 60, 60),  # and more, since the truncation
    ],
)
def test_after_a_truncation_the_leader_is_asked_where_the_log_begins(
    reading: NetworkScript, found: int, begin: int, committed: int | None
) -> None:
    script = reading
    script.committed_offset = found
    start(script, 1, 50, missing=CUT)
    assert not sent(script), "it waits for the leader"
    log_begins(script, begin)
    assert sent(script) == (committed is not None)
    if committed is not None:
        assert script.requested(api.OffsetCommit).offsets == {tp(0): api.OffsetToCommit(offset=begin, leader_epoch=4)}


@pytest.mark.rule("18")
@pytest.mark.parametrize(
    ("found", "begin", "committed"),
    [
        (-1, 12, 50),
        (-1, 60, 60),
        (50, 12, None),
        (60, 12, None),  # of before the truncation or after it: its leader epoch says it to the next owner
        (60, 70, 70),
    ],
)
def test_a_leader_is_asked_whatever_the_group_has(
    reading: NetworkScript, found: int, begin: int, committed: int | None
) -> None:
    script = reading
    script.committed_offset = found
    start(script, 1, 50, missing=CUT)
    log_begins(script, begin)
    assert script.committed() == {0: committed} if committed is not None else not sent(script)


@pytest.mark.rule("18")
def test_a_leader_is_asked_where_nothing_is_left_of_the_log(reading: NetworkScript) -> None:
    script = reading
    script.committed_offset = 7
    start(script, 1, 0, missing=MissingOffsets(cut=0))
    log_begins(script, 12)
    assert script.committed() == {0: 12}


@pytest.mark.rule("18")
@pytest.mark.parametrize(
    ("offset", "leader_epoch", "committed"),
    [(60, -1, 50), (60, 2, None), (50, -1, None)],
)
def test_an_own_commit_behind_a_truncation_counts_only_where_its_epoch_is_known(
    reading: NetworkScript, offset: int, leader_epoch: int, committed: int | None
) -> None:
    """Else the next owner begins there, behind what has taken the place of the records, and nobody notices."""
    script = reading
    entry = CommitEntry(offset=offset, epoch=script.epoch(0), seek_number=0, leader_epoch=leader_epoch)
    script.do(Commit(call=1, deadline=script.now + 60, entries={tp(0): entry}))
    script.committed()
    script.committed_offset = offset
    script.do(SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=1, fetch_number=1, offset=50))
    start(script, 2, 7, missing=CUT, seek_number=1)
    log_begins(script, 5)
    assert script.committed() == {0: committed} if committed is not None else not sent(script)


@pytest.mark.rule("18")
@pytest.mark.parametrize(("since", "committed"), [(0, None), (1, 0)])
def test_what_a_log_lacked_at_a_reset_says_nothing_of_what_was_committed_since(
    reading: NetworkScript, since: int, committed: int | None
) -> None:
    """The topic was recreated when 3 was read of it; the new log had that, too, and was truncated (by a simulation)."""
    script = reading
    entry = CommitEntry(offset=3, epoch=script.epoch(0), seek_number=0, leader_epoch=1)
    script.do(Commit(call=1, deadline=script.now + 60, entries={tp(0): entry}))
    script.committed()
    script.committed_offset = 3
    script.do(SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=2, fetch_number=2, offset=1))
    start(script, 2, 0, missing=MissingOffsets(3, 0, cut=1, since=since), seek_number=2)
    log_begins(script, 0)
    assert script.committed() == {0: committed} if committed is not None else not sent(script)


@pytest.mark.rule("18")
@pytest.mark.parametrize(("begin", "committed"), [(5, 50), (55, 55)])
def test_it_counts_for_nothing_either_while_another_commit_is_in_flight(
    reading: NetworkScript, begin: int, committed: int
) -> None:
    script = reading
    script.commit({0: 60})
    script.committed()
    script.committed_offset = 60
    script.do(SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=1, fetch_number=1, offset=50))
    script.commit({1: 5})
    start(script, 2, 7, missing=CUT, seek_number=1)
    log_begins(script, begin)
    assert script.committed() == {1: 5}
    assert script.committed() == {0: committed}


@pytest.mark.rule("18")
@pytest.mark.parametrize("since", [0, 1])
def test_what_was_committed_since_stands_while_another_commit_is_in_flight(reading: NetworkScript, since: int) -> None:
    script = reading
    script.do(SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=since, fetch_number=since, offset=0))
    entry = CommitEntry(offset=3, epoch=script.epoch(0), seek_number=since, leader_epoch=1)
    script.do(Commit(call=1, deadline=script.now + 60, entries={tp(0): entry}))
    script.committed()
    script.committed_offset = 3
    script.do(SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=2, fetch_number=2, offset=5))
    script.commit({1: 5})
    start(script, 2, 0, missing=MissingOffsets(3, 0, cut=5, since=since), seek_number=2)
    log_begins(script, 0)
    assert script.committed() == {1: 5}
    assert not sent(script)


@pytest.mark.rule("18")
@pytest.mark.parametrize("in_one_turn", [False, True])
def test_so_does_one_that_is_accepted_while_the_leader_is_asked(reading: NetworkScript, *, in_one_turn: bool) -> None:
    """It has no epoch and lies behind the truncation: where the log was truncated is committed, as if known at once.

    in_one_turn: the two responses come in one.
    """
    script = reading
    script.committed_offset = 7
    script.commit({0: 60})
    script.do(SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=1, fetch_number=1, offset=50))
    start(script, 2, 7, missing=CUT, seek_number=1)
    script.response(api.OffsetCommit, api.OffsetCommitResponse(errors={tp(0): 0}), settle=not in_one_turn)
    script.committed_offset = 60
    log_begins(script, 12)
    assert script.committed() == {0: 50}


@pytest.mark.rule("18")
def test_what_the_group_has_from_elsewhere_since_an_own_commit_is_asked_for(reading: NetworkScript) -> None:
    """The own one has no epoch and lies behind the truncation: the next owner would begin at the other one."""
    script = reading
    script.commit({0: 60})
    script.committed()
    script.committed_offset = 5
    script.do(SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=1, fetch_number=1, offset=50))
    start(script, 2, 50, missing=CUT, seek_number=1)
    log_begins(script, 12)
    assert script.committed() == {0: 12}


@pytest.mark.rule("18")
def test_who_waits_for_a_start_hears_what_was_committed_in_its_place(reading: NetworkScript) -> None:
    script = reading
    script.committed_offset = 7
    entries = {tp(each): CommitEntry(offset=50, epoch=script.epoch(each), seek_number=0) for each in (0, 1)}
    missing = dict.fromkeys(entries, CUT)
    script.do(Commit(call=1, deadline=script.now + 60, entries=entries, starts=True, missing=missing))
    log_begins(script, 12, 60)
    assert script.committed() == {0: 12, 1: 60}
    result = completions(script)[1].result
    assert isinstance(result, CommitResult)
    assert {each.partition: offset.offset for each, offset in result.committed.items()} == {0: 12, 1: 60}
    assert [line for line in script.logs if "in place of" in line] == [
        "offset 12 of t-0 was committed in place of 50: the log was truncated",
        "offset 60 of t-1 was committed in place of 50: the log was truncated",
    ]


@pytest.mark.rule("18")
@pytest.mark.parametrize("found", [-1, 7])
@pytest.mark.parametrize(("begin", "committed"), [(12, 40), (45, 45)])
def test_a_start_before_a_truncation_is_in_what_retention_has_left(
    reading: NetworkScript, found: int, begin: int, committed: int
) -> None:
    """found: of what the log lacked already when a reset led to the start."""
    script = reading
    script.committed_offset = found
    start(script, 1, 40, missing=MissingOffsets(7, 12, cut=50))
    log_begins(script, begin)
    assert script.committed() == {0: committed}


@pytest.mark.rule("18")
@pytest.mark.parametrize(("begin", "committed"), [(12, 12), (7, None)])
def test_after_a_truncation_retention_may_have_taken_this_members_own_commit(
    reading: NetworkScript, begin: int, committed: int | None
) -> None:
    script = reading
    script.commit({0: 10})
    script.committed()
    script.committed_offset = 10
    script.do(SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=1, fetch_number=1, offset=50))
    call = start(script, 2, 50, missing=CUT, seek_number=1)
    log_begins(script, begin)
    assert script.committed() == {0: committed} if committed is not None else not sent(script)
    error = error_of(script, call)
    assert error is None if committed is not None else isinstance(error, StaleCommitError)


@pytest.mark.rule("18")
def test_what_was_committed_since_the_truncation_asks_nobody(reading: NetworkScript) -> None:
    script = reading
    script.do(SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=1, fetch_number=1, offset=50))
    script.commit({0: 55}, seek_number=1)
    script.committed()
    start(script, 2, 50, missing=CUT, seek_number=1)
    assert not asks_leader(script)
    assert not sent(script)


@pytest.mark.rule("18")
def test_a_revoke_waits_a_second_for_the_leader_of_a_truncated_log(reading: NetworkScript) -> None:
    script = reading
    script.committed_offset = 7
    call = start(script, 1, 50, missing=CUT)
    script.pass_time(0.9)
    assert not script.take(CallCompleted)
    script.pass_time(0.2)
    assert_overtaken(script, call, 7)
    log_begins(script, 12)
    assert not sent(script), "it comes too late"


@pytest.mark.rule("18")
@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("kind", [Close, Unsubscribe])
def test_an_end_waits_for_that_leader_for_half_of_its_time(
    reading: NetworkScript, kind: type[Close | Unsubscribe], *, announced: bool
) -> None:
    """The rest is for the commits and for LeaveGroup. What follows an unsubscribe has its second again."""
    script = reading
    script.committed_offset = 7
    call, by = start(script, 1, 50, missing=CUT), script.now + 0.5
    if announced:
        script.do(CompleteRevoke(partitions={tp(0): script.epoch(0)}, leaving_by=by))
    else:
        script.do(kind(call=9, deadline=by))
    script.pass_time(0.2)
    assert not script.take(CallCompleted)
    script.pass_time(0.1)
    if announced:
        assert script.take(Revoked)
        script.do(kind(call=9, deadline=by))
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    found = completions(script)
    assert isinstance(found[call].committed[tp(0)], CommitOvertakenError)
    assert found[9].error is None
    if kind is Unsubscribe:
        script.do(Assign(partitions={tp(0): 9}))
        start(script, 2, 50, epoch=9, missing=CUT)
        script.pass_time(0.9)
        assert not script.take(CallCompleted)


@pytest.mark.rule("18")
@pytest.mark.parametrize("budget", [0.2, 0.5])
def test_so_does_a_revoke_that_completes_at_its_deadline(budget: float) -> None:
    """A silent leader makes no loss of a release."""
    script = NetworkScript(commit_budget=budget, max_poll_interval=30.0, session_timeout=60.0, heartbeat_interval=3.0)
    script.member_of(1, 0, 1)
    script.committed_offset = 7
    epoch = script.epoch(0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.join(2)
    script.sync(1)
    (requested,) = script.take(RevocationRequested)
    while script.now < requested.deadline - 0.05:
        alive(script, min(0.5, requested.deadline - 0.05 - script.now))
    start(script, 1, 50, epoch=epoch, missing=CUT)
    script.complete(0)
    for _ in range(20):
        alive(script, 0.05)
    assert script.take(Revoked)
    assert not script.take(Lost)


def alive(script: NetworkScript, seconds: float) -> None:
    script.do(Polled(at=script.now))
    script.pass_time(seconds)
    while "Heartbeat" in script.waits():
        script.response(api.Heartbeat, api.HeartbeatResponse())


@pytest.mark.rule("18")
@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.parametrize("found", [False, True])
def test_a_leader_that_cannot_be_asked_is_asked_once_it_is_known(
    reading: NetworkScript, *, leads: bool, found: bool
) -> None:
    """It leads no more, or there was none; within the second that a leader has for its response."""
    script = reading
    script.committed_offset = 7
    if not leads:
        script.leaders[0] = -1
        script.fresh_metadata()
    call = start(script, 1, 50, missing=CUT)
    if leads:
        log_begins(script, -1)
    assert not asks_leader(script)
    assert not script.take(CallCompleted)
    script.leaders[0] = 1 if found else -1
    script.pass_time(0.5)
    if found:
        log_begins(script, 12)
        assert script.committed() == {0: 12}
    else:
        script.pass_time(1.1)
        assert_overtaken(script, call, 7)


@pytest.mark.rule("18")
def test_the_beginnings_of_logs_with_one_leader_are_one_question(reading: NetworkScript) -> None:
    script = reading
    script.committed_offset = 7
    entries = {tp(each): CommitEntry(offset=50, epoch=script.epoch(each), seek_number=0) for each in (0, 1)}
    missing = dict.fromkeys(entries, CUT)
    script.do(Commit(call=1, deadline=script.now + 60, entries=entries, starts=True, missing=missing))
    log_begins(script, 12, 5)
    assert script.committed() == {0: 12}


@pytest.mark.rule("18")
def test_a_commit_comes_before_what_a_leader_says_of_a_start(reading: NetworkScript) -> None:
    script = reading
    script.committed_offset = 7
    start(script, 1, 50, missing=CUT)
    script.commit({0: 55})
    script.committed()
    log_begins(script, 12)
    assert not sent(script)


@pytest.mark.rule("15")
def test_starts_that_were_committed_are_told_so_whatever_was_before(resetting: NetworkScript) -> None:
    """A start is no commit that bars others, so what counts as accepted is older: the result said that the group has
    that (found by a simulation with retention)."""
    script = resetting
    script.do(SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=0, fetch_number=1, offset=10))
    script.commit({0: 10})
    script.committed()
    script.committed_offset = 10
    script.do(SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=1, fetch_number=2, offset=10))
    entries = {
        tp(0): CommitEntry(offset=100, epoch=script.epoch(0), seek_number=1),
        tp(1): CommitEntry(offset=7, epoch=script.epoch(1), seek_number=0),
    }
    missing = {tp(each): MissingOffsets(10, 12) for each in (0, 1)}
    script.do(Commit(call=9, deadline=script.now + 60, entries=entries, starts=True, missing=missing))
    assert script.committed() == {0: 100, 1: 7}
    assert completions(script)[9].committed == {tp(0): None, tp(1): None}


def assert_overtaken(script: NetworkScript, call: int, committed: int = 70) -> None:
    error = error_of(script, call)
    assert isinstance(error, CommitOvertakenError)
    assert error.committed == committed


@pytest.mark.rule("18")
def test_an_offset_that_the_group_has_from_elsewhere_is_kept(resetting: NetworkScript) -> None:
    script = resetting
    script.committed_offset = 70  # a transactional producer's, since the partition began
    call = start(script, 1, 50)
    assert not sent(script)
    assert_overtaken(script, call)


@pytest.mark.rule("18")
def test_a_start_that_must_be_sent_again_is_asked_about_again(resetting: NetworkScript) -> None:
    script = resetting
    call = start(script, 1, 50)
    script.committed(LOADING)
    script.committed_offset = 70  # a transactional producer's, meanwhile
    script.pass_time(2.0)
    assert not sent(script)
    assert_overtaken(script, call)


@pytest.mark.rule("18")
def test_a_start_that_the_group_has_though_its_response_was_lost_is_no_others(resetting: NetworkScript) -> None:
    script = resetting
    call = start(script, 1, 50)
    script.committed_offset = 50
    script.response(api.OffsetCommit, TransportError("gone"))
    script.pass_time(2.0)
    assert script.committed() == {0: 50}
    assert error_of(script, call) is None


@pytest.mark.rule("18")
def test_a_start_of_which_the_group_cannot_tell_holds_up_no_other(resetting: NetworkScript) -> None:
    script = resetting
    script.committed_offset = None
    entries = {tp(p): CommitEntry(offset=50, epoch=script.epoch(p), seek_number=0) for p in (0, 1)}
    script.do(Commit(call=1, deadline=script.now + 60, entries=entries, starts=True))
    unstable = api.CommittedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    offsets: dict[api.Partition, api.CommittedOffset] = {tp(0): api.CommittedOffset(offset=-1), tp(1): unstable}
    script.response(api.OffsetFetch, api.OffsetFetchResponse(offsets=offsets))
    script.pass_time(2.0)
    assert script.committed() == {0: 50}


@pytest.mark.rule("18")
def test_a_start_that_cannot_be_sent_at_once_is_asked_about_again(resetting: NetworkScript) -> None:
    script = resetting
    script.commit({1: 1})
    call = start(script, 1, 50)
    script.response(api.OffsetCommit, TransportError("gone"))
    script.committed_offset = 70
    script.pass_time(2.0)
    assert script.committed() == {1: 1}
    assert not sent(script)
    assert isinstance(error_of(script, call), CommitOvertakenError)


@pytest.mark.rule("18")
def test_a_start_that_begins_amid_a_join_and_sync_is_asked_about_after_them(resetting: NetworkScript) -> None:
    """Between the two responses the broker takes no commit of this member; of a producer it does."""
    script = resetting
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.join(2)
    call = start(script, 1, 50)
    script.committed_offset = 70  # a transactional producer's, meanwhile
    script.sync(0, 1)
    assert not sent(script)
    assert_overtaken(script, call)


@pytest.mark.rule("18")
def test_what_was_known_of_a_start_amid_a_join_and_sync_is_asked_again(resetting: NetworkScript) -> None:
    script = resetting
    script.committed_offset = None
    call = start(script, 1, 50)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.join(2)
    fetched(script)
    script.committed_offset = 70  # a transactional producer's, meanwhile
    script.sync(0, 1)
    assert not sent(script)
    assert_overtaken(script, call)


@pytest.mark.rule("18")
@pytest.mark.parametrize("known", ["before it", "after it"])
def test_what_was_asked_of_a_start_before_a_rebalance_says_nothing_after_it(
    resetting: NetworkScript, known: str
) -> None:
    """known: when the response came. While another commit is under way nobody looked at the start."""
    script = resetting
    script.committed_offset = None
    script.commit({1: 1})
    call = start(script, 1, 50)
    if known == "before it":
        fetched(script)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.join(2)
    script.committed_offset = 70  # a transactional producer's, meanwhile
    script.sync(0, 1)
    if known == "after it":
        fetched(script)
    assert script.committed() == {1: 1}
    assert not sent(script)
    assert_overtaken(script, call)


@pytest.mark.rule("18")
def test_nor_of_a_start_that_is_next_after_a_large_commit(resetting: NetworkScript) -> None:
    """It is free, and its place was in a request that is full."""
    script = resetting
    script.committed_offset = None
    script.commit({1: 1})
    large = CommitEntry(offset=2, epoch=script.epoch(1), seek_number=0, metadata="x" * (600 << 10))
    script.do(Commit(call=2, deadline=script.now + 60, entries={tp(1): large}))
    call = start(script, 1, 50)
    fetched(script)
    assert script.committed() == {1: 1}
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.join(2)
    script.committed_offset = 70  # a transactional producer's, meanwhile
    script.sync(0, 1)
    assert script.committed() == {1: 2}
    assert not sent(script)
    assert isinstance(error_of(script, call), CommitOvertakenError)


@pytest.mark.rule("18")
def test_a_start_to_be_sent_again_waits_for_no_response_of_a_lost_coordinator() -> None:
    """By hand nothing else looks for the coordinator."""
    script = NetworkScript()
    script.committed_offset = -1
    script.do(Assign(partitions={tp(0): 1, tp(1): 1}))
    start(script, 1, 50, epoch=1)
    script.committed_offset = None
    entry = CommitEntry(offset=60, epoch=1, seek_number=0)
    script.do(Commit(call=2, deadline=script.now + 60, entries={tp(1): entry}, starts=True))
    script.coordinator_error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    script.committed(ErrorCode.NOT_COORDINATOR)
    script.pass_time(2.0)
    assert "OffsetFetch" in script.waits()
    assert isinstance(error_of(script, 1), BrokerResponseError)


@pytest.mark.rule("18")
def test_a_start_that_waits_for_its_turn_in_vain_is_asked_about_again(resetting: NetworkScript) -> None:
    """It waits for a back-off; before that is over a rebalance comes."""
    script = resetting
    script.committed_offset = None
    script.pass_time(script.config.heartbeat_interval)
    script.commit({1: 1})
    call = start(script, 1, 50)
    script.committed(LOADING)
    fetched(script)
    script.response(api.Heartbeat, api.HeartbeatResponse(error=REBALANCE_IN_PROGRESS))
    script.join(2)
    script.committed_offset = 70  # a transactional producer's, meanwhile
    script.sync(0, 1)
    script.pass_time(2.0)
    assert script.committed() == {1: 1}
    assert_overtaken(script, call)


@pytest.mark.rule("18")
def test_a_start_that_waits_for_a_lease_is_asked_about_again() -> None:
    script = NetworkScript(session_timeout=10.0)
    script.committed_offset = -1
    script.member_of(1, 0, 1)
    script.committed_offset = None
    call = start(script, 1, 50)
    script.pass_time(11.0)
    assert not script.lease.holds(script.now)
    fetched(script)
    assert not sent(script)
    script.committed_offset = 70  # a transactional producer's, meanwhile
    script.response(api.Heartbeat, api.HeartbeatResponse())
    assert script.lease.holds(script.now)
    assert not sent(script)
    assert_overtaken(script, call)


@pytest.mark.rule("17")
def test_starts_go_though_another_commit_is_refused_again_and_again(resetting: NetworkScript) -> None:
    """What is known of them holds for as long as its back-off lasts."""
    script = resetting
    script.committed_offset = None
    script.commit({1: 1})
    call = start(script, 1, 50)
    script.committed(LOADING)
    fetched(script)
    script.pass_time(2.0)
    assert script.committed() == {0: 50, 1: 1}
    assert error_of(script, call) is None


@pytest.mark.rule("12")
def test_a_start_ends_with_its_partition_and_holds_up_no_close(resetting: NetworkScript) -> None:
    script = resetting
    script.committed_offset = None
    call = start(script, 1, 50)
    script.do(Unsubscribe(call=8, deadline=script.now + 2))
    script.pass_time(3.0)
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    script.do(Close(call=9, deadline=script.now + 30))
    script.pass_time(0.5)
    found = completions(script)
    assert isinstance(found[call].committed[tp(0)], StaleCommitError)
    assert found[9].error is None


@pytest.mark.rule("18")
def test_a_member_that_leaves_joins_once_more_for_its_start(resetting: NetworkScript) -> None:
    script = resetting
    call = start(script, 1, 50)
    script.do(Close(call=9, deadline=script.now + 30))
    script.committed(REBALANCE_IN_PROGRESS)
    script.committed_offset = None
    script.join(2)
    assert "OffsetFetch" not in script.waits(), "asked when it can be sent: meanwhile another may commit"
    script.sync(0, 1)
    script.pass_time(2.0)
    fetched(script)
    assert script.committed() == {0: 50}
    assert error_of(script, call) is None


def fetched(script: NetworkScript, *, error: int = 0, of_partition: int = 0) -> None:
    offsets: dict[tuple[str, int], api.CommittedOffset] = {}
    if not error:
        offsets[tp(0)] = api.CommittedOffset(offset=-1, error=of_partition)
    script.response(api.OffsetFetch, api.OffsetFetchResponse(error=error, offsets=offsets))


@pytest.mark.rule("18")
def test_while_nobody_knows_what_the_group_has_it_is_asked_again(resetting: NetworkScript) -> None:
    script = resetting
    script.committed_offset = None
    call = start(script, 1, 50)
    script.response(api.OffsetFetch, TransportError("gone"))
    script.pass_time(1.5)
    fetched(script, error=ErrorCode.NOT_COORDINATOR)
    script.pass_time(1.5)
    fetched(script, of_partition=88)  # of a transaction that has not ended yet
    script.pass_time(2.0)
    assert not sent(script)
    fetched(script)
    assert script.committed() == {0: 50}
    assert error_of(script, call) is None


@pytest.mark.rule("18")
def test_a_response_of_many_starts_that_may_be_known_later_backs_off_once() -> None:
    script = NetworkScript()
    script.committed_offset = -1
    script.member_of(1, 0, 1, 2, 3)
    script.committed_offset = None
    entries = {tp(p): CommitEntry(offset=50, epoch=script.epoch(p), seek_number=0) for p in range(4)}
    script.do(Commit(call=1, deadline=script.now + 60, entries=entries, starts=True))
    unstable: dict[api.Partition, api.CommittedOffset]
    unstable = dict.fromkeys(entries, api.CommittedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT))
    script.response(api.OffsetFetch, api.OffsetFetchResponse(offsets=unstable))
    script.pass_time(script.config.retry_backoff + 0.01)
    assert len(script.requested(api.OffsetFetch).partitions or ()) == 4


@pytest.mark.rule("18")
def test_what_is_let_go_of_while_the_group_is_asked_is_not_sent(resetting: NetworkScript) -> None:
    script = resetting
    script.committed_offset = None
    entry = CommitEntry(offset=50, epoch=script.epoch(0), seek_number=0)
    script.do(Commit(call=1, deadline=script.now + 2, entries={tp(0): entry}, starts=True))
    script.pass_time(3.0)
    assert isinstance(error_of(script, 1), KafkaTimeoutError)
    fetched(script)
    assert not sent(script)


@pytest.mark.rule("18")
def test_a_user_who_commits_while_the_group_is_asked_comes_first(resetting: NetworkScript) -> None:
    script = resetting
    script.committed_offset = None
    call = start(script, 1, 50)
    user = script.commit({0: 10})
    fetched(script)
    assert script.committed() == {0: 10}
    assert not sent(script)
    found = completions(script)
    assert found[user].result
    assert isinstance(found[call].committed[tp(0)], CommitOvertakenError)


@pytest.mark.rule("18")
@pytest.mark.parametrize(("error", "of_partition"), [(0, 29), (0, -1), (30, 0)])
def test_what_will_not_be_known_holds_up_no_revoke(resetting: NetworkScript, error: int, of_partition: int) -> None:
    script = resetting
    script.committed_offset = None
    call = start(script, 1, 50)
    fetched(script, error=error, of_partition=of_partition)
    assert isinstance(completions(script)[call].error, BrokerResponseError)
    assert not sent(script)


@pytest.mark.rule("18")
@pytest.mark.parametrize("code", [UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID])
def test_nor_does_the_start_of_a_topic_that_is_gone(resetting: NetworkScript, code: int) -> None:
    """After MISSING_GRACE, and when the metadata say so too."""
    script = resetting
    script.committed_offset = None
    del script.topics["t"]
    call = start(script, 1, 50)
    asked_for(script, 4.75, code)
    assert completions(script) == {}, "a broker that has just started may not know its topics yet"
    asked_for(script, 1.5, code)
    assert isinstance(error_of(script, call), BrokerResponseError)
    assert not sent(script)
    assert len([line for line in script.logs if "offset 50 of t-0 was not committed" in line]) == 1


@pytest.mark.rule("18")
@pytest.mark.parametrize("code", [UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID])
def test_a_coordinator_that_does_not_know_a_topic_yet_loses_no_start(resetting: NetworkScript, code: int) -> None:
    script = resetting
    script.committed_offset = None
    call = start(script, 1, 50)
    asked_for(script, 20.0, code)
    fetched(script)
    assert script.committed() == {0: 50}
    assert error_of(script, call) is None


def asked_for(script: NetworkScript, seconds: float, code: int) -> None:
    """The coordinator does not know the topic, whenever it is asked what the group has."""
    end = script.now + seconds
    while script.now < end:
        if "OffsetFetch" in script.waits():
            fetched(script, of_partition=code)
        if "Heartbeat" in script.waits():
            script.response(api.Heartbeat, api.HeartbeatResponse())
        script.pass_time(0.25)


@pytest.mark.rule("18")
def test_the_id_of_a_start_that_another_assign_left_behind_is_asked_for_anew() -> None:
    """Nothing else follows its topic any more."""
    script = NetworkScript(topics={"t": 1, "u": 1})
    script.topic_ids = {"t": UUID(int=1)}
    script.committed_offset = -1
    script.do(Assign(partitions={tp(0): 1}))
    script.committed_offset = None
    start(script, 1, 50, epoch=1)
    script.do(Assign(partitions={tp(0, "u"): 2}))
    old = next(each.request for each in script.waiting if isinstance(each.request, api.OffsetFetch))
    assert old.topic_ids == {"t": UUID(int=1)}
    fetched(script, of_partition=UNKNOWN_TOPIC_ID)
    script.pass_time(2.0)
    asked = [each.request for each in script.waiting if isinstance(each.request, api.OffsetFetch)]
    assert [each.topic_ids for each in asked if tp(0) in (each.partitions or ())] == [{}]


@pytest.mark.rule("18")
def test_one_damaged_response_loses_no_start(resetting: NetworkScript) -> None:
    script = resetting
    script.committed_offset = None
    call = start(script, 1, 50)
    script.response(api.OffsetFetch, ProtocolError("damaged"))
    script.pass_time(2.0)
    fetched(script)
    assert script.committed() == {0: 50}
    assert error_of(script, call) is None


@pytest.mark.rule("18")
@pytest.mark.parametrize("errors", [[ProtocolError("damaged")] * 2, [UnsupportedVersionError("none in common")]])
def test_one_that_is_never_readable_holds_up_no_revoke(resetting: NetworkScript, errors: list[Exception]) -> None:
    script = resetting
    script.committed_offset = None
    call = start(script, 1, 50)
    for error in errors:
        assert completions(script) == {}
        script.response(api.OffsetFetch, error)
        script.pass_time(2.0)
    assert isinstance(error_of(script, call), ProtocolError)
    assert "OffsetFetch" not in script.waits()
    assert any("offset 50 of t-0 was not committed" in line for line in script.logs)


@pytest.mark.rule("completing")
def test_what_fails_for_good_at_a_revoke_is_logged_with_its_partition(script: NetworkScript) -> None:
    """Of auto-commit, or a start, no caller hears it."""
    call = script.commit({1: 5})
    script.complete(1)
    script.response(api.OffsetCommit, ProtocolError("damaged"))
    lines = [line for line in script.logs if "offset 5 of t-1" in line]
    assert len(lines) == 1
    assert "may not have been committed" in lines[0], "the broker has had it"
    assert isinstance(completions(script)[call].error, ProtocolError)


@pytest.mark.rule("18")
def test_who_may_not_read_the_group_hears_so(resetting: NetworkScript) -> None:
    script = resetting
    script.committed_offset = None
    start(script, 1, 50)
    script.coordinator_error = 30
    script.response(api.OffsetFetch, TransportError("gone"))
    script.pass_time(3.0)
    assert isinstance(error_of(script, 1), KafkaError)


# --- the work of a turn follows the partitions (rule 20) ---------------------------------------------------------


class Counted(float):
    """A deadline that counts how often somebody looks at it."""

    looks = 0

    def _look(self) -> None:
        Counted.looks += 1

    def __lt__(self, other: float) -> bool:
        self._look()
        return super().__lt__(other)

    def __le__(self, other: float) -> bool:
        self._look()
        return super().__le__(other)

    def __gt__(self, other: float) -> bool:
        self._look()
        return super().__gt__(other)

    def __ge__(self, other: float) -> bool:
        self._look()
        return super().__ge__(other)


def counted_commits(script: NetworkScript, first: int, number: int) -> None:
    for call in range(first, first + number):
        entries = {tp(each): CommitEntry(offset=call, epoch=script.epoch(each), seek_number=0) for each in (0, 1)}
        script.machine.handle(Commit(call=call, deadline=Counted(script.now + 60), entries=entries), script.now)


@pytest.mark.rule("15")
def test_the_work_of_a_turn_in_an_outage_follows_the_partitions_and_not_the_calls(script: NetworkScript) -> None:
    script.commit({0: 1, 1: 1}, timeout=5000.0)
    counted_commits(script, 2000, 20_000)
    script.response(api.OffsetCommit, TransportError("gone"))
    script.settle()
    for _ in range(20):
        Counted.looks = 0
        script.pass_time(0.2)
        if sent(script):
            script.committed(LOADING)
        assert Counted.looks < 200, "a few looks for each tick, whoever waits"
    script.pass_time(1.1)
    assert script.committed() == {0: 21_999, 1: 21_999}
    found = completions(script)
    assert len(found) == 20_001
    overtaken = [each for each in found.values() if isinstance(each.committed[tp(0)], CommitOvertakenError)]
    assert len(overtaken) == 20_000


@pytest.mark.rule("20")
@pytest.mark.parametrize("ends", ["accepted", "lost", "closed"])
def test_the_results_of_an_outage_arrive_in_events_by_partition_and_not_by_call(
    script: NetworkScript, ends: str
) -> None:
    script.commit({0: 1, 1: 1}, timeout=5000.0)
    script.commit({0: 2, 1: 2}, timeout=5000.0)
    counted_commits(script, 2000, 253)
    script.take(CallCompleted)
    before = script.events
    if ends == "accepted":
        script.committed()
        assert script.committed() == {0: 2252, 1: 2252}
    elif ends == "lost":
        script.heartbeat(UNKNOWN_MEMBER_ID)
        script.response(api.OffsetCommit, TransportError("gone"))
    else:
        script.response(api.OffsetCommit, TransportError("gone"))
        script.do(Close(call=7000, deadline=script.now + 1.0))
        script.pass_time(1.1)
    assert len(completions(script)) >= 255
    assert script.events - before < 10


def test_deadlines_of_what_has_its_response_are_forgotten() -> None:
    script = NetworkScript(session_timeout=1800.0, max_poll_interval=1800.0, request_timeout=1000.0)
    script.member_of(1, 0, 1)
    deadline = script.now + 400.0
    stuck = script.commit({1: 1}, timeout=400.0)
    for number in range(1, 90):
        script.commit({0: number}, timeout=deadline - script.now)
        request = script.requested(api.OffsetCommit)
        errors = {each: LOADING if each == tp(1) else 0 for each in request.offsets}
        script.response(api.OffsetCommit, api.OffsetCommitResponse(errors=errors))
        script.pass_time(2.0)
    assert len(script.take(CallCompleted)) == 88, "the last one waits with the one that is stuck"
    script.pass_time(deadline - script.now)
    found = completions(script)
    assert len(found) == 2
    assert isinstance(found[stuck].committed[tp(1)], KafkaTimeoutError)
