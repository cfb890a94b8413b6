"""Writes docs/conformance.md from the markers of the tests.

PYTHONPATH=tools python -m conformance          # write
PYTHONPATH=tools python -m conformance --check  # exit status 1 where the page is not what the markers say
PYTHONPATH=tools python -m conformance --results FILE  # exit status 1 where that run did not show a row
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from conformance.markers import Proof, proofs_in
from conformance.page import conformance_page, unknown_ids
from conformance.requirements import Document, read_documents
from conformance.results import judge, read_played, read_results, skipped_cases

__all__ = ["main"]

_ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None, *, root: Path = _ROOT) -> int:
    parser = argparse.ArgumentParser(prog="conformance", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say whether the page is what the markers say")
    parser.add_argument("--results", type=Path, metavar="FILE", help="pytest's JUnit report of a whole run")
    chosen = parser.parse_args(arguments)
    documents = read_documents(root / "tests" / "conformance" / "requirements")
    proofs = proofs_in(root / "tests")
    if unknown := unknown_ids(documents, proofs):
        sys.stderr.write("\n".join(["markers that name no requirement:", *unknown, ""]))
        return 2
    if chosen.results is not None:
        return _compare(documents, proofs, chosen.results)
    page, text = root / "docs" / "conformance.md", conformance_page(documents, proofs)
    if not chosen.check:
        page.write_text(text, encoding="utf-8")
    elif not page.exists() or page.read_text(encoding="utf-8") != text:
        sys.stderr.write("docs/conformance.md is not what the markers of the tests say: run make docs\n")
        return 1
    return 0


def _compare(documents: Sequence[Document], proofs: Sequence[Proof], report: Path) -> int:
    """Print what the run showed. 1 where it did not show a row that needs a proof."""
    verdict = judge(documents, proofs, read_results(report), read_played(report))
    needed = sum(row.needs_proof for document in documents for row in document.requirements)
    named = {(proof.path, proof.test) for proof in proofs}
    cases = [case for case in skipped_cases(report) if tuple(case.partition("[")[0].split("::")) in named]
    lines = [f"not run here: {test}" for test in [*verdict.not_run, *cases]]
    lines += [f"NOT SHOWN {row}" for row in verdict.not_shown]
    lines.append(f"{verdict.shown} of {needed} requirements were shown by tests that passed in this run")
    sys.stdout.write("\n".join([*lines, ""]))
    return 1 if verdict.not_shown else 0


if __name__ == "__main__":
    sys.exit(main())
