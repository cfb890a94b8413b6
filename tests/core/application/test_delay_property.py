"""`delay_revoke`, for every mixture of partitions in every state, in every order, up to four at once (rule 6)."""

from __future__ import annotations

from itertools import chain, combinations, combinations_with_replacement, permutations

import pytest
from application_script import Script, epochs, tp

from instride._core.events import CompleteRevoke, Revoked

OWNED, REASSIGNED = "owned", "reassigned"
NEXT, DELAYED = "to be revoked", "delayed"
COMPLETING, REVOKED, LOST, LOSS_WAITS, LATE = "completing", "revoked", "lost", "its loss is queued", "past its deadline"
STATES = (OWNED, REASSIGNED, NEXT, DELAYED, COMPLETING, REVOKED, LOST, LOSS_WAITS, LATE)
REFUSED = frozenset({COMPLETING, REVOKED, LOST, LOSS_WAITS, LATE})

MIXTURES = [
    *chain.from_iterable(combinations_with_replacement(STATES, size) for size in (1, 2, 3)),
    *combinations_with_replacement((OWNED, NEXT, DELAYED, COMPLETING, LOST), 4),
]
DEADLINE = 50.0


def in_states(states: tuple[str, ...]) -> Script:
    """Partition 0 is in the first of the states, and so on."""

    def which(*wanted: str) -> list[int]:
        return [number for number, state in enumerate(states) if state in wanted]

    script = Script()
    script.subscribe()
    script.assigned(*range(len(states)))
    script.poll()
    script.revocation_requested(*which(*set(STATES) - {OWNED, LATE}))
    script.revocation_requested(*which(LATE), deadline=script.now + DEADLINE)
    script.poll()
    pending = set(which(*set(STATES) - {OWNED}))
    script.delay(*pending - set(which(REVOKED)))
    script.poll()
    pending -= set(which(REVOKED))
    script.delay(*pending - set(which(COMPLETING)))
    script.up(Revoked(partitions=epochs(*which(REVOKED))))
    script.reassigned(*which(REASSIGNED))
    script.lost(*which(LOST))
    script.poll()
    script.delay(*which(DELAYED))
    script.lost(*which(LOSS_WAITS))
    script.now += DEADLINE
    script.take_posted(CompleteRevoke)
    return script


def ordered_subsets(size: int) -> list[tuple[int, ...]]:
    subsets = chain.from_iterable(combinations(range(size), count) for count in range(size + 1))
    return [order for subset in subsets for order in permutations(subset)]


def delay(script: Script, wanted: tuple[int, ...]) -> bool:
    return script.machine.delay_revoke([tp(number) for number in wanted], now=script.now)


@pytest.mark.requirement("KIP-983/23")
@pytest.mark.rule("6")
@pytest.mark.parametrize("states", MIXTURES, ids=", ".join)
def test_any_mixture_in_any_order(states: tuple[str, ...]) -> None:
    """The others are delayed, whatever is refused beside them; a call that raises changes nothing."""
    for wanted in ordered_subsets(len(states)):
        script = in_states(states)
        requested = [states[number] for number in wanted]
        if OWNED in requested:
            with pytest.raises(ValueError, match="did not ask for"):
                delay(script, wanted)
        else:
            assert delay(script, wanted) is REFUSED.isdisjoint(requested), wanted
        after_the_call(script, states, frozenset() if OWNED in requested else frozenset(wanted))


def after_the_call(script: Script, states: tuple[str, ...], delayed: frozenset[int]) -> None:
    """What the lists say now, and what the next poll completes and leaves."""
    pending = {number for number, state in enumerate(states) if state in (NEXT, LATE, LOSS_WAITS)}
    thereafter = {number for number, state in enumerate(states) if state == DELAYED}
    queued = {number for number, state in enumerate(states) if state == LOSS_WAITS}
    assert script.to_be_revoked() - queued == pending - delayed - queued
    script.poll()
    completed = [each.partition for event in script.take_posted(CompleteRevoke) for each in event.partitions]
    assert sorted(completed) == sorted(pending - delayed - queued)
    assert script.to_be_revoked() == (pending & delayed - queued) | thereafter
    assert script.lost_partitions() == queued
