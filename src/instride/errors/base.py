"""What every error here is, and those of a consumer's own making."""

from __future__ import annotations

from typing import ClassVar

from instride.errors._quoting import one_line

__all__ = [
    "AssignorError",
    "ConcurrentUseError",
    "ConfigError",
    "ConsumerClosedError",
    "ForkedConsumerError",
    "IllegalStateError",
    "KafkaError",
    "KafkaTimeoutError",
    "NetworkThreadDiedError",
    "NoAssignorInCommonError",
    "NoOffsetForPartitionError",
    "WakeupError",
]


class KafkaError(Exception):
    """Base of every error here.

    retriable: the same call may succeed later.
    fatal: to repeat the call does not help by itself: put right what the message names, or close. Where others put it
    right (a right that is granted, a password), the consumer goes on, since it tries again; a `Processor` ends.
    Its text is one printable line of bounded length, whatever a broker wrote into it.
    """

    retriable: ClassVar[bool] = False
    fatal: ClassVar[bool] = False

    def __str__(self) -> str:
        return one_line(super().__str__())

    def __reduce__(self) -> tuple[object, ...]:
        """For pickle and copy. Python's own calls the constructor with `args` alone, and some of ours ask for more."""
        return _rebuilt, (type(self), self.args), dict(vars(self))


def _rebuilt(kind: type[KafkaError], args: tuple[object, ...]) -> KafkaError:
    """What pickle calls, which then sets the attributes."""
    error = kind.__new__(kind, *args)
    error.args = args
    return error


class ConfigError(KafkaError, ValueError):
    """A setting is unknown, out of bounds, or contradicts another. Raised when the consumer is built."""


class ConsumerClosedError(KafkaError):
    """The consumer was closed."""

    fatal = True


class IllegalStateError(KafkaError, RuntimeError):
    """The call does not fit what the consumer is doing: polling without a subscription, say."""


class ConcurrentUseError(KafkaError):
    """Another thread is inside a call. A consumer may move between threads, not be used by two at once."""


class ForkedConsumerError(KafkaError):
    """The process forked after the consumer was opened; the child must build its own."""

    fatal = True


class WakeupError(KafkaError):
    """``Consumer.wakeup()`` interrupted this call."""

    retriable = True


class NetworkThreadDiedError(KafkaError):
    """The network thread ended unexpectedly. ``__cause__`` holds what ended it."""

    fatal = True


class KafkaTimeoutError(KafkaError, TimeoutError):
    """The call's time ended before the response came."""

    retriable = True


class NoOffsetForPartitionError(KafkaError):
    """A partition has no committed offset and ``auto_offset_reset`` is "none"."""


class AssignorError(KafkaError):
    """A user's assignor returned what is no assignment of this group; the message says what."""

    fatal = True


class NoAssignorInCommonError(KafkaError):
    """The configured assignors share no rebalance protocol, or none is known to the rest of the group."""

    fatal = True
