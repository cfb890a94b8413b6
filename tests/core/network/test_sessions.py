"""Fetch sessions (KIP-227): what a fetch says, and what follows from each answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_script import NetworkScript, tp

from instride.core.events import Close, Fetched, Parked, Pause
from instride.core.network.actions import ConnectionKey, Role
from instride.core.network.ranges import RangeChunk
from instride.core.network.sessions import FetchSession, next_epoch
from instride.errors import TransportError
from instride.testing.simulation.session_model import SessionModel
from instride.wire import api

A, B = UUID(int=1), UUID(int=2)


def part(number: int, offset: int = 0, topic_id: UUID = A) -> api.FetchPartition:
    return api.FetchPartition(topic="t", partition=number, offset=offset, topic_id=topic_id)


def numbers(partitions: tuple[api.FetchPartition, ...]) -> list[tuple[int, int]]:
    return [(each.partition, each.offset) for each in partitions]


def begun(*wanted: api.FetchPartition, session_id: int = 7) -> FetchSession:
    session = FetchSession()
    said = session.ask(wanted)
    assert (said.session_id, said.session_epoch, said.partitions) == (0, 0, wanted)
    session.answered(api.FetchAnswer(session_id=session_id))
    return session


def test_only_what_is_new_or_has_moved_is_named_and_the_rest_is_known() -> None:
    session = begun(part(0), part(1), part(2))
    said = session.ask([part(0, 5), part(1), part(3)])
    assert (said.session_id, said.session_epoch) == (7, 1)
    assert numbers(said.partitions) == [(0, 5), (3, 0)]
    assert numbers(said.forgotten) == [(2, 0)]
    assert {key[1] for key in said.known} == {0, 1, 3}
    session.answered(api.FetchAnswer(session_id=7))
    said = session.ask([part(0, 5), part(1), part(3)])
    assert (said.session_epoch, said.partitions, said.forgotten) == (2, (), ())


def test_a_broker_that_makes_no_session_is_told_everything() -> None:
    session = begun(part(0), part(1), session_id=0)
    for _ in range(2):
        said = session.ask([part(0), part(1)])
        assert (said.session_id, said.session_epoch) == (0, 0)
        assert numbers(said.partitions) == [(0, 0), (1, 0)]
        session.answered(api.FetchAnswer(session_id=0))
    assert not session.established


@pytest.mark.parametrize(("code", "session_id"), [(70, 0), (71, 7), (106, 7), (-1, 7), (0, 7)])
def test_after_an_error_everything_is_named_and_the_old_session_given_up(code: int, session_id: int) -> None:
    session = begun(part(0), part(1))
    session.ask([part(0, 5), part(1)])
    at_once = session.failed(code)
    assert at_once == (code in (70, 71, 106))
    said = session.ask([part(0, 5), part(1)])
    assert (said.session_id, said.session_epoch) == (session_id, 0)
    assert numbers(said.partitions) == [(0, 5), (1, 0)]
    assert not session.failed(70), "a fetch that names everything is not sent again at once"


def test_a_broker_that_ends_the_session_in_its_answer_is_told_everything() -> None:
    session = begun(part(0))
    session.ask([part(0, 1)])
    session.answered(api.FetchAnswer(session_id=0))
    said = session.ask([part(0, 1)])
    assert (said.session_id, said.session_epoch, len(said.partitions)) == (0, 0, 1)


def test_a_session_names_topics_in_one_way_only() -> None:
    session = begun(part(0), part(1))
    said = session.ask([part(0), part(1, topic_id=api.NO_TOPIC_ID)])
    assert (said.session_id, said.session_epoch, len(said.partitions), said.named) == (7, 0, 2, True)
    session.answered(api.FetchAnswer(session_id=8))
    said = session.ask([part(0), part(1)])
    assert (said.session_id, said.session_epoch, len(said.partitions), said.named) == (8, 0, 2, False)


def test_a_session_that_began_with_names_says_so_where_nothing_is_named() -> None:
    session = begun(part(0, topic_id=api.NO_TOPIC_ID))
    said = session.ask([part(0, topic_id=api.NO_TOPIC_ID)])
    assert (said.partitions, said.named, said.session_epoch) == ((), True, 1)


def test_a_topic_that_was_made_anew_begins_a_session() -> None:
    session = begun(part(0, 9), part(1))
    said = session.ask([part(0, 0, B), part(1, 0, B)])
    assert (said.session_id, said.session_epoch) == (7, 0)
    assert numbers(said.partitions) == [(0, 0), (1, 0)]


def test_epochs_go_round() -> None:
    assert [next_epoch(each) for each in (0, 1, (1 << 31) - 2, (1 << 31) - 1)] == [1, 2, (1 << 31) - 1, 1]


def test_the_end_names_the_session_and_nothing_else() -> None:
    session = begun(part(0))
    said = session.end()
    assert (said.session_id, said.session_epoch, said.partitions, said.forgotten) == (7, -1, (), ())
    assert not session.established


partitions = st.dictionaries(st.integers(0, 5), st.integers(0, 3), max_size=6)


@pytest.mark.requirement("surface/fetch-sessions")
@given(rounds=st.lists(st.tuples(partitions, st.sampled_from(["ok", "lost answer", "restart"])), max_size=12))
def test_a_broker_always_knows_what_is_wanted(rounds: list[tuple[dict[int, int], str]]) -> None:
    """Whatever goes wrong in between: the broker's session is what the client asks for, no more and no less."""
    session, broker = FetchSession(), SessionModel(0)
    for wanted, event in rounds:
        if event == "restart":
            broker.forget_all()
        for _ in range(3):
            said = session.ask([part(number, offset) for number, offset in wanted.items()])
            request = api.Fetch(
                partitions=said.partitions,
                forgotten=said.forgotten,
                known=said.known,
                named=said.named,
                session_id=said.session_id,
                session_epoch=said.session_epoch,
                max_wait=0.0,
                min_bytes=1,
                max_bytes=1,
            )
            asked = broker.ask(request, 0.0)
            if asked.error:
                assert session.failed(asked.error)
                continue
            assert {key[1]: each.offset for key, each in asked.partitions.items()} == wanted
            assert dict(said.known) == asked.partitions
            answer = broker.answer(asked, {}, 0.0)
            if event == "lost answer":
                session.failed()
            else:
                session.answered(answer)
            break
        else:
            raise AssertionError("a fetch that names everything was refused")


