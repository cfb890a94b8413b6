"""What is shown of a run: figures, tables, picture and page, made from a run in which everything occurs."""

import io
import re

import pytest
from demo_stories import began, change, delay, done, mark
from matplotlib.text import Text
from rich.console import Console

from demo.__main__ import CONTENDERS
from demo.history import History
from demo.picture import draw, save
from demo.report import MEASURES, Result, handover_rows, page, print_report, rows_text
from demo.verdict import Verdict
from instride.records import TopicPartition
from instride.testing.check import Violation, WithoutOwner

STORY = [
    mark(100, "A joins"),
    change(100, "A", "assigned", 0, 1, 2, 3),
    *(done(100 + t, "A", p, end=100) for t in (1, 2) for p in range(4)),
    began(102.5, "A", 3, 10, 20),
    mark(103, "B joins"),
    change(103, "A", "requested", 2, 3),
    change(103.1, "A", "revoked", 2),
    delay(103.1, "A", 3),
    change(104, "B", "assigned", 2),
    done(105, "B", 2, end=900),
    *(done(t, "A", p, end=100) for t in (105, 106.5, 109) for p in (0, 1)),
    done(110, "A", 3, 10, 20),
    change(110.2, "A", "revoked", 3),
    change(111, "B", "assigned", 3),
    done(112, "B", 3, end=100),
    change(115, "B", "lost", 2),
    change(115, "A", "requested", 0, 1),
]
WORK = "A's work on partition 3 offsets 10-19"
GOOD = Verdict(source=1700, written=1700)
BAD = Verdict(source=1700, written=1699, missing=(7,))
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
    Result(name="ours", run=History(STORY), verdict=GOOD, ownerless=ALONE),
    Result(name="<theirs>", run=History(STORY), verdict=BAD, violations=(TWICE,)),
]


def figures(*results: Result) -> dict[str, list[str]]:
    return {label: [str(measure(each)) for each in results] for label, measure in MEASURES.items()}


@pytest.mark.parametrize(
    ("rows", "text"),
    [((), "none"), ((0, 1, 2), "3 (rows 0, 1, 2)"), (tuple(range(1020)), "1,020 (rows 0, 1, 2, 3, 4, ...)")],
)
def test_only_the_first_rows_are_shown(rows: tuple[int, ...], text: str) -> None:
    assert rows_text(rows) == text


def test_each_run_has_its_figures() -> None:
    texts = figures(*RESULTS)
    assert texts["every flight exactly once"] == ["yes", "NO"]
    assert texts["missing"] == ["none", "1 (rows 7)"]
    assert texts["violations in its history"] == ["none", "1 (S1)"]
    assert texts["longest gap of a partition that was not moving"][0] == "3.0 s (partition 0, from 2.0 s)"
    assert texts["flights written in the busiest second"][0] == "1,100"
    assert texts["hand-overs"][0] == "2"
    assert texts["longest delay of a hand-over"][0] == f"7.2 s, partition 3, by {WORK}"
    assert texts["longest time without an owner"] == ["0.50 s, partition 3, of 2", "none"]


def test_hand_overs_that_went_alike_share_a_row() -> None:
    assert list(handover_rows(RESULTS[0])) == [
        ("2", "A", "B", "3.0 s", "0.1 s", "nothing", "0.9 s"),
        ("3", "A", "B", "3.0 s", "7.2 s", WORK, "0.8 s"),
    ]


def test_a_run_in_which_nothing_happened_can_be_reported_and_drawn() -> None:
    empty = Result(name="nothing", run=History(), verdict=BAD)
    assert {"none", "NO"} <= {text for texts in figures(empty).values() for text in texts}
    assert save(draw([empty]), "svg").startswith(b"<?xml")


def test_the_report_prints_every_figure_and_hand_over() -> None:
    out = io.StringIO()
    print_report(RESULTS, Console(file=out, width=200))
    assert "every flight exactly once" in out.getvalue()
    assert out.getvalue().count(WORK) == 4
    assert re.search(r"missing +│ none +│ 1 \(rows 7\)", out.getvalue()), "side by side"


def test_every_record_is_in_one_bin() -> None:
    run = History(STORY)
    values = run.rate(lambda each: each.app == "A") + run.rate(lambda each: each.app == "B")
    assert values.sum() == sum(each.rows for each in run.done)
    assert run.rate(lambda each: (each.app, each.partition) == ("B", 2))[5] == 900


@pytest.mark.requirement("surface/timeline")
def test_the_picture_is_written_as_png() -> None:
    assert save(draw(RESULTS), "png").startswith(b"\x89PNG")


def test_no_title_of_the_picture_reaches_into_the_next_column() -> None:
    """That of the third lane was cut at the picture's edge."""
    figure = draw([Result(name=each.name, run=History(STORY), verdict=BAD) for each in CONTENDERS.values()])
    save(figure, "png")
    columns = figure.get_axes()
    starts = [axes.get_window_extent().x0 for axes in columns[1:]]
    ends = [
        max(text.get_window_extent().x1 for text in axes.get_children() if isinstance(text, Text)) for axes in columns
    ]
    assert all(end < start for end, start in zip(ends, [*starts, figure.bbox.x1], strict=True))


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(ValueError, match="columns must be a positive"):
        draw([])


def test_the_page_needs_nothing_else_and_escapes_what_it_shows() -> None:
    text = page(RESULTS, save(draw(RESULTS), "svg"))
    assert "data:image/svg+xml;base64," in text
    assert not re.findall(r'(?:src|href)="(?!data:)', text)
    assert "&lt;theirs&gt;" in text
    assert "<theirs>" not in text
    assert re.search(r"every flight exactly once .*yes .*NO", text)
