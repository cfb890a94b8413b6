"""The interceptors of one consumer, and how they are called.

Laws
1. Interceptors are called in the order given, on the application's thread, inside the consumer's own calls.
2. They observe: records, positions, commits and the lists of KIP-983 are what they are without them.
3. What one raises is logged and goes no further (as in Java).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from instride._coroutines import is_asynchronous
from instride.consumer_records import ConsumerRecords
from instride.errors import ConfigError
from instride.interceptors import ConsumerInterceptor
from instride.records import OffsetAndMetadata, TopicPartition

__all__ = ["Interceptors"]

_logger = logging.getLogger("instride.interceptors")
_METHODS = ("on_consume", "on_commit", "close")


class Interceptors:
    """Those of one consumer. Used by one thread at a time, as the consumer is."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor]) -> None:
        """Raises ConfigError for what lacks one of the methods, or has an asynchronous one: none would await it."""
        self._interceptors = tuple(interceptors)
        for each in self._interceptors:
            missing = [method for method in _METHODS if not callable(getattr(each, method, None))]
            if missing:
                raise ConfigError(f"interceptors: {type(each).__name__} has no method {missing[0]}")
            for method in _METHODS:
                if is_asynchronous(getattr(each, method)):
                    raise ConfigError(f"interceptors: {type(each).__name__}.{method} is asynchronous; it must be plain")

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_consume(self, records: ConsumerRecords) -> None:
        for each in self._interceptors if records else ():
            _call(each, "on_consume", records)

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for each in self._interceptors:
            _call(each, "on_commit", offsets)

    def close(self) -> None:
        for each in self._interceptors:
            _call(each, "close")


def _call(interceptor: ConsumerInterceptor, method: str, *arguments: object) -> None:
    """Law 3."""
    try:
        getattr(interceptor, method)(*arguments)
    except Exception:
        # By the method's name: what is called may be a `partial`, which has none.
        _logger.exception("%s.%s raised", type(interceptor).__name__, method)