# --- in the fetcher -----------------------------------------------------------------------------------------


class Fetching(NetworkScript):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.topic_ids = {"t": A}
        self.member_of(1, 0, 1)

    def reply(self, *, session_id: int = 7, error: int = 0, throttle_time: float = 0.0, **records: int) -> None:
        """p0=3: three records of partition 0."""
        request = next(each.request for each in self.waiting if isinstance(each.request, api.Fetch))
        known = {each.partition: each for each in (*request.known.values(), *request.partitions)}
        found: dict[api.Partition, api.FetchedPartition] = {
            tp(int(name[1:])): self.chunk(int(name[1:]), known[int(name[1:])].offset, count)
            for name, count in records.items()
        }
        answer = api.FetchAnswer(error=error, session_id=session_id, partitions=found, throttle_time=throttle_time)
        self.answer(api.Fetch, answer)

    def chunk(self, partition: int, start: int, count: int) -> api.FetchedPartition:
        chunk = RangeChunk(topic="t", partition=partition, first_offset=start, next_offset=start + count)
        end = start + count
        return api.FetchedPartition(chunk=chunk if count else None, next_offset=end, high_watermark=end)  # type: ignore[arg-type]

    def request(self) -> api.Fetch:
        return self.asked(api.Fetch)


@pytest.mark.requirement("surface/fetch-sessions")
def test_the_second_fetch_names_only_what_has_moved() -> None:
    script = Fetching()
    assert (script.request().session_id, script.request().session_epoch) == (0, 0)
    script.reply(p0=3, p1=0)
    request = script.request()
    assert (request.session_id, request.session_epoch) == (7, 1)
    assert numbers(request.partitions) == [(0, 3)]
    script.reply(p1=2)
    assert numbers(script.request().partitions) == [(1, 2)]
    assert [(each.partition.partition, each.next_offset) for each in script.take(Fetched)] == [(0, 3), (1, 2)]


def test_what_is_paused_is_forgotten() -> None:
    script = Fetching()
    script.reply(p0=0, p1=0)
    script.do(Pause(partition=tp(0), epoch=script.epoch(0), fetch_number=1))
    script.reply()
    assert numbers(script.request().forgotten) == [(0, 0)]
    assert set(script.request().known) == {tp(1)}


