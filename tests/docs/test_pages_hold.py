"""What the pages point at is there: links and their anchors, files, make's targets, errors, Python names."""

from __future__ import annotations

import builtins
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import instride.errors
from api_reference.__main__ import PUBLIC

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])
PLACES = ["", "docs", "src", "src/instride", "tests"]
"""Where a file that a page names may be, from the root."""

FILES = {path.name for folder in ("src", "tests", "tools") for path in (ROOT / folder).rglob("*.*")}
ERRORS = set(re.findall(r"^class (\w+Error)\b", "\n".join(map(Path.read_text, ROOT.glob("src/**/*.py"))), re.MULTILINE))
NOT_OURS = {"KafkaException", "ProducerFencedError"}  # confluent-kafka's, kafka-python's
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def prose(page: Path) -> str:
    """Without code blocks."""
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def links(page: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", each).replace("`", "") for each in headings]
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in plain}


@pages
def test_every_link_leads_somewhere(page: Path) -> None:
    dead = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


@pages
def test_every_file_that_is_named_is_there(page: Path) -> None:
    named = re.findall(r"`([\w.-]+(?:/[\w.-]+)*\.(?:py|pyi|md|toml|txt|sh))`", prose(page))
    missing = [name for name in named if name not in FILES and not (page.parent / name).exists()]
    assert [name for name in missing if not any((ROOT / place / name).exists() for place in PLACES)] == []


@pages
def test_every_target_of_make_is_one(page: Path) -> None:
    targets = set(
        re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    )
    assert set(re.findall(r"`make ([a-z][a-z0-9-]*)", prose(page))) - targets == set()


@pages
def test_every_error_that_is_named_is_one(page: Path) -> None:
    named = set(re.findall(r"`([A-Z]\w+(?:Error|Exception))`", prose(page))) - NOT_OURS - ERRORS
    assert [name for name in sorted(named) if not (hasattr(instride.errors, name) or hasattr(builtins, name))] == []


@pages
def test_every_page_with_examples_has_a_test_that_runs_them(page: Path) -> None:
    """A test that runs a page's examples names the page. (The API reference has signatures, not examples.)"""
    if "```python\n" in page.read_text(encoding="utf-8") and page.parent.name != "api":
        tests = [path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
        assert any(page.name in path.read_text(encoding="utf-8") for path in tests)


@pages
def test_what_the_examples_import_is_public(page: Path) -> None:
    imported = set(re.findall(r"^(?:from|import) (instride[\w.]*)", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert imported - set(PUBLIC) == set()


def test_every_logger_is_told_of() -> None:
    """On the page of telemetry. Of those that are named by their modules, the packages of the modules."""
    sources = {path: path.read_text(encoding="utf-8") for path in ROOT.glob("src/**/*.py")}
    named = {name for text in sources.values() for name in re.findall(r'getLogger\("(instride[\w.]*)"\)', text)}
    of_modules = [path for path, text in sources.items() if "getLogger(__name__)" in text]
    named |= {".".join(path.relative_to(ROOT / "src").parts[:2]) for path in of_modules}
    page = (ROOT / "docs/telemetry.md").read_text(encoding="utf-8").partition("## Logging\n")[2].partition("\n## ")[0]
    assert named
    assert [name for name in sorted(named) if f"`{name}`" not in page] == []


def test_the_extras_of_the_readme_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    told = re.search(r"the extras are (.*?)\.\n", readme, re.DOTALL)
    assert told
    assert set(re.findall(r"`(\w+)`", told[1])) == set(project["optional-dependencies"])
    needed = {re.split(r"[><=]", each)[0] for each in project["dependencies"]}
    assert [name for name in needed if f"`{name}`" not in readme] == []


def test_every_page_is_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            targets = ((page.parent / link.partition("#")[0]).resolve() for link in links(page))
            waiting += [each for each in targets if each.suffix == ".md" and each.exists()]
    assert [str(page.relative_to(ROOT)) for page in PAGES if page not in reached] == []
