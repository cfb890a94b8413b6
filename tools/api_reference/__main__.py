"""Writes docs/api from the docstrings of the public names.

PYTHONPATH=tools python -m api_reference          # write
PYTHONPATH=tools python -m api_reference --check  # exit status 1 where a page is not what the docstrings say
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from api_reference.page import page, summary
from api_reference.source import Source

__all__ = ["PUBLIC", "main", "pages"]

PUBLIC: Final = (
    "instride",
    "instride.assignors",
    "instride.errors",
    "instride.metrics",
    "instride.observers",
    "instride.records",
    "instride.spark",
    "instride.spark.contract",
    "instride.spark.parquet",
    "instride.spark.sink",
    "instride.telemetry",
    "instride.testing",
    "instride.testing.check",
    "instride.testing.simulation",
    "pytest_instride",
)
"""The modules whose names users may import."""

_ROOT = Path(__file__).resolve().parents[2]
_HEAD = """\
# API reference

Made by `make docs` from the docstrings; do not edit. What is not named here is private and may change at any time.

| module | |
|---|---|
"""


def pages(source: Source) -> dict[str, str]:
    """Every page's text by its file's name."""
    rows = "".join(f"| [{name}]({name}.md) | {summary(source.module(name))} |\n" for name in PUBLIC)
    return {"index.md": _HEAD + rows, **{f"{name}.md": page(source, name) for name in PUBLIC}}


def main(arguments: list[str] | None = None, *, root: Path = _ROOT) -> int:
    parser = argparse.ArgumentParser(prog="api_reference", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say whether the pages are what the docstrings say")
    check = parser.parse_args(arguments).check
    folder, made = root / "docs" / "api", pages(Source(root / "src"))
    there = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    if check and there != made:
        sys.stderr.write("docs/api is not what the docstrings say: run make docs\n")
        return 1
    if not check:
        folder.mkdir(exist_ok=True)
        for name in there.keys() - made.keys():
            (folder / name).unlink()
        for name, text in made.items():
            (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
