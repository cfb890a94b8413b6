"""Which assignors a consumer offers to its group, and which rebalance protocol follows from them.

Law: the protocol is the highest that *all* of them support, since the group's choice of an assignor is not
known before the join. So `range` beside `cooperative-sticky` is eager: the first of the two rolling bounces
of an upgrade.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from instride._core.assignors.assignor import Assignor
from instride._core.assignors.range import RangeAssignor
from instride._core.assignors.roundrobin import RoundRobinAssignor
from instride._core.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from instride._core.ownership import RebalanceProtocol
from instride._texts import not_sendable
from instride.errors import ConfigError, NoAssignorInCommonError

__all__ = ["ASSIGNORS", "common_protocol", "pick_assignors"]

ASSIGNORS: Final[Mapping[str, Callable[[], Assignor]]] = MappingProxyType(
    {
        "cooperative-sticky": CooperativeStickyAssignor,
        "range": RangeAssignor,
        "roundrobin": RoundRobinAssignor,
        "sticky": StickyAssignor,
    }
)


def pick_assignors(chosen: Iterable[str | Assignor]) -> tuple[Assignor, ...]:
    """A fresh instance for each name, and the user's own as they are, most wanted first.

    Raises `ConfigError` for an unknown name, for two of one name and where there are none.
    """
    picked = tuple(_make(each) if isinstance(each, str) else each for each in chosen)
    names = [assignor.name for assignor in picked]
    if not picked:
        raise ConfigError("assignors is empty: name at least one")
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"assignors names {name!r} twice")
        if why := not_sendable(name):
            raise ConfigError(f"assignors: the name of one {why}")
    return picked


def _make(name: str) -> Assignor:
    if name not in ASSIGNORS:
        known = ", ".join(ASSIGNORS)
        raise ConfigError(f"assignors: none is called {name!r}; there are {known}")
    return ASSIGNORS[name]()


def common_protocol(assignors: Iterable[Assignor]) -> RebalanceProtocol:
    """The highest rebalance protocol that all of them support.

    Raises `NoAssignorInCommonError` where they share none.
    """
    offered = {assignor.name: frozenset(assignor.protocols) for assignor in assignors}
    if shared := frozenset.intersection(*offered.values()):
        return max(shared)
    protocols_of = "; ".join(f"{name}: {_names(protocols)}" for name, protocols in offered.items())
    raise NoAssignorInCommonError(
        f"the configured assignors share no rebalance protocol ({protocols_of}); take one out"
    )


def _names(protocols: Iterable[RebalanceProtocol]) -> str:
    return " and ".join(protocol.name.lower() for protocol in sorted(protocols)) or "none"
