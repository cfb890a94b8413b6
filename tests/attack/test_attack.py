"""A part of `make attack`, chosen by a seed, and that its judge can say no."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

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
    assert fair.seen["returned"] >= 10 * len(b"0:0"), "the victim weighs what a poll returned"
    silent = replace(
        BY_NAME["silence"],
        flows=(0,),
        errors=("CorruptRecordError",),
        told="a word",
        most_seconds=1.0,
        requests=-1000,
    )
    said = " ".join(run(silent).broken)
    assert "stands still" in said
    assert "CorruptRecordError" in said
    assert "nobody says 'a word'" in said
    assert "requests in" in said


class Idle:
    """A server that nobody asked."""

    port = 0

    def __init__(self) -> None:
        self.asked: Counter[int] = Counter()

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("keeps", "more"), [(False, 0), (True, 5 * MIB)])
def test_memory_is_judged_by_the_published_bound_and_the_copies_of_the_application_only_where_a_case_says_so(
    keeps: bool, more: int
) -> None:
    case = replace(BY_NAME["silence"], keeps_records=keeps)
    most = int(64 * MIB * 1.1) + 40 * MIB + more
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
    told |= {"returned": 5 * MIB, "memory_alone": 0}
    assert [judged(case, Idle(), {**seen, **told, "memory": memory}).broken for memory in (most, most + 1)] == [
        (),
        ("110 MiB above the start" if not keeps else "115 MiB above the start",),
    ]
    assert [
        judged(case, Idle(), {**seen, **told, "memory": most, "memory_alone": memory}).broken
        for memory in (most - more, most - more + 1)
    ] == [(), ("110 MiB above the start while the application reads nothing",) if keeps else ()]


def test_one_case_alone_has_the_copies_of_the_application_on_top_and_the_page_says_so() -> None:
    assert [each.name for each in CASES if each.keeps_records] == ["largest values"]
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
    assert "`largest values`" in page
