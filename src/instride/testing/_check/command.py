"""``python -m instride.testing.check FILE...``: judge a recorded history.

Several files are one history: those that its processes wrote. Prints what is violated, where, and the lines that show
it. Exit status: 0 where nothing is, 1 where something is, 2 where a file cannot be read as a history.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from instride.errors import HistoryError
from instride.testing._check.events import Read, encode, read_histories
from instride.testing._check.judge import INVARIANTS, Judge
from instride.testing._check.violation import Violation
from instride_command.ending import Parser

__all__ = ["main"]

_MOST = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = Parser(prog="python -m instride.testing.check", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="JSON lines of one history")
    paths = parser.parse_args(arguments).files
    judge, read = Judge(), list[Read]()
    try:
        for each in read_histories(paths):
            read.append(each)
            _take(judge, each)
        found = _end(judge, paths)
    except (HistoryError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    for violation in found[:_MOST]:
        _tell(violation, read)
    _summarize(judge, len(read), len(found))
    return 1 if found else 0


def _take(judge: Judge, each: Read) -> None:
    try:
        judge.take(each.event)
    except HistoryError as error:
        raise HistoryError(f"{each.file}, line {each.number}: {error}") from None


def _end(judge: Judge, paths: Sequence[Path]) -> list[Violation]:
    try:
        return judge.end()
    except HistoryError as error:
        raise HistoryError(f"{', '.join(map(str, paths))}: {error}") from None


def _tell(violation: Violation, read: Sequence[Read]) -> None:
    _print(f"{violation.number}, {violation.law}: {violation.text}")
    for line in violation.lines:
        event, file, number = read[line - 1]
        _print(f"  {file}, line {number}: {encode(event)}")


def _print(text: str) -> None:
    """Names are of the history and of files: the output's encoding may not know them."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def _summarize(judge: Judge, events: int, violations: int) -> None:
    if violations > _MOST:
        print(f"... and {violations - _MOST} more")
    silent = [number for number in INVARIANTS if number not in judge.judged]
    print(f"{events} events, {violations} violations. Judged: {' '.join(judge.judged)}")
    if silent:
        print(f"It tells nothing of: {' '.join(silent)}")