@pytest.mark.requirement("surface/fetch-sessions")
@pytest.mark.parametrize("code", [70, 71, 106])
def test_a_lost_session_is_made_anew_at_once_and_nobody_hears_of_it(code: int) -> None:
    script = Fetching()
    script.reply(p0=3, p1=0)
    script.reply(error=code)
    request = script.request()
    assert (request.session_id, request.session_epoch) == (0 if code == 70 else 7, 0)
    assert sorted(numbers(request.partitions)) == [(0, 3), (1, 0)]
    assert script.take(Parked) == []


def test_a_broker_that_refuses_every_session_is_not_asked_without_a_pause() -> None:
    script = Fetching()
    script.reply(error=71)
    assert "Fetch" not in script.waits()
    script.pass_time(1.0)
    assert script.request().session_epoch == 0


def test_a_broken_connection_costs_the_session() -> None:
    script = Fetching()
    script.reply(p0=3, p1=0)
    script.answer(api.Fetch, TransportError("gone"))
    script.pass_time(1.0)
    assert (script.request().session_id, script.request().session_epoch) == (7, 0)


def test_each_lane_has_a_session_of_its_own() -> None:
    script = Fetching()
    script.reply(p0=0, p1=0)
    found = replace(script.chunk(0, 0, 1), high_watermark=100)
    script.answer(api.Fetch, api.FetchAnswer(session_id=7, partitions={tp(0): found}))
    lanes = {each.key.role: each.request for each in script.waiting if isinstance(each.request, api.Fetch)}
    assert (lanes[Role.DATA].session_id, lanes[Role.DATA].session_epoch) == (0, 0)
    assert (lanes[Role.TAIL].session_id, numbers(lanes[Role.TAIL].forgotten)) == (7, [(0, 0)])


def test_a_topic_that_was_made_anew_is_asked_for_in_a_new_session() -> None:
    script = Fetching()
    script.reply(p0=3, p1=0)
    script.topic_ids = {"t": B}
    script.fresh_metadata()
    script.reply(p0=1)
    assert [each.next_offset for each in script.take(Fetched)] == [3], "of the old topic"
    assert "Fetch" not in script.waits(), "both wait for their reset"


@pytest.mark.requirement("surface/fetch-sessions")
def test_closing_tells_the_broker_to_forget_and_fetches_no_more() -> None:
    script = Fetching()
    script.reply(p0=3, p1=0)
    script.do(Close(call=1, deadline=script.now + 5.0))
    fetches = [each.request for each in script.waiting if isinstance(each.request, api.Fetch)]
    assert (fetches[-1].session_id, fetches[-1].session_epoch, fetches[-1].partitions) == (7, -1, ())
    script.reply(p0=1)
    assert len([each for each in script.waiting if isinstance(each.request, api.Fetch)]) == 1


def test_closing_without_a_session_says_nothing() -> None:
    script = Fetching()
    script.reply(session_id=0, p0=3, p1=0)
    script.do(Close(call=1, deadline=script.now + 5.0))
    assert [each for each in script.waiting if isinstance(each.request, api.Fetch)][1:] == []


# --- quotas (KIP-219) ---------------------------------------------------------------------------------------


@pytest.mark.requirement("surface/throttling")
def test_a_broker_that_throttles_is_not_asked_before_its_time() -> None:
    script = Fetching()
    script.reply(throttle_time=3.0, session_id=0)
    assert script.take(Parked) == []
    script.pass_time(2.9)
    assert "Fetch" not in script.waits()
    script.pass_time(0.2)
    assert sorted(numbers(script.request().partitions)) == [(0, 0), (1, 0)]


@pytest.mark.requirement("surface/throttling")
def test_what_a_throttled_answer_brings_is_taken() -> None:
    script = Fetching()
    script.reply(throttle_time=1.0, p0=3)
    assert [each.next_offset for each in script.take(Fetched)] == [3]
    assert "Fetch" not in script.waits()
    script.pass_time(1.1)
    assert script.request().session_epoch == 1


# --- connections of brokers that have gone --------------------------------------------------------------------


def test_connections_to_brokers_that_left_the_metadata_are_closed() -> None:
    script = NetworkScript()
    script.nodes, script.leaders = (1, 2), {0: 1, 1: 2}
    script.member_of(1, 0, 1)
    tail = ConnectionKey(Role.TAIL, 2)
    assert tail in script.open
    script.nodes, script.leaders = (1,), {0: 1, 1: 1}
    script.fresh_metadata()
    script.pass_time(1.0)
    assert tail not in script.open
    assert all(each.key.node_id == 1 for each in script.waiting)
    assert "Fetch" in script.waits()
