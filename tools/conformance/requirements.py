"""The requirements, as `tests/conformance/requirements/*.toml` lists them.

Laws
1. A requirement is in our own words and names the section of the document that it is from.
2. An id is given once. `KIP-983/4` is marked `@pytest.mark.requirement("KIP-983/4")`, `vector/7` is marked
   `@pytest.mark.vector(7)`, `rule/full-speed` is marked `@pytest.mark.rule("full-speed")`.
3. What no test can prove, or what is none of a consumer's business, says why in `not_ours`.
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
    """id: as the markers name it. section: where the document says so. not_ours: why there is no test."""

    id: str
    section: str
    text: str
    not_ours: str = ""


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
    return documents


def _document(table: dict[str, Any]) -> Document:
    requirements = tuple(Requirement(**each) for each in table["requirement"])
    return Document(title=table["title"], about=table["about"].strip(), requirements=requirements)
