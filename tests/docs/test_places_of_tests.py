"""For each module of the core, of the wire and of the net: its tests have its name, or the architecture names them. And
each package says at its top what is inside."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "instride"
MODULES = sorted(
    path.relative_to(SOURCE)
    for folder in ("_core", "_net", "_wire")
    for path in (SOURCE / folder).rglob("*.py")
    if path.name != "__init__.py"
)
ROW = re.compile(r"^\| ((?:`_\w+/[\w/]+\.py`(?:, )?)+) \| (.+) \|$")


def named() -> dict[Path, list[Path]]:
    """Module -> tests, as the table of the architecture has them."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("## Where a module's tests are")[2].partition("\n## ")[0]
    found: dict[Path, list[Path]] = {}
    for line in table.splitlines():
        if (row := ROW.match(line)) is not None:
            tests = [Path(each) for each in re.findall(r"`(tests/[^`]+)`", row[2])]
            found |= {Path(module): tests for module in re.findall(r"`([^`]+)`", row[1])}
    return found


def of_its_name(module: Path) -> list[Path]:
    stem = module.stem.removesuffix("s")
    area = ROOT / "tests" / module.parts[0].removeprefix("_")
    tests = {path: path.stem.removeprefix("test_") for path in area.rglob("test_*.py")}
    return [path for path, name in tests.items() if stem in name or name in stem]


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_the_tests_of_a_module_are_found(module: Path) -> None:
    tests = named().get(module, [])
    assert [each for each in tests if not (ROOT / each).is_file()] == []
    assert tests or of_its_name(module)


def test_the_table_names_modules_that_are_there() -> None:
    assert named().keys() <= set(MODULES)


PACKAGES = sorted(path.parent.relative_to(SOURCE) for path in SOURCE.rglob("*/__init__.py"))


def inside(package: Path) -> set[str]:
    """Its modules and packages."""
    files = {path.stem for path in (SOURCE / package).glob("*.py")} - {"__init__"}
    return files | {path.parent.name for path in (SOURCE / package).glob("*/__init__.py")}


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_a_package_says_at_its_top_what_is_inside(package: Path) -> None:
    """In its docstring; in a comment where that is for users, who shall not read of private modules."""
    text = (SOURCE / package / "__init__.py").read_text(encoding="utf-8")
    top = re.split(r"^(?:from|import|__all__)\b", text, maxsplit=1, flags=re.MULTILINE)[0]
    words = set(re.findall(r"\w+\*?", top))
    assert {
        name
        for name in inside(package) - words
        if not any(word.endswith("*") and name.startswith(word[:-1]) for word in words)
    } == set()
