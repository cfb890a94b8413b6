"""``python -m instride.testing.simulate --histories N [--seed S] [--jobs J]``: simulate N histories and judge each.

Prints progress, a summary, and how often each row of the transition tables was taken. The exit status is 1 where a
history breaks a law, with its seed and the transcript of a short history that breaks the same one; and where a run of
many histories never takes one of the rows. It is 130 where Ctrl-C ended the run before its last history.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from instride.testing._simulation.campaign import Batch, batches, planned
from instride.testing._simulation.cluster import run
from instride.testing._simulation.corpus import decode, encode
from instride.testing._simulation.coverage import never_taken
from instride.testing._simulation.plan import Plan
from instride.testing._simulation.planning_groups import GROUPS
from instride.testing._simulation.planning_harsh import HARSH
from instride.testing._simulation.planning_unruly import MEANS
from instride.testing._simulation.shrinking import shrink
from instride.testing._simulation.transcript import transcript
from instride.testing.check import check
from instride_command.ending import Parser, status_of

__all__ = ["main"]

_EVERY = 10.0
"""Seconds between lines of progress."""
_MANY = 5000
"""From so many histories on, a row that none of them takes is a failure."""
_INTERRUPTED = 130
"""As a shell says it of Ctrl-C."""
_MEANS = {
    "unruly": (MEANS, "unruly users"),
    "harsh": (HARSH, "brokers that refuse for a while, or have a lot"),
    "groups": (GROUPS, "groups of another kind"),
}
"""By the options that name some of them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = Parser(prog="python -m instride.testing.simulate", description=__doc__)
    parser.add_argument("--histories", type=int, default=1000, metavar="N", help="how many (1000)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first one's seed (0)")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="how many processes (1)")
    parser.add_argument("--go-on", action="store_true", help="name every wrong history, instead of showing the first")
    parser.add_argument("--plan", type=Path, metavar="FILE", help="one history: that of the plan in this file")
    parser.add_argument("--transcript", action="store_true", help="print the transcript of the first, whatever it is")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the first one as JSON lines, and no more")
    for name, (means_of, what) in _MEANS.items():
        some = ",".join(means_of)
        parser.add_argument(f"--{name}", nargs="?", const=some, default="", metavar="MEANS", help=f"{what} ({some})")
    chosen = parser.parse_args(arguments)
    means = frozenset[str]()
    for name, (means_of, _) in _MEANS.items():
        given = frozenset(getattr(chosen, name).split(",")) - {""}
        if given - set(means_of):
            parser.error(f"--{name} takes some of {', '.join(means_of)}")
        means |= given
    if chosen.histories < 1 or chosen.jobs < 1:
        parser.error("--histories and --jobs are numbers from 1 on")
    if chosen.write is not None:
        lines = run(planned(chosen.seed, means)).lines()
        try:
            chosen.write.write_text(lines, encoding="utf-8")
        except BrokenPipeError:
            raise
        except OSError as error:
            parser.error(str(error))
        return 0
    if chosen.transcript:
        plan = planned(chosen.seed, means)
        _say(f"{encode(plan)}\n{_transcript(plan)}")
        return 0
    if chosen.plan is not None:
        try:
            plan = _plan_in(chosen.plan.read_text(encoding="utf-8"))
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            parser.error(f"{chosen.plan} is no plan: {error!r}")
        return _replay(plan)
    return _simulate(range(chosen.seed, chosen.seed + chosen.histories), chosen.jobs, means, go_on=chosen.go_on)


def _plan_in(text: str) -> Plan:
    plan = decode(text)
    wrong = [name for name, kind in get_type_hints(Plan).items() if not _fits(getattr(plan, name), kind)]
    if wrong:
        raise TypeError(f"wrong types in {', '.join(wrong)}")
    return plan


def _fits(value: object, kind: Any) -> bool:
    """Whether it is of this type."""
    parts = get_args(kind)
    if get_origin(kind) is Literal:
        return value in parts
    if get_origin(kind) is UnionType:
        return any(_fits(value, each) for each in parts)
    if get_origin(kind) is tuple:
        if not isinstance(value, tuple):
            return False
        kinds = parts[:1] * len(value) if parts[-1] is ... else parts
        return len(value) == len(kinds) and all(map(_fits, value, kinds))
    if not isinstance(value, (int, float) if kind is float else kind):
        return False
    return not is_dataclass(kind) or all(_fits(getattr(value, name), of) for name, of in get_type_hints(kind).items())


