"""``python -m instride.testing.simulate --histories N [--seed S]``: simulate N histories, one after the other.

Prints progress and a summary. On the first history that breaks a law it prints its transcript and its seed, and the
exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from instride.testing.simulation.check import Violation, check
from instride.testing.simulation.cluster import run
from instride.testing.simulation.coverage import TransitionCounts, counted_transitions
from instride.testing.simulation.plan import plan_for
from instride.testing.simulation.transcript import transcript

__all__ = ["main"]

_EVERY = 5.0
"""Seconds between lines of progress."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m instride.testing.simulate", description=__doc__)
    parser.add_argument("--histories", type=int, default=1000, metavar="N", help="how many (1000)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first one's seed (0)")
    parser.add_argument("--transcript", action="store_true", help="print the transcript of the first, whatever it is")
    chosen = parser.parse_args(arguments)
    if chosen.transcript:
        _say(_transcript(chosen.seed))
        return 0
    with counted_transitions() as counts:
        return _simulate(range(chosen.seed, chosen.seed + chosen.histories), counts)


def _simulate(seeds: range, counts: TransitionCounts) -> int:
    began, said, virtual = time.process_time(), time.monotonic(), 0.0
    for done, seed in enumerate(seeds, start=1):
        history = run(plan_for(seed))
        virtual += history.events[-1].time
        if violations := check(history):
            _fail(seed, violations)
            return 1
        if time.monotonic() - said > _EVERY:
            said = time.monotonic()
            _say(f"{done} of {len(seeds)} histories, none wrong")
    spent = time.process_time() - began
    _summarize(len(seeds), virtual, spent, counts)
    return 0


def _summarize(histories: int, virtual: float, spent: float, counts: TransitionCounts) -> None:
    _say(f"{histories} histories, none wrong: {virtual:.0f} virtual seconds in {spent:.1f} s of processor time")
    for table, never in counts.never().items():
        _say(f"{table}: {'every row was taken' if not never else 'never taken: ' + ', '.join(never)}")


def _fail(seed: int, violations: Sequence[Violation]) -> None:
    _say(_transcript(seed))
    _say("")
    for violation in violations:
        _say(f"seed {seed}: {violation}")
    _say(f"again: python -m instride.testing.simulate --seed {seed} --histories 1")


def _transcript(seed: int) -> str:
    history = run(plan_for(seed), keep_logs=True)
    return f"{plan_for(seed)}\n{transcript(history, check(history))}"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
