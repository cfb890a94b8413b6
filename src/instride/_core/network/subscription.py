"""A subscription by pattern: which of the cluster's topics it means, now and after each refresh of the metadata.

Laws
1. Only a response that lists every topic decides; until the first one the member does not join. A topic that one does
   not list, or lists with an error, stays for a while (`Cluster`, law 7).
2. A topic matches when its whole name does. Internal topics are left out, or `exclude_internal_topics` is False.
3. A change of the set is a change of the subscription: the member joins for new topics, and a topic that is gone is
   revoked (rule 11). The application hears of the change before the group does.
4. It moves no timer: that metadata was refreshed does not mean that the application is alive.
"""

from __future__ import annotations

import re

from instride._core.events import SubscriptionMatched
from instride._core.network.cluster import Cluster
from instride._core.network.context import Context
from instride._core.network.group import Group
from instride.errors.codes import ErrorCode

__all__ = ["PatternSubscription"]


class PatternSubscription:
    """Not thread-safe: the network machine owns it."""

    def __init__(self, context: Context, cluster: Cluster, group: Group) -> None:
        self._context = context
        self._cluster = cluster
        self._group = group
        # None where the subscription, if there is one, names its topics.
        self.pattern: re.Pattern[str] | None = None
        self._matched: frozenset[str] | None = None
        cluster.on_update.append(self._metadata_changed)

    def start(self, pattern: re.Pattern[str], now: float) -> None:
        """Replaces an earlier subscription, of either kind, once the topics are known."""
        self.pattern, self._matched = pattern, None
        self._group.polled(now, now)
        self._group.forgive()
        self._cluster.refresh()

    def stop(self) -> None:
        self.pattern = self._matched = None

    def _metadata_changed(self, now: float) -> None:
        if self.pattern is None or not self._cluster.knows_everything:
            return
        matched = self._matches(self.pattern)
        if matched == self._matched:
            return
        self._matched = matched
        self._context.deliver(SubscriptionMatched(pattern=self.pattern, topics=matched))
        self._group.change_topics(matched, now)

    def _matches(self, pattern: re.Pattern[str]) -> frozenset[str]:
        without_internal = self._context.config.exclude_internal_topics
        known = (self._cluster.believed(name) or topic for name, topic in self._cluster.topics.items())
        return frozenset(
            topic.name
            for topic in known
            if topic.error in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)
            and not (topic.is_internal and without_internal)
            and pattern.fullmatch(topic.name)
        )
