"""docs/conformance.md as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from conformance.markers import Proof
from conformance.requirements import Document, Requirement

__all__ = ["conformance_page", "unknown_ids"]

_HEAD = """\
# Conformance: which test shows what

Made by `make docs` from the tests' own markers; do not edit. A row is a requirement, in our own words, of a document
that the consumer is made from ([sources](sources.md)); beside it stand the tests that are marked with its id. "Not yet"
means that no test is. `(Kafka)` and `(Spark)`: the test runs against a real one; the others need neither.
"""


def unknown_ids(documents: Sequence[Document], proofs: Sequence[Proof]) -> list[str]:
    """Markers that name nothing in the lists, each with its test."""
    known = {each.id for document in documents for each in document.requirements}
    return [f"{proof.path}::{proof.test}: {proof.requirement}" for proof in proofs if proof.requirement not in known]


def conformance_page(documents: Sequence[Document], proofs: Sequence[Proof]) -> str:
    """The whole page."""
    of = {name: list(group) for name, group in groupby(sorted(proofs, key=_by_id), key=_by_id)}
    sections = ["\n".join(_section(document, of)) for document in documents]
    return "\n".join([_HEAD, _summary(documents, of), *sections])


def _by_id(proof: Proof) -> str:
    return proof.requirement


def _summary(documents: Sequence[Document], of: dict[str, list[Proof]]) -> str:
    lines = ["| document | requirements | shown by a test | not yet | none, and why |", "|---|---:|---:|---:|---:|"]
    for document in documents:
        ours = [each for each in document.requirements if not each.not_ours]
        shown = sum(each.id in of for each in ours)
        missing, others = len(ours) - shown, len(document.requirements) - len(ours)
        name = f"[{document.title}](#{_anchor(document.title)})"
        lines.append(f"| {name} | {len(document.requirements)} | {shown} | {missing} | {others} |")
    return "\n".join([*lines, ""])


def _anchor(title: str) -> str:
    return "".join(each for each in title.lower().replace(" ", "-") if each.isalnum() or each in "-_")


def _section(document: Document, of: dict[str, list[Proof]]) -> Iterator[str]:
    yield f"## {document.title}\n"
    yield f"{document.about}\n"
    yield "| id | requirement | section | shown by |"
    yield "|---|---|---|---|"
    for each in document.requirements:
        yield f"| {each.id} | {each.text} | {each.section} | {_shown(each, of.get(each.id, []))} |"
    yield ""


def _shown(requirement: Requirement, proofs: list[Proof]) -> str:
    if not proofs:
        return f"none: {requirement.not_ours}" if requirement.not_ours else "**not yet**"
    return "<br>".join(_link(proof) for proof in sorted(proofs))


def _link(proof: Proof) -> str:
    words = proof.test.removeprefix("test_").replace("_", " ")
    ring = f" ({proof.ring.capitalize()})" if proof.ring else ""
    return f"[{words}](../tests/{proof.path}){ring}"
