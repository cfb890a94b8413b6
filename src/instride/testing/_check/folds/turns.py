"""A member's turns: time as the member itself passes it, for machines on which seconds mean nothing.

Laws
1. A beat is a poll's return with a heartbeat response of the member since its last beat: both of its threads, and the
   coordinator, have been at work in between. Where heartbeats are not told there are none, and so no turns.
2. A turn, for what has records to read, is a beat whose poll returned no record at all; or a poll with a record that
   was written after the last turn. (Polls may well bring many records of others that were fetched before: a member
   with a slow user is no worse than a quick one.)
3. What is paused, or sought, or was returned, is not passed over.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection

from instride.records import TopicPartition
from instride.testing._check.assignment import Assignment
from instride.testing._check.events import Event
from instride.testing._check.history_state import HistoryState
from instride.testing._check.steps import Passed

__all__ = ["count_turns"]


def count_turns(state: HistoryState, event: Event, paused: Collection[TopicPartition]) -> None:
    """A poll has returned; its deliveries are in the state, what it says of revokes is not yet."""
    who = event.who
    beat = state.heartbeat_responses[who] > state.beat_at.get(who, 0)
    state.beat_at[who] = state.heartbeat_responses[who]
    turn = (beat and not event.detail[0]) or _brings_news(state, event)
    for each in list(state.live[who].values()):
        if each.requested and beat:
            _revoke_is_pending(state, event, each)
        elif _has_to_wait(each) and each.partition not in paused:
            if turn:
                each.passed += 1
                state.ask("passed over", Passed(event, each, each.passed))
        else:
            each.passed = 0
    if turn:
        state.turn_at[who] = event.time


def _has_to_wait(each: Assignment) -> bool:
    return each.waiting_since is not None and each.next is not None and not each.requested


def _brings_news(state: HistoryState, event: Event) -> bool:
    """Law 2."""
    if not state.heartbeat_responses[event.who]:
        return False
    since = state.turn_at.get(event.who, float("-inf"))
    return any(_written_at(state, partition, last) > since for partition, _, _, _, last, _ in event.detail[0])


def _written_at(state: HistoryState, partition: TopicPartition, offset: int) -> float:
    """When it was told that the log has it; before everything where it was not."""
    ends = state.produced.get(partition, [])
    place = bisect_right(ends, (offset, float("inf")))
    return ends[place][1] if place < len(ends) else float("-inf")


def _revoke_is_pending(state: HistoryState, event: Event, each: Assignment) -> None:
    if each.deadline is not None and event.time > each.deadline:
        each.overdue += 1
        state.ask("overdue", Passed(event, each, each.overdue))
    commits = state.in_flight[each.who].values()
    released = each.undelayed and each.partition not in event.detail[1]
    if released and not any(each.partition in offsets for offsets in commits):
        each.passed += 1
        state.ask("not let go of", Passed(event, each, each.passed))
