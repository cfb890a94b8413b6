"""What is shown of a run: figures, tables, picture and page, made from a run in which everything occurs."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from demo.events import Change, Event, JobFinished, JobStarted, Mark, Ownership, Progress, Range
from demo.history import history
from demo.page import page
from demo.report import Result, figures, handover_rows, print_report
from demo.series import bin_times, rate, worked_by
from demo.timeline import draw, save_png, to_svg
from demo.verdict import Fault, Verdict
from instride.records import TopicPartition
from instride.testing.check import Violation, WithoutOwner


def change(t: float, app: str, what: Change, *partitions: int) -> Event:
    return Ownership(t=t, app=app, change=what, partitions=partitions)


def progress(t: float, app: str, partition: int, rows: int = 100) -> Event:
    return Progress(t=t, app=app, partition=partition, start=0, end=rows, rows=rows)


STORY: list[Event] = [
    Mark(t=100, app="scenario", text="A joins"),
    change(100, "A", Change.ASSIGNED, 0, 1, 2, 3),
    *(progress(100 + t, "A", p) for p in range(4) for t in (1, 2)),
    JobStarted(t=102.5, app="A", job="job <1>", ranges=(Range(3, 10, 20),)),
    Mark(t=103, app="scenario", text="B joins"),
    change(103, "A", Change.REVOKE_REQUESTED, 2, 3),
    change(103.1, "A", Change.REVOKED, 2),
    change(103.1, "A", Change.DELAYED, 3),
    change(104, "B", Change.ASSIGNED, 2),
    progress(105, "B", 2, rows=900),
    *(progress(t, "A", p) for p in (0, 1) for t in (105, 106.5, 109)),
    JobFinished(t=110, app="A", job="job <1>"),
    progress(110, "A", 3),
    change(110, "A", Change.COMPLETING, 3),
    change(110.2, "A", Change.REVOKED, 3),
    change(111, "B", Change.ASSIGNED, 3),
    progress(112, "B", 3),
    change(115, "B", Change.LOST, 2),
    change(115, "A", Change.REVOKE_REQUESTED, 0, 1),
]
GOOD = Verdict(source=1700, written=1700, missing=Fault(), duplicated=Fault(), altered=Fault(), foreign=Fault())
BAD = Verdict(
    source=1700,
    written=1699,
    missing=Fault(count=1, examples=(7,)),
    duplicated=Fault(),
    altered=Fault(),
    foreign=Fault(),
)
TWICE = Violation(number="S1", law="exactly once", time=104.0, text="offset 7", lines=(3, 9))
ALONE = tuple(
    WithoutOwner(
        partition=TopicPartition("t", number),
        released_by="A",
        released_at=10.0,
        taken_by="B",
        first_fetch_at=10.0 + length,
    )
    for number, length in ((2, 0.25), (3, 0.5))
)
RESULTS = [
    Result(name="ours", run=history(STORY), verdict=GOOD, ours=True, ownerless=ALONE),
    Result(name="<theirs>", run=history(STORY), verdict=BAD, violations=(TWICE,)),
]


def test_the_figures_of_all_runs_stand_side_by_side() -> None:
    texts = {figure.label: figure.texts for figure in figures(RESULTS)}
    assert texts["every flight exactly once"] == ("yes", "NO")
    assert texts["missing"] == ("none", "1 (rows 7)")
    assert texts["violations in its history"] == ("none", "1 (S1)")
    assert texts["longest gap of a partition that was not moving"][0] == "3.0 s (partition 0, from 2.0 s)"
    assert texts["hand-overs"][0] == "2"
    assert texts["hand-overs delayed by 1 s or more"][0] == "1"
    assert texts["longest delay of a hand-over"][0] == "7.2 s, partition 3, by A's job <1> (partition 3 offsets 10-19)"

    assert texts["longest time without an owner"] == ("0.50 s, partition 3, of 2", "none")


def test_hand_overs_that_went_alike_share_a_row() -> None:
    assert list(handover_rows(RESULTS[0])) == [
        ("2", "A", "B", "3.0 s", "0.1 s", "nothing", "0.9 s"),
        ("3", "A", "B", "3.0 s", "7.2 s", "A's job <1> (partition 3 offsets 10-19)", "0.8 s"),
    ]


def test_a_run_in_which_nothing_happened_can_be_reported_and_drawn() -> None:
    empty = Result(name="nothing", run=history([]), verdict=BAD)
    assert {figure.texts for figure in figures([empty])} >= {("none",), ("NO",)}
    assert to_svg(draw([empty])).startswith(b"<?xml")


def test_the_report_prints_every_figure_and_hand_over() -> None:
    out = io.StringIO()
    print_report(RESULTS, Console(file=out, width=200))
    assert "every flight exactly once" in out.getvalue()
    assert out.getvalue().count("partition 3 offsets 10-19") == 4


def test_every_record_is_in_one_bin() -> None:
    run = history(STORY)
    values = rate(run, worked_by("A"), seconds=0.5) + rate(run, worked_by("B"), seconds=0.5)
    assert values.sum() * 0.5 == sum(each.rows for each in run.progress)
    assert len(bin_times(run, seconds=0.5)) == len(values)
    assert rate(run, worked_by("B", 2), seconds=1.0)[5] == 900


@pytest.mark.requirement("surface/timeline")
def test_the_picture_is_written_as_png(tmp_path: Path) -> None:
    save_png(draw(RESULTS), tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(ValueError, match="no run"):
        draw([])


def test_the_page_needs_nothing_else_and_escapes_what_it_shows() -> None:
    text = page(RESULTS, to_svg(draw(RESULTS)))
    assert "data:image/svg+xml;base64," in text
    assert not re.findall(r'(?:src|href)="(?!data:)', text)
    assert "&lt;theirs&gt;" in text
    assert "job &lt;1&gt;" in text
    assert '<td class="no">NO</td>' in text
