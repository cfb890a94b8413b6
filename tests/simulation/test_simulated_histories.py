"""The flagship loop's promise, and the others of docs/histories.md, under hundreds of seeded interleavings.

`make simulate` runs ten thousand.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from instride.testing.check import Parameters
from instride.testing.simulation import History, check, plan_for, run, transcript

# The first seeds are judged where their worth is counted; the next ones here. Of a rare kind (one history in sixteen)
# so many must be counted that a change of every history, which any change of the consumer is, leaves it its number.
COUNTED = 200
HISTORIES = int(os.environ.get("INSTRIDE_HISTORIES", "240"))
SHARDS = 4


def judged(seed: int) -> History:
    history = run(plan_for(seed))
    found = check(history)
    if found:
        told = transcript(run(plan_for(seed), keep_logs=True), found)
        pytest.fail(f"{told}\n\nseed {seed}: {found[0]}", pytrace=False)
    return history


@pytest.mark.requirement("KIP-983/31")
@pytest.mark.requirement("KIP-983/2")
@pytest.mark.requirement("threading/29")
@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_history_keeps_every_promise(shard: int) -> None:
    """Exactly once without loss, at least once with it; no commit of an older epoch, beyond a gap, or too late."""
    for seed in range(COUNTED + shard, HISTORIES, SHARDS):
        judged(seed)


@pytest.mark.slow
def test_the_histories_are_worth_their_name() -> None:
    """Most have two rebalances or more; losses, delays and gifts happen; calm ones and faulty ones."""
    kinds: Counter[str] = Counter()
    for seed in range(COUNTED):
        history = judged(seed)
        seen = Counter(event.what for event in history)
        generations = sum(event.what == "group" and event.detail[0] == "Stable" for event in history)
        kinds.update(what for what in ("lost", "delay", "reassigned", "failed", "cancelled") if seen[what])
        kinds["two rebalances"] += generations >= 3
        kinds[Parameters.of(history.events[0].detail).kind] += 1
    assert kinds["two rebalances"] > COUNTED // 2, kinds
    assert min(kinds["calm"], kinds["storm"], kinds["slow"], kinds["lost"], kinds["delay"]) > COUNTED // 12, kinds
    assert kinds["faults"] > COUNTED // 3, kinds
    assert kinds["reassigned"] > COUNTED // 40, kinds


@pytest.mark.slow
def test_the_same_seed_gives_the_same_history_in_every_process() -> None:
    """Law 1: also where texts are hashed otherwise."""
    code = (
        "import sys; from instride.testing.simulation import plan_for, run\n"
        "from instride.testing._simulation.campaign import planned\n"
        "means = frozenset(('verbs', 'listeners', 'ends', 'interrupts', 'lines', 'modes', 'looks'))\n"
        "plans = [*map(plan_for, range(12)), *(planned(seed, means) for seed in (4, 10))]\n"
        "sys.stdout.write(''.join(run(each).lines() for each in plans))"
    )
    here = _told_by(code, "0")
    assert {_told_by(code, hashing) for hashing in ("1", "2")} == {here}


def _told_by(code: str, hashing: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hashing}
    program = [sys.executable, "-c", code]
    return subprocess.run(program, env=environment, capture_output=True, text=True, check=True, timeout=300).stdout


def test_logs_change_nothing() -> None:
    with_logs = [event for event in run(plan_for(5), keep_logs=True) if event.what != "log"]
    assert with_logs == list(run(plan_for(5)))
