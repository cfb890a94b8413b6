"""The page says which invariant is judged where, and it says what the checker does."""

from __future__ import annotations

from judged_table import PAGE, SOURCES, WHY_NOT, judged, page_with, table

from instride.testing.check import INVARIANTS


def test_the_page_has_the_table_that_the_checker_makes() -> None:
    wanted = page_with(table())
    assert PAGE.read_text(encoding="utf-8") == wanted, "python tests/testing/check/judged_table.py writes it"


def test_what_is_not_judged_has_a_reason() -> None:
    for source in SOURCES:
        assert set(INVARIANTS) - judged(source) == set(WHY_NOT.get(source, {})), source


def test_every_invariant_is_judged_on_a_real_kafka_and_in_virtual_time() -> None:
    assert judged("kafka") == judged("calm") == set(INVARIANTS)
