"""The table of mutants, as it is printed and as docs/mutants.md holds it."""

from __future__ import annotations

from collections.abc import Sequence

from mutants.trial import Outcome

__all__ = ["page", "row", "summary"]

_HEAD = """\
# Mutants: the checker is checked

Made by `make mutants MUTANTS_ARGS="--write docs/mutants.md"`; do not edit. Each row is a bug, put into a copy of the
product's code (`tools/mutants/catalogue` has the exact replacements). Then up to {histories} seeded histories are
simulated, one after the other, until the checker finds one wrong; where it finds none, the unit tests are asked.
`make mutants` fails when a bug is found by neither, when it is found by the unit tests alone and its definition does
not say why, and when its text is not in the code any more. A bug that names its test is tried by that test alone.

CI runs `make mutants MUTANTS_ARGS="--named"`: all that name a test, also as `shown_by` besides the histories, each by
that test alone; one that survives fails the run. No gate runs the others, which histories find: these are marked *.

"Histories" is how many it took. "Found as" is the law of the checker that was broken, or the unit test.

| mutant | what a user would suffer | histories | found as |
|---|---|---:|---|
"""


def row(outcome: Outcome) -> str:
    """One line for a terminal."""
    mutant = outcome.mutant
    return f"{mutant.name:45} {_count(outcome):>9}  {_found(outcome)}  ({outcome.seconds:.0f} s)"


def page(outcomes: Sequence[Outcome], histories: int) -> str:
    rows = [
        f"| {each.mutant.name} | {each.mutant.suffers} | {_count(each)} | {_found(each)}{_ungated(each)} |"
        for each in outcomes
    ]
    missed = [f"- **{each.mutant.name}**: {each.mutant.missed}" for each in outcomes if each.mutant.missed]
    why = ["\n## Not found by histories\n", *missed] if missed else []
    return _HEAD.format(histories=f"{histories:,}") + "\n".join([*rows, *why, "", summary(outcomes)]) + "\n"


def summary(outcomes: Sequence[Outcome]) -> str:
    by_histories = sum(each.histories is not None for each in outcomes)
    by_tests = sum(each.histories is None and each.test is not None for each in outcomes)
    return f"{len(outcomes)} mutants: {by_histories} found by histories, {by_tests} by unit tests alone."


def _ungated(outcome: Outcome) -> str:
    return "" if outcome.mutant.test or outcome.mutant.shown_by else " *"


def _count(outcome: Outcome) -> str:
    found = outcome.histories
    return str(found.histories or "") if found is not None else "none"


def _found(outcome: Outcome) -> str:
    if outcome.histories is not None:
        return outcome.histories.by
    return f"`{outcome.test.by}`" if outcome.test is not None else "NOT FOUND"
