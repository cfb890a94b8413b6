"""The live view: a table where there is a terminal, plain lines where there is none; fed by a board."""

import io

import pytest
from rich.console import Console

from demo.board import Board
from demo.events import (
    Change,
    Event,
    JobFailed,
    JobFinished,
    JobStarted,
    Life,
    Mark,
    Ownership,
    Phase,
    Produced,
    Progress,
    Range,
)
from demo.history import State
from demo.view import View


def change(t: float, app: str, what: Change, *partitions: int) -> Event:
    return Ownership(t=t, app=app, change=what, partitions=partitions)


STORY: list[Event] = [
    Life(t=0, app="A", phase=Phase.READY),
    change(1, "A", Change.ASSIGNED, 0, 1),
    Produced(t=1, app="source", partition=0, end=500),
    Progress(t=2, app="A", partition=0, start=0, end=400, rows=400),
    JobStarted(t=2, app="A", job="job 7", ranges=(Range(1, 0, 9),)),
    change(3, "A", Change.REVOKE_REQUESTED, 1),
    change(3, "A", Change.DELAYED, 1),
    Mark(t=3, app="scenario", text="[B] joins"),
]


def told(board: Board) -> list[str]:
    return board.apply(STORY)


def plain() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=120), out


def test_the_board_knows_owner_state_lag_rate_and_jobs() -> None:
    board = Board(3)
    told(board)
    assert [board.lanes[p].state for p in range(3)] == [State.OWNED, State.DELAYED, None]
    assert board.owned_by("A") == [0, 1]
    assert (board.lanes[0].lag, board.lag, board.rows) == (100, 100, 400)
    assert board.lanes[0].rate(2.5) == 100
    assert board.lanes[0].rate(60) == 0
    assert [job.job for job in board.running_at(1, 8)] == ["job 7"]
    assert board.running_at(1, 9) == []
    board.apply([JobFinished(t=4, app="A", job="job 7")])
    assert board.running_at(1, 8) == []


def test_changes_are_told_in_sentences_and_what_changes_nothing_is_not() -> None:
    board = Board(3)
    assert told(board) == [
        "A is ready",
        "A: assigned: 0, 1",
        "A: revoke requested: 1",
        "A: delayed: 1",
        "[B] joins",
    ]
    assert board.apply([change(4, "A", Change.DELAYED, 1), change(4, "B", Change.REVOKED, 1)]) == []
    assert board.apply([change(5, "B", Change.ASSIGNED, 1), change(6, "A", Change.REVOKED, 1)]) == ["B: assigned: 1"]
    assert board.apply([JobFailed(t=7, app="B", job="job 1", reason="no disk")]) == ["B: job 1 failed: no disk"]


def test_without_a_terminal_there_is_a_line_for_each_change_and_one_every_few_seconds() -> None:
    console, out = plain()
    board = Board(2)
    with View("The [flights]", console) as view:
        view.show(board, told(board), 100.0)
        for step in range(1, 12):
            view.show(board, [], 100.0 + step)
    lines = out.getvalue().splitlines()
    assert lines[0] == "== The [flights]"
    assert lines[5].strip() == "0.0 s  [B] joins"
    summaries = [line for line in lines if "flights written" in line]
    assert [line.split()[0] for line in summaries] == ["0.0", "5.0", "10.0"]
    assert "\x1b" not in out.getvalue()


def test_on_a_terminal_there_is_a_table_with_every_partition_and_the_cursor_comes_back() -> None:
    out = io.StringIO()
    board = Board(2)
    with View("The flights", Console(file=out, width=120, force_terminal=True)) as view:
        view.show(board, told(board), 13.0)
    text = out.getvalue()
    for expected in ("partition", "owner", "delayed", "10 s", "[B] joins", "\x1b[?25l"):
        assert expected in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_the_terminal_is_given_back_after_an_interruption() -> None:
    out = io.StringIO()

    def interrupted() -> None:
        with View("The flights", Console(file=out, force_terminal=True)) as view:
            view.show(Board(2), [], 1.0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert "\x1b[?25h" in out.getvalue()
