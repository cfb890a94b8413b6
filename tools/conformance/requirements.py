"""The requirements, as `tests/conformance/requirements/*.toml` lists them.

Laws
1. A requirement is in our own words and names the section of the document that it is from.
2. An id is given once. `KIP-983/4` is marked `@pytest.mark.requirement("KIP-983/4")`, `vector/7` is marked
   `@pytest.mark.vector(7)`, `rule/full-speed` is marked `@pytest.mark.rule("full-speed")`.
3. A requirement has one status. It is fulfilled unless its row says otherwise: `deviates` (we do something else, and
   why; tests show what we do), `absent` (we do not do it yet), `not_ours` (none of a consumer's business).
4. Each row of KIP-983 names a mutant (`tools/mutants/catalogue`) and the one test that kills it (`killed_by`).
"""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Document", "Requirement", "read_documents"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One row. Of `deviates`, `absent` and `not_ours` at most one holds a reason.

    id: as the markers name it. section: where the document says so. mutant: the name of a bug that breaks this row.
    killed_by: the test, as `tests/...py::test_...`, that fails when the bug is in the code.
    """

    id: str
    section: str
    text: str
    deviates: str = ""
    absent: str = ""
    not_ours: str = ""
    mutant: str = ""
    killed_by: str = ""

    @property
    def status(self) -> str:
        """One of "fulfilled", "deviates", "absent" or "not ours"."""
        for status in ("deviates", "absent", "not_ours"):
            if getattr(self, status):
                return status.replace("_", " ")
        return "fulfilled"

    @property
    def why(self) -> str:
        """The reason of a status that is not "fulfilled"; else empty."""
        return self.deviates or self.absent or self.not_ours

    @property
    def needs_proof(self) -> bool:
        return not (self.absent or self.not_ours)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """title: of the section of the page. about: a sentence or two before its table."""

    title: str
    about: str
    requirements: tuple[Requirement, ...]


def read_documents(folder: Path) -> list[Document]:
    """All documents, in the order of their files' names. Raises ValueError where an id is given twice."""
    documents = [_document(tomllib.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.toml"))]
    ids = Counter(each.id for document in documents for each in document.requirements)
    twice = [each for each, count in ids.items() if count > 1]
    if twice:
        raise ValueError(f"given twice: {', '.join(twice)}")
    rows = [row for each in documents for row in each.requirements]
    several = [row.id for row in rows if sum(map(bool, (row.deviates, row.absent, row.not_ours))) > 1]
    if several:
        raise ValueError(f"more than one status: {', '.join(several)}")
    return documents


def _document(table: dict[str, Any]) -> Document:
    requirements = tuple(Requirement(**each) for each in table["requirement"])
    return Document(title=table["title"], about=table["about"].strip(), requirements=requirements)
