"""Small scopes, whole: every sequence of verbs, network events and interrupts up to a depth, on the real machines.

    python -m instride.testing.explore --depth 4

scenes, world, party             where to begin; a small group; one of its members
search, snapshot                 breadth first; a world as a value
processes, command               several scenes at a time; the command

Laws
1. What is ours is the product's own code, both machines of every member; the brokers are the models of `simulation`.
2. Nothing is left to chance: a state is what its sequence of moves makes of it, and is made again from that.
3. Equal states are explored once. What is left out of the comparison changes nothing that a user could see.
4. Each state is judged by `check`: its history so far, and what becomes of it when everything goes on as it should.
"""

from __future__ import annotations

from instride.testing._explore.scenes import SCENES
from instride.testing._explore.search import Found, Report, explore

__all__ = ["SCENES", "Found", "Report", "explore"]
