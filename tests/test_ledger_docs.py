"""The examples of docs/ledger.md do what they show."""

from __future__ import annotations

import doctest
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_examples_of_the_ledgers_page() -> None:
    failed, tried = doctest.testfile(str(DOCS / "ledger.md"), module_relative=False)
    assert failed == 0
    assert tried > 30
