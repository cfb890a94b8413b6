"""docs/conformance.md as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from conformance.markers import Proof
from conformance.requirements import Document, Requirement

__all__ = ["conformance_page", "unknown_ids"]

_STATUSES = ("fulfilled", "deviates", "absent", "not ours")
_HEAD = """\
# Conformance: which test shows what

Made by `make docs` from the tests' own markers; do not edit. A row is a requirement, in our own words. The first four
sections have the requirements of the documents that the consumer is made from ([sources](sources.md)); each further
section says at its top where its requirements come from. Beside a requirement stand its status and the tests marked
with its id. "Fulfilled": we do what the row says. "Deviates": we do something else, and the row says why. "Absent": we
do not do it. "Not ours": it is nothing that a consumer has to do, and the row says why. `(Kafka)` and `(Spark)`: the
test runs against a real one; the others need neither.

A marker is only a claim. CI compares this page with the results of its own run (`make conformance`): a row that needs
a proof and has no test that passed makes the run fail; a test that was skipped is named as not run.
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
    lines = ["| document | requirements | fulfilled | deviates | absent | not ours | without a test |"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|")
    for document in documents:
        counts = Counter(each.status for each in document.requirements)
        bare = sum(each.needs_proof and each.id not in of for each in document.requirements)
        numbers = [len(document.requirements), *(counts[each] for each in _STATUSES), bare]
        name = f"[{document.title}](#{_anchor(document.title)})"
        lines.append(f"| {name} | {' | '.join(str(number) for number in numbers)} |")
    return "\n".join([*lines, ""])


def _anchor(title: str) -> str:
    return "".join(each for each in title.lower().replace(" ", "-") if each.isalnum() or each in "-_")


def _section(document: Document, of: dict[str, list[Proof]]) -> Iterator[str]:
    yield f"## {document.title}\n"
    yield f"{document.about}\n"
    yield "| id | requirement | section | status | shown by |"
    yield "|---|---|---|---|---|"
    for each in document.requirements:
        yield f"| {each.id} | {each.text} | {each.section} | {_status(each)} | {_shown(each, of.get(each.id, []))} |"
    yield ""


def _status(requirement: Requirement) -> str:
    return f"{requirement.status}: {requirement.why}" if requirement.why else requirement.status


def _shown(requirement: Requirement, proofs: list[Proof]) -> str:
    if not proofs:
        return "**no test yet**" if requirement.needs_proof else ""
    return "<br>".join(_link(proof) for proof in sorted(proofs))


def _link(proof: Proof) -> str:
    words = proof.test.removeprefix("test_").replace("_", " ")
    ring = f" ({proof.ring.capitalize()})" if proof.ring else ""
    return f"[{words}](../tests/{proof.path}){ring}"
