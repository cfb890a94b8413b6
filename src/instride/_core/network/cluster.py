"""What is known of the cluster: brokers, topics, leaders; when to refresh it; and the requests to leaders.

Laws of the metadata (`Cluster`)
1. Any broker can be asked. While none is known, or none of the known responds, the bootstrap servers are; when none of
   these responds either, the known ones are asked again (KIP-899). A broker that says REBOOTSTRAP_REQUIRED makes us
   forget all of them, the coordinator too, and close all connections (KIP-1102): they may lead to another cluster.
2. Whoever saw an error requests a refresh; it is sent once, after the back-off, however many requested it: two
   responses that say the same are retry_backoff apart at least.
3. The user hears of a topic or a partition of the subscription that stays unknown for 2 s, and at once of a topic that
   may not be read; and again while that lasts. A topic that only another member reads, or one call names, raises
   nothing here.
4. What a broker says of a leader that is older than what is known already is not believed (KIP-320), as long as it
   speaks of the same topic. But where the leader itself says three times that it does not know an epoch, and does not
   serve in between, that one may have been damaged on the way: then the next epoch that a broker sends is believed. So
   it is, after 5 s, where the leader that is known is no broker: no leader is there to refuse the epoch. And so it is
   where the known leader has said for metadata_max_age that it does not lead, and no metadata said meanwhile that it
   does: a consumer that starts now would believe the same, and the replicas fence a leader that is behind.
5. Until a first broker was reached, the user hears of the failure of the whole bootstrap list after 2 s, and again
   while it lasts; that no broker has responded for 2 s is logged in any case.
6. A topic that was deleted and recreated has another id (`topic_id`). What becomes of its positions, `positions` says.
   Under one id a topic never has fewer partitions: a broker that names fewer is behind. So is one that names an id that
   was replaced, until such ids were named for MISSING_GRACE; meanwhile the metadata are requested soon. Of each topic
   the last `_MOST_FORMER` are remembered: it may be recreated more than once while a broker is behind.
7. What takes partitions from a group (a topic that is missing or may not be read, or has fewer partitions) may be the
   mistake of a broker that has just started. So for a leader and for a pattern the topic is as it was (`believed`)
   until a response says so MISSING_GRACE after the first one that did; meanwhile the metadata are requested soon. A
   topic with another id is another one, and believed at once.
8. What is missing and nothing of the user's is requested ever more seldom, up to a minute, once that is believed; from
   the start again when another topic is missing too. When the group deals its partitions out (`look_again`), or the
   user subscribes to such a topic, it is requested at once.
9. A connection may lead to another machine than the leader (`Denials`). So it is closed where for 5 s a broker denied
   on it that it leads one partition, of which the metadata name it the leader, and did not serve that one.
   fetch_max_wait is added, since a broker may hold back for so long a fetch that it serves. An offset that a leader
   tells speaks for the whole connection: no other machine would tell it. These speak for nothing but themselves: what
   is served on the other connection; and fetches, since a follower serves them, too. But a leader may have lost that
   one partition alone, and to close the connection cuts off the fetches of the others. So while these are served on it,
   the fetches of one are denied for a minute, not for 5 s.
   Where the broker served something meanwhile, and denies on the next connection as well, it has twice as long, up to a
   minute: a partition may have no leader that serves, and be the only one on its connection. (Fetches and look-ups
   are timed apart.) It has 5 s again when all that it denied is served, or denied no more; where it served nothing at
   all, since nothing is cut off; and where it has another address.
   What is denied no more (D2) is forgotten, and what is not to be requested there any more: the denials of two
   elections are not of one time.

Laws of requests to leaders (`LeaderRequests`): the one way to send them, whatever they ask for
L1. One request of a kind is in flight to a leader at a time, and it names every partition that needs it.
L2. A partition without a leader waits for fresh metadata, after a back-off of its own. Before the first metadata has
    come all wait for that, and none backs off.
L3. After a failure the leader is asked again after a back-off, and the metadata is refreshed: another broker may lead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final, NamedTuple
from uuid import UUID

from instride._core.network.actions import ConnectionKey, Role
from instride._core.network.assigned_partitions import AssignedPartition
from instride._core.network.connections import DOUBTED_AFTER, Address, Backoff, Denials, OnDone, forget
from instride._core.network.context import Context
from instride._setting_parsing import parse_bootstrap_servers
from instride._wire import api
from instride.errors import (
    NotKafkaError,
    TopicAuthorizationFailedError,
    TransportError,
    UnknownTopicOrPartitionError,
    error_for_code,
)
from instride.errors._quoting import counted, first_of
from instride.errors.codes import ErrorCode
from instride.records import TopicPartition

__all__ = [
    "ASKS_FOR_BOOTSTRAP",
    "Cluster",
    "KNOWS_NO_BROKER",
    "LeaderRequests",
    "MISSING_GRACE",
    "by_leader",
    "list_offsets",
    "send_to_leader",
]

MISSING_GRACE: Final = 5.0
"""Seconds for which a broker may say that a topic does not exist before it is believed: it may have just started."""
KNOWS_NO_BROKER: Final = "it knows no broker yet: it may have just started"
ASKS_FOR_BOOTSTRAP: Final = "a broker asks for the cluster to be discovered anew"
_TOLD_AFTER: Final = 2.0
_NO_ATTEMPT_ENDED: Final = "no attempt has ended yet; check the addresses, and that security_protocol fits them"
# Law 8, in seconds.
_FIRST_SELDOM: Final = 2.0
_MOST_SELDOM: Final = 60.0
_EPOCH_DOUBTS: Final = 3
# Law 6.
_MOST_FORMER: Final = 8
# Law 9, in seconds.
_MOST_PATIENCE: Final = 60.0
_LEADER_DOUBTED_AFTER: Final = 5.0
_CODE: Final = attrgetter("error")
_DENIALS: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class _Identity(NamedTuple):
    """Law 6. former: the ids that were replaced, the newest first. since: when one of them was named; None where the
    present id was named after that."""

    topic_id: UUID
    former: tuple[UUID, ...] = ()
    since: float | None = None


class _Asked(NamedTuple):
    """Law 9: requests of one kind on a connection. fetched: fetches; else those to which only a leader responds."""

    key: ConnectionKey
    fetched: bool


@dataclass(slots=True, kw_only=True)
class _Denier:
    """Law 9: who denies such requests. It is for the next connection, too, until that serves them.

    denied: of which partitions. fetched_at: when a fetch of others was served on the connection last. served: whether
    the broker serves anything meanwhile.
    """

    address: Address
    patience: float = DOUBTED_AFTER
    denied: dict[TopicPartition, Denials] = field(default_factory=dict)
    fetched_at: float = float("-inf")
    served: bool = False

    def closed(self) -> None:
        """For how long it was denied says nothing of the next one."""
        for each in self.denied.values():
            each.count_anew()
        self.fetched_at, self.served = float("-inf"), False

    def is_misled(self, held_back: float) -> bool:
        """held_back: for so long a broker may hold back a fetch that it serves."""
        serves_until = self.fetched_at + held_back + DOUBTED_AFTER
        return any(
            each.lasted >= held_back + (_MOST_PATIENCE if each.last < serves_until else self.patience)
            for each in self.denied.values()
        )


class Cluster:
    """The present metadata and its refreshing. Not thread-safe: the network machine owns it.

    wanted: whether it matters that a partition has no leader, which is that it is assigned.
    """

    def __init__(self, context: Context, *, wanted: Callable[[TopicPartition], bool] = lambda _partition: True) -> None:
        self._context = context
        self._bootstrap = parse_bootstrap_servers(context.config.bootstrap_servers)
        self._next_bootstrap = 0
        self._backoff = context.backoff()
        self._in_flight = False
        self._due_at = 0.0
        self._not_before = 0.0
        self._interest: frozenset[str] = frozenset()
        self._everything = False
        self._failed_since: float | None = None
        self._failures: dict[Address, Exception] = {}
        self._first_request_at: float | None = None
        # Topics that a broker refuses or does not know: since when, and its error code.
        self._missing: dict[str, tuple[float, int]] = {}
        self._lacking: dict[TopicPartition, float] = {}
        # How often its leader did not know the epoch since it served last.
        self._doubts: dict[TopicPartition, int] = {}
        # Since when an older leader is told, while the one that is known is no broker.
        self._older_told: dict[TopicPartition, float] = {}
        # Of a partition whose leader denies that it leads.
        self._denied: dict[TopicPartition, Denials] = {}
        self._deniers: dict[_Asked, _Denier] = {}
        self._mine: frozenset[str] = frozenset()
        self._tell_at = float("inf")
        # When `poll` has something to do next, if nothing is told.
        self.poll_at = float("-inf")
        self._wanted = wanted
        self._suspects: set[int] = set()
        self._cluster_id: str | None = None
        self.brokers: dict[int, api.Broker] = {}
        # Of each broker that is there; and of one that is away, while it has a replica.
        self._racks: dict[int, str | None] = {}
        self.topics: dict[str, api.MetadataTopic] = {}
        # Law 7: the topics as they are believed to be; and since when the metadata say what takes some of that away.
        self._believed: dict[str, api.MetadataTopic] = {}
        self._wrong_since: dict[str, float] = {}
        self._seldom = Backoff(_FIRST_SELDOM, _MOST_SELDOM, context.random)
        self._leaders: dict[TopicPartition, tuple[api.Broker, int]] = {}
        self._partitions: dict[str, frozenset[int]] = {}
        self._identities: dict[str, _Identity] = {}
        self.version = 0
        self.knows_everything = False
        self.on_update: list[Callable[[float], None]] = []
        self.on_abandoned: list[Callable[[Exception], None]] = []
        context.connections.on_closed.append(self._connection_closed)

    # -- what is known

    def leader(self, partition: TopicPartition) -> tuple[api.Broker, int] | None:
        """The leading broker and its leader epoch, or None where that is unknown."""
        return self._leaders.get(partition)

    def why_no_leader(self, partition: TopicPartition) -> str:
        """As far as the metadata tells."""
        known, count = self.topics.get(partition.topic), self.partition_count(partition.topic)
        if known is not None and known.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return f"{partition} is not there: its topic does not exist"
        if count is not None and not self._has(partition):
            return f"{partition} is not there: its topic has {counted(count, 'partition')}"
        return f"no leader of {partition} is known"

    def partition_count(self, topic: str) -> int | None:
        known = self.topics.get(topic)
        return len(known.partitions) if known is not None and known.error == ErrorCode.NONE else None

    def believed(self, topic: str) -> api.MetadataTopic | None:
        """The topic as a group goes by it (law 7)."""
        return self._believed.get(topic)

    def believed_count(self, topic: str) -> int | None:
        """Its partitions, as a group goes by them (law 7)."""
        known = self._believed.get(topic)
        return None if known is None else len(known.partitions)

    def doubted_until(self, topic: str) -> float:
        """Until when the metadata's error of a topic that was never seen may be a mistake (law 7).

        That it may not be described is none: no broker refuses that by mistake just since it has started.
        """
        if topic not in self._wrong_since or topic in self._believed or self.refusal(topic) is not None:
            return float("-inf")
        return self._wrong_since[topic] + MISSING_GRACE

    def error(self, topic: str) -> int:
        """Why a group does without the topic; NONE where it does not, or where that may be a mistake."""
        known = self.topics.get(topic)
        if known is None or topic in self._believed:
            return ErrorCode.NONE
        return known.error if self._context.now >= self.doubted_until(topic) else ErrorCode.NONE

    def racks(self, topics: Iterable[str]) -> dict[TopicPartition, tuple[str, ...]]:
        """The racks of each partition's replicas, sorted; those of brokers without one are left out. topics: believed.

        A broker that is away keeps its rack: each restart of one would be two rebalances of a group (KAFKA-20778).
        """
        known = {node: rack for node, rack in self._racks.items() if rack}
        return {
            TopicPartition(topic, each.partition): tuple(sorted({known[n] for n in each.replicas if n in known}))
            for topic in topics
            for each in self._believed[topic].partitions
        }

    def topic_id(self, topic: str) -> UUID:
        known = self.topics.get(topic)
        return known.topic_id if known is not None else api.NO_TOPIC_ID

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        return {topic: self.topic_id(topic) for topic in topics if self.topic_id(topic) != api.NO_TOPIC_ID}

    def refusal(self, topic: str) -> Exception | None:
        """Why the topic may not be used, where a broker said so."""
        known = self.topics.get(topic)
        refused = known is not None and known.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return _topic_error(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED) if refused else None

    def is_gone(self, topic: str) -> bool:
        """Whether a broker said that there is no such topic."""
        known = self.topics.get(topic)
        return known is not None and known.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def follows(self, topic: str) -> bool:
        """Whether its metadata are requested."""
        return topic in self._interest

    def any_node(self, now: float) -> tuple[ConnectionKey, Address]:
        """Where to send what any broker can respond to."""
        connections = self._context.connections
        known = [ConnectionKey(Role.DATA, node) for node in self.brokers]
        usable = [key for key in known if key.node_id not in self._suspects and not connections.backing_off(key, now)]
        # As Java's least loaded node: open and free. Then by number, so that a history can be played again.
        usable.sort(key=lambda key: (not connections.is_ready(key), connections.busy(key), key.node_id))
        if usable:
            broker = self.brokers[usable[0].node_id]
            return usable[0], (broker.host, broker.port)
        place = self._next_bootstrap % len(self._bootstrap)
        return ConnectionKey(Role.BOOTSTRAP, place), self._bootstrap[place]

    def no_response(self, key: ConnectionKey) -> None:
        """A request that any broker can respond to had no response there: ask another."""
        if key.role is not Role.BOOTSTRAP:
            self.suspect(key.node_id)
        elif key.node_id == self._next_bootstrap % len(self._bootstrap):  # else another request has told it already
            self._next_bootstrap += 1
            if self._next_bootstrap % len(self._bootstrap) == 0:
                self._suspects.clear()  # none of the list responds either: ask all again, the known ones first

    def suspect(self, node_id: int) -> None:
        """This broker did not respond; ask others until the metadata is fresh."""
        self._suspects.add(node_id)

    # -- refreshing

    def follow(self, topics: frozenset[str], *, mine: frozenset[str] | None = None, everything: bool = False) -> None:
        """The topics whose metadata is wanted. mine: those of which the user is told. everything: all others too."""
        self.poll_at = float("-inf")
        own = topics if mine is None else mine
        if own != self._mine:
            before, self._mine = self._mine, own
            self._context.standing.passed_but("topic", own)
            self._tell_at = 0.0
            self._look_anew(own - before)
            if not self._everything:
                self._forget(own - before - self._interest)
        if everything != self._everything:
            self._everything = everything
            self._due_at = self._not_before = 0.0
        if topics != self._interest:
            if topics - self._interest:
                self._due_at = self._not_before = 0.0
            self._interest = topics
            self._missing = {topic: each for topic, each in self._missing.items() if topic in topics}

    def _look_anew(self, topics: AbstractSet[str]) -> None:
        """These are the user's from now on: what others missed of them may be long ago (law 8)."""
        stale = topics & self._missing.keys()
        if stale:
            self._missing = {topic: each for topic, each in self._missing.items() if topic not in stale}
            self._due_at = self._not_before = 0.0

    def _forget(self, topics: AbstractSet[str]) -> None:
        """Nobody follows these, so they may have been recreated: an offset of the new topic would be taken for one of
        the old."""
        left_over = topics & self.topics.keys()
        if left_over:
            self.topics = {name: each for name, each in self.topics.items() if name not in left_over}
            self._leaders = {tp: leader for tp, leader in self._leaders.items() if tp.topic not in left_over}
            self._partitions = {name: each for name, each in self._partitions.items() if name not in left_over}
            self._identities = {name: each for name, each in self._identities.items() if name not in left_over}

    def look_again(self, topics: AbstractSet[str]) -> bool:
        """Before a group deals these out (law 8). Whether some of them are requested again, and worth a wait."""
        if not any(map(self.error, topics - self._mine)):  # those are requested each second
            return False
        self.refresh()
        return True

    def refresh(self) -> None:
        """Something is out of date: ask as soon as the back-off allows."""
        self._due_at = 0.0
        self.poll_at = float("-inf")

    def doubt(self, topics: AbstractSet[str]) -> None:
        """A broker does not know the ids of these: ask again. What nobody follows is forgotten."""
        self._forget(topics - self._interest)
        self.refresh()

    def miss(self, partition: TopicPartition, now: float) -> None:
        """Somebody wants this partition and found no leader. That its topic has no such partition is told (law 3)."""
        self.refresh()
        if self.lacks(partition) and partition not in self._lacking:
            self._lacking[partition] = now
            self._tell_at = min(self._tell_at, now + _TOLD_AFTER)

    def refused(self, partition: TopicPartition, code: int, key: ConnectionKey, *, fetched: bool = False) -> None:
        """By this code, on this connection. An epoch is doubted, a denial timed (laws 4, 9), if it is the leader's: a
        follower may only be late, and the leader of old is right."""
        leader = self.leader(partition)
        if leader is None or leader[0].node_id != key.node_id:
            return
        if code in _DENIALS:
            now, asked = self._context.now, _Asked(key, fetched)
            self._denied.setdefault(partition, Denials()).came(now, rarest=self._context.config.retry_backoff_max)
            denier = self._deniers.setdefault(asked, _Denier(address=(leader[0].host, leader[0].port)))
            denier.denied.setdefault(partition, Denials()).came(now, rarest=self._rarest(asked))
        if code != ErrorCode.UNKNOWN_LEADER_EPOCH:
            return
        self._doubts[partition] = self._doubts.get(partition, 0) + 1
        topic = self.topics.get(partition.topic)
        if self._doubts[partition] < _EPOCH_DOUBTS or topic is None:
            return
        del self._doubts[partition]
        parts = (replace(p, leader_epoch=-1) if p.partition == partition.partition else p for p in topic.partitions)
        self.topics[topic.name] = replace(topic, partitions=tuple(parts))
        self.refresh()

    def _close_misled(self, now: float) -> None:
        """Law 9. Fresh metadata has come; connections to other addresses than it names were closed.

        What was denied of partitions that are known no more is forgotten: a look-up may have named any (law 4).
        """
        self._denied = {tp: each for tp, each in self._denied.items() if self._has(tp)}
        at = {node: (each.host, each.port) for node, each in self.brokers.items()}
        for asked, denier in self._deniers.items():
            rarest, denied = self._rarest(asked), denier.denied.items()
            denier.denied = {
                tp: each for tp, each in denied if self._is_due(asked, tp) and not each.are_over(now, rarest=rarest)
            }
        known = self._deniers.items()
        self._deniers = {
            asked: each for asked, each in known if each.denied and at.get(asked.key.node_id) == each.address
        }
        held_back = self._context.config.fetch_max_wait
        misled = {asked: each for asked, each in self._deniers.items() if each.is_misled(held_back)}
        denies = "this broker denies that it leads what the metadata say"
        why = TransportError(f"{denies}: the connection may lead to another machine")
        for denier in misled.values():
            denier.patience = min(2 * denier.patience, _MOST_PATIENCE) if denier.served else DOUBTED_AFTER
        for key in dict.fromkeys(asked.key for asked in misled):
            self._context.connections.close(key, why, now)

    def _is_due(self, asked: _Asked, partition: TopicPartition) -> bool:
        """Whether such a request for it is to be sent there still."""
        leader = self.leader(partition)
        leads = leader is not None and leader[0].node_id == asked.key.node_id
        return leads and (not asked.fetched or self._wanted(partition))

    def _rarest(self, asked: _Asked) -> float:
        """D2: look-ups may be rare."""
        return self._context.config.retry_backoff_max if asked.fetched else float("inf")

    def _connection_closed(self, key: ConnectionKey) -> None:
        for asked, denier in self._deniers.items():
            if asked.key == key:
                denier.closed()

    def served(self, partition: TopicPartition) -> None:
        """A request that named the leader's epoch had a good response."""
        if self._doubts:
            self._doubts.pop(partition, None)

    def fetched(
        self, key: ConnectionKey, requested: AbstractSet[TopicPartition], refused: Container[api.Partition]
    ) -> None:
        """Law 9: a broker was sent a fetch of partitions on this connection, and refused these, but not all."""
        asked = _Asked(key, fetched=True)
        denier = self._deniers.get(asked)
        if denier is not None:
            denier.fetched_at = self._context.now
            for tp in denier.denied.keys() & requested:  # the shorter one of them is looked through
                if tp not in refused:
                    del denier.denied[tp]
            if not denier.denied:
                del self._deniers[asked]
        self._serves(key.node_id)

    def _serves(self, node_id: int) -> None:
        for asked, denier in self._deniers.items():
            denier.served |= asked.key.node_id == node_id

    def responded(self, key: ConnectionKey, result: api.Response | Exception) -> None:
        """Laws 4 and 9, for requests that ask a leader for offsets. Of fetches, of which some have errors of no leader,
        the fetcher tells."""
        told = _offsets_told(result)
        codes: list[int] = list(map(_CODE, told.values()))  # of a thousand quiet partitions, each time
        if any(codes):
            for partition, code in zip(told, codes, strict=True):
                if code:
                    self.refused(TopicPartition(*partition), code, key)
        if not all(codes):  # law 9: no other machine would respond
            for fetched in (True, False):
                self._deniers.pop(_Asked(key, fetched), None)
            self._serves(key.node_id)

    def lacks(self, partition: TopicPartition) -> bool:
        """Whether its topic is known, and has no such partition."""
        return self.partition_count(partition.topic) is not None and not self._has(partition)

    def _has(self, partition: TopicPartition) -> bool:
        return partition.partition in self._partitions.get(partition.topic, ())

    def poll(self, now: float) -> float:
        """Send what is due. Returns when to be asked again."""
        self.poll_at = float("inf")  # what happens from here on brings it forward
        wake = min(self._ask(now), self._tell(now))
        self.poll_at = min(self.poll_at, wake)
        return wake

    def _ask(self, now: float) -> float:
        if self._in_flight:
            return float("inf")
        due = max(self._due_at, self._not_before, self._backoff.ready_at)
        if not (self._interest or self._everything) and self.brokers:
            return float("inf")
        if now < due:
            return due
        self._in_flight = True
        if self._first_request_at is None:
            self._first_request_at = now
            self._tell_at = min(self._tell_at, now + _TOLD_AFTER)
        key, address = self.any_node(now)
        everything = self._everything
        requested = None if everything else frozenset(self._interest)
        request = api.Metadata(topics=None if requested is None else tuple(sorted(requested)))

        def done(result: api.Response | Exception, then: float) -> None:
            self._in_flight = False
            self._on_response(key, address, result, then, requested=requested)

        self._context.connections.send(key, address, request, done, now)
        return float("inf")

    def _on_response(
        self,
        key: ConnectionKey,
        address: Address,
        result: api.Response | Exception,
        now: float,
        *,
        requested: frozenset[str] | None,
    ) -> None:
        """requested: the topics that the request named; None: it named all."""
        everything = requested is None
        self.poll_at = float("-inf")
        self._context.touch()
        if isinstance(result, api.MetadataResponse) and result.error == ErrorCode.REBOOTSTRAP_REQUIRED:
            self.start_anew(key, now)
            return
        if not isinstance(result, api.MetadataResponse):
            self._failed(key, address, result if isinstance(result, Exception) else TypeError(type(result)), now)
            return
        if not result.brokers:
            # One that has just started, and has heard nothing of the cluster yet: as in Java, what is known stays.
            self._failed(key, address, TransportError(KNOWS_NO_BROKER), now)
            return
        self._works_again(address, result.cluster_id, now)
        self._suspects.clear()
        self.brokers = {broker.node_id: broker for broker in result.brokers}
        known = self.topics | {name: topic for name, topic in self._believed.items() if name in self._wrong_since}
        if everything:  # what is not in the response does not exist
            self.topics = {
                name: api.MetadataTopic(name=name, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                for name in self._interest
            }
        self.knows_everything = everything and self._everything
        for topic in result.topics:
            self.topics[topic.name] = self._newest(topic, known.get(topic.name), now)
        if not everything:  # a broker may list topics that were not requested, others each time
            self.topics = {name: topic for name, topic in self.topics.items() if name in self._interest}
        doubted = self._believe(now)
        self._racks = self._known_racks()
        self._leaders = dict(self._find_leaders())
        self._partitions = {
            name: frozenset(each.partition for each in topic.partitions) for name, topic in self.topics.items()
        }
        self._context.connections.keep({node: (each.host, each.port) for node, each in self.brokers.items()}, now)
        self._close_misled(now)
        self.version += 1
        self._due_at = now + self._context.config.metadata_max_age
        # Several parts may want fresh metadata for one and the same reason.
        self._not_before = now + self._context.config.retry_backoff
        if self._look_for_trouble(result, requested, now) or doubted:
            self._due_at = 0.0
            self._backoff.failed(now)
        else:
            self._backoff.succeeded()
            self._due_at = min(self._due_at, self._ask_seldom(now))
        if everything != self._everything:  # changed while it was asked
            self._due_at = self._not_before = 0.0
        if key.role is Role.BOOTSTRAP and self.brokers:
            self._context.connections.close(key, TransportError("bootstrap is done"), now)
        for hook in self.on_update:
            hook(now)

    def _ask_seldom(self, now: float) -> float:
        """Law 8. Returns when to ask again."""
        if not self._missing.keys() - self._mine:
            self._seldom.succeeded()
            return float("inf")
        if self._seldom.ready(now):
            self._seldom.failed(now)
        return self._seldom.ready_at

    def _believe(self, now: float) -> bool:
        """Laws 6 and 7. Whether something that is wanted is doubted: to be asked again soon."""
        wrong = [name for name, topic in self.topics.items() if topic.error or self._has_shrunk(topic)]
        self._wrong_since = {name: self._wrong_since.get(name, now) for name in wrong}
        kept = {
            name: self._believed[name]
            for name, since in self._wrong_since.items()
            if name in self._believed and now - since < MISSING_GRACE
        }
        self._believed = {name: topic for name, topic in self.topics.items() if not topic.error} | kept
        self._identities = {name: each for name, each in self._identities.items() if name in self.topics}
        is_behind = any(each.since is not None for each in self._identities.values())
        return is_behind or not self._interest.isdisjoint(kept)

    def _has_shrunk(self, topic: api.MetadataTopic) -> bool:
        before = self._believed.get(topic.name)
        if before is None or len(topic.partitions) >= len(before.partitions):
            return False
        ids = {topic.topic_id, before.topic_id}
        return len(ids) == 1 or api.NO_TOPIC_ID in ids

    def _is_behind(self, topic: api.MetadataTopic, now: float) -> bool:
        """Law 6: whether it is as it was before it was recreated."""
        if topic.error or topic.topic_id == api.NO_TOPIC_ID:
            return False
        known = self._identities.setdefault(topic.name, _Identity(topic.topic_id))
        if topic.topic_id == known.topic_id:
            if known.since is not None:
                self._identities[topic.name] = known._replace(since=None)
            return False
        since = now if known.since is None else known.since
        is_behind = topic.topic_id in known.former and now - since < MISSING_GRACE
        former = (known.topic_id, *(each for each in known.former if each != topic.topic_id))
        newer = _Identity(topic.topic_id, former[:_MOST_FORMER])
        self._identities[topic.name] = known._replace(since=since) if is_behind else newer
        return is_behind

    def _newest(self, topic: api.MetadataTopic, known: api.MetadataTopic | None, now: float) -> api.MetadataTopic:
        """Laws 4 and 6. Without topic ids nobody can tell a topic from one that was recreated."""
        if self._is_behind(topic, now) and known is not None:
            return known
        if known is None or topic.topic_id != known.topic_id or topic.topic_id == api.NO_TOPIC_ID or topic.error:
            return topic
        epochs = {each.partition: each for each in known.partitions}
        newest = [self._newer(topic.name, each, epochs.pop(each.partition, None), now) for each in topic.partitions]
        return replace(topic, partitions=(*newest, *epochs.values()))

    def _newer(
        self, topic: str, told: api.MetadataPartition, known: api.MetadataPartition | None, now: float
    ) -> api.MetadataPartition:
        tp = TopicPartition(topic, told.partition)
        if known is None or not 0 <= told.leader_epoch < known.leader_epoch:
            self._older_told.pop(tp, None)
            self._denied.pop(tp, None)
            return told
        if known.leader in self.brokers:
            self._older_told.pop(tp, None)
            denied = self._denied.get(tp)
            return told if denied is not None and denied.lasted >= self._context.config.metadata_max_age else known
        since = self._older_told.setdefault(tp, now)
        return told if now - since >= _LEADER_DOUBTED_AFTER else known

    def _works_again(self, address: Address, cluster_id: str | None, now: float) -> None:
        self._note_cluster(cluster_id)
        if self._failed_since is not None:
            where, since = f"{address[0]}:{address[1]}", now - self._failed_since
            self._context.log(logging.INFO, f"metadata is available again, from {where}, after {since:.1f} s")
        self._failed_since = None
        self._failures.clear()
        self._context.standing.passed("cluster")

    def _note_cluster(self, cluster_id: str | None) -> None:
        """A name of bootstrap_servers may lead to another cluster than before. Of its topics' ids `positions` tells."""
        known, self._cluster_id = self._cluster_id, cluster_id or self._cluster_id
        if known not in (None, self._cluster_id):
            ids = f"the cluster's id was {known!r} and is {self._cluster_id!r}"
            self._context.log(logging.WARNING, f"{ids}: offsets of the one mean nothing in the other")

    def start_anew(self, key: ConnectionKey, now: float) -> None:
        """KIP-1102: what is known of the brokers is no good any more; the bootstrap servers are asked again."""
        self._context.log(logging.INFO, ASKS_FOR_BOOTSTRAP)
        self.brokers = {}
        self._leaders = {}
        self.version += bool(self.version)  # what goes by the brokers that were known is looked at anew
        self._suspects.clear()
        self._deniers.clear()
        self._backoff.failed(now)
        self.refresh()
        if key.role is Role.BOOTSTRAP:
            self.no_response(key)
        for hook in self.on_abandoned:
            hook(TransportError(ASKS_FOR_BOOTSTRAP))
        self._context.connections.abandon_all(ASKS_FOR_BOOTSTRAP, now)

    def _known_racks(self) -> dict[int, str | None]:
        present: dict[int, str | None] = {node: broker.rack for node, broker in self.brokers.items()}
        if not self._racks.keys() - present.keys():
            return present
        parts = (each for topic in self._believed.values() for each in topic.partitions)
        replicas = {node for each in parts for node in each.replicas}
        return {node: rack for node, rack in self._racks.items() if node in replicas} | present

    def _find_leaders(self) -> Iterator[tuple[TopicPartition, tuple[api.Broker, int]]]:
        shared: dict[tuple[int, int], tuple[api.Broker, int]] = {}
        for name, topic in self.topics.items():
            for each in topic.partitions:
                broker = self.brokers.get(each.leader)
                if broker is not None:
                    led = shared.setdefault((each.leader, each.leader_epoch), (broker, each.leader_epoch))
                    yield TopicPartition(name, each.partition), led

    def _look_for_trouble(self, response: api.MetadataResponse, requested: frozenset[str] | None, now: float) -> bool:
        """Whether something is missing that a later response may have."""
        trouble = False
        described = {topic.name: topic for topic in response.topics}
        for name in self._interest:
            if requested is not None and name not in requested:
                trouble = True  # it became of interest after the request was sent: this response says nothing of it
                continue
            topic = described.get(name)
            error = topic.error if topic is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if error == ErrorCode.NONE and topic is not None:
                self._missing.pop(name, None)
                self._context.standing.passed(f"topic {name}")
                trouble |= any(each.leader < 0 for each in topic.partitions)
            elif topic is None and self._everything:
                self._missing.pop(name, None)  # it is gone, and what matches the pattern shrinks with it
            else:
                if name not in self._missing:
                    self._seldom.succeeded()
                since, _ = self._missing.get(name, (now, 0))
                self._missing[name] = (since, error)
                trouble |= name in self._mine or now - since < MISSING_GRACE  # law 8
        self._tell_at = 0.0
        return trouble

    # -- what the user hears

    def _tell(self, now: float) -> float:
        """Laws 3 and 5. Returns when there may be something to tell."""
        if now >= self._tell_at:
            self._tell_at = min(self._tell_topics(now), self._tell_partitions(now), self._tell_silence(now))
        return self._tell_at

    def _tell_topics(self, now: float) -> float:
        due = float("inf")
        for name in sorted(self._missing.keys() & self._mine):
            since, error = self._missing[name]
            tell_at = since + (0.0 if error == ErrorCode.TOPIC_AUTHORIZATION_FAILED else _TOLD_AFTER)
            if now >= tell_at:
                self._context.standing.stands(f"topic {name}", _topic_error(name, error), now)
            else:
                due = min(due, tell_at)
        return due

    def _tell_partitions(self, now: float) -> float:
        """All in one error, of which only some are named."""
        self._lacking = {tp: at for tp, at in self._lacking.items() if self._wanted(tp) and self.lacks(tp)}
        told = sorted(tp for tp, since in self._lacking.items() if now >= since + _TOLD_AFTER)
        if told:
            self._context.standing.stands("partitions", self._no_such(told), now)
        else:
            self._context.standing.passed("partitions")
        return min((at + _TOLD_AFTER for at in self._lacking.values() if at + _TOLD_AFTER > now), default=float("inf"))

    def _no_such(self, partitions: list[TopicPartition]) -> UnknownTopicOrPartitionError:
        first = partitions[0]
        has = f"its topic has {counted(self.partition_count(first.topic) or 0, 'partition')}"
        if len(partitions) == 1:
            return UnknownTopicOrPartitionError(f"partition {first} does not exist: {has}")
        names = first_of(partitions)
        return UnknownTopicOrPartitionError(f"{len(partitions)} partitions do not exist: {names} (of {first} {has})")

    def _tell_silence(self, now: float) -> float:
        connections = self._context.connections
        if self._first_request_at is None or self.version or connections.ever_connected or connections.closing:
            return float("inf")
        tell_at = self._first_request_at + _TOLD_AFTER
        if now < tell_at:
            return tell_at
        self._context.log(logging.WARNING, f"after {_TOLD_AFTER:.0f} s: {self.unreachable()}")
        return float("inf")

    def _failed(self, key: ConnectionKey, address: Address, error: Exception, now: float) -> None:
        self._backoff.failed(now)
        level = logging.DEBUG if self._context.connections.closing else logging.WARNING
        self._context.log(level, f"metadata from {address[0]}:{address[1]} failed: {error}")
        self.no_response(key)
        self._failures[address] = error
        if self._failed_since is None:
            self._failed_since = now
        if not self._context.connections.ever_connected and self._bootstrap_failed(now):
            self._context.standing.stands("cluster", self.unreachable(), now)

    def _bootstrap_failed(self, now: float) -> bool:
        """Law 5; at once where it is not Kafka that responds."""
        assert self._first_request_at is not None
        if set(self._failures) != set(self._bootstrap) or self._context.connections.refused is not None:
            return False  # of credentials that are refused `Connections` tells
        hopeless = all(isinstance(error, NotKafkaError) for error in self._failures.values())
        return hopeless or now - self._first_request_at >= _TOLD_AFTER

    def unreachable(self) -> TransportError:
        """The error that tells why no broker was reached."""
        failures = "; ".join(f"{host}:{port}: {error}" for (host, port), error in self._failures.items())
        text = f"no broker of bootstrap_servers responds ({failures or _NO_ATTEMPT_ENDED})"
        not_kafka = self._failures and all(isinstance(error, NotKafkaError) for error in self._failures.values())
        told = NotKafkaError(text) if not_kafka else TransportError(text)
        # What a user's own token function raised, say, is among its causes.
        told.__cause__ = next(iter(self._failures.values()), None)
        return told


def _topic_error(name: str, error: int) -> Exception:
    if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UnknownTopicOrPartitionError(
            f"topic {name!r} does not exist on this cluster; create it, or check the name in subscribe"
        )
    if error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return TopicAuthorizationFailedError(f"not authorised for topic {name!r}: it needs Read and Describe")
    return error_for_code(error, f"topic {name!r}: the broker responded with error code {error}")


# -- requests to leaders


def by_leader(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> tuple[dict[int, list[TopicPartition]], list[TopicPartition]]:
    """The partitions of each leader, by its node id, and those that have no leader."""
    led: dict[int, list[TopicPartition]] = {}
    leaderless = []
    for partition in partitions:
        leader = cluster.leader(partition)
        if leader is None:
            leaderless.append(partition)
        else:
            led.setdefault(leader[0].node_id, []).append(partition)
    return led, leaderless


def list_offsets(
    context: Context, timestamps: Mapping[TopicPartition, int], leader_epochs: dict[api.Partition, int]
) -> api.ListOffsets:
    """timestamps: EARLIEST, LATEST or milliseconds. The end is the one that this consumer's isolation level reads."""
    return api.ListOffsets(
        timestamps=dict(timestamps.items()),
        leader_epochs=leader_epochs,
        read_committed=context.config.isolation_level == "read_committed",
    )


def send_to_leader(
    context: Context, cluster: Cluster, node_id: int, request: api.Request, on_done: OnDone, now: float
) -> None:
    """What the leader refuses is told to the cluster here, whoever asks."""
    broker = cluster.brokers[node_id]
    key = ConnectionKey(Role.DATA, node_id)

    def done(result: api.Response | Exception, then: float) -> None:
        cluster.responded(key, result)
        on_done(result, then)

    context.connections.send(key, (broker.host, broker.port), request, done, now)


def _offsets_told(result: api.Response | Exception) -> Mapping[api.Partition, api.ListedOffset | api.EpochEnd]:
    if isinstance(result, api.ListOffsetsResponse):
        return result.offsets
    return result.ends if isinstance(result, api.OffsetForLeaderEpochResponse) else {}


class LeaderRequests:
    """Requests of one kind. Not thread-safe: the network machine owns it."""

    def __init__(self, context: Context, cluster: Cluster) -> None:
        self._context = context
        self._cluster = cluster
        self._in_flight: set[int] = set()
        self._version = 0
        self._backoff: dict[int, Backoff] = {}
        self._not_before: dict[int, float] = {}

    def poll(
        self,
        waiting: Iterable[AssignedPartition],
        ask: Callable[[int, list[AssignedPartition], float], None],
        now: float,
    ) -> float:
        """Calls `ask` for each leader that may be asked now, with its partitions. Returns when to be polled again."""
        if not self._cluster.version:
            return float("inf")  # L2: the metadata's response is an event of its own
        if self._version != self._cluster.version:
            self._version = self._cluster.version
            for node_id in forget(self._backoff, self._cluster.brokers, now):
                self._not_before.pop(node_id, None)
        partitions = {assigned.partition: assigned for assigned in waiting}
        led, leaderless = by_leader(self._cluster, partitions)
        wake = float("inf")
        for partition in leaderless:
            assigned = partitions[partition]
            assigned.hold_back(now)
            wake = min(wake, assigned.backoff.ready_at)
            self._cluster.miss(partition, now)
        for node_id, of_leader in led.items():
            if node_id in self._in_flight:
                continue
            ready_at = self._ready_at(node_id)
            if now >= ready_at:
                ask(node_id, [partitions[partition] for partition in of_leader], now)
            else:
                wake = min(wake, ready_at)
        return wake

    def ready_at(self, partition: TopicPartition) -> float:
        """When its leader may be asked; infinite while a request is under way there. 0 where it has no leader: that is
        looked for."""
        leader = self._cluster.leader(partition)
        if leader is None:
            return 0.0
        node_id = leader[0].node_id
        return float("inf") if node_id in self._in_flight else self._ready_at(node_id)

    def leader_epochs(self, partitions: Iterable[AssignedPartition]) -> dict[api.Partition, int]:
        """A broker that leads no more, or not yet, says so instead of a response from another log (KIP-320)."""
        leaders = {assigned.partition: self._cluster.leader(assigned.partition) for assigned in partitions}
        return {partition: leader[1] for partition, leader in leaders.items() if leader is not None}

    def send(self, node_id: int, request: api.Request, on_done: OnDone, now: float) -> None:
        self._in_flight.add(node_id)

        def done(result: api.Response | Exception, then: float) -> None:
            self._context.touch()
            self._in_flight.discard(node_id)
            on_done(result, then)

        send_to_leader(self._context, self._cluster, node_id, request, done, now)

    def succeeded(self, node_id: int, *, next_at: float = 0.0) -> None:
        """next_at: when to ask this leader again, at the earliest."""
        self._backoff_of(node_id).succeeded()
        self._not_before[node_id] = next_at

    def failed(self, node_id: int, now: float) -> None:
        """L3."""
        self._backoff_of(node_id).failed(now)
        self._cluster.suspect(node_id)
        self._cluster.refresh()

    def _ready_at(self, node_id: int) -> float:
        known = self._backoff.get(node_id)
        return max(0.0 if known is None else known.ready_at, self._not_before.get(node_id, 0.0))

    def _backoff_of(self, node_id: int) -> Backoff:
        return self._backoff.setdefault(node_id, self._context.backoff())
