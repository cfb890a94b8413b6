"""What goes wrong with the Kafka for tests, and with recorded histories."""

from __future__ import annotations

from instride.errors.base import KafkaError, KafkaTimeoutError

__all__ = [
    "BrokerStartError",
    "ChecksumMismatchError",
    "HistoryError",
    "JavaNotFoundError",
    "KafkaNotFoundError",
    "LocalKafkaError",
    "LocalKafkaTimeoutError",
]


class HistoryError(KafkaError, ValueError):
    """A line is no event of a history, or events contradict each other: see docs/histories.md."""


class LocalKafkaError(KafkaError):
    """`instride.testing.LocalKafka` was used wrongly, or what it stands on broke."""

    # The end of a log, and lists of places that were looked at, have lines.
    __str__ = Exception.__str__


class LocalKafkaTimeoutError(LocalKafkaError, KafkaTimeoutError):
    """LocalKafka, or a topic of it, was not ready in time. The message has the ends of the brokers' logs."""


class JavaNotFoundError(LocalKafkaError):
    """No Java that can run a broker. The message tells every place looked at, and why its Java would not do."""


class KafkaNotFoundError(LocalKafkaError):
    """No Apache Kafka here, and none could be fetched."""


class ChecksumMismatchError(LocalKafkaError):
    """A fetched file is not the one that is pinned. It was not run."""


class BrokerStartError(LocalKafkaError):
    """A broker ended while it was to start. The message holds the end of its log.

    port_taken: whether it ended because another process listens on one of its ports.
    """

    def __init__(self, message: str, *, port_taken: bool = False) -> None:
        super().__init__(message)
        self.port_taken = port_taken
