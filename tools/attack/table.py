"""What became of the cases, as a page: ours, and a part of them against other clients."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from attack.judge import MIB, Outcome

__all__ = ["other_row", "others_head", "row", "write_others", "write_own"]

_HEAD = """# Attacks and outcomes

Made by `make attack ATTACK_ARGS="--write docs/attacks.md"`: each row is a case of `tools/attack/cases.py`,
which attacks a consumer in a process of its own. `tools/attack/judge.py` judges all cases alike; "holds" means that
the consumer kept every bound. "Raised" names the errors that its calls raised. "Memory" is the peak of the process's
memory, less what it had at the start.
"Worked" is the most processor time that one call used beyond its time-out. "Lines" counts the log's lines at INFO and
above.
[Security](security.md) has the threats and the bounds, and says when each table was made.

| case | what is done | outcome | raised | memory | worked | lines |
|---|---|---|---|---|---|---|
"""
_OTHERS = "\n## The same cases against other clients\n"
_OTHERS_HEAD = """
Made by `make attack ATTACK_ARGS="--others --write docs/attacks.md"`: the table has those cases that need only settings
which each client has. They were run and judged in the same way. The judge accepts the errors of the client's own
library. The bounds are instride's; the other clients do not promise them. Each cell has the outcome, the peak of memory
above the start, and the processor time of the process. A consumer "stands still" if its polls did not return the
records of the partitions that the broker served rightly. "Not what was written": polls returned other records than the
log has. "An error that is not ours": one that is not of the client's own library.

"""
_LONGEST_CELL = 150


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


def others_head(clients: Sequence[str]) -> str:
    versions = [f"{name} {version(name)}" for name in clients]
    return _OTHERS_HEAD + f"{_row('case', *versions)}\n{'|---' * (len(clients) + 1)}|\n"


def other_row(name: str, outcomes: Sequence[Outcome]) -> str:
    return _row(name, *map(_cell, outcomes))


def write_own(page: Path, outcomes: Sequence[Outcome]) -> None:
    _, head, others = (page.read_text() if page.exists() else "").partition(_OTHERS)
    page.write_text(_HEAD + "".join(f"{row(each)}\n" for each in outcomes) + head + others)


def write_others(page: Path, table: str) -> None:
    own = (page.read_text() if page.exists() else _HEAD).partition(_OTHERS)[0]
    page.write_text(own + _OTHERS + table)


def _cell(outcome: Outcome) -> str:
    seen = outcome.seen
    said = "; ".join(re.sub(r": [\[{(].*", "", each, flags=re.S) for each in outcome.broken) or "holds"
    if "died" in seen:
        return said[:_LONGEST_CELL]
    return f"{said[:_LONGEST_CELL]}; {seen['memory'] / MIB:.0f} MiB; {seen['work']:.1f} s"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '/').replace(chr(10), ' ') for cell in cells)} |"
