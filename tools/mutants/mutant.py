"""What a mutant is, and how one is made.

Laws
1. A mutant is a few exact replacements. Each old text stands in its file exactly once, or the mutant is stale: the
   code has changed, and somebody must say anew what the bug would be.
2. The working tree is only read. A mutant is made in a copy.
3. Of a module that is compiled, and of its neighbours, the copy has the source only: a trial runs it as it is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Edit", "Mutant", "StaleMutantError", "apply", "check_fresh"]


class StaleMutantError(Exception):
    """A mutant's old text is not in the code any more, or no longer unique."""


@dataclass(frozen=True, slots=True)
class Edit:
    """path: of a file, from src/instride on."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """suffers: what a user would see of it, in a line.

    missed: why no history can show it, for one that only the unit tests are to find; "" for all others.
    test: as `tests/...py::test_...`, the one test that is asked, and nothing else is; "" for all others.
    shown_by: a test that shows it besides the histories, which is faster; "" where none is known.
    """

    name: str
    suffers: str
    edits: tuple[Edit, ...]
    missed: str = ""
    test: str = ""
    shown_by: str = ""


def apply(mutant: Mutant, package: Path) -> None:
    """Make the bug in `package`, a copy of src/instride. Raises `StaleMutantError`, with nothing changed."""
    for path, text in _mutated(mutant, package).items():
        path.write_text(text, encoding="utf-8")
        if any(path.parent.glob(f"{path.stem}.*.so")):
            for compiled in path.parent.glob("*.so"):
                compiled.unlink()


def check_fresh(mutant: Mutant, package: Path) -> None:
    """Raises `StaleMutantError`."""
    _mutated(mutant, package)


def _mutated(mutant: Mutant, package: Path) -> dict[Path, str]:
    texts: dict[Path, str] = {}
    for edit in mutant.edits:
        path = package / edit.path
        if path not in texts:
            if not path.is_file():
                raise StaleMutantError(f"{mutant.name} is stale: there is no {edit.path}")
            texts[path] = path.read_text(encoding="utf-8")
        found = texts[path].count(edit.old)
        if found != 1:
            raise StaleMutantError(f"{mutant.name} is stale: its text is in {edit.path} {found} times:\n{edit.old}")
        texts[path] = texts[path].replace(edit.old, edit.new)
    return texts
