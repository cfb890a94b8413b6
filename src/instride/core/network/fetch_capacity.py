"""Which partitions may be fetched now, and what may be decoded (KIP-41, "Prefetching").

Laws
1. One half of fetch_buffer_bytes is for what is asked for or has come and is not decoded yet; the other half is for
   what is decoded and has not been handed out. A partition's share is an equal part of a half; those that are to be
   revoked have none, so that a hold slows nobody.
2. A partition is fetched again when all that came of it is decoded, and what is buffered of it is under its share. The
   broker is not waited for while there is room. One fetch asks for a share of a partition at most.
3. A partition is decoded while what is buffered of it is under its share, a batch at a time at least, and only within
   the half, of which is counted what is really held. Without that room only small batches of a partition of which
   nothing is buffered pass, and one batch alone where nothing waits that a poll could take: who consumes goes on.
4. prefetch="total" (KIP-41's heuristic 1): besides, fewer than max_poll_records are buffered in all.
   prefetch="partition" (heuristic 2): besides, fewer than the partition's share of max_poll_records are.
   Both mean nothing where max_poll_records is -1.
5. A slow partition, full of what nobody consumes, never stops another; what a paused one has buffered, or one that is
   to be revoked, does not count for the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from instride.config import ConsumerConfig
from instride.core.group.ownership import Ownership
from instride.core.network.assigned_partition import AssignedPartition

__all__ = ["DecodingRoom", "decoding_room", "most_bytes", "response_bytes", "sharers", "with_capacity"]

# A batch that is this small passes when nothing of its partition is buffered (law 3).
_SMALL_BYTES = 16 << 10


def with_capacity(config: ConsumerConfig, assigned: Iterable[AssignedPartition]) -> list[AssignedPartition]:
    """The partitions to fetch, of all that are held."""
    everything = list(assigned)
    if not everything:
        return []
    sharing = sharers(everything)
    share = _share(config, sharing)
    ready = [each for each in everything if each.fetchable and each.undecoded is None and each.nbytes < share]
    limit = config.max_poll_records
    if limit < 0 or config.prefetch == "bytes":
        return ready
    if config.prefetch == "total":
        waiting = sum(each.records for each in everything if _flows(each))
        return ready if waiting < limit else []
    return [each for each in ready if each.records < max(1, limit // sharing)]


def sharers(assigned: Iterable[AssignedPartition]) -> int:
    """How many partitions share the room; one at least."""
    return max(1, sum(each.state is Ownership.OWNED for each in assigned))


def most_bytes(config: ConsumerConfig, partitions: int) -> int:
    """How many bytes of one partition a fetch may bring, where so many share the room."""
    return min(config.max_partition_fetch_bytes, _share(config, partitions))


def response_bytes(config: ConsumerConfig) -> int:
    """How many bytes a whole response may have. While it is taken apart, much of it may be there twice."""
    return min(config.fetch_max_bytes, max(1, config.fetch_buffer_bytes // 8))


@dataclass(slots=True, kw_only=True)
class DecodingRoom:
    """Law 3. share: of a partition. left: of the half. waiting: decoded, and a poll may take it."""

    share: int
    left: int
    waiting: int

    def of(self, assigned: AssignedPartition) -> tuple[int, bool]:
        """How much may be decoded of a partition now, and whether one batch may be larger."""
        least = _SMALL_BYTES if not assigned.kept else 0
        return max(self.left, least), self.waiting == 0

    def took(self, nbytes: int) -> None:
        self.left -= nbytes
        self.waiting += nbytes


def decoding_room(config: ConsumerConfig, assigned: Collection[AssignedPartition]) -> DecodingRoom:
    kept = sum(each.kept_bytes for each in assigned)
    waiting = sum(each.kept_bytes for each in assigned if _flows(each))
    return DecodingRoom(
        share=_share(config, sharers(assigned)), left=config.fetch_buffer_bytes // 2 - kept, waiting=waiting
    )


def _flows(assigned: AssignedPartition) -> bool:
    return assigned.state is Ownership.OWNED and not assigned.paused


def _share(config: ConsumerConfig, partitions: int) -> int:
    return max(1, config.fetch_buffer_bytes // (2 * partitions))
