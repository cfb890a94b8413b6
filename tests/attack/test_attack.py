"""A part of `make attack`, chosen by a seed, and that its judge can say no."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace

import pytest

from attack.broker import Broker
from attack.cases import CASES, Case
from attack.judge import MIB, Outcome, judged, run

BY_NAME = {each.name: each for each in CASES}
SEED = int(os.environ.get("ATTACK_SEED", "0"))
ALWAYS = ("header bomb", "evil host names", "secret echoed, base64", "no threads left")
PART = [*ALWAYS, *random.Random(SEED).sample([each.name for each in CASES if each.name not in ALWAYS], 10)]


def outcome(case: Case) -> Outcome:
    found = run(case, SEED)
    if found.broken and case.known:
        pytest.xfail(f"{case.known}: {found.broken}")
    return found


@pytest.mark.drawn(5)
@pytest.mark.requirement("surface/attacks")
@pytest.mark.parametrize("name", PART)
def test_the_bounds_hold(name: str) -> None:
    assert outcome(BY_NAME[name]).broken == ()


def test_every_sentence_of_the_issue_has_a_case() -> None:
    assert {each.item for each in CASES} >= {str(number) for number in range(1, 12)}
    assert len(BY_NAME) == len(CASES)


class Wrong(Broker):
    """Records of another offset, with a right checksum: what a judge of records must see."""

    def records(self, index: int, offset: int) -> bytes:
        made = super().records(index, 0)
        return (offset - offset % 10).to_bytes(8, "big") + made[8:] if made and offset < self.end else b""


def test_the_judge_sees_what_is_wrong() -> None:
    fair = run(replace(BY_NAME["evil host names"], broker=Wrong, lie="nothing"))
    assert any("not what was written" in each for each in fair.broken)
    silent = replace(
        BY_NAME["silence"],
        flows=(0,),
        errors=("CorruptRecordError",),
        told="a word",
        most_seconds=1.0,
        requests=-1000,
    )
    output = " ".join(run(silent).broken)
    assert "stands still" in output
    assert "CorruptRecordError" in output
    assert "nobody says 'a word'" in output
    assert "requests in" in output


class Idle:
    """A server that nobody asked."""

    port = 0

    def __init__(self) -> None:
        self.requested: Counter[int] = Counter()

    def close(self) -> None:
        pass


def test_memory_is_judged_by_the_published_bound() -> None:
    most = int(64 * MIB * 1.1) + 40 * MIB
    seen = dict.fromkeys(("slowest", "polls", "lines", "longest_line", "unprintable", "threads", "took"), 0)
    told: dict[str, object] = {
        "errors": {},
        "texts": {},
        "untyped": [],
        "wrong": [],
        "leaks": [],
        "kinds": [],
        "records": {},
        "told": True,
    }
    judge = [judged(BY_NAME["silence"], Idle(), {**seen, **told, "memory": each}).broken for each in (most, most + 1)]
    assert judge == [(), ("110 MiB above the start",)]
