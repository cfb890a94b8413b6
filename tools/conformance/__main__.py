"""Writes docs/conformance.md from the markers of the tests.

PYTHONPATH=tools python -m conformance          # write
PYTHONPATH=tools python -m conformance --check  # exit status 1 where the page is not what the markers say
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from conformance.markers import proofs_in
from conformance.page import conformance_page, unknown_ids
from conformance.requirements import read_documents

__all__ = ["main"]

_ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None, *, root: Path = _ROOT) -> int:
    parser = argparse.ArgumentParser(prog="conformance", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say whether the page is what the markers say")
    check = parser.parse_args(arguments).check
    documents = read_documents(root / "tests" / "conformance" / "requirements")
    proofs = proofs_in(root / "tests")
    if unknown := unknown_ids(documents, proofs):
        sys.stderr.write("\n".join(["markers that name no requirement:", *unknown, ""]))
        return 2
    page, text = root / "docs" / "conformance.md", conformance_page(documents, proofs)
    if not check:
        page.write_text(text, encoding="utf-8")
    elif not page.exists() or page.read_text(encoding="utf-8") != text:
        sys.stderr.write("docs/conformance.md is not what the markers of the tests say: run make docs\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
