"""Verbs that look something up at the brokers, and wait for the response.

Laws
1. Each ends with the response, its error, `WakeupError`, or `KafkaTimeoutError` at its deadline.
2. A lookup of nothing ends here, without the network.
3. They move no position and change no subscription.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from instride._core.application.calls import Call
from instride._core.application.committing import await_completion
from instride._core.application.state import ApplicationState
from instride._core.events import FetchCommitted, FetchMetadata, FetchOffsets
from instride.errors import IllegalStateError
from instride.records import OffsetAndMetadata, OffsetAndTimestamp, PartitionInfo, TopicPartition

__all__ = ["committed", "offsets_for", "offsets_for_times", "topics"]


def committed(
    state: ApplicationState, now: float, partitions: Iterable[TopicPartition], timeout: float
) -> Call[Mapping[TopicPartition, OffsetAndMetadata | None]]:
    """The group's committed offsets; None where there is none."""
    if state.config.group_id is None:
        raise IllegalStateError("committed needs a group_id")
    wanted = tuple(dict.fromkeys(TopicPartition(*tp) for tp in partitions))
    if not wanted:
        return {}
    deadline = now + timeout

    def start(call: int) -> None:
        state.post(FetchCommitted(call=call, deadline=deadline, partitions=wanted))

    completion = yield from await_completion(state, start, now, deadline, "committed")
    found: Mapping[TopicPartition, OffsetAndMetadata | None] = completion.result
    return found


def offsets_for(
    state: ApplicationState, now: float, timestamps: Mapping[TopicPartition, int], timeout: float
) -> Call[Mapping[TopicPartition, int]]:
    """The ends of the logs. timestamps: EARLIEST or LATEST."""
    found = yield from _find(state, now, timestamps, timeout)
    return {tp: each.offset for tp, each in found.items()}


def offsets_for_times(
    state: ApplicationState, now: float, timestamps: Mapping[TopicPartition, int], timeout: float
) -> Call[Mapping[TopicPartition, OffsetAndTimestamp | None]]:
    """timestamps: milliseconds. None where no record is as late as that."""
    for tp, timestamp in timestamps.items():
        if timestamp < 0:
            raise ValueError(f"the time {timestamp} of {TopicPartition(*tp)} is negative; ends are found otherwise")
    found = yield from _find(state, now, timestamps, timeout)
    return {tp: each if each.offset >= 0 else None for tp, each in found.items()}


def _find(
    state: ApplicationState, now: float, timestamps: Mapping[TopicPartition, int], timeout: float
) -> Call[Mapping[TopicPartition, OffsetAndTimestamp]]:
    wanted = {TopicPartition(*tp): timestamp for tp, timestamp in timestamps.items()}
    if not wanted:
        return {}
    deadline = now + timeout

    def start(call: int) -> None:
        state.post(FetchOffsets(call=call, deadline=deadline, timestamps=wanted))

    completion = yield from await_completion(state, start, now, deadline, "the offsets' look-up")
    found: Mapping[TopicPartition, OffsetAndTimestamp] = completion.result
    return found


def topics(
    state: ApplicationState, now: float, names: tuple[str, ...] | None, timeout: float, *, internal: bool
) -> Call[Mapping[str, tuple[PartitionInfo, ...]]]:
    """names: None for all that we may describe. What does not exist is left out."""
    if names == ():
        return {}
    if names is not None and not all(isinstance(name, str) and name for name in names):
        raise ValueError("a topic's name is a text that is not empty")
    deadline = now + timeout

    def start(call: int) -> None:
        state.post(FetchMetadata(call=call, deadline=deadline, topics=names, internal=internal))

    completion = yield from await_completion(state, start, now, deadline, "the topics' look-up")
    found: Mapping[str, tuple[PartitionInfo, ...]] = completion.result
    return found
