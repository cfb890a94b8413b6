"""What a subscription may be: topics by name, or a pattern that is matched against every topic of the cluster.

Laws
1. A wrong one raises before anything is changed.
2. A pattern means the topics whose whole name it matches, as in Java; which these are is told by the network side.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

from instride._core.application.calls import Write
from instride._core.application.state import ApplicationState
from instride._core.events import Subscribe
from instride._texts import not_sendable
from instride.errors import ConfigError, IllegalStateError
from instride.listeners import AsyncRebalanceListener

__all__ = ["subscribe"]


def subscribe(
    state: ApplicationState,
    topics: Iterable[str] | None,
    pattern: str | re.Pattern[str] | None,
    listener: AsyncRebalanceListener | None,
) -> None:
    """Raises TypeError, ValueError, ConfigError without a group_id, IllegalStateError after assign and amid an
    unsubscribe.
    """
    if (topics is None) == (pattern is None):
        raise TypeError('subscribe takes either topics, such as ["flights"], or pattern="flights-.*"')
    names = frozenset() if topics is None else _checked_names(topics)
    compiled = None if pattern is None else _compiled(pattern)
    if state.config.group_id is None:
        raise ConfigError("subscribe needs a group_id; without a group use assign")
    # Where a handler of a signal subscribes as well, this comes after it.
    state.write_computed(partial(_subscribing, state, names, compiled, listener))


def _subscribing(
    state: ApplicationState,
    names: frozenset[str],
    pattern: re.Pattern[str] | None,
    listener: AsyncRebalanceListener | None,
) -> list[Write]:
    state.refuse_while_unsubscribing()
    if state.assigned_by_hand:
        raise IllegalStateError("this consumer has partitions by assign; unsubscribe before subscribe")
    # Of the same pattern the topics that it matched are known already.
    known = pattern is not None and pattern == state.pattern
    return [
        *([] if known else [(setattr, state, "topics", names)]),
        (setattr, state, "pattern", pattern),
        (setattr, state, "listener", listener),
        state.lists.polls.changing(),
        (state.send, Subscribe(topics=names, pattern=pattern, listener=listener is not None)),
    ]


def _checked_names(topics: Iterable[str]) -> frozenset[str]:
    if isinstance(topics, str | bytes) or not isinstance(topics, Iterable):
        raise TypeError(f'subscribe takes a list of topics, such as ["flights"], not {topics!r}')
    names = tuple(topics)
    if not names:
        raise ValueError("subscribe needs at least one topic; unsubscribe leaves the group")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"subscribe: a topic's name is a text, not {name!r}; partitions are given to assign")
        if not name:
            raise ValueError("subscribe: a topic's name is empty")
        if why := not_sendable(name):
            raise ValueError(f"subscribe: a topic's name {why}")
        # librdkafka's way to give a pattern. No topic of Kafka can have that name.
        if name.startswith("^"):
            raise ValueError(f"{name!r} is no topic; a regular expression is given as subscribe(pattern=...)")
    return frozenset(names)


def _compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    if not isinstance(pattern, str | re.Pattern):
        raise TypeError(f"subscribe: the pattern must be a text, or what re.compile made, not {pattern!r}")
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"the pattern {pattern!r} is no regular expression: {error}") from error
    if not isinstance(compiled.pattern, str):
        raise TypeError("the pattern must be a regular expression of text, not of bytes")
    return compiled
