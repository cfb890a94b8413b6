"""What a handler returns for the output topic.

Laws
1. Nothing is written before the handler has returned. The attempt ends well when every output is acknowledged. One
   that is not fails the attempt, so that the handler is called again.
2. Whoever produces it says when it is acknowledged: by returning, or by a future or an awaitable that ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["OutputRecord", "Outputs", "outputs_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRecord:
    """What is to be produced. key and value: bytes, or None. topic: None is the processor's output topic. partition:
    None leaves it to the producer, which goes by the key."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic: str | None = None
    partition: int | None = None


Outputs = OutputRecord | Sequence[OutputRecord] | None
"""What a handler with an output topic returns."""


def outputs_of(returned: Any, topic: str) -> list[OutputRecord]:
    """With their topics. Raises TypeError for anything else."""
    found = [] if returned is None else [returned] if isinstance(returned, OutputRecord) else returned
    if not isinstance(found, list | tuple) or not all(isinstance(each, OutputRecord) for each in found):
        raise TypeError(
            f"with output= a handler returns an OutputRecord, a list of them or None, not {returned!r:.100}"
        )
    return [_addressed(each, topic) for each in found]


def _addressed(output: OutputRecord, topic: str) -> OutputRecord:
    return output if output.topic is not None else replace(output, topic=topic)
