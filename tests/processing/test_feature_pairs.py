"""Every pair of a `Processor`'s features together, in virtual time: hand-overs, a loss, a crash, an outage.

However they are combined: every record is finished, by its handler, a dead letter or a skip; once where nothing was
lost and nobody crashed; in the order of its key; with no more calls than its attempts; and the commits end behind the
last.
`INSTRIDE_FEATURE_SEEDS=0:500 pytest tests/processing/test_feature_pairs.py` plays more.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations, count, product
from typing import Any, Final

import pytest
from awaited import awaited_store

from instride import (
    CircuitBreaker,
    ConsumerRecord,
    DatabaseStore,
    DeadLetter,
    OutputRecord,
    Processor,
    ProcessorKit,
    Retry,
)

FEATURES: Final[dict[str, tuple[Any, ...]]] = {
    "order": ("partition", "key", "none"),
    "form": ("plain", "coroutine"),
    "attempts": (1, 3),
    "after": ("dead-letter", "skip"),
    "max_batch": (0, 4),
    "output": (False, True),
    "middleware": (False, True),
    "store": (False, True),
    "timeout": (None, 5.0),
    "breaker": (False, True),
    "story": ("calm", "handed over", "lost", "crashed"),
}
Case = dict[str, Any]
_numbers = count()


def is_possible(case: Case) -> bool:
    return not (case.get("store") and (case.get("output") or case.get("order", "partition") != "partition"))


def cases(seed: int) -> list[Case]:
    """So many that each pair of values that may be together is in one; chosen by the seed."""
    chance = random.Random(seed)
    names = list(FEATURES)
    left = {
        ((one, a), (two, b))
        for one, two in combinations(names, 2)
        for a, b in product(FEATURES[one], FEATURES[two])
        if is_possible({one: a, two: b})
    }
    found: list[Case] = []
    while left:
        wanted = dict(chance.choice(sorted(left, key=repr)))
        tried = [{name: wanted.get(name, chance.choice(FEATURES[name])) for name in names} for _ in range(40)]
        possible = [case for case in tried if is_possible(case)]
        if possible:
            best = max(possible, key=lambda case: len(left & pairs(case)))
            left -= pairs(best)
            found.append(best)
    return found


def pairs(case: Case) -> set[tuple[tuple[str, Any], tuple[str, Any]]]:
    one_by_one = [(name, case[name]) for name in FEATURES]
    return set(combinations(one_by_one, 2))


class Play:
    """One processor in its kit, with a handler that fails by the offsets."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.calls: Counter[tuple[int, int]] = Counter()
        self.done: list[tuple[int, int]] = []
        self.wrapped = 0
        self.kit: ProcessorKit[Any, Any] | None = None

    def processor(self, store: Any) -> Processor[Any, Any]:
        case = self.case
        options: dict[str, Any] = {"order": case["order"], "retry": Retry(attempts=case["attempts"], backoff=0.5)}
        options["on_failure"] = case["after"]
        if case["after"] == "dead-letter":
            options["dead_letters"] = "orders.dlq"
        if case["max_batch"]:
            options |= {"max_batch": case["max_batch"], "max_wait": 0.2}
        if case["output"]:
            options["output"] = "bills"
        if case["timeout"] is not None:
            options["timeout"] = case["timeout"]
        if case["breaker"]:
            options["breaker"] = CircuitBreaker(on=ConnectionError, attempts=3, pause=0.5, pause_max=1.0)
        if case["store"]:
            options["store"] = store
        is_async = case["form"] == "coroutine"
        if case["middleware"]:
            options["middleware"] = [self.around_async if is_async else self.around]
        handler: Callable[..., Any] = self.handle_async if is_async else self.handle
        return Processor(handler, topics=["orders"], **options)

    def around(self, what: Any, following: Callable[[Any], Any]) -> Any:
        self.wrapped += 1
        return following(what)

    async def around_async(self, what: Any, following: Callable[[Any], Any]) -> Any:
        self.wrapped += 1
        return await following(what)

    def handle(self, what: Any) -> Any:
        self._begin(listed(what))
        return self._end(listed(what))

    async def handle_async(self, what: Any) -> Any:
        self._begin(listed(what))
        slow = self.case["timeout"] is not None and any(each.offset % 11 == 5 for each in listed(what))
        await asyncio.sleep(10.0 if slow else 0.1)
        return self._end(listed(what))

    def _begin(self, records: list[ConsumerRecord[Any, Any]]) -> None:
        assert self.kit is not None
        if self.case["breaker"] and 2.0 <= self.kit.now < 4.0:
            raise ConnectionError("away")
        for each in records:
            self.calls[each.partition, each.offset] += 1
        for each in records:
            if each.offset % 7 == 3:
                raise ValueError("bad")
            if each.offset % 5 == 1 and self.calls[each.partition, each.offset] == 1:
                raise LookupError("the first time")

    def _end(self, records: list[ConsumerRecord[Any, Any]]) -> Any:
        self.done += [(each.partition, each.offset) for each in records]
        if not self.case["output"]:
            return None
        return [OutputRecord(value=b"%d %d" % (each.partition, each.offset)) for each in records]


