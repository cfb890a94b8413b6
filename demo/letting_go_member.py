"""A member of the demo's group with confluent-kafka's consumer that does not wait in its revoke callback.

Laws
1. What is finished is committed. The jobs at work go on, and their partitions go: nobody waits, and the next owners
   do the same records once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from demo.confluent_member import THREADS, ConfluentMember, Lane
from demo.history import Note
from demo.member import Plan, main
from instride.testing import Recorder


class LettingGoMember(ConfluentMember):
    """Law 1 makes the difference."""

    def _before_release(self, moving: list[Lane]) -> None:
        self._commit_finished()
        for lane in moving:
            if lane.job is not None:
                reason = "its partition went before it was committed"
                self._history.add(self._app, Note.WORK_FAILED, lane.partition.partition, lane.first, reason)


@contextmanager
def member(plan: Plan, app: str, history: Recorder) -> Iterator[ConfluentMember]:
    plan.output.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(THREADS) as pool:
        yield LettingGoMember(plan, app, history, pool)


if __name__ == "__main__":
    main(member)
