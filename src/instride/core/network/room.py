"""Which partitions may be fetched now (KIP-41, "Prefetching").

Laws
1. A partition is fetched again when what is buffered of it is under its share of fetch_buffer_bytes. The broker is
   not waited for while there is room. One fetch asks for a share of a partition at most, so that all buffers together
   stay under twice the bound (a single larger batch excepted, which must be read whole).
2. prefetch="total" (KIP-41's heuristic 1): besides, fewer than max_poll_records are buffered in all.
   prefetch="partition" (heuristic 2): besides, fewer than the partition's share of max_poll_records are.
   Both mean nothing where max_poll_records is -1.
3. A slow partition, full of what nobody consumes, never stops another; what a paused one has buffered, or one that is
   to be revoked, does not count for the others.
"""

from __future__ import annotations

from collections.abc import Iterable

from instride.config import ConsumerConfig
from instride.core.group.ownership import Ownership
from instride.core.network.held import HeldPartition

__all__ = ["most_bytes", "with_room"]


def with_room(config: ConsumerConfig, held: Iterable[HeldPartition]) -> list[HeldPartition]:
    """The partitions to fetch, of all that are held."""
    everything = list(held)
    if not everything:
        return []
    share = _share(config, len(everything))
    ready = [each for each in everything if each.fetchable and each.nbytes < share]
    limit = config.max_poll_records
    if limit < 0 or config.prefetch == "bytes":
        return ready
    if config.prefetch == "total":
        waiting = sum(each.records for each in everything if each.state is Ownership.OWNED and not each.paused)
        return ready if waiting < limit else []
    return [each for each in ready if each.records < max(1, limit // len(everything))]


def most_bytes(config: ConsumerConfig, partitions: int) -> int:
    """How many bytes of one partition a fetch may bring, where so many are held."""
    return min(config.max_partition_fetch_bytes, _share(config, partitions))


def _share(config: ConsumerConfig, partitions: int) -> int:
    return max(1, config.fetch_buffer_bytes // partitions)
