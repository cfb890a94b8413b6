"""Records the history of a real application (docs/histories.md), for `instride.testing.check` to judge.

with Recorder(path, source="my application") as recorder:
    consumer = Consumer(...)
    member = recorder.watch(consumer, "a")
    ...                                      # use the consumer as ever
    member.done(record)                      # when the work on a record is finished
violations = recorder.check()

recorder, member, observer, peer    the file; who is recorded; what is seen of it; members with another client
"""

from __future__ import annotations

from instride.testing._recording.member import RecordedMember
from instride.testing._recording.peer import RecordedPeer
from instride.testing._recording.recorder import Recorder

__all__ = ["RecordedMember", "RecordedPeer", "Recorder"]
