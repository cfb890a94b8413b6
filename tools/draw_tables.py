"""Draws the transition tables of the code, as Mermaid state diagrams, and the table of error codes into docs/tables.md.

    python tools/draw_tables.py          # write
    python tools/draw_tables.py --check  # exit status 1 where the file is not what the code says

What is between the markers belongs to this tool; the words around them are anybody's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from instride._core import ownership
from instride._core.network import coordinator, group
from instride._core.ownership import RebalanceProtocol
from instride.errors import BROKER_ERRORS, BrokerResponseError, ErrorCategory, ErrorCode

__all__ = ["Table", "between", "drawn", "main", "state_diagram"]

BEGIN = "<!-- drawn by tools/draw_tables.py: begin -->"
END = "<!-- drawn by tools/draw_tables.py: end -->"
PAGE = Path(__file__).resolve().parent.parent / "docs" / "tables.md"

Table = Mapping[Any, Enum]  # (state, input) -> state


def main(arguments: list[str] | None = None, page: Path | None = None, draw: Callable[[str], str] | None = None) -> int:
    """draw: makes the page anew from its text; by default `drawn`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say whether the page is what the code says")
    check = parser.parse_args(arguments).check
    page = PAGE if page is None else page
    before = page.read_text(encoding="utf-8")
    after = (draw or drawn)(before)
    if not check:
        page.write_text(after, encoding="utf-8")
    elif after != before:
        sys.stderr.write(f"{page.name} is not what the code says: run make docs (tools/draw_tables.py)\n")
        return 1
    return 0


def drawn(page: str) -> str:
    """The page, with what is between the markers drawn anew. Raises ValueError where they are missing."""
    return between(page, BEGIN, END, _pictures())


def between(page: str, begin: str, end: str, lines: Iterable[str]) -> str:
    """The page with these lines between two markers. Raises ValueError where the page lacks one."""
    head, begun, rest = page.partition(begin)
    _, ended, tail = rest.partition(end)
    if not begun or not ended:
        raise ValueError(f"the page needs the lines {begin!r} and {end!r}")
    body = "\n".join(lines)
    return f"{head}{begin}\n\n{body}\n{end}{tail}"


def _pictures() -> Iterator[str]:
    yield "## The coordinator connection\n"
    yield from _picture(coordinator.TRANSITIONS, coordinator.CoordinatorState.DOWN)
    yield "## The group, for a classic member\n"
    yield from _picture(group.TRANSITIONS, group.GroupState.UNJOINED)
    yield "## Ownership of a partition in one assignment epoch\n"
    classic = ownership.TRANSITIONS[RebalanceProtocol.COOPERATIVE]
    yield from _picture(classic, ownership.Ownership.OWNED)
    for protocol in RebalanceProtocol:
        yield from _differences(classic, ownership.TRANSITIONS[protocol], protocol)
    yield "## Error codes of brokers\n"
    yield from _error_codes()


def _picture(table: Table, start: Enum) -> Iterator[str]:
    states, inputs = type(start), type(next(iter(table))[1])
    yield from state_diagram(table, start)
    yield "| state | meaning | inputs at which it stays |"
    yield "|---|---|---|"
    for state in states:
        stays = [event.name for event in inputs if table.get((state, event)) is state]
        yield f"| {state.name} | {state.value} | {', '.join(stays)} |"
    yield "\n| input | meaning |\n|---|---|"
    yield from (f"| {event.name} | {event.value} |" for event in inputs)
    yield ""


def state_diagram(table: Table, start: Enum) -> Iterator[str]:
    """Mermaid's picture of a table: an arrow for each pair of different states, with its inputs."""
    states, inputs = type(start), type(next(iter(table))[1])
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {start.name}"
    for source in states:
        for target in states:
            names = [event.name for event in inputs if table.get((source, event)) is target and source is not target]
            if names:
                yield f"    {source.name} --> {target.name}: {', '.join(names)}"
    yield from (f"    {state.name} --> [*]" for state in states if not any(row[0] is state for row in table))
    yield "```\n"


def _differences(classic: Table, table: Table, protocol: RebalanceProtocol) -> Iterator[str]:
    rows = [
        f"{source.name} {'stays' if target is source else f'becomes {target.name}'} at {event.name}"
        for (source, event), target in table.items()
        if classic.get((source, event)) is not target
    ]
    if rows or set(classic) != set(table):
        yield f"With the protocol {protocol.name} this differs from the picture: {'; '.join(rows)}.\n"


def _error_codes() -> Iterator[str]:
    yield "| code | Kafka's name | class in `instride.errors` | category | the request may succeed later | fatal |"
    yield "|---|---|---|---|---|---|"
    for code in ErrorCode:
        if code is not ErrorCode.NONE:
            kind = BROKER_ERRORS.get(code, BrokerResponseError).__name__
            later, fatal = "yes" if code.retriable else "", "yes" if code.fatal else ""
            yield f"| {code} | {code.name} | `{kind}` | {code.category.name.lower()} | {later} | {fatal} |"
    yield "\n| category | what it is about |\n|---|---|"
    yield from (f"| {category.name.lower()} | {category.value} |" for category in ErrorCategory)
    yield ""


if __name__ == "__main__":
    sys.exit(main())
