"""The transition tables, over the full product of states and inputs."""

from __future__ import annotations

import itertools

import pytest

from instride._core import ownership
from instride._core.network.coordinator import (
    TRANSITIONS,
    CoordinatorInput,
    CoordinatorState,
    next_coordinator_state,
)
from instride._core.network.group import TRANSITIONS as GROUP_TRANSITIONS
from instride._core.network.group import GroupInput, GroupState, next_group_state
from instride._core.ownership import (
    IllegalTransitionError,
    Ownership,
    OwnershipInput,
    RebalanceProtocol,
    next_ownership,
)


@pytest.mark.parametrize("protocol", RebalanceProtocol)
def test_every_pair_has_a_row_or_raises(protocol: RebalanceProtocol) -> None:
    for state, event in itertools.product(Ownership, OwnershipInput):
        if (state, event) in ownership.TRANSITIONS[protocol]:
            assert isinstance(next_ownership(protocol, state, event), Ownership)
        else:
            with pytest.raises(IllegalTransitionError, match=f"{event.name} in {state.name}"):
                next_ownership(protocol, state, event)


@pytest.mark.parametrize("protocol", RebalanceProtocol)
def test_the_ends_are_final(protocol: RebalanceProtocol) -> None:
    for state in (Ownership.REVOKED, Ownership.LOST):
        assert not [row for row in ownership.TRANSITIONS[protocol] if row[0] is state]


@pytest.mark.parametrize("protocol", RebalanceProtocol)
def test_any_state_but_the_ends_can_be_lost(protocol: RebalanceProtocol) -> None:
    for state in set(Ownership) - {Ownership.REVOKED, Ownership.LOST}:
        assert next_ownership(protocol, state, OwnershipInput.LOST) is Ownership.LOST


@pytest.mark.rule("8")
@pytest.mark.parametrize("state", [Ownership.REVOKE_NEXT, Ownership.REVOKE_THEREAFTER])
def test_giving_back_is_where_the_protocols_differ(state: Ownership) -> None:
    back = OwnershipInput.REASSIGNED
    assert next_ownership(RebalanceProtocol.EAGER, state, back) is Ownership.OWNED
    assert next_ownership(RebalanceProtocol.COOPERATIVE, state, back) is Ownership.OWNED
    assert next_ownership(RebalanceProtocol.CONSUMER, state, back) is state


def test_the_protocols_differ_nowhere_else() -> None:
    tables = ownership.TRANSITIONS
    for pair in set(tables[RebalanceProtocol.EAGER]) - {
        (Ownership.REVOKE_NEXT, OwnershipInput.REASSIGNED),
        (Ownership.REVOKE_THEREAFTER, OwnershipInput.REASSIGNED),
    }:
        assert len({tables[protocol][pair] for protocol in RebalanceProtocol}) == 1


def test_a_group_that_is_lost_is_unjoined_from_every_state() -> None:
    for state in GroupState:  # UNJOINED as well: who was given an id leaves without ever having joined
        assert next_group_state(state, GroupInput.LOST) is GroupState.UNJOINED


@pytest.mark.requirement("threading/18")
@pytest.mark.requirement("threading/19")
@pytest.mark.requirement("threading/21")
def test_the_groups_way() -> None:
    state = GroupState.UNJOINED
    way = []
    for event in (GroupInput.JOIN, GroupInput.JOINED, GroupInput.SYNCED, GroupInput.TAKEN, GroupInput.JOIN):
        state = next_group_state(state, event)
        way.append(state.name)
    assert way == [
        "PREPARING_REBALANCE",
        "COMPLETING_REBALANCE",
        "ASSIGNING_PARTITIONS",
        "STABLE",
        "PREPARING_REBALANCE",
    ]


def test_every_pair_of_the_group_has_a_row_or_raises() -> None:
    for state, event in itertools.product(GroupState, GroupInput):
        if (state, event) not in GROUP_TRANSITIONS:
            with pytest.raises(IllegalTransitionError):
                next_group_state(state, event)


def test_every_pair_of_the_coordinator_has_a_row_or_raises() -> None:
    for state, event in itertools.product(CoordinatorState, CoordinatorInput):
        if (state, event) not in TRANSITIONS:
            with pytest.raises(IllegalTransitionError, match=f"{event.name} in {state.name}"):
                next_coordinator_state(state, event)


@pytest.mark.requirement("threading/8")
@pytest.mark.requirement("threading/10")
@pytest.mark.requirement("threading/11")
def test_the_coordinators_way() -> None:
    table = TRANSITIONS
    state = CoordinatorState.DOWN
    way = []
    for event in (
        CoordinatorInput.STARTED,
        CoordinatorInput.NEEDED,
        CoordinatorInput.FAILED,
        CoordinatorInput.NEEDED,
        CoordinatorInput.FOUND,
        CoordinatorInput.LOST,
        CoordinatorInput.CLOSED,
    ):
        state = table[state, event]
        way.append(state.name)
    assert way == [
        "INITIALIZED",
        "COORDINATOR_DISCOVERY",
        "INITIALIZED",
        "COORDINATOR_DISCOVERY",
        "STABLE",
        "INITIALIZED",
        "DOWN",
    ]
