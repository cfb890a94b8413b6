"""What a deserializer may be told besides the bytes."""

from __future__ import annotations

from typing import Literal

__all__ = ["SerializationContext"]

Part = Literal["key", "value"]


class SerializationContext:
    """What a deserializer is told of where its bytes come from; has the attributes of confluent-kafka's.

    topic. field: "key" or "value". headers: of the record, (name, value) in order.
    """

    __slots__ = ("field", "headers", "topic")

    def __init__(self, topic: str, field: Part, headers: list[tuple[str, bytes | None]]) -> None:
        self.topic = topic
        self.field = field
        self.headers = headers
