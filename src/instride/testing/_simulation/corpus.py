"""Plans as JSON, so that what was found is kept, whatever `plan_for` makes of its seed later.

Laws
1. `decode(encode(plan)) == plan`. A field that a text does not have has its default: old texts stay good.
2. Nothing is taken that a plan has no place for: an error names it.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from instride._core.network.actions import Role
from instride.testing._simulation.plan import Fault, MemberPlan, Plan

__all__ = ["decode", "encode"]


def encode(plan: Plan) -> str:
    """Lines of JSON, with what is not a default."""
    return json.dumps(_differences(plan), indent=1)


def decode(text: str) -> Plan:
    """ValueError, TypeError or KeyError where it is no plan."""
    named = json.loads(text)
    members = tuple(MemberPlan(**{name: _tuples(each) for name, each in one.items()}) for one in named.pop("members"))
    faults = tuple(_fault(one) for one in named.pop("faults", ()))
    return Plan(members=members, faults=faults, **{name: _tuples(value) for name, value in named.items()})


def _fault(named: dict[str, Any]) -> Fault:
    role = {"role": Role(named["role"])} if "role" in named else {}
    return Fault(**(named | role))


def _differences(value: Any) -> dict[str, Any]:
    """Of a dataclass: what is not the default of its field."""
    names = {each.name: each.default for each in fields(value)}
    found = {name: getattr(value, name) for name, default in names.items() if getattr(value, name) != default}
    return {name: _plain(each) for name, each in found.items()}


def _plain(value: Any) -> Any:
    match value:
        case MemberPlan() | Fault():
            return _differences(value)
        case Role():
            return value.value
        case tuple():
            return [_plain(each) for each in value]
        case _:
            return value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(each) for each in value) if isinstance(value, list) else value
