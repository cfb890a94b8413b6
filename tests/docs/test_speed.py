"""The README's sentences and picture about speed, and the page's tables, say what the runs beside the page say.

A figure in the README belongs to the client that is named in the same place of its sentence: the first to the first
one. The size of the records stands until another one is named. So sentences can be rewritten, but no figure can drift.
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import pytest

from benchmarks.load import not_void
from benchmarks.plot import is_of
from benchmarks.throughput import best_raw

ROOT = Path(__file__).parents[2]
SIZES = ("100 B", "1 KB")
NAMES = {
    "Arrow": "instride, Arrow",
    "Python objects": "instride, records",
    "Python": "instride, records",
    "Java": "Java",
    "franz-go": "franz-go",
    "confluent-kafka at its defaults": "confluent-kafka, at defaults",
    "confluent-kafka": "confluent-kafka",
    "aiokafka": "aiokafka",
    "kafka-python": "kafka-python",
}
"""As the README names them; a longer name comes before a shorter one that it begins with."""

Runs = dict[str, dict[str, list[dict[str, float]]]]


def section(page: str, title: str) -> str:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.split(r"^#+ ", text.split(f"\n## {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


@pytest.fixture(scope="module")
def source() -> Path:
    """The runs that the page's main tables are of."""
    named = re.search(r"\[Every run\]\((benchmarks/[\w-]+\.json)\)", section("docs/benchmarks.md", "At a real broker"))
    assert named
    return ROOT / "docs" / named[1]


@pytest.fixture(scope="module")
def runs(source: Path) -> Runs:
    found: Runs = json.loads(source.read_text(encoding="utf-8"))["throughput"]
    return found


def rate(runs: Runs, size: str, client: str) -> float:
    if client == "raw":
        return best_raw(runs[size])
    return statistics.median(run["rows"] / run["seconds"] / 1e6 for run in not_void(runs[size][client]))


def cpu(runs: Runs, size: str, client: str) -> float:
    if client == "raw":
        client = max((name for name in runs[size] if name.startswith("raw")), key=lambda name: rate(runs, size, name))
    return statistics.median(run["cpu"] / run["rows"] * 1e6 for run in not_void(runs[size][client]))


def agrees(said: str, measured: float) -> bool:
    """As many digits as are said."""
    digits = len(said.partition(".")[2])
    return abs(float(said) - measured) <= 0.5 * 10.0**-digits + 1e-9


def said_of(text: str) -> list[tuple[str, str, str]]:
    """The size, the client and the figure, of each figure."""
    found, size = [], ""
    # A sentence ends with a full stop before a space, or after "(27 November)."; figures have no space behind theirs.
    for sentence in re.split(r"(?<=[.!?])\s+", " ".join(text.split())):
        sizes = [each for each in SIZES if each in sentence]
        assert len(sizes) <= 1, f"of two sizes: {sentence}"
        size = sizes[0] if sizes else size
        names = re.findall("|".join(map(re.escape, NAMES)), sentence)
        figures = re.findall(r"\b\d+\.\d+\b", sentence)
        if figures:
            assert len(names) == len(figures), f"{names} and {figures} cannot be told apart: {sentence}"
            found += [(size, NAMES[name], figure) for name, figure in zip(names, figures, strict=True)]
    return found


def test_the_readmes_figures_are_those_of_the_runs(runs: Runs) -> None:
    text = section("README.md", "How fast").partition("[Benchmarks]")[0]
    found = said_of(text)
    assert {("100 B", "instride, Arrow"), ("100 B", "instride, records")} <= {each[:2] for each in found}
    wrong = [(*each, round(rate(runs, *each[:2]), 3)) for each in found if not agrees(each[2], rate(runs, *each[:2]))]
    assert wrong == [], "said, and measured"


def client_of(label: str) -> str:
    """As the page's tables name them."""
    name = (
        label.strip("* ")
        .replace(", to ", ", ")
        .replace("with views", "views")
        .replace("at default settings", "at defaults")
    )
    return "raw" if name.startswith("raw drain") else name


@pytest.mark.parametrize("size", SIZES)
def test_the_pages_table_is_that_of_the_runs(runs: Runs, size: str) -> None:
    text = section("docs/benchmarks.md", "At a real broker").split(f"| {size} | M rows/s |", 1)[1].split("\n\n", 1)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    assert len(rows) > 10
    wrong = []
    for label, said, _, spent, _ in rows:
        measured = rate(runs, size, client_of(label)), cpu(runs, size, client_of(label))
        if not agrees(said, measured[0]) or not agrees(spent, measured[1]):
            wrong.append((label, said, spent, *measured))
    assert wrong == []


def test_the_picture_is_made_of_the_runs(source: Path) -> None:
    pictures = [
        set(re.findall(r"\((?:docs/)?(images/[\w-]+\.png)\)", text))
        for text in (section("README.md", "How fast"), section("docs/benchmarks.md", "At a real broker"))
    ]
    assert pictures[0] == pictures[1]
    (picture,) = pictures[0]
    assert is_of(ROOT / "docs" / picture, source), f"make it again: python -m benchmarks.plot {source} docs/{picture}"


def test_a_figure_that_is_not_the_runs_is_found() -> None:
    runs: Runs = {"100 B": {"Java": [{"rows": 6.2e6, "seconds": 1.0, "foreign": 0.0}]}}
    ((size, client, said),) = said_of("Java reads 6.3 million records of 100 B a second.")
    assert not agrees(said, rate(runs, size, client))
    assert agrees("6.2", rate(runs, size, client))
