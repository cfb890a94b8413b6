"""``python -m mutants [NAME...]``: make each mutant, and see whether it is found.

The exit status is 1 where one is stale, is found by nothing, or is found by unit tests alone though its definition
does not say why; and where what finds the mutants finds something in the product as well.

With ``--rows``: of each row of KIP-983 that names a mutant (`tests/conformance/requirements`), the mutant is tried by
the test that the row names, and by nothing else. With ``--named``: each that names a test (`test`, `shown_by`) by that
one alone. With ``--sample SEED``: in an order that the seed says. With ``--within SECONDS``: none begins later.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from conformance.requirements import read_documents
from mutants.catalogue import load
from mutants.mutant import Mutant, StaleMutantError, check_fresh
from mutants.table import page, row, summary
from mutants.trial import Outcome, Snapshot, judge, snapshot, verify

__all__ = ["main", "named", "of_rows", "sampled", "status"]

_FOR_THE_MISSED = 100
"""Histories for a mutant of which its definition says that none shows it; more would only take time."""
_PROJECT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these (all)")
    parser.add_argument("--rows", action="store_true", help="of each row of KIP-983, by the test that the row names")
    parser.add_argument("--named", action="store_true", help="those that name a test, each by that test alone")
    parser.add_argument("--sample", metavar="SEED", help="in an order that this seed says")
    parser.add_argument("--within", type=float, default=float("inf"), metavar="S", help="seconds in which they begin")
    parser.add_argument("--histories", type=int, default=1500, metavar="N", help="most for each mutant (1500)")
    parser.add_argument("--jobs", type=int, default=2, metavar="J", help="mutants at once (2)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table there, too")
    chosen = parser.parse_args(arguments)
    with snapshot(_PROJECT) as original:
        try:
            mutants = of_rows(_PROJECT, load()) if chosen.rows else _chosen(chosen.names, original)
            mutants = named(mutants) if chosen.named else mutants
            mutants = sampled(mutants, chosen.sample) if chosen.sample else mutants
        except (StaleMutantError, LookupError) as error:
            _say(str(error))
            return 1
        until = time.monotonic() + chosen.within
        outcomes = _judge_all(original, mutants, chosen.jobs, chosen.histories, until)
        found_in_the_product = verify(original, outcomes)
    _say(summary(outcomes) + (f" {left} were left out." if (left := len(mutants) - len(outcomes)) else ""))
    if chosen.write is not None:
        chosen.write.write_text(page(outcomes, chosen.histories), encoding="utf-8")
    return status(outcomes, found_in_the_product)


def _chosen(names: Sequence[str], original: Snapshot) -> list[Mutant]:
    """Raises `StaleMutantError` for any that is stale, and LookupError for a name that is none."""
    mutants = load()
    if unknown := set(names) - {mutant.name for mutant in mutants}:
        raise LookupError(f"no such mutant: {', '.join(sorted(unknown))}")
    for mutant in mutants:
        check_fresh(mutant, original.package)
    return [mutant for mutant in mutants if not names or mutant.name in names]


def of_rows(project: Path, mutants: Sequence[Mutant]) -> list[Mutant]:
    """One for each pair of a mutant and the test that a row names. Raises LookupError for a name that is none."""
    known = {mutant.name: mutant for mutant in mutants}
    documents = read_documents(project / "tests" / "conformance" / "requirements")
    rows = [row for document in documents for row in document.requirements if row.mutant]
    if unknown := {row.mutant for row in rows} - known.keys():
        raise LookupError(f"no such mutant: {', '.join(sorted(unknown))}")
    pairs = dict.fromkeys((row.mutant, row.killed_by) for row in rows)
    return [replace(known[name], test=test) for name, test in pairs]


def named(mutants: Sequence[Mutant]) -> list[Mutant]:
    """Those that name a test, to be tried by that one alone."""
    tests = ((mutant, mutant.test or mutant.shown_by) for mutant in mutants)
    return [replace(mutant, test=test, missed="", shown_by="") for mutant, test in tests if test]


def sampled(mutants: Sequence[Mutant], seed: str) -> list[Mutant]:
    """All, in an order that is always the same of the same seed: where time ends, the others were left out."""
    return random.Random(seed).sample(mutants, len(mutants))  # noqa: S311 - nothing secret


def _judge_all(original: Snapshot, mutants: Sequence[Mutant], jobs: int, histories: int, until: float) -> list[Outcome]:
    """until: by the monotonic clock; none begins later."""

    def trial(mutant: Mutant) -> Outcome | None:
        if time.monotonic() > until:
            return None
        most = min(histories, _FOR_THE_MISSED) if mutant.missed else histories
        outcome = judge(original, mutant, histories=most)
        _say(row(outcome))
        return outcome

    with ThreadPoolExecutor(max_workers=jobs) as pool:
        return [outcome for outcome in pool.map(trial, mutants) if outcome is not None]


def status(outcomes: Sequence[Outcome], found_in_the_product: str) -> int:
    wrong = [f"{each.mutant.name} is found by nothing" for each in outcomes if not each.killed]
    for each in outcomes:
        if each.killed and each.histories is None and not each.mutant.missed and not each.mutant.test:
            wrong.append(f"{each.mutant.name} is found by no history, and its definition does not say why")
        if each.histories is not None and each.mutant.missed:
            wrong.append(f"{each.mutant.name} is found by a history now: drop its `missed`")
    if found_in_the_product:
        wrong.append(f"the product itself is found wrong by what finds the mutants: {found_in_the_product}")
    for line in wrong:
        _say(line)
    return 1 if wrong else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
