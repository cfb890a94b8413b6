"""Scenarios: a script of a few lines, and the transcript of what a simulated group makes of it, in one file.

    # What it shows.
    member A at 0 loop=flagship workers=4
    records 10 of each at 0
    records 5 of 1 at 2.5
    transaction 3 of 0 at 1 for 0.5 aborted
    compaction of 0 at 4
    fault 3 pause A 1.5
    with partitions=4 handler=0.5,0.5,0.5,0 seed=7
    show requested commit revoked
    =>
    A       requested: t-2 (epoch 3), t-3 (epoch 4)

Laws
1. Times are virtual seconds. The latency is always the same; what chance is left comes from the seed.
2. A transcript ends when all is done and everybody leaves. It has no times, and is compared speaker by speaker: it
   changes only where somebody does something else.
"""

from __future__ import annotations

from ast import literal_eval
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

from instride._core.network.actions import Role
from instride.testing._simulation.plan import FaultKind
from instride.testing.check import Event, Violation, check
from instride.testing.simulation import Fault, MemberPlan, Plan, run, transcript

__all__ = ["Scenario", "play", "read", "write"]

_LATENCY = (0.01, 0.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """head: the file up to the transcript. shown: kinds of events."""

    head: str
    plan: Plan
    shown: frozenset[str]
    expected: str


def read(path: Path) -> Scenario:
    head, expected = path.read_text(encoding="utf-8").split("=>\n")
    lines = [line.split() for line in head.splitlines() if line and not line.startswith("#")]
    named = [line[1] for line in lines if line[0] == "member"]
    settings = _settings(each for line in lines if line[0] == "with" for each in line[1:])
    partitions = settings.get("partitions", 4)
    records = [_records(line, partitions) for line in lines if line[0] == "records"]
    usual: dict[str, Any] = {"latency": _LATENCY, "quiet_after": 8.0}
    return Scenario(
        head=head,
        plan=Plan(
            members=tuple(_member(line) for line in lines if line[0] == "member"),
            produced=tuple(sorted(each for some in records for each in some)),
            transactions=tuple(_transaction(line) for line in lines if line[0] == "transaction"),
            compactions=tuple((float(line[4]), int(line[2])) for line in lines if line[0] == "compaction"),
            faults=tuple(_fault(line, named) for line in lines if line[0] == "fault"),
            **(usual | settings),
        ),
        shown=frozenset(each.replace("-", " ") for line in lines if line[0] == "show" for each in line[1:]),
        expected=expected,
    )


def play(scenario: Scenario) -> tuple[str, list[Violation]]:
    """The transcript of what is shown, and what is wrong with all of it."""
    history = run(scenario.plan)
    until_all_leave = takewhile(
        lambda event: event.what != "leaving" or event.time < scenario.plan.quiet_after, history
    )
    lines = [_brief(event) for event in until_all_leave if event.what in scenario.shown]
    return "".join(f"{line}\n" for line in lines), check(history)


def write(path: Path) -> None:
    """Put what is played now into the file."""
    scenario = read(path)
    path.write_text(f"{scenario.head}=>\n{play(scenario)[0]}", encoding="utf-8")


def _brief(event: Event) -> str:
    return transcript([event])[10:]


def _settings(words: Any) -> dict[str, Any]:
    return {name: _value(text) for name, text in (word.split("=", 1) for word in words)}


def _value(text: str) -> Any:
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError):
        return tuple(text.split("+")) if "+" in text else text


def _member(line: list[str]) -> MemberPlan:
    _, name, _, at, *settings = line
    found = _settings(settings)
    if "assignors" in found and isinstance(found["assignors"], str):
        found["assignors"] = (found["assignors"],)
    return MemberPlan(name=name, joins_at=float(at), **found)


def _records(line: list[str], partitions: int) -> list[tuple[float, int, int]]:
    _, count, _, which, _, at = line
    numbers = range(partitions) if which == "each" else [int(which)]
    return [(float(at), number, int(count)) for number in numbers]


def _transaction(line: list[str]) -> tuple[float, int, int, float, bool]:
    _, count, _, number, _, at, _, seconds, how = line
    return float(at), int(number), int(count), float(seconds), {"committed": True, "aborted": False}[how]


def _fault(line: list[str], members: list[str]) -> Fault:
    """fault TIME KIND WHO [SECONDS] [role=ROLE]: who is a member, or the number of a partition or node."""
    _, time, kind, who, *rest = line
    seconds = [float(each) for each in rest if "=" not in each]
    role = Role(_settings(each for each in rest if "=" in each).get("role", "data"))
    member = members.index(who) if who in members else int(who)
    words = cast(FaultKind, kind.replace("-", " "))
    return Fault(time=float(time), kind=words, member=member, seconds=seconds[0] if seconds else 0.0, role=role)
