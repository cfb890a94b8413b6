"""``python -m instride.testing.explore [--depth N] [--seconds S] [--scene NAME] [--jobs J]``

Every sequence of moves from each scene, up to a depth or for so many seconds in all; says how many states there were,
and to which depth all were seen. The exit status is 1 where a law is broken, with the shortest sequence of moves that
does so; it is 2 where the time was up before the depth that `--depth` names was whole.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import inf

from instride.testing._explore.processes import reports
from instride.testing._explore.scenes import SCENES
from instride.testing._explore.search import Found, Report, replay
from instride.testing._simulation.transcript import transcript
from instride_command.ending import Parser

__all__ = ["main"]

_DEEPEST = 100


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = Parser(prog="python -m instride.testing.explore", description=__doc__)
    parser.add_argument("--depth", type=int, metavar="N", help="moves from each scene (no bound)")
    parser.add_argument("--seconds", type=float, default=600.0, metavar="S", help="in all, of each process (600)")
    parser.add_argument("--scene", action="append", choices=tuple(SCENES), help="only this one; may come again (all)")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="how many processes (1)")
    chosen = parser.parse_args(arguments)
    depth = _DEEPEST if chosen.depth is None else chosen.depth
    if depth < 1 or chosen.jobs < 1 or not 0 < chosen.seconds < inf:
        parser.error("--depth and --jobs are numbers from 1 on, --seconds is more than 0, and finite")
    names = tuple(chosen.scene or SCENES)
    wrong, total = 0, Report(depth=depth)
    for name, report in reports(names, depth, chosen.seconds * chosen.jobs / len(names), chosen.jobs):
        _say(f"{report.states:9} states, {report.moves:9} moves, depth {_depth(report)}: {name}")
        for found in report.found[:1]:
            _tell(name, found)
        wrong += bool(report.found)
        total.states, total.moves = total.states + report.states, total.moves + report.moves
        total.depth = min(total.depth, report.depth)
    _say(f"{total.states} states, {total.moves} moves; everywhere to depth {total.depth}; {wrong} scenes wrong")
    if wrong:
        return 1
    if chosen.depth is not None and total.depth < chosen.depth:
        _say(f"depth {chosen.depth} was not whole in the time: --seconds gives more")
        return 2
    return 0


def _depth(report: Report) -> str:
    return f"{report.depth} whole" if report.whole else f"{report.depth} whole, {report.depth + 1} in part"


def _tell(name: str, found: Found) -> None:
    world = replay(SCENES[name], found.moves)
    if not found.at_once:
        world.finish()
    _say(transcript(world.history, [found.violation]))
    _say(f"{name}, then {', '.join(found.moves)}: {found.violation}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
