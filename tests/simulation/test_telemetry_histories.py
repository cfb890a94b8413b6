"""What telemetry tells agrees with what the histories know, under seeded interleavings."""

from __future__ import annotations

from collections import Counter

import pytest
from telemetry_check import disagreements

from instride.telemetry import DelayAtRisk, HandedOver, OwnershipChange, RebalanceEnded, TelemetryEvent
from instride.testing.simulation import SimulatedCluster, plan_for

# The first seeds are compared where it is counted what they tell; the next ones by themselves.
COUNTED = 60
HISTORIES = 120
SHARDS = 4


def told(seed: int) -> dict[str, list[TelemetryEvent]]:
    """Everything that the members of a history told, which agrees with it."""
    cluster = SimulatedCluster(plan_for(seed))
    cluster.run()
    heard = {name: member.process.told for name, member in cluster.members.items()}
    wrong = [each for name, events in heard.items() for each in disagreements(name, cluster.history, events)]
    assert not wrong, f"seed {seed}: " + "\n".join(wrong)
    return heard


@pytest.mark.drawn(1)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_telemetry_agrees_with_the_history(shard: int) -> None:
    for seed in range(COUNTED + shard, HISTORIES, SHARDS):
        told(seed)


@pytest.mark.slow
def test_the_histories_have_something_to_tell() -> None:
    """Delays with a record as their reason, losses that abandon records, rebalances of each outcome."""
    seen: Counter[str] = Counter()
    for seed in range(COUNTED):
        for events in told(seed).values():
            for event in events:
                match event:
                    case HandedOver(how=OwnershipChange.LOST, abandoned=abandoned):
                        seen["lost with records"] += abandoned > 0
                    case HandedOver(blocker=blocker) if blocker is not None:
                        seen["waited for a record"] += blocker.offset is not None
                    case RebalanceEnded():
                        seen[event.outcome.name] += 1
                    case DelayAtRisk(blocker=blocker) if blocker is not None:
                        seen["at risk"] += 1
                    case _:
                        pass
    assert seen["lost with records"] > 5, seen
    assert seen["waited for a record"] > 5, seen
    assert min(seen["TAKEN"], seen["FAILED"], seen["SUPERSEDED"]) > 5, seen
    assert seen["at risk"] > 1, seen
