"""Questions of the application: each answered once, retried while that can help, ended in time with the obstacle."""

from __future__ import annotations

import pytest
from network_script import NetworkScript, tp

from instride.core.events import EARLIEST, Answered, FetchCommitted, FetchOffsets
from instride.errors import KafkaTimeoutError, TopicAuthorizationFailedError, TransportError
from instride.records import OffsetAndMetadata, TopicPartition
from instride.wire import api


@pytest.fixture
def script() -> NetworkScript:
    made = NetworkScript()
    made.committed_offset = None
    return made


def ask_committed(script: NetworkScript, *partitions: int, timeout: float = 10.0) -> None:
    asked = tuple(tp(p) for p in partitions or (0,))
    script.do(FetchCommitted(call=1, deadline=script.now + timeout, partitions=asked))
    script.pass_time(0.5)


def ask_offsets(script: NetworkScript, *partitions: TopicPartition, timeout: float = 10.0) -> None:
    script.do(FetchOffsets(call=2, deadline=script.now + timeout, timestamps=dict.fromkeys(partitions, EARLIEST)))
    script.pass_time(0.5)


def the_answer(script: NetworkScript) -> Answered:
    (answer,) = script.take(Answered)
    return answer


# --- committed offsets --------------------------------------------------------------------------------------


def test_committed_offsets_come_with_their_metadata_and_none_for_none(script: NetworkScript) -> None:
    ask_committed(script, 0, 1)
    offsets: dict[tuple[str, int], api.CommittedOffset] = {
        tp(0): api.CommittedOffset(offset=5, leader_epoch=2, metadata="by me"),
        tp(1): api.CommittedOffset(offset=-1),
    }
    script.answer(api.OffsetFetch, api.OffsetFetchAnswer(offsets=offsets))
    answer = the_answer(script)
    assert answer.call == 1
    assert answer.result == {tp(0): OffsetAndMetadata(offset=5, metadata="by me", leader_epoch=2), tp(1): None}


@pytest.mark.parametrize("code", [14, 15, 16, 88])
def test_a_passing_error_is_asked_again(script: NetworkScript, code: int) -> None:
    ask_committed(script)
    script.answer(api.OffsetFetch, api.OffsetFetchAnswer(error=code))
    assert script.take(Answered) == []
    script.pass_time(3.0)
    found: dict[tuple[str, int], api.CommittedOffset] = {tp(0): api.CommittedOffset(offset=5)}
    script.answer(api.OffsetFetch, api.OffsetFetchAnswer(offsets=found))
    assert the_answer(script).error is None


def test_a_broken_connection_is_asked_again(script: NetworkScript) -> None:
    ask_committed(script)
    script.answer(api.OffsetFetch, TransportError("gone"))
    script.pass_time(3.0)
    script.asked(api.OffsetFetch)


def test_a_final_error_is_answered_at_once(script: NetworkScript) -> None:
    ask_committed(script)
    script.answer(api.OffsetFetch, api.OffsetFetchAnswer(offsets={tp(0): api.CommittedOffset(error=29)}))
    assert isinstance(the_answer(script).error, TopicAuthorizationFailedError)


# --- offsets by time ----------------------------------------------------------------------------------------


def test_offsets_come_from_the_leaders(script: NetworkScript) -> None:
    ask_offsets(script, tp(0), tp(1))
    assert script.asked(api.ListOffsets).timestamps == {tp(0): EARLIEST, tp(1): EARLIEST}
    listed: dict[tuple[str, int], api.ListedOffset] = {
        tp(0): api.ListedOffset(offset=3),
        tp(1): api.ListedOffset(offset=4),
    }
    script.answer(api.ListOffsets, api.ListOffsetsAnswer(offsets=listed))
    answer = the_answer(script)
    assert (answer.call, answer.result) == (2, {tp(0): 3, tp(1): 4})


def test_only_what_is_missing_is_asked_again(script: NetworkScript) -> None:
    ask_offsets(script, tp(0), tp(1))
    listed: dict[tuple[str, int], api.ListedOffset] = {
        tp(0): api.ListedOffset(offset=3),
        tp(1): api.ListedOffset(error=6),
    }
    script.answer(api.ListOffsets, api.ListOffsetsAnswer(offsets=listed))
    script.pass_time(3.0)
    assert script.asked(api.ListOffsets).timestamps == {tp(1): EARLIEST}
    script.answer(api.ListOffsets, api.ListOffsetsAnswer(offsets={tp(1): api.ListedOffset(offset=4)}))
    assert the_answer(script).result == {tp(0): 3, tp(1): 4}


def test_one_final_error_answers_once(script: NetworkScript) -> None:
    ask_offsets(script, tp(0), tp(1))
    listed: dict[tuple[str, int], api.ListedOffset] = {
        tp(0): api.ListedOffset(error=29),
        tp(1): api.ListedOffset(error=29),
    }
    script.answer(api.ListOffsets, api.ListOffsetsAnswer(offsets=listed))
    assert isinstance(the_answer(script).error, TopicAuthorizationFailedError)


def test_a_leader_that_does_not_answer_is_asked_again(script: NetworkScript) -> None:
    ask_offsets(script, tp(0))
    script.answer(api.ListOffsets, TransportError("gone"))
    script.pass_time(3.0)
    script.asked(api.ListOffsets)


# --- the deadline -------------------------------------------------------------------------------------------


@pytest.mark.rule("T")
def test_a_question_that_gets_no_answer_ends_at_its_deadline(script: NetworkScript) -> None:
    ask_committed(script, timeout=10.0)
    script.pass_time(9.4)
    assert script.take(Answered) == []
    script.pass_time(0.2)
    assert isinstance(the_answer(script).error, KafkaTimeoutError)
    found: dict[tuple[str, int], api.CommittedOffset] = {tp(0): api.CommittedOffset(offset=5)}
    script.answer(api.OffsetFetch, api.OffsetFetchAnswer(offsets=found))
    assert script.take(Answered) == [], "once"


def test_the_deadline_names_the_last_obstacle_of_an_answer(script: NetworkScript) -> None:
    ask_committed(script, timeout=5.0)
    script.answer(api.OffsetFetch, api.OffsetFetchAnswer(error=14))
    script.pass_time(6.0)
    error = the_answer(script).error
    assert isinstance(error, KafkaTimeoutError)
    assert "CoordinatorLoadInProgressError" in str(error)
    assert type(error.__cause__).__name__ == "CoordinatorLoadInProgressError"


def test_the_deadline_names_a_cluster_that_was_never_reached(script: NetworkScript) -> None:
    script.reachable = False
    ask_committed(script, timeout=5.0)
    script.pass_time(6.0)
    error = the_answer(script).error
    assert isinstance(error, KafkaTimeoutError)
    assert "refused" in str(error)


def test_the_deadline_names_a_topic_without_leader(script: NetworkScript) -> None:
    ask_offsets(script, tp(0, "nowhere"), timeout=5.0)
    script.pass_time(6.0)
    error = the_answer(script).error
    assert isinstance(error, KafkaTimeoutError)
    assert "nowhere-0" in str(error)


def test_questions_do_not_wait_for_each_other(script: NetworkScript) -> None:
    ask_committed(script)
    ask_offsets(script, tp(1))
    script.answer(api.ListOffsets, api.ListOffsetsAnswer(offsets={tp(1): api.ListedOffset(offset=4)}))
    assert the_answer(script).call == 2
