"""All mutants, from the files of this folder, in the order of the table.

A file has the shape [[mutant]] name, suffers, perhaps missed, test or shown_by; [[mutant.edit]] path, old, new: the
fields of `Mutant` and `Edit`. Add a mutant whenever a bug is found that the histories should have shown.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from mutants.mutant import Edit, Mutant

__all__ = ["load"]

_FILES = (
    "application",
    "commits",
    "group",
    "ledger",
    "kip983",
    "slowness",
    "beyond_core",
    "asyncio",
    "spark",
    "hostile",
    "rules",
)


def load() -> tuple[Mutant, ...]:
    """Raises TypeError for a field that is missing or unknown, ValueError for a name that is used twice."""
    folder = Path(__file__).parent
    read = [tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8")) for name in _FILES]
    mutants = tuple(_mutant(each) for file in read for each in file.get("mutant", ()))
    if len({mutant.name for mutant in mutants}) < len(mutants):
        raise ValueError("two mutants have the same name")
    return mutants


def _mutant(fields: dict[str, Any]) -> Mutant:
    edits = tuple(Edit(**edit) for edit in fields.pop("edit"))
    return Mutant(edits=edits, **fields)
