"""``make attack``: every case of the list, or those whose names are given; a table of what became of them.

    python -m attack [--list] [--seed N] [--write PAGE] [NAME ...]

The exit status is 1 where a bound is not held that is not a known failure, or a known failure holds after all.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from attack.cases import CASES
from attack.judge import run
from attack.table import page, row

__all__: list[str] = []


def main() -> int:
    parser = argparse.ArgumentParser(prog="make attack", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of cases' names; all cases where none is given")
    parser.add_argument("--list", action="store_true", help="only name the cases")
    parser.add_argument("--seed", type=int, default=0, help="of the damaging network")
    parser.add_argument("--write", type=Path, help="the page to write the table to")
    given = parser.parse_args()
    chosen = [each for each in CASES if not given.names or any(name in each.name for name in given.names)]
    outcomes = []
    for case in chosen:
        if given.list:
            print(f"{case.name}: {case.lie}")
            continue
        outcomes.append(run(case, given.seed))
        print(row(outcomes[-1]), flush=True)
    if given.write is not None:
        given.write.write_text(page(outcomes))
    return int(any(bool(each.broken) != bool(each.case.known) for each in outcomes))


sys.exit(main())
