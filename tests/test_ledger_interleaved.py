"""`OffsetLedger` with another thread between any two steps of a call: every interleaving of two calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, product
from typing import Any

import pytest

from instride.ledger import OffsetLedger
from instride.records import ConsumerRecord, TopicPartition
from interleaving import Interleaving

PARTITIONS = (0, 1)
HERE = ("/instride/ledger.py", "/instride/_partition_ledger.py")
Call = Callable[["Scene"], object]


def record(partition: int, offset: int, epoch: int = 1) -> ConsumerRecord:
    return ConsumerRecord("t", partition, offset, epoch=epoch)


class Scene:
    """Two partitions with four records each, the first of which is finished; its commit is on its way. One failed."""

    def __init__(self) -> None:
        self.ledger = OffsetLedger()
        self.records = self.ledger.track([record(tp, offset) for tp in PARTITIONS for offset in range(4)])
        for tp in PARTITIONS:
            self.ledger.done(record(tp, 0))
        self.snapshot = self.ledger.committable()
        self.ledger.fail(record(1, 3), LookupError("another handler"))  # so that there is something to raise once

    def result(self, call: Call) -> str:
        """What the call returned, or raised."""
        try:
            return repr(call(self))
        except (LookupError, ValueError) as error:
            return repr(error)

    def end(self) -> tuple[Any, ...]:
        """What the ledger knows, and whether its parts agree once all that is left is finished."""
        ledger, partitions = self.ledger, [TopicPartition("t", tp) for tp in PARTITIONS]
        known = (
            ledger.in_progress(),
            tuple(ledger.in_progress(tp) for tp in partitions),
            {tp: entry.offset for tp, entry in ledger.committable().items()},
        )
        assert known[0] == sum(known[1]), "the sum is not that of its parts"
        for epoch in (1, 2):
            for tp in PARTITIONS:
                for offset in range(8):
                    ledger.done(record(tp, offset, epoch))
        rest = ledger.committable()
        for partition, entry in rest.entries.items():
            rest.settle(partition, entry, committed=True)
        assert (ledger.in_progress(), ledger.uncommitted(partitions)) == (0, set()), "something is never committed"
        return (*known, {tp: entry.offset for tp, entry in rest.items()})


def _settle(scene: Scene) -> None:
    """Of one partition: each is a call of its own."""
    tp = TopicPartition("t", 0)
    scene.snapshot.settle(tp, scene.snapshot.entries[tp], committed=True)


CALLS: dict[str, Call] = {
    "done": lambda scene: scene.ledger.done(record(0, 1)),
    "done of the next": lambda scene: scene.ledger.done(record(0, 2)),
    "fail": lambda scene: scene.ledger.fail(record(0, 3), LookupError("a handler")),
    "track": lambda scene: scene.ledger.track([record(tp, 4) for tp in PARTITIONS]),
    "track in a new epoch": lambda scene: scene.ledger.track([record(0, 1, epoch=2)]),
    "forget": lambda scene: scene.ledger.forget([TopicPartition("t", 0)]),
    "settle": _settle,
    "committable": lambda scene: {tp: entry.offset for tp, entry in scene.ledger.committable().items()},
    "uncommitted": lambda scene: scene.ledger.uncommitted([TopicPartition("t", tp) for tp in PARTITIONS]),
    "check": lambda scene: scene.ledger.check(),
}


def interleaved(first: Call, second: Call) -> Iterator[tuple[Any, ...]]:
    """What each interleaving of the two comes to: what they return or raise, and then the ledger."""
    for at in count():
        scene, results = Scene(), ["", ""]

        def result(place: int, call: Call, scene: Scene = scene, results: list[str] = results) -> None:
            results[place] = scene.result(call)

        both = Interleaving(HERE, {at: partial(result, 1, second)})
        scene.ledger._lock = both.lock()  # type: ignore[assignment]  # scripted
        both.run(partial(result, 0, first))
        if not both.called:
            return
        yield (*results, *scene.end())


def in_a_row(first: Call, second: Call) -> tuple[Any, ...]:
    scene = Scene()
    results = [scene.result(call) for call in (first, second)]
    return (*results, *scene.end())


@pytest.mark.drawn(12)
@pytest.mark.parametrize(("first", "second"), list(product(CALLS, CALLS)))
def test_wherever_two_calls_meet_it_is_as_if_one_had_come_after_the_other(first: str, second: str) -> None:
    one, other = CALLS[first], CALLS[second]
    earlier, later, *end = in_a_row(other, one)
    allowed = [in_a_row(one, other), (later, earlier, *end)]
    assert [found for found in interleaved(one, other) if found not in allowed] == []
