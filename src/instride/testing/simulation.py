"""A whole consumer group in virtual time: real machines of the core, models of everything around them.

    history = SimulatedCluster(plan_for(seed), loop=my_loop).run()
    violations = check(history)

Laws
1. One scheduler, one clock, one random generator, all made from the seed. The same plan gives the same history, byte
   for byte, in every process.
2. What is ours is the product's own code: both machines, the queues' events, the assignors, `OffsetLedger`. What is a
   model says so in its name: `coordinator_model`, `broker_model`.
3. Nothing decides on what a history is worth but `check`, and it reads nothing but the history.
"""

from __future__ import annotations

from instride.testing._simulation.cluster import SimulatedCluster, run
from instride.testing._simulation.history import Event, History
from instride.testing._simulation.member import Loop, Member
from instride.testing._simulation.plan import Fault, MemberPlan, Plan
from instride.testing._simulation.planning import plan_for
from instride.testing._simulation.process import Sleep, UserLoop
from instride.testing._simulation.transcript import transcript
from instride.testing.check import check

__all__ = [
    "Event",
    "Fault",
    "History",
    "Loop",
    "Member",
    "MemberPlan",
    "Plan",
    "SimulatedCluster",
    "Sleep",
    "UserLoop",
    "check",
    "plan_for",
    "run",
    "transcript",
]
