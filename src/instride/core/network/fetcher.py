"""Fetching: for each broker one request of the partitions that lag, and one of those that are read to their end.

Why two: a broker holds a fetch back until there is something to answer. A partition that lags must not wait for one
that has nothing new, so each kind has its own connection.

Laws
1. What comes back under an older epoch or fetch number is dropped.
2. The partitions of a request take turns in its order, so that a full answer starves none. In a session the broker
   sees to that: what it answered for goes to the end.
3. An error of one partition stops that partition only. A leader's error asks for fresh metadata and waits.
4. A corrupt batch, or an answer that cannot be read, is fetched once more; then its partitions have failed, and are
   tried again as `positions` says. After an answer that could not be read each of its partitions is tried alone: it
   may be one of them that makes all unreadable.
5. The position moves only by what a broker answered: to the end of the last complete batch.
6. A partition is in one request at a time. A fetch at the end that leaves out a partition of its broker (since its
   buffer is full, or it lags) waits briefly only, so that this one can join it soon. One whose end is not known, as
   after a seek or a new assignment, does not wait for a fetch that was sent without it: it goes with those that lag.
7. Where the leader names a replica in our rack (KIP-392), that one is asked, for metadata_max_age, unless it fails,
   does not have the offset, or the leader changes: then the leader decides again.
8. A broker that throttles is not asked before its time (KIP-219).
9. What came is decoded when there is room for it (`room`), of each partition in turn, and so much in one turn of the
   machine that heartbeats are never late.
10. Where an answer tells no end of the log, since a session leaves out what has no news, its end is taken to be where
    the next fetch begins: else that would be sent at once, again and again, since an unknown end does not wait (law 6).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from instride.core.events import Fetched
from instride.core.group.ownership import Ownership
from instride.core.network.actions import ConnectionKey, Role
from instride.core.network.backoff import Backoff
from instride.core.network.cluster import Cluster
from instride.core.network.context import Context
from instride.core.network.held import Arrival, HeldPartition, Phase, Undecoded
from instride.core.network.positions import Positions, Stamps
from instride.core.network.room import DecodingRoom, decoding_room, most_bytes, response_bytes, sharers, with_room
from instride.core.network.sessions import FetchSession, Said
from instride.errors import KafkaError, ProtocolError, TopicAuthorizationFailedError, TransportError, error_for_code
from instride.records import TopicPartition
from instride.wire import api
from instride.wire.chunk import RecordChunk

__all__ = ["Fetcher"]

_OFFSET_OUT_OF_RANGE = 1
_CORRUPT_MESSAGE = 2
_TOPIC_AUTHORIZATION_FAILED = 29
_STALE_METADATA = frozenset({3, 5, 6, 9, 56, 74, 78, 100, 103})
_UNKNOWN_SERVER_ERROR = -1
_RETRY = frozenset({7, 75, _UNKNOWN_SERVER_ERROR})
_BRIEFLY = 0.05
# What is decoded in one turn, about: some milliseconds' work.
_TURN_BYTES = 4 << 20
# What a piece counts for besides its bytes.
_PIECE_BYTES = 4 << 10

# Which fetch: the broker's id, and Role.DATA for partitions that lag or Role.TAIL for those at their end.
Lane = tuple[int, Role]


class Fetcher:
    """Not thread-safe: the network machine owns it."""

    def __init__(
        self,
        context: Context,
        cluster: Cluster,
        positions: Positions,
        held: Callable[[], Mapping[TopicPartition, HeldPartition]],
    ) -> None:
        self._context = context
        self._cluster = cluster
        self._positions = positions
        self._held = held
        self._flying: dict[Lane, Stamps] = {}
        self._node_backoff: dict[int, Backoff] = {}
        self._unreadable: set[int] = set()
        self._sessions: dict[Lane, FetchSession] = {}
        self._throttled: dict[int, float] = {}
        self._turn = 0
        self._decoding_turn = 0
        self._ended = False

    def poll(self, now: float) -> float:
        if self._ended:
            return float("inf")
        wake = self._decode(now)
        ready: dict[Lane, list[HeldPartition]] = {}
        for held in with_room(self._context.config, self._held().values()):
            if self._under_way(held):
                continue
            if not held.backoff.ready(now):
                wake = min(wake, held.backoff.ready_at)
                continue
            leader = self._cluster.leader(held.partition)
            if leader is None:
                held.backoff.failed(now)
                wake = min(wake, held.backoff.ready_at)
                self._cluster.miss(held.partition, now)
                self._context.touch()
            else:
                node_id = leader[0].node_id
                if held.replica is not None:
                    node_id = self._source(held, held.replica, node_id, now)
                ready.setdefault(self._lane(node_id, held), []).append(held)
        for lane, waiting in ready.items():
            if lane in self._flying:
                continue
            partitions = _one_alone(waiting)
            backoff = self._node_backoff.setdefault(lane[0], self._context.backoff())
            ready_at = max(backoff.ready_at, self._throttled.get(lane[0], 0.0))
            if now >= ready_at:
                self._send(lane, partitions, now)
            else:
                wake = min(wake, ready_at)
        return wake

    def end(self, now: float) -> None:
        """The consumer closes: fetch no more, and let the brokers forget the sessions. Nobody waits for the answers."""
        self._ended = True
        for held in self._held().values():
            held.undecoded = None
        for (node_id, role), session in self._sessions.items():
            key, broker = ConnectionKey(role, node_id), self._cluster.brokers.get(node_id)
            if session.established and broker is not None and self._context.connections.is_ready(key):
                request = self._request(session.end(), 0.0)
                address = (broker.host, broker.port)
                self._context.connections.send(key, address, request, lambda _result, _then: None, now)

    def _source(self, held: HeldPartition, replica: tuple[int, float], leader: int, now: float) -> int:
        """Law 7."""
        node_id, until = replica
        if now < until and node_id in self._cluster.brokers:
            return node_id
        held.replica = None
        return leader

    def _lane(self, node_id: int, held: HeldPartition) -> Lane:
        tail = (node_id, Role.TAIL)
        return (node_id, Role.DATA) if held.lagging or (held.known_end < 0 and tail in self._flying) else tail

    def _under_way(self, held: HeldPartition) -> bool:
        return any(stamps.get(held.partition) == held.stamp for stamps in self._flying.values())

    def _send(self, lane: Lane, partitions: list[HeldPartition], now: float) -> None:
        node_id, role = lane
        broker = self._cluster.brokers[node_id]
        self._turn += 1
        start = self._turn % len(partitions)
        ordered = partitions[start:] + partitions[:start]
        stamps = {held.partition: held.stamp for held in ordered}
        self._flying[lane] = stamps
        session = self._sessions.setdefault(lane, FetchSession())
        most = most_bytes(self._context.config, sharers(self._held().values()))
        said = session.ask([self._partition(held, session, most) for held in ordered])
        request = self._request(said, self._wait(lane, partitions))
        self._context.connections.send(
            ConnectionKey(role, node_id),
            (broker.host, broker.port),
            request,
            lambda result, then: self._answered(lane, stamps, result, then),
            now,
            timeout=self._context.config.request_timeout + self._context.config.fetch_max_wait,
        )

    def _request(self, said: Said, max_wait: float) -> api.Fetch:
        config = self._context.config
        return api.Fetch(
            partitions=said.partitions,
            forgotten=said.forgotten,
            known=said.known,
            named=said.named,
            session_id=said.session_id,
            session_epoch=said.session_epoch,
            max_wait=max_wait,
            min_bytes=config.fetch_min_bytes,
            max_bytes=response_bytes(config),
            read_committed=config.isolation_level == "read_committed",
            rack=config.client_rack or "",
            max_decompressed_bytes=config.max_decompressed_bytes,
        )

    def _wait(self, lane: Lane, partitions: list[HeldPartition]) -> float:
        """Law 6."""
        longest = self._context.config.fetch_max_wait
        if partitions[0].trouble is not None:
            return 0.0  # the others of its broker wait for this answer
        if lane[1] is Role.DATA:
            return longest if all(held.lagging for held in partitions) else 0.0
        stamps = {held.partition for held in partitions}
        for held in self._held().values():
            if held.partition not in stamps and held.fetchable:
                leader = self._cluster.leader(held.partition)
                if leader is not None and leader[0].node_id == lane[0]:
                    return min(longest, _BRIEFLY)
        return longest

    def _partition(self, held: HeldPartition, session: FetchSession, most: int) -> api.FetchPartition:
        leader = self._cluster.leader(held.partition)
        epoch = leader[1] if leader is not None else -1
        topic_id = self._cluster.topic_id(held.partition.topic)
        known = session.known.get(held.partition)
        now = (held.offset, epoch, most, topic_id)
        if known is not None and (known.offset, known.leader_epoch, known.max_bytes, known.topic_id) == now:
            return known
        return api.FetchPartition(
            topic=held.partition.topic,
            partition=held.partition.partition,
            offset=held.offset,
            topic_id=topic_id,
            leader_epoch=epoch,
            max_bytes=most,
        )

    def _answered(self, lane: Lane, stamps: Stamps, result: api.Answer | Exception, now: float) -> None:
        self._flying.pop(lane, None)
        self._context.touch()
        session = self._sessions[lane]
        if not isinstance(result, api.FetchAnswer) or result.error:
            code = result.error if isinstance(result, api.FetchAnswer) else 0
            if session.failed(code):
                self._context.log(logging.DEBUG, f"node {lane[0]} lost a fetch session: {error_for_code(code)}")
            else:
                self._failed(lane[0], stamps, result, now)
            return
        session.answered(result)
        self._node_backoff[lane[0]].succeeded()
        self._unreadable.discard(lane[0])
        if result.throttle_time > 0:
            self._throttled[lane[0]] = now + result.throttle_time
        table, arrival = self._held(), Arrival()
        undecoded = []
        for tp, fetched in result.partitions.items():
            held = table.get(TopicPartition(*tp))
            if held is not None and stamps.get(held.partition) == held.stamp and held.awaits_records:
                self._take(lane[0], held, fetched, arrival, now)
                if held.undecoded is not None:
                    undecoded.append(held)
        ready = [each for each in undecoded if each.fetchable]
        if ready:
            self._decode_some(ready, now)
        for held in undecoded:
            if held.undecoded is not None:
                held.undecoded.records.detach()
        self._end_unknown_ends(stamps)

    def _end_unknown_ends(self, stamps: Stamps) -> None:
        """Law 10."""
        table = self._held()
        for partition, stamp in stamps.items():
            held = table.get(partition)
            if held is not None and held.stamp == stamp and held.known_end < 0:
                held.known_end = held.offset

    def _failed(self, node_id: int, stamps: Stamps, result: api.Answer | Exception, now: float) -> None:
        error = _error_of(result)
        self._node_backoff[node_id].failed(now)
        level = logging.DEBUG if self._context.connections.closing else logging.INFO
        self._context.log(level, f"fetch from node {node_id} failed: {error}")
        if isinstance(error, TransportError | TimeoutError):
            self._cluster.suspect(node_id)
        self._cluster.refresh()
        for held in self._held().values():
            if held.replica is not None and held.replica[0] == node_id:
                held.replica = None
        if self._is_final(node_id, error):
            asked = [held for held in self._held().values() if stamps.get(held.partition) == held.stamp]
            for held in [held for held in asked if held.phase is Phase.FETCHING]:
                self._positions.park(held, error)
                held.alone = True

    def _is_final(self, node_id: int, error: Exception) -> bool:
        """Law 4 for a whole answer that cannot be read: its bytes, too, may have been damaged on the way."""
        if isinstance(error, ProtocolError) and not error.fatal and node_id not in self._unreadable:
            self._unreadable.add(node_id)
            return False
        unknown = getattr(error, "code", 0) == _UNKNOWN_SERVER_ERROR  # it may know better the next time (as in Java)
        return isinstance(error, KafkaError) and not error.retriable and not unknown

    # -- one partition's answer

    def _take(
        self, node_id: int, held: HeldPartition, fetched: api.FetchedPartition, arrival: Arrival, now: float
    ) -> None:
        follower = held.replica is not None and held.replica[0] == node_id
        self._context.connections.meter.read_from(held.partition, node_id if follower else None)
        if fetched.error:
            if self._was_follower(node_id, held) and fetched.error == _OFFSET_OUT_OF_RANGE:
                held.backoff.failed(now)  # or a leader that names it again each time would make us spin
                return  # law 7: the leader knows better
            self._partition_failed(held, fetched.error, now)
            return
        held.backoff.succeeded()
        if fetched.corrupt is None and fetched.undecoded is None:
            self._positions.recovered(held)
        if fetched.preferred_read_replica >= 0:
            self._use_replica(held, fetched.preferred_read_replica, now)
        stable = self._context.config.isolation_level == "read_committed"
        held.known_end = fetched.last_stable_offset if stable else fetched.high_watermark
        self._deliver(held, fetched.chunk, fetched.next_offset)
        if fetched.corrupt is not None:
            self._corrupt(held, fetched.corrupt, now)
        elif fetched.undecoded is not None:
            arrival.partitions += 1
            held.undecoded = Undecoded(records=fetched.undecoded, arrival=arrival)

    def _use_replica(self, held: HeldPartition, node_id: int, now: float) -> None:
        """Law 7. One that the metadata does not know is looked for: the leader gives nothing out meanwhile."""
        if node_id in self._cluster.brokers:
            held.replica = (node_id, now + self._context.config.metadata_max_age)
            return
        self._cluster.refresh()
        held.backoff.failed(now)

    def _was_follower(self, node_id: int, held: HeldPartition) -> bool:
        """Whether the follower that was named has failed. It is not asked again before the leader names it again."""
        if held.replica is None or held.replica[0] != node_id:
            return False
        held.replica = None
        return True

    def _deliver(self, held: HeldPartition, chunk: RecordChunk | None, next_offset: int, kept: int = 0) -> None:
        """kept: the memory that the chunk keeps, where that is more than what it counts for."""
        if next_offset <= held.offset:
            return
        start, held.offset = held.offset, next_offset
        held.doubt.succeeded()
        if chunk is not None:
            held.delivered(len(chunk), chunk.nbytes, max(kept, chunk.nbytes))
            held.leader_epoch = chunk.leader_epoch
        self._context.deliver(
            Fetched(
                partition=held.partition,
                epoch=held.epoch,
                fetch_number=held.fetch_number,
                start=start,
                chunk=chunk,
                next_offset=next_offset,
                high_watermark=held.known_end,
            )
        )

    # -- decoding

    def _decode(self, now: float) -> float:
        """Law 9. Returns when to be asked again: at once, where only the turn is over."""
        waiting = []
        for held in self._held().values():
            if held.undecoded is not None and (held.state is not Ownership.OWNED or held.phase is Phase.PARKED):
                held.undecoded = None
            elif held.undecoded is not None and held.fetchable:
                waiting.append(held)
        return now if waiting and self._decode_some(waiting, now) else float("inf")

    def _decode_some(self, partitions: Sequence[HeldPartition], now: float) -> bool:
        """Whether the turn is over before these are."""
        room, left = decoding_room(self._context.config, self._held().values()), _TURN_BYTES
        self._decoding_turn += 1
        start = self._decoding_turn % len(partitions)
        todo = deque([*partitions[start:], *partitions[:start]])
        while todo and left > 0:
            held = todo.popleft()
            if held.undecoded is None:
                continue
            took = self._decode_piece(held, held.undecoded, room, now)
            left -= took
            if took:
                todo.append(held)
        return bool(todo)

    def _decode_piece(self, held: HeldPartition, undecoded: Undecoded, room: DecodingRoom, now: float) -> int:
        """Returns what the work counts for, or 0: there is no room."""
        free, alone = room.of(held)
        target = min(room.share - held.nbytes, _TURN_BYTES)
        piece = undecoded.records.decode(target, free, alone=alone) if target > 0 else None
        if piece is None:
            return 0
        if undecoded.records.done:
            held.undecoded = None
            undecoded.arrival.partitions -= 1
            self._context.touch()
        if piece.chunk is not None:
            room.took(piece.nbytes)
            undecoded.arrival.records += len(piece.chunk)
            undecoded.arrival.nbytes += piece.chunk.nbytes
        self._deliver(held, piece.chunk, piece.next_offset, piece.nbytes)
        if piece.corrupt is not None:
            self._corrupt(held, piece.corrupt, now)
        else:
            self._positions.recovered(held)
        arrival = undecoded.arrival
        if not arrival.partitions and arrival.records:
            self._context.connections.meter.decoded(arrival.records, arrival.nbytes, now)
        return piece.nbytes + _PIECE_BYTES

    def _corrupt(self, held: HeldPartition, error: Exception, now: float) -> None:
        """Law 4: the bytes may have been damaged on the way."""
        if held.corrupt_at == held.offset:
            self._positions.park(held, error)
            return
        held.corrupt_at = held.offset
        held.backoff.failed(now)
        self._context.log(logging.WARNING, f"fetching {held.partition} at offset {held.offset} once more: {error}")

    def _partition_failed(self, held: HeldPartition, code: int, now: float) -> None:
        where = f"{held.partition} at offset {held.offset}"
        error = error_for_code(code, f"fetching {where}: the broker answered with error code {code}")
        if code == _OFFSET_OUT_OF_RANGE:
            self._positions.called_out_of_range(held)
        elif code in _STALE_METADATA:
            self._cluster.refresh()
            held.backoff.failed(now)
        elif code == _CORRUPT_MESSAGE:
            self._corrupt(held, error, now)
        elif code in _RETRY:
            held.backoff.failed(now)
        elif code == _TOPIC_AUTHORIZATION_FAILED:
            why = f"not authorised to read topic {held.partition.topic!r}: it needs Read"
            self._positions.park(held, TopicAuthorizationFailedError(why))
        else:
            self._positions.park(held, error)


def _one_alone(partitions: list[HeldPartition]) -> list[HeldPartition]:
    """Law 4."""
    suspects = [held for held in partitions if held.alone and held.trouble is not None]
    return suspects[:1] or partitions


def _error_of(result: api.Answer | Exception) -> Exception:
    if isinstance(result, api.FetchAnswer):
        return error_for_code(result.error)
    return result if isinstance(result, Exception) else TypeError(repr(result))
