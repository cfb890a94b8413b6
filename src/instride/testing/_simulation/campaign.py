"""Many histories, in one process or several.

Laws
1. Results come in the order of the seeds, however many processes there are: the first wrong history is always the same.
2. A batch is simulated to its end, whatever is wrong. A plan that cannot be made, played or judged is a wrong history.
3. A process that is killed ends all of it with an error. (A `multiprocessing.Pool` would wait for its batch for ever.)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

from instride.testing._simulation.cluster import run
from instride.testing._simulation.coverage import Rows, counted_transitions
from instride.testing._simulation.plan import Plan
from instride.testing._simulation.planning import plan_for
from instride.testing._simulation.planning_groups import GROUPS, with_groups
from instride.testing._simulation.planning_harsh import HARSH, with_harsh_brokers
from instride.testing._simulation.planning_unruly import MEANS, with_unruly_users
from instride.testing._simulation.verb_pairs import counted_verbs
from instride.testing.check import check

__all__ = ["Batch", "batches", "planned"]

_BATCH = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Some histories. virtual, processor: seconds. rows: of the tables, how often each was taken. wrong: seed -> the
    first that is wrong with its history."""

    histories: int
    virtual: float
    processor: float
    rows: Rows
    wrong: Mapping[int, str]


def planned(seed: int, means: frozenset[str] = frozenset()) -> Plan:
    """means: of unruly users, of harsh brokers and of other groups, where there are any; else the usual plan."""
    plan = plan_for(seed)
    unruly, harsh, groups = means & set(MEANS), means & set(HARSH), means & set(GROUPS)
    plan = with_groups(seed, plan, groups) if groups else plan
    plan = with_unruly_users(seed, plan, unruly) if unruly else plan
    return with_harsh_brokers(seed, plan, harsh) if harsh else plan


def simulate_batch(seeds: range, means: frozenset[str] = frozenset()) -> Batch:
    began, virtual, wrong = time.process_time(), 0.0, {}
    with counted_transitions() as counts, counted_verbs() as pairs:
        for seed in seeds:
            try:
                history = run(planned(seed, means))
                found = [str(each) for each in check(history)]
                virtual += history.events[-1].time
            except Exception as error:  # noqa: BLE001 - law 2: of a long run the other histories are worth as much
                found = [f"cannot be played: {type(error).__name__}: {error}"]
            if found:
                wrong[seed] = found[0]
    spent = time.process_time() - began
    rows = {**counts.rows(), **({"verbs": pairs.rows()} if "pairs" in means else {})}
    return Batch(histories=len(seeds), virtual=virtual, processor=spent, rows=rows, wrong=wrong)


def batches(seeds: range, *, jobs: int, means: frozenset[str] = frozenset()) -> Iterator[Batch]:
    """Laws 1 and 3. jobs: how many processes; with 1, this one. means: as in `planned`. Raises BrokenProcessPool."""
    simulate = partial(simulate_batch, means=means)
    parts = [seeds[first : first + _BATCH] for first in range(0, len(seeds), _BATCH)]
    if jobs == 1:
        yield from map(simulate, parts)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(simulate, parts)
