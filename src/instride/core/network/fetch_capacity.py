"""Which partitions may be fetched now, and what may be decoded (KIP-41, "Prefetching").

Laws
1. One half of fetch_buffer_bytes is for what is asked for or has come and is not decoded yet; the other half is for
   what is decoded and has not been handed out. A partition's share is an equal part of a half; those that are to be
   revoked have none, so that a hold slows nobody, nor have those without demand (`held_partitions`).
2. A partition is fetched again when all that came of it is decoded, and what is buffered of it is under its share. The
   broker is not waited for while there is room. One fetch asks for a share of a partition at most.
3. A partition is decoded while what is buffered of it is under its share, a batch at a time at least, and only within
   the half, of which is counted what is really held. Without that room only small batches of a partition of which
   nothing is buffered pass, and one batch alone where nothing waits that a poll could take: who consumes goes on. For
   that one, what came of other partitions is given up.
4. prefetch="total" (KIP-41's heuristic 1): besides, fewer than max_poll_records are buffered in all.
   prefetch="partition" (heuristic 2): besides, fewer than the partition's share of max_poll_records are.
   Both mean nothing where max_poll_records is -1.
5. A slow partition, full of what nobody consumes, never stops another; what a paused one has buffered, or one that is
   to be revoked, does not count for the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from instride.config import ConsumerConfig
from instride.core.network.assigned_partition import AssignedPartition
from instride.core.network.held_partitions import HeldPartitions

__all__ = ["Capacity", "DecodingRoom", "capacity", "decoding_room", "most_bytes", "response_bytes", "share"]

# A batch that is this small passes when nothing of its partition is buffered (law 3).
_SMALL_BYTES = 16 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Laws 2 and 4. nbytes, records: a partition is fetched again while less than that is buffered of it.

    none: no partition is fetched at all.
    """

    nbytes: int
    records: int
    none: bool

    def of(self, assigned: AssignedPartition) -> bool:
        """Whether what is buffered of the partition leaves capacity for more."""
        return assigned.nbytes < self.nbytes and (self.records < 0 or assigned.records < self.records)


def capacity(config: ConsumerConfig, held: HeldPartitions) -> Capacity:
    """Of each of these."""
    limit, sharers = config.max_poll_records, held.sharers
    bounded = limit >= 0
    return Capacity(
        nbytes=share(config, sharers),
        records=max(1, limit // sharers) if bounded and config.prefetch == "partition" else -1,
        none=bounded and config.prefetch == "total" and held.flowing_records >= limit,
    )


def most_bytes(config: ConsumerConfig, partitions: int) -> int:
    """How many bytes of one partition a fetch may bring, where so many share the room."""
    return min(config.max_partition_fetch_bytes, share(config, partitions))


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


def decoding_room(config: ConsumerConfig, held: HeldPartitions) -> DecodingRoom:
    left = config.fetch_buffer_bytes // 2 - held.kept_bytes
    return DecodingRoom(share=share(config, held.sharers), left=left, waiting=held.flowing_kept_bytes)


def share(config: ConsumerConfig, partitions: int) -> int:
    """A partition's part of one half of the buffer, where so many share it."""
    return max(1, config.fetch_buffer_bytes // (2 * partitions))
