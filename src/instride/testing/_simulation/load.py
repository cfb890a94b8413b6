"""What a simulated member needs at one moment, for R1: there is no memory to measure, but everything can be counted.

Laws
1. It reads and changes nothing, and takes no time and no chance: a history is the same with it or without.
2. Buffered is what is really there, in the queue and at the application, not what the network side believes.
3. An application that works has not heard yet that a partition is lost, and holds what was fetched of it, while the
   network side fetches it in a new epoch: so each epoch of a partition has its share, and the old ones a buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized

from instride._core.application.machine import ApplicationMachine
from instride._core.events import BackgroundEvent, Fetched
from instride._core.network.machine import NetworkMachine
from instride.config import ConsumerConfig

__all__ = ["load"]


def load(
    config: ConsumerConfig,
    network: NetworkMachine,
    application: ApplicationMachine,
    queue: Iterable[BackgroundEvent],
    queues: Iterable[Sized],
    connections: int,
) -> tuple[int, int, int, int, int]:
    """The detail of the event "load". queue: of background events. queues: all that there are between the threads."""
    owned = {(each.partition, each.epoch) for each in network._assigned_partitions().values()}
    known = {(each.partition, each.epoch) for each in application._state.lists.owned.values()}
    known |= {(each.partition, each.epoch) for each in queue if isinstance(each, Fetched)}
    buffers = 2 if known - owned else 1
    cap = buffers * config.fetch_buffer_bytes + len(owned | known) * config.max_partition_fetch_bytes
    links = network._context.connections._links.values()
    under_way = sum(len(link.waiting) + len(link.in_flight) for link in links)
    return _buffered(application, queue), cap, sum(map(len, queues)), under_way, connections


def _buffered(application: ApplicationMachine, queue: Iterable[BackgroundEvent]) -> int:
    buffered = 0
    for owned in application._state.lists.owned.values():
        owned._settled()
        buffered += sum(each.chunk.nbytes for each in owned._buffer if each.chunk is not None)
    return buffered + sum(each.chunk.nbytes for each in queue if isinstance(each, Fetched) and each.chunk is not None)
