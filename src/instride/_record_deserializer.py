"""From bytes to what the application wants: how a consumer's deserializers are called.

Laws
1. A deserializer is any callable: `f(bytes)`, or `f(bytes, context)` where its second parameter has no default or is
   called `ctx` or `context`, as those of confluent-kafka and its schema registry are.
2. It is not called for null: a key or value that is None stays None (as in Java).
3. What it raises becomes `DeserializationError`, which names the record and holds it, and says nothing of its content.
   What is no `Exception` (Ctrl-C, say) passes through.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from instride._coroutines import is_asynchronous
from instride._wire.decoder import replaced
from instride.config import Deserializer
from instride.deserializers import Part, SerializationContext
from instride.errors import ConfigError, DeserializationError
from instride.records import ConsumerRecord

__all__ = ["RecordDeserializer"]


class RecordDeserializer:
    """The deserializers of one consumer. As thread-safe as they are."""

    __slots__ = ("_given", "_key", "_value")

    def __init__(self, key: Deserializer | None, value: Deserializer | None) -> None:
        """Raises ConfigError where one cannot be called, or is asynchronous."""
        self._given = key, value
        self._key = _caller("key_deserializer", key)
        self._value = _caller("value_deserializer", value)

    def __reduce__(self) -> tuple[type[RecordDeserializer], tuple[Deserializer | None, Deserializer | None]]:
        """Another process makes its own of the same deserializers."""
        return RecordDeserializer, self._given

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return self._key is not None or self._value is not None

    def read(self, record: ConsumerRecord) -> ConsumerRecord:
        """The same record with its key and value deserialized. Raises DeserializationError."""
        return replaced(record, _part(self._key, record, "key"), _part(self._value, record, "value"))


Caller = Callable[[bytes, ConsumerRecord, Part], Any]


def _part(call: Caller | None, record: ConsumerRecord, part: Part) -> Any:
    data = record.key if part == "key" else record.value
    if call is None or data is None:
        return data
    try:
        return call(data, record, part)
    except Exception as error:
        raise DeserializationError(
            f"the {part} of {record.topic_partition} at offset {record.offset} cannot be deserialized: "
            f"{type(error).__name__}; seek past it, or poll again to try again",
            part=part,
            record=record,
        ) from error


def _caller(setting: str, deserializer: Deserializer | None) -> Caller | None:
    if deserializer is None:
        return None
    if not callable(deserializer):
        raise ConfigError(f"{setting} must be callable, such as json.loads; it is {deserializer!r}")
    if is_asynchronous(deserializer):
        raise ConfigError(f"{setting} is asynchronous; poll can only call one that returns its result")
    if _wants_context(deserializer):
        return lambda data, record, part: deserializer(
            data, SerializationContext(record.topic, part, list(record.headers))
        )
    return lambda data, _record, _part: deserializer(data)


def _wants_context(deserializer: Deserializer) -> bool:
    """Law 1. Of a builtin without a signature: no."""
    try:
        parameters = inspect.signature(deserializer).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    if len(positional) < 2:
        return False
    second = positional[1]
    return second.default is inspect.Parameter.empty or second.name in ("ctx", "context")
