"""A fetch session (KIP-227) by itself: what a fetch says, and what follows from each response."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instride._core.network.fetcher import SESSION_ERRORS, FetchSession, FetchSessionState, next_epoch
from instride._wire import api
from instride.errors.codes import ErrorCode
from instride.testing._simulation.session_model import SessionModel

pytestmark = pytest.mark.part

A, B = UUID(int=1), UUID(int=2)


def part(number: int, offset: int = 0, topic_id: UUID = A) -> api.FetchPartition:
    return api.FetchPartition(topic="t", partition=number, offset=offset, topic_id=topic_id)


def numbers(partitions: tuple[api.FetchPartition, ...]) -> list[tuple[int, int]]:
    return [(each.partition, each.offset) for each in partitions]


class Session(FetchSession):
    """Remembers what it was requested last."""

    def __init__(self) -> None:
        super().__init__()
        self.last: set[api.Partition] = set()

    def of(self, wanted: Iterable[api.FetchPartition]) -> FetchSessionState:
        """A fetch of these and no others."""
        table = {(each.topic, each.partition): each for each in wanted}
        for key in self.last - table.keys():
            self.drop(key)
        for each in table.values():
            self.put(each)
        self.last = set(table)
        return self.ask()


def begun(*wanted: api.FetchPartition, session_id: int = 7) -> Session:
    session = Session()
    state = session.of(wanted)
    assert (state.session_id, state.session_epoch, state.partitions) == (0, 0, wanted)
    session.response_received(api.FetchResponse(session_id=session_id))
    return session


def test_only_what_is_new_or_has_moved_is_named_and_the_rest_is_known() -> None:
    session = begun(part(0), part(1), part(2))
    state = session.of([part(0, 5), part(1), part(3)])
    assert (state.session_id, state.session_epoch) == (7, 1)
    assert numbers(state.partitions) == [(0, 5), (3, 0)]
    assert numbers(state.forgotten) == [(2, 0)]
    assert {key[1] for key in state.known} == {0, 1, 3}
    session.response_received(api.FetchResponse(session_id=7))
    state = session.of([part(0, 5), part(1), part(3)])
    assert (state.session_epoch, state.partitions, state.forgotten) == (2, (), ())


def test_everything_is_named_again_when_that_is_requested() -> None:
    session = begun(part(0), part(1))
    state = session.ask(renew=True)
    assert (state.session_id, state.session_epoch, state.names_everything) == (7, 0, True)
    assert numbers(state.partitions) == [(0, 0), (1, 0)]
    session.response_received(api.FetchResponse(session_id=8))
    state = session.ask()
    assert (state.session_id, state.session_epoch, state.names_everything) == (8, 1, False)


def test_a_broker_that_makes_no_session_is_told_everything() -> None:
    session = begun(part(0), part(1), session_id=0)
    for _ in range(2):
        state = session.of([part(0), part(1)])
        assert (state.session_id, state.session_epoch) == (0, 0)
        assert numbers(state.partitions) == [(0, 0), (1, 0)]
        session.response_received(api.FetchResponse(session_id=0))
    assert not session.established


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 7),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 7),
        (ErrorCode.NONE, 7),
    ],
)
def test_after_an_error_everything_is_named_and_the_old_session_given_up(code: int, session_id: int) -> None:
    session = begun(part(0), part(1))
    session.of([part(0, 5), part(1)])
    at_once = session.failed(code)
    assert at_once == (code in SESSION_ERRORS)
    state = session.of([part(0, 5), part(1)])
    assert (state.session_id, state.session_epoch) == (session_id, 0)
    assert numbers(state.partitions) == [(0, 5), (1, 0)]
    assert not session.failed(70), "a fetch that names everything is not sent again at once"


def test_a_broker_that_ends_the_session_in_its_response_is_told_everything() -> None:
    session = begun(part(0))
    session.of([part(0, 1)])
    session.response_received(api.FetchResponse(session_id=0))
    state = session.of([part(0, 1)])
    assert (state.session_id, state.session_epoch, len(state.partitions)) == (0, 0, 1)


def test_a_session_names_topics_in_one_way_only() -> None:
    session = begun(part(0), part(1))
    state = session.of([part(0), part(1, topic_id=api.NO_TOPIC_ID)])
    assert (state.session_id, state.session_epoch, len(state.partitions), state.named) == (7, 0, 2, True)
    session.response_received(api.FetchResponse(session_id=8))
    state = session.of([part(0), part(1)])
    assert (state.session_id, state.session_epoch, len(state.partitions), state.named) == (8, 0, 2, False)


def test_a_session_that_began_with_names_says_so_where_nothing_is_named() -> None:
    session = begun(part(0, topic_id=api.NO_TOPIC_ID))
    state = session.of([part(0, topic_id=api.NO_TOPIC_ID)])
    assert (state.partitions, state.named, state.session_epoch) == ((), True, 1)


def test_a_topic_that_was_made_anew_begins_a_session() -> None:
    session = begun(part(0, 9), part(1))
    state = session.of([part(0, 0, B), part(1, 0, B)])
    assert (state.session_id, state.session_epoch) == (7, 0)
    assert numbers(state.partitions) == [(0, 0), (1, 0)]


def test_epochs_go_round() -> None:
    assert [next_epoch(each) for each in (0, 1, (1 << 31) - 2, (1 << 31) - 1)] == [1, 2, (1 << 31) - 1, 1]


def test_the_end_names_the_session_and_nothing_else() -> None:
    session = begun(part(0))
    state = session.end()
    assert (state.session_id, state.session_epoch, state.partitions, state.forgotten) == (7, -1, (), ())
    assert not session.established


partitions = st.dictionaries(st.integers(0, 5), st.integers(0, 3), max_size=6)


@pytest.mark.requirement("surface/fetch-sessions")
@given(rounds=st.lists(st.tuples(partitions, st.sampled_from(["ok", "lost response", "restart"])), max_size=12))
def test_a_broker_always_knows_what_is_wanted(rounds: list[tuple[dict[int, int], str]]) -> None:
    """Whatever goes wrong in between: the broker's session is what the client asks for, no more and no less."""
    session, broker = Session(), SessionModel(0)
    for wanted, event in rounds:
        if event == "restart":
            broker.forget_all()
        for _ in range(3):
            state = session.of([part(number, offset) for number, offset in wanted.items()])
            request = api.Fetch(
                partitions=state.partitions,
                forgotten=state.forgotten,
                known=state.known,
                named=state.named,
                session_id=state.session_id,
                session_epoch=state.session_epoch,
                max_wait=0.0,
                min_bytes=1,
                max_bytes=1,
            )
            requested = broker.ask(request, 0.0)
            if requested.error:
                assert session.failed(requested.error)
                continue
            assert {key[1]: each.offset for key, each in requested.partitions.items()} == wanted
            assert dict(state.known) == requested.partitions
            response = broker.response(requested, {}, 0.0)
            if event == "lost response":
                session.failed()
            else:
                session.response_received(response)
            break
        else:
            raise AssertionError("a fetch that names everything was refused")
