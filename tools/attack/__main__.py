"""``make attack``: every case of the list, or those whose names are given; a table of what became of them.

    python -m attack [--list] [--seed N] [--others] [--write PAGE] [NAME ...]

The exit status is 1 where a bound is not held that is not a known failure, or a known failure holds after all.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from attack.cases import CASES, FOR_ALL, Case
from attack.judge import run
from attack.peers import CLIENTS
from attack.table import other_row, others_head, row, write_others, write_own

__all__: list[str] = []


def main() -> int:
    parser = argparse.ArgumentParser(prog="make attack", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of cases' names; all cases where none is given")
    parser.add_argument("--list", action="store_true", help="only name the cases")
    parser.add_argument("--seed", type=int, default=0, help="of the damaging network")
    parser.add_argument("--others", action="store_true", help="other clients too, in the cases that suit all")
    parser.add_argument("--write", type=Path, help="the page to write the table to")
    given = parser.parse_args()
    chosen = [each for each in CASES if not given.names or any(name in each.name for name in given.names)]
    if given.others:
        table = others(chosen)
        if given.write is not None:
            write_others(given.write, table)
        return 0
    outcomes = []
    for case in chosen:
        if given.list:
            print(f"{case.name}: {case.lie}")
            continue
        outcomes.append(run(case, given.seed))
        print(row(outcomes[-1]), flush=True)
    if given.write is not None:
        write_own(given.write, outcomes)
    return int(any(bool(each.broken) != bool(each.case.known) for each in outcomes))


def others(chosen: list[Case]) -> str:
    """The table. It says what was seen, and fails nothing."""
    table = others_head(list(CLIENTS))
    for case in chosen:
        if case.name in FOR_ALL:
            # A client without a bound gives out the value of a bomb, which is well.
            fair = replace(case, errors=(), any_error=True, values=case.values and "bomb" not in case.name)
            table += f"{other_row(case.name, [run(fair, client=name) for name in CLIENTS])}\n"
            print(table.splitlines()[-1], flush=True)
    return table


sys.exit(main())