def listed(what: Any) -> list[ConsumerRecord[Any, Any]]:
    return what if isinstance(what, list) else [what]


@contextmanager
def store_of(case: Case) -> Iterator[Any]:
    name = f"file:pairs-{next(_numbers)}?mode=memory&cache=shared"
    keeper = sqlite3.connect(name, uri=True)
    try:
        if case["form"] == "coroutine":
            yield awaited_store(lambda: sqlite3.connect(name, uri=True))
        else:
            yield DatabaseStore(lambda: sqlite3.connect(name, uri=True))
    finally:
        keeper.close()


def key_of(offset: int) -> bytes | None:
    return None if offset % 8 == 6 else b"%d" % (offset % 3)


def play(case: Case) -> Play:
    found = Play(case)
    with store_of(case) as store, found.processor(store).testing(partitions=2) as kit:
        found.kit = kit
        for turn in range(4):
            for partition, offset in product(range(2), range(turn * 10, turn * 10 + 10)):
                kit.give("orders", b"v", key=key_of(offset), partition=partition)
            kit.advance(1.0)
            if turn == 1:
                happens(case["story"], kit)
        kit.advance(120.0)
        judge(found, kit)
    return found


def happens(story: str, kit: ProcessorKit[Any, Any]) -> None:
    if story == "crashed":
        kit.crash()
    elif story != "calm":
        (kit.revoke if story == "handed over" else kit.lose)("orders", 0)
        kit.advance(20.0 if story == "handed over" else 0.0)
        kit.assign("orders", 0)


def judge(found: Play, kit: ProcessorKit[Any, Any]) -> None:
    case = found.case
    every = set(product(range(2), range(40)))
    assert {each.partition: at for each, at in kit.committed.items()} == {0: 40, 1: 40}
    lettered = {origin(each) for each in kit.dead_letters}
    failed = every - set(found.done)
    assert (
        lettered <= every
        if case["story"] in ("lost", "crashed")
        else lettered == (failed if case["after"] == "dead-letter" else set())
    )
    if case["attempts"] > 1 or not case["max_batch"]:  # else on_failure is for the whole batch
        assert all(at % 7 == 3 or at % 5 == 1 or at % 11 == 5 for _, at in failed)
    if case["story"] in ("calm", "handed over"):
        assert max(Counter(found.done).values()) == 1, "each once"
        assert max(found.calls.values()) <= case["attempts"]
        assert not case["output"] or len(kit.outputs) == len(found.done)
    if case["order"] != "none" and not case["max_batch"]:
        assert_in_order(found)
    assert bool(found.wrapped) == case["middleware"]


def origin(letter: DeadLetter) -> tuple[int, int]:
    told = dict(letter.headers)
    return int(told["instride.partition"] or b""), int(told["instride.offset"] or b"")


def assert_in_order(found: Play) -> None:
    """By the first time that each was done."""
    by_key: dict[Any, list[int]] = {}
    for partition, offset in dict.fromkeys(found.done):
        key = key_of(offset) if found.case["order"] == "key" else b""
        if key is not None:
            by_key.setdefault((partition, key), []).append(offset)
    assert all(each == sorted(each) for each in by_key.values())


SEEDS = os.environ.get("INSTRIDE_FEATURE_SEEDS", "0:1").split(":")


@pytest.mark.parametrize("seed", range(*map(int, SEEDS)))
def test_every_pair_of_features_holds_what_is_promised(seed: int) -> None:
    for case in cases(seed):
        try:
            play(case)
        except BaseException as error:
            error.add_note(f"seed {seed}: {case}")
            raise
