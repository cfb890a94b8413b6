"""The table of mutants, as it is printed and as docs/mutants.md holds it."""

from __future__ import annotations

from collections.abc import Sequence

from mutants.trial import Outcome

__all__ = ["page", "row", "summary"]

_HEAD = """\
# Mutants: the checker is checked

Made by `make mutants MUTANTS_ARGS="--write docs/mutants.md"`; do not edit. Each row is a bug, put into a copy of the
product's code (`tools/mutants/catalogue` has the exact replacements). A bug that names its test there is tried by that
test alone. For any other bug `make mutants` simulates up to {histories} seeded histories, one after the other, until
the checker finds one wrong; if it finds none, `make mutants` runs the unit tests. `make mutants` fails in these cases:

- Neither the histories nor the tests find the bug.
- Only the unit tests find the bug, and its definition does not say why no history shows it.
- The text that the bug replaces is not in the code any more.

CI runs `make mutants` with `--named`: the bugs that name a test, each by that test alone. Some bugs that histories find
name a test, too, as `shown_by`: CI runs them with that test. It takes the bugs in an order that the commit's hash
decides, and starts none after 240 s. If a test does not find its bug, CI fails. CI never runs the bugs that name no
test: these are marked *.

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
