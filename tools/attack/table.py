"""What became of the cases, as a page."""

from __future__ import annotations

from collections.abc import Sequence

from attack.judge import MIB, Outcome

__all__ = ["page", "row"]

_HEAD = """# Attacks and outcomes

Made by `make attack ATTACK_ARGS="--write docs/attacks.md"`: each case of `tools/attack/cases.py`, against a consumer in
a process of its own, and what the one judge of all cases (`tools/attack/judge.py`) found. "Memory" is the peak above
the start, "worked" the longest that a call worked beyond its time-out, "lines" those of the log at INFO and above.
[Security](security.md) has the threats and the bounds.

| case | what is done | outcome | raised | memory | worked | lines |
|---|---|---|---|---|---|---|
"""


def row(outcome: Outcome) -> str:
    case, seen = outcome.case, outcome.seen
    verdict = "holds" if not outcome.broken else "; ".join(outcome.broken)
    if case.known:
        verdict = f"KNOWN FAILURE ({case.known}): {verdict}"
    if "died" in seen:
        return _row(case.name, case.lie, verdict, "-", "-", "-", "-")
    raised = ", ".join(sorted(seen["errors"])) or "-"
    worked = f"{max(0.0, seen['slowest']):.1f} s"
    return _row(case.name, case.lie, verdict, raised, f"{seen['memory'] / MIB:.0f} MiB", worked, str(seen["lines"]))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '/').replace(chr(10), ' ') for cell in cells)} |"


def page(outcomes: Sequence[Outcome]) -> str:
    return _HEAD + "".join(f"{row(each)}\n" for each in outcomes)
