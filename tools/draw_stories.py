"""Draws the two-step revoke into docs/rebalance-in-pictures.md: the ownership table, and stories that walk through it.

    python tools/draw_stories.py          # write
    python tools/draw_stories.py --check  # exit status 1 where the page is not what the code says

Laws
1. A story says who sends what to whom, and which input of the ownership table that is. The table gives the states
   beside it; a story that the table does not have is an error here, not a picture.
2. What is between the markers belongs to this tool.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import draw_tables
from draw_tables import between, state_diagram
from instride._core.ownership import TRANSITIONS, Ownership, OwnershipInput, RebalanceProtocol

__all__ = ["STORIES", "Step", "Story", "drawn", "main"]

BEGIN = "<!-- drawn by tools/draw_stories.py: begin -->"
END = "<!-- drawn by tools/draw_stories.py: end -->"
PAGE = Path(__file__).resolve().parent.parent / "docs" / "rebalance-in-pictures.md"

_TABLE: Final = TRANSITIONS[RebalanceProtocol.COOPERATIVE]
_I = OwnershipInput
_ACTORS: Final = {"you": "your loop", "app": "the consumer, in poll", "net": "its network thread", "group": "the group"}


@dataclass(frozen=True, slots=True)
class Step:
    """sender ->> receiver: text. input: what that is to the ownership table, if anything."""

    sender: str
    receiver: str
    text: str
    input: OwnershipInput | None = None


@dataclass(frozen=True, slots=True)
class Story:
    title: str
    words: str
    steps: Sequence[Step]


_REQUESTED: Final = (
    Step("group", "net", "Sync response: p is no longer assigned to this member"),
    Step("net", "app", "RevocationRequested, with its deadline", _I.REVOCATION_REQUESTED),
    Step("app", "you", "poll returns at once, without records of p"),
    Step("you", "app", "to_be_revoked_partitions(): p"),
)
_DELAYED: Final = (
    Step("you", "app", "work on p is not finished: delay_revoke(p) returns True", _I.DELAYED),
    Step("you", "app", "poll", _I.POLL_STARTED),
    Step("app", "you", "records of all other partitions"),
)
_AGAIN: Final = Step("you", "app", "work on p is still not finished: delay_revoke(p) again", _I.DELAYED)
_RELEASED: Final = (
    Step("you", "app", "commit_async: all work on p is finished"),
    Step("app", "net", "Commit"),
    Step("you", "app", "poll, without a delay", _I.POLL_STARTED),
    Step("app", "net", "CompleteRevoke"),
    Step("net", "group", "OffsetCommit of p"),
    Step("group", "net", "OffsetCommit response: accepted", _I.COMPLETED),
    Step("net", "group", "JoinGroup, without p: the group assigns p to its next owner"),
)

STORIES: Final = (
    Story(
        "A partition moves when its work is finished",
        "The group requests the revocation of p; the consumer releases p two polls later, and reads all others.",
        (*_REQUESTED, *_DELAYED, *_RELEASED),
    ),
    Story(
        "A partition is reassigned",
        "While p is delayed, its next owner leaves the group. The group assigns p to this member again.",
        (
            *_REQUESTED,
            *_DELAYED,
            _AGAIN,
            Step("group", "net", "the next owner has left; Sync response: p is assigned here"),
            Step("you", "app", "poll", _I.POLL_STARTED),
            Step("net", "app", "Reassigned", _I.REASSIGNED),
            Step("app", "you", "records of p again, after the last one that was returned"),
        ),
    ),
    Story(
        "A delay meets its deadline",
        "When `revoke_deadline(p)` has passed, the consumer gives up p itself. It keeps every other partition.",
        (
            *_REQUESTED,
            *_DELAYED,
            _AGAIN,
            Step("net", "group", "the deadline has passed: JoinGroup, without p"),
            Step("you", "app", "poll, which takes the loss before it moves the lists"),
            Step("net", "app", "Lost", _I.LOST),
            Step("app", "you", "lost_partitions(): p. No commit of it is sent any more"),
            Step("you", "app", "delay_revoke(p) returns False"),
        ),
    ),
)


def main(arguments: list[str] | None = None) -> int:
    return draw_tables.main(arguments, PAGE, drawn)


def drawn(page: str, stories: Sequence[Story] = STORIES) -> str:
    """The page with its pictures. Raises ValueError for a story that the table does not have."""
    return between(page, BEGIN, END, _pictures(stories))


def _pictures(stories: Sequence[Story]) -> Iterator[str]:
    yield from state_diagram(_TABLE, Ownership.OWNED)
    for story in stories:
        yield f"### {story.title}\n"
        yield f"{story.words}\n"
        yield from _sequence(story)


def _sequence(story: Story) -> Iterator[str]:
    yield "```mermaid"
    yield "sequenceDiagram"
    yield from (f"    participant {short} as {name}" for short, name in _ACTORS.items())
    state = Ownership.OWNED
    yield f"    Note over app: p is {state.name}"
    for step in story.steps:
        yield f"    {step.sender}->>{step.receiver}: {step.text}"
        if step.input is not None:
            state = _next(story, state, step.input)
            yield f"    Note over {_owner(state)}: {step.input.name}: p is {state.name}"
    yield "```\n"


def _next(story: Story, state: Ownership, event: OwnershipInput) -> Ownership:
    if (state, event) not in _TABLE:
        raise ValueError(f"{story.title!r}: a partition that is {state.name} has no row for {event.name}")
    return _TABLE[state, event]


def _owner(state: Ownership) -> str:
    """COMPLETING and REVOKED are the network machine's, the others the application machine's to show."""
    return "net" if state in (Ownership.COMPLETING, Ownership.REVOKED) else "app"


if __name__ == "__main__":
    sys.exit(main())
