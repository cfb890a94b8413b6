"""The end of a recorded test: its group goes on until all is done, so that the checker may ask for it (L3).

Laws
1. Nobody holds, pauses or keeps back a commit any more; what was written is to be returned and committed.
2. Where it is not done in time, nothing is raised here: the history says so, and the checker finds it.
3. A group is not asked where somebody else may have done the work: another client, or a consumer that is not watched.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from kafka_help import PATIENCE, Member
from peer_help import Peer

from instride import TopicPartition
from instride.testing import Recorder

__all__ = ["Course", "drain"]


@dataclass(slots=True)
class Course:
    """What a test has done so far.

    consumers: how many it opened; those in `members` are watched. ends: of the logs, as `fill` wrote them. drained:
    whether `drain` was let do it.
    """

    consumers: int = 0
    members: list[Member] = field(default_factory=list)
    peers: list[Peer] = field(default_factory=list)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    drained: bool = False


def drain(course: Course, history: Recorder) -> None:
    """Let what is left of the group come to its end, and tell what is committed then."""
    left = [each for each in course.members if not each.consumer._driver.closed]
    read = {topic for each in left for topic in each.consumer.subscription()}
    others = course.peers or course.consumers > len(course.members)
    if not course.ends or others or any(each.topic not in read for each in course.ends):
        return
    for each in left:
        each.commits = True
        each.holding.clear()
        each.consumer.resume(*each.consumer.paused())
    deadline = time.monotonic() + PATIENCE
    while (stored := _committed(left, course.ends)) != course.ends and time.monotonic() < deadline:
        for each in left:
            each.turn()
    history.stored(stored)
    course.drained = True


def _committed(left: Sequence[Member], ends: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """What they returned last is committed first."""
    for each in left:
        each.consumer.commit()
    found = left[0].consumer.committed(*ends)
    return {tp: each.offset for tp, each in found.items() if each is not None}