def _replay(plan: Plan) -> int:
    _say(_transcript(plan))
    return 1 if check(run(plan)) else 0


class _Sum:
    """What all batches so far have done."""

    def __init__(self) -> None:
        self.histories = 0
        self.virtual = self.processor = 0.0
        self.wrong: list[int] = []
        self.rows: dict[str, Counter[str]] = {}

    def add(self, batch: Batch) -> None:
        self.histories += batch.histories
        self.virtual += batch.virtual
        self.processor += batch.processor
        self.wrong += batch.wrong
        for table, taken in batch.rows.items():
            total = self.rows.setdefault(table, Counter())
            for row, count in taken.items():
                total[row] += count  # rows that were not taken are in it too


def _simulate(seeds: range, jobs: int, means: frozenset[str], *, go_on: bool) -> int:
    total, ended_early = _Sum(), False
    try:
        _run(seeds, jobs, means, total, go_on=go_on)
    except KeyboardInterrupt:
        ended_early = True
        _say(f"interrupted: {len(seeds) - total.histories} of {len(seeds)} histories were not judged")
    except BrokenProcessPool:
        _say(f"a process was killed after {total.histories} histories: nothing is known of the others")
        return 1
    if total.wrong and not go_on:
        _fail(total.wrong[0], means)
        return 1
    _summarize(total)
    missed = never_taken(total.rows) if total.histories >= _MANY else []
    if missed:
        _say(f"never taken in {total.histories} histories, so nothing is known of it: {'; '.join(missed)}")
    if missed or total.wrong:
        return 1
    return _INTERRUPTED if ended_early else 0


def _run(seeds: range, jobs: int, means: frozenset[str], total: _Sum, *, go_on: bool) -> None:
    text = time.monotonic()
    for batch in batches(seeds, jobs=jobs, means=means):
        total.add(batch)
        for seed, found in batch.wrong.items() if go_on else ():
            _say(f"seed {seed}: {found}")
        if total.wrong and not go_on:
            return
        if time.monotonic() - text > _EVERY:
            text = time.monotonic()
            _say(f"{total.histories} of {len(seeds)} histories, {_wrong(total)}")


def _wrong(total: _Sum) -> str:
    return f"{len(total.wrong)} wrong" if total.wrong else "none wrong"


def _summarize(total: _Sum) -> None:
    rate = total.virtual / max(total.processor, 1e-9)
    _say(
        f"{total.histories} histories, {_wrong(total)}: {total.virtual:.0f} virtual seconds in {total.processor:.1f} s "
        f"of processor time, {rate:.0f} in each"
    )
    for table, taken in total.rows.items():
        _report(table, taken)
    if "verbs" in total.rows:
        pair, least = min(total.rows["verbs"].items(), key=lambda each: each[1])
        _say(f"of {len(total.rows['verbs'])} pairs of verbs in a state the rarest, {least} times: {pair}")


def _report(table: str, taken: Mapping[str, int]) -> None:
    _say(f"{table}:")
    for row, count in sorted(taken.items(), key=lambda each: -each[1]):
        _say(f"{count:12}  {row}")


def _fail(seed: int, means: frozenset[str]) -> None:
    try:
        _show(seed, means)
    except Exception as error:  # noqa: BLE001 - as in a batch: a plan that cannot be played is wrong, too
        _say(f"seed {seed}: {type(error).__name__}: {error}")
    every = {"--unruly": MEANS, "--harsh": HARSH, "--groups": GROUPS}
    given = {option: ",".join(each for each in all_of if each in means) for option, all_of in every.items()}
    again = "".join(f" {option} {some}" for option, some in given.items() if some)
    _say(f"again: python -m instride.testing.simulate --seed {seed} --histories 1{again}")


def _show(seed: int, means: frozenset[str]) -> None:
    plan = planned(seed, means)
    for violation in check(run(plan)):
        _say(f"seed {seed}: {violation}")
    _say("a short history that breaks the same law, and its plan:\n")
    short = shrink(plan)
    _say(_transcript(short))
    _say(f"\n{encode(short)}\n")


def _transcript(plan: Plan) -> str:
    history = run(plan, keep_logs=True)
    return transcript(history, check(history))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(status_of(main))
